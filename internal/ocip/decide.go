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
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Agent is a local agent: its identity and its limits.
type Agent struct {
	// ID is the agent's name in session keys.
	ID string
	Identity
	// MaxShared is the highest level the agent may share.
	MaxShared Level
	// Label is the disclosure that its messages have once they are being sent.
	Label string
	// MaxUnknown is the highest level that the agent may share with undeclared counterparties. If
	// it is nil or higher than MaxShared, MaxShared holds.
	MaxUnknown *Level
	// Floor is the lowest level a message of this agent has.
	Floor             Level
	Types             []ExchangeType
	MaxRounds         int
	CanReceiveQueries bool
	CanAutoRespond    bool
	// MaxPerHour, when above zero, bounds the messages that the agent may send in an hour to all
	// counterparties. Further messages are held.
	MaxPerHour int
	// Keywords is the treatment of messages that only keywords hold: enforce, weigh, or empty for that of the rules.
	Keywords commitment.Mode
}

// supports reports whether the agent takes part in exchanges of a type. An agent without a list
// takes part in all.
func (a Agent) supports(t ExchangeType) bool {
	if len(a.Types) == 0 {
		return true
	}
	return slices.Contains(a.Types, t)
}

// Outgoing is one message before it is sent, with everything that the decision needs.
type Outgoing struct {
	Now    time.Time
	Sender Agent
	To     Counterparty
	// Exchange is the state before this message.
	Exchange    Exchange
	MessageType MessageType
	// Declared is the level that the caller claims for the message.
	Declared Level
	// MaxRounds, when above zero, is the caller's wish for a lower limit.
	MaxRounds int
	// Escalated is the exchange between the two agents that has reached its limit and that no
	// person has settled yet, or empty.
	Escalated string
	// Cause is the causal chain that the message continues.
	Cause Chain
	// Owed is the sender's debt to the counterparty, from any exchange.
	Owed Owed
	// LooksLike is the entry of the directory that the session key imitates, or empty.
	LooksLike string
	// Unconfirmed is set if only the counterparty's own word says that it is an agent. Then the
	// rules for strangers apply besides those for agents: otherwise a stranger could escape them by
	// calling itself an agent.
	Unconfirmed bool
	// First is set if nothing was sent to the counterparty before.
	First bool
	// Spent counts the messages sent in the session within the window of its budget, and SpentHour
	// those of the agent within the hour.
	Spent, SpentHour int
	// ReplyPolicy is the caller's wish about who may answer.
	ReplyPolicy ReplyPolicy
	// AskPerson is the caller's wish that a person approves the message.
	AskPerson bool
	// Before is the earlier part of the session's conversation.
	Before Before
	// Content is the text to weigh, Passages are the message's other strings, and Rules apply to
	// both.
	Content  string
	Passages []Passage
	Rules    *Rules
	// Files holds the findings in the attached files.
	Files Weighed
	// Rendering lists the changes that the receiver's program makes to the texts.
	Rendering []text.Rendering
	// Data lists the data that the message includes, according to the caller.
	Data []DataItem
	// Summary is the message's line in the transcript.
	Summary string
	// Claimed is set if the caller wrote the summary. Otherwise it is the beginning of the message.
	Claimed bool
	// Person is the decision of a person about the message, if there is one.
	Person Person
	// Grants are the commitments that people have approved beforehand. Approvers is the least
	// number of people that must approve a message.
	Grants    []Grant
	Approvers int
	// MaxAnnotation bounds the annotation in bytes.
	MaxAnnotation int

	// texts are all texts that are weighed.
	texts []Passage
}

// Person is the decision of a person about a message.
type Person uint8

// The possible decisions of a person. An approved message is sent unchanged, on the person's word.
// A message that a person took over is sent as the person's own, past the round limit if necessary,
// and ends the exchange as escalated. About a judged one no person has decided: an operator's model
// found that it commits nobody, which overrules an open ground ([Ground.Open]) and nothing else.
const (
	Nobody Person = iota
	Approved
	TakenOver
	Judged
)

// decided reports whether a person has decided.
func (p Person) decided() bool { return p == Approved || p == TakenOver }

// step weighs one rule. A step that denies or escalates sets the verdict's result and ends the
// decision. A step without an objection does not set the result.
type step func(ctx context.Context, m *Outgoing, policy Policy, v *Verdict)

// outgoing lists the rules in the order of the protocol. The tenant wall comes first and is not
// part of the policy, so that no policy can open it.
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

