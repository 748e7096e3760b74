package measure

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Acts counts people's decisions in conversations.
type Acts struct {
	Exchanges int `json:"exchanges"`
	Messages  int `json:"messages"`
	// Asked is the number of held messages if each is decided by itself: those that their
	// own words hold, and answers to such messages.
	Asked int `json:"asked"`
	// Least is the number of decisions if the first one of each side's person covers the
	// rest of that side's exchange. No approval of exchanges can need fewer.
	Least int `json:"least"`
	// Within is the number of decisions if a person who approves a message also approves
	// the words of the rest of the exchange, if that is possible.
	Within []Within `json:"within"`
}

// Within is the result for approvals that last a number of rounds; 0 means the whole exchange.
type Within struct {
	Rounds int `json:"rounds"`
	Asked  int `json:"asked"`
	// Ticked is the number if the person selects all words that can be approved beforehand,
	// not only those of the message.
	Ticked int `json:"ticked"`
}

// CountActs plays through the exchanges in texts. It ignores texts outside exchanges.
func CountActs(seen []Seen, rounds ...int) Acts {
	exchanges := map[string][]*Seen{}
	for i := range seen {
		if s := &seen[i]; s.Exchange != "" {
			exchanges[s.Exchange] = append(exchanges[s.Exchange], s)
		}
	}
	a := Acts{Exchanges: len(exchanges)}
	for _, messages := range exchanges {
		slices.SortFunc(messages, func(a, b *Seen) int { return a.Turn - b.Turn })
		a.Messages += len(messages)
		asked, least := play(messages, nil)
		a.Asked, a.Least = a.Asked+asked, a.Least+least
	}
	for _, n := range rounds {
		w := Within{Rounds: n}
		for _, messages := range exchanges {
			asked, _ := play(messages, &approvals{rounds: n, given: map[string][]approval{}})
			ticked, _ := play(messages, &approvals{rounds: n, given: map[string][]approval{}, words: ocip.AllGrantable()})
			w.Asked, w.Ticked = w.Asked+asked, w.Ticked+ticked
		}
		a.Within = append(a.Within, w)
	}
	return a
}

// play counts the decisions in an exchange, and the people who make any. A message waits
// for the sender's person if its words hold it, or if it answers a held message. Words
// that a side's person approved for the rest of the exchange need no decision on that side.
func play(messages []*Seen, given *approvals) (asked, people int) {
	owes := map[string]bool{}
	sides, decided := map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		sides[m.From] = true
	}
	for round, m := range messages {
		if owes[m.From] || m.Held && !given.cover(m.From, m, round) {
			asked++
			decided[m.From] = true
			given.approve(m, round)
		}
		delete(owes, m.From)
		for side := range sides {
			if side != m.From && m.Held && !given.cover(side, m, round) {
				owes[side] = true
			}
		}
	}
	return asked, len(decided)
}

// approvals are approved words for the rest of an exchange, by side. nil has none.
type approvals struct {
	rounds int
	given  map[string][]approval
	// words are approved in addition to those of the message.
	words []string
}

type approval struct {
	words []string
	last  int
}

// approve records the sender's person's approval of a message's words for the rest of the
// exchange, if that is possible.
func (a *approvals) approve(m *Seen, round int) {
	if a != nil && m.Held && m.Grantable {
		a.given[m.From] = append(a.given[m.From], approval{slices.Concat(m.Names, a.words), round + a.rounds})
	}
}

func (a *approvals) cover(side string, m *Seen, round int) bool {
	return a != nil && m.Grantable && slices.ContainsFunc(a.given[side], func(one approval) bool {
		return (a.rounds == 0 || round <= one.last) && !slices.ContainsFunc(m.Names, func(name string) bool { return !slices.Contains(one.words, name) })
	})
}
