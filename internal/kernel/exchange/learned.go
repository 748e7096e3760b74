package exchange

import (
	"hash/maphash"
	"sync/atomic"
)

// learned counts how often it became known, or was forgotten, who is at a session or reads in
// a room. A message that was let through before it counted up may reach somebody else by now.
// It counts for each tenant, so that what one tenant's agents are sent has no message of
// another's looked at anew; several tenants may share a counter.
type learned struct {
	seed   maphash.Seed
	counts [64]atomic.Uint64
}

func newLearned() *learned { return &learned{seed: maphash.MakeSeed()} }

func (l *learned) of(tenant string) *atomic.Uint64 {
	return &l.counts[maphash.String(l.seed, tenant)%uint64(len(l.counts))]
}

// count is called in the durable callback of a change, once what it says can be read.
func (l *learned) count(tenant string) { l.of(tenant).Add(1) }

func (l *learned) countAll() {
	for i := range l.counts {
		l.counts[i].Add(1)
	}
}

// Learned counts what became known to a tenant's agents of who is where, and what was
// forgotten of it.
func (x *State) Learned(tenant string) uint64 { return x.learned.of(tenant).Load() }
