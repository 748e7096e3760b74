package ocip

import (
	"context"
	"fmt"
	"time"
)

// PeopleRules are what holds towards counterparties that are no agents. The zero
// value holds nothing back.
type PeopleRules struct {
	// Commitments holds messages that promise something.
	Commitments bool
	// Policy has the policy asked.
	Policy bool
	// FirstContact is what becomes of the first message to a counterparty.
	FirstContact FirstContact
	// MaxMessages, when above zero, is how many messages a session may take within
	// the Window; those beyond it are held.
	MaxMessages int
	Window      time.Duration
}

// FirstContact says what becomes of the first message to a counterparty.
type FirstContact string

// The three answers to a first message. None given allows it.
const (
	ContactAllow FirstContact = "allow"
	ContactHold  FirstContact = "hold"
	ContactDeny  FirstContact = "deny"
)

// LookAlike says what becomes of a message to a key that imitates a known one.
type LookAlike string

// The three answers to a look-alike. None given holds it.
const (
	LookAlikeHold  LookAlike = "hold"
	LookAlikeDeny  LookAlike = "deny"
	LookAlikeAllow LookAlike = "allow"
)

// Towards returns what holds towards a counterparty of a kind. Nothing of it is for
// agents and owners.
func (r *Rules) Towards(kind Kind) PeopleRules {
	switch {
	case r == nil:
	case kind == KindUnknown:
		return r.Unknown
	case kind == KindPerson:
		return r.Person
	}
	return PeopleRules{}
}

// contact returns what bounds messages to the counterparty as such, whatever they say.
func (m *Outgoing) contact() PeopleRules {
	if m.Unconfirmed {
		return m.Rules.Towards(KindUnknown)
	}
	return m.Rules.Towards(m.To.Kind)
}

// lookAlike weighs a session key that imitates a known one. A person who has looked
// can let the message go, unless the configuration denies it.
func lookAlike(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.LooksLike == "" {
		return
	}
	answer := LookAlikeHold
	if m.Rules != nil && m.Rules.LookAlike != "" {
		answer = m.Rules.LookAlike
	}
	reason := fmt.Sprintf("the session key is not that of %s in the directory, but reads like it", m.LooksLike)
	switch {
	case answer == LookAlikeAllow:
		v.Detections = append(v.Detections, Detection{Rule: "contact.look-alike", Shadow: true})
		return
	case answer == LookAlikeDeny:
		v.deny(LooksLikeKnown, ruleContact, reason)
		v.Exchange = v.Exchange.close(m.Now, Denied)
	case m.Person == Nobody:
		v.escalate(LooksLikeKnown, ruleContact, reason+"; a person has to say whether it is meant")
		v.Exchange = v.Exchange.close(m.Now, Escalated)
	default:
		return
	}
	v.Details = map[string]any{"looksLike": m.LooksLike}
}

// firstContact weighs the first message to somebody who is no agent.
func firstContact(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if !m.First {
		return
	}
	const first = "nobody has written to this counterparty before"
	switch m.contact().FirstContact {
	case ContactHold:
		if m.Person == Nobody {
			v.escalate(FirstContactHeld, ruleContact, first+"; a person has to let the first message go")
		}
	case ContactDeny:
		v.deny(FirstContactHeld, ruleContact, first+", and first messages are denied here; name it in the directory")
	case ContactAllow:
	}
}

// budget holds what is more than the agent may send in an hour, or a session with
// a person may take. It comes last: what is wrong with a message is told before
// that there are many.
func budget(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.Person != Nobody {
		return
	}
	people := m.contact()
	spent, limit, window, whose := m.SpentHour, m.Sender.MaxPerHour, time.Hour, "agent "+m.Sender.ID
	if limit <= 0 || spent < limit {
		spent, limit, window, whose = m.Spent, people.MaxMessages, people.Window, "this session"
	}
	if limit <= 0 || spent < limit {
		return
	}
	v.escalate(BudgetExceeded, ruleBudget, fmt.Sprintf("%s has had %d messages within %s, the limit is %d", whose, spent, window, limit))
	v.Details = map[string]any{"spent": spent, "limit": limit, "window": window.String()}
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}
