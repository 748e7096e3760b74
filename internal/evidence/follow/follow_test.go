package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// book is a log whose records have only numbers.
type book struct {
	mu     sync.Mutex
	head   uint64
	grown  chan struct{}
	closed error
	waits  int
}

func newBook(records uint64) *book { return &book{head: records, grown: make(chan struct{})} }

func (b *book) add(records uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head += records
	close(b.grown)
	b.grown = make(chan struct{})
}

func (b *book) Head() audit.Head {
	b.mu.Lock()
	defer b.mu.Unlock()
	return audit.Head{Seq: b.head}
}

func (b *book) WaitAfter(ctx context.Context, seq uint64) error {
	b.mu.Lock()
	b.waits++
	b.mu.Unlock()
	for {
		b.mu.Lock()
		head, grown, err := b.head, b.grown, b.closed
		b.mu.Unlock()
		if err != nil || head > seq {
			return err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *book) LinesAfter(context.Context, uint64) ([][]byte, uint64, error) {
	return nil, 0, errors.New("nobody asks")
}

// copied is a copy that takes a page at a time, as its test defines.
type copied struct {
	log  *book
	page uint64
	rest time.Duration
	// before, if set, is called before a page is taken.
	before func(ctx context.Context, attempt int) error

	mu sync.Mutex
	at uint64
	// calls are the times of the attempts, and ends the last records after them.
	calls []time.Time
	ends  []uint64
}

func (c *copied) seq() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *copied) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

func (c *copied) take(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	c.calls = append(c.calls, time.Now())
	attempt := len(c.calls)
	c.mu.Unlock()
	var err error
	if c.before != nil {
		err = c.before(ctx, attempt)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.at += min(c.page, c.log.Head().Seq-c.at)
	}
	c.ends = append(c.ends, c.at)
	return c.rest, err
}

// gaps returns the times between attempts.
func (c *copied) gaps() (list []time.Duration) {
	for i := range c.calls[1:] {
		list = append(list, c.calls[i+1].Sub(c.calls[i]))
	}
	return list
}

func (c *copied) options() Options {
	return Options{
		Log: c.log, At: c.seq, Take: c.take, Now: time.Now, Retry: Retry{First: time.Second, Most: time.Minute},
		Failing: "it lags", Well: "it goes on", Level: zap.WarnLevel, Zap: zap.NewNop(),
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// The follower calls a copy at once when the log has grown, and not before.
func TestGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copied{log: newBook(5), page: 2}
		f := Start(t.Context(), c.options())
		defer f.Stop()
		synctest.Wait()
		if want := []uint64{2, 4, 5}; !slices.Equal(c.ends, want) {
			t.Errorf("%v, want %v", c.ends, want)
		}
		pass(time.Hour)
		began := time.Now()
		c.log.add(1)
		synctest.Wait()
		if c.seq() != 6 || len(c.calls) != 4 || !c.calls[3].Equal(began) {
			t.Errorf("at %d after calls at %v", c.seq(), c.calls)
		}
		if s := f.Status(); s != (Status{Seq: 6}) {
			t.Errorf("%+v", s)
		}
	})
}

// After failures a follower waits longer and longer, up to a bound. It logs the first failure and
// the end, and then begins again with short waits.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copied{log: newBook(3), page: 9, before: func(_ context.Context, attempt int) error {
			if attempt <= 9 || attempt == 11 {
				return errors.New("no space")
			}
			return nil
		}}
		o := c.options()
		core, logs := observer.New(zap.InfoLevel)
		o.Zap = zap.New(core)
		began := time.Now()
		f := Start(t.Context(), o)
		defer f.Stop()
		pass(3 * time.Second)
		if s := f.Status(); s.Error != "no space" || !s.Since.Equal(began) || s.Seq != 0 || s.Lag != 3 {
			t.Errorf("%+v", s)
		}
		pass(time.Hour)
		if s := f.Status(); s != (Status{Seq: 3}) {
			t.Errorf("%+v", s)
		}
		c.log.add(1)
		pass(time.Second)
		s := time.Second
		if got, want := c.gaps(), []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}; !slices.Equal(got[:9], want) || got[10] != s {
			t.Errorf("waited %v, want %v and at last %v", got, want, s)
		}
		var said []string
		for _, line := range logs.All() {
			said = append(said, line.Level.String()+" "+line.Message)
		}
		if want := []string{"warn it lags", "info it goes on", "warn it lags", "info it goes on"}; !slices.Equal(said, want) {
			t.Errorf("logged %q, want %q", said, want)
		}
	})
}

type busy time.Duration

func (b busy) Error() string             { return "busy" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func TestRetry(t *testing.T) {
	dead := errors.New("dead")
	for _, c := range []struct {
		random float64
		others int
		err    error
		want   time.Duration
	}{
		{0, 0, dead, time.Second},
		{0.5, 0, dead, 750 * time.Millisecond},
		{1, 2, dead, 2 * time.Second},
		{0.5, 1000, dead, 45 * time.Second},
		{0, 0, busy(time.Hour), time.Hour},
		{0, 3, fmt.Errorf("a page: %w", busy(time.Second)), 8 * time.Second},
	} {
		r := Retry{First: time.Second, Most: time.Minute, Random: func() float64 { return c.random }}
		if got := r.after(c.others, c.err); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A wake-up ends the wait for records and the wait after a failure, but no rest. A wake-up from
// before an attempt causes no other attempt.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := false
		c := &copied{log: newBook(0), page: 9, rest: time.Second, before: func(context.Context, int) error {
			if failing {
				return errors.New("lost")
			}
			return nil
		}}
		wake := make(chan struct{}, 1)
		o := c.options()
		o.Retry = Retry{First: time.Hour, Most: time.Hour}
		o.Wake = func() <-chan struct{} { return wake }
		wake <- struct{}{}
		f := Start(t.Context(), o)
		defer f.Stop()
		want := func(what string, attempts int) {
			t.Helper()
			synctest.Wait()
			if c.attempts() != attempts {
				t.Errorf("%s: %d attempts, want %d", what, c.attempts(), attempts)
			}
		}
		pass(time.Minute)
		want("word from before", 1)
		wake <- struct{}{}
		want("idle", 2)
		wake <- struct{}{}
		want("at rest", 2)
		pass(time.Second)
		want("rested", 3)
		failing = true
		pass(time.Second)
		c.log.add(1)
		pass(time.Minute)
		want("after a failure", 4)
		failing = false
		wake <- struct{}{}
		want("woken", 5)
		if c.seq() != 1 {
			t.Errorf("at %d", c.seq())
		}
	})
}

