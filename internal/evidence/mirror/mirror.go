// Package mirror keeps a copy of the audit log for people and programs: JSON lines in a file of one
// name, for tail -F and shippers, and the older lines in compressed segments beside it.
//
// The database is the record. The mirror follows it through [Source]. Nothing ever waits for the
// mirror. It adds missing lines from the database after a crash, a full disk, or a change by
// somebody. Live file and segments together contain the records of the database from the first, or
// the first that retention left, to the last one written, each once and in order.
//
// # Rotation
//
// At a size or an age the live file gets the name <base>-<first>-<last>.jsonl and another takes its
// place; nothing is ever copied and truncated. In the background the segment is compressed into
// …jsonl.zst, read back line by line, compared with the chain and the database, and listed in
// <base>-manifest.jsonl, which is replaced as a whole. Only then the uncompressed file is removed.
// After a crash at any step, [Open] continues with the files that exist.
//
// # Unexpected files
//
//   - A live file, or an unlisted segment, that does not belong to this
//     database is renamed to ….foreign-<time>. The missing lines are
//     written from the database. Nothing is overwritten.
//   - A live file or a segment that continues after the end of the database is the last
//     copy of records that the database has lost: [Open] fails with an
//     [*AheadError] and changes nothing.
//   - Lines that are missing in the live file, and missing segments
//     that were not listed yet, are written from the database.
//   - A listed segment that is missing, or differs from the manifest, is
//     reported by [Mirror.Status] and in the log, and is not changed: a
//     finished segment is evidence, and only a person can have changed it. The
//     records are still in the database.
//   - An unreadable manifest is set aside and made again from the
//     segments, each read as a whole.
//
// A change within the live file that keeps its length is found when the file has become a segment.
//
// # Alive
//
// [Mirror.Check] reports whether the live file is still the one that the mirror writes to. The
// caller asks it before it releases a message, and releases none while it fails. The mirror
// restores the file by itself and then calls Options.Lost.
//
// The caller opens a mirror after its database and closes it before.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/evidence/follow"
	"go.uber.org/zap"
)

// Options configure a mirror.
type Options struct {
	// Path is the live file. Its directory is made with mode 0700; a link at this path is refused.
	Path string
	// Source is the mirrored log.
	Source follow.Log
	// Database names the source in errors.
	Database string
	Clock    func() time.Time
	Log      *zap.Logger
	// RotateBytes bounds the live file, in bytes, unless a single line is longer. Zero rotates by
	// age alone.
	RotateBytes int64
	// RotateAge bounds the age of the live file's first record. Zero rotates by size alone.
	RotateAge time.Duration
	// Lost, if set, is called after the live file was found changed, with the problem and the
	// repair. It may record that: the mirror waits for it and holds no lock.
	Lost func(problem string)

	// step is called between operations that a crash could interrupt.
	step func(name string)
	// eager compresses at once, whatever other work there is.
	eager bool
}

// Mirror is an open mirror. Its methods are safe for concurrent use.
type Mirror struct {
	log *zap.Logger

	// have is the last record in the live file, or the one before it if it is empty.
	have atomic.Uint64
	live live

	segments

	reasons sync.Mutex
	// rotating is the reason that the mirror does not rotate, and packing the reason that it does
	// not compress.
	rotating, packing string

	// loop writes the live file. alarms signals a fault that Check found.
	loop   *follow.Follower
	alarms chan struct{}

	closing   context.Context
	startStop context.CancelFunc
	tasks     sync.WaitGroup
	once      sync.Once
}

const (
	// retryAfter is the wait after a failed write, and rotateAgain the wait after a failed
	// rotation.
	retryAfter  = time.Second
	rotateAgain = time.Minute
	// gatherTime is the time in which records gather before the mirror looks for the next ones, so
	// that it does not run beside each of many commits.
	gatherTime = 10 * time.Millisecond
)

// Open opens the files of a mirror, or makes them, and follows the source from there on. It does
// not wait until the mirror has caught up. The error is an [*AheadError] if the mirror has records
// that the source has lost. This is only detected as long as the source has no other records in
// their place, so nothing may be recorded before Open.
func Open(ctx context.Context, o Options) (*Mirror, error) {
	path, err := resolve(o.Path)
	if err != nil {
		return nil, err
	}
	if o.step == nil {
		o.step = func(string) {}
	}
	m := &Mirror{segments: segments{o: &o, layout: newLayout(path), kick: make(chan struct{}, 1)}, log: o.Log, alarms: make(chan struct{}, 1)}
	m.closing, m.startStop = context.WithCancel(context.WithoutCancel(ctx))
	var tail uint64
	if err = m.ahead(ctx, o.Source.Head()); err == nil {
		tail, err = m.load(ctx)
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

// cannotWrite is the message for a live file that lags.
const cannotWrite = "cannot write the audit mirror"

// Status is the state of a mirror.
type Status struct {
	// Mirrored is the last record in the files.
	Mirrored uint64
	// Segments counts the compressed segments, and Pending the others.
	Segments, Pending int
	// PackedBytes is the size of the compressed segments.
	PackedBytes int64
	// Problems are the reasons that the mirror does not continue, and the faults of its segments.
	// It is empty while all is well.
	Problems []string
}

// Mirrored returns the number of the last record in the files.
func (m *Mirror) Mirrored() uint64 { return m.have.Load() }

// Status returns the state of the mirror.
func (m *Mirror) Status() Status {
	live := m.loop.Status()
	s := Status{Mirrored: live.Seq}
	if err := m.Check(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	if live.Error != "" {
		s.Problems = append(s.Problems, cannotWrite+": "+live.Error)
	}
	m.reasons.Lock()
	for _, p := range []string{m.rotating, m.packing} {
		if p != "" {
			s.Problems = append(s.Problems, p)
		}
	}
	m.reasons.Unlock()
	m.status(&s)
	return s
}

// Close writes the present records of the source and ends the mirror. The source must still answer.
// If the context or a full disk prevents a write, the next start catches up.
func (m *Mirror) Close(ctx context.Context) (err error) {
	m.once.Do(func() {
		m.startStop()
		m.tasks.Wait()
		m.loop.Stop()
		if err = m.round(ctx); err != nil {
			err = fmt.Errorf("cannot finish the audit mirror, the next start catches up: %w", err)
		}
		err = errors.Join(err, m.live.close())
	})
	return err
}

// note notes the reason that some work fails, and logs a change of it.
func (m *Mirror) note(what string, into *string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s: %v", what, err)
	}
	m.reasons.Lock()
	before := *into
	*into = text
	m.reasons.Unlock()
	switch {
	case text == before:
	case text != "":
		m.log.Error(what+"; trying again", zap.Error(err), zap.Uint64("have", m.Mirrored()))
	default:
		m.log.Info("the audit mirror goes on", zap.String("after", before))
	}
}

// alarm makes the mirror check its file now.
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
			return fmt.Errorf("the database answers with record %d instead of %d", first, have+1)
		case first > have+1:
			if err := m.skip(have, first-1); err != nil {
				return err
			}
		}
		if err := m.restore(ctx); err != nil {
			return err
		}
		if m.Mirrored()+1 != first {
			// The file was made again and begins further back.
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

// skip leaves out records that retention has removed before the mirror had them. A file has no
// gaps, so another one begins.
func (m *Mirror) skip(have, last uint64) error {
	if m.live.size > 0 && !m.rotate() {
		return errors.New("the live file must be rotated first, since records are missing behind it")
	}
	m.fault("records %d to %d were removed by retention before the mirror had them", have+1, last)
	m.live.base = last
	m.have.Store(last)
	return nil
}
