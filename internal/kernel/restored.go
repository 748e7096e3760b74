package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
)

// The daemon's name and reason in records about a restored copy of the state.
const (
	byRestoration = "restoration"
	restoredCopy  = "a copy of the state was restored, and what became of it since the copy was made is not known"
)

// HaltRestored pauses all sending, with the record of the restoration.
func HaltRestored(k *Kernel, found *audit.Record) error { return k.Halt(byRestoration, found) }

// RestoredGrants revokes every grant in force.
func RestoredGrants(ctx context.Context, k *Kernel) error {
	return k.grants.Restored(ctx, byRestoration, restoredCopy)
}

// RestoredReleases takes back what a runtime may fetch, and what it may have sent, and has a person
// asked about each message, also about those in the outbox.
func RestoredReleases(ctx context.Context, k *Kernel) error {
	return errors.Join(k.releases.Restored(ctx), outbox.Restored(ctx, k.outbox, restoredCopy))
}
