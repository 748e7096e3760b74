package ocip

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Agent is a local agent: its identity and the limits set for it.
type Agent struct {
	// ID is the agent's name in session keys.
	ID string
	Identity
	// MaxShared is the highest level the agent may share.
	MaxShared Level
	// MaxUnknown is the highest level the agent may share with whom nobody
	// declared, MaxShared where it is nil or higher.
	MaxUnknown *Level
	// Floor is the lowest level a message of this agent has.
	Floor             Level
	Types             []ExchangeType
	MaxRounds         int
	CanReceiveQueries bool
	CanAutoRespond    bool
	// MaxPerHour, when above zero, is how many messages the agent may send in an
	// hour, to whomever; those beyond it are held.
	MaxPerHour int
}

// supports reports whether the agent takes part in exchanges of a type. An
// agent with no list takes part in all.
func (a Agent) supports(t ExchangeType) bool {
	if len(a.Types) == 0 {
		return true
	}
	return slices.Contains(a.Types, t)
}

// Outgoing is one message that wants to leave, with all that the decision
// needs to know.
type Outgoing struct {
	Now    time.Time
	Sender Agent
	To     Counterparty
	// Exchange is the state before this message.
	Exchange    Exchange
	MessageType MessageType
	// Declared is the level the caller claims for the message.
	Declared Level
	// MaxRounds, when above zero, is the caller's wish for a lower limit.
	MaxRounds int
	// Escalated is the exchange between the two agents that has come to its limit
	// and that no person has settled, empty where there is none.
	Escalated string
	// Cause is the causal chain that the message goes on with.
	Cause Chain
	// Owed is what the sender owes the counterparty, whatever exchange that is
	// about.
	Owed Owed
	// LooksLike is the entry of the directory that the session key imitates, empty
	// where it imitates none.
	LooksLike string
	// Unconfirmed is set where the counterparty is known as an agent by its own word
	// alone. Then the rules for strangers hold beside those for agents: to be spared
	// them, a stranger would only have to call itself an agent.
	Unconfirmed bool
	// First is set where nothing was sent to the counterparty before.
	First bool
	// Spent counts the messages sent in the session within the window of its
	// budget, SpentHour those of the agent within the hour.
	Spent, SpentHour int
	// ReplyPolicy is the caller's wish for who may answer.
	ReplyPolicy ReplyPolicy
	// AskPerson is the caller's wish that a person approves the message.
	AskPerson bool
	// Before is what went before the message in its session.
	Before Before
	// Content is the text to judge, Passages are the message's other strings, and
	// Rules is what both are judged by.
	Content  string
	Passages []Passage
	Rules    *Rules
	// Files is what was found in the files that go along.
	Files Weighed
	// Rendering is what the receiver's program makes of the texts.
	Rendering []text.Rendering
	// Data is what the caller says the message includes.
	Data []DataItem
	// Summary is the message's line in the transcript.
	Summary string
	// Claimed is set where the summary is the caller's own, and not the beginning
	// of the message.
	Claimed bool
	// Person says what a person has decided about the message, if one has.
	Person Person
	// Grants are what people have allowed beforehand, and Approvers how many of them a
	// message needs at least.
	Grants    []Grant
	Approvers int
	// MaxAnnotation bounds the annotation in bytes.
	MaxAnnotation int

	// texts are all that is looked at.
	texts []Passage
}

// Person is what a person has decided about a message.
type Person uint8

// What a person can have decided. An approved message leaves as it is, on the
// person's word; one that was taken over leaves as the person's own, past the
// round limit if need be, and ends the exchange as escalated.
const (
	Nobody Person = iota
	Approved
	TakenOver
)

// step weighs one rule. A step that denies or escalates sets the verdict's
// result and ends the deliberation; one that has no objection leaves it.
type step func(ctx context.Context, m *Outgoing, policy Policy, v *Verdict)

// outgoing lists the rules in the order the protocol fixes. The tenant wall
// stands first and outside policy, so that no policy can open it.
var outgoing = [...]step{
	tenantWall,
	exchangeState,
	replyExpected,
	raise,
	classification,
	askPolicy,
	lookAlike,
	firstContact,
	commitments,
	rounds,
	chain,
	budget,
}

