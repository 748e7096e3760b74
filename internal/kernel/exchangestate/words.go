package exchangestate

import "github.com/openclawos/ocipd/internal/ocip"

// Words remembers the ends of the last messages in an agent's sessions, because the detectors need
// them: a question that the agent was asked, and its own last words, since a commitment can be
// split over two messages. It is only in memory.
type Words struct {
	known *cache[sessionRef, ocip.Before]
}

func newWords() Words {
	return Words{newCache[sessionRef, ocip.Before](rememberedExchanges)}
}

// Before returns the words before an agent's next message in a session.
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
