package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/evidence/follow"
	"go.uber.org/zap"
)

const (
	// sendEvery is the least time between two pages that are not full, so that
	// a busy log is sent in some pages a second and not record by record.
	sendEvery = 100 * time.Millisecond
	// saveEvery is how often the cursor is kept at most.
	saveEvery = time.Second
	// maxRest bounds the rest after a full page.
	maxRest = 20 * time.Millisecond
	// fullPage is from how many records on a page counts as full: there is more.
	fullPage = 256
	// Waits after failures.
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// FollowerOptions are what a [Follower] is given from outside.
type FollowerOptions struct {
	// Name and Type are shown in the status. Name names the cursor file.
	Name, Type string
	Log        Log
	Sink       Sink
	// Dir is where cursors are kept.
	Dir string
	// From is where to begin without a cursor: [FromStart] or [FromNow].
	From   string
	Filter audit.Filter
	// Timeout bounds one attempt to send a page.
	Timeout time.Duration
	Now     func() time.Time
	// Random returns numbers from 0 up to 1, for the jitter of retries.
	Random func() float64
	Zap    *zap.Logger
}

// Status is how far a sink is.
type Status struct {
	Name, Type string
	// Status is how far it is: its Seq is the last record that the sink has taken over.
	follow.Status
	// Oldest is when the oldest record was made that was read and not taken
	// over, zero where there is none.
	Oldest time.Time
	// Sent counts records taken over since the start, those that were sent
	// again too; Refused those of them that the other system does not keep.
	Sent, Refused uint64
	// Note is what an operator should know of the past: that the log was
	// replaced, that records were gone before they were sent, or what was
	// refused.
	Note string
}

// Follower sends a log to one sink, behind a durable cursor. It holds one page
// in memory.
type Follower struct {
	o    FollowerOptions
	path string
	log  *zap.Logger
	loop *follow.Follower

	// What follows is the loop's own, but mu is held to change at.
	at      cursor
	saved   cursor
	savedAt time.Time
	// trail are the cursors before the pages that were sent last, oldest first.
	trail []mark

	mu sync.Mutex
	// status has what the loop does not say.
	status Status
	// kept is the cursor in the file.
	kept uint64
}

// mark is where the cursor stood before a page was sent.
type mark struct {
	before cursor
	at     time.Time
}

// Follow begins to send. The cursor is read before it returns, so that what a
// first run from [FromNow] leaves out is decided here.
func Follow(ctx context.Context, o FollowerOptions) (*Follower, error) {
	if err := validName(o.Name); err != nil {
		return nil, fmt.Errorf("cannot name a sink %q: %w", o.Name, err)
	}
	f := &Follower{
		o: o, path: filepath.Join(o.Dir, o.Name+cursorExt), log: o.Zap.With(zap.String("sink", o.Name)),
		status: Status{Name: o.Name, Type: o.Type},
	}
	if err := f.resume(ctx); err != nil {
		return nil, fmt.Errorf("cannot start the sink %s: %w", o.Name, err)
	}
	following := follow.Options{
		Log: o.Log, At: f.seq, Take: f.take, Due: f.saveDue, Now: o.Now,
		Retry:   follow.Retry{First: retryFirst, Most: retryMost, Random: o.Random},
		Failing: "a sink takes no records: they wait in the log", Well: "a sink takes records again", Level: zap.WarnLevel, Zap: f.log,
	}
	if t, ok := o.Sink.(trailing); ok {
		following.Wake = t.Broken
	}
	f.loop = follow.Start(ctx, following)
	return f, nil
}

// resume finds out where to go on. Evidence that was sent twice is better than
// evidence that was not sent: a cursor that cannot be read, or that does not
// belong to this log, begins anew.
func (f *Follower) resume(ctx context.Context) error {
	c, err := loadCursor(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.o.From == FromNow {
			head := f.o.Log.Head()
			c = cursor{Seq: head.Seq, Hash: head.Hash}
		}
	case err != nil:
		f.note("the cursor could not be read, and all records are sent again: " + err.Error())
		c = cursor{}
	default:
		known, err := f.belongs(ctx, c)
		if err != nil {
			return err
		}
		if !known {
			f.note(fmt.Sprintf("the log was replaced or cut: record %d, the last one sent, is not in it with hash %s; all records are sent again", c.Seq, c.Hash))
			c = cursor{}
		}
	}
	f.at, f.savedAt = c, f.o.Now()
	return f.save()
}

// belongs reports whether a cursor's record is in the log as it was. Where the
// log begins after it, the record that follows it names it.
func (f *Follower) belongs(ctx context.Context, c cursor) (bool, error) {
	if c.Seq == 0 {
		return true, nil
	}
	if f.o.Log.Head().Seq < c.Seq {
		return false, nil
	}
	lines, _, err := f.o.Log.LinesAfter(ctx, c.Seq-1)
	if err != nil {
		return false, fmt.Errorf("cannot read the log: %w", err)
	}
	if len(lines) == 0 {
		return false, nil
	}
	r := Read(lines[0])
	switch {
	case !r.Known:
		return false, nil
	case r.Entry.Seq == c.Seq:
		return r.Entry.Hash == c.Hash, nil
	case r.Entry.Seq == c.Seq+1:
		return r.Entry.Prev == c.Hash, nil
	}
	return true, nil // the records in between are gone, see step
}

// Status tells how far the sink is.
func (f *Follower) Status() Status {
	now := f.loop.Status()
	now.Error = text.Clip(oneLine(now.Error), maxSummary)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Status = now
	return s
}

// Close sends what is left, for as long as ctx lives, keeps the cursor and
// closes the sink. It gives up at the first attempt that fails.
func (f *Follower) Close(ctx context.Context) error {
	f.loop.Close(ctx)
	return errors.Join(f.save(), f.o.Sink.Close())
}

// take sends the next page if there is one, and keeps the cursor now and then. What a
// connection broke off with is sent again at once, and not with the next record.
func (f *Follower) take(ctx context.Context) (rest time.Duration, err error) {
	if f.o.Log.Head().Seq > f.at.Seq {
		rest, err = f.next(ctx)
	} else if t, ok := f.o.Sink.(trailing); ok {
		f.rewind(t.Check())
	}
	if due := f.saveDue(); err == nil && !due.IsZero() && !f.o.Now().Before(due) {
		err = f.save()
	}
	return rest, err
}

// saveDue returns when the cursor is to be kept, the zero time where it is.
func (f *Follower) saveDue() time.Time {
	if f.at == f.saved {
		return time.Time{}
	}
	return f.savedAt.Add(saveEvery)
}

// next sends a page of records.
func (f *Follower) next(ctx context.Context) (rest time.Duration, err error) {
	lines, upTo, err := f.o.Log.LinesAfter(ctx, f.at.Seq)
	if err != nil {
		return 0, fmt.Errorf("cannot read the log: %w", err)
	}
	if len(lines) == 0 {
		return 0, fmt.Errorf("cannot read the log: no record after %d, and its end is %d", f.at.Seq, f.o.Log.Head().Seq)
	}
	batch, end, err := f.page(lines)
	if err != nil {
		return 0, err
	}
	end.Seq = upTo
	from := f.o.Now()
	if len(batch) > 0 {
		if err := f.send(ctx, batch); err != nil {
			return 0, err
		}
		rest = sendEvery
	}
	f.move(end)
	if len(lines) >= fullPage {
		// Whoever catches up leaves the processor to decisions half of the time.
		rest = min(max(0, f.o.Now().Sub(from)), maxRest)
	}
	return rest, nil
}

// page reads the lines that are to be sent, and the cursor after them.
func (f *Follower) page(lines [][]byte) (batch []Record, end cursor, err error) {
	all := f.o.Filter.Unbounded()
	for i, line := range lines {
		first, last := i == 0, i == len(lines)-1
		match := all || f.o.Filter.Match(line)
		if !match && !first && !last {
			continue
		}
		r := Read(line)
		if first && r.Known && r.Entry.Seq > f.at.Seq+1 {
			f.note(fmt.Sprintf("records %d to %d were gone from the log before they were sent", f.at.Seq+1, r.Entry.Seq-1))
		}
		if last {
			if !r.Known {
				return nil, cursor{}, errors.New("cannot read the log: a line is no record")
			}
			end = cursor{Seq: r.Entry.Seq, Hash: r.Entry.Hash}
		}
		if match {
			batch = append(batch, r)
		}
	}
	return batch, end, nil
}

// send hands a page over.
func (f *Follower) send(ctx context.Context, batch []Record) error {
	f.mu.Lock()
	f.status.Oldest = batch[0].Entry.Time
	f.mu.Unlock()
	limit, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	ack, err := f.o.Sink.Send(limit, batch)
	if err != nil {
		f.rewind(err)
		return err
	}
	if t, ok := f.o.Sink.(trailing); ok {
		now := f.o.Now()
		for len(f.trail) > 0 && now.Sub(f.trail[0].at) > t.Trail() {
			f.trail = f.trail[1:]
		}
		f.trail = append(f.trail, mark{before: f.at, at: now})
	}
	f.mu.Lock()
	f.status.Oldest = time.Time{}
	f.status.Sent += uint64(len(batch))
	f.status.Refused += uint64(ack.Refused)
	f.mu.Unlock()
	if ack.Refused > 0 {
		f.note(fmt.Sprintf("of records %d to %d, %d were refused: %s",
			batch[0].Entry.Seq, batch[len(batch)-1].Entry.Seq, ack.Refused, text.Clip(oneLine(ack.Why), maxSummary)))
	}
	return nil
}

// rewind goes back to what was sent shortly before a connection broke, where
// nobody says whether it was read.
func (f *Follower) rewind(err error) {
	broken, isBroken := errors.AsType[*brokenError](err)
	t, ok := f.o.Sink.(trailing)
	if !ok || !isBroken {
		return
	}
	for _, m := range f.trail {
		if broken.at.Sub(m.at) <= t.Trail() {
			f.move(m.before)
			f.log.Warn("a connection broke: what may not have been read is sent again", zap.Uint64("after", f.at.Seq), zap.Error(err))
			// A crash before the next page would leave them out, and so would their removal.
			if err := f.save(); err != nil {
				f.log.Error("cannot keep from where on records are sent again", zap.Error(err))
			}
			break
		}
	}
	f.trail = nil
}

// move puts the cursor behind what was taken over, or back.
func (f *Follower) move(to cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = to
}

// seq is the last record that was taken over.
func (f *Follower) seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at.Seq
}

func (f *Follower) note(text string) {
	f.log.Error("a sink lacks records or gets them again", zap.String("why", text))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Note = text
}

// save keeps the cursor where it moved.
func (f *Follower) save() error {
	f.savedAt = f.o.Now()
	if f.at == f.saved && f.at != (cursor{}) {
		return nil
	}
	if err := saveCursor(f.path, f.at); err != nil {
		return err
	}
	f.saved = f.at
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = f.at.Seq
	return nil
}
