package exchangestate

import (
	"context"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Seen knows the agents that envelopes have shown at sessions which the directory does not list as
// an agent's. From then on all rules hold there, first of all the tenant wall. This concerns only
// the tenant whose agents saw it, not other tenants' agents.
type Seen struct {
	// It maps to no agent if none was seen.
	*recent[sighting, ocip.Identity]
	learned *learned
}

// sighting is a session and the tenant whose agents observe it.
type sighting struct{ tenant, session string }

const rememberedSeen = 8192

func newSeen(s *store.Store, l *learned) Seen {
	return Seen{learned: l, recent: newRecent(rememberedSeen, func(ctx context.Context, at sighting) (ocip.Identity, error) {
		return s.SeenAt(ctx, at.tenant, at.session)
	})}
}

// Note enters the source of an envelope into a change. Once an agent of another tenant was seen at
// a session, one of the own tenant does not replace it: a message to the session would reach both.
func (s Seen) Note(ctx context.Context, key string, self *directory.Agent, source ocip.Identity, c *store.Change) error {
	before, err := s.of(ctx, sighting{self.TenantID, key})
	if err != nil {
		return err
	}
	if before == source || before.InstanceID != "" && !before.SameTenant(self.Identity) {
		return nil
	}
	c.Add(store.Seen{SessionKey: key, By: self.TenantID, Identity: source})
	c.OnDurable(func(store.Receipt) {
		s.put(sighting{self.TenantID, key}, source)
		s.learned.count(self.TenantID)
	})
	return nil
}

// Known returns the counterparty at a session, as an agent knows it: the directory's entry, or
// without one, the agent that was seen. The configuration always takes precedence.
func (s Seen) Known(ctx context.Context, key string, self *directory.Agent, listed ocip.Counterparty) (ocip.Counterparty, error) {
	if listed.Kind != ocip.KindUnknown {
		return listed, nil
	}
	id, err := s.of(ctx, sighting{self.TenantID, key})
	if err != nil || id.InstanceID == "" {
		return listed, err
	}
	return ocip.Counterparty{Kind: ocip.KindAgent, Identity: id, Accepts: ocip.Public}, nil
}