// Decide weighs a message that wants to leave. The first rule that denies or
// escalates decides. An allowed message's verdict holds the advanced exchange
// and the envelope to stamp.
func Decide(ctx context.Context, m *Outgoing, policy Policy) *Verdict {
	v := &Verdict{Level: max(m.Declared, m.Sender.Floor), Before: m.Exchange, Exchange: m.Exchange, Owed: m.Owed.at(m.Now)}
	m.texts = together(m.Content, m.Passages)
	for _, weigh := range outgoing {
		weigh(ctx, m, policy, v)
		if v.Result != "" {
			v.Grant = ""
			return v
		}
	}
	v.Result = Allow
	v.Shared, v.Withheld = sift(m.Data, v.Level, m.To.Accepts)
	if m.To.Kind == KindAgent {
		v.Exchange = v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed)
		v.Exchange.Awaiting, v.Exchange.AwaitsCommitment, v.Exchange.Asks, v.Exchange.Chain = "", false, false, v.Chain
		v.Exchange.Approved, v.Exchange.ForPerson = m.Person != Nobody, false
		v.Exchange.Outcome = InProgress
		if m.Person == TakenOver {
			v.Exchange.Outcome = Escalated
		}
		// What was owed is answered: had a person been needed, there was one.
		v.Owed = Owed{}
	} else {
		// Nobody counts rounds with a person, but the envelope must still say
		// that this is the first message of its conversation.
		v.Exchange.Round = 1
		if v.Policy == "" {
			v.Policy, v.Reason = ruleClassification, "classification "+v.Level.String()+" is within the sender's maximum"
		}
	}
	v.Exchange.Level = v.Level
	v.Envelope = stamp(m, v)
	v.Annotation = annotate(v.Envelope)
	if m.MaxAnnotation > 0 && len(v.Annotation) > m.MaxAnnotation {
		size := len(v.Annotation)
		v.Exchange, v.Envelope, v.Annotation = v.Before, Envelope{}, nil
		v.deny(AnnotationTooLarge, ruleAnnotation, fmt.Sprintf("the annotation has %d bytes, the limit is %d", size, m.MaxAnnotation))
	}
	return v
}

