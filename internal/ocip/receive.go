package ocip

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Incoming is one annotated message that arrives for a local agent.
type Incoming struct {
	Now      time.Time
	Receiver Agent
	// From is the sender according to the directory. Its kind is KindUnknown if the envelope's
	// source is not in the directory.
	From Counterparty
	// Elsewhere is set if the directory knows the envelope's source, but not at the session through
	// which the message came.
	Elsewhere bool
	Envelope  Envelope
	// Exchange is the receiver's side before this message. A new side begins with round zero.
	Exchange Exchange
	Summary  string
	// Claimed is as in [Outgoing].
	Claimed bool
	// Chain is the causal chain including this message.
	Chain Chain
	// Escalated is the exchange between the two agents that has reached its limit and that no
	// person has settled yet, or empty.
	Escalated string
	// ExpiresAfter, when above zero, bounds the duration of an exchange that begins, whatever its
	// envelope says.
	ExpiresAfter time.Duration
	// Owed is the receiver's debt to the sender before this message.
	Owed Owed
	// Content is the text, Passages are the message's other strings, and Rules apply to both.
	Content  string
	Passages []Passage
	Rules    *Rules
	// Rendering lists the changes that the receiver's program makes to the texts before it shows
	// them.
	Rendering []text.Rendering
	// Approved is set if a person of this daemon has released the message on the sender's side.
	// Judged is set if an operator's model has released it there.
	Approved, Judged bool
	// Grants are the approvals that the agent's person has given for this exchange.
	Grants []Grant
}

// arrival weighs one rule on the receiver's side, as [step] does on the
// sender's.
type arrival func(ctx context.Context, m *Incoming, policy Policy, v *Verdict)

// incoming lists the receiver's rules in the order of the protocol.
var incoming = [...]arrival{
	tenantWallInbound,
	sourceInbound,
	aheadInbound,
	expiryInbound,
	stoppedInbound,
	acceptsInbound,
	askPolicyInbound,
	replayInbound,
	roundsInbound,
	chainInbound,
	promisesInbound,
}

// Receive weighs a message that arrives. The receiver decides for itself. It trusts the envelope
// for nothing that its own directory and state can tell.
func Receive(ctx context.Context, m *Incoming, policy Policy) *Verdict {
	if ends := m.Now.Add(m.ExpiresAfter); m.ExpiresAfter > 0 && m.Exchange.Round == 0 && ends.Before(m.Exchange.ExpiresAt) {
		m.Exchange.ExpiresAt = ends
	}
	v := &Verdict{Level: m.Envelope.Classification, Before: m.Exchange, Exchange: m.Exchange, Envelope: m.Envelope, Owed: m.Owed.at(m.Now)}
	for _, weigh := range incoming {
		weigh(ctx, m, policy, v)
		if v.Result == "" {
			continue
		}
		if v.Exchange.Outcome == m.Exchange.Outcome && v.Exchange.ForPerson == m.Exchange.ForPerson {
			// The claims of a refused envelope change nothing.
			v.Exchange = m.Exchange
		}
		return v
	}
	v.Result = Allow
	v.Exchange = m.after(v.Exchange)
	v.Exchange.Awaiting, v.Exchange.Approved, v.Exchange.Chain = m.Envelope.ReplyPolicy, false, v.Chain
	v.Exchange.Level = v.Level
	v.Owed = v.Owed.incur(&m.Receiver, &v.Exchange)
	switch {
	case v.Exchange.Round > v.Exchange.MaxRounds:
		v.Exchange.Outcome, v.Exchange.ForPerson = Escalated, false
	case v.ForPerson != "":
		v.Exchange.Outcome, v.Exchange.ForPerson, v.Exchange.UpdatedAt = Escalated, true, m.Now
		v.Details = map[string]any{"requiresHuman": true, "escalation": v.Exchange.payload(v.ForPerson)}
	}
	return v
}

// after returns the exchange with the message in it. An envelope can move the round forward, never
// back.
func (m *Incoming) after(e Exchange) Exchange {
	e.Round = max(e.Round, m.Envelope.ExchangeRound-1)
	return e.advance(m.Now, m.Envelope.SourceAgent.InstanceID, m.Summary, m.Claimed)
}

