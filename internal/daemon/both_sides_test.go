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

// talk is one way for two agents of the daemon to write to each other.
type talk struct {
	first, second string
	// says makes the first agent write to the second, which gets the message. promises
	// makes a promise of the second one be held.
	says     func(content string) (exchange string, round int)
	promises func(exchange string) (approvalID string)
	// app is the second agent's app, nil if it speaks by a grant.
	app *app
}

// waysToTalk are the ways, by name.
var waysToTalk = map[string]func(t *testing.T) (*harness, *talk){
	"delivered": func(t *testing.T) (*harness, *talk) {
		h := build(t, acme)
		alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
		return h, &talk{"agent-alice-1", "agent-bob-1", func(content string) (string, int) {
			sent := alice.dispatch("agent:bob:main", content, nil).OCIP
			bob.message("hook:message_received")
			return sent.ExchangeID, sent.Round
		}, func(string) string {
			return bob.held(ocip.CommitmentRequiresHuman, "agent:alice:main", promise, nil).ApprovalID
		}, bob}
	},
	"carried": func(t *testing.T) (*harness, *talk) {
		h := build(t, acme)
		alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
		return h, &talk{"agent-alice-1", "agent-bob-1", func(content string) (string, int) {
			sent, arrived := alice.carries(bob, "agent:bob:main", content)
			if !sent.Allowed || !arrived.Allowed {
				t.Fatalf("%q: sent %+v, arrived %+v", content, sent, arrived)
			}
			return sent.OCIP.ExchangeID, sent.OCIP.Round
		}, func(exchange string) string {
			return bob.emitHeld(map[string]any{"sessionKey": "agent:alice:main", "content": promise, "metadata": wish(map[string]any{"id": exchange})}).ApprovalID
		}, bob}
	},
	"redeemed": func(t *testing.T) (*harness, *talk) {
		h := build(t, acme)
		alice, bob := h.redeems(), h.agent("@acme/bob")
		return h, &talk{"agent-alice-1", "agent-bob-1", func(content string) (string, int) {
			held := alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": promise + " " + content})
			h.decides(api.DecideApprove, held.ApprovalID)
			got := alice.redeem(held.ApprovalID)
			var given delivered
			alice.decode(got.Data, &given)
			if arrived := bob.emit("message_received", map[string]any{"sessionKey": "agent:bob:main", "content": given.Content, "metadata": given.Metadata}, nil); !arrived.Allowed {
				t.Fatalf("%q: arrived %+v", content, arrived)
			}
			alice.must("approval.confirm", map[string]any{"claim": got.Claim, "outcome": api.OutcomeSent}, nil)
			sent := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, Side: audit.SideSender, PolicyResult: audit.ResultAllow}})
			return sent[0].ExchangeID, sent[0].Round
		}, func(exchange string) string {
			return bob.emitHeld(map[string]any{"sessionKey": "agent:alice:main", "content": promise, "metadata": wish(map[string]any{"id": exchange})}).ApprovalID
		}, bob}
	},
	"sent by a grant": func(t *testing.T) (*harness, *talk) {
		h := build(t, ungoverned)
		ann, ben := h.speaker("ann"), h.speaker("ben")
		cursor := ""
		return h, &talk{"agent-ann-1", "agent-ben-1", func(content string) (string, int) {
			sent := ann.must("agent.send", m{"to": "ben", "text": content})
			var got []m
			if got, cursor = ben.read(m{"cursor": cursor}); len(got) != 1 {
				t.Fatalf("%q: read %v", content, got)
			}
			return str(sent, "exchange_id"), int(sent["round"].(float64))
		}, func(string) string {
			return str(ben.must("agent.send", m{"to": "ann", "text": promise}), "approval_id")
		}, nil}
	},
}

// However an exchange ends on one side, the other side ends with it, so that the other
// agent's next message begins a new exchange, which the first one accepts.
func TestEndOfAnExchangeEndsBothSides(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *harness, x *talk, exchange string){
		"a person denies what one says in it":   func(h *harness, x *talk, exchange string) { h.decides(api.DecideDeny, x.promises(exchange)) },
		"a person resolves what one says in it": func(h *harness, x *talk, exchange string) { h.decides(api.DecideResolve, x.promises(exchange)) },
		"the app of one ends it": func(_ *harness, x *talk, exchange string) {
			x.app.must("exchange.resolve", map[string]any{"exchangeId": exchange, "outcome": "resolved"}, nil)
		},
	} {
		for way, begins := range waysToTalk {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				h, x := begins(t)
				if x.app == nil && strings.Contains(name, "app") {
					// An agent that speaks through a grant cannot end one: a person does.
					return
				}
				first, _ := x.says("What is the status?")
				end(h, x, first)
				outcome := h.outcomeOf(first, x.second).Outcome
				if other := h.outcomeOf(first, x.first).Outcome; other != outcome || other == string(ocip.InProgress) {
					t.Errorf("the first side is %s, the second %s", other, outcome)
				}
				if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, Event: outcome, ExchangeID: first, AgentID: x.first}}); len(r) != 1 {
					t.Errorf("the end of the first side has the records %+v", r)
				}
				if second, round := x.says("And now?"); second == first || round != 1 {
					t.Errorf("the next message is round %d of %s", round, second)
				}
			})
		}
	}
}

// A receiver that would refuse a message does so before its sender's runtime sends it.
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
