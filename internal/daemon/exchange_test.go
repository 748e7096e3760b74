package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Two agents that have used up their rounds begin nothing new, under any id, in either
// direction and also after a restart, until a person has settled it.
func TestRoundLimitHoldsAcrossExchanges(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	var ref *api.ExchangeRef
	for range 3 {
		ref = alice.dispatch("agent:bob:main", "ping", nil).OCIP
	}
	limit := func(who *app, session string, exchange map[string]any) {
		t.Helper()
		who.held(ocip.RoundLimit, session, "ping", map[string]any{"exchange": exchange})
	}
	limit(alice, "agent:bob:main", nil)
	limit(alice, "agent:bob:main", map[string]any{"new": true})
	limit(alice, "agent:bob:other", map[string]any{"id": "fresh"})
	limit(bob, "agent:alice:main", map[string]any{"new": true, "type": "information_query"})
	h.stop()
	h.start()
	alice = h.agent("@acme/alice")
	limit(alice, "agent:bob:main", map[string]any{"new": true})

	// Neither agent can settle it; a person can, and then they begin anew.
	resolve := map[string]any{"exchangeId": ref.ExchangeID, "outcome": "resolved"}
	alice.refuse(api.Forbidden, "exchange.resolve", resolve)
	h.operator("exchange.resolve", resolve, nil)
	if got := alice.dispatch("agent:bob:main", "ping", nil).OCIP; got.Round != 1 {
		t.Errorf("got round %d, want a new exchange", got.Round)
	}
	if r := h.records(audit.Filter{Like: audit.Record{ExchangeID: ref.ExchangeID, PolicyResult: ""}}); r[len(r)-1].Event != "resolved" || r[len(r)-1].Outcome != "resolved" {
		t.Errorf("the last record of the exchange is %+v", r[len(r)-1])
	}
}

func TestExchangeMethods(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	toDave := alice.dispatch("telegram:dave", "How far are you?", nil).OCIP
	toBob := alice.dispatch("agent:bob:main", "How far are you?", nil).OCIP

	var got api.ExchangeResult
	alice.must("exchange.get", map[string]any{"exchangeId": toDave.ExchangeID}, &got)
	if len(got.Exchanges) != 1 || got.Exchanges[0].CurrentRound != 1 || len(got.Exchanges[0].Transcript) != 1 || got.Exchanges[0].Transcript[0].Summary != "How far are you?" {
		t.Errorf("got %+v", got)
	}
	// Each agent sees its own side, an operator both.
	bob.refuse(api.NotFound, "exchange.get", map[string]any{"exchangeId": toDave.ExchangeID})
	bob.must("exchange.get", map[string]any{"exchangeId": toBob.ExchangeID}, &got)
	if len(got.Exchanges) != 1 || got.Exchanges[0].Agent != "agent-bob-1" {
		t.Errorf("bob sees %+v", got)
	}
	h.operator("exchange.get", map[string]any{"exchangeId": toBob.ExchangeID}, &got)
	if len(got.Exchanges) != 2 {
		t.Errorf("the operator sees %+v", got)
	}
	alice.must("exchange.list", map[string]any{"limit": 1}, &got)
	if len(got.Exchanges) != 1 || got.Exchanges[0].ExchangeID != toBob.ExchangeID {
		t.Errorf("the newest is %+v", got)
	}
	alice.must("exchange.list", map[string]any{"before": toBob.ExchangeID}, &got)
	if len(got.Exchanges) != 1 || got.Exchanges[0].ExchangeID != toDave.ExchangeID {
		t.Errorf("the next is %+v", got)
	}
	alice.refuse(api.Forbidden, "exchange.list", map[string]any{"agent": "agent-bob-1"})

	// An exchange that an agent resolved is closed for it.
	alice.must("exchange.resolve", map[string]any{"exchangeId": toDave.ExchangeID, "outcome": "resolved", "note": "done"}, nil)
	alice.refuse(api.Conflict, "exchange.resolve", map[string]any{"exchangeId": toDave.ExchangeID, "outcome": "resolved"})
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "One more thing", "metadata": map[string]any{"exchange": map[string]any{"id": toDave.ExchangeID}}})
	if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
		t.Errorf("got %s", code)
	}
}

// A message that its receiver in this daemon refuses never happened: it takes no round,
// appears in no transcript, and the sender's record says that it was not sent.
func TestRefusedByTheReceiverTakesNoRound(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	ref := alice.dispatch("agent:bob:main", "one", nil).OCIP
	alice.must("exchange.resolve", map[string]any{"exchangeId": ref.ExchangeID, "outcome": "resolved"}, nil)
	e := bob.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "agent:alice:main", "content": "two", "metadata": map[string]any{"exchange": map[string]any{"id": ref.ExchangeID}}})
	if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
		t.Errorf("got %s", code)
	}
	var got api.ExchangeResult
	h.operator("exchange.get", map[string]any{"exchangeId": ref.ExchangeID}, &got)
	for _, side := range got.Exchanges {
		if side.CurrentRound != 1 || len(side.Transcript) != 1 || side.Outcome != "resolved" {
			t.Errorf("%s has round %d, %s, %v", side.Agent, side.CurrentRound, side.Outcome, side.Transcript)
		}
	}
	r := h.records(audit.Filter{Like: audit.Record{AgentID: "agent-bob-1", Side: audit.SideSender}})
	if len(r) != 1 || r[0].PolicyResult != "deny" || r[0].Code != string(ocip.ExchangeClosed) || r[0].Round != 1 {
		t.Errorf("the sender's records are %+v", r)
	}
}

// Agents choose their ids themselves, so if two pairs use one id, a person who names one
// exchange must not end the other.
func TestResolveOfAnIDThatTwoPairsUse(t *testing.T) {
	h := build(t, team("ann", "ben", "cat"))
	ann, cat := h.agent("@acme/ann"), h.agent("@acme/cat")
	ticket := map[string]any{"exchange": map[string]any{"id": "ticket-1"}}
	ann.dispatch("agent:ben:main", "How far is it?", ticket)
	cat.dispatch("agent:ben:main", "How far is it?", ticket)
	resolve := map[string]any{"exchangeId": "ticket-1", "outcome": "resolved"}
	person := h.operates()
	person.refuse(api.Conflict, "exchange.resolve", resolve)
	resolve["agent"] = "agent-cat-1"
	person.must("exchange.resolve", resolve, nil)
	var got api.ExchangeResult
	h.operator("exchange.list", map[string]any{}, &got)
	for _, side := range got.Exchanges {
		want := "in_progress"
		if side.Agent == "agent-cat-1" {
			want = "resolved"
		}
		if side.ExchangeID == "ticket-1" && side.Outcome != want {
			t.Errorf("%s with %s is %s, want %s", side.Agent, side.Counterparty, side.Outcome, want)
		}
	}
}
