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
	// sendEvery is the least time between two pages that are not full, so that the records of a
	// busy log are sent in some pages a second and not one by one.
	sendEvery = 100 * time.Millisecond
	// saveEvery is the least time between two writes of the cursor.
	saveEvery = time.Second
	// maxRest bounds the rest after a full page.
	maxRest = 20 * time.Millisecond
	// fullPage is the number of records from which a page counts as full: there is more.
	fullPage = 256
	// Waits after failures.
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// FollowerOptions configure a [Follower].
type FollowerOptions struct {
	// Name and Type are shown in the status. Name names the cursor file.
	Name, Type string
	Log        Log
	Sink       Sink
	// Dir is the directory of the cursors.
	Dir string
	// From is the starting point without a cursor: [FromStart] or [FromNow].
	From   string
	Filter audit.Filter
	// Timeout bounds one attempt to send a page.
	Timeout time.Duration
	Now     func() time.Time
	// Random returns numbers from 0 up to 1, for the jitter of retries.
	Random func() float64
	Zap    *zap.Logger
}

// Status is the progress of a sink.
type Status struct {
	Name, Type string
	// Status is the follower's; its Seq is the last record that the sink has taken.
	follow.Status
	// Oldest is the time of the oldest record that was read and not taken, zero if there is none.
	Oldest time.Time
	// Sent counts the records taken since the start, including repeated ones. Refused counts those
	// of them that the other system does not keep.
	Sent, Refused uint64
	// Note is past information for an operator: that the log was replaced, that records were
	// removed before they were sent, or which ones were refused.
	Note string
}

// Follower sends a log to one sink, behind a durable cursor. It holds one page
// in memory.
type Follower struct {
	o    FollowerOptions
	path string
	log  *zap.Logger
	loop *follow.Follower

	// Only the loop uses these fields, but changing at needs mu.
	at      cursor
	saved   cursor
	savedAt time.Time
	// trail are the cursors before the last sent pages, oldest first.
	trail []mark

	mu sync.Mutex
	// status has the fields that the loop does not provide.
	status Status
	// kept is the cursor in the file.
	kept uint64
}

// mark is the cursor before a page was sent.
type mark struct {
	before cursor
	at     time.Time
}

// Follow starts a follower. It reads the cursor before it returns, so that the records which a
// first run from [FromNow] leaves out are determined here.
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

// resume determines where to continue. Duplicate evidence is better than missing evidence: if the
// cursor cannot be read, or does not belong to this log, the follower begins anew.
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

// belongs reports whether a cursor's record is in the log unchanged. If the log begins after it,
// the next record names it.
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

// Status returns the progress of the sink.
func (f *Follower) Status() Status {
	now := f.loop.Status()
	now.Error = text.Clip(oneLine(now.Error), maxSummary)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Status = now
	return s
}

// Close sends the remaining records until ctx ends, keeps the cursor and closes the sink. It gives
// up at the first failed attempt.
func (f *Follower) Close(ctx context.Context) error {
	f.loop.Close(ctx)
	return errors.Join(f.save(), f.o.Sink.Close())
}

// take sends the next page if there is one, and saves the cursor now and then. It repeats the
// records of a broken connection at once, and does not wait for the next record.
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

// saveDue returns the time of the next write of the cursor, or zero if it is saved.
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
		// A follower that catches up leaves half of the processor's time to decisions.
		rest = min(max(0, f.o.Now().Sub(from)), maxRest)
	}
	return rest, nil
}

// page parses the lines to send, and returns the cursor after them.
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

// send sends a page to the sink.
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

// rewind goes back over the records that were sent shortly before a connection broke, since nothing
// confirms that they were read.
func (f *Follower) rewind(err error) {
	broken, isBroken := errors.AsType[*brokenError](err)
	t, ok := f.o.Sink.(trailing)
	if !ok || !isBroken {
		return
	}
	for _, m := range f.trail {
		if broken.at.Sub(m.at) <= t.Trail() {
			f.move(m.before)
			f.log.Warn("a connection broke: records that may not have been read are sent again", zap.Uint64("after", f.at.Seq), zap.Error(err))
			// Otherwise a crash before the next page would omit them, and so would their removal.
			if err := f.save(); err != nil {
				f.log.Error("cannot save the cursor from which records are sent again", zap.Error(err))
			}
			break
		}
	}
	f.trail = nil
}

// move sets the cursor, forward or back.
func (f *Follower) move(to cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = to
}

// seq returns the last record that the sink has taken.
func (f *Follower) seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at.Seq
}

func (f *Follower) note(text string) {
	f.log.Error("a sink misses records or gets them again", zap.String("why", text))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Note = text
}

// save writes the cursor if it has moved.
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
