package daemon_test

import (
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A message that waits is held against its record by its tenant's digest key. Once an operator has
// destroyed the key, it does not leave, and the log says why: nobody has tampered with anything.
func TestMessageOfAForgottenTenantIsWithdrawn(t *testing.T) {
	h := build(t, withGina(acme))
	alice := h.agent("@acme/alice")
	sent := alice.dispatch("telegram:dave", "How far are you?", nil)
	h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
	h.restart()
	h.operates().must("queue.list", map[string]any{}, nil)
	telegram := h.channel("@openclawos/telegram", "telegram")
	next := h.again(alice).dispatch("telegram:dave", "And now?", nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != next.DispatchID {
		t.Errorf("delivered is %+v", m)
	}
	gone := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, Event: "withdrawn", DispatchID: sent.DispatchID}})
	if len(gone) != 1 {
		t.Fatalf("on record is %+v", gone)
	}
	reason, _ := gone[0].Details["reason"].(string)
	contains(t, reason, "digest key is gone")
	if n := len(h.records(audit.Filter{Like: audit.Record{Event: "undecided_message"}})); n != 0 {
		t.Errorf("%d messages are undecided", n)
	}
	h.verify()
}

// A message that waits leaves by the record of its decision. Once retention has removed that record, the
// message is withdrawn, and the log says why.
func TestMessageOfARetiredDecisionIsWithdrawn(t *testing.T) {
	h := build(t, "audit: {rotate: {bytes: 8192, age: 24h}}\n"+withGina(acme))
	alice := h.agent("@acme/alice")
	sent := alice.dispatch("telegram:dave", "How far are you?", nil)
	for range 30 {
		alice.dispatch("telegram:dave", "And what of the rest?", fresh(nil))
	}
	var status api.Status
	for status.Audit.Mirror.Segments == 0 || status.Audit.Mirror.Pending > 0 || status.Audit.Mirrored < status.Audit.Seq {
		h.operator("kernel.status", map[string]any{}, &status)
	}
	var removed api.AuditRetireResult
	h.operator("audit.retire", map[string]any{"before": time.Now().Add(time.Hour)}, &removed)
	if removed.Segments == 0 {
		t.Fatalf("%+v, %+v", removed, status.Audit)
	}
	h.restart()
	h.operates().must("queue.list", map[string]any{}, nil)
	telegram := h.channel("@openclawos/telegram", "telegram")
	next := h.again(alice).dispatch("telegram:dave", "And now?", fresh(nil))
	for telegram.message("hook:message_sending").DispatchID != next.DispatchID {
	}
	withdrawn := audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, Event: "withdrawn", DispatchID: sent.DispatchID}}
	gone := h.records(withdrawn)
	if len(gone) != 1 {
		t.Fatalf("on record is %+v", gone)
	}
	reason, _ := gone[0].Details["reason"].(string)
	contains(t, reason, "was retired")
	if n := len(h.records(audit.Filter{Like: audit.Record{Event: "undecided_message"}})); n != 0 {
		t.Errorf("%d messages are undecided", n)
	}
	h.stop()
	h.verified()
}
