package exchangestate

import (
	"hash/maphash"
	"sync/atomic"
)

// learned counts changes in the knowledge of the people and agents at sessions and in rooms. A
// message that was allowed before a change may reach somebody else now. It counts for each tenant,
// so that one tenant's messages do not cause another's to be weighed again; several tenants may
// share a counter.
type learned struct {
	seed   maphash.Seed
	counts [64]atomic.Uint64
}

func newLearned() *learned { return &learned{seed: maphash.MakeSeed()} }

func (l *learned) of(tenant string) *atomic.Uint64 {
	return &l.counts[maphash.String(l.seed, tenant)%uint64(len(l.counts))]
}

// count is called in the durable callback of a change, once the change can be read.
func (l *learned) count(tenant string) { l.of(tenant).Add(1) }

func (l *learned) countAll() {
	for i := range l.counts {
		l.counts[i].Add(1)
	}
}

// Learned counts changes in the knowledge of a tenant's agents about the people and agents at
// sessions, additions and removals.
func (x *State) Learned(tenant string) uint64 { return x.learned.of(tenant).Load() }