func tenantWall(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if reason, blocked := Wall(m.Sender.Identity, m.To); blocked {
		v.deny(CrossEnterpriseBlocked, ruleTenantWall, reason)
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}

func wallReason(source, target Identity) string {
	return fmt.Sprintf("communication between tenant %q and tenant %q is blocked; no policy can allow it",
		source.TenantID, target.TenantID)
}

func exchangeState(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind != KindAgent {
		return
	}
	switch {
	case v.Exchange.ExpiredAt(m.Now):
		v.deny(ExchangeExpired, ruleExchange, fmt.Sprintf("exchange %s expired at %s", v.Exchange.ID, v.Exchange.ExpiresAt.UTC().Format(timeLayout)))
		v.Exchange = v.Exchange.close(m.Now, Expired)
	case !v.Exchange.goesOn() && !mutant.Off("exchange-ended"):
		v.deny(ExchangeClosed, ruleExchange, fmt.Sprintf("exchange %s is %s", v.Exchange.ID, v.Exchange.Outcome))
	case !m.Sender.supports(v.Exchange.Type):
		v.deny(UnsupportedType, ruleExchange, fmt.Sprintf("agent %s does not take part in exchanges of type %s", m.Sender.ID, v.Exchange.Type))
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}

func classification(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	limit := m.mayShare()
	if v.Level <= limit || mutant.Off("ceiling") {
		return
	}
	with := ""
	if limit < m.Sender.MaxShared {
		with = " with whom nobody declared"
	}
	denyLevel(m.Now, v, limit, ruleClassification, fmt.Sprintf("the maximum agent %s may share%s is %s", m.Sender.ID, with, limit))
}

// mayShare returns the highest level the sender may share with the counterparty.
func (m *Outgoing) mayShare() Level {
	if a := &m.Sender; a.MaxUnknown != nil && (m.Unconfirmed || m.To.Kind == KindUnknown) {
		return min(a.MaxShared, *a.MaxUnknown)
	}
	return m.Sender.MaxShared
}

func denyLevel(now time.Time, v *Verdict, limit Level, rule, because string) {
	v.Details = map[string]any{"classification": v.Level.String(), "maximum": limit.String(), "rule": "declared"}
	by := ""
	if d := v.raisedBy; d != nil {
		by = fmt.Sprintf(" by %s at bytes %d to %d", d.Rule, d.Start, d.End)
		v.Details["rule"], v.Details["start"], v.Details["end"] = d.Rule, d.Start, d.End
		if d.Member != "" {
			by += " of " + d.Member
			v.Details["member"] = d.Member
		}
	}
	v.deny(ClassificationViolation, rule, fmt.Sprintf("message classified %s%s; %s", v.Level, by, because))
	v.Exchange = v.Exchange.close(now, Denied)
}

func askPolicy(ctx context.Context, m *Outgoing, policy Policy, v *Verdict) {
	if m.To.Kind != KindAgent && !m.Rules.Towards(m.To.Kind).Policy {
		return
	}
	ask := PolicyInput{
		ExchangeType: v.Exchange.Type,
		Level:        v.Level,
		Source:       m.Sender.Identity,
		Target:       m.To.Identity,
		Round:        v.Exchange.Round + 1,

		CounterpartyKind: m.To.Kind,
	}
	answer := consult(ctx, m.Now, ask, policy, m.Person, v)
	if m.To.Kind == KindAgent {
		v.Exchange.MaxRounds = lowest(v.Exchange.MaxRounds, answer.MaxRounds, m.MaxRounds, m.Sender.MaxRounds)
	}
	if v.Result == RequireApproval {
		v.Exchange = v.Exchange.close(m.Now, Escalated)
	}
}

// consult asks agent-exchange and, where two agents' org units differ, cross-org. It
// returns the narrower of the constraints; the verdict is set only if the
// message must not go on, its policy fields always. What a policy denies, or
// allows only below the message's level, is not for a person to approve.
func consult(ctx context.Context, now time.Time, ask PolicyInput, policy Policy, person Person, v *Verdict) PolicyAnswer {
	var (
		narrowed PolicyAnswer
		names    string
		approval string
	)
	for _, action := range [...]string{ActionExchange, ActionExchangeCrossOrg} {
		if action == ActionExchangeCrossOrg && (ask.CounterpartyKind != KindAgent || ask.Source.OrgUnit == ask.Target.OrgUnit) {
			break
		}
		ask.Action = action
		answer, name, revision, err := policy.Evaluate(ctx, ask)
		v.PolicyRevision = revision
		name = cmp.Or(name, action)
		if err != nil {
			// The cause stays out of the reason: it can hold parts of the
			// policy. The daemon's log has it.
			v.deny(PolicyUnreachable, name, "policy could not be evaluated: denied")
			v.Details = map[string]any{"cause": err.Error()}
			v.ForPerson = v.Reason
			v.Exchange = v.Exchange.close(now, Escalated)
			return PolicyAnswer{}
		}
		if !answer.Allow {
			v.deny(PolicyDenied, name, cmp.Or(answer.Reason, "denied by policy "+name))
			v.Exchange = v.Exchange.close(now, Denied)
			return PolicyAnswer{}
		}
		if answer.RequireApproval && approval == "" {
			approval = cmp.Or(answer.Reason, "policy "+name+" asks for a person's approval")
		}
		if answer.HasMaxClassification && (!narrowed.HasMaxClassification || answer.MaxClassification < narrowed.MaxClassification) {
			narrowed.HasMaxClassification, narrowed.MaxClassification = true, answer.MaxClassification
		}
		narrowed.MaxRounds = lowest(narrowed.MaxRounds, answer.MaxRounds)
		v.Approvers = max(v.Approvers, answer.Approvers)
		narrowed.Reason = answer.Reason
		if names != "" {
			names += "+"
		}
		names += name
	}
	v.Policy, v.Reason = names, narrowed.Reason
	switch {
	case narrowed.HasMaxClassification && ask.Level > narrowed.MaxClassification:
		denyLevel(now, v, narrowed.MaxClassification, names, fmt.Sprintf("policy %s allows at most %s", names, narrowed.MaxClassification))
	case approval != "" && person == Nobody:
		v.escalate(PolicyRequiresApproval, v.Policy, approval)
	}
	return narrowed
}

// rounds stops an exchange that has used up its rounds. There is no way to
// extend it: the exchange ends here as escalated.
func rounds(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind != KindAgent || mutant.Off("rounds") {
		return
	}
	switch {
	case m.Person == TakenOver:
	case m.Escalated != "" && m.Escalated != v.Exchange.ID:
		// A fresh exchange would begin to count anew.
		m.stopped(v)
	case v.Exchange.Round >= v.Exchange.MaxRounds:
		escalateRounds(v, m.Now, v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed))
	case m.Escalated != "" && m.Person == Nobody:
		// The other agent came to the limit, and this one's side is open still.
		m.stopped(v)
	}
}

// stopped holds a message between two agents of whom a person has to settle
// something first.
func (m *Outgoing) stopped(v *Verdict) {
	v.escalate(RoundLimit, ruleRounds, stopReason(m.Escalated))
	after := v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed)
	v.Details = map[string]any{"escalatedExchange": m.Escalated, "escalation": after.payload(v.Reason)}
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}

