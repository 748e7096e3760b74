package ipc

import (
	"bufio"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// A message of an app that acknowledges messages counts as taken once it did so, and not when it was read.
func TestAcknowledged(t *testing.T) {
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 1<<20, time.Now)
	var o unacknowledged
	o.Acknowledges(true)
	var taken []string
	for _, id := range []string{"a", "b"} {
		q.event(id, 1, "event", []byte("{}"), o.follow(id, onTaken(func() { taken = append(taken, id) })))
	}
	q.flush()
	lines := bufio.NewScanner(theirs)
	for range 2 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
	q.check()
	if len(taken) > 0 {
		t.Errorf("taken when read: %q", taken)
	}
	var counted []bool
	for _, id := range []string{"b", "b", "none", "a"} {
		counted = append(counted, o.Acknowledge(id))
	}
	if !slices.Equal(counted, []bool{true, false, false, true}) || !slices.Equal(taken, []string{"b", "a"}) {
		t.Errorf("counted are %v, taken %q", counted, taken)
	}
}

// A message that was taken back is the kernel's own again, and can no longer be acknowledged.
func TestAcknowledgedTakenBack(t *testing.T) {
	var o unacknowledged
	o.Acknowledges(true)
	m := &message{name: "m"}
	back := o.forget([]gate.Recallable{o.follow("a", m).(gate.Recallable)})
	if len(back) != 1 || back[0] != gate.Recallable(m) || o.Acknowledge("a") {
		t.Errorf("taken back are %v", back)
	}
}
