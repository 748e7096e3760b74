package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/store"
)

// Probe follows the path of a decision without making one: through the kernel's locks, a query and
// an empty commit, so nothing is recorded. An error means that no decision could be made either. If
// a part hangs, Probe hangs too.
//
// A full disk is no error: nothing is allowed, but everything works.
func (k *Kernel) Probe(ctx context.Context) error {
	k.apps.Probe()
	k.outbox.Probe()
	k.requests.Count()
	k.state.Lock("probe", "")()
	k.pauses.Deciding()()
	if _, err := k.store.LastSeq(ctx); err != nil {
		return err
	}
	if _, err := k.store.Commit(&store.Change{}); err != nil && !errors.Is(err, store.ErrFull) {
		return err
	}
	return nil
}
