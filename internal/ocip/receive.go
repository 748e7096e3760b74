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
}

// Receive weighs a message that arrives. The receiver decides for itself and
// trusts the envelope for nothing that its own directory and state can tell.
func Receive(ctx context.Context, m Incoming, policy Policy) Verdict {
	v := Verdict{Level: m.Envelope.Classification, Exchange: m.Exchange, Envelope: m.Envelope}
	for _, weigh := range incoming {
		weigh(ctx, &m, policy, &v)
		if v.Result != "" {
			return v
		}
	}
	v.Result = Allow
	v.Exchange.MaxRounds = lowest(v.Exchange.MaxRounds, m.Envelope.MaxRounds)
	v.Exchange.Round = max(v.Exchange.Round, m.Envelope.ExchangeRound-1)
	v.Exchange = v.Exchange.advance(m.Now, m.Envelope.SourceAgent.InstanceID, m.Summary)
	v.Exchange.Level = v.Level
	return v
}

func tenantWallInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if !m.Envelope.SourceAgent.SameTenant(m.Receiver.Identity) {
		v.deny(CrossEnterpriseBlocked, ruleTenantWall, wallReason(m.Envelope.SourceAgent, m.Receiver.Identity))
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}

// sourceInbound refuses an envelope that names somebody else than the agent
// the directory has at the session it came through.
func sourceInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if m.Elsewhere {
		v.deny(SourceMismatch, ruleReceiver, fmt.Sprintf(
			"envelope names agent %s, but the directory does not have that agent at this session", m.Envelope.SourceAgent.InstanceID))
		v.Exchange = v.Exchange.close(m.Now, Denied)
		return
	}
	if m.From.Kind == KindAgent && m.From.Identity != m.Envelope.SourceAgent {
		v.deny(SourceMismatch, ruleReceiver, fmt.Sprintf(
			"envelope names agent %s of user %s, but the directory has agent %s of user %s at this session",
			m.Envelope.SourceAgent.InstanceID, m.Envelope.SourceAgent.UserID, m.From.InstanceID, m.From.UserID))
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}

func expiryInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	switch {
	case !m.Now.Before(m.Envelope.ExpiresAt.Time):
		v.deny(ExchangeExpired, ruleExchange, "envelope expired at "+m.Envelope.ExpiresAt.UTC().Format(timeLayout))
	case v.Exchange.ExpiredAt(m.Now):
		v.deny(ExchangeExpired, ruleExchange, fmt.Sprintf("exchange %s expired at %s", v.Exchange.ID, v.Exchange.ExpiresAt.UTC().Format(timeLayout)))
	case v.Exchange.Outcome != InProgress:
		v.deny(ExchangeClosed, ruleExchange, fmt.Sprintf("exchange %s is %s", v.Exchange.ID, v.Exchange.Outcome))
		return
	default:
		return
	}
	v.Exchange = v.Exchange.close(m.Now, Expired)
}

func acceptsInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	if !m.Receiver.CanReceiveQueries && m.Exchange.Round == 0 {
		v.deny(QueriesRefused, ruleReceiver, fmt.Sprintf("agent %s does not receive queries from other agents", m.Receiver.ID))
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}

// askPolicyInbound asks with source and target as the message travels, so the
// receiver's policy sees the sender as source.
func askPolicyInbound(ctx context.Context, m *Incoming, policy Policy, v *Verdict) {
	consult(ctx, PolicyInput{
		ExchangeType: v.Exchange.Type,
		Level:        v.Level,
		Source:       m.Envelope.SourceAgent,
		Target:       m.Receiver.Identity,
		Round:        m.Envelope.ExchangeRound,
	}, policy, v)
	if v.Result == Deny && v.Code == PolicyDenied {
		v.Exchange = v.Exchange.close(m.Now, Denied)
	}
}
