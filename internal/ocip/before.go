package ocip

import "github.com/openclawos/ocipd/internal/ocip/commitment"

// Before is what went before a message, as far as its words depend on it.
type Before = commitment.Before

// Heard returns what went before the next message of an agent once it was told
// something.
func Heard(before Before, content string) Before {
	before.Asked = commitment.Asks(content)
	return before
}

// Said returns what went before the next message of an agent once it has sent one.
func Said(before Before, content string) Before {
	return Before{Tail: commitment.Tail(before.Tail, content)}
}

// before returns what went before the message: a question of the other agent's is
// kept with their exchange.
func (m *Outgoing) before(v *Verdict) Before {
	before := m.Before
	before.Asked = before.Asked || m.To.Kind == KindAgent && v.Exchange.Awaiting != "" && v.Exchange.Asks
	return before
}
