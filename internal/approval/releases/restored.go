package releases

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/store"
)

// takenThen is why a person is asked about what an app has taken.
const takenThen = "it was approved and taken, and nobody knows whether it was sent"

// notSince is why nobody takes what was approved before a copy of the state was restored.
const notSince = "a copy of the state was restored, and nobody knows whether it was used since the copy was made"

// await waits for those who had claims when the daemon ended.
func (x *Releases) await(open []store.Release) {
	for i := range open {
		if open[i].State == store.ReleaseClaimed {
			x.left(open[i].Approval, open[i].Claim)
		}
	}
}

// Restored takes back what was approved and, by a restored copy of the state, neither sent nor
// used: that may have happened since the copy was made. A person is asked what became of each
// message, and the runtime has to ask anew about each tool call. What a person has denied stays
// denied.
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
		// Nobody is given it, for the same reason.
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
		// The key of a claim gives the message a second time to whoever has it.
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
