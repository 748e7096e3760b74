package main_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
)

// enforcementRules: classification is enforced before any transmission.
func enforcementRules(t *testing.T, w *world) {
	t.Run("the sender's identity specifies maxClassificationShared", func(t *testing.T) {
		// The same message of two agents, of which one may share it.
		level := map[string]any{"id": "level", "classification": "confidential"}
		p := w.pair(t, sharing+"confidential")
		p.pass(t, p.alice, question, level)
		p = w.pair(t, sharing+"internal")
		m, err := p.alice.dispatch(t, question, level)
		if j := refused(t, m, err, "CLASSIFICATION_VIOLATION"); j.Maximum != "internal" || j.Classification != "confidential" {
			t.Errorf("the sender is told %+v", j)
		}
		p.stopped(t, p.alice, p.bob)
	})
	t.Run("can_share lists all levels up to maxClassificationShared", func(t *testing.T) {
		for i, level := range levels() {
			p := w.pair(t, sharing+level)
			m := p.pass(t, p.alice, question, map[string]any{"classification": "public"})
			same(t, "can_share", at(t, m.arrived.Metadata["ocip"], "capabilities.can_share"), `["`+strings.Join(levels()[:i+1], `","`)+`"]`)
		}
	})
	t.Run("classification must not exceed maxClassificationShared", func(t *testing.T) {
		for i, level := range levels()[:3] {
			p := w.pair(t, sharing+level)
			m, err := p.alice.dispatch(t, question, map[string]any{"id": "above", "classification": levels()[i+1]})
			j := refused(t, m, err, "CLASSIFICATION_VIOLATION")
			if j.Classification != levels()[i+1] || j.Maximum != level || j.Rule != "declared" {
				t.Errorf("the sender is told %+v", j)
			}
			p.stopped(t, p.alice, p.bob)
			r := p.alice.outcome(t, "above", "denied")
			if r.PolicyApplied != "classification" || r.PolicyResult != "deny" || r.Classification != levels()[i+1] {
				t.Errorf("the record is %+v", r)
			}
		}
	})
	t.Run("content above the allowed level is blocked and the exchange denied", func(t *testing.T) {
		const secret = "AKIAIOSFODNN7SAMPLED"
		p := w.pair(t, ordinary)
		m, err := p.alice.dispatch(t, "The build uses "+secret+".", map[string]any{"id": "secret", "classification": "public"})
		j := refused(t, m, err, "CLASSIFICATION_VIOLATION")
		if j.Classification != "restricted" || j.Maximum != "internal" || j.Rule == "declared" || strings.Contains(string(refusalText(t, err)), secret) {
			t.Errorf("the sender is told %s", refusalText(t, err))
		}
		p.stopped(t, p.alice, p.bob)
		r := p.alice.outcome(t, "secret", "denied")
		if r.PolicyResult != "deny" || r.Classification != "restricted" || len(r.Detections) == 0 {
			t.Errorf("the record is %+v", r)
		}
		// Nothing more is sent in it.
		m, err = p.alice.dispatch(t, question, named("secret"))
		refused(t, m, err, "EXCHANGE_CLOSED")
	})
}

// classification: the order of the levels, and the reference's example.
func classification(t *testing.T, w *world) {
	try := func(t *testing.T, p *pair, level string, permitted bool) {
		t.Helper()
		exchange := map[string]any{"new": true, "classification": level}
		if permitted {
			m := p.pass(t, p.alice, question, exchange)
			same(t, "classification", at(t, m.arrived.Metadata["ocip"], "classification"), `"`+level+`"`)
			for _, e := range []*end{p.alice, p.bob} {
				same(t, "the level on record in installation "+e.installation.name, e.record(t, m.answer.OCIP.ExchangeID).Classification, level)
			}
			return
		}
		m, err := p.alice.dispatch(t, question, exchange)
		refused(t, m, err, "CLASSIFICATION_VIOLATION")
		p.alice.sentNothing(t)
		p.bob.gotNothing(t)
	}
	t.Run("level order public internal confidential restricted", func(t *testing.T) {
		for i, limit := range levels() {
			p := w.pair(t, sharing+limit)
			for j, level := range levels() {
				try(t, p, level, j <= i)
			}
		}
	})
	t.Run("example maxClassificationShared internal", func(t *testing.T) {
		p := w.pair(t, sharing+"internal")
		t.Run("can_share", func(t *testing.T) {
			same(t, "can_share", stamped(t, p, nil, "capabilities.can_share"), `["public","internal"]`)
		})
		for level, permitted := range map[string]bool{"public": true, "internal": true, "confidential": false, "restricted": false} {
			t.Run(level, func(t *testing.T) { try(t, p, level, permitted) })
		}
	})
}

