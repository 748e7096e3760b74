package daemon_test

import (
	"maps"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// wish is a fresh exchange with more wishes.
func wish(more map[string]any) map[string]any {
	exchange := map[string]any{"new": true}
	maps.Copy(exchange, more)
	return map[string]any{"exchange": exchange}
}

// Attack 11: an agent owes an answer in every exchange, over a restart too, until a person
// has answered.
func TestAttack11FreshExchangeStepsOutOfNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		wishes map[string]any
		says   string
		code   ocip.Code
	}{
		{"human-only", map[string]any{"replyPolicy": "human-only"}, "Who is on call?", ocip.CommitmentRequiresHuman},
		{"a commitment in words", nil, "Who is on call?", ocip.CommitmentRequiresHuman},
		{"no-reply-needed", map[string]any{"replyPolicy": "no-reply-needed"}, "The build is green.", ocip.ReplyNotExpected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := build(t, team("ann", "ben"))
			ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
			if tc.wishes == nil {
				asked := ann.held(ocip.CommitmentRequiresHuman, "agent:ben:main", "Please approve the budget", fresh(nil))
				h.decides(api.DecideApprove, asked.ApprovalID)
			} else {
				ann.dispatch("agent:ben:main", tc.says, wish(tc.wishes))
			}
			ben.message("hook:message_received")
			held := ben.held(tc.code, "agent:ann:main", "Fine with us.", fresh(nil))
			ben.held(tc.code, "agent:ann:main", "Fine with us, says ben.", wish(map[string]any{"id": "another-id"}))
			h.stop()
			h.start()
			ann, ben = h.agent("@acme/ann"), h.agent("@acme/ben")
			ben.held(tc.code, "agent:ann:main", "Still fine with us.", fresh(nil))
			h.decides(api.DecideApprove, held.ApprovalID)
			ann.message("hook:message_received")
			ben.dispatch("agent:ann:main", "And how are you?", fresh(nil))
		})
	}
}

// Seeds 3: a message that only a person may answer is delivered, the receiver's side is
// escalated, and its person hears of it.
func TestSeeds3ReceiverEscalatesAndDelivers(t *testing.T) {
	h := build(t, team("ann", "ben"))
	ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
	sent := ann.dispatch("agent:ben:main", "Who is on call?", wish(map[string]any{"replyPolicy": "human-only"}))
	m := ben.message("hook:message_received")
	if e := m.envelope(t); e.ReplyPolicy != ocip.HumanOnly {
		t.Errorf("ben got %+v", e)
	}
	if side := h.outcomeOf(sent.OCIP.ExchangeID, "agent-ben-1"); side.Outcome != "escalated" {
		t.Errorf("ben's side is %+v", side)
	}
	if side := h.outcomeOf(sent.OCIP.ExchangeID, "agent-ann-1"); side.Outcome != "in_progress" {
		t.Errorf("ann's side is %+v", side)
	}
	answer := ben.held(ocip.CommitmentRequiresHuman, m.ReplyTo, "It is ben.", nil)
	if answer.OCIP.ExchangeID != sent.OCIP.ExchangeID {
		t.Errorf("the answer is in %+v", answer.OCIP)
	}
	h.decides(api.DecideApprove, answer.ApprovalID)
	ann.message("hook:message_received")
	if side := h.outcomeOf(sent.OCIP.ExchangeID, "agent-ben-1"); side.Outcome != "in_progress" || side.CurrentRound != 2 {
		t.Errorf("after a person's answer ben's side is %+v", side)
	}
}

// Attack 8: one envelope with a round far ahead uses up nobody's rounds.
func TestAttack8RoundFarAheadChangesNothing(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	envelope := foreign("conv-1", 1_000_000, "acme-corp")
	envelope["max_rounds"] = 1_000_000
	err := telegram.call("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": envelope}}, nil)
	if e := api.AsError(err); e.Code != api.Forbidden || ocipCode(t, e) != string(ocip.EnvelopeForged) {
		t.Fatalf("round 1000000: %v", err)
	}
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-2", 1, "acme-corp")}}, nil)
	alice.message("hook:message_received")
	if sent := alice.dispatch("telegram:zed", "Hello", nil); sent.OCIP == nil || sent.OCIP.Round != 2 {
		t.Errorf("alice's answer is %+v", sent)
	}
}

// Attack 23: two agents at their limit accept nothing from each other from elsewhere
// either, in a new exchange, until a person has settled it.
func TestAttack23StoppedPairTakesNothingInbound(t *testing.T) {
	h := build(t, acme+"ocip: {max_rounds: 2}\n")
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	queue := func(conversation string, round int) error {
		return telegram.call("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign(conversation, round, "acme-corp")}}, nil)
	}
	if err := queue("conv-1", 1); err != nil {
		t.Fatal(err)
	}
	alice.message("hook:message_received")
	alice.dispatch("telegram:zed", "Hello", nil)
	held := alice.held(ocip.RoundLimit, "telegram:zed", "Hello again", nil)
	if e := api.AsError(queue("conv-2", 1)); e.Code != api.Forbidden || ocipCode(t, e) != string(ocip.RoundLimit) {
		t.Fatalf("while it is not settled: %v", e)
	}
	h.decides(api.DecideResolve, held.ApprovalID)
	if err := queue("conv-3", 1); err != nil {
		t.Errorf("once it is settled: %v", err)
	}
}
