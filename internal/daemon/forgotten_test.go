package daemon_test

import (
	"testing"

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
