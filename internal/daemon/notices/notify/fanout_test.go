package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest/observer"
)

// recorder is a slow notifier.
type recorder struct {
	takes time.Duration
	deaf  bool // goes on when the context has ended

	mu     sync.Mutex
	heard  []string
	busy   bool
	closed int
}

func (r *recorder) Notify(ctx context.Context, n Notice) error {
	r.mu.Lock()
	if r.busy {
		r.heard = append(r.heard, "two at once")
	}
	r.busy = true
	r.mu.Unlock()
	what := n.ID + ":" + n.Title
	if n.Urgency != Normal {
		what += "!" + n.Urgency
	}
	var err error
	done := ctx.Done()
	if r.deaf {
		done = nil
	}
	select {
	case <-time.After(r.takes):
	case <-done:
		what, err = "cut off "+n.ID, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	r.heard = append(r.heard, what)
	return err
}

func (r *recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed++
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

// board is a recorder that can withdraw.
type board struct{ recorder }

func (b *board) Withdraw(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = append(b.heard, "withdrawn "+id)
	return errors.New("not there")
}

func newFanout(queue int, drain time.Duration, to ...Notifier) (*Fanout, *observer.ObservedLogs) {
	log, logs := logged()
	return NewFanout(FanoutOptions{Notifiers: to, Queue: queue, Drain: drain, Log: log}), logs
}

func notify(t *testing.T, f *Fanout, ids ...string) {
	t.Helper()
	before := time.Now()
	for _, id := range ids {
		if err := f.Notify(t.Context(), Notice{ID: id, Title: "t"}); err != nil {
			t.Error(err)
		}
	}
	if time.Since(before) != 0 {
		t.Errorf("the caller waited %s", time.Since(before))
	}
}

func expect(t *testing.T, r *recorder, want ...string) {
	t.Helper()
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// pass lets time pass, and everything due happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A slow notifier delays neither the caller nor the others.
func TestFanout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &recorder{takes: 10 * time.Second}, &recorder{}
		f, logs := newFanout(0, time.Minute, slow, quick)
		notify(t, f, "a", "b", "c")
		synctest.Wait()
		expect(t, quick, "a:t", "b:t", "c:t")
		expect(t, slow)
		pass(10 * time.Second)
		expect(t, slow, "a:t")
		began := time.Now()
		f.Close()
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("Close took %s, want the 20 s of what was queued", took)
		}
		expect(t, slow, "a:t", "b:t", "c:t")
		f.Close()
		if slow.closed != 1 || quick.closed != 1 {
			t.Errorf("closed %d and %d times", slow.closed, quick.closed)
		}
		if err := f.Notify(t.Context(), Notice{ID: "d"}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := f.Withdraw(t.Context(), "d"); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if logs.Len() != 0 {
			t.Errorf("logged: %s", said(logs))
		}
	})
}

func TestFanoutOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &recorder{takes: time.Second}
		f, logs := newFanout(3, time.Hour, slow)
		defer f.Close()
		notify(t, f, "a")
		synctest.Wait() // under way, no longer queued
		notify(t, f, "b", "c", "d", "e", "f")
		if err := f.Notify(t.Context(), Notice{ID: "g", Title: "secret", Urgency: Critical}); err != nil {
			t.Error(err)
		}
		notify(t, f, "f", "", "") // f is counted already, a notice without an id each time
		pass(4 * time.Second)
		expect(t, slow, "a:t", "b:t", "c:t", "more:and 6 more!critical")
		if got := logs.FilterMessageSnippet("merged").Len(); got != 1 || strings.Contains(said(logs), "secret") {
			t.Errorf("logged: %s", said(logs))
		}

		// With room again, a new notice is sent by itself, after the merged one.
		notify(t, f, "a")
		synctest.Wait()
		notify(t, f, "b", "c", "d", "e")
		pass(time.Second)
		notify(t, f, "g")
		pass(10 * time.Second)
		expect(t, slow, "a:t", "b:t", "c:t", "more:and 6 more!critical", "a:t", "b:t", "c:t", "more:and 2 more", "g:t")
		if got := logs.FilterMessageSnippet("merged").Len(); got != 2 {
			t.Errorf("logged: %s", said(logs))
		}
	})
}

// However many there are, memory stays bounded and the count is complete.
func TestFanoutFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &recorder{takes: time.Second}
		f, _ := newFanout(2, time.Hour, slow)
		defer f.Close()
		notify(t, f, "first")
		synctest.Wait()
		for i := range 10000 {
			notify(t, f, fmt.Sprint(i))
		}
		l := f.lanes[0]
		l.mu.Lock()
		waiting, ids := len(l.waiting), len(l.waiting[1].ids)
		l.mu.Unlock()
		if waiting != 2 || ids != maxMerged {
			t.Errorf("%d wait, %d ids", waiting, ids)
		}
		pass(3 * time.Second)
		expect(t, slow, "first:t", "0:t", "more:and 9999 more")
	})
}

func TestFanoutSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &recorder{takes: time.Second}
		f, _ := newFanout(2, time.Hour, slow)
		defer f.Close()
		notify(t, f, "a")
		synctest.Wait()
		notify(t, f, "b", "c")
		for i := range 5 {
			if err := f.Notify(t.Context(), Notice{ID: "b", Title: fmt.Sprint("t", i)}); err != nil {
				t.Error(err)
			}
		}
		pass(3 * time.Second)
		expect(t, slow, "a:t", "b:t4", "c:t")
	})
}

func TestFanoutWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen, mail := &board{recorder{takes: time.Second}}, &recorder{takes: time.Second}
		f, logs := newFanout(3, time.Hour, screen, mail)
		defer f.Close()
		notify(t, f, "a")
		synctest.Wait()
		notify(t, f, "b", "c", "d", "e", "") // d, e and the last are merged
		for _, id := range []string{"a", "b", "e", "e", "", "unknown"} {
			if err := f.Withdraw(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		notify(t, f, "b") // begins to wait again
		pass(10 * time.Second)
		expect(t, &screen.recorder, "a:t", "withdrawn a", "withdrawn b", "withdrawn e", "withdrawn unknown", "c:t", "more:and 2 more", "b:t")
		expect(t, mail, "a:t", "c:t", "more:and 2 more", "b:t")

		// A merged notice whose last one is withdrawn is not sent.
		notify(t, f, "a")
		synctest.Wait()
		notify(t, f, "b", "c", "d", "e")
		for _, id := range []string{"d", "e"} {
			if err := f.Withdraw(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		pass(10 * time.Second)
		expect(t, mail, "a:t", "c:t", "more:and 2 more", "b:t", "a:t", "b:t", "c:t")

		// Withdrawals are bounded too.
		notify(t, f, "z")
		synctest.Wait()
		for i := range maxWithdrawn + 1 {
			if err := f.Withdraw(t.Context(), fmt.Sprint("w", i)); err != nil {
				t.Error(err)
			}
		}
		pass(10 * time.Second)
		all := screen.all()
		if slices.Contains(all, "withdrawn w0") || !slices.Contains(all, "withdrawn w1") || !slices.Contains(all, fmt.Sprint("withdrawn w", maxWithdrawn)) {
			t.Errorf("got %q", all)
		}
		if logs.FilterMessageSnippet("one stays").Len() != 1 {
			t.Errorf("logged: %s", said(logs))
		}
	})
}

// Close ends a hanging call after the drain limit, and logs the unsent notices.
func TestFanoutDrainLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, quick := &recorder{takes: time.Hour}, &recorder{}
		f, logs := newFanout(8, 3*time.Second, hangs, quick)
		notify(t, f, "a", "b", "c")
		began := time.Now()
		f.Close()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Close took %s, want 3s", took)
		}
		expect(t, hangs, "cut off a")
		expect(t, quick, "a:t", "b:t", "c:t")
		if hangs.closed != 1 {
			t.Errorf("closed %d times", hangs.closed)
		}
		left := logs.FilterMessageSnippet("not told").All()
		if len(left) != 1 || left[0].ContextMap()["count"] != int64(2) {
			t.Errorf("logged: %s", said(logs))
		}
	})
}

// A notifier that does not end is abandoned.
func TestFanoutDeafNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &recorder{takes: time.Hour, deaf: true}
		f, logs := newFanout(8, time.Second, deaf)
		notify(t, f, "a")
		began := time.Now()
		f.Close()
		if took := time.Since(began); took != time.Second+fanoutGrace {
			t.Errorf("Close took %s", took)
		}
		if logs.FilterMessageSnippet("left behind").Len() != 1 {
			t.Errorf("logged: %s", said(logs))
		}
		pass(time.Hour)
	})
}

// The real notifiers: a missing desktop and a command.
func TestFanoutOfRealNotifiers(t *testing.T) {
	dir := t.TempDir()
	c, _ := newCommand(t, patience, `echo "$OCIPD_NOTICE_ID" >>"$1/ids"`, dir)
	d, _ := newDesktop(t, "/nonexistent/bus", 0)
	f, _ := newFanout(8, patience, d, c)
	for _, id := range []string{"a", "b"} {
		if err := f.Notify(t.Context(), Notice{ID: id}); err != nil {
			t.Error(err)
		}
	}
	if err := f.Withdraw(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	f.Close()
	if got := readFile(t, dir+"/ids"); got != "a\nb\n" {
		t.Errorf("the command heard %q", got)
	}
	if err := c.Notify(t.Context(), Notice{}); !errors.Is(err, ErrClosed) {
		t.Errorf("the command is not closed: %v", err)
	}
}
