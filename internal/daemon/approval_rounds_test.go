package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// usedUp lets alice and bob use up the rounds of an exchange, and returns alice's message
// past the limit.
func usedUp(t testing.TB, h *harness, alice, bob *app) api.DispatchResult {
	t.Helper()
	alice.dispatch("agent:bob:main", "one", nil)
	bob.dispatch(bob.message("hook:message_received").ReplyTo, "two", nil)
	alice.dispatch(alice.message("hook:message_received").ReplyTo, "three", nil)
	bob.message("hook:message_received")
	return alice.held(ocip.RoundLimit, "agent:bob:main", "four", nil)
}

// outcomeOf returns the state of an agent's side of an exchange.
func (h *harness) outcomeOf(exchange, agent string) api.Exchange {
	h.t.Helper()
	var x api.ExchangeResult
	h.operator("exchange.get", map[string]any{"exchangeId": exchange}, &x)
	for _, side := range x.Exchanges {
		if side.Agent == agent {
			return side
		}
	}
	h.t.Fatalf("%s has no side of exchange %s", agent, exchange)
	return api.Exchange{}
}

// A message past the round limit is never approved for one more round. A person takes it
// over, denies it or resolves its exchange, and then either agent may begin a new one.
func TestRoundLimitHolds(t *testing.T) {
	for _, tc := range []struct {
		decide, state string
		content       string
		// alice and bob are the outcomes of the two sides.
		alice, bob string
	}{
		{decide: api.DecideTakeover, state: api.ApprovalTakenOver, alice: "escalated", bob: "escalated"},
		{decide: api.DecideTakeover, state: api.ApprovalTakenOver, content: "My own words", alice: "escalated", bob: "escalated"},
		{decide: api.DecideDeny, state: api.ApprovalDenied, alice: "denied", bob: "denied"},
		{decide: api.DecideResolve, state: api.ApprovalResolved, alice: "resolved", bob: "resolved"},
		{decide: "exchange.resolve", state: api.ApprovalResolved, alice: "resolved", bob: "resolved"},
	} {
		t.Run(tc.decide+tc.content, func(t *testing.T) {
			h := build(t, acme)
			alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
			held := usedUp(t, h, alice, bob)
			saw := h.shown(held.ApprovalID)
			if saw.Approvable || saw.Blocked == "" || saw.Escalation == nil || saw.Escalation.CurrentRound != 4 || saw.Escalation.MaxRounds != 3 || len(saw.Transcript) != 3 || len(saw.Sending) > 0 {
				t.Fatalf("a person sees %+v with %+v", saw, saw.Escalation)
			}
			contains(t, saw.Escalation.ConversationSummary, "Round 1 (agent-alice-1): one", "Round 4 (agent-alice-1): four")
			for range 3 {
				e := person.conflict("APPROVAL_BLOCKED", decision(api.DecideApprove, &saw))
				contains(t, e.Message, "round limit", "take it over")
			}
			if side := h.outcomeOf(held.OCIP.ExchangeID, "agent-alice-1"); side.CurrentRound != 3 || side.Outcome != "escalated" {
				t.Errorf("after the attempts the exchange is %+v", side)
			}

			if tc.decide == "exchange.resolve" {
				person.must(tc.decide, map[string]any{"exchangeId": held.OCIP.ExchangeID, "outcome": "resolved", "note": "enough"}, nil)
			} else {
				params := decision(tc.decide, &saw)
				params["note"] = "enough"
				if tc.content != "" {
					params["content"] = tc.content
				}
				person.must("approval.resolve", params, nil)
			}
			if o := alice.concludes(held.ApprovalID, tc.state); o.Note != "enough" {
				t.Errorf("the app is told %+v", o)
			}
			if tc.decide == api.DecideTakeover {
				m := bob.message("hook:message_received")
				e := m.envelope(t)
				want := tc.content
				if want == "" {
					want = "four"
				}
				if e.MessageType != ocip.Human || e.ExchangeRound != 4 || e.MaxRounds != 3 || !e.Capabilities.CanCommit || m.Content != want || m.DispatchID != held.DispatchID {
					t.Errorf("bob got %q with %+v", m.Content, e)
				}
			}
			for agent, want := range map[string]string{"agent-alice-1": tc.alice, "agent-bob-1": tc.bob} {
				if side := h.outcomeOf(held.OCIP.ExchangeID, agent); side.Outcome != want {
					t.Errorf("the side of %s is %s, want %s", agent, side.Outcome, want)
				}
			}
			// Either begins a new exchange, in the same session.
			back := bob.dispatch("agent:alice:main", "anew", nil)
			if back.OCIP == nil || back.OCIP.Round != 1 || back.OCIP.ExchangeID == held.OCIP.ExchangeID {
				t.Errorf("bob's next message is %+v %+v", back, back.OCIP)
			}
			next := alice.dispatch("agent:bob:main", "anew", fresh(nil))
			if next.OCIP == nil || next.OCIP.Round != 1 || next.OCIP.ExchangeID == held.OCIP.ExchangeID {
				t.Errorf("alice's next message is %+v %+v", next, next.OCIP)
			}
			// But nobody can continue the ended one.
			e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "agent:bob:main", "content": "five", "metadata": map[string]any{"exchange": map[string]any{"id": held.OCIP.ExchangeID}}})
			if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
				t.Errorf("a fifth round: %s", code)
			}
		})
	}
}

