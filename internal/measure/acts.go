package measure

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Acts counts the decisions that people are asked for in conversations.
type Acts struct {
	Exchanges int `json:"exchanges"`
	Messages  int `json:"messages"`
	// Asked is how many messages wait for a person when each is decided by
	// itself: those whose words hold them, and those that answer such a one.
	Asked int `json:"asked"`
	// Within is how many decisions are left when a person who approves a message
	// approves its exchange, for this sender, this message's words and so many
	// rounds.
	Within []Within `json:"within"`
}

// Within is a number of rounds, 0 for all of the exchange, and what is left.
type Within struct {
	Rounds int `json:"rounds"`
	Asked  int `json:"asked"`
	// AskedOnce is what is left where the approval also stands for answers to a
	// message that is held.
	AskedOnce int `json:"askedOnce"`
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
	for _, s := range Answering(seen) {
		if s.Exchange != "" && s.Held {
			a.Asked++
		}
	}
	for _, messages := range exchanges {
		slices.SortFunc(messages, func(a, b *Seen) int { return a.Turn - b.Turn })
		a.Messages += len(messages)
	}
	for _, n := range rounds {
		w := Within{Rounds: n}
		for _, messages := range exchanges {
			w.Asked += approving(messages, n, false)
			w.AskedOnce += approving(messages, n, true)
		}
		a.Within = append(a.Within, w)
	}
	return a
}

// approving counts the decisions where each approval that may stand for the
// exchange does. An acceptance and a sum of money are decided one by one, and
// an answer to a message that is held, unless answers are spared too.
func approving(messages []*Seen, rounds int, answers bool) (asked int) {
	type approval struct {
		words []string
		last  int
	}
	held := map[string]bool{}
	inForce := map[string][]approval{}
	for i, m := range messages {
		held[m.ID] = m.Held
		answer := held[m.Answers]
		if !m.Held && !answer {
			continue
		}
		single := answer && !answers || slices.Contains(m.Names, commitment.Acceptance) || slices.Contains(m.Names, commitment.Money)
		covered := !single && slices.ContainsFunc(inForce[m.From], func(a approval) bool {
			return (rounds == 0 || i <= a.last) && !slices.ContainsFunc(m.Names, func(name string) bool { return !slices.Contains(a.words, name) })
		})
		if covered {
			continue
		}
		asked++
		if !single {
			inForce[m.From] = append(inForce[m.From], approval{m.Names, i + rounds})
		}
	}
	return asked
}