// stopReason says why nothing goes between two agents.
func stopReason(exchange string) string {
	return fmt.Sprintf("exchange %s between these agents has come to its limit; until a person has settled it, nothing goes between them, in any exchange", exchange)
}

// escalateRounds hands an exchange to a person, with the message that went one
// round too far as after shows it.
func escalateRounds(v *Verdict, now time.Time, after Exchange) {
	v.escalate(RoundLimit, ruleRounds,
		fmt.Sprintf("Exchange reached maximum round limit (%d). Human review required.", after.MaxRounds))
	v.Details = map[string]any{"escalation": after.payload(v.Reason)}
	v.Exchange = v.Exchange.close(now, Escalated)
}

// payload is what a person gets to review of an exchange, and why.
func (e Exchange) payload(reason string) Escalation {
	return Escalation{
		ExchangeID:          e.ID,
		ConversationID:      e.ConversationID,
		CurrentRound:        e.Round,
		MaxRounds:           e.MaxRounds,
		ConversationSummary: e.summary(),
		Reason:              reason,
	}
}

// Escalation is what a person gets to review when an exchange is escalated (OCIP
// reference, Escalation Payload).
type Escalation struct {
	ExchangeID          string `json:"exchangeId"`
	ConversationID      string `json:"conversationId"`
	CurrentRound        int    `json:"currentRound"`
	MaxRounds           int    `json:"maxRounds"`
	ConversationSummary string `json:"conversationSummary"`
	Reason              string `json:"reason"`
}

func (e Exchange) summary() string {
	lines := make([]string, len(e.Transcript))
	for i, t := range e.Transcript {
		lines[i] = fmt.Sprintf("Round %d (%s): %s", t.Round, t.Sender, t.Shown())
	}
	return strings.Join(lines, "\n")
}

// assisted reports whether the message leaves on a person's word, given for it or
// beforehand.
func (v *Verdict) assisted(m *Outgoing) bool { return m.Person != Nobody || v.Grant != "" }

func stamp(m *Outgoing, v *Verdict) Envelope {
	kind := m.MessageType
	if v.Grant != "" {
		kind = AgentAssisted
	}
	return Envelope{
		Version:            Version,
		MessageType:        kind,
		SourceAgent:        m.Sender.Identity,
		Classification:     v.Level,
		ConversationID:     v.Exchange.ConversationID,
		ExchangeRound:      v.Exchange.Round,
		MaxRounds:          v.Exchange.MaxRounds,
		Capabilities:       Capabilities{CanCommit: v.assisted(m), CanShare: m.mayShare().UpTo()},
		ReplyPolicy:        v.Exchange.Type.ReplyPolicy().tighten(m.ReplyPolicy),
		RequiresCommitment: v.Exchange.Type.RequiresCommitment(),
		ExpiresAt:          Time{v.Exchange.ExpiresAt},
	}
}

// lowest returns the smallest of the limits that are set (above zero).
func lowest(limits ...int) int {
	low := 0
	for _, l := range limits {
		if l > 0 && (low == 0 || l < low) {
			low = l
		}
	}
	return low
}
