package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Two agents that have used up their rounds begin nothing new, under whatever
// id, in whichever direction and also after a restart, until a person has
// settled it.
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
	if r := h.records(audit.Filter{Exchange: ref.ExchangeID, Result: ""}); r[len(r)-1].Event != "resolved" || r[len(r)-1].Outcome != "resolved" {
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

	// What an agent resolved is closed for it.
	alice.must("exchange.resolve", map[string]any{"exchangeId": toDave.ExchangeID, "outcome": "resolved", "note": "done"}, nil)
	alice.refuse(api.Conflict, "exchange.resolve", map[string]any{"exchangeId": toDave.ExchangeID, "outcome": "resolved"})
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "One more thing", "metadata": map[string]any{"exchange": map[string]any{"id": toDave.ExchangeID}}})
	if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
		t.Errorf("got %s", code)
	}
}
