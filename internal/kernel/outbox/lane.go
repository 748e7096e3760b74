package outbox

import (
	"slices"
	"sync"
)

// lane is one queue on its way to one app.
type lane struct {
	queue string
	to    Receiver

	mu sync.Mutex
	// sent is the last message handed to the connection, tail the last one
	// that is durable.
	sent, tail int64
	// behind is set while messages must be read back from the store, because
	// some are waiting there that come before any new one.
	behind, draining bool
	// buffer is for the next event, which a connection copies.
	buffer []byte

	// passed are the messages that a pause kept back, in their order. Those behind
	// them go on, and from then on are taken out of the store apart: what came before
	// them is not with its receiver.
	passed []int64
	apart  bool
	// looks counts the looks back at what was passed. While there is one, back is
	// how far it has come, at the place in passed, and still what is kept back still.
	looks   int
	looking bool
	back    int64
	at      int
	still   []int64
}

// keepBuffer is the largest buffer that is kept.
const keepBuffer = 16 << 10

// keepBackLocked passes a message over.
func (l *lane) keepBackLocked(id int64) {
	l.passed = append(l.passed, id)
	l.apart = true
}

// lookLocked begins a look back at what was passed, or begins it anew.
func (l *lane) lookLocked() {
	l.passed = append(l.still, l.passed[l.at:]...)
	l.still, l.at = nil, 0
	if l.looking = len(l.passed) > 0; l.looking {
		l.looks++
		l.back, l.behind = l.passed[0]-1, true
	}
}

// lookedLocked ends a look back: what it did not meet is no longer in the store.
func (l *lane) lookedLocked() {
	l.passed, l.still, l.at, l.looking = l.still, nil, 0, false
}

// metLocked reports whether a look back has come to a message that was passed.
func (l *lane) metLocked(id int64) bool {
	for l.at < len(l.passed) && l.passed[l.at] < id {
		l.at++
	}
	return l.at < len(l.passed) && l.passed[l.at] == id
}

// holdsLocked reports whether a message is kept back.
func (l *lane) holdsLocked(id int64) bool {
	_, here := slices.BinarySearch(l.passed[l.at:], id)
	_, still := slices.BinarySearch(l.still, id)
	return here || still
}

// progress is where a lane reads on: after which message, whether and in which look
// back, and the last message that was durable before the store is asked.
type progress struct {
	after     int64
	looking   bool
	looks     int
	announced int64
}

func (l *lane) progress() progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := progress{after: l.sent, looking: l.looking, looks: l.looks, announced: l.tail}
	if l.looking {
		p.after = l.back
	}
	return p
}
