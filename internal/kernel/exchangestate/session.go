package exchangestate

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Sessions caches which sessions exist and their owners, so that a known session needs no look-up
// in the store.
type Sessions struct {
	store *store.Store
	known *cache[string, store.SessionOwner]
	// begun are the sessions that a durable change has begun, each in place of one whose owner is
	// gone.
	begun *cache[beginning, struct{}]
}

type beginning struct {
	key    string
	former store.SessionOwner
}

const rememberedSessions = 8192

func newSessions(s *store.Store) *Sessions {
	return &Sessions{store: s, known: newCache[string, store.SessionOwner](rememberedSessions), begun: newCache[beginning, struct{}](rememberedSessions)}
}

// ownerOf is an agent as an owner of sessions.
func ownerOf(a *directory.Agent) store.SessionOwner {
	return store.SessionOwner{AgentID: a.ID, Identified: a.Identified()}
}

// Owners are agents as owners of sessions.
func Owners(agents ...*directory.Agent) []store.SessionOwner {
	owners := make([]store.SessionOwner, len(agents))
	for i, a := range agents {
		owners[i] = ownerOf(a)
	}
	return owners
}

// Owner returns the agent that a session's row names, nil if it is no longer configured. A new
// agent under the same id is a different one.
func Owner(d *directory.Directory, s *store.Session) *directory.Agent {
	return owner(d, s.SessionOwner)
}

func owner(d *directory.Directory, of store.SessionOwner) *directory.Agent {
	if agent := d.Agent(of.AgentID); agent != nil && agent.Identified() == of.Identified {
		return agent
	}
	return nil
}

// Settle gives sessions that were stored without an owner to the agents that have their agents'
// ids.
func (s *Sessions) Settle(ctx context.Context, agents []directory.Agent, commit func(*store.Change) (store.Receipt, error)) error {
	some, err := s.store.UnsettledSessions(ctx)
	if err != nil || !some {
		return err
	}
	settled := make(store.SettledSessions, len(agents))
	for i := range agents {
		settled[i] = ownerOf(&agents[i])
	}
	_, err = commit(&store.Change{Parts: []store.Part{settled}, Drains: true})
	return err
}

// Agent returns the agent that owns a session, nil if the session is new or its owner is gone.
func (s *Sessions) Agent(ctx context.Context, d *directory.Directory, key string) (*directory.Agent, error) {
	agent, _, err := s.find(ctx, d, key)
	return agent, err
}

// find is Agent, and also returns the former owner if it is gone. That is not cached: the next use
// of the session replaces it.
func (s *Sessions) find(ctx context.Context, d *directory.Directory, key string) (agent *directory.Agent, former store.SessionOwner, err error) {
	if of, ok := s.known.get(key); ok {
		if agent = owner(d, of); agent != nil {
			return agent, former, nil
		}
	}
	found, err := s.store.Session(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, former, nil
	}
	if err != nil {
		return nil, former, err
	}
	if agent = Owner(d, &found); agent == nil {
		return nil, found.SessionOwner, nil
	}
	s.known.add(key, found.SessionOwner)
	return agent, former, nil
}

// Begun reports whether agents of an agent's tenant have sent to a session. The session may be
// another tenant's.
func (s *Sessions) Begun(ctx context.Context, d *directory.Directory, key string, self *directory.Agent) (bool, error) {
	agent, err := s.Agent(ctx, d, key)
	if err != nil || agent != nil && agent.TenantID == self.TenantID || !d.SeveralTenants() {
		return agent != nil, err
	}
	agent, err = s.Agent(ctx, d, store.TenantSession(self.TenantID, key))
	return agent != nil, err
}

// UseOfOthers enters into a change that an agent sends to a session of another tenant's agent. The
// other agent's row does not change.
func (s *Sessions) UseOfOthers(ctx context.Context, d *directory.Directory, key string, self *directory.Agent, account string, now time.Time, c *store.Change) error {
	_, err := s.use(ctx, d, store.TenantSession(self.TenantID, key), directory.ChannelOf(key), self, account, now, c)
	return err
}

// Use enters a session into a change: as new, or as used again once the change is durable. Then
// fresh is set if this change began the session. Of two first messages at once, the one committed
// first begins it and names its owner.
func (s *Sessions) Use(ctx context.Context, d *directory.Directory, key string, agent *directory.Agent, account string, now time.Time, c *store.Change) (fresh *bool, err error) {
	return s.use(ctx, d, key, directory.ChannelOf(key), agent, account, now, c)
}

func (s *Sessions) use(ctx context.Context, d *directory.Directory, key, channel string, agent *directory.Agent, account string, now time.Time, c *store.Change) (fresh *bool, err error) {
	fresh = new(bool)
	known, former, err := s.find(ctx, d, key)
	if err != nil {
		return fresh, err
	}
	if known != nil {
		c.OnDurable(func(store.Receipt) { s.store.TouchSession(key, now) })
		return fresh, nil
	}
	c.Add(store.Session{
		Key: key, SessionOwner: ownerOf(agent), Former: former, ChannelID: channel, AccountID: account, CreatedAt: now, LastActiveAt: now, MessageCount: 1,
	})
	c.OnDurable(func(store.Receipt) {
		if _, before := s.begun.getOrAdd(beginning{key, former}, struct{}{}); !before {
			s.known.add(key, ownerOf(agent))
			*fresh = true
		}
	})
	return fresh, nil
}