// While a round limit is unsettled between two agents, their new exchanges wait as well,
// and cannot be approved before it is settled.
func TestRoundLimitHoldsFreshExchanges(t *testing.T) {
	h := build(t, acme)
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	held := usedUp(t, h, alice, bob)
	second := bob.held(ocip.RoundLimit, "agent:alice:main", "Listen", fresh(nil))
	saw := h.shown(second.ApprovalID)
	if saw.EscalatedExchange != held.OCIP.ExchangeID || saw.Approvable || saw.Escalation == nil || saw.Escalation.CurrentRound != 1 {
		t.Errorf("a person sees %+v", saw)
	}
	person.conflict("APPROVAL_BLOCKED", decision(api.DecideApprove, &saw))
	// Denying it settles nothing between the two.
	third := bob.held(ocip.RoundLimit, "agent:alice:main", "Listen to me", fresh(nil))
	h.decides(api.DecideDeny, third.ApprovalID)
	bob.concludes(third.ApprovalID, api.ApprovalDenied)
	bob.held(ocip.RoundLimit, "agent:alice:main", "Listen again", fresh(nil))

	h.decides(api.DecideResolve, held.ApprovalID)
	e := person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &saw))
	contains(t, e.Message, "look again")
	h.decides(api.DecideApprove, second.ApprovalID)
	m := alice.message("hook:message_received")
	if got := m.envelope(t); got.ExchangeRound != 1 || got.MessageType != ocip.AgentAssisted {
		t.Errorf("alice got %+v", got)
	}
	bob.concludes(second.ApprovalID, api.ApprovalApproved)
}

// A commitment past the round limit waits for its approval as a commitment, and still gets
// no extra round.
func TestRoundLimitHoldsCommitments(t *testing.T) {
	h := build(t, acme)
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	for range 3 {
		alice.dispatch("agent:bob:main", "ping", nil)
		bob.message("hook:message_received")
	}
	held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, nil)
	saw := h.shown(held.ApprovalID)
	if saw.Approvable || len(saw.Sending) > 0 {
		t.Errorf("a person sees %+v", saw)
	}
	contains(t, person.conflict("APPROVAL_BLOCKED", decision(api.DecideApprove, &saw)).Message, "round limit")
	h.decides(api.DecideTakeover, held.ApprovalID)
	if e := bob.message("hook:message_received"); e.envelope(t).MessageType != ocip.Human || e.envelope(t).ExchangeRound != 4 {
		t.Errorf("bob got %+v", e.envelope(t))
	}
}

// If no place for a request is left, a message past the round limit is refused, and the two
// agents are stopped all the same.
func TestRoundLimitWithoutAPlace(t *testing.T) {
	h := build(t, acme+"approvals: {max_open: 1}\n")
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	alice.dispatch("agent:bob:main", "one", nil)
	bob.dispatch(bob.message("hook:message_received").ReplyTo, "two", nil)
	last := alice.dispatch("agent:bob:main", "three", nil)
	for _, metadata := range []map[string]any{nil, fresh(nil)} {
		e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "agent:bob:main", "content": "four", "metadata": metadata})
		if code := ocipCode(t, e); code != string(ocip.TooManyHeld) {
			t.Errorf("got %s", code)
		}
	}
	bob.held(ocip.RoundLimit, "agent:alice:main", "Listen", fresh(nil))
	h.operator("exchange.resolve", map[string]any{"exchangeId": last.OCIP.ExchangeID, "outcome": "resolved"}, nil)
	alice.dispatch("agent:bob:main", "anew", nil)
}

// Resolving an exchange ends its held messages, on both sides, and only those.
func TestResolvingAnExchangeEndsItsHolds(t *testing.T) {
	h := build(t, acme)
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	sent := alice.dispatch("agent:bob:main", "How far are you?", nil)
	m := bob.message("hook:message_received")
	fromBob := bob.held(ocip.CommitmentRequiresHuman, m.ReplyTo, promise, nil)
	fromAlice := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, nil)
	elsewhere := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, nil)
	if fromBob.OCIP.ExchangeID != sent.OCIP.ExchangeID || fromAlice.OCIP.ExchangeID != sent.OCIP.ExchangeID {
		t.Fatalf("held of %s and %s, want %s", fromBob.OCIP.ExchangeID, fromAlice.OCIP.ExchangeID, sent.OCIP.ExchangeID)
	}
	saw := h.shown(fromBob.ApprovalID)
	alice.refuse(api.Forbidden, "exchange.resolve", map[string]any{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved"})
	wantWaiting(t, h, 3)
	person.must("exchange.resolve", map[string]any{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved", "note": "by hand"}, nil)
	wantWaiting(t, h, 1)
	for who, held := range map[*app]api.DispatchResult{alice: fromAlice, bob: fromBob} {
		if o := who.concludes(held.ApprovalID, api.ApprovalResolved); o.Note != "by hand" {
			t.Errorf("%s is told %+v", who.id, o)
		}
		r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionApproval}})
		if len(r) != 1 || r[0].Event != "resolved" || r[0].Details["note"] != "by hand" {
			t.Errorf("on record: %+v", r)
		}
	}
	person.conflict("APPROVAL_DECIDED", decision(api.DecideApprove, &saw))
	for _, agent := range []string{"agent-alice-1", "agent-bob-1"} {
		if side := h.outcomeOf(sent.OCIP.ExchangeID, agent); side.Outcome != "resolved" {
			t.Errorf("the side of %s is %s", agent, side.Outcome)
		}
	}
	if now := h.shown(elsewhere.ApprovalID); now.State != api.ApprovalPending {
		t.Errorf("another exchange's hold is %s", now.State)
	}
}
