package ocip

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// arriving is an ordinary first message that reaches bob from alice.
func arriving() Incoming {
	m := question()
	v := Decide(context.Background(), &m, yes)
	return Incoming{
		Now:      m.Now,
		Receiver: Agent{ID: "bob", Identity: m.To.Identity, MaxShared: Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true},
		From:     Counterparty{Kind: KindAgent, Identity: m.Sender.Identity},
		Envelope: v.Envelope,
		Exchange: Exchange{
			ID: "exch-001", ConversationID: "conv-789-xyz", Type: InformationQuery, Agent: m.To.InstanceID, Counterparty: m.Sender.InstanceID,
			Outcome: InProgress, MaxRounds: 3, OpenedAt: m.Now, ExpiresAt: m.Now.Add(24 * time.Hour),
		},
		Summary: "What is the status of ticket ENG-1234?",
	}
}

// underWay puts one round into the exchange.
func underWay(m *Incoming) {
	m.Exchange.Round, m.Envelope.ExchangeRound = 1, 2
	m.Exchange.Transcript = []Turn{{Round: 1, Sender: m.Receiver.InstanceID, Summary: "Hello"}}
}

// TestReceiveCodes has one row for each way an arriving message can end.
func TestReceiveCodes(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*Incoming)
		policy  Policy // nil must not be asked
		want    Result
		code    Code
		rule    string
		outcome Outcome
		reason  string // a part
	}{
		{"allowed", func(*Incoming) {}, yes, Allow, "", "ocip.agent_exchange", InProgress, "allowed"},
		{"allowed, under way", underWay, yes, Allow, "", "ocip.agent_exchange", InProgress, ""},
		{"allowed, from nobody known", func(m *Incoming) { m.From = Counterparty{Kind: KindUnknown} }, yes, Allow, "", "ocip.agent_exchange", InProgress, ""},
		{"other tenant", func(m *Incoming) { m.Envelope.SourceAgent.TenantID = "globex-inc" }, nil, Deny, CrossEnterpriseBlocked, ruleTenantWall, Denied, `"globex-inc"`},
		{"no tenant", func(m *Incoming) { m.Envelope.SourceAgent.TenantID, m.Receiver.TenantID = "", "" }, nil, Deny, CrossEnterpriseBlocked, ruleTenantWall, Denied, ""},
		{"somebody else's name", func(m *Incoming) { m.Envelope.SourceAgent.InstanceID = "agent-carol-1" }, nil, Deny, SourceMismatch, ruleReceiver, Denied, "agent-carol-1"},
		{"somebody else's org unit", func(m *Incoming) { m.Envelope.SourceAgent.OrgUnit = "board" }, nil, Deny, SourceMismatch, ruleReceiver, Denied, ""},
		{"known elsewhere", func(m *Incoming) { m.From, m.Elsewhere = Counterparty{Kind: KindUnknown}, true }, nil, Deny, SourceMismatch, ruleReceiver, Denied, "not have that agent at this session"},
		{"envelope expired", func(m *Incoming) { m.Envelope.ExpiresAt.Time = m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Expired, "envelope expired"},
		{"exchange expired", func(m *Incoming) { m.Exchange.ExpiresAt = m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Expired, "exchange exch-001 expired"},
		{"exchange resolved", func(m *Incoming) { m.Exchange.Outcome = Resolved }, nil, Deny, ExchangeClosed, ruleExchange, Resolved, "is resolved"},
		{"exchange resolved and out of time", func(m *Incoming) { m.Exchange.Outcome, m.Exchange.ExpiresAt = Resolved, m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Resolved, ""},
		{"queries refused", func(m *Incoming) { m.Receiver.CanReceiveQueries = false }, nil, Deny, QueriesRefused, ruleReceiver, Denied, "bob"},
		{"queries refused, but an answer", func(m *Incoming) { underWay(m); m.Receiver.CanReceiveQueries = false }, yes, Allow, "", "ocip.agent_exchange", InProgress, ""},
		{"policy denies", func(*Incoming) {}, answers(PolicyAnswer{Reason: "not today"}), Deny, PolicyDenied, "ocip.agent_exchange", Denied, "not today"},
		{"policy broken", func(*Incoming) {}, &scripted{err: errors.New("broken")}, Deny, PolicyUnreachable, ActionExchange, Escalated, "could not be evaluated"},
		{"policy wants a person", func(*Incoming) {}, answers(PolicyAnswer{Allow: true, RequireApproval: true}), RequireApproval, PolicyRequiresApproval, "ocip.agent_exchange", InProgress, ""},
		{"policy narrows the level", func(*Incoming) {}, answers(PolicyAnswer{Allow: true, HasMaxClassification: true}), Deny, ClassificationViolation, "ocip.agent_exchange", Denied, "allows at most public"},
		{"round that has been", func(m *Incoming) { underWay(m); m.Envelope.ExchangeRound = 1 }, yes, Deny, EnvelopeReplayed, ruleRounds, InProgress, "is at round 1 already"},
		{"round skipped", func(m *Incoming) { m.Envelope.ExchangeRound = 3 }, yes, Allow, "", "ocip.agent_exchange", InProgress, ""},
		{"round beyond the limit", func(m *Incoming) { underWay(m); m.Envelope.ExchangeRound = 4 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "maximum round limit (3)"},
		{"round beyond the limit, envelope of another mind", func(m *Incoming) { underWay(m); m.Envelope.ExchangeRound, m.Envelope.MaxRounds = 4, 99 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "(3)"},
		{"round beyond the receiver's limit", func(m *Incoming) { underWay(m); m.Receiver.MaxRounds = 1 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "(1)"},
		{"round far ahead of what is known", func(m *Incoming) { m.Envelope.ExchangeRound = 4 }, nil, Deny, EnvelopeForged, ruleReceiver, InProgress, "is round 4"},
		{"round far ahead, envelope of another mind", func(m *Incoming) { m.Envelope.ExchangeRound, m.Envelope.MaxRounds = 1<<20, 1<<20 }, nil, Deny, EnvelopeForged, ruleReceiver, InProgress, ""},
		{"round far ahead of one under way", func(m *Incoming) { underWay(m); m.Envelope.ExchangeRound = 5 }, nil, Deny, EnvelopeForged, ruleReceiver, InProgress, "at round 1 here"},
		{"round ahead of what the receiver may have", func(m *Incoming) { m.Envelope.ExchangeRound, m.Receiver.MaxRounds = 2, 1 }, nil, Deny, EnvelopeForged, ruleReceiver, InProgress, ""},
		{"round beyond the policy's limit", func(m *Incoming) { m.Envelope.ExchangeRound = 2 }, cached{PolicyAnswer{Allow: true, MaxRounds: 1}}, RequireApproval, RoundLimit, ruleRounds, Escalated, "(1)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := arriving()
			tt.change(&m)
			policy := tt.policy
			if policy == nil {
				policy = forbidden{t}
			}
			v := Receive(t.Context(), &m, policy)
			if v.Result != tt.want || v.Code != tt.code {
				t.Fatalf("got %s %s (%s), want %s %s", v.Result, v.Code, v.Reason, tt.want, tt.code)
			}
			if v.Policy != tt.rule || v.Exchange.Outcome != tt.outcome || !strings.Contains(v.Reason, tt.reason) {
				t.Errorf("by %s, exchange %q, because %q; want %s, %q, %q", v.Policy, v.Exchange.Outcome, v.Reason, tt.rule, tt.outcome, tt.reason)
			}
			if v.Allowed() {
				if v.Exchange.Round < m.Exchange.Round+1 || v.Exchange.Round < m.Envelope.ExchangeRound || v.Exchange.Round > v.Exchange.MaxRounds {
					t.Errorf("round %d of %d", v.Exchange.Round, v.Exchange.MaxRounds)
				}
			} else if v.Exchange.Round != m.Exchange.Round {
				t.Errorf("a message that was refused took round %d", v.Exchange.Round)
			}
			if v.Exchange.MaxRounds > m.Exchange.MaxRounds {
				t.Errorf("the limit grew to %d", v.Exchange.MaxRounds)
			}
		})
	}
}

// TestForgedEnvelopeEndsNothing sends a message into an exchange under way that its counterparty
// did not write. It is refused, and the exchange continues.
func TestForgedEnvelopeEndsNothing(t *testing.T) {
	mallory := Identity{InstanceID: "agent-mallory-1", UserID: "mallory", OrgUnit: "engineering", TenantID: "acme-corp"}
	tests := []struct {
		name   string
		change func(*Incoming)
		code   Code
	}{
		{"other tenant claimed", func(m *Incoming) { m.Envelope.SourceAgent.TenantID = "globex-inc" }, CrossEnterpriseBlocked},
		{"other agent claimed", func(m *Incoming) { m.Envelope.SourceAgent = mallory }, SourceMismatch},
		{"through another session", func(m *Incoming) { m.From.Kind, m.Elsewhere = KindUnknown, true }, SourceMismatch},
		{"expiry claimed", func(m *Incoming) { m.Envelope.ExpiresAt.Time = m.Now }, ExchangeExpired},
		{"old envelope again", func(m *Incoming) { m.Envelope.ExchangeRound = 1 }, EnvelopeReplayed},
		// The directory knows mallory, and mallory gives her own name: only the conversation is not
		// hers.
		{"another agent's conversation", func(m *Incoming) { m.Envelope.SourceAgent, m.From.Identity = mallory, mallory }, SourceMismatch},
		{"another agent's conversation, by a stranger", func(m *Incoming) { m.Envelope.SourceAgent, m.From = mallory, Counterparty{Kind: KindUnknown} }, SourceMismatch},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := arriving()
			underWay(&m)
			tt.change(&m)
			v := Receive(t.Context(), &m, yes)
			if v.Result != Deny || v.Code != tt.code {
				t.Fatalf("got %s %s: %s", v.Result, v.Code, v.Reason)
			}
			if v.Exchange.Outcome != InProgress || v.Exchange.Round != 1 {
				t.Errorf("the exchange is %s at round %d", v.Exchange.Outcome, v.Exchange.Round)
			}
		})
	}
}

// TestReceiveOrder breaks one rule after another, the last first.
func TestReceiveOrder(t *testing.T) {
	m := arriving()
	underWay(&m)
	var policy Policy = yes
	expect := func(want Code) {
		t.Helper()
		if v := Receive(t.Context(), &m, policy); v.Code != want {
			t.Errorf("got %s, want %s", v.Code, want)
		}
	}
	expect("")
	m.Exchange.Round, m.Envelope.ExchangeRound = 3, 4
	expect(RoundLimit)
	m.Envelope.ExchangeRound = 3
	expect(EnvelopeReplayed)
	policy = answers(PolicyAnswer{})
	expect(PolicyDenied)
	policy = forbidden{t}
	m.Exchange.Round, m.Receiver.CanReceiveQueries = 0, false
	expect(QueriesRefused)
	m.Exchange.Outcome = Resolved
	expect(ExchangeClosed)
	m.Envelope.ExpiresAt.Time = m.Now
	expect(ExchangeExpired)
	m.From.UserID = "carol"
	expect(SourceMismatch)
	m.Envelope.SourceAgent.TenantID = "globex-inc"
	expect(CrossEnterpriseBlocked)
}

// TestReceiverAsksAsTheMessageTravels checks that the sender is the source.
func TestReceiverAsksAsTheMessageTravels(t *testing.T) {
	m := arriving()
	m.Receiver.OrgUnit = "marketing"
	p := answers(agree)
	v := Receive(t.Context(), &m, p)
	if !v.Allowed() || !slices.Equal(p.actions(), []string{ActionExchange, ActionExchangeCrossOrg}) {
		t.Fatalf("got %s, asked about %v", v.Code, p.actions())
	}
	for _, in := range p.asked {
		if in.Source != m.Envelope.SourceAgent || in.Target != m.Receiver.Identity || in.Level != Internal || in.Round != 1 {
			t.Errorf("asked %+v", in)
		}
	}
	if last := v.Exchange.Transcript; len(last) != 1 || last[0] != (Turn{1, "agent-alice-1", m.Summary, false}) {
		t.Errorf("transcript %v", last)
	}
}
