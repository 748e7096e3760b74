package ipc

import (
	"sync"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// owed are the messages that an app has and did not acknowledge.
type owed struct {
	mu sync.Mutex
	// messages are by the ids of their events. It is nil if the app acknowledges none: then each counts as
	// taken once the app has read it.
	messages map[string]gate.Recallable
}

// Acknowledges says whether the app acknowledges messages (api.Link).
func (o *owed) Acknowledges(does bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !does:
		o.messages = nil
	case o.messages == nil:
		o.messages = make(map[string]gate.Recallable)
	}
}

// Acknowledge takes the app's word about an event (api.Link).
func (o *owed) Acknowledge(eventID string) bool {
	o.mu.Lock()
	message, is := o.messages[eventID]
	delete(o.messages, eventID)
	o.mu.Unlock()
	if is {
		message.Taken()
	}
	return is
}

// follow returns the fate of an event in the queue of the connection.
func (o *owed) follow(eventID string, fate gate.Fate) gate.Fate {
	o.mu.Lock()
	defer o.mu.Unlock()
	message, is := fate.(gate.Recallable)
	if !is || o.messages == nil {
		return fate
	}
	o.messages[eventID] = message
	return &unread{message, eventID}
}

// forget forgets messages that were taken back from the queue, and returns them.
func (o *owed) forget(back []gate.Recallable) []gate.Recallable {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, message := range back {
		if u, is := message.(*unread); is {
			delete(o.messages, u.eventID)
			back[i] = u.Recallable
		}
	}
	return back
}

// unread is a message that has to be acknowledged, in the queue of the connection.
type unread struct {
	gate.Recallable
	eventID string
}

// Taken does nothing: the app has read the message, and has to acknowledge it.
func (*unread) Taken() {}

// Recall takes back queued messages (api.Line).
func (c *conn) Recall() (back []gate.Recallable, ended bool) {
	back, ended = c.out.recall()
	return c.forget(back), ended
}