func detectionSignals(t *testing.T, w *world) {
	for _, row := range []struct{ name, kind, path, value string }{
		{"requires_commitment true", "commitment_request", "requires_commitment", "true"},
		{"reply_policy human-only", "meeting_scheduling", "reply_policy", `"human-only"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			// The text has no keyword: the flag alone escalates.
			p := w.pair(t, ordinary)
			m, err := p.alice.dispatch(t, question, named("flag", "type", row.kind))
			j := wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
			same(t, "the number of keywords", len(j.keywords(t)), 0)
			p.stopped(t, p.alice, p.bob)
			if r := p.alice.outcome(t, "flag", "escalated"); r.PolicyResult != "require_approval" || r.PolicyApplied != "commitment" || len(r.Detections) != 0 {
				t.Errorf("the record is %+v", r)
			}
			// It escalates at the receiver too.
			p = w.pair(t, monitored)
			asked := p.pass(t, p.alice, question, named("flag", "type", row.kind))
			same(t, row.path, at(t, asked.arrived.Metadata["ocip"], row.path), row.value)
			m, err = p.bob.dispatch(t, answer, named("flag"))
			wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
			p.bob.outcome(t, "flag", "escalated")
			p.bob.sentNothing(t)
			p.alice.gotNothing(t)
			// There the envelope's flag counts, and not the message's other members about its exchange.
			t.Run("flag alone", func(t *testing.T) {
				p := w.pair(t, ordinary)
				c := p.intercept(t, question, named("flag", "type", "information_query"))
				var value any
				if err := json.Unmarshal([]byte(row.value), &value); err != nil {
					t.Fatal(err)
				}
				c.Metadata["ocip"] = alter(t, c.Metadata["ocip"], row.path, value)
				if _, err := bring(t.Context(), p.bob, p.alice, c.Content.Inspect(), c.Metadata); err != nil {
					t.Fatal(err)
				}
				p.bob.received(t)
				m, err := p.bob.dispatch(t, answer, named("flag"))
				wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
				p.bob.sentNothing(t)
			})
		})
	}
}

// keywords: each of the thirteen, by itself, escalates.
func keywords(t *testing.T, w *world) {
	rows := []struct{ word, text string }{
		{"schedule", "Where is the schedule of the release?"},
		{"meeting", "Who was at the meeting on Monday?"},
		{"agree", "Do both teams agree on the numbers?"},
		{"approve", "Who can approve the change?"},
		{"allocate", "Can you allocate two engineers to it?"},
		{"assign", "Can you assign the ticket to somebody?"},
		{"reserve", "Can you reserve the small room?"},
		{"commit", "Can the team commit to the date?"},
		{"confirm", "Can you confirm the number?"},
		{"book", "Can you book a table for four?"},
		{"deadline", "When is the deadline of the report?"},
		{"promise", "Is that a promise?"},
		{"guarantee", "Is there a guarantee on it?"},
	}
	for _, row := range rows {
		t.Run(row.word, func(t *testing.T) {
			p := w.pair(t, ordinary)
			for i, text := range []string{row.text, strings.ToUpper(row.text)} {
				id := []string{"plain", "loud"}[i]
				m, err := p.alice.dispatch(t, text, named(id))
				j := wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
				same(t, "detectedKeywords", j.keywords(t), []string{row.word})
				r := p.alice.outcome(t, id, "escalated")
				if r.PolicyResult != "require_approval" || r.PolicyApplied != "commitment" || r.Code != "COMMITMENT_REQUIRES_HUMAN" {
					t.Errorf("the record is %+v", r)
				}
				found := slices.ContainsFunc(r.Detections, func(d audit.Detection) bool {
					return d.Rule == "commitment."+row.word && strings.EqualFold(text[d.Start:d.End], row.word)
				})
				if !found {
					t.Errorf("%q has the detections %+v on record", text, r.Detections)
				}
			}
			p.stopped(t, p.alice, p.bob)
		})
	}
}

func commitmentEnforcement(t *testing.T, w *world) {
	t.Run("any signal escalates the exchange to a human for approval", func(t *testing.T) {
		for signal, exchange := range map[string]map[string]any{
			question:             named("signal", "type", "commitment_request"),
			"Any time is fine.":  named("signal", "type", "meeting_scheduling"),
			"It is a guarantee.": named("signal"),
		} {
			p := w.pair(t, ordinary)
			m, err := p.alice.dispatch(t, signal, exchange)
			wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
			p.alice.outcome(t, "signal", "escalated")
			p.stopped(t, p.alice, p.bob)
			// A person has to settle this exchange; another one is free.
			if m, err = p.alice.dispatch(t, question, named("signal")); err == nil && !m.Held {
				t.Errorf("an escalated exchange goes on: %+v", m)
			}
			p.alice.sentNothing(t)
			p.pass(t, p.alice, question, named("other"))
		}
	})
	t.Run("can_commit is always false in agent-generated envelopes", func(t *testing.T) {
		for kind, exchange := range map[string]string{ordinary: "information_query", monitored: "commitment_request"} {
			p := w.pair(t, kind)
			m := p.pass(t, p.alice, question, fresh(exchange))
			same(t, "message_type", at(t, m.arrived.Metadata["ocip"], "message_type"), `"agent-generated"`)
			same(t, "can_commit", at(t, m.arrived.Metadata["ocip"], "capabilities.can_commit"), false)
		}
	})
	t.Run("CommitmentRequiresHumanError is thrown when enforcement is active", func(t *testing.T) {
		const text = "Can you book the room?"
		p := w.pair(t, ordinary)
		m, err := p.alice.dispatch(t, text, named("booked"))
		wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
		p.stopped(t, p.alice, p.bob)
		// Otherwise the signal is recorded and the message is sent.
		p = w.pair(t, monitored)
		p.pass(t, p.alice, text, named("booked"))
		r := p.alice.record(t, "booked")
		if r.PolicyResult != "allow" || len(r.Detections) != 1 || r.Detections[0].Rule != "commitment.book" {
			t.Errorf("the record is %+v", r)
		}
	})
}

// detectionResult: the detector's result is in the answer and on record.
func detectionResult(t *testing.T, w *world) {
	p := w.pair(t, ordinary)
	m, err := p.alice.dispatch(t, "Can you confirm the meeting, and book the room for the meeting?", named("many"))
	many := wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
	m, err = p.alice.dispatch(t, question, named("none", "type", "commitment_request"))
	none := wantHuman(t, m, err, "COMMITMENT_REQUIRES_HUMAN")
	clean := p.pass(t, p.alice, question, named("clean"))
	t.Run("requiresHuman", func(t *testing.T) {
		for id, j := range map[string]judgment{"many": many, "none": none} {
			// An answer with held: true already says so.
			if refused := err != nil; refused && (j.RequiresHuman == nil || !*j.RequiresHuman) {
				t.Errorf("the sender is told %+v", j)
			}
			same(t, "requiresHuman on record", p.alice.record(t, id).Details["requiresHuman"], true)
		}
		if r := p.alice.record(t, "clean"); r.PolicyResult != "allow" || r.Details["requiresHuman"] != nil {
			t.Errorf("the record of %+v is %+v", clean.answer, r)
		}
	})
	t.Run("reason", func(t *testing.T) {
		for id, j := range map[string]judgment{"many": many, "none": none} {
			if r := p.alice.record(t, id); j.Reason == "" || r.PolicyReason != j.Reason {
				t.Errorf("the sender is told %q, the record says %q", j.Reason, r.PolicyReason)
			}
		}
	})
	t.Run("detectedKeywords", func(t *testing.T) {
		same(t, "detectedKeywords", many.keywords(t), []string{"book", "confirm", "meeting"})
		// It is a list, even if it is empty.
		same(t, "detectedKeywords", none.DetectedKeywords, "[]")
		same(t, "detectedKeywords on record", p.alice.record(t, "many").Details["detectedKeywords"], []string{"book", "confirm", "meeting"})
		same(t, "detections of a text without any", len(p.alice.record(t, "clean").Detections), 0)
	})
}

// sameOrgUnit: always allowed, without additional policy checks, also in an installation
// that keeps its units apart.
func sameOrgUnit(t *testing.T, w *world) {
	for _, kind := range []string{ordinary, toStrict} {
		t.Run("always allowed in installation "+casts()[kind].to.home, func(t *testing.T) {
			p := w.pair(t, kind)
			for _, from := range []*end{p.alice, p.bob} {
				// Each in a new exchange: one of d would have ended before its answer.
				p.pass(t, from, question, named("unit-"+from.user))
			}
			for _, e := range []*end{p.alice, p.bob} {
				found := 0
				for _, from := range []*end{p.alice, p.bob} {
					for _, r := range e.installation.records(t, audit.Filter{Like: audit.Record{AgentID: e.instance, ExchangeID: "unit-" + from.user}}) {
						if found++; r.PolicyResult != "allow" || r.PolicyApplied != "ocip.agent_exchange" {
							t.Errorf("installation %s has on record %+v", e.installation.name, r)
						}
					}
				}
				if found != 2 {
					t.Errorf("installation %s has %d records", e.installation.name, found)
				}
			}
		})
	}
}

func crossOrg(t *testing.T, w *world) {
	const applied = "ocip.agent_exchange+ocip.cross_org"
	t.Run("cross_org true", func(t *testing.T) {
		p := w.pair(t, toMarketing)
		for _, from := range []*end{p.alice, p.bob} {
			p.pass(t, from, question, named("unit"))
		}
		for _, e := range []*end{p.alice, p.bob} {
			r := e.installation.records(t, audit.Filter{Like: audit.Record{AgentID: e.instance, ExchangeID: "unit"}})
			if len(r) != 2 {
				t.Fatalf("installation %s has %d records", e.installation.name, len(r))
			}
			for _, r := range r {
				if r.PolicyResult != "allow" || r.PolicyApplied != applied || !strings.Contains(r.PolicyReason, "policy.data.cross_org") {
					t.Errorf("installation %s has on record %+v", e.installation.name, r)
				}
			}
		}
	})
	t.Run("cross_org false", func(t *testing.T) {
		t.Run("sender", func(t *testing.T) {
			p := w.pair(t, toStrictMarketing)
			m, err := p.bob.dispatch(t, question, named("unit"))
			refused(t, m, err, "POLICY_DENIED")
			p.stopped(t, p.bob, p.alice)
			if r := p.bob.record(t, "unit"); r.PolicyResult != "deny" || r.PolicyApplied != "ocip.cross_org" || r.PolicyRevision == "" {
				t.Errorf("the record is %+v", r)
			}
		})
		t.Run("receiver", func(t *testing.T) {
			p := w.pair(t, toStrictMarketing)
			p.alice.send(t, question, named("unit"))
			c := p.alice.crossed(t)
			refused(t, c.queued, c.err, "POLICY_DENIED")
			p.bob.gotNothing(t)
			same(t, "the result on the sender's record", p.alice.record(t, "unit").PolicyResult, "allow")
			if r := p.bob.record(t, "unit"); r.PolicyResult != "deny" || r.PolicyApplied != "ocip.cross_org" || r.PolicyRevision == "" {
				t.Errorf("the receiver's record is %+v", r)
			}
		})
	})
	t.Run("action agent_exchange_cross_org with sourceOrgUnit and targetOrgUnit", func(t *testing.T) {
		// The policy of installation c answers with its input.
		p := w.pair(t, monitoredUnits)
		p.pass(t, p.alice, question, named("asked"))
		same(t, "what the policy was asked", p.alice.record(t, "asked").PolicyReason, "agent_exchange_cross_org from engineering to marketing")
		p.pass(t, p.bob, answer, named("asked"))
		same(t, "what the policy was asked", p.alice.record(t, "asked").PolicyReason, "agent_exchange_cross_org from marketing to engineering")
	})
	t.Run("if the policy denies the exchange is rejected", func(t *testing.T) {
		p := w.pair(t, toStrictMarketing)
		m, err := p.bob.dispatch(t, question, named("unit"))
		j := refused(t, m, err, "POLICY_DENIED")
		if !strings.Contains(j.Reason, "from marketing to engineering") {
			t.Errorf("the sender is told %+v", j)
		}
		p.bob.outcome(t, "unit", "denied")
		m, err = p.bob.dispatch(t, question, named("unit"))
		refused(t, m, err, "EXCHANGE_CLOSED")
		p.stopped(t, p.bob, p.alice)
	})
}

// walled checks that the tenant wall stops a message of alice.
func (p *pair) walled(t *testing.T, content string, exchange map[string]any) judgment {
	t.Helper()
	m, err := p.alice.dispatch(t, content, exchange)
	j := refused(t, m, err, "CROSS_ENTERPRISE_BLOCKED")
	if !strings.Contains(j.Reason, `"acme-corp"`) || !strings.Contains(j.Reason, `"globex-inc"`) {
		t.Errorf("the sender is told %+v", j)
	}
	r := p.alice.record(t, j.ExchangeID)
	if r.PolicyResult != "deny" || r.PolicyApplied != "tenant-wall" || r.PolicyRevision != "" || r.Outcome != "denied" || r.ID != j.AuditID {
		t.Errorf("the record is %+v", r)
	}
	return j
}

func crossEnterprise(t *testing.T, w *world) {
	t.Run("blocked unconditionally", func(t *testing.T) {
		p := w.pair(t, toGlobex)
		p.walled(t, question, nil)
		p.walled(t, question, map[string]any{"classification": "public", "new": true})
		p.stopped(t, p.alice, p.bob)
	})
	t.Run("no policy can override", func(t *testing.T) {
		// Installation c's policy allows everything.
		p := w.pair(t, monitoredGlobex)
		p.walled(t, question, nil)
		p.stopped(t, p.alice, p.bob)
	})
	t.Run("CrossEnterpriseBlockedError is thrown immediately", func(t *testing.T) {
		p := w.pair(t, toGlobex)
		// No wish about the exchange is read before the wall.
		j := p.walled(t, question, named("wall", "type", "banana"))
		p.alice.outcome(t, j.ExchangeID, "denied")
		same(t, "the round", p.alice.exchange(t, j.ExchangeID).CurrentRound, 0)
	})
	t.Run("before any other checks", func(t *testing.T) {
		// Every other rule would refuse it too; the last time the exchange is
		// closed as well.
		p := w.pair(t, toGlobexMarketing)
		for range 2 {
			p.walled(t, "This is a promise: AKIAIOSFODNN7SAMPLED", map[string]any{"id": "all", "type": "meeting_scheduling", "classification": "restricted"})
		}
		p.stopped(t, p.alice, p.bob)
	})
	t.Run("receiver", func(t *testing.T) {
		// The message of an installation without a wall.
		p := w.pair(t, toGlobex)
		m := w.pair(t, ordinary).intercept(t, question, named("wall"))
		for name, value := range map[string]string{"instance_id": p.alice.instance, "user_id": p.alice.user} {
			m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "source_agent."+name, value)
		}
		queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata)
		refused(t, queued, err, "CROSS_ENTERPRISE_BLOCKED")
		p.bob.gotNothing(t)
		// A message behind the wall opens nothing, so there is no exchange to end.
		r := p.bob.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, AgentID: p.bob.instance}})
		if len(r) != 1 || r[0].PolicyApplied != "tenant-wall" || r[0].PolicyRevision != "" || r[0].PolicyResult != "deny" || r[0].Outcome != "denied" {
			t.Errorf("the receiver's records are %+v", r)
		}
	})
}

func quickReference(t *testing.T, w *world) {
	t.Run("acme-corp acme-corp engineering engineering Allowed", func(t *testing.T) {
		p := w.pair(t, ordinary)
		p.pass(t, p.alice, question, nil)
	})
	t.Run("acme-corp acme-corp engineering marketing Policy check (cross_org)", func(t *testing.T) {
		p := w.pair(t, toMarketing)
		m := p.pass(t, p.alice, question, nil)
		for _, e := range []*end{p.alice, p.bob} {
			same(t, "the policy on record in installation "+e.installation.name, e.record(t, m.answer.OCIP.ExchangeID).PolicyApplied, "ocip.agent_exchange+ocip.cross_org")
		}
		p = w.pair(t, toStrictMarketing)
		refusedThere, err := p.bob.dispatch(t, question, nil)
		refused(t, refusedThere, err, "POLICY_DENIED")
	})
	t.Run("acme-corp globex-inc any any Blocked", func(t *testing.T) {
		for _, kind := range []string{toGlobex, toGlobexMarketing} {
			p := w.pair(t, kind)
			p.walled(t, question, nil)
			p.stopped(t, p.alice, p.bob)
		}
	})
}