// A copy that is due is called without a record, even if it became due while it rested. A copy that
// is always due does not run without a pause.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copied{log: newBook(1), page: 9, rest: 10 * time.Second}
		o := c.options()
		began := time.Now()
		o.Due = func() time.Time {
			switch c.attempts() {
			case 1:
				return began.Add(time.Minute)
			case 2:
				return began.Add(time.Minute + 5*time.Second)
			}
			return time.Time{}
		}
		f := Start(t.Context(), o)
		pass(time.Hour)
		f.Stop()
		if want := []time.Duration{time.Minute, 10*time.Second + time.Millisecond}; !slices.Equal(c.gaps(), want) {
			t.Errorf("%v, want %v", c.gaps(), want)
		}

		c = &copied{log: newBook(1), page: 9}
		o = c.options()
		o.Due = func() time.Time { return began }
		f = Start(t.Context(), o)
		pass(time.Second)
		f.Stop()
		if n := c.attempts(); n > 1002 {
			t.Errorf("%d attempts in a second", n)
		}
	})
}

// A log that does not answer is a failure like others.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copied{log: newBook(0), page: 9}
		c.log.closed = errors.New("closed")
		f := Start(t.Context(), c.options())
		defer f.Stop()
		synctest.Wait()
		if s := f.Status(); s.Error != "cannot follow the log: closed" {
			t.Errorf("%+v", s)
		}
		pass(10 * time.Second)
		if n := c.attempts(); n > 11 {
			t.Errorf("%d attempts in ten seconds", n)
		}
	})
}

// Close lets the copy take the remaining records without a rest. It ends at the first failure, and
// with its context. Stop waits only for the running attempt.
func TestEnd(t *testing.T) {
	hang := func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}
	fail := func(context.Context, int) error { return errors.New("dead") }
	for _, c := range []struct {
		name   string
		before func(context.Context, int) error
		stop   bool
		took   time.Duration
		at     uint64
	}{
		{"all is taken in", nil, false, 0, 1000},
		{"after a failure", fail, false, 0, 0},
		{"an attempt that hangs", hang, false, 2 * time.Second, 0},
		{"at once", hang, true, 0, 0},
		{"at once while resting", nil, true, 0, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := &copied{log: newBook(1000), page: 10, rest: time.Hour, before: c.before}
				ctx, cancel := context.WithCancel(t.Context())
				f := Start(ctx, book.options())
				cancel() // does not affect the follower
				synctest.Wait()
				began := time.Now()
				if c.stop {
					f.Stop()
				} else {
					limit, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					f.Close(limit)
				}
				if took := time.Since(began); took != c.took || book.seq() != c.at {
					t.Errorf("at %d after %v, want %d after %v", book.seq(), took, c.at, c.took)
				}
				f.Close(t.Context())
				f.Stop()
			})
		})
	}
}

// A slow follower lags, reports this, and delays neither the log nor another follower.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newBook(0)
		slow := &copied{log: log, page: 1, before: func(context.Context, int) error {
			<-time.After(time.Second)
			return nil
		}}
		quick := &copied{log: log, page: 100}
		behind, ahead := Start(t.Context(), slow.options()), Start(t.Context(), quick.options())
		defer behind.Stop()
		defer ahead.Stop()
		for range 100 {
			log.add(10)
			pass(100 * time.Millisecond)
		}
		if s := ahead.Status(); s != (Status{Seq: 1000}) {
			t.Errorf("the quick one: %+v", s)
		}
		if s := behind.Status(); s.Seq < 8 || s.Seq > 10 || s.Lag != 1000-s.Seq || s.Error != "" {
			t.Errorf("the slow one: %+v", s)
		}
	})
}

// A follower that fails, or ends, at any of its steps has taken every record once when it works
// again. The copy keeps its own cursor, and nothing else is stored.
func TestFailureAtEachStep(t *testing.T) {
	for step := 1; step <= 5; step++ {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprint(step, ends), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var f *Follower
					ready := make(chan struct{})
					c := &copied{log: newBook(10), page: 2}
					c.before = func(ctx context.Context, attempt int) error {
						if attempt != step {
							return nil
						}
						if ends {
							<-ready
							go f.Stop()
							<-ctx.Done()
						}
						return errors.New("a failure")
					}
					f = Start(t.Context(), c.options())
					close(ready)
					pass(time.Minute)
					if ends {
						f.Stop()
						f = Start(t.Context(), c.options())
						synctest.Wait()
					}
					defer f.Stop()
					for i, end := range c.ends[1:] {
						if end < c.ends[i] || end > c.ends[i]+2 {
							t.Errorf("%v", c.ends)
						}
					}
					if s := f.Status(); s != (Status{Seq: 10}) {
						t.Errorf("%+v", s)
					}
				})
			})
		}
	}
}