// closeNew ends an exchange that the message itself would open. An exchange that is under way goes
// on: otherwise a false envelope could end somebody else's exchange.
func (m *Incoming) closeNew(v *Verdict, outcome Outcome) {
	if m.Exchange.Round == 0 {
		v.Exchange = v.Exchange.close(m.Now, outcome)
	}
}

func tenantWallInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	source := Counterparty{Kind: KindAgent, Identity: m.Envelope.SourceAgent}
	if reason, blocked := Wall(m.Receiver.Identity, source); blocked {
		v.deny(CrossEnterpriseBlocked, ruleTenantWall, reason)
		m.closeNew(v, Denied)
	}
}

// sourceInbound refuses an envelope whose source is neither the agent that the directory has at the
// session nor the agent of the exchange.
func sourceInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if m.Elsewhere {
		v.deny(SourceMismatch, ruleReceiver, fmt.Sprintf(
			"envelope names agent %s, but the directory does not have that agent at this session", m.Envelope.SourceAgent.InstanceID))
		m.closeNew(v, Denied)
		return
	}
	if m.From.Kind == KindAgent && m.From.Identity != m.Envelope.SourceAgent {
		v.deny(SourceMismatch, ruleReceiver, fmt.Sprintf(
			"envelope names agent %s of user %s, but the directory has agent %s of user %s at this session",
			m.Envelope.SourceAgent.InstanceID, m.Envelope.SourceAgent.UserID, m.From.InstanceID, m.From.UserID))
		m.closeNew(v, Denied)
		return
	}
	if with := m.Exchange.Counterparty; with != "" && with != m.Envelope.SourceAgent.InstanceID {
		v.deny(SourceMismatch, ruleReceiver, fmt.Sprintf(
			"exchange %s is with agent %s, not with %s", m.Exchange.ID, with, m.Envelope.SourceAgent.InstanceID))
	}
}

func expiryInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	switch {
	case !m.Now.Before(m.Envelope.ExpiresAt.Time):
		v.deny(ExchangeExpired, ruleExchange, "envelope expired at "+m.Envelope.ExpiresAt.UTC().Format(timeLayout))
		m.closeNew(v, Expired)
	case v.Exchange.ExpiredAt(m.Now):
		v.deny(ExchangeExpired, ruleExchange, fmt.Sprintf("exchange %s expired at %s", v.Exchange.ID, v.Exchange.ExpiresAt.UTC().Format(timeLayout)))
		v.Exchange = v.Exchange.close(m.Now, Expired)
	case !v.Exchange.goesOn():
		v.deny(ExchangeClosed, ruleExchange, fmt.Sprintf("exchange %s is %s", v.Exchange.ID, v.Exchange.Outcome))
	}
}

// aheadInbound refuses an envelope whose round is further ahead of the known round than a whole
// exchange is long. Otherwise one forged line would use up the rounds of two agents.
func aheadInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	limit := lowest(m.Exchange.MaxRounds, m.Envelope.MaxRounds, m.Receiver.MaxRounds)
	if known := m.Exchange.Round; m.Envelope.ExchangeRound-known > max(limit, 1) {
		v.deny(EnvelopeForged, ruleReceiver, fmt.Sprintf(
			"envelope is round %d of exchange %s, which is at round %d here and may have %d", m.Envelope.ExchangeRound, m.Exchange.ID, known, limit))
	}
}

// stoppedInbound refuses messages between two agents whose escalated exchange a person must settle
// first, except that person's own.
func stoppedInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if m.Escalated == "" || m.Approved || m.Envelope.MessageType == Human {
		return
	}
	v.deny(RoundLimit, ruleRounds, stopReason(m.Escalated))
	v.Details = map[string]any{"escalatedExchange": m.Escalated, "escalation": m.after(v.Exchange).payload(v.Reason)}
}

func acceptsInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	switch {
	case m.Exchange.Round > 0:
		return
	case !m.Receiver.CanReceiveQueries:
		v.deny(QueriesRefused, ruleReceiver, fmt.Sprintf("agent %s does not receive queries from other agents", m.Receiver.ID))
	case !m.Receiver.supports(v.Exchange.Type):
		v.deny(UnsupportedType, ruleReceiver, fmt.Sprintf("agent %s does not take part in exchanges of type %s", m.Receiver.ID, v.Exchange.Type))
	default:
		return
	}
	v.Exchange = v.Exchange.close(m.Now, Denied)
}

