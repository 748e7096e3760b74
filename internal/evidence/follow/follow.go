// Package follow keeps the copies of the audit log up to date. A [Follower] is the loop that they
// share: it waits until the log grows, lets the copy take records, rests, tries again after a
// failure, and reports the copy's progress. Each copy itself decides where it keeps its cursor, and
// how many records it takes at a time.
//
// The caller starts a follower over an open log, and ends it before the log. A follower imports
// nothing that decides about messages, as test/archtest checks: it could run in another process.
package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Log is the log as a follower reads it.
type Log interface {
	// Head returns the place of the last durable record.
	Head() audit.Head
	// WaitAfter returns when there is a record after seq, or with an error.
	WaitAfter(ctx context.Context, seq uint64) error
	// LinesAfter returns a page of records after seq without newlines, oldest first and
	// without a gap, and the number of the last one, or seq if there is none. The page
	// begins later if retention removed the records after seq.
	LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error)
}

// Options configure a [Follower].
type Options struct {
	Log Log
	// At returns the copy's last record. Any goroutine may call it.
	At func() uint64
	// Take takes the next records, if there are any, and returns the time to rest before the next
	// call. The follower calls it at the start, when there are more records, at the time from Due,
	// after a wake-up, and after a failure. The context ends when the follower has to.
	Take func(ctx context.Context) (rest time.Duration, err error)
	// Due, if set, returns the time to call Take although the log has not grown, or the zero time
	// for never.
	Due func() time.Time
	// Wake, if set, returns a channel. A value from it, or its end, ends the wait for records and
	// the wait after a failure.
	Wake  func() <-chan struct{}
	Retry Retry
	Now   func() time.Time
	// Failing is logged, at this level, when Take begins to fail, and Well when it succeeds again.
	Failing, Well string
	Level         zapcore.Level
	Zap           *zap.Logger
}

// Retry sets the waits after failures: First, then twice as long each time, and Most at most. If
// Random is set, which returns numbers from 0 up to 1, each wait is shortened by up to half at
// random, so that several followers do not retry at the same time.
type Retry struct {
	First, Most time.Duration
	Random      func() float64
}

// Busy is an error with a least wait.
type Busy interface {
	error
	RetryAfter() time.Duration
}

// after returns the wait after a failure that follows that many others.
func (r Retry) after(others int, err error) time.Duration {
	wait := min(r.First<<min(others, 16), r.Most)
	if r.Random != nil {
		wait -= time.Duration(r.Random() / 2 * float64(wait))
	}
	if busy, ok := errors.AsType[Busy](err); ok {
		wait = max(wait, busy.RetryAfter())
	}
	return wait
}

// Status is the progress of a copy.
type Status struct {
	// Seq is the copy's last record, and Lag the number of records after it in the log.
	Seq, Lag uint64
	// Error is the reason of the last failed attempt, and Since the time of the first failure in a
	// row. Both are empty while all is well.
	Error string
	Since time.Time
}

// Follower keeps one copy up to date. Its methods are safe for concurrent use.
type Follower struct {
	o Options
	// staying ends when the follower should end, and the context of Take when it has to.
	staying     context.Context
	leave, quit context.CancelFunc
	done        chan struct{}

	mu     sync.Mutex
	status Status
	// failures counts the failed attempts in a row.
	failures int
}

// Start starts a follower. It does not end with the context.
func Start(ctx context.Context, o Options) *Follower {
	if o.Due == nil {
		o.Due = func() time.Time { return time.Time{} }
	}
	if o.Wake == nil {
		o.Wake = func() <-chan struct{} { return nil }
	}
	f := &Follower{o: o, done: make(chan struct{})}
	ctx, f.quit = context.WithCancel(context.WithoutCancel(ctx))
	f.staying, f.leave = context.WithCancel(ctx)
	go f.run(ctx)
	return f
}

// Status returns the progress of the copy.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Seq = f.o.At()
	s.Lag = max(f.o.Log.Head().Seq, s.Seq) - s.Seq
	return s
}

// Stop ends the follower at once.
func (f *Follower) Stop() {
	f.quit()
	<-f.done
}

// Close lets the follower take the log's remaining records, until the context ends or an attempt
// fails, and then ends it.
func (f *Follower) Close(ctx context.Context) {
	f.leave()
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	f.Stop()
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	for ctx.Err() == nil {
		select {
		case <-f.o.Wake(): // Take checks again anyway
		default:
		}
		rest, err := f.o.Take(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := f.note(err)
		f.pause(rest, nil)
		if err == nil {
			f.await()
		} else {
			f.pause(wait, f.o.Wake())
		}
		if f.staying.Err() != nil && (err != nil || f.Status().Lag == 0) {
			return
		}
	}
}

// note notes the result of an attempt, and returns the wait after a failure. Of failures in a row,
// it logs the first and the end.
func (f *Follower) note(err error) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, at := f.failures, zap.Uint64("seq", f.o.At())
	if err == nil {
		f.failures, f.status = 0, Status{}
		if before > 0 {
			f.o.Zap.Info(f.o.Well, at)
		}
		return 0
	}
	f.failures++
	f.status.Error, wait = err.Error(), f.o.Retry.after(before, err)
	if before == 0 {
		f.status.Since = f.o.Now().UTC()
		f.o.Zap.Log(f.o.Level, f.o.Failing, at, zap.Error(err), zap.Duration("retry", wait))
	}
	return wait
}

// pause waits for some time, or until the follower is woken or should end.
func (f *Follower) pause(d time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-f.staying.Done():
	}
}

// await returns when there is something to do, or when the follower should end.
func (f *Follower) await() {
	at := f.o.At()
	if f.o.Log.Head().Seq > at {
		return
	}
	ctx, cancel := context.WithCancel(f.staying)
	defer cancel()
	if due := f.o.Due(); !due.IsZero() {
		// A copy that is always due must not keep a processor busy.
		ctx, cancel = context.WithTimeout(ctx, max(due.Sub(f.o.Now()), time.Millisecond))
		defer cancel()
	}
	answer := make(chan error, 1)
	var asking sync.WaitGroup
	asking.Go(func() { answer <- f.o.Log.WaitAfter(ctx, at) })
	select {
	case err := <-answer:
		if err != nil && ctx.Err() == nil {
			f.pause(f.note(fmt.Errorf("cannot follow the log: %w", err)), f.o.Wake())
		}
	case <-f.o.Wake():
		cancel()
		asking.Wait()
	}
}