// Decide weighs a message before it is sent. The first rule that denies or escalates decides. If it
// escalates, the verdict also holds the grounds of all further rules. The verdict of an allowed
// message holds the advanced exchange and the envelope to stamp.
func Decide(ctx context.Context, m *Outgoing, policy Policy) *Verdict {
	v := &Verdict{Level: max(m.Declared, m.Sender.Floor), Before: m.Exchange, Exchange: m.Exchange, Owed: m.Owed.at(m.Now)}
	m.texts = together(m.Content, m.Passages)
	for i, weigh := range outgoing {
		before := v.Exchange
		weigh(ctx, m, policy, v)
		if v.Result == "" {
			continue
		}
		if v.Result == RequireApproval {
			v.further(ctx, m, policy, &before, outgoing[i+1:])
		}
		v.Grant = ""
		return v
	}
	v.Result = Allow
	v.Shared, v.Withheld = sift(m.Data, v.Level, m.To.Accepts)
	if m.To.Kind == KindAgent {
		v.Exchange = v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed)
		v.Exchange.Awaiting, v.Exchange.AwaitsCommitment, v.Exchange.Asks, v.Exchange.Chain = "", false, false, v.Chain
		v.Exchange.Approved, v.Exchange.ForPerson = m.Person.decided(), false
		v.Exchange.Outcome = InProgress
		if m.Person == TakenOver {
			v.Exchange.Outcome = Escalated
		}
		// The message answers the debt. If that needed a person, a person has decided by now.
		v.Owed = Owed{}
	} else {
		// Rounds with a person are not counted, but the envelope must still say that this is the
		// first message of its conversation.
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
		with = " with undeclared counterparties"
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

// consult asks the policy agent-exchange and, if the two agents' org units differ, cross-org. It
// returns the narrower of the constraints. It always sets the verdict's policy fields, and sets the
// result only if the message must be stopped. No person can approve a message that a policy denies,
// or allows only below the message's level.
func consult(ctx context.Context, now time.Time, ask PolicyInput, policy Policy, person Person, v *Verdict) PolicyAnswer {
	var (
		narrowed PolicyAnswer
		names    string
		approval []string
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
			// The reason leaves out the cause, since that can contain parts of the policy. The
			// daemon's log has it.
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
		if why := cmp.Or(answer.Reason, "policy "+name+" asks for a person's approval"); answer.RequireApproval && !slices.Contains(approval, why) {
			approval = append(approval, why)
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
	case len(approval) > 0 && !person.decided():
		v.escalate(PolicyRequiresApproval, v.Policy, strings.Join(approval, "; "))
	}
	return narrowed
}

// rounds stops an exchange that has used up its rounds. Nothing extends it: the exchange ends here
// as escalated.
func rounds(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind != KindAgent || mutant.Off("rounds") {
		return
	}
	switch {
	case m.Person == TakenOver:
	case m.Escalated != "" && m.Escalated != v.Exchange.ID:
		// A new exchange would begin to count anew.
		m.stopped(v)
	case v.Exchange.Round >= v.Exchange.MaxRounds:
		escalateRounds(v, m.Now, v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed))
	case m.Escalated != "" && !m.Person.decided():
		// The other agent reached the limit, and this agent's side is still open.
		m.stopped(v)
	}
}

// stopped holds a message between two agents whose escalated exchange a person must settle first.
func (m *Outgoing) stopped(v *Verdict) {
	v.escalate(RoundLimit, ruleRounds, stopReason(m.Escalated))
	after := v.Exchange.advance(m.Now, m.Sender.InstanceID, m.Summary, m.Claimed)
	v.Details = map[string]any{"escalatedExchange": m.Escalated, "escalation": after.payload(v.Reason)}
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}

// stopReason explains why no message passes between two agents.
func stopReason(exchange string) string {
	return fmt.Sprintf("exchange %s between these agents has reached its limit; until a person has settled it, no message passes between them, in any exchange", exchange)
}

// escalateRounds hands an exchange to a person. After is the exchange with the message that
// exceeded the rounds.
func escalateRounds(v *Verdict, now time.Time, after Exchange) {
	v.escalate(RoundLimit, ruleRounds,
		fmt.Sprintf("Exchange reached maximum round limit (%d). Human review required.", after.MaxRounds))
	v.Details = map[string]any{"escalation": after.payload(v.Reason)}
	v.Exchange = v.Exchange.close(now, Escalated)
}

// payload returns the exchange in the form that a person reviews, with the reason.
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

// Escalation is the data that a person reviews when an exchange is escalated (OCIP reference,
// Escalation Payload).
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

// assisted reports whether the message is sent on a person's word, given for it or beforehand.
func (v *Verdict) assisted(m *Outgoing) bool { return m.Person.decided() || v.Grant != "" }

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
