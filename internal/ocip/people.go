package ocip

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// PeopleRules are the rules towards counterparties that are no agents. The zero value holds nothing
// back.
type PeopleRules struct {
	// Commitments holds messages that promise something.
	Commitments bool
	// Keywords is the treatment of messages that only keywords hold, empty for that of the rules.
	Keywords commitment.Mode
	// Policy makes the daemon ask the policy.
	Policy bool
	// FirstContact is the treatment of the first message to a counterparty.
	FirstContact FirstContact
	// MaxMessages, when above zero, bounds the messages that a session may take within the Window.
	// Further messages are held.
	MaxMessages int
	Window      time.Duration
}

// FirstContact is the treatment of the first message to a counterparty.
type FirstContact string

// The three treatments of a first message. An empty one allows it.
const (
	ContactAllow FirstContact = "allow"
	ContactHold  FirstContact = "hold"
	ContactDeny  FirstContact = "deny"
)

// LookAlike is the treatment of a message to a key that imitates a known one.
type LookAlike string

// The three treatments of a look-alike. An empty one holds it.
const (
	LookAlikeHold  LookAlike = "hold"
	LookAlikeDeny  LookAlike = "deny"
	LookAlikeAllow LookAlike = "allow"
)

// Towards returns the rules towards a counterparty of a kind. None of them applies to agents and
// owners.
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

// contact returns the limits on messages to the counterparty, whatever their texts.
func (m *Outgoing) contact() PeopleRules {
	if m.Unconfirmed {
		return m.Rules.Towards(KindUnknown)
	}
	return m.Rules.Towards(m.To.Kind)
}

// lookAlike weighs a session key that imitates a known one. A person can release the message after
// a look, unless the configuration denies it.
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
	case !m.Person.decided():
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
		if !m.Person.decided() {
			v.escalate(FirstContactHeld, ruleContact, first+"; a person has to let the first message go")
		}
	case ContactDeny:
		v.deny(FirstContactHeld, ruleContact, first+", and first messages are denied here; name it in the directory")
	case ContactAllow:
	}
}

// budget holds messages beyond the number that the agent may send in an hour, or that a session
// with a person may take. It comes last: a fault of the message itself is reported before the
// number.
func budget(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.Person.decided() {
		return
	}
	people := m.contact()
	var grounds []Ground
	for _, b := range [...]struct {
		whose        string
		spent, limit int
		window       time.Duration
	}{{"agent " + m.Sender.ID, m.SpentHour, m.Sender.MaxPerHour, time.Hour}, {"this session", m.Spent, people.MaxMessages, people.Window}} {
		if b.limit <= 0 || b.spent < b.limit {
			continue
		}
		if len(grounds) == 0 {
			v.Details = map[string]any{"spent": b.spent, "limit": b.limit, "window": b.window.String()}
		}
		grounds = append(grounds, Ground{Code: BudgetExceeded, Rule: ruleBudget, Reason: fmt.Sprintf("%s has had %d messages within %s, the limit is %d", b.whose, b.spent, b.window, b.limit)})
	}
	if len(grounds) == 0 {
		return
	}
	v.hold(grounds...)
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}
