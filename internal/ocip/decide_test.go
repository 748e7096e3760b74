package ocip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// scripted is a policy that gives prepared answers and notes the questions.
type scripted struct {
	answers []PolicyAnswer
	err     error
	asked   []PolicyInput
}

func (*scripted) Lasts() bool { return true }

func (p *scripted) Evaluate(_ context.Context, in PolicyInput) (PolicyAnswer, string, string, error) {
	p.asked = append(p.asked, in)
	if p.err != nil {
		return PolicyAnswer{}, "", "rev-1", p.err
	}
	return p.answers[min(len(p.asked), len(p.answers))-1], "ocip." + in.Action, "rev-1", nil
}

func (p *scripted) actions() (actions []string) {
	for _, in := range p.asked {
		actions = append(actions, in.Action)
	}
	return actions
}

func answers(a ...PolicyAnswer) *scripted { return &scripted{answers: a} }

var agree = PolicyAnswer{Allow: true, Reason: "allowed"}

// cached answers from memory, as the daemon's policy usually does.
type cached struct{ answer PolicyAnswer }

func (cached) Lasts() bool { return true }

func (c cached) Evaluate(context.Context, PolicyInput) (PolicyAnswer, string, string, error) {
	return c.answer, "ocip.agent_exchange", "sha256:0123456789ab", nil
}

var yes = cached{agree}

// forbidden is a policy that must not be asked.
type forbidden struct{ tb testing.TB }

func (forbidden) Lasts() bool { return true }

func (p forbidden) Evaluate(_ context.Context, in PolicyInput) (PolicyAnswer, string, string, error) {
	p.tb.Helper()
	p.tb.Errorf("the policy was asked about %s", in.Action)
	panic("asked")
}

