package exchangestate

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Speakers knows the speakers in places with several readers. A message to a room that is not in
// the directory is decided by its known readers, first of all by the tenant wall. As with [Seen],
// one tenant's knowledge is not used for another's agents.
type Speakers struct {
	*recent[audience, []store.Speaker]
	learned *learned
}

// audience is a place and the tenant whose agents hear the speakers there.
type audience struct{ tenant, place string }

const (
	rememberedSpeakers = 8192
	// manyAccounts is the number of speakers from which on a place's accounts are no longer told
	// apart.
	manyAccounts = 16
)

func newSpeakers(s *store.Store, l *learned) Speakers {
	return Speakers{learned: l, recent: newRecent(rememberedSpeakers, func(ctx context.Context, at audience) ([]store.Speaker, error) {
		return s.Speakers(ctx, at.tenant, at.place)
	})}
}

// Note enters into a change that a counterparty spoke at a place to an agent, if that makes any
// rule stricter there.
func (s Speakers) Note(ctx context.Context, place, account string, self *directory.Agent, who ocip.Counterparty, c *store.Change) error {
	at := audience{self.TenantID, place}
	known, err := s.of(ctx, at)
	if err != nil {
		return err
	}
	if len(known) >= manyAccounts {
		account = ""
	}
	one := store.Speaker{Place: place, Account: account, By: self.TenantID, Agent: who.Kind == ocip.KindAgent, Identity: who.Identity}
	if covered(known, &one) {
		return nil
	}
	c.Add(one)
	c.OnDurable(func(store.Receipt) {
		now, ok := s.known.get(at)
		if !ok {
			now = known
		}
		s.put(at, append(slices.Clip(now), one))
		s.learned.count(self.TenantID)
	})
	return nil
}

// covered reports whether one more speaker at a place makes no rule stricter there. One speaker of
// another tenant makes further ones redundant. Otherwise agents of two units do: every agent is of
// another unit than one of them.
func covered(known []store.Speaker, one *store.Speaker) bool {
	foreign := func(s *store.Speaker) bool {
		_, blocked := ocip.Wall(ocip.Identity{TenantID: s.By}, spoken(s))
		return blocked
	}
	if !foreign(one) && !one.Agent {
		return true
	}
	var units []string
	for i := range known {
		s := &known[i]
		if s.Account != "" && s.Account != one.Account {
			continue
		}
		if foreign(s) {
			return true
		}
		if s.Agent && !slices.Contains(units, s.OrgUnit) {
			units = append(units, s.OrgUnit)
		}
	}
	return !foreign(one) && (len(units) > 1 || slices.Contains(units, one.OrgUnit))
}

// reads reports whether a speaker heard through one account may read messages sent through another.
// It may not if both are known and differ.
func reads(heard, by string) bool { return heard == "" || by == "" || heard == by }

// spoken returns a speaker as a counterparty.
func spoken(s *store.Speaker) ocip.Counterparty {
	c := ocip.Counterparty{Kind: ocip.KindPerson, Identity: s.Identity}
	if s.Agent {
		c.Kind = ocip.KindAgent
	}
	return c
}

// Readers returns the counterparty that the rules use for an agent's message to a session: the one
// known there, or the strictest of the speakers at the place. Learned is set if a speaker decides.
func (x *State) Readers(ctx context.Context, who *directory.Directory, key string, self *directory.Agent, r *directory.Recipient) (to ocip.Counterparty, learned bool, err error) {
	if to, err = x.Seen.Known(ctx, key, self, r.Counterparty); err != nil || !r.Strangers {
		return to, false, err
	}
	var spoke []ocip.Counterparty
	account := r.OwnAccount()
	for _, place := range r.Places() {
		known, err := x.Speakers.of(ctx, audience{self.TenantID, place})
		if err != nil {
			return to, false, err
		}
		for i := range known {
			if reads(known[i].Account, account) {
				spoke = append(spoke, spoken(&known[i]))
			}
		}
	}
	to, learned = who.Among(r, to, spoke, self)
	return to, learned, nil
}
