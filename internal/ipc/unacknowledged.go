package ipc

import (
	"sync"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// unacknowledged are the messages that an app has and did not acknowledge.
type unacknowledged struct {
	mu sync.Mutex
	// messages are by the ids of their events. It is nil if the app acknowledges none: then each counts as
	// taken once the app has read it.
	messages map[string]gate.Recallable
}

// Acknowledges says whether the app acknowledges messages (api.Link).
func (u *unacknowledged) Acknowledges(does bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !does:
		u.messages = nil
	case u.messages == nil:
		u.messages = make(map[string]gate.Recallable)
	}
}

// Acknowledge takes the app's word about an event (api.Link).
func (u *unacknowledged) Acknowledge(eventID string) bool {
	u.mu.Lock()
	message, is := u.messages[eventID]
	delete(u.messages, eventID)
	u.mu.Unlock()
	if is {
		message.Taken()
	}
	return is
}

// follow returns the fate of an event in the queue of the connection.
func (u *unacknowledged) follow(eventID string, fate gate.Fate) gate.Fate {
	u.mu.Lock()
	defer u.mu.Unlock()
	message, is := fate.(gate.Recallable)
	if !is || u.messages == nil {
		return fate
	}
	u.messages[eventID] = message
	return &unread{message, eventID}
}

// forget forgets messages that were taken back from the queue, and returns them.
func (u *unacknowledged) forget(back []gate.Recallable) []gate.Recallable {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, message := range back {
		if m, is := message.(*unread); is {
			delete(u.messages, m.eventID)
			back[i] = m.Recallable
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
