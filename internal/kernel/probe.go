package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/store"
)

// Probe goes the way of a decision without making one: through the kernel's
// locks, a query and a commit that holds nothing, so nothing is recorded. An
// error means that no decision would get through either. It does not end before
// what hangs does.
//
// A disk that is full is no error: nothing is let through, but all works.
func (k *Kernel) Probe(ctx context.Context) error {
	k.apps.Probe()
	k.outbox.Probe()
	k.requests.Count()
	if _, err := k.store.LastSeq(ctx); err != nil {
		return err
	}
	if _, err := k.store.Commit(&store.Change{}); err != nil && !errors.Is(err, store.ErrFull) {
		return err
	}
	return nil
}
