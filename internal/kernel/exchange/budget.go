package exchange

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/store"
)

// Budgets counts the messages of a scope in a window that slides by the minute:
// of an agent, or of a session with somebody who is no agent. The store has the
// counts; here are those that were asked for lately.
type Budgets struct {
	store *store.Store
	mu    sync.Mutex
	known *cache[string, *spending]
}

// spending is what one scope has spent, by the minute, oldest first. It is guarded
// by the budgets' lock.
type spending struct{ minutes []store.Spent }

const (
	rememberedBudgets = 8192
	// LongestWindow bounds how far back messages are counted.
	LongestWindow = 24 * time.Hour
)

func newBudgets(s *store.Store) *Budgets {
	return &Budgets{store: s, known: newCache[string, *spending](rememberedBudgets)}
}

// Take counts a message that is being decided, and returns how many were counted
// since a time before it. A message that is not let through gives back.
func (b *Budgets) Take(ctx context.Context, scope string, since, now time.Time) (before int, giveBack func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	spent, known := b.known.get(scope)
	if !known {
		// Held over the read: of two first messages, either must see the other.
		minutes, err := b.store.SpentByMinute(ctx, scope, now.Add(-LongestWindow))
		if err != nil {
			return 0, nil, err
		}
		spent = &spending{minutes}
		b.known.add(scope, spent)
	}
	edge := since.Truncate(time.Minute)
	for _, m := range spent.minutes {
		if !m.At.Before(edge) {
			before += m.Count
		}
	}
	at := now.Truncate(time.Minute)
	spent.add(at, 1)
	return before, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		spent.add(at, -1)
	}, nil
}

// add counts messages of a minute, and forgets minutes that no window reaches.
func (s *spending) add(at time.Time, n int) {
	for i := range s.minutes {
		if s.minutes[i].At.Equal(at) {
			s.minutes[i].Count += n
			return
		}
	}
	for len(s.minutes) > 0 && s.minutes[0].At.Before(at.Add(-LongestWindow)) {
		s.minutes = s.minutes[1:]
	}
	s.minutes = append(s.minutes, store.Spent{At: at, Count: n})
}

// AgentScope names the messages of an agent.
func AgentScope(instance string) string { return "agent:" + instance }

// SessionScope names an agent's messages to a session, which is counted by the place it
// leads to, however its key is spelled.
func SessionScope(agent, place string) string { return "session:" + agent + ":" + place }
