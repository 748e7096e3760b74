package ocip

import (
	"fmt"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Grant is a person's approval given beforehand: messages may contain some commitments, within
// bounds. It replaces only the question that a commitment in a text would raise. All other rules
// apply as without it: the question that a message answers, the request of its exchange, policies,
// rounds, chains and budgets.
type Grant struct {
	ID string
	// Words are the names of the covered findings: keywords and families of cues.
	Words []string
	// Level is the highest level of a message.
	Level Level
	// Rounds is the last round of the exchange that the grant covers, zero if it is bound to no
	// exchange.
	Rounds int
	// Until is the end of the grant.
	Until time.Time
	// People is the number of people who have given the grant.
	People int
	// Standing grants cover any exchange between two ends, but only keywords.
	Standing bool
}

// Grantable reports whether a person can approve beforehand the findings of a rule. Only the listed
// ones are grantable. An acceptance, a sum, a pledge or a completed deed binds by the question that
// it answers or by its amount, which nobody knows beforehand. A new family has to be considered
// first.
func Grantable(name string) bool {
	return slices.Contains(commitment.Keywords(), name) ||
		slices.Contains([]string{commitment.FirstPersonFuture, commitment.NextStep, commitment.Prefixed, commitment.Derived}, name)
}

// Keywords lists the thirteen keywords, sorted.
func Keywords() []string { return commitment.Keywords() }

// AllGrantable lists the findings that a person can approve beforehand.
func AllGrantable() []string {
	all := append(commitment.Keywords(), commitment.Families()...)
	all = slices.DeleteFunc(all, func(name string) bool { return !Grantable(name) || name == commitment.NextStep })
	slices.Sort(all)
	return all
}

// neverGranted reports whether no grant covers a family, not even in shadow mode: the person who
// gave the grant did not mean it.
func neverGranted(name string) bool {
	return slices.Contains([]string{commitment.Acceptance, commitment.Money, commitment.Pledge, commitment.Done}, name)
}

// Granted reports whether a person can approve all findings in a text beforehand, and names them.
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

// covers reports whether the grant covers a message with these findings.
func (g *Grant) covers(hits []commitment.Hit, level Level, round int, now time.Time, needed int) bool {
	if level > g.Level || !now.Before(g.Until) || needed > g.People || g.Rounds > 0 && round > g.Rounds {
		return false
	}
	if g.Standing && slices.ContainsFunc(hits, func(h commitment.Hit) bool { return !h.Shadow && h.Rule != commitment.RuleKeyword }) {
		return false
	}
	return !slices.ContainsFunc(hits, func(h commitment.Hit) bool { return !h.Shadow && !g.lists(&h) })
}

// lists reports whether a grant names a finding. A grant for a deed includes its noun: a grant of
// reserve also covers "reservation".
func (g *Grant) lists(h *commitment.Hit) bool {
	return slices.Contains(g.Words, h.Name()) || h.Rule == commitment.Derived && slices.Contains(g.Words, h.Keyword)
}

// granted returns the first grant that covers a message, or nil.
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

// asWas reports whether a message keeps the reply policy of its exchange's type. A grant
// does not cover a message that only a person may answer.
func (m *Outgoing) asWas(v *Verdict) bool {
	policy := v.Exchange.Type.ReplyPolicy()
	return policy.tighten(m.ReplyPolicy) == policy
}

// offer enters into a verdict the grant that a person who approves the message could give for its
// whole exchange, or the reason that there is none.
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
