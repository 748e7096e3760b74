package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// answer is an agent's reply without a commitment.
const answer = "It is in review since Monday."

// named opens an exchange under the caller's id, so that it can be found whatever its outcome.
func named(id string, more ...any) map[string]any {
	exchange := map[string]any{"id": id}
	for i := 0; i+1 < len(more); i += 2 {
		exchange[fmt.Sprint(more[i])] = more[i+1]
	}
	return exchange
}

// exchangeTypes: each type has its reply policy and says whether it asks for a commitment.
// Installation c only records commitments, so every type is sent there.
func exchangeTypes(t *testing.T, w *world) {
	for _, row := range []struct {
		kind, policy string
		commits      bool
		example      string
	}{
		{"information_query", "agent-ok", false, "What is the status of ticket ENG-1234?"},
		{"commitment_request", "agent-ok", true, "Can you allocate 2 engineers to Project X?"},
		{"meeting_scheduling", "human-only", true, "Can we schedule a design review for Thursday?"},
	} {
		t.Run(row.kind, func(t *testing.T) {
			p := w.pair(t, monitored)
			m := p.pass(t, p.alice, row.example, named("typed", "type", row.kind))
			same(t, "type", at(t, m.arrived.Metadata["exchange"], "type"), `"`+row.kind+`"`)
			same(t, "reply_policy", at(t, m.arrived.Metadata["ocip"], "reply_policy"), `"`+row.policy+`"`)
			same(t, "requires_commitment", at(t, m.arrived.Metadata["ocip"], "requires_commitment"), row.commits)
			for _, e := range []*end{p.alice, p.bob} {
				same(t, "the type on record in installation "+e.installation.name, e.record(t, "typed").ExchangeType, row.kind)
				same(t, "the type of the exchange of "+e.id, e.exchange(t, "typed").Type, row.kind)
			}
			if !row.commits {
				p.pass(t, p.bob, answer, nil)
				p = w.pair(t, ordinary)
				p.pass(t, p.alice, row.example, fresh(row.kind))
				return
			}
			// If commitments are enforced, an agent neither answers it nor asks it.
			reply, err := p.bob.dispatch(t, answer, nil)
			wantHuman(t, reply, err, "COMMITMENT_REQUIRES_HUMAN")
			p.bob.sentNothing(t)
			p = w.pair(t, ordinary)
			asked, err := p.alice.dispatch(t, "What about it?", named("typed", "type", row.kind))
			wantHuman(t, asked, err, "COMMITMENT_REQUIRES_HUMAN")
			p.stopped(t, p.alice, p.bob)
			r := p.alice.record(t, "typed")
			if r.ExchangeType != row.kind || r.PolicyResult != "require_approval" || r.Outcome != "escalated" {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// outcome checks the state of an exchange on the agent's side and in its last record.
func (e *end) outcome(t *testing.T, exchange, want string) audit.Entry {
	t.Helper()
	r := e.record(t, exchange)
	same(t, "the outcome on record in installation "+e.installation.name, r.Outcome, want)
	same(t, "the outcome of the exchange of "+e.id, e.exchange(t, exchange).Outcome, want)
	return r
}

func exchangeOutcomes(t *testing.T, w *world) {
	t.Run("in_progress", func(t *testing.T) {
		p := w.pair(t, ordinary)
		for _, from := range []*end{p.alice, p.bob, p.alice} {
			m := p.pass(t, from, question, nil)
			same(t, "the outcome that arrives", at(t, m.arrived.Metadata["exchange"], "outcome"), `"in_progress"`)
			id := m.answer.OCIP.ExchangeID
			p.alice.outcome(t, id, "in_progress")
			p.bob.outcome(t, id, "in_progress")
		}
	})
	t.Run("resolved", func(t *testing.T) {
		p := w.pair(t, ordinary)
		p.pass(t, p.alice, question, named("done"))
		p.pass(t, p.bob, answer, nil)
		for _, e := range []*end{p.alice, p.bob} {
			must(t, e.Client, "exchange.resolve", map[string]any{"exchangeId": "done", "outcome": "resolved"}, nil)
			if r := e.outcome(t, "done", "resolved"); r.Event != "resolved" {
				t.Errorf("the record is %+v", r)
			}
			late, err := e.dispatch(t, question, named("done"))
			refused(t, late, err, "EXCHANGE_CLOSED")
			e.sentNothing(t)
		}
	})
	t.Run("escalated", func(t *testing.T) {
		t.Run("round limit", func(t *testing.T) {
			p := w.pair(t, ordinary)
			for range 3 {
				p.pass(t, p.alice, question, named("long"))
			}
			more, err := p.alice.dispatch(t, question, named("long"))
			wantHuman(t, more, err, "EXCHANGE_ROUND_LIMIT")
			p.alice.sentNothing(t)
			same(t, "the result on record", p.alice.outcome(t, "long", "escalated").PolicyResult, "require_approval")
		})
		t.Run("commitment", func(t *testing.T) {
			p := w.pair(t, ordinary)
			promise, err := p.alice.dispatch(t, "This is a promise.", named("promised"))
			wantHuman(t, promise, err, "COMMITMENT_REQUIRES_HUMAN")
			p.stopped(t, p.alice, p.bob)
			same(t, "the result on record", p.alice.outcome(t, "promised", "escalated").PolicyResult, "require_approval")
		})
	})
	t.Run("denied", func(t *testing.T) {
		// Installation d keeps its units apart, for outgoing and incoming messages.
		p := w.pair(t, toStrictMarketing)
		out, err := p.bob.dispatch(t, question, named("out"))
		refused(t, out, err, "POLICY_DENIED")
		p.bob.sentNothing(t)
		same(t, "the result on record", p.bob.outcome(t, "out", "denied").PolicyResult, "deny")

		p.alice.send(t, question, named("in"))
		c := p.alice.crossed(t)
		refused(t, c.queued, c.err, "POLICY_DENIED")
		p.bob.gotNothing(t)
		same(t, "the result on record", p.bob.outcome(t, "in", "denied").PolicyResult, "deny")
	})
	t.Run("expired", func(t *testing.T) {
		// An exchange of installation d lasts two seconds.
		p := w.pair(t, brief)
		p.alice.keep.Store(true)
		p.alice.send(t, question, named("late"))
		select {
		case <-time.After(time.Until(time.UnixMilli(p.alice.exchange(t, "late").ExpiresAt))):
		case <-t.Context().Done():
		}
		late, err := p.alice.dispatch(t, question, named("late"))
		refused(t, late, err, "EXCHANGE_EXPIRED")
		same(t, "the result on record", p.alice.outcome(t, "late", "expired").PolicyResult, "deny")

		// A message that was too long on its way has expired too.
		p = w.pair(t, ordinary)
		m := p.intercept(t, question, named("slow"))
		m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "expires_at", moments(0))
		queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata)
		refused(t, queued, err, "EXCHANGE_EXPIRED")
		p.bob.gotNothing(t)
		same(t, "the result on record", p.bob.outcome(t, "slow", "expired").PolicyResult, "deny")
	})
}

func loopPrevention(t *testing.T, w *world) {
	t.Run("initialized to 0 with a configured max_rounds (default: 3)", func(t *testing.T) {
		// The only exchange without a round is one whose first message was not sent.
		for kind, limit := range map[string]int{ordinary: 3, ofTwoRounds: 2} {
			p := w.pair(t, kind)
			first, err := p.alice.dispatch(t, question, named("begun", "classification", "confidential"))
			refused(t, first, err, "CLASSIFICATION_VIOLATION")
			var raw jsontext.Value
			must(t, p.alice.Client, "exchange.get", map[string]any{"exchangeId": "begun"}, &raw)
			if !strings.Contains(string(raw), `"currentRound":0,`) {
				t.Errorf("the exchange is %s", raw)
			}
			m := p.pass(t, p.alice, question, map[string]any{"new": true})
			same(t, "max_rounds", at(t, m.arrived.Metadata["ocip"], "max_rounds"), limit)
			if r := p.bob.record(t, m.answer.OCIP.ExchangeID); r.Round != 1 || r.MaxRounds != limit {
				t.Errorf("the receiver's record is %+v", r)
			}
		}
	})
	t.Run("every message increments exchange_round by 1", func(t *testing.T) {
		p := w.pair(t, ordinary)
		for i, from := range []*end{p.alice, p.bob, p.bob} {
			round := i + 1
			m := p.pass(t, from, question, named("counted"))
			same(t, "exchange_round", at(t, m.arrived.Metadata["ocip"], "exchange_round"), round)
			for _, e := range []*end{p.alice, p.bob} {
				same(t, "the round of "+e.id, e.exchange(t, "counted").CurrentRound, round)
				same(t, "the round on record in installation "+e.installation.name, e.record(t, "counted").Round, round)
			}
		}
	})
	t.Run("exchange_round > max_rounds must escalate to humans", func(t *testing.T) {
		t.Run("sender", func(t *testing.T) {
			p := w.pair(t, ordinary)
			for _, from := range []*end{p.alice, p.bob, p.alice} {
				p.pass(t, from, question, named("long"))
			}
			more, err := p.bob.dispatch(t, question, named("long"))
			wantHuman(t, more, err, "EXCHANGE_ROUND_LIMIT")
			p.bob.sentNothing(t)
			p.alice.gotNothing(t)
			overLimit(t, p.bob, "long")
		})
		t.Run("receiver", func(t *testing.T) {
			// Installation c permits five rounds, installation b three.
			p := w.pair(t, monitored)
			for range 3 {
				p.pass(t, p.alice, question, named("long"))
			}
			p.alice.send(t, question, named("long"))
			c := p.alice.crossed(t)
			same(t, "exchange_round", at(t, c.Metadata["ocip"], "exchange_round"), 4)
			wantHuman(t, c.queued, c.err, "EXCHANGE_ROUND_LIMIT")
			p.bob.gotNothing(t)
			overLimit(t, p.bob, "long")
		})
	})
	t.Run("no mechanism to extend max_rounds", func(t *testing.T) {
		p := w.pair(t, ordinary)
		m := p.pass(t, p.alice, question, named("long", "maxRounds", 50))
		same(t, "max_rounds", at(t, m.arrived.Metadata["ocip"], "max_rounds"), 3)
		// The other side claims more in its reply.
		p.bob.keep.Store(true)
		p.bob.send(t, answer, named("long", "maxRounds", 50))
		c := p.bob.crossed(t)
		same(t, "max_rounds", at(t, c.Metadata["ocip"], "max_rounds"), 3)
		c.Metadata["ocip"] = alter(t, c.Metadata["ocip"], "max_rounds", 50)
		if _, err := bring(t.Context(), p.alice, p.bob, c.Content.Inspect(), c.Metadata); err != nil {
			t.Fatal(err)
		}
		p.alice.received(t)
		m = p.pass(t, p.alice, question, named("long", "maxRounds", 50))
		same(t, "max_rounds", at(t, m.arrived.Metadata["ocip"], "max_rounds"), 3)
		for _, exchange := range []map[string]any{named("long", "maxRounds", 50), named("another"), {"new": true, "maxRounds": 50}} {
			more, err := p.alice.dispatch(t, question, exchange)
			wantHuman(t, more, err, "EXCHANGE_ROUND_LIMIT")
		}
		p.alice.sentNothing(t)
		overLimit(t, p.alice, "long")

		// A limit that was lowered stays low.
		p = w.pair(t, ordinary)
		p.pass(t, p.alice, question, named("short", "maxRounds", 2))
		m = p.pass(t, p.bob, answer, named("short", "maxRounds", 3))
		same(t, "max_rounds", at(t, m.arrived.Metadata["ocip"], "max_rounds"), 2)
		more, err := p.alice.dispatch(t, question, named("short", "maxRounds", 3))
		wantHuman(t, more, err, "EXCHANGE_ROUND_LIMIT")
	})
}

// overLimit checks that an exchange of three rounds is escalated for the round limit.
func overLimit(t *testing.T, e *end, exchange string) {
	t.Helper()
	r := e.outcome(t, exchange, "escalated")
	if r.PolicyResult != "require_approval" || r.Code != "EXCHANGE_ROUND_LIMIT" || r.PolicyApplied != "round-limit" || r.MaxRounds != 3 || r.Details["escalation"] == nil {
		t.Errorf("the record is %+v", r)
	}
}

// escalationPayload: the reference's example is played, and its payload results, member for member.
func escalationPayload(t *testing.T, w *world) {
	p := w.pair(t, ofTheReference)
	exchange := named("exch-001", "conversationId", "conv-789-xyz")
	p.pass(t, p.alice, "Requested project status", exchange)
	p.pass(t, p.bob, "Provided status update", exchange)
	p.pass(t, p.alice, "Asked follow-up question", exchange)
	last, err := p.bob.dispatch(t, "Provided additional context", exchange)
	j := wantHuman(t, last, err, "EXCHANGE_ROUND_LIMIT")
	p.bob.sentNothing(t)
	p.alice.gotNothing(t)

	example := jsontext.Value(`{
  "exchangeId": "exch-001",
  "conversationId": "conv-789-xyz",
  "currentRound": 4,
  "maxRounds": 3,
  "conversationSummary": "Round 1 (agent-alice): Requested project status\nRound 2 (agent-bob): Provided status update\nRound 3 (agent-alice): Asked follow-up question\nRound 4 (agent-bob): Provided additional context",
  "reason": "Exchange reached maximum round limit (3). Human review required."
}`)
	recorded, err := json.Marshal(p.bob.record(t, "exch-001").Details["escalation"], json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	fields := membersOf(t, example)
	for _, name := range fields {
		t.Run(name, func(t *testing.T) {
			same(t, "what the sender is told", at(t, j.Escalation, name), at(t, example, name))
			same(t, "what is on record", at(t, recorded, name), at(t, example, name))
		})
	}
	same(t, "the number of members", len(membersOf(t, j.Escalation)), len(fields))
}

// transcriptTracking: the state of an exchange after the reference's two rounds
// has its members, on both sides.
func transcriptTracking(t *testing.T, w *world) {
	exchange := named("exch-001", "conversationId", "conv-789-xyz")
	t.Run("label before the text", func(t *testing.T) {
		// Installation c puts the disclosure first, and it is not part of the summary.
		p := w.pair(t, monitored)
		p.pass(t, p.alice, "Requested project status", exchange)
		for _, e := range []*end{p.alice, p.bob} {
			same(t, "the transcript of "+e.id, e.exchange(t, "exch-001").Transcript, fmt.Sprintf("[{1 %s Requested project status false}]", p.alice.instance))
		}
	})
	p := w.pair(t, ordinary)
	p.pass(t, p.alice, "Requested project status", exchange)
	p.pass(t, p.bob, "Provided status update", exchange)
	for _, e := range []*end{p.alice, p.bob} {
		var got struct {
			Exchanges []jsontext.Value `json:"exchanges"`
		}
		must(t, e.Client, "exchange.get", map[string]any{"exchangeId": "exch-001"}, &got)
		if len(got.Exchanges) != 1 {
			t.Fatalf("%s sees %s", e.id, got.Exchanges)
		}
		for _, row := range []struct{ name, want string }{
			{"exchangeId", `"exch-001"`},
			{"conversationId", `"conv-789-xyz"`},
			{"currentRound", "2"},
			{"maxRounds", "3"},
			{"transcript", fmt.Sprintf(`[{"round":1,"sender":%q,"summary":"Requested project status"},{"round":2,"sender":%q,"summary":"Provided status update"}]`, p.alice.instance, p.bob.instance)},
		} {
			t.Run(e.home+" "+row.name, func(t *testing.T) {
				same(t, row.name, at(t, got.Exchanges[0], row.name), row.want)
			})
		}
	}
}

func replyPolicies(t *testing.T, w *world) {
	t.Run("agent-ok", func(t *testing.T) {
		p := w.pair(t, ordinary)
		m := p.pass(t, p.alice, question, nil)
		same(t, "reply_policy", at(t, m.arrived.Metadata["ocip"], "reply_policy"), `"agent-ok"`)
		reply := p.pass(t, p.bob, answer, nil)
		if reply.answer.OCIP.ExchangeID != m.answer.OCIP.ExchangeID || reply.answer.OCIP.Round != 2 {
			t.Errorf("the reply is %+v", reply.answer)
		}
		same(t, "message_type", at(t, reply.arrived.Metadata["ocip"], "message_type"), `"agent-generated"`)
		if r := p.bob.record(t, m.answer.OCIP.ExchangeID); r.Side != audit.SideSender || r.PolicyResult != "allow" {
			t.Errorf("the reply's record is %+v", r)
		}
	})
	t.Run("human-only", func(t *testing.T) {
		p := w.pair(t, monitored)
		m := p.pass(t, p.alice, "Do you have time on Thursday?", named("personal", "type", "meeting_scheduling"))
		same(t, "reply_policy", at(t, m.arrived.Metadata["ocip"], "reply_policy"), `"human-only"`)
		reply, err := p.bob.dispatch(t, answer, named("personal"))
		wantHuman(t, reply, err, "COMMITMENT_REQUIRES_HUMAN")
		p.bob.sentNothing(t)
		p.alice.gotNothing(t)
		if r := p.bob.outcome(t, "personal", "escalated"); r.Side != audit.SideSender || r.PolicyResult != "require_approval" {
			t.Errorf("the reply's record is %+v", r)
		}
		// A person answers for bob, without his agent and so without an envelope.
		queued, err := bring(t.Context(), p.alice, p.bob, "Thursday is fine, at ten.", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.alice.received(t); got.RunID != queued.RunID || got.Content.Inspect() != "Thursday is fine, at ten." || got.Metadata["ocip"] != nil {
			t.Errorf("%s got %+v", p.alice.id, got)
		}
	})
	t.Run("no-reply-needed", func(t *testing.T) {
		// No type of exchange has this policy, so it is put into the envelope in transit.
		p := w.pair(t, ordinary)
		m := p.intercept(t, "The build is green again.", named("notice"))
		m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "reply_policy", "no-reply-needed")
		if _, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata); err != nil {
			t.Fatal(err)
		}
		p.bob.received(t)
		reply, err := p.bob.dispatch(t, answer, named("notice"))
		refused(t, reply, err, "REPLY_NOT_EXPECTED")
		p.bob.sentNothing(t)
		p.alice.gotNothing(t)
		same(t, "the result on record", p.bob.record(t, "notice").PolicyResult, "deny")
		// It ends nothing: the sender may continue.
		p.pass(t, p.alice, "The build is red again.", named("notice"))
	})
}

// refusalText is an error in its wire format.
func refusalText(t *testing.T, err error) []byte {
	t.Helper()
	text, err := json.Marshal(api.AsError(err), json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func replyPolicyByType(t *testing.T, w *world) {
	for _, row := range []struct{ kind, policy string }{
		{"information_query", "agent-ok"}, {"commitment_request", "agent-ok"}, {"meeting_scheduling", "human-only"},
	} {
		t.Run(row.kind, func(t *testing.T) {
			p := w.pair(t, monitored)
			m := p.pass(t, p.alice, question, named("default", "type", row.kind))
			same(t, "reply_policy", at(t, m.arrived.Metadata["ocip"], "reply_policy"), `"`+row.policy+`"`)
			if row.kind == "information_query" {
				p.pass(t, p.bob, answer, named("default"))
				return
			}
			// A detected commitment escalates, even if the policy is agent-ok.
			reply, err := p.bob.dispatch(t, answer, named("default"))
			wantHuman(t, reply, err, "COMMITMENT_REQUIRES_HUMAN")
			p.bob.outcome(t, "default", "escalated")
			p.bob.sentNothing(t)
		})
	}
}
