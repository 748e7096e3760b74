package outbox

import (
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

// stuck returns an app that has stopped reading.
func stuck() *app {
	a := newApp()
	a.takes = false
	return a
}

// A pause takes the messages back that an app has not read: those that the pause concerns wait, the
// others go on in their order. All come once the pause ends, each once.
func TestPauseTakesBack(t *testing.T) {
	w := newWorld(t)
	a := stuck()
	w.set(func() { w.to = a })
	for _, m := range [][2]string{{"alice", "1"}, {"bob", "2"}, {"alice", "3"}, {"bob", "4"}} {
		w.send(m[0], m[1])
	}
	w.drained()
	w.expect("queued", a.has(), sent+"1", sent+"2", sent+"3", sent+"4")
	w.set(func() { w.paused = "carol" })
	w.out.Recall(a)
	w.drained()
	w.expect("after a pause of somebody else", a.has(), sent+"1", sent+"2", sent+"3", sent+"4")
	w.set(func() { w.paused = "alice" })
	w.out.Recall(a)
	w.drained()
	w.expect("after the pause of alice", a.has(), sent+"2", sent+"4")
	w.send("alice", "5")
	w.send("bob", "6")
	w.drained()
	w.set(func() { w.paused = "bob" })
	// The messages that were kept back go out, and are taken back again by the next pause.
	w.out.LookBack()
	w.drained()
	w.out.Recall(a)
	w.drained()
	w.expect("after the pause of bob", a.has(), sent+"1", sent+"3", sent+"5")
	w.set(func() { w.paused = "alice" })
	w.out.LookBack()
	w.drained()
	w.out.Recall(a)
	w.drained()
	w.expect("after a pause of the other one", a.has(), sent+"2", sent+"4", sent+"6")
	a.reads()
	w.set(func() { w.paused = "" })
	w.out.LookBack()
	w.drained()
	w.expect("after all", a.has(), sent+"2", sent+"4", sent+"6", sent+"1", sent+"3", sent+"5")
	w.expect("left", w.waiting())
}

// Rules that forbid a queued message withdraw it, on record.
func TestChangedRulesTakeBack(t *testing.T) {
	w := newWorld(t)
	a := stuck()
	w.set(func() { w.to = a })
	w.send("alice", "1")
	w.send("alice", "2")
	w.drained()
	w.out.Recall(a)
	w.drained()
	w.expect("under the same rules", a.has(), sent+"1", sent+"2")
	w.set(func() { w.generation++ })
	w.out.Recall(a)
	w.drained()
	w.expect("under rules that allow it", a.has(), sent+"1", sent+"2")
	w.set(func() { w.generation++; w.standing = &gate.Withdrawn{Reason: "another tenant", Code: "WALL"} })
	w.out.Recall(a)
	w.drained()
	w.expect("under rules that forbid it", a.has())
	w.expect("records", w.recorded(), "withdrawn 1", "told  WALL", "withdrawn 2", "told  WALL")
	w.expect("left", w.waiting())
}

// A message that waits in the queue of a connection can be dropped. If it is half written, the
// connection ends, and the next one does not get the message.
func TestDropTakesBack(t *testing.T) {
	for _, half := range []bool{false, true} {
		w := newWorld(t)
		a := stuck()
		a.half = half
		w.set(func() { w.to = a })
		w.send("alice", "1")
		w.send("alice", "2")
		w.send("alice", "3")
		w.drained()
		result, err := w.out.Drop(map[string]any{}, &api.QueueDropParams{DispatchIDs: []string{"2"}})
		if err != nil || len(result.Dropped) != 1 || len(result.Kept) > 0 {
			t.Fatalf("half written %t: %+v, %v", half, result, err)
		}
		if half {
			a = stuck()
			w.set(func() { w.to = a })
			w.out.Resume([]string{ChannelQueue("irc")})
		}
		w.drained()
		w.expect("queued", a.has(), sent+"1", sent+"3")
		a.reads()
		w.expect("left", w.waiting())
	}
}

// A message whose drop cannot be recorded goes to its app after all.
func TestFailedDropIsDelivered(t *testing.T) {
	w := newWorld(t)
	a := stuck()
	w.set(func() { w.to = a })
	w.send("alice", "1")
	w.send("alice", "2")
	w.drained()
	w.set(func() { w.fails = 1 })
	if _, err := w.out.Drop(map[string]any{}, &api.QueueDropParams{DispatchIDs: []string{"1"}}); err == nil {
		t.Fatal("dropped without a record")
	}
	w.drained()
	a.reads()
	has := a.has()
	slices.Sort(has)
	w.expect("delivered", has, sent+"1", sent+"2")
	w.expect("left", w.waiting())
}
