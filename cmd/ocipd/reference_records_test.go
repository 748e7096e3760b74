package main_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// label tells people that an agent wrote to them.
const label = "Sent by user's OpenClaw assistant"

// tracked is a message with one piece of data to share and one to withhold.
func tracked() map[string]any {
	return map[string]any{"id": "tracked", "conversationId": "conv-tracked", "data": []map[string]any{
		{"source": "jira", "fields": []string{"status", "assignee"}, "classification": "internal", "description": "the ticket"},
		{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "what its owner earns"},
	}}
}

// only returns the one record of an agent in an exchange.
func (e *end) only(t *testing.T, exchange string) audit.Entry {
	t.Helper()
	r := e.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, AgentID: e.instance, ExchangeID: exchange}})
	if len(r) != 1 {
		t.Fatalf("installation %s has %d records of %s, want 1: %+v", e.installation.name, len(r), e.id, r)
	}
	return r[0]
}

// logged goes through both sides' records of a message.
func logged(t *testing.T, e, other *end, side string, m passage) audit.Entry {
	t.Helper()
	r := e.only(t, "tracked")
	for _, row := range []struct{ name, got, want string }{
		{"exchange ID", r.ExchangeID, "tracked"},
		{"conversation ID", r.ConversationID, "conv-tracked"},
		{"classification", r.Classification, "internal"},
		{"policy applied", r.PolicyApplied + " " + r.PolicyResult, "ocip.agent_exchange allow"},
		{"Audit action type agent_exchange", r.ActionType, "agent_exchange"},
		{"side", r.Side, side},
		{"whose", r.AgentID + " with " + r.Counterparty.InstanceID, e.instance + " with " + other.instance},
	} {
		t.Run(row.name, func(t *testing.T) { same(t, row.name, row.got, row.want) })
	}
	if r.PolicyRevision == "" || r.ContentDigest == "" || r.ContentBytes != m.arrived.Content.Len() {
		t.Errorf("the record is %+v", r)
	}
	return r
}

func senderSideLogging(t *testing.T, w *world) {
	p := w.pair(t, ordinary)
	r := logged(t, p.alice, p.bob, audit.SideSender, p.pass(t, p.alice, question, tracked()))
	t.Run("data shared", func(t *testing.T) {
		same(t, "data shared", r.DataShared, []audit.Shared{{Source: "jira", Fields: []string{"status", "assignee"}}})
	})
}

func receiverSideLogging(t *testing.T, w *world) {
	p := w.pair(t, ordinary)
	r := logged(t, p.bob, p.alice, audit.SideReceiver, p.pass(t, p.alice, question, tracked()))
	t.Run("data withheld (if any)", func(t *testing.T) {
		if len(r.DataWithheld) != 1 || r.DataWithheld[0] != (audit.Withheld{Reason: "above_level", Description: "above the message's level"}) {
			t.Errorf("the receiver's record of a message from another installation has dataWithheld %+v, and its metadata.exchange said what was withheld", r.DataWithheld)
		}
	})
	t.Run("data withheld (none)", func(t *testing.T) {
		p := w.pair(t, ordinary)
		p.pass(t, p.alice, question, named("tracked"))
		same(t, "data withheld", len(p.bob.only(t, "tracked").DataWithheld), 0)
	})
}

