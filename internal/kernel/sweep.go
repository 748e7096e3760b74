package kernel

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// sweepEvery is the interval between searches for expired items: messages that nobody fetches, held
// ones that nobody decides about, exchanges that nobody ends.
const sweepEvery = time.Minute

// sweep ends expired items, until the kernel closes.
func (k *Kernel) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-k.closing.Done():
			return
		case <-ticker.C:
			rules := k.rules()
			err := errors.Join(k.outbox.Sweep(k.closing), rules.decider.Sweep(k.closing), k.releases.Sweep(k.closing), k.exchanges.Sweep(k.closing, rules.directory), k.tidy(k.closing), store.LanesOf(k.store).Forget(k.closing, k.now()))
			k.Hosts.ring() // what the outbox has removed is void
			if err != nil && k.closing.Err() == nil {
				k.log.Error("cannot end what has expired", zap.Error(err))
			}
		}
	}
}

// tidy deletes rows that are older than any window.
func (k *Kernel) tidy(ctx context.Context) error {
	now := k.now()
	return k.store.Tidy(ctx, now, now.Add(-max(exchangestate.LongestWindow, k.rules().cfg.ChainWindow)-time.Minute))
}
