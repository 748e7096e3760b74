package ocip

import (
	"fmt"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Grant is a person's word given beforehand: that messages may speak of some
// commitments, within bounds. It stands in for the question that a commitment in a
// text would ask, and for no other: what a message answers, what its exchange asks
// for, policies, rounds, chains and budgets are weighed as if there were none.
type Grant struct {
	ID string
	// Words are the names of what may be found: keywords and families of cues.
	Words []string
	// Level is the highest level of a message.
	Level Level
	// Rounds is the last round of the exchange that it is good for, zero where it is
	// bound to none.
	Rounds int
	// Until is when it ends.
	Until time.Time
	// People is how many people have given it.
	People int
	// Standing grants are good for any exchange between two ends, and for keywords
	// alone.
	Standing bool
}

// Grantable reports whether a person's word can be given beforehand for what a rule
// finds. Only for what is listed: an acceptance, a sum, a pledge or a deed that is done
// binds by what it answers or how much it is, which nobody knows beforehand, and a
// family that is new has to be thought about first.
func Grantable(name string) bool {
	return slices.Contains(commitment.Keywords(), name) ||
		slices.Contains([]string{commitment.FirstPersonFuture, commitment.NextStep, commitment.Prefixed, commitment.Derived}, name)
}

// Keywords lists the thirteen, sorted.
func Keywords() []string { return commitment.Keywords() }

// AllGrantable lists what a person's word can be given beforehand for.
func AllGrantable() []string {
	all := append(commitment.Keywords(), commitment.Families()...)
	all = slices.DeleteFunc(all, func(name string) bool { return !Grantable(name) || name == commitment.NextStep })
	slices.Sort(all)
	return all
}

// neverGranted are the families that no grant lets past, even where they are in
// the shadow: who gave it has not meant them.
func neverGranted(name string) bool {
	return slices.Contains([]string{commitment.Acceptance, commitment.Money, commitment.Pledge, commitment.Done}, name)
}

// Granted reports whether a person's word can be given beforehand for all that was
// found in a text, and names what that is.
func Granted(hits []commitment.Hit) (words []string, all bool) {
	all = true
	for _, h := range hits {
		name := h.Name()
		if neverGranted(name) && (!h.Shadow || h.Zone == commitment.ZoneBody) {
			all = false
		}
		if h.Shadow || slices.Contains(words, name) {
			continue
		}
		words = append(words, name)
		all = all && Grantable(name)
	}
	slices.Sort(words)
	return words, all && len(words) > 0
}

// covers reports whether the grant is for a message in which these words were found.
func (g *Grant) covers(hits []commitment.Hit, level Level, round int, now time.Time, needed int) bool {
	if level > g.Level || !now.Before(g.Until) || needed > g.People || g.Rounds > 0 && round > g.Rounds {
		return false
	}
	if g.Standing && slices.ContainsFunc(hits, func(h commitment.Hit) bool { return !h.Shadow && h.Rule != commitment.RuleKeyword }) {
		return false
	}
	return !slices.ContainsFunc(hits, func(h commitment.Hit) bool { return !h.Shadow && !g.lists(&h) })
}

// lists reports whether a grant is for what was found. Who may speak of a deed may use
// its noun: a grant of reserve is good for "reservation".
func (g *Grant) lists(h *commitment.Hit) bool {
	return slices.Contains(g.Words, h.Name()) || h.Rule == commitment.Derived && slices.Contains(g.Words, h.Keyword)
}

// granted returns the first grant that is for a message, nil where none is.
func granted(grants []Grant, texts []Passage, hits []commitment.Hit, level Level, round int, now time.Time, needed int) *Grant {
	if len(grants) == 0 || OfMoney(texts) {
		return nil
	}
	if _, all := Granted(hits); !all {
		return nil
	}
	for i := range grants {
		if grants[i].covers(hits, level, round, now, needed) {
			return &grants[i]
		}
	}
	return nil
}

// asWas reports whether a message leaves the answer to whom the type of its exchange
// does: one that is for a person alone was not what a person has approved beforehand.
func (m *Outgoing) asWas(v *Verdict) bool {
	policy := v.Exchange.Type.ReplyPolicy()
	return policy.tighten(m.ReplyPolicy) == policy
}

// offer enters into a verdict what a person who approves the message could approve of
// its whole exchange, or why that is nothing.
func (m *Outgoing) offer(hits []commitment.Hit, v *Verdict) {
	words, all := Granted(hits)
	switch {
	case m.To.Kind != KindAgent || m.Unconfirmed:
		v.NoOffer = "there is no exchange with a known agent"
	case v.Exchange.Awaiting == HumanOnly, v.Exchange.Type.ReplyPolicy() == HumanOnly, v.Owed.ReplyPolicy == HumanOnly:
		v.NoOffer = "only a person may answer here, each time"
	case v.Exchange.Type.RequiresCommitment():
		v.NoOffer = fmt.Sprintf("an exchange of type %s asks for a commitment with each message", v.Exchange.Type)
	case v.Exchange.Awaiting != "" && !m.Sender.CanAutoRespond:
		v.NoOffer = fmt.Sprintf("agent %s does not answer by itself", m.Sender.ID)
	case len(words) > 0 && (!all || OfMoney(m.texts)):
		v.NoOffer = "an acceptance, a sum of money and the like are approved one by one"
	case !m.asWas(v):
		v.NoOffer = "the message changes who may answer"
	case len(words) == 0:
		v.NoOffer = "nothing was found in the message that could be approved beforehand"
	case v.Exchange.Round+1 >= v.Exchange.MaxRounds:
		v.NoOffer = "this is the exchange's last round"
	default:
		v.Offer = &Grant{Words: words, Level: v.Level, Rounds: v.Exchange.MaxRounds, Until: v.Exchange.ExpiresAt}
	}
}
