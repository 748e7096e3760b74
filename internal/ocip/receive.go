package ocip

import (
	"context"
	"fmt"
	"time"
)

// Incoming is one annotated message that arrives for a local agent.
type Incoming struct {
	Now      time.Time
	Receiver Agent
	// From is the sender as the directory knows it. Its kind is KindUnknown
	// where the envelope's source is not in the directory.
	From Counterparty
	// Elsewhere is set where the directory knows the envelope's source, but
	// not at the session the message came through.
	Elsewhere bool
	Envelope  Envelope
	// Exchange is the receiver's side before this message. A side that is new
	// begins with round zero.
	Exchange Exchange
	Summary  string
	// Chain is the causal line with this message in it.
	Chain Chain
	// Escalated is the exchange between the two agents that has come to its limit
	// and that no person has settled, empty where there is none.
	Escalated string
	// ExpiresAfter, when above zero, is for how long an exchange that begins may
	// go on, whatever its envelope says.
	ExpiresAfter time.Duration
	// Owed is what the receiver owed the sender before this message.
	Owed Owed
	// Content is the text, Passages are the message's other strings, and Rules is
	// what both are judged by.
	Content  string
	Passages []Passage
	Rules    *Rules
	// Approved is set where a person of this daemon has let the message through
	// on the sender's side.
	Approved bool
}

// arrival weighs one rule on the receiver's side, as [step] does on the
// sender's.
type arrival func(ctx context.Context, m *Incoming, policy Policy, v *Verdict)

// incoming lists the receiver's rules in the order the protocol fixes.
var incoming = [...]arrival{
	tenantWallInbound,
	sourceInbound,
	expiryInbound,
	acceptsInbound,
	askPolicyInbound,
	replayInbound,
	roundsInbound,
	chainInbound,
	promisesInbound,
}

// Receive weighs a message that arrives. The receiver decides for itself and
// trusts the envelope for nothing that its own directory and state can tell.
func Receive(ctx context.Context, m Incoming, policy Policy) Verdict {
	v := Verdict{Level: m.Envelope.Classification, Before: m.Exchange, Exchange: m.Exchange, Envelope: m.Envelope}
	for _, weigh := range incoming {
		weigh(ctx, &m, policy, &v)
		if v.Result != "" {
			return v
		}
	}
	v.Result = Allow
	v.Exchange = m.after(v.Exchange)
	v.Exchange.Awaiting, v.Exchange.Approved, v.Exchange.Chain = m.Envelope.ReplyPolicy, false, v.Chain
	v.Exchange.Level = v.Level
	if v.Exchange.Round > v.Exchange.MaxRounds {
		v.Exchange.Outcome = Escalated
	}
	return v
}

// after returns the exchange with the message in it. An envelope can move the
// round forward, never back.
func (m *Incoming) after(e Exchange) Exchange {
	e.Round = max(e.Round, m.Envelope.ExchangeRound-1)
	return e.advance(m.Now, m.Envelope.SourceAgent.InstanceID, m.Summary)
}

// closeNew ends an exchange that the message itself would open. One that is
// under way goes on: a refusal that rests on what an envelope claims must not
// let its writer end somebody else's exchange.
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

// sourceInbound refuses an envelope that names somebody else than the agent
// the directory has at the session it came through, or than the agent that the
// exchange is with.
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
	case v.Exchange.Outcome != InProgress:
		v.deny(ExchangeClosed, ruleExchange, fmt.Sprintf("exchange %s is %s", v.Exchange.ID, v.Exchange.Outcome))
	}
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

// askPolicyInbound asks with source and target as the message travels, so the
// receiver's policy sees the sender as source.
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
	}, policy, person, v)
	v.Exchange.MaxRounds = lowest(v.Exchange.MaxRounds, m.Envelope.MaxRounds, answer.MaxRounds, m.Receiver.MaxRounds)
}

// replayInbound refuses a round that has been.
func replayInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if known := m.Exchange.Round; known > 0 && m.Envelope.ExchangeRound <= known {
		v.deny(EnvelopeReplayed, ruleRounds, fmt.Sprintf(
			"envelope is round %d of exchange %s, which is at round %d already", m.Envelope.ExchangeRound, m.Exchange.ID, known))
	}
}

// roundsInbound stops an exchange that its sender has let run too long. A person
// who took it over there has the last word.
func roundsInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if after := m.after(v.Exchange); after.Round > after.MaxRounds && m.Envelope.MessageType != Human {
		escalateRounds(v, m.Now, after)
	}
}

// promisesInbound looks for what the sender asks the receiver to commit to, in
// the envelope's flag and the text. It holds nothing back: the agent may read
// it, and its answer is a person's to give.
func promisesInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	asked := m.Rules.promises(m.Content, v).RequiresHuman
	v.Exchange.AwaitsCommitment = asked || m.Envelope.RequiresCommitment
}
