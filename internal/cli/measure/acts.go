package measure

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Acts counts the decisions that people are asked for in conversations.
type Acts struct {
	Exchanges int `json:"exchanges"`
	Messages  int `json:"messages"`
	// Asked is how many messages wait for a person when each is decided by
	// itself: those whose words hold them, and those that answer such a one.
	Asked int `json:"asked"`
	// Least is how many are left where the first decision of each side's person stands
	// for all that the side does in the exchange: fewer no approval of exchanges can ask.
	Least int `json:"least"`
	// Within is how many decisions are left when a person who approves a message
	// approves with it what the rest of the exchange may say, where that can be.
	Within []Within `json:"within"`
}

// Within is a number of rounds that such an approval is good for, 0 for all of the
// exchange, and what is left.
type Within struct {
	Rounds int `json:"rounds"`
	Asked  int `json:"asked"`
	// Ticked is what is left where the person ticks all words that can be approved
	// beforehand, and not only those of the message.
	Ticked int `json:"ticked"`
}

// CountActs plays the exchanges of texts that were looked at. Texts that are in
// no exchange are left out.
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

// play counts the decisions that an exchange takes, and the people who take any. A message waits for the person
// of its sender where its words hold it, or where the sender owes an answer to words
// that would hold them. The person of either side may have approved some words for
// the rest of the exchange: then they are no question there.
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

// approvals are what people have approved for the rest of an exchange, by the side
// whose person it was. There are none in nil.
type approvals struct {
	rounds int
	given  map[string][]approval
	// words are those that each is for, beside what the message has.
	words []string
}

type approval struct {
	words []string
	last  int
}

// approve has the sender's person approve a message's words for the rest of the
// exchange, where that can be.
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
