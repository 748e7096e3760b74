package exchange

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Sessions remembers which sessions exist and whose they are, so that a known
// one costs no look-up in the store.
type Sessions struct {
	store *store.Store
	known *lru.Cache[string, string]
}

const rememberedSessions = 8192

func newSessions(s *store.Store) (*Sessions, error) {
	known, err := lru.New[string, string](rememberedSessions)
	return &Sessions{store: s, known: known}, err
}

// Agent returns the agent that a session has, empty where the session is new.
func (s *Sessions) Agent(ctx context.Context, key string) (string, error) {
	if agent, ok := s.known.Get(key); ok {
		return agent, nil
	}
	found, err := s.store.Session(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s.known.Add(key, found.AgentID)
	return found.AgentID, nil
}

// Use enters a session into a change: as new, or as used once more when the
// change is durable. It reports whether the session is new. Of two first messages
// at once, the one that is committed first says whose the session is.
func (s *Sessions) Use(ctx context.Context, key, agent, account string, now time.Time, c *store.Change) (fresh bool, err error) {
	known, err := s.Agent(ctx, key)
	if err != nil {
		return false, err
	}
	if known != "" {
		c.OnDurable(func(store.Receipt) { s.store.TouchSession(key, now) })
		return false, nil
	}
	c.Add(store.Session{
		Key: key, AgentID: agent, ChannelID: directory.ChannelOf(key), AccountID: account, CreatedAt: now, LastActiveAt: now, MessageCount: 1,
	})
	c.OnDurable(func(store.Receipt) { s.known.ContainsOrAdd(key, agent) })
	return true, nil
}
