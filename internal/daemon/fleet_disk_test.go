package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A host whose disk is full gives no receipt for a message. The message stays at its sender and
// arrives once there is space, without a restart.
func TestFleetFullDisk(t *testing.T) { withDisk(t, onFullHost) }

func onFullHost(t *testing.T) {
	c := newFleet(t, "store: {warn_free_bytes: 0, min_free_bytes: 0, reserve_bytes: 0}\n")
	c.b.mounts("4m")
	c.begin()
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	lineA, lineB := carry(t, c.a), carry(t, c.b)
	sent := alice.dispatch("agent:bob:main", "When is the review?", nil)
	first := lineA.next()

	recorded := c.b.fillDisk()
	for range 3 {
		r, err := lineB.tryBring(bytesOf(t, &first))
		if err == nil || r.Receipt != nil {
			t.Fatalf("a full disk gives a receipt: %+v, %v", r, err)
		}
		if code := ocipCode(t, api.AsError(err)); code != "AUDIT_WRITE_FAILED" {
			t.Errorf("the carrier is told %v", err)
		}
	}
	if now := c.b.logEnd(); now != recorded {
		t.Errorf("records %d to %d were written on a full disk", recorded+1, now)
	}
	if got := c.waiting(c.a, "host-b"); got != 1 {
		t.Errorf("%d messages wait for host-b", got)
	}

	c.b.freeDisk()
	lineA = carry(t, c.a)
	lineA.pass(lineB)
	if got := bob.message("hook:message_received"); got.DispatchID != sent.DispatchID {
		t.Errorf("bob got %+v", got)
	}
	if got := c.b.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, ActionType: audit.ActionExchange}}); len(got) != 1 || got[0].PolicyResult != audit.ResultAllow {
		t.Errorf("on record is %+v", got)
	}
	if got := c.waiting(c.a, "host-b"); got != 0 {
		t.Errorf("%d messages wait for host-b", got)
	}
	c.a.verify()
	c.b.verify()
}
