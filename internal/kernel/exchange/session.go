package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Sessions remembers which sessions exist and whose they are, so that a known
// one costs no look-up in the store.
type Sessions struct {
	store *store.Store
	known *cache[string, store.SessionOwner]
	// begun are the sessions that a durable change has begun, each in the place of one
	// that is nobody's by now.
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

// ownerOf is an agent as sessions name it.
func ownerOf(a *directory.Agent) store.SessionOwner {
	return store.SessionOwner{AgentID: a.ID, Identified: a.Identified()}
}

// Owners are agents as sessions name them.
func Owners(agents ...*directory.Agent) []store.SessionOwner {
	owners := make([]store.SessionOwner, len(agents))
	for i, a := range agents {
		owners[i] = ownerOf(a)
	}
	return owners
}

// Owner returns the agent that a session's row names, nil where that one is configured no
// more: an agent that was given its id is another one.
func Owner(d *directory.Directory, s *store.Session) *directory.Agent {
	return owner(d, s.SessionOwner)
}

func owner(d *directory.Directory, of store.SessionOwner) *directory.Agent {
	if agent := d.Agent(of.AgentID); agent != nil && agent.Identified() == of.Identified {
		return agent
	}
	return nil
}

// Settle says of sessions from before it was kept whose they are: of those who have their
// agents' ids.
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

// Agent returns the agent that a session has, nil where it is new or nobody's any more.
func (s *Sessions) Agent(ctx context.Context, d *directory.Directory, key string) (*directory.Agent, error) {
	agent, _, err := s.find(ctx, d, key)
	return agent, err
}

// find is Agent, with whose a session was that is nobody's any more. That is not
// remembered: it ends with the next use of the session.
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

// Begun reports whether agents of an agent's tenant have sent to a session, which may be
// another tenant's.
func (s *Sessions) Begun(ctx context.Context, d *directory.Directory, key string, self *directory.Agent) (bool, error) {
	agent, err := s.Agent(ctx, d, key)
	if err != nil || agent != nil && agent.TenantID == self.TenantID || !d.SeveralTenants() {
		return agent != nil, err
	}
	agent, err = s.Agent(ctx, d, store.TenantSession(self.TenantID, key))
	return agent != nil, err
}

// UseOfOthers enters into a change that an agent sends to a session that another
// tenant's agent has. That one's is left as it is.
func (s *Sessions) UseOfOthers(ctx context.Context, d *directory.Directory, key string, self *directory.Agent, account string, now time.Time, c *store.Change) error {
	_, err := s.use(ctx, d, store.TenantSession(self.TenantID, key), directory.ChannelOf(key), self, account, now, c)
	return err
}

// Use enters a session into a change: as new, or as used once more when the
// change is durable. Fresh is set then where this change began the session: of two
// first messages at once, the one that is committed first does, and says whose the
// session is.
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
