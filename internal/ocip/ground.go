package ocip

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Ground is one reason for which a rule holds a message for a person.
type Ground struct {
	Code   Code   `json:"code"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	Guess
	// Open is set if the rule rests on a guess about the words alone, which an operator's model may
	// overrule: cues, or keywords that were weighed, with nothing beside them that always holds.
	Open bool `json:"open,omitzero"`
}

// open reports whether a guess about the words alone holds the message. Weighed is the result for
// its keywords, nil if they were not weighed.
func (m *Outgoing) open(read *commitment.Reading, weighed *commitment.Weighed, v *Verdict) bool {
	return read != nil && !m.Files.Attached && len(m.Files.hits) == 0 && m.weighable(v) && read.Guessed(weighed != nil, m.Sender.Label)
}

// Guess estimates whether a message that is held for its words binds somebody, and says why. A rule
// that needs no guess has none.
type Guess struct {
	Likelihood    commitment.Likelihood `json:"likelihood,omitzero"`
	LikelyBecause string                `json:"likelyBecause,omitzero"`
	// Chance is the estimate in percent, 0 if there is none.
	Chance int `json:"chance,omitzero"`
}

// guess estimates whether the words of a message bind somebody.
func guess(read *commitment.Reading) Guess {
	if read == nil {
		return Guess{}
	}
	score := read.Score()
	return Guess{Likelihood: score.Likelihood(), LikelyBecause: commitment.JoinReasons(score.Reasons), Chance: score.Chance()}
}

// place orders grounds for people, the likeliest first: a commitment, the other rules, and a
// commitment that is unlikely.
func (g *Ground) place() int {
	switch {
	case g.Likelihood == commitment.Low:
		return 2
	case g.Code == CommitmentRequiresHuman:
		return 0
	}
	return 1
}

// hold sends the decision to a person for one or more grounds, of which the first one decides.
func (v *Verdict) hold(grounds ...Ground) {
	first := &grounds[0]
	v.Result, v.Code, v.Policy, v.Reason, v.Grounds = RequireApproval, first.Code, first.Rule, first.Reason, grounds
}

// further adds the grounds of the rules after the one that holds the message, so that a person who
// approves knows all of them. Before is the exchange before that rule. A rule that denies the
// message adds none: it is the reason why nobody can approve.
func (v *Verdict) further(ctx context.Context, m *Outgoing, policy Policy, before *Exchange, rest []step) {
	for _, weigh := range rest {
		w := *v
		w.Result, w.Details, w.Grounds = "", nil, nil
		w.Exchange.Outcome, w.Exchange.ForPerson = before.Outcome, before.ForPerson
		weigh(ctx, m, policy, &w)
		v.Detections = w.Detections
		if w.Result != RequireApproval {
			continue
		}
		v.Grounds = append(v.Grounds, w.Grounds...)
		for name, value := range w.Details {
			if v.Details == nil {
				v.Details = map[string]any{}
			}
			if _, said := v.Details[name]; !said {
				v.Details[name] = value
			}
		}
	}
	slices.SortStableFunc(v.Grounds, func(a, b Ground) int { return cmp.Compare(a.place(), b.place()) })
}

// HeldFor reports whether a code is among the grounds for which the message is held.
func (v *Verdict) HeldFor(code Code) bool {
	return slices.ContainsFunc(v.Grounds, func(g Ground) bool { return g.Code == code })
}

// Codes lists the codes of the grounds, each once, in their order.
func (v *Verdict) Codes() (list []Code) {
	for i := range v.Grounds {
		if code := v.Grounds[i].Code; !slices.Contains(list, code) {
			list = append(list, code)
		}
	}
	return list
}

// Reasons returns the reasons of all grounds in one text, and the verdict's reason if there are
// none.
func (v *Verdict) Reasons() string {
	if len(v.Grounds) < 2 {
		return v.Reason
	}
	reasons := make([]string, len(v.Grounds))
	for i := range v.Grounds {
		reasons[i] = v.Grounds[i].Reason
	}
	return strings.Join(reasons, "; ")
}

// Guess returns the guess by which the message is held. There is none if it is a commitment for
// certain.
func (v *Verdict) Guess() (guess Guess) {
	for i := range v.Grounds {
		switch g := &v.Grounds[i]; {
		case g.Likelihood != "":
			guess = g.Guess
		case g.Code == CommitmentRequiresHuman:
			return Guess{}
		}
	}
	return guess
}
