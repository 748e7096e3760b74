package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// carries sends a message as a runtime that delivers by itself, and has the receiver's
// runtime report it.
func (a *app) carries(to *app, session, content string) (sent, arrived emitted) {
	a.t.Helper()
	sent = a.emit("message_sending", map[string]any{"sessionKey": session, "content": content}, nil)
	if sent.Allowed {
		arrived = to.emit("message_received", map[string]any{"sessionKey": session, "content": sent.Data.Content, "metadata": sent.Data.Metadata}, nil)
	}
	return sent, arrived
}

// However an exchange ends on one side, the other side ends with it, so that the other
// agent's next message begins an exchange that the first one takes it from.
func TestEndOfAnExchangeEndsBothSides(t *testing.T) {
	promises := func(bob *app, exchange string, carried bool) string {
		if carried {
			return bob.emitHeld(map[string]any{"sessionKey": "agent:alice:main", "content": promise, "metadata": wish(map[string]any{"id": exchange})}).ApprovalID
		}
		return bob.held(ocip.CommitmentRequiresHuman, "agent:alice:main", promise, nil).ApprovalID
	}
	for name, end := range map[string]func(h *harness, bob *app, exchange string, carried bool){
		"a person denies what one says in it": func(h *harness, bob *app, exchange string, carried bool) {
			h.decides(api.DecideDeny, promises(bob, exchange, carried))
		},
		"a person resolves what one says in it": func(h *harness, bob *app, exchange string, carried bool) {
			h.decides(api.DecideResolve, promises(bob, exchange, carried))
		},
		"the app of one ends it": func(_ *harness, bob *app, exchange string, _ bool) {
			bob.must("exchange.resolve", map[string]any{"exchangeId": exchange, "outcome": "resolved"}, nil)
		},
	} {
		for way, carried := range map[string]bool{"delivered": false, "carried": true} {
			t.Run(name+", "+way, func(t *testing.T) {
				h := build(t, acme)
				alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
				says := func(content string) (exchange string, round int) {
					if carried {
						sent, arrived := alice.carries(bob, "agent:bob:main", content)
						if !sent.Allowed || !arrived.Allowed {
							t.Fatalf("%q: sent %+v, arrived %+v", content, sent, arrived)
						}
						return sent.OCIP.ExchangeID, sent.OCIP.Round
					}
					sent := alice.dispatch("agent:bob:main", content, nil).OCIP
					bob.message("hook:message_received")
					return sent.ExchangeID, sent.Round
				}
				first, _ := says("What is the status?")
				end(h, bob, first, carried)
				outcome := h.outcomeOf(first, "agent-bob-1").Outcome
				if other := h.outcomeOf(first, "agent-alice-1").Outcome; other != outcome || other == string(ocip.InProgress) {
					t.Errorf("alice's side is %s, bob's %s", other, outcome)
				}
				if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, Event: outcome, ExchangeID: first, AgentID: "agent-alice-1"}}); len(r) != 1 {
					t.Errorf("the end of alice's side has the records %+v", r)
				}
				if second, round := says("And now?"); second == first || round != 1 {
					t.Errorf("the next message is round %d of %s", round, second)
				}
			})
		}
	}
}

// A receiver that would not take a message refuses it before its sender's runtime sends it.
func TestReceiverRefusesWhatARuntimeCarries(t *testing.T) {
	for name, tc := range map[string]struct {
		bob  string
		code ocip.Code
	}{
		"receives no queries":       {"can_receive_queries: false", ocip.QueriesRefused},
		"has no part in such types": {"supported_exchange_types: [meeting_scheduling]", ocip.UnsupportedType},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, strings.Replace(acme, `{id: bob,`, `{id: bob, `+tc.bob+`,`, 1))
			alice := h.agent("@acme/alice")
			h.agent("@acme/bob")
			got := alice.emit("message_sending", map[string]any{"sessionKey": "agent:bob:main", "content": "What is the status?"}, nil)
			if got.Allowed || got.OCIP.Code != string(tc.code) || got.Data.Content != "" {
				t.Fatalf("got %+v", got)
			}
			contains(t, got.Reason, "the receiver refused the message")
			for _, side := range []string{audit.SideSender, audit.SideReceiver} {
				if r := h.records(audit.Filter{Like: audit.Record{Code: string(tc.code), Side: side}}); len(r) != 1 || r[0].PolicyResult != string(ocip.Deny) {
					t.Errorf("the %s's side has the records %+v", side, r)
				}
			}
		})
	}
}
