package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A message that a carrier has without a receipt may arrive, so nobody drops it: neither while the
// carrier is there, nor after that, nor after a restart. Its receipt ends it.
func TestFleetDropsNothingThatMayArrive(t *testing.T) {
	c := foundFleet(t, "")
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	sent := alice.dispatch("agent:bob:main", "When is the review?", fresh(nil))
	line := carry(t, c.a)
	frame := line.next()
	keeps := func(when string) {
		t.Helper()
		var list api.QueueListResult
		c.a.operator("queue.list", m{}, &list)
		if len(list.Messages) != 1 || !list.Messages[0].Handed {
			t.Errorf("%s: listed are %+v", when, list.Messages)
		}
		var drop api.QueueDropResult
		c.a.operator("queue.drop", m{"dispatchIds": []string{sent.DispatchID}}, &drop)
		if len(drop.Dropped) != 0 || len(drop.Kept) != 1 {
			t.Fatalf("%s: dropped: %+v", when, drop)
		}
		contains(t, drop.Kept[0].Reason, "it may arrive")
	}
	keeps("with its carrier")
	line.c.Close()
	keeps("without a carrier")
	c.a.restart()
	keeps("after a restart")

	lineA, lineB := carry(t, c.a), carry(t, c.b)
	lineA.bring(bytesOf(t, lineB.bring(bytesOf(t, &frame)).Receipt))
	if got := bob.message("hook:message_received"); got.DispatchID != sent.DispatchID {
		t.Errorf("bob got %+v", got)
	}
	for event, want := range map[string]int{"dropped": 0, "receipt": 1} {
		if got := c.a.records(audit.Filter{Like: audit.Record{Event: event, DispatchID: sent.DispatchID}}); len(got) != want {
			t.Errorf("%d records %s, want %d", len(got), event, want)
		}
	}
	var drop api.QueueDropResult
	c.a.operator("queue.drop", m{"dispatchIds": []string{sent.DispatchID}, "queue": "host:host-b"}, &drop)
	if len(drop.Kept) != 1 || len(drop.Dropped) != 0 {
		t.Errorf("after its receipt: %+v", drop)
	}
}
