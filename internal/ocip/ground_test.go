package ocip

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// holding is one rule that can hold a message, in the order of the rules.
type holding struct {
	name   string
	change func(*Outgoing, *PolicyAnswer)
	code   Code
	reason string // a part
	// found is the rule of a finding that is shown with it.
	found string
}

func holdings() []holding {
	return []holding{
		{"policy", func(_ *Outgoing, p *PolicyAnswer) { p.RequireApproval, p.Reason = true, "ask first" }, PolicyRequiresApproval, "ask first", ""},
		{"look-alike", func(m *Outgoing, _ *PolicyAnswer) { m.LooksLike = "telegram:rival" }, LooksLikeKnown, "telegram:rival", ""},
		{"first contact", func(m *Outgoing, _ *PolicyAnswer) { m.First = true }, FirstContactHeld, "nobody has written", ""},
		{"only a person may answer", func(m *Outgoing, _ *PolicyAnswer) { m.Exchange.Awaiting = HumanOnly }, CommitmentRequiresHuman, "only a person may answer", ""},
		{"a debt of another exchange", func(m *Outgoing, _ *PolicyAnswer) {
			m.Owed = Owed{ReplyPolicy: NoReplyNeeded, ConversationID: "conv-other"}
		}, ReplyNotExpected, "wanted no reply", ""},
		{"type of the exchange", func(m *Outgoing, _ *PolicyAnswer) { m.Exchange.Type = CommitmentRequest }, CommitmentRequiresHuman, "asks for a commitment", ""},
		{"sender asks", func(m *Outgoing, _ *PolicyAnswer) { m.AskPerson = true }, CommitmentRequiresHuman, "its sender asks", ""},
		{"keyword", func(m *Outgoing, _ *PolicyAnswer) { m.Content += "I promise the review. " }, CommitmentRequiresHuman, "commitment keywords: promise", "commitment.promise"},
		{"money", func(m *Outgoing, _ *PolicyAnswer) { m.Content += "We will pay 500 EUR for it. " }, CommitmentRequiresHuman, "commitment cues: ", "commitment.money"},
		{"deadline", func(m *Outgoing, _ *PolicyAnswer) { m.Content += "I will send you the contract by Friday. " }, CommitmentRequiresHuman, "commitment cues: ", "commitment.first-person-future"},
		{"rounds", func(m *Outgoing, _ *PolicyAnswer) { m.Exchange.Round = 3 }, RoundLimit, "round limit (3)", ""},
		{"another exchange's rounds", func(m *Outgoing, _ *PolicyAnswer) { m.Escalated = "exch-old" }, RoundLimit, "exch-old", ""},
		{"chain", func(m *Outgoing, _ *PolicyAnswer) {
			m.Cause = Chain{ID: "d-0", Hops: 3, Path: []string{"x"}, StartedAt: Time{m.Now}}
		}, ChainLimit, "d-0", ""},
		{"messages of the agent in an hour", func(m *Outgoing, _ *PolicyAnswer) { m.Sender.MaxPerHour, m.SpentHour = 5, 5 }, BudgetExceeded, "agent alice has had 5", ""},
		{"messages in the session", func(m *Outgoing, _ *PolicyAnswer) { m.Spent = 2 }, BudgetExceeded, "this session has had 2", ""},
	}
}

// sameAct lists pairs of rules of which the exchange's or the agents' own state names one at a time.
func sameAct(a, b string) bool {
	of := func(one string) string {
		switch one {
		case "only a person may answer", "a debt of another exchange", "type of the exchange":
			return "what is owed"
		case "rounds", "another exchange's rounds":
			return "rounds"
		}
		return one
	}
	return of(a) == of(b)
}

func heldBy(t *testing.T, rules ...*holding) *Verdict {
	t.Helper()
	m, policy := question(), agree
	m.Content, m.Unconfirmed, m.Rules = "", true, detectors(t)
	m.Rules.Chain = ChainLimits{MaxHops: 3}
	m.Rules.Unknown = PeopleRules{FirstContact: ContactHold, MaxMessages: 2, Window: time.Hour}
	for _, r := range rules {
		r.change(&m, &policy)
	}
	return Decide(t.Context(), &m, cached{policy})
}

