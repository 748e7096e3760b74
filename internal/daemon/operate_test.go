package daemon_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A person sends as an agent, whether or not its app is connected, under the rules for that
// agent's messages.
func TestOperatorSends(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	person := h.operates()
	send := func(agent, text string) map[string]any {
		return map[string]any{"agent": agent, "sessionKey": "telegram:dave", "content": text}
	}
	var sent api.DispatchResult
	h.operator("sending.message", send("alice", "How far is the lighthouse?"), &sent)
	// The queue of an app that is just ready can still be on its way, so the message may wait for it.
	if m := telegram.message("hook:message_sending"); m.Content == "" || sent.DispatchID == "" || sent.Held {
		t.Fatalf("sent is %+v, delivered %q", sent, m.Content)
	}
	alice := h.agent("@acme/alice")
	h.operator("sending.message", send("agent-alice-1", "And the harbour?"), &sent)
	telegram.message("hook:message_sending")
	if sent.OCIP.Round != 2 {
		t.Errorf("the second message has round %d", sent.OCIP.Round)
	}

	h.operator("sending.message", send("alice", "I promise the lighthouse"), &sent)
	if !sent.Held {
		t.Fatalf("a promise is %+v", sent)
	}
	h.decides("approve", sent.ApprovalID)
	telegram.message("hook:message_sending")
	alice.silent("approval:resolved")

	person.refuse(api.Forbidden, "sending.message", send("alice", "The key is AKIA"+"Q3EGRT5XPWKJ2LMN."))
	person.refuse(api.NotFound, "sending.message", send("zoe", "hello"))
	person.refuse(api.InvalidParams, "sending.message", map[string]any{"sessionKey": "telegram:dave", "content": "hello"})

	said := 0
	for _, r := range h.records(audit.Filter{}) {
		if r.ActionType == audit.ActionExchange && r.Side == audit.SideSender {
			said++
			if by, _ := r.Details["operator"].(map[string]any); r.AppID != api.OperatorApp || by["uid"] == nil && r.ApprovalID == "" {
				t.Errorf("record %d is of app %s, operator %v", r.Seq, r.AppID, by)
			}
		}
	}
	if said < 4 {
		t.Errorf("%d messages are on record", said)
	}
	h.verify()
}

// An escalated exchange waits for a person until one has decided, and not afterwards.
func TestSettledExchangesWaitForNobody(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise the lighthouse", fresh(map[string]any{"id": "exch-1"}))
	sides := func() (list api.ExchangeResult) {
		t.Helper()
		h.operator("exchange.get", map[string]any{"exchangeId": "exch-1"}, &list)
		return list
	}
	for _, x := range sides().Exchanges {
		if x.Outcome != "escalated" || !x.Pending {
			t.Errorf("while it waits: %s, pending %t", x.Outcome, x.Pending)
		}
	}
	h.decides("takeover", held.ApprovalID)
	for _, x := range sides().Exchanges {
		if x.Outcome != "escalated" || x.Pending {
			t.Errorf("taken over: %s, pending %t", x.Outcome, x.Pending)
		}
	}
}

// A check returns the decision, and leaves everything but the log unchanged.
func TestOperatorChecks(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	check := func(text string) (c api.CheckResult) {
		t.Helper()
		h.operator("sending.check", map[string]any{"agent": "alice", "sessionKey": "telegram:dave", "content": text}, &c)
		return c
	}
	for range 5 { // more often than there are rounds
		if c := check("How far is the lighthouse?"); c.Result != ocip.Allow || c.Round != 1 {
			t.Errorf("a question is %+v", c)
		}
	}
	if c := check("I promise the lighthouse"); c.Result != ocip.RequireApproval || c.Code != ocip.CommitmentRequiresHuman {
		t.Errorf("a promise is %+v", c)
	}
	if c := check("The key is AKIA" + "Q3EGRT5XPWKJ2LMN."); c.Result != ocip.Deny || c.Classification != "restricted" {
		t.Errorf("a secret is %+v", c)
	}
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{}, &list)
	if len(list.Approvals) > 0 {
		t.Errorf("a check asks a person: %s", list.Approvals)
	}
	if r := alice.dispatch("telegram:dave", "How far is the lighthouse?", nil); r.OCIP.Round != 1 {
		t.Errorf("the first message has round %d", r.OCIP.Round)
	}
	telegram.message("hook:message_sending")
	telegram.silent("hook:message_sending")
	checks := 0
	for _, r := range h.records(audit.Filter{}) {
		if r.ActionType == audit.ActionCheck {
			checks++
		}
	}
	if checks != 7 {
		t.Errorf("%d checks are on record", checks)
	}
}

// Attack: a process of the same user that is not the program to which an agent is bound
// sends a message as that agent on the operator socket.
func TestOperatorSendsAsABoundAgent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ binding, says string }{
		{"exe: /usr/bin/nothing", "agent alice is bound to /usr/bin/nothing; this process runs " + self},
		{"uid: 64002", "agent alice is bound to user 64002; this process runs as user"},
	} {
		two := strings.Replace(team("alice", "bob"), `app: "@acme/alice"`, `app: "@acme/alice", `+tc.binding, 1)
		two = strings.Replace(two, `app: "@acme/bob"`, fmt.Sprintf(`app: "@acme/bob", uid: %d`, os.Getuid()), 1)
		h := guarded(t, two, rego(true, "ok"), listed(t, "carol", ""))
		bob, person := h.agent("@acme/bob"), h.operates()
		params := map[string]any{"agent": "alice", "sessionKey": "agent:bob:main", "content": "Pay the bill."}
		err := api.AsError(person.callSigned("sending.message", params, person.signature("carol", "sending.message", person.challenge("sending.message").Nonce, params), nil))
		if err.Code != api.Forbidden {
			t.Errorf("%s: got %v", tc.binding, err)
		}
		contains(t, err.Message, tc.says, "have its own program send the message")
		bob.silent("hook:message_received")
		r := h.records(audit.Filter{})
		if last := r[len(r)-1]; last.Event != "binding_refused" || last.AppID != api.OperatorApp || last.Details["agent"] != "alice" || last.PolicyReason != err.Message {
			t.Errorf("%s, on record: %+v", tc.binding, last.Record)
		}
		// Operators may still ask for a check.
		var c api.CheckResult
		if person.must("sending.check", params, &c); c.Result != ocip.Allow {
			t.Errorf("%s: a check says %+v", tc.binding, c)
		}
	}
	h := build(t, strings.Replace(acme, `app: "@acme/alice"`, fmt.Sprintf(`app: "@acme/alice", exe: %q`, self), 1))
	h.operator("sending.message", map[string]any{"agent": "alice", "sessionKey": "agent:bob:main", "content": "How far is it?"}, nil)
}
