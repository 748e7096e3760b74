package ocip

import "github.com/openclawos/ocipd/internal/ocip/commitment"

// Before is the part of the earlier conversation that the meaning of a message depends on.
type Before = commitment.Before

// Heard returns the Before of an agent's next message after the agent has received a text.
func Heard(before Before, content string) Before {
	before.Asked = commitment.Asks(content)
	return before
}

// Said returns the Before of an agent's next message after the agent has sent one.
func Said(before Before, content string) Before {
	return Before{Tail: commitment.Tail(before.Tail, content)}
}

// before returns the Before of the message. A question from the other agent is kept with their
// exchange.
func (m *Outgoing) before(v *Verdict) Before {
	before := m.Before
	before.Asked = before.Asked || m.To.Kind == KindAgent && v.Exchange.Awaiting != "" && v.Exchange.Asks
	return before
}