// Whichever rule holds a message, all others have looked: the verdict names the grounds of each pair
// of rules, and what was found in the text.
func TestEveryGroundIsNamed(t *testing.T) {
	all := holdings()
	for i := range all {
		for j := i; j < len(all); j++ {
			a, b := &all[i], &all[j]
			if i != j && sameAct(a.name, b.name) {
				continue
			}
			v := heldBy(t, a, b)
			if v.Result != RequireApproval || v.Code != a.code {
				t.Fatalf("%s and %s: got %s %s (%s)", a.name, b.name, v.Result, v.Code, v.Reason)
			}
			for _, r := range []*holding{a, b} {
				if !slices.ContainsFunc(v.Grounds, func(g Ground) bool { return g.Code == r.code && strings.Contains(g.Reason, r.reason) }) || !v.HeldFor(r.code) || !strings.Contains(v.Reasons(), r.reason) {
					t.Errorf("%s and %s: %s is not among %+v", a.name, b.name, r.name, v.Grounds)
				}
				if r.found != "" && !slices.ContainsFunc(v.Detections, func(d Detection) bool { return d.Rule == r.found }) {
					t.Errorf("%s and %s: %s is not among %+v", a.name, b.name, r.found, v.Detections)
				}
			}
			if !slices.IsSortedFunc(v.Grounds, func(a, b Ground) int { return a.place() - b.place() }) {
				t.Errorf("%s and %s: not the likeliest first: %+v", a.name, b.name, v.Grounds)
			}
		}
	}
}

// A ground by guess comes first if it is likely and last if it is not, and has its likelihood.
func TestGroundsLikeliestFirst(t *testing.T) {
	all := holdings()
	first := &all[2]
	likely := heldBy(t, first, &holding{change: func(m *Outgoing, _ *PolicyAnswer) { m.Content = "Deal, I promise to pay you 500 EUR by Friday." }})
	if codes := likely.Codes(); !slices.Equal(codes, []Code{CommitmentRequiresHuman, FirstContactHeld}) || likely.Code != FirstContactHeld || likely.Guess().Likelihood != "high" {
		t.Errorf("got %v, %+v", codes, likely.Guess())
	}
	unlikely := heldBy(t, first, &holding{change: func(m *Outgoing, _ *PolicyAnswer) { m.Content = `{"status": "commit 4711", "done": true}` }})
	if codes := unlikely.Codes(); !slices.Equal(codes, []Code{FirstContactHeld, CommitmentRequiresHuman}) || unlikely.Guess().Likelihood != "low" {
		t.Errorf("got %v, %+v", codes, unlikely.Guess())
	}
	// Nobody guesses about a commitment that is certain.
	if v := heldBy(t, &all[3], &all[7]); v.Guess() != (Guess{}) || len(v.Grounds) != 2 {
		t.Errorf("got %+v", v.Grounds)
	}
}

// A rule that denies the message is no ground to hold it: nobody can approve, and an earlier rule
// that holds it still names what else was found. A denial has no grounds.
func TestDenialIsNoGround(t *testing.T) {
	all := holdings()
	denied := holding{change: func(m *Outgoing, _ *PolicyAnswer) {
		m.Rules.Unknown.FirstContact, m.First = ContactDeny, true
	}}
	if v := heldBy(t, &all[0], &denied, &all[7]); !slices.Equal(v.Codes(), []Code{CommitmentRequiresHuman, PolicyRequiresApproval}) {
		t.Errorf("got %+v", v.Grounds)
	}
	above := holding{change: func(m *Outgoing, _ *PolicyAnswer) { m.Content += "My token is " + secret }}
	if v := heldBy(t, &all[7], &above); v.Result != Deny || v.Code != ClassificationViolation || v.Grounds != nil {
		t.Errorf("got %s %s, %+v", v.Result, v.Code, v.Grounds)
	}
	v := heldBy(t, &all[0])
	if v.DenyTooManyPending("100 wait"); v.Grounds != nil || v.Reasons() != "100 wait" {
		t.Errorf("got %+v", v)
	}
}
