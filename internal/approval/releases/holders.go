package releases

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// holder is the connection with a claim, or the timer that waits for the next one.
type holder struct {
	leave func() bool
	timer *time.Timer
}

func (h *holder) stop() {
	if h.leave != nil {
		h.leave()
	}
	if h.timer != nil {
		h.timer.Stop()
	}
}

// hold gives a claim to a connection until that ends.
func (x *Releases) hold(ctx context.Context, id, claim string) {
	h := new(holder)
	x.mu.Lock()
	defer x.mu.Unlock()
	if before := x.holders[id]; before != nil {
		before.stop()
	}
	x.holders[id] = h
	h.leave = context.AfterFunc(ctx, func() { x.left(id, claim, h) })
}

// left waits for a claim's app to come back, after the connection of a holder has ended. The app may
// have come back already: then another one holds the claim. The holder is nil if the daemon ended.
func (x *Releases) left(id, claim string, of *holder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.holders[id] != of {
		return
	}
	h := new(holder)
	h.timer = time.AfterFunc(grace, func() { x.lose(id, claim, h) })
	x.holders[id] = h
}

// holds reports whether a holder has the claim of an approval.
func (x *Releases) holds(id string, h *holder) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.holders[id] == h
}

func (x *Releases) drop(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.holders[id]; h != nil {
		h.stop()
		delete(x.holders, id)
	}
}

// lose has a person asked about a message whose app has not come back since a holder began to wait.
func (x *Releases) lose(id, claim string, of *holder) {
	if x.o.Closing.Err() != nil {
		return
	}
	defer x.locks.Lock(id)()
	if !x.holds(id, of) {
		return
	}
	ctx := context.Background()
	row, err := x.o.Store.Release(ctx, id)
	if err != nil || row.State != store.ReleaseClaimed || row.Claim != claim {
		return
	}
	x.drop(id)
	r, err := x.o.Approvals().Get(ctx, id)
	if err == nil {
		change := &store.Change{Drains: true}
		x.event(change, r, "outcome_unknown", "the connection of the app that has the message ended, and it has not said what became of it", nil)
		step(change, &row, stateUnknown, row.Claim, row.Key, row.Data)
		if err = x.ask(r, &row, takenThen, change); err == nil {
			_, err = x.o.Commit(change)
		}
	}
	if err != nil {
		x.o.Log.Error("cannot ask a person what became of a message", zap.String("approval", id), zap.Error(err))
		x.left(id, claim, nil)
	}
}
