package memory

import (
	"context"
	"runtime/debug"
	"testing"
	"time"
)

// Memory is returned after a burst, and not while there is work.
func TestLook(t *testing.T) {
	var k keeper
	for i, step := range []struct {
		more uint64
		want seen
	}{
		{busy - 1, nothing}, {rest, nothing}, {4 * busy, burst}, {busy, burst}, {busy - 1, over}, {0, over}, // it was not said that it was given
		{busy, burst}, {0, over},
	} {
		if got := k.look(k.last + step.more); got != step.want {
			t.Errorf("step %d: look shows %d, want %d", i, got, step.want)
		}
	}
	k.given = k.last
	for range worth/(busy/2) - 1 {
		if got := k.look(k.last + busy/2); got != nothing {
			t.Fatalf("look shows %d, and little was left behind", got)
		}
	}
	if got := k.look(k.last + busy/2); got != over {
		t.Errorf("look shows %d: what many quiet hours leave behind is never given back", got)
	}
	k.given = k.last
	for i, step := range []struct {
		more uint64
		want seen
	}{{0, nothing}, {worthAtRest - 1, nothing}, {rest, nothing}, {rest - 1, over}} {
		if got := k.look(k.last + step.more); got != step.want {
			t.Errorf("at rest, step %d: look shows %d, want %d", i, got, step.want)
		}
	}
}

var sink []byte

func TestGiveBack(t *testing.T) {
	const busyPercent = 321
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	ctx, cancel := context.WithCancel(t.Context())
	looks, shrunk, ended := make(chan time.Time), 0, make(chan struct{})
	go func() {
		defer close(ended)
		GiveBack(ctx, Options{Looks: looks, Shrink: func() { shrunk++ }, BusyPercent: busyPercent})
	}()
	look := func() {
		looks <- time.Time{}
		looks <- time.Time{} // the one before is done
	}
	for range (busy + worth) >> 20 {
		sink = make([]byte, 1<<20)
	}
	looks <- time.Time{}
	look()
	if got := percent(); got != idlePercent {
		t.Errorf("after a burst the heap may grow by %d %%", got)
	}
	// The previous check may still be running: it takes a part of this, and one of the two
	// sees a burst.
	for range (busy + busy) >> 20 {
		sink = make([]byte, 1<<20)
	}
	looks <- time.Time{}
	cancel()
	<-ended
	if got := percent(); got != busyPercent || shrunk != 1 {
		t.Errorf("in a burst the heap may grow by %d %%; caches were shrunk %d times", got, shrunk)
	}
}
