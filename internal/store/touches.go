package store

import (
	"maps"
	"sync"
	"time"
)

// touches collects writes that may become durable later: that a message has reached its receiver,
// and that a session was used. They ride on the next commit, or on one of their own soon after. A
// crash before that costs a second delivery of a message, under the same id, and never a message.
type touches struct {
	mu sync.Mutex
	// taken holds, by queue, the last message that its receiver has.
	taken    map[string]int64
	sessions map[string]touch
	// flying is the part that the current transaction writes.
	flyingTaken    map[string]int64
	flyingSessions map[string]touch
	lastSessions   time.Time
	rushing        bool
	armed          bool
}

type touch struct {
	at       time.Time
	messages int64
}

// add merges two touches. They may come out of order.
func (t touch) add(other touch) touch {
	if t.at.Before(other.at) {
		t.at = other.at
	}
	t.messages += other.messages
	return t
}

const (
	// flushAfter bounds how long a touch waits for a commit.
	flushAfter = 200 * time.Millisecond
	// sessionsEvery bounds how often sessions are written under load.
	sessionsEvery = time.Second
)

// Taken notes that receivers have messages, and with each all earlier ones of its queue. The
// messages leave the outbox with the next commit.
func (s *Store) Taken(ids ...MessageID) {
	s.touches.mu.Lock()
	if s.touches.taken == nil {
		s.touches.taken = make(map[string]int64)
	}
	for _, id := range ids {
		s.touches.taken[id.Queue] = max(s.touches.taken[id.Queue], id.ID)
	}
	s.touches.arm(s)
	s.touches.mu.Unlock()
}

// TouchSession notes that a message went through a session.
func (s *Store) TouchSession(key string, at time.Time) {
	s.touches.mu.Lock()
	if s.touches.sessions == nil {
		s.touches.sessions = make(map[string]touch)
	}
	s.touches.sessions[key] = s.touches.sessions[key].add(touch{at: at, messages: 1})
	s.touches.arm(s)
	s.touches.mu.Unlock()
}

// arm makes sure that a commit comes, even if there is no other.
func (t *touches) arm(s *Store) {
	if t.armed {
		return
	}
	t.armed = true
	time.AfterFunc(flushAfter, func() {
		t.mu.Lock()
		t.armed = false
		waiting := len(t.taken) > 0 || len(t.sessions) > 0
		t.mu.Unlock()
		if waiting {
			s.Flush()
		}
	})
}

// Shrink frees the memory of pages and lines that are read again when needed.
func (s *Store) Shrink() {
	s.ForgetLines()
	// A failure only costs memory.
	_, _ = s.Commit(&Change{shrink: true})
	s.db.Shrink()
}

// Flush writes every touch now, if there is one. A failure keeps them for the next commit.
func (s *Store) Flush() {
	if !s.touches.any() {
		return
	}
	s.touches.rush()
	// The error is the store's own state, which the next caller gets.
	_, _ = s.Commit(&Change{})
}

func (t *touches) rush() {
	t.mu.Lock()
	t.rushing = true
	t.mu.Unlock()
}

// any reports whether there are touches that are not durable yet.
func (t *touches) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.taken)+len(t.sessions)+len(t.flyingTaken)+len(t.flyingSessions) > 0
}

// due moves the touches for this commit into flight.
func (t *touches) due(now time.Time) (taken map[string]int64, sessions map[string]touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flyingTaken, t.taken = t.taken, t.flyingTaken
	if t.rushing || now.Sub(t.lastSessions) >= sessionsEvery {
		t.flyingSessions, t.sessions = t.sessions, nil
		t.lastSessions, t.rushing = now, false
	}
	return t.flyingTaken, t.flyingSessions
}

// forget drops the touches that have become durable.
func (t *touches) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.flyingTaken)
	t.flyingSessions = nil
}

// restore takes back the touches of a failed transaction.
func (t *touches) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for queue, upTo := range t.flyingTaken {
		if t.taken == nil {
			t.taken = make(map[string]int64)
		}
		t.taken[queue] = max(t.taken[queue], upTo)
	}
	clear(t.flyingTaken)
	if len(t.flyingSessions) == 0 {
		return
	}
	flown := t.flyingSessions
	t.flyingSessions = nil
	merged := maps.Clone(flown)
	for key, later := range t.sessions {
		merged[key] = merged[key].add(later)
	}
	// The caller that asked for the flush still needs it.
	t.sessions, t.rushing = merged, true
}