// dataTracking: the shared and withheld data of an exchange arrives with the message, and
// each side records it.
func dataTracking(t *testing.T, w *world) {
	p := w.pair(t, ordinary)
	m := p.pass(t, p.alice, question, tracked())
	shared := []audit.Shared{{Source: "jira", Fields: []string{"status", "assignee"}}}
	t.Run("dataShared", func(t *testing.T) {
		var got []audit.Shared
		raw := at(t, m.arrived.Metadata["exchange"], "dataShared")
		if err := json.Unmarshal(raw, &got, json.RejectUnknownMembers(true)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		same(t, "what arrives", got, shared)
		for _, e := range []*end{p.alice, p.bob} {
			t.Run("record of installation "+e.installation.name, func(t *testing.T) {
				same(t, "dataShared", e.only(t, "tracked").DataShared, shared)
			})
		}
	})
	t.Run("dataWithheld", func(t *testing.T) {
		var got []audit.Withheld
		raw := at(t, m.arrived.Metadata["exchange"], "dataWithheld")
		if err := json.Unmarshal(raw, &got, json.RejectUnknownMembers(true)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		same(t, "what arrives", got, []audit.Withheld{{Reason: "above_level", Description: "above the message's level"}})
		for _, e := range []*end{p.alice, p.bob} {
			t.Run("record of installation "+e.installation.name, func(t *testing.T) {
				want := got
				if e == p.alice {
					// Only its own installation knows the original words of the withheld data.
					want = []audit.Withheld{{Reason: "above_level", Description: "what its owner earns"}}
				}
				same(t, "dataWithheld", e.only(t, "tracked").DataWithheld, want)
			})
		}
	})
}

func aiDisclosure(t *testing.T, w *world) {
	for _, kind := range []string{"agent-generated", "agent-assisted"} {
		t.Run(kind, func(t *testing.T) {
			p := w.pair(t, ordinary)
			for _, text := range []string{question, question + "\n\n" + label} {
				m := p.pass(t, p.alice, text, map[string]any{"new": true, "messageType": kind})
				same(t, "message_type", at(t, m.arrived.Metadata["ocip"], "message_type"), `"`+kind+`"`)
				same(t, "aiDisclosure", m.arrived.Metadata["aiDisclosure"], `"`+label+`"`)
				same(t, "the text", m.arrived.Content.Inspect(), question+"\n\n"+label)
			}
			// A person is told too.
			if _, err := p.alice.dispatchTo(t, "link:nobody", question, map[string]any{"exchange": map[string]any{"messageType": kind}}); err != nil {
				t.Fatal(err)
			}
			c := p.alice.crossed(t)
			same(t, "aiDisclosure", c.Metadata["aiDisclosure"], `"`+label+`"`)
			same(t, "the text", c.Content.Inspect(), question+"\n\n"+label)
		})
	}
	t.Run("human", func(t *testing.T) {
		// A person's message arrives unchanged, with an envelope or without.
		p := w.pair(t, ordinary)
		m := p.intercept(t, question, named("human"))
		annotated := api.Object{"ocip": alter(t, m.Metadata["ocip"], "message_type", "human")}
		for _, metadata := range []api.Object{annotated, nil} {
			if _, err := bring(t.Context(), p.bob, p.alice, question, metadata); err != nil {
				t.Fatal(err)
			}
			got := p.bob.received(t)
			if got.Content.Inspect() != question || got.Metadata["aiDisclosure"] != nil {
				t.Errorf("%s got %+v", p.bob.id, got)
			}
		}
		// An app cannot omit the label by calling itself a person.
		_, err := p.alice.dispatch(t, question, map[string]any{"new": true, "messageType": "human"})
		if api.AsError(err).Code != api.InvalidParams {
			t.Errorf("a human message of an app: %v", err)
		}
		p.alice.sentNothing(t)
	})
}

// messageFlow plays the reference's diagram, arrow by arrow, between two units.
func messageFlow(t *testing.T, w *world) {
	const applied = "ocip.agent_exchange+ocip.cross_org"
	p := w.pair(t, toMarketing)
	m := p.pass(t, p.alice, question, named("flow"))
	sent, received := p.alice.only(t, "flow"), p.bob.only(t, "flow")
	t.Run("Alice evaluates agent-to-agent policy", func(t *testing.T) {
		if sent.PolicyResult != "allow" || sent.PolicyApplied != applied || sent.Classification != "internal" || sent.MaxRounds != 3 {
			t.Errorf("the record is %+v", sent)
		}
	})
	t.Run("Build OCIP envelope Round 1, classification internal", func(t *testing.T) {
		same(t, "exchange_round", at(t, m.wire.Metadata["ocip"], "exchange_round"), 1)
		same(t, "classification", at(t, m.wire.Metadata["ocip"], "classification"), `"internal"`)
	})
	t.Run("sessions_send with OCIP envelope annotation", func(t *testing.T) {
		if m.wire.ChannelID != "link" || m.wire.Target != p.bob.id || m.arrived.SessionKey != p.bob.to || !slices.Contains(membersOf(t, m.arrived.Metadata["ocip"]), "version") {
			t.Errorf("carried as %+v, arrived as %+v", m.wire, m.arrived)
		}
	})
	t.Run("Bob evaluates agent-to-agent policy (cross-org check passed)", func(t *testing.T) {
		if received.Side != audit.SideReceiver || received.PolicyResult != "allow" || received.PolicyApplied != applied {
			t.Errorf("the record is %+v", received)
		}
	})
	t.Run("No commitment detected", func(t *testing.T) {
		same(t, "detections", len(sent.Detections)+len(received.Detections), 0)
	})
	t.Run("Check round limit (round 1 <= 3)", func(t *testing.T) {
		same(t, "the round", fmt.Sprint(received.Round, " of ", received.MaxRounds), "1 of 3")
	})
	reply := p.pass(t, p.bob, answer, named("flow"))
	t.Run("Bob evaluates response policy (reply_policy agent-ok)", func(t *testing.T) {
		same(t, "reply_policy", at(t, m.arrived.Metadata["ocip"], "reply_policy"), `"agent-ok"`)
		if r := p.bob.record(t, "flow"); r.Side != audit.SideSender || r.PolicyResult != "allow" || r.PolicyApplied != applied {
			t.Errorf("the record is %+v", r)
		}
	})
	t.Run("Build reply OCIP envelope Round 2, classification internal", func(t *testing.T) {
		same(t, "exchange_round", at(t, reply.wire.Metadata["ocip"], "exchange_round"), 2)
		same(t, "classification", at(t, reply.wire.Metadata["ocip"], "classification"), `"internal"`)
		same(t, "conversation_id", at(t, reply.wire.Metadata["ocip"], "conversation_id"), at(t, m.wire.Metadata["ocip"], "conversation_id"))
	})
	t.Run("Reply delivered", func(t *testing.T) {
		if reply.arrived.SessionKey != p.alice.to || reply.arrived.Content.Inspect() != answer+"\n\n"+label {
			t.Errorf("%s got %+v", p.alice.id, reply.arrived)
		}
	})
	t.Run("Both sides log to their own audit systems independently", func(t *testing.T) {
		for e, want := range map[*end][]string{p.alice: {"sender 1", "receiver 2"}, p.bob: {"receiver 1", "sender 2"}} {
			var got []string
			for _, r := range e.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, ExchangeID: "flow"}}) {
				if r.AgentID == p.alice.instance || r.AgentID == p.bob.instance {
					got = append(got, fmt.Sprint(r.Side, " ", r.Round))
				}
			}
			same(t, "the log of installation "+e.installation.name, got, want)
		}
	})
	t.Run("alt Round limit exceeded", func(t *testing.T) {
		p.pass(t, p.alice, question, named("flow"))
		more, err := p.bob.dispatch(t, answer, named("flow"))
		j := wantHuman(t, more, err, "EXCHANGE_ROUND_LIMIT")
		same(t, "currentRound", at(t, j.Escalation, "currentRound"), 4)
		same(t, "maxRounds", at(t, j.Escalation, "maxRounds"), 3)
		p.bob.sentNothing(t)
		p.alice.gotNothing(t)
		overLimit(t, p.bob, "flow")
	})
	t.Run("alt Commitment detected", func(t *testing.T) {
		// Installation c lets it through, so bob's side has to notice it: either his agent
		// does not get it, or it does not answer.
		p := w.pair(t, monitored)
		p.alice.send(t, "Can you book the large room?", named("flow"))
		c := p.alice.crossed(t)
		t.Run("Commitment keyword found", func(t *testing.T) {
			r := p.bob.only(t, "flow")
			if r.Side != audit.SideReceiver || len(r.Detections) != 1 || r.Detections[0].Rule != "commitment.book" {
				t.Errorf("the receiver's record is %+v", r)
			}
		})
		t.Run("Escalate to human for approval", func(t *testing.T) {
			if c.err != nil || c.queued.Held {
				wantHuman(t, c.queued, c.err, "COMMITMENT_REQUIRES_HUMAN")
				p.bob.gotNothing(t)
			} else {
				p.bob.received(t)
				reply, err := p.bob.dispatch(t, answer, named("flow"))
				wantHuman(t, reply, err, "COMMITMENT_REQUIRES_HUMAN")
				p.bob.sentNothing(t)
			}
			p.bob.outcome(t, "flow", "escalated")
		})
	})
	t.Run("alt Cross-enterprise attempt", func(t *testing.T) {
		p := w.pair(t, toGlobex)
		p.walled(t, question, named("flow"))
		p.stopped(t, p.alice, p.bob)
	})
}
