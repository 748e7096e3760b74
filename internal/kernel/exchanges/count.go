package exchanges

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Counts returns how many exchanges there are of each outcome, one between two agents
// here as one.
func (x *Exchanges) Counts(ctx context.Context) (map[ocip.Outcome]int, error) {
	return x.tally.of(ctx, x.o.Store.ExchangeCounts, x.o.Now)
}

// tally keeps the numbers of exchanges where counting them takes long, so that
// who looks every second does not keep a disk busy.
type tally struct {
	mu     sync.Mutex
	counts map[ocip.Outcome]int
	// until is for how long the counts are good.
	until time.Time
}

const (
	// quickCount is what may be counted anew each time.
	quickCount = 20 * time.Millisecond
	// countShare is the part of the time that counting may take, as one of so
	// many.
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
