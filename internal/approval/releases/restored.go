package releases

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/store"
)

// takenThen is the reason to ask a person about a message that an app has taken.
const takenThen = "it was approved and taken, and nobody knows whether it was sent"

// notSince is the reason to withdraw approvals from before a copy of the state was restored.
const notSince = "a copy of the state was restored, and nobody knows whether it was used since the copy was made"

// await waits for apps that had claims when the daemon ended.
func (x *Releases) await(open []store.Release) {
	for i := range open {
		if open[i].State == store.ReleaseClaimed {
			x.left(open[i].Approval, open[i].Claim, nil)
		}
	}
}

// Restored takes back approvals that are unused according to a restored copy of the state: they may
// have been used since the copy was made. A person is asked about each message, and the runtime
// must ask again about each tool call. A person's denial stays.
func (x *Releases) Restored(ctx context.Context) error {
	rows, err := x.o.Store.OpenReleases(ctx)
	for i := range rows {
		if err == nil {
			err = x.restored(ctx, rows[i].Approval)
		}
	}
	return err
}

func (x *Releases) restored(ctx context.Context, id string) error {
	defer x.locks.Lock(id)()
	row, err := x.o.Store.Release(ctx, id)
	var r *approval.Request
	if err == nil {
		r, err = x.o.Approvals().Get(ctx, id)
	}
	_, altered := errors.AsType[*store.AlteredError](err)
	if altered || errors.Is(err, store.ErrNotFound) || err != nil && api.AsError(err).Code == api.NotFound {
		// It is withheld for the same reason.
		return nil
	}
	open := row.State == store.ReleaseReady || row.State == store.ReleaseClaimed
	if err != nil || !open || row.State == store.ReleaseReady && !x.o.Now().Before(row.ExpiresAt) {
		return err
	}
	change := &store.Change{Drains: true}
	switch {
	case r.Kind == api.ApprovalOfMessage:
		x.event(change, r, "outcome_unknown", notSince, nil)
		// The key of a claim would give its holder the message a second time.
		step(change, &row, stateUnknown, row.Claim, "", row.Data)
		err = x.ask(r, &row, notSince, change)
	case r.State == api.ApprovalApproved:
		x.event(change, r, "approved_not_used", notSince, nil)
		step(change, &row, stateWithdrawn, "", "", nil)
	default:
		return nil
	}
	if err == nil {
		_, err = x.o.Commit(change)
	}
	return err
}
