package exchangestate

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/store"
)

// Budgets counts messages in a window that slides by the minute, for an agent or for a session with
// a counterparty that is no agent. The store has the counts; Budgets caches the recent ones.
type Budgets struct {
	store *store.Store
	mu    sync.Mutex
	known *cache[string, *spending]
}

// spending lists the messages of one scope by the minute, oldest first. The lock of Budgets guards
// it.
type spending struct{ minutes []store.Spent }

const (
	rememberedBudgets = 8192
	// LongestWindow bounds how far back messages are counted.
	LongestWindow = 24 * time.Hour
)

func newBudgets(s *store.Store) *Budgets {
	return &Budgets{store: s, known: newCache[string, *spending](rememberedBudgets)}
}

// Take counts a message under decision, and returns the number of earlier messages since a time. If
// the message is not allowed, the caller gives it back.
func (b *Budgets) Take(ctx context.Context, scope string, since, now time.Time) (before int, giveBack func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	spent, known := b.known.get(scope)
	if !known {
		// Held over the read, so that of two first messages one sees the other.
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

// add counts messages of a minute, and drops minutes before the longest window.
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

// SessionScope names an agent's messages to a session. It uses the place that the session leads to,
// so that spellings of the key count together.
func SessionScope(agent, place string) string { return "session:" + agent + ":" + place }
