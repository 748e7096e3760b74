package kernel

import (
	"context"
	"errors"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// seen knows which agents envelopes have shown at sessions that the directory
// does not list as an agent's. From then on all rules hold there, the tenant
// wall before all.
type seen struct {
	store *store.Store
	// agents holds the agent of a session, none where none was seen.
	agents *lru.Cache[string, ocip.Identity]
	// reading keeps what is read of the store from being remembered after it was
	// forgotten.
	reading sync.RWMutex
}

const rememberedSeen = 8192

func newSeen(s *store.Store) (*seen, error) {
	agents, err := lru.New[string, ocip.Identity](rememberedSeen)
	return &seen{store: s, agents: agents}, err
}

// at returns the agent seen at a session, the zero identity where none was.
func (s *seen) at(ctx context.Context, key string) (ocip.Identity, error) {
	if id, ok := s.agents.Get(key); ok {
		return id, nil
	}
	s.reading.RLock()
	defer s.reading.RUnlock()
	id, err := s.store.SeenAt(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return id, err
	}
	s.agents.Add(key, id)
	return id, nil
}

// forget has a commit forget who was seen at a session.
func (s *seen) forget(key string, commit func() (store.Receipt, error)) (store.Receipt, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	receipt, err := commit()
	s.agents.Remove(key)
	return receipt, err
}

// note enters the source of an envelope into a change. An agent of another
// tenant, once seen at a session, is not forgotten for one of the own: what is
// sent there would reach both.
func (s *seen) note(ctx context.Context, key string, self *Agent, source ocip.Identity, c *store.Change) error {
	before, err := s.at(ctx, key)
	if err != nil {
		return err
	}
	if before == source || before.InstanceID != "" && !before.SameTenant(self.Identity) {
		return nil
	}
	c.Seen = append(c.Seen, store.Seen{SessionKey: key, Identity: source})
	return nil
}

// entered remembers what a durable change holds.
func (s *seen) entered(c *store.Change) {
	for _, one := range c.Seen {
		s.agents.Add(one.SessionKey, one.Identity)
	}
}

// known returns who is at a session: whom the directory has there, and where it has
// nobody, the agent that was seen. What was seen never outranks what is configured.
func (k *ruleset) known(ctx context.Context, key string, listed ocip.Counterparty) (ocip.Counterparty, error) {
	if listed.Kind != ocip.KindUnknown {
		return listed, nil
	}
	id, err := k.seen.at(ctx, key)
	if err != nil || id.InstanceID == "" {
		return listed, err
	}
	return ocip.Counterparty{Kind: ocip.KindAgent, Identity: id, Accepts: ocip.Public}, nil
}
