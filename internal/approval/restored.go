package approval

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
)

// ByRestoration stands for the person in what follows from a restored copy of the state.
const ByRestoration = "restoration"

// Restored has people asked anew about pending requests, under a new digest: a copy of the state was
// restored, and the earlier digest may have been signed after the copy was made. What people said
// about the requests so far counts no more.
func Restored(ctx context.Context, c *Decider, ids [][]string, why string) error {
	for _, id := range ids {
		if err := restored(ctx, c, id[0], why); err != nil {
			return err
		}
	}
	return nil
}

func restored(ctx context.Context, c *Decider, id, why string) error {
	r, s, unlock, err := c.take(ctx, id)
	_, altered := errors.AsType[*store.AlteredError](err)
	if code := api.AsError(err).Code; altered || err != nil && (code == api.NotFound || code == api.Conflict) {
		// Nobody can decide about it.
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: id}, &store.Change{Last: true})
	d.By = api.ApprovalDecision{Decision: api.DecideRevoke, By: ByRestoration, Note: why, At: d.Now.UnixMilli()}
	r.Salt, r.Approvals, r.Given = NewSalt(), nil, 0
	r.Anew++
	r.name(s.Shown())
	return c.keepWaiting(d, "asked_anew")
}
