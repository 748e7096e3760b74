// Package mirror keeps the copy of the audit log that people and programs
// read: JSON lines in a file of one name, for tail -F and shippers, and the
// older ones in compressed segments beside it.
//
// The database is the record. The mirror follows it through [Source], is never
// waited for, and fills in from it whatever it lacks: after a crash, a full
// disk, or somebody's hand. Live file and segments together are the records of
// the database from the first, or the first that retention left, to the last
// that was written, each once and in order.
//
// # Rotation
//
// By size or age the live file gets the name <base>-<first>-<last>.jsonl and
// another takes its place; nothing is ever copied and truncated. In the
// background the segment is compressed into …jsonl.zst, read back line by line
// and held against the chain and the database, and listed in
// <base>-manifest.jsonl, which is replaced as a whole. Only then the
// uncompressed file goes. Whatever step a crash interrupts, [Open] goes on from
// what it finds.
//
// # What is not as it was left
//
//   - A live file, or a segment that is not listed yet, which is not of this
//     database is renamed to ….foreign-<time>, and what belongs there is
//     written from the database. Nothing is overwritten.
//   - A live file or a segment that goes on where the database ends is the last
//     copy of records that the database has lost: [Open] fails with an
//     [*AheadError] and leaves everything as it is.
//   - Lines that are missing in the live file, and segments that are missing
//     and were not listed yet, are written from the database.
//   - A listed segment that is missing, or is not what the manifest says, is
//     reported by [Mirror.Status] and in the log, and is left as it is: what
//     was finished once is evidence, and only a hand can have changed it. The
//     records are in the database still.
//   - A manifest that cannot be read is set aside and made again from the
//     segments, each read whole.
//
// A change within the live file that leaves its length is found when the file
// has become a segment.
//
// # Alive
//
// [Mirror.Check] says whether the live file is still the one that is written
// to. The caller asks it before a message is let go, and lets none go while it
// fails. The mirror restores the file by itself and then calls Options.Lost.
//
// The caller opens a mirror after its database and closes it before.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/evidence/follow"
	"go.uber.org/zap"
)

// Options say where the mirror is and what it is given from outside.
type Options struct {
	// Path of the live file. Its directory is made with mode 0700; a link in its
	// place is refused.
	Path string
	// Source is the log that is mirrored.
	Source follow.Log
	// Database names the source in errors.
	Database string
	Clock    func() time.Time
	Log      *zap.Logger
	// RotateBytes is what the live file holds at most, in bytes, but for a
	// line that alone is longer. Zero rotates by age alone.
	RotateBytes int64
	// RotateAge is how old the first record of the live file gets. Zero
	// rotates by size alone.
	RotateAge time.Duration
	// Lost is called, where it is set, after the live file was found not to be
	// what was written, with what was wrong and what was done about it. It may
	// record that: the mirror waits for it and no lock is held.
	Lost func(problem string)

	// step is called between what a crash could interrupt.
	step func(name string)
	// eager compresses at once, whatever else goes on.
	eager bool
}

// Mirror is an open mirror. Its methods are safe for concurrent use.
type Mirror struct {
	o      Options
	layout layout
	log    *zap.Logger

	// have is the last record in the live file, or before it where it is
	// empty.
	have atomic.Uint64
	live live

	mu sync.Mutex
	// segments are those of the manifest, replaced as a whole.
	segments []Segment
	// pending are those that are not in it yet, oldest first.
	pending []span
	// faults are what is wrong with segments.
	faults []string
	// rotating is why the mirror does not rotate, and packing why it does not
	// compress.
	rotating, packing string

	// files is held over a change of the manifest and what goes with it.
	files sync.Mutex

	// loop has the live file written. alarms has word where Check found a fault,
	// and kick where there is something to compress.
	loop         *follow.Follower
	alarms, kick chan struct{}

	closing   context.Context
	startStop context.CancelFunc
	tasks     sync.WaitGroup
	once      sync.Once
}

const (
	// retryAfter is how long the mirror waits after a failed write,
	// rotateAgain after a failed rotation.
	retryAfter  = time.Second
	rotateAgain = time.Minute
	// gatherTime is how long the mirror lets records come together before it looks
	// for the next ones, so that it does not run beside each commit of many.
	gatherTime = 10 * time.Millisecond
)

