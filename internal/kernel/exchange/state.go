// Package exchange knows what has passed between two ends, an agent and whoever it
// talks with: their exchanges and whose turn it is, the causal chains of what an agent
// received, what it owes an answer to, how much it has sent, where answers go, and who
// was seen or spoke at a session.
//
// All of it is in the store; here is what was wanted of late. Nothing is decided here.
// What is read and written of two ends from a decision to its commit is so under their
// lock ([State.Lock]); functions called with it end in Locked.
package exchange

import (
	"slices"

	"github.com/openclawos/ocipd/internal/store"
)

// State is what is known between ends. Its methods are safe for concurrent use.
type State struct {
	*exchanges
	Chains   *Chains
	Owed     Owed
	Budgets  *Budgets
	Origins  Origins
	Seen     Seen
	Speakers Speakers
	Sessions *Sessions
	Words    Words
	learned  *learned
}

// New takes up what an open store holds.
func New(s *store.Store) *State {
	l := newLearned()
	return &State{
		exchanges: newExchanges(s), Chains: newChains(s), Owed: newOwed(s), Budgets: newBudgets(s), Origins: newOrigins(s), Seen: newSeen(s, l),
		Speakers: newSpeakers(s, l), learned: l, Sessions: newSessions(s), Words: newWords(),
	}
}

// Entered remembers what a durable change holds.
func (x *State) Entered(c *store.Change) {
	x.entered(c)
	x.Chains.entered(c)
}

// Shrink gives back the memory of what was wanted of late: it is in the store.
func (x *State) Shrink() {
	x.sides.empty()
	x.current.empty()
	x.Chains.shrink()
	x.Owed.shrink()
	x.Origins.shrink()
	x.Seen.shrink()
	x.Speakers.shrink()
}

// Forget has a commit take away what messages have shown of a session and of the places
// it leads to; keys name the session to each tenant, see [Origins]. What is read
// meanwhile is not kept.
func (x *State) Forget(session string, keys, places []string, commit func() (store.Receipt, error)) (store.Receipt, error) {
	defer x.learned.countAll()
	return x.Seen.forget(func(at sighting) bool { return at.session == session }, func() (store.Receipt, error) {
		return x.Origins.forget(func(key string) bool { return slices.Contains(keys, key) }, func() (store.Receipt, error) {
			return x.Speakers.forget(func(at audience) bool { return slices.Contains(places, at.place) }, commit)
		})
	})
}