// askPolicyInbound asks with the message's own source and target, so the receiver's policy sees the
// sender as source.
func askPolicyInbound(ctx context.Context, m *Incoming, policy Policy, v *Verdict) {
	person := Nobody
	if m.Approved {
		person = Approved
	}
	answer := consult(ctx, m.Now, PolicyInput{
		ExchangeType: v.Exchange.Type,
		Level:        v.Level,
		Source:       m.Envelope.SourceAgent,
		Target:       m.Receiver.Identity,
		Round:        m.Envelope.ExchangeRound,

		CounterpartyKind: KindAgent,
	}, policy, person, v)
	v.Exchange.MaxRounds = lowest(v.Exchange.MaxRounds, m.Envelope.MaxRounds, answer.MaxRounds, m.Receiver.MaxRounds)
}

// replayInbound refuses a round that was received before.
func replayInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if known := m.Exchange.Round; known > 0 && m.Envelope.ExchangeRound <= known {
		v.deny(EnvelopeReplayed, ruleRounds, fmt.Sprintf(
			"envelope is round %d of exchange %s, which is at round %d already", m.Envelope.ExchangeRound, m.Exchange.ID, known))
	}
}

// roundsInbound stops an exchange that its sender has let run too long. A person who took it over
// there has the last word.
func roundsInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if after := m.after(v.Exchange); after.Round > after.MaxRounds && m.Envelope.MessageType != Human {
		escalateRounds(v, m.Now, after)
	}
}

// wordsGo reports whether the words of a message need no person, by the same settings as those of
// the answer. What the envelope asks for is another matter.
func (m *Incoming) wordsGo(hits []commitment.Hit, texts []Passage, v *Verdict) bool {
	if m.Rules.sameOwner(m.Receiver.Identity, m.From) {
		return true
	}
	by := m.Rules.weighs(&m.Receiver, m.From.Kind, m.From.Kind == KindUnknown)
	if by == "" || m.From.Kind == KindUnknown && m.Exchange.Round == 0 {
		return false
	}
	w := m.Rules.read(hits, texts, Before{}).Keywords()
	if w == nil || w.Binds {
		return false
	}
	v.Details = weighedAway(w, by)
	return true
}

// promisesInbound looks for requests that the receiver commit to something, in the envelope's flags
// and the texts. It holds nothing back: the agent may read the message, but only a person may
// answer, and must hear of it.
func promisesInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	texts := together(m.Content, m.Passages)
	hits := m.Rules.promises(Before{}, texts, m.Rendering, nil, v)
	result := commitment.Judge(hits)
	if result.RequiresHuman && !m.Envelope.RequiresCommitment && m.Envelope.ReplyPolicy != HumanOnly {
		if g := granted(m.Grants, texts, hits, v.Level, max(v.Exchange.Round+1, m.Envelope.ExchangeRound), m.Now, 1); g != nil {
			// The agent's person has already approved these commitments, and the message asks for
			// nothing else.
			v.Grant, result.RequiresHuman = g.ID, false
		}
	}
	if m.wordsGo(hits, texts, v) {
		result.RequiresHuman = false
	}
	v.Exchange.Asks = commitment.Asks(m.Content)
	if (m.Approved || m.Judged) && !v.Exchange.Asks {
		// The sender's owner made a promise and asked for none, or a model found no promise, so the
		// answer is weighed by its own words.
		result.RequiresHuman = false
	}
	v.Exchange.AwaitsCommitment = result.RequiresHuman || m.Envelope.RequiresCommitment
	switch {
	case m.Rules != nil && m.Rules.Monitor:
	case m.Envelope.ReplyPolicy == HumanOnly:
		v.ForPerson = "only a person may answer the message"
	case m.Envelope.RequiresCommitment:
		v.ForPerson = "the message asks for a commitment"
	case result.RequiresHuman:
		v.ForPerson = *result.Reason
	}
}