// Open takes up the files of a mirror, or makes them, and follows the source
// from there on. It does not wait until the mirror has caught up. The error is an
// [*AheadError] where the mirror has records that the source has lost, which is
// told only as long as the source has no others in their place: nothing is to be
// recorded before.
func Open(ctx context.Context, o Options) (*Mirror, error) {
	path, err := resolve(o.Path)
	if err != nil {
		return nil, err
	}
	if o.step == nil {
		o.step = func(string) {}
	}
	m := &Mirror{o: o, layout: newLayout(path), log: o.Log, alarms: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
	m.closing, m.startStop = context.WithCancel(context.WithoutCancel(ctx))
	var tail uint64
	if err = m.ahead(ctx, o.Source.Head()); err == nil {
		tail, err = m.loadSegments(ctx)
	}
	if err == nil {
		err = m.takeUp(ctx, tail)
	}
	if err != nil {
		m.startStop()
		return nil, err
	}
	m.loop = follow.Start(ctx, follow.Options{
		Log: o.Source, At: m.Mirrored, Now: o.Clock, Retry: follow.Retry{First: retryAfter, Most: retryAfter},
		Take: func(ctx context.Context) (time.Duration, error) { return gatherTime, m.round(ctx) },
		Due:  m.rotationDue, Wake: func() <-chan struct{} { return m.alarms },
		Failing: cannotWrite + "; trying again", Well: "the audit mirror goes on", Level: zap.ErrorLevel, Zap: m.log,
	})
	m.tasks.Go(m.pack)
	return m, nil
}

// cannotWrite says that the live file lags.
const cannotWrite = "cannot write the audit mirror"

// Status is how a mirror is doing.
type Status struct {
	// Mirrored is the last record in the files.
	Mirrored uint64
	// Segments counts the compressed segments, Pending those that are not yet.
	Segments, Pending int
	// PackedBytes is what the compressed ones take.
	PackedBytes int64
	// Problems are what keeps the mirror from getting on and what is wrong
	// with its segments, empty while all is well.
	Problems []string
}

// Mirrored returns the number of the last record in the files.
func (m *Mirror) Mirrored() uint64 { return m.have.Load() }

// Status returns how the mirror is doing.
func (m *Mirror) Status() Status {
	live := m.loop.Status()
	s := Status{Mirrored: live.Seq}
	if err := m.Check(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	if live.Error != "" {
		s.Problems = append(s.Problems, cannotWrite+": "+live.Error)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.segments {
		if !m.segments[i].Retired {
			s.Segments++
			s.PackedBytes += m.segments[i].PackedBytes
		}
	}
	s.Pending = len(m.pending)
	for _, p := range []string{m.rotating, m.packing} {
		if p != "" {
			s.Problems = append(s.Problems, p)
		}
	}
	s.Problems = append(s.Problems, m.faults...)
	return s
}

// Segments returns the segments of the manifest, oldest first, without those
// that were retired.
func (m *Mirror) Segments() []Segment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.segments), func(s Segment) bool { return s.Retired })
}

// Close writes what the source has now and ends the mirror. The source must
// still answer. What the context, or a full disk, keeps it from writing is
// caught up at the next start.
func (m *Mirror) Close(ctx context.Context) (err error) {
	m.once.Do(func() {
		m.startStop()
		m.tasks.Wait()
		m.loop.Stop()
		if err = m.round(ctx); err != nil {
			err = fmt.Errorf("cannot finish the audit mirror, it is caught up at the next start: %w", err)
		}
		err = errors.Join(err, m.live.close())
	})
	return err
}

// fault notes what is wrong with a segment.
func (m *Mirror) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.log.Error("the audit mirror is not as it was left", zap.String("problem", text))
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.faults, text) {
		m.faults = append(m.faults, text)
	}
}

// note keeps why something does not get on, and tells the log when that
// changes.
func (m *Mirror) note(what string, into *string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s: %v", what, err)
	}
	m.mu.Lock()
	before := *into
	*into = text
	m.mu.Unlock()
	switch {
	case text == before:
	case text != "":
		m.log.Error(what+"; trying again", zap.Error(err), zap.Uint64("have", m.Mirrored()))
	default:
		m.log.Info("the audit mirror goes on", zap.String("after", before))
	}
}

// alarm makes the mirror look at its file now.
func (m *Mirror) alarm() {
	select {
	case m.alarms <- struct{}{}:
	default:
	}
}

// round brings the files up to the source's last record.
func (m *Mirror) round(ctx context.Context) error {
	if err := m.restore(ctx); err != nil {
		return err
	}
	for m.Mirrored() < m.o.Source.Head().Seq {
		have := m.Mirrored()
		lines, upTo, err := m.o.Source.LinesAfter(ctx, have)
		if err != nil {
			return err
		}
		first := upTo + 1 - uint64(len(lines))
		switch {
		case len(lines) == 0:
			return fmt.Errorf("the database has no record after %d, and ends at %d", have, m.o.Source.Head().Seq)
		case first <= have:
			return fmt.Errorf("the database answers with record %d where %d is asked for", first, have+1)
		case first > have+1:
			if err := m.skip(have, first-1); err != nil {
				return err
			}
		}
		if err := m.restore(ctx); err != nil {
			return err
		}
		if m.Mirrored()+1 != first {
			// The file was made anew and begins further back.
			continue
		}
		if err := m.write(lines, upTo); err != nil {
			return err
		}
	}
	if due := m.rotationDue(); !due.IsZero() && !m.o.Clock().Before(due) {
		m.rotate()
	}
	return nil
}

// skip leaves out records that retention has removed before the mirror had
// them. A file holds a run without gaps, so another begins.
func (m *Mirror) skip(have, last uint64) error {
	if m.live.size > 0 && !m.rotate() {
		return errors.New("the live file must be rotated first, since records are missing behind it")
	}
	m.fault("records %d to %d were removed by retention before the mirror had them", have+1, last)
	m.live.base = last
	m.have.Store(last)
	return nil
}
