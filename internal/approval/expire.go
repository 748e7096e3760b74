package approval

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
)

// byExpiry is who decides where time does.
const byExpiry = "expiry"

// Expire ends a request that nobody decided about. Time never approves. It is
// called under the subject's lock.
func (c *Decider) Expire(ctx context.Context, r *Request) error {
	s, err := c.Subject(r)
	if err != nil {
		return err
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: r.ApprovalID}, &store.Change{Drains: true})
	d.By = api.ApprovalDecision{Decision: "expire", By: byExpiry, At: d.Now.UnixMilli()}
	return c.end(ctx, d, api.ApprovalExpired)
}

// sweepPage is how many expired requests are looked up at a time.
const sweepPage = 64

// Sweep ends the requests whose time has run out.
func (c *Decider) Sweep(ctx context.Context) error {
	for {
		page, err := c.o.Store.ExpiredApprovals(ctx, c.o.Now(), sweepPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, id := range page {
			// Taking one that has expired ends it.
			_, _, unlock, err := c.take(ctx, id)
			if err == nil {
				unlock()
			} else if api.AsError(err).Code != api.Conflict {
				return err
			}
		}
	}
}
