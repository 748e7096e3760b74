package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// An incoming message for which the policy requires a person is refused and not held. A
// person hears of it and has nothing to approve. Once the policy allows it, its sender may
// send it again in the same round.
func TestInboundThatNeedsAPersonIsRefused(t *testing.T) {
	h := ruled(t, acme, people(1, "a person has to see this"))
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	message := map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}}
	e := telegram.refuse(api.Forbidden, "agent.queue", message)
	if code := ocipCode(t, e); code != "POLICY_REQUIRES_APPROVAL" {
		t.Errorf("refused as %s: %s", code, e.Message)
	}
	alice.silent("hook:message_received")
	if r := h.records(audit.Filter{Like: audit.Record{SessionKey: "telegram:zed", Side: audit.SideReceiver}}); len(r) != 1 || r[0].PolicyResult != "require_approval" {
		t.Errorf("on record is %+v", r)
	}
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{}, &list)
	if len(list.Approvals) != 1 {
		t.Fatalf("a person sees %s", list.Approvals)
	}
	var one api.ApprovalSummary
	alice.decode(list.Approvals[0], &one)
	if one.Kind != api.ApprovalOfEscalation || one.Blocked == "" || one.Code != "POLICY_REQUIRES_APPROVAL" {
		t.Errorf("a person sees %+v", one)
	}
	person := h.operates()
	saw := h.shown(one.ApprovalID)
	person.refuse(api.Conflict, "approval.resolve", decision(api.DecideApprove, &saw))
	free := people(1, "")
	free["exchange.rego"] = "package ocip.agent_exchange\n\ndecision := {\"allow\": true, \"require_approval\": false, \"reason\": \"free\", \"constraints\": {}}\n"
	h.enact(free)
	telegram.must("agent.queue", message, nil)
	if m := alice.message("hook:message_received"); m.Content != "Hello" {
		t.Errorf("it is given %q", m.Content)
	}
}