// question is an ordinary first message between two agents of one org unit.
func question() Outgoing {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	return Outgoing{
		Now: now,
		Sender: Agent{
			ID:        "alice",
			Identity:  Identity{InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", TenantID: "acme-corp"},
			MaxShared: Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true,
		},
		To: Counterparty{
			Kind: KindAgent, Accepts: Internal,
			Identity: Identity{InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "engineering", TenantID: "acme-corp"},
		},
		Exchange: Exchange{
			ID: "exch-001", ConversationID: "conv-789-xyz", Type: InformationQuery, Agent: "agent-alice-1", Counterparty: "agent-bob-1",
			SessionKey: "telegram:bob", Outcome: InProgress, MaxRounds: 3, OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
		},
		MessageType: AgentGenerated, Declared: Internal, Summary: "What is the status of ticket ENG-1234?", MaxAnnotation: 4096,
	}
}

// TestDecideCodes has one row for each way an outgoing message can end.
func TestDecideCodes(t *testing.T) {
	broken := errors.New("rego: line 3: secret")
	tests := []struct {
		name    string
		change  func(*Outgoing)
		policy  Policy // nil must not be asked
		want    Result
		code    Code
		rule    string
		outcome Outcome
		reason  string // a part
	}{
		{"allowed", func(*Outgoing) {}, yes, Allow, "", "ocip.agent_exchange", InProgress, "allowed"},
		{"other tenant", func(m *Outgoing) { m.To.TenantID = "globex-inc" }, nil, Deny, CrossEnterpriseBlocked, ruleTenantWall, Denied, `"globex-inc"`},
		{"expired", func(m *Outgoing) { m.Exchange.ExpiresAt = m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Expired, "2026-03-13T10:00:00.000Z"},
		{"marked expired", func(m *Outgoing) { m.Exchange.Outcome = Expired }, nil, Deny, ExchangeExpired, ruleExchange, Expired, "expired"},
		{"resolved", func(m *Outgoing) { m.Exchange.Outcome = Resolved }, nil, Deny, ExchangeClosed, ruleExchange, Resolved, "is resolved"},
		{"escalated", func(m *Outgoing) { m.Exchange.Outcome = Escalated }, nil, Deny, ExchangeClosed, ruleExchange, Escalated, "is escalated"},
		{"denied before", func(m *Outgoing) { m.Exchange.Outcome = Denied }, nil, Deny, ExchangeClosed, ruleExchange, Denied, "is denied"},
		// The outcome of an ended exchange stays on record even after its time runs out.
		{"resolved and out of time", func(m *Outgoing) { m.Exchange.Outcome, m.Exchange.ExpiresAt = Resolved, m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Resolved, ""},
		{"escalated and out of time", func(m *Outgoing) { m.Exchange.Outcome, m.Exchange.ExpiresAt = Escalated, m.Now }, nil, Deny, ExchangeExpired, ruleExchange, Escalated, ""},
		{"exchange of no state", func(m *Outgoing) { m.Exchange.Outcome = "" }, nil, Deny, ExchangeClosed, ruleExchange, "", ""},
		{"no end set", func(m *Outgoing) { m.Exchange.ExpiresAt = time.Time{} }, yes, Allow, "", "ocip.agent_exchange", InProgress, ""},
		{"type not supported", func(m *Outgoing) { m.Sender.Types = []ExchangeType{MeetingScheduling} }, nil, Deny, UnsupportedType, ruleExchange, Denied, "information_query"},
		{"level declared", func(m *Outgoing) { m.Declared = Confidential }, nil, Deny, ClassificationViolation, ruleClassification, Denied, "maximum agent alice may share is internal"},
		{"level by the floor", func(m *Outgoing) { m.Declared, m.Sender.Floor = Public, Restricted }, nil, Deny, ClassificationViolation, ruleClassification, Denied, "classified restricted"},
		{"policy denies", func(*Outgoing) {}, answers(PolicyAnswer{Reason: "not today"}), Deny, PolicyDenied, "ocip.agent_exchange", Denied, "not today"},
		{"policy denies without a word", func(*Outgoing) {}, answers(PolicyAnswer{}), Deny, PolicyDenied, "ocip.agent_exchange", Denied, "denied by policy ocip.agent_exchange"},
		{"policy broken", func(*Outgoing) {}, &scripted{err: broken}, Deny, PolicyUnreachable, ActionExchange, Escalated, "could not be evaluated"},
		{"policy wants a person", func(*Outgoing) {}, answers(PolicyAnswer{Allow: true, RequireApproval: true}), RequireApproval, PolicyRequiresApproval, "ocip.agent_exchange", Escalated, "asks for a person's approval"},
		{"policy wants a person and denies", func(*Outgoing) {}, answers(PolicyAnswer{RequireApproval: true}), Deny, PolicyDenied, "ocip.agent_exchange", Denied, ""},
		{"policy narrows the level", func(*Outgoing) {}, answers(PolicyAnswer{Allow: true, HasMaxClassification: true}), Deny, ClassificationViolation, "ocip.agent_exchange", Denied, "allows at most public"},
		// A person cannot approve a message that the same answer forbids.
		{"policy narrows the level and wants a person", func(*Outgoing) {}, answers(PolicyAnswer{Allow: true, RequireApproval: true, HasMaxClassification: true}), Deny, ClassificationViolation, "ocip.agent_exchange", Denied, ""},
		{"rounds used up", func(m *Outgoing) { m.Exchange.Round = 3 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "maximum round limit (3)"},
		{"rounds lowered by the caller", func(m *Outgoing) { m.Exchange.Round, m.MaxRounds = 1, 1 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "(1)"},
		{"rounds lowered for the agent", func(m *Outgoing) { m.Exchange.Round, m.Sender.MaxRounds = 2, 2 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "(2)"},
		{"rounds lowered by policy", func(m *Outgoing) { m.Exchange.Round = 2 }, cached{PolicyAnswer{Allow: true, MaxRounds: 2}}, RequireApproval, RoundLimit, ruleRounds, Escalated, "(2)"},
		{"rounds raised by nobody", func(m *Outgoing) { m.Exchange.Round, m.MaxRounds, m.Sender.MaxRounds = 3, 99, 99 }, cached{PolicyAnswer{Allow: true, MaxRounds: 99}}, RequireApproval, RoundLimit, ruleRounds, Escalated, "(3)"},
		{"no limit anywhere", func(m *Outgoing) { m.Exchange.MaxRounds, m.Sender.MaxRounds = 0, 0 }, yes, RequireApproval, RoundLimit, ruleRounds, Escalated, "(0)"},
		{"annotation too large", func(m *Outgoing) { m.MaxAnnotation = 100 }, yes, Deny, AnnotationTooLarge, ruleAnnotation, InProgress, "the limit is 100"},
		{"to a person", func(m *Outgoing) { m.To = Counterparty{Kind: KindUnknown}; m.Exchange.ID = "" }, nil, Allow, "", ruleClassification, InProgress, "within the sender's maximum"},
		{"to the owner, after the end", func(m *Outgoing) { m.To.Kind = KindOwner; m.Exchange.ExpiresAt = m.Now.Add(-1) }, nil, Allow, "", ruleClassification, InProgress, ""},
		{"to a person, level declared", func(m *Outgoing) { m.To.Kind = KindUnknown; m.Declared = Restricted }, nil, Deny, ClassificationViolation, ruleClassification, Denied, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := question()
			tt.change(&m)
			policy := tt.policy
			if policy == nil {
				policy = forbidden{t}
			}
			v := Decide(t.Context(), &m, policy)
			if v.Result != tt.want || v.Code != tt.code {
				t.Fatalf("got %s %s (%s), want %s %s", v.Result, v.Code, v.Reason, tt.want, tt.code)
			}
			if v.Policy != tt.rule || v.Exchange.Outcome != tt.outcome || !strings.Contains(v.Reason, tt.reason) {
				t.Errorf("by %s, exchange %q, because %q; want %s, %q, %q", v.Policy, v.Exchange.Outcome, v.Reason, tt.rule, tt.outcome, tt.reason)
			}
			if v.Allowed() != (v.Annotation != nil) || v.Allowed() != (v.Envelope.Version != "") {
				t.Errorf("%s with annotation %q", v.Result, v.Annotation)
			}
			if !v.Allowed() && v.Exchange.Round != m.Exchange.Round {
				t.Errorf("a message that stayed took round %d", v.Exchange.Round)
			}
			if strings.Contains(v.Reason, "secret") {
				t.Errorf("the reason tells what failed inside the policy: %s", v.Reason)
			}
			if tt.code == PolicyUnreachable && v.Details["cause"] != broken.Error() {
				t.Errorf("the cause is lost: %v", v.Details)
			}
		})
	}
}

// TestDecideOrder breaks one rule after another, the last first: the earliest broken rule decides.
func TestDecideOrder(t *testing.T) {
	m := question()
	var policy Policy = yes
	expect := func(want Code) {
		t.Helper()
		if v := Decide(t.Context(), &m, policy); v.Code != want {
			t.Errorf("got %s, want %s", v.Code, want)
		}
	}
	expect("")
	m.MaxAnnotation = 1
	expect(AnnotationTooLarge)
	m.Exchange.Round = 3
	expect(RoundLimit)
	policy = answers(PolicyAnswer{Allow: true, RequireApproval: true})
	expect(PolicyRequiresApproval)
	policy = answers(PolicyAnswer{Allow: true, RequireApproval: true, HasMaxClassification: true})
	expect(ClassificationViolation)
	policy = answers(PolicyAnswer{})
	expect(PolicyDenied)
	policy = forbidden{t}
	m.Declared = Confidential
	expect(ClassificationViolation)
	m.Sender.Types = []ExchangeType{MeetingScheduling}
	expect(UnsupportedType)
	m.Exchange.Outcome = Denied
	expect(ExchangeClosed)
	m.Exchange.ExpiresAt = m.Now
	expect(ExchangeExpired)
	m.To.TenantID = "globex-inc"
	expect(CrossEnterpriseBlocked)
}

func TestPolicyIsAskedWhatMatters(t *testing.T) {
	m := question()
	m.To.OrgUnit, m.Exchange.Round, m.Declared, m.Sender.Floor = "marketing", 1, Public, Internal
	p := answers(agree, PolicyAnswer{Allow: true, Reason: "cross", MaxRounds: 2, HasMaxClassification: true, MaxClassification: Internal})
	v := Decide(t.Context(), &m, p)
	want := PolicyInput{Action: ActionExchange, ExchangeType: InformationQuery, Level: Internal, Source: m.Sender.Identity, Target: m.To.Identity, Round: 2, CounterpartyKind: KindAgent}
	crossed := want
	crossed.Action = ActionExchangeCrossOrg
	if !slices.Equal(p.asked, []PolicyInput{want, crossed}) {
		t.Errorf("asked %+v", p.asked)
	}
	if !v.Allowed() || v.Reason != "cross" || v.PolicyRevision != "rev-1" || v.Envelope.MaxRounds != 2 {
		t.Errorf("got %s, %q, %s, max %d", v.Result, v.Reason, v.PolicyRevision, v.Envelope.MaxRounds)
	}
}

// anyMessage makes a message of any kind, usually a correct one.
func anyMessage(r *rand.Rand) (Outgoing, Policy) {
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	levels := Levels()
	m := question()
	m.Sender.MaxShared, m.Sender.Floor, m.Declared = levels[r.IntN(4)], levels[r.IntN(2)], levels[r.IntN(4)]
	m.Sender.MaxRounds, m.MaxRounds = r.IntN(5), r.IntN(5)
	m.Exchange.MaxRounds, m.Exchange.Round = 1+r.IntN(5), r.IntN(5)
	m.Exchange.Type = ExchangeType(pick("information_query", "commitment_request", "meeting_scheduling"))
	m.Exchange.Outcome = Outcome(pick("in_progress", "in_progress", "in_progress", "resolved", "escalated", "denied", "expired"))
	m.Exchange.ExpiresAt = m.Now.Add(time.Duration(r.IntN(100)-10) * time.Minute)
	m.To.Kind = Kind(pick("agent", "agent", "agent", "agent", "owner", "person", "unknown"))
	m.Rules = &Rules{
		Unknown: PeopleRules{Commitments: true, Policy: r.IntN(2) == 0, FirstContact: FirstContact(pick("allow", "hold", "deny")), MaxMessages: r.IntN(3)},
		Person:  PeopleRules{Policy: r.IntN(2) == 0, FirstContact: FirstContact(pick("allow", "hold", "deny"))},
	}
	m.First, m.Spent, m.SpentHour, m.Sender.MaxPerHour = r.IntN(4) == 0, r.IntN(3), r.IntN(3), 2*r.IntN(2)
	if r.IntN(8) == 0 {
		m.Owed = Owed{ReplyPolicy: ReplyPolicy(pick("agent-ok", "human-only", "no-reply-needed")), Commitment: r.IntN(2) == 0, ConversationID: "c", Until: m.Now.Add(time.Duration(r.IntN(3)-1) * time.Minute)}
	}
	m.Escalated = pick("", "", "", "", "", "exch-001", "exch-old")
	m.ReplyPolicy = ReplyPolicy(pick("", "agent-ok", "human-only", "no-reply-needed"))
	m.To.OrgUnit, m.To.TenantID = pick("engineering", "marketing"), pick("acme-corp", "acme-corp", "acme-corp", "globex-inc")
	m.MessageType = MessageType(pick("agent-generated", "agent-assisted"))
	answer := func() PolicyAnswer {
		return PolicyAnswer{
			Allow: r.IntN(5) > 0, RequireApproval: r.IntN(8) == 0, MaxRounds: r.IntN(5),
			HasMaxClassification: r.IntN(2) == 0, MaxClassification: levels[r.IntN(4)],
		}
	}
	p := answers(answer(), answer())
	if r.IntN(10) == 0 {
		p.err = errors.New("unreachable")
	}
	return m, p
}

// TestDecideProperties checks the protocol's promises for every message.
func TestDecideProperties(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]int{}
	for range 20_000 {
		m, policy := anyMessage(r)
		v := Decide(t.Context(), &m, policy)
		seen[string(v.Result)+string(v.Code)]++
		fault := func(problem string) {
			t.Helper()
			t.Fatalf("seed %d: %s: %+v\ngave %+v", seed, problem, m, v)
		}
		agent := m.To.Kind == KindAgent
		if v.Exchange.MaxRounds > m.Exchange.MaxRounds {
			fault("the limit grew")
		}
		if v.Level < m.Declared || v.Level < m.Sender.Floor {
			fault("the level is below the declared one or the floor")
		}
		if m.Exchange.Outcome != InProgress && v.Exchange.Outcome != m.Exchange.Outcome {
			fault("an ended exchange ended anew")
		}
		if m.To.TenantID != m.Sender.TenantID && v.Code != CrossEnterpriseBlocked {
			fault("the wall did not stand")
		}
		if agent && v.Allowed() && (v.Owed != Owed{} || m.Escalated != "" || m.Owed.at(m.Now).human() || m.Owed.at(m.Now).ReplyPolicy == NoReplyNeeded) {
			fault("an answer that was a person's to give left, or two that are stopped spoke")
		}
		if !v.Allowed() {
			if v.Owed != m.Owed.at(m.Now) {
				fault("what did not leave paid what is owed")
			}
			if v.Annotation != nil || v.Code == "" || v.Reason == "" || v.Policy == "" {
				fault("a refusal is incomplete")
			}
			continue
		}
		e := v.Envelope
		switch {
		case agent && v.Exchange.Round != m.Exchange.Round+1, e.ExchangeRound != v.Exchange.Round:
			fault("the round is wrong")
		case e.ExchangeRound > e.MaxRounds:
			fault("a round beyond the limit")
		case e.Capabilities.CanCommit:
			fault("an agent may commit")
		case e.Classification != v.Level, v.Level > m.Sender.MaxShared, !slices.Contains(e.Capabilities.CanShare, v.Level):
			fault("the level is wrong")
		case agent && (v.Exchange.Outcome != InProgress || v.Exchange.ExpiredAt(m.Now)):
			fault("a message in an ended exchange")
		}
		parsed, err := ParseEnvelope(v.Annotation)
		if err != nil {
			fault(err.Error())
		}
		if string(annotate(parsed)) != string(v.Annotation) {
			fault("the annotation reads otherwise")
		}
	}
	for _, code := range []string{"allow", "denyCROSS_ENTERPRISE_BLOCKED", "denyPOLICY_DENIED", "require_approvalEXCHANGE_ROUND_LIMIT", "denyCLASSIFICATION_VIOLATION"} {
		if seen[code] < 100 {
			t.Errorf("%s came up %d times only", code, seen[code])
		}
	}
}

// TestConversationsEnd lets two agents talk without an end: the conversation ends within the limit,
// whatever the limits of each.
func TestConversationsEnd(t *testing.T) {
	for limit := 1; limit <= 5; limit++ {
		t.Run(fmt.Sprint("max_rounds ", limit), func(t *testing.T) {
			m := question()
			m.Exchange.MaxRounds, m.Sender.MaxRounds = limit, 99
			sent := 0
			for ; ; sent++ {
				v := Decide(t.Context(), &m, cached{PolicyAnswer{Allow: true, MaxRounds: 99}})
				m.Exchange = v.Exchange
				m.MaxRounds += 10
				if !v.Allowed() {
					break
				}
			}
			if sent != limit {
				t.Errorf("%d messages went out, want %d", sent, limit)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, org := range []string{"engineering", "marketing"} {
		b.Run(org, func(b *testing.B) {
			m := question()
			m.To.OrgUnit = org
			b.ReportAllocs()
			for b.Loop() {
				if v := Decide(b.Context(), &m, yes); !v.Allowed() {
					b.Fatal(v.Reason)
				}
			}
		})
	}
}
