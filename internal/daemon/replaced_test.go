package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// If the configuration is replaced while an interceptor looks at a message, the message is decided
// under the new one, whichever method carries it.
func TestReplacedWhileIntercepted(t *testing.T) {
	t.Parallel()
	moved := strings.Replace(acme, "user_id: dave, org_unit: engineering, tenant_id: acme-corp", "user_id: dave, org_unit: engineering, tenant_id: globex-inc", 1)
	if moved == acme {
		t.Fatal("the receiver was not moved")
	}
	for method, params := range map[string]map[string]any{
		"message.dispatch": {"sessionKey": "telegram:dave", "content": "The plan is blue."},
		"hook.emit":        {"hookName": "message_sending", "context": map[string]any{"agentId": "alice"}, "data": map[string]any{"sessionKey": "telegram:dave", "content": "The plan is blue."}},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme+dlpRequired)
			h.channel("@openclawos/telegram", "telegram")
			alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", false)
			var answer api.EmitAnswer
			done := make(chan error, 1)
			go func() { done <- alice.call(method, params, &answer) }()
			m := dlp.message("hook:message_sending")
			h.reloaded(moved + dlpRequired)
			dlp.answer(m.EventID, map[string]any{})
			err := <-done
			if answer.Allowed || method == "message.dispatch" && err == nil {
				t.Errorf("it is %+v, %v", answer, err)
			}
			for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}) {
				if r.PolicyResult == string(ocip.Allow) {
					t.Errorf("record %d lets it go: %s", r.Seq, r.PolicyReason)
				}
			}
		})
	}
}

// A redemption that has to ask a person anew, a person who takes the approval back, and a pause meet
// without waiting for each other.
func TestRedeemMeetsDenialAndPause(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	alice, person, pauser := h.redeems(), h.operates(), h.operates()
	for range 12 {
		id := h.approved(alice)
		saw := h.shown(id)
		h.reloaded(acme + "\napprovals: {required: 2}\n")
		done := make(chan struct{}, 3)
		go func() { _ = alice.call("approval.redeem", map[string]any{"approvalId": id}, nil); done <- struct{}{} }()
		go func() { _ = person.call("approval.resolve", decision(api.DecideDeny, &saw), nil); done <- struct{}{} }()
		go func() {
			_ = pauser.call("sending.pause", map[string]any{"agent": "alice"}, nil)
			_ = pauser.call("sending.resume", map[string]any{"agent": "alice"}, nil)
			done <- struct{}{}
		}()
		for range 3 {
			<-done
		}
		var open api.ApprovalListResult
		person.must("approval.list", nil, &open)
		for _, raw := range open.Approvals {
			var a api.ApprovalSummary
			person.decode(raw, &a)
			h.decides(api.DecideDeny, a.ApprovalID)
		}
		h.reloaded(acme)
	}
}
