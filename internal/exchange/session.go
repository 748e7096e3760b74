package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Sessions remembers which sessions exist and whose they are, so that a known
// one costs no look-up in the store.
type Sessions struct {
	store *store.Store
	known *cache[string, string]
	// begun are the sessions that a durable change has begun.
	begun *cache[string, struct{}]
}

const rememberedSessions = 8192

func newSessions(s *store.Store) *Sessions {
	return &Sessions{store: s, known: newCache[string, string](rememberedSessions), begun: newCache[string, struct{}](rememberedSessions)}
}

// Agent returns the agent that a session has, empty where the session is new.
func (s *Sessions) Agent(ctx context.Context, key string) (string, error) {
	if agent, ok := s.known.get(key); ok {
		return agent, nil
	}
	found, err := s.store.Session(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s.known.add(key, found.AgentID)
	return found.AgentID, nil
}

// Use enters a session into a change: as new, or as used once more when the
// change is durable. Fresh is set then where this change began the session: of two
// first messages at once, the one that is committed first does, and says whose the
// session is.
func (s *Sessions) Use(ctx context.Context, key, agent, account string, now time.Time, c *store.Change) (fresh *bool, err error) {
	fresh = new(bool)
	known, err := s.Agent(ctx, key)
	if err != nil {
		return fresh, err
	}
	if known != "" {
		c.OnDurable(func(store.Receipt) { s.store.TouchSession(key, now) })
		return fresh, nil
	}
	c.Add(store.Session{
		Key: key, AgentID: agent, ChannelID: directory.ChannelOf(key), AccountID: account, CreatedAt: now, LastActiveAt: now, MessageCount: 1,
	})
	c.OnDurable(func(store.Receipt) {
		s.known.getOrAdd(key, agent)
		_, before := s.begun.getOrAdd(key, struct{}{})
		*fresh = !before
	})
	return fresh, nil
}
