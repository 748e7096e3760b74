package exchange

import "github.com/openclawos/ocipd/internal/ocip"

// Words remembers how the last messages of an agent's sessions ended, as far as the
// words of the next depend on it: whether it was asked something there, and what it
// said last, for a commitment can be said in two halves. It is kept nowhere else.
type Words struct {
	known *cache[sessionRef, ocip.Before]
}

func newWords() Words {
	return Words{newCache[sessionRef, ocip.Before](rememberedExchanges)}
}

// Before returns what went before an agent's next message in a session.
func (w Words) Before(agent, session string) ocip.Before {
	before, _ := w.known.get(sessionRef{agent, session})
	return before
}

// Heard remembers a message that came in for an agent.
func (w Words) Heard(agent, session, content string) {
	w.known.add(sessionRef{agent, session}, ocip.Heard(w.Before(agent, session), content))
}

// Said remembers a message that an agent has sent.
func (w Words) Said(agent, session, content string) {
	w.known.add(sessionRef{agent, session}, ocip.Said(w.Before(agent, session), content))
}
