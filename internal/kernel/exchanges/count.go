package exchanges

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Counts returns the number of exchanges by outcome. An exchange between two agents of this daemon
// counts once.
func (x *Exchanges) Counts(ctx context.Context) (map[ocip.Outcome]int, error) {
	return x.tally.of(ctx, x.o.Store.ExchangeCounts, x.o.Now)
}

// tally caches the numbers of exchanges if counting them takes long, so that a monitor that asks
// every second does not keep the disk busy.
type tally struct {
	mu     sync.Mutex
	counts map[ocip.Outcome]int
	// until is the end of the counts' validity.
	until time.Time
}

const (
	// quickCount is the longest count that may be repeated each time.
	quickCount = 20 * time.Millisecond
	// countShare limits counting to one part in so many of the time.
	countShare = 20
)

func (t *tally) of(ctx context.Context, count func(context.Context) (map[ocip.Outcome]int, error), now func() time.Time) (map[ocip.Outcome]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := now()
	if t.counts != nil && began.Before(t.until) {
		return t.counts, nil
	}
	counts, err := count(ctx)
	if err != nil {
		return nil, err
	}
	t.counts, t.until = counts, time.Time{}
	if took := now().Sub(began); took > quickCount {
		t.until = began.Add(countShare * took)
	}
	return counts, nil
}
