// Package exchangestate keeps the state between two ends, an agent and its counterparty: their exchanges
// and turns, the causal chains that an agent received, the answers that it owes, the number of
// messages that it has sent, the addresses for answers, and the agents and speakers observed at a
// session.
//
// All of it is in the store; the package caches recent values and decides nothing. From a decision
// to its commit, the state of two ends is read and written under their lock ([State.Lock]).
// Functions called with the lock held end in Locked.
package exchangestate

import (
	"slices"

	"github.com/openclawos/ocipd/internal/store"
)

// State is the state between ends. Its methods are safe for concurrent use.
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

// New loads the state from an open store.
func New(s *store.Store) *State {
	l := newLearned()
	return &State{
		exchanges: newExchanges(s), Chains: newChains(s), Owed: newOwed(s), Budgets: newBudgets(s), Origins: newOrigins(s), Seen: newSeen(s, l),
		Speakers: newSpeakers(s, l), learned: l, Sessions: newSessions(s), Words: newWords(),
	}
}

// Entered updates the caches by a durable change.
func (x *State) Entered(c *store.Change) {
	x.entered(c)
	x.Chains.entered(c)
}

// Shrink empties the caches; the store has everything.
func (x *State) Shrink() {
	x.sides.empty()
	x.current.empty()
	x.Chains.shrink()
	x.Owed.shrink()
	x.Origins.shrink()
	x.Seen.shrink()
	x.Speakers.shrink()
}

// Forget has a commit delete the knowledge that messages have shown of a session and its places.
// Keys name the session to each tenant, see [Origins]. Values read meanwhile are not cached.
func (x *State) Forget(session string, keys, places []string, commit func() (store.Receipt, error)) (store.Receipt, error) {
	defer x.learned.countAll()
	return x.Seen.forget(func(at sighting) bool { return at.session == session }, func() (store.Receipt, error) {
		return x.Origins.forget(func(key string) bool { return slices.Contains(keys, key) }, func() (store.Receipt, error) {
			return x.Speakers.forget(func(at audience) bool { return slices.Contains(places, at.place) }, commit)
		})
	})
}
