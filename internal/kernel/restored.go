package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/store"
)

// The daemon's name and reason in records about a restored copy of the state.
const (
	byRestoration = approval.ByRestoration
	restoredCopy  = "a copy of the state was restored, and what became of it since the copy was made is not known"
)

// HaltRestored pauses all sending and records the restoration. Signatures that were made before that
// record no longer count. Former are the processes of apps by the state that was replaced, all of them
// or not, and own is the process of this daemon.
func HaltRestored(k *Kernel, found *audit.Record, former []store.AppProcess, all bool, own string) error {
	store.Restore(k.store, found.ID)
	if err := k.Sending.Halt(byRestoration, found, k.Processes.TakeOver(former, all, own)...); err != nil {
		return err
	}
	// From here on the log's checkpoints name the restoration.
	_, err := k.commit(&store.Change{Last: true, Checkpoint: true})
	return err
}

// RestoredRequests has people asked anew about pending requests.
func RestoredRequests(ctx context.Context, k *Kernel) error {
	return approval.Restored(ctx, k.rules().decider, store.OpenRows(k.store, fold.Approvals), restoredCopy)
}

// RestoredGrants revokes every grant in force.
func RestoredGrants(ctx context.Context, k *Kernel) error {
	return k.grants.Restored(ctx, byRestoration, restoredCopy)
}

// RestoredReleases revokes every release that a runtime could still redeem or may already have sent.
// A person is asked about each message, including those in the outbox.
func RestoredReleases(ctx context.Context, k *Kernel) error {
	return errors.Join(k.releases.Restored(ctx), outbox.Restored(ctx, k.outbox, restoredCopy))
}
