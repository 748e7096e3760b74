package approval

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
)

// byExpiry stands for the person in a decision by expiry.
const byExpiry = "expiry"

// Expire ends a request that nobody decided. It never approves. The caller holds the subject's
// lock.
func (c *Decider) Expire(ctx context.Context, r *Request) error {
	s, err := c.Subject(r)
	if err != nil {
		return err
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: r.ApprovalID}, &store.Change{Drains: true})
	d.By = api.ApprovalDecision{Decision: "expire", By: byExpiry, At: d.Now.UnixMilli()}
	return c.end(ctx, d, api.ApprovalExpired)
}

// sweepPage is the number of expired requests that are read at a time.
const sweepPage = 64

// Sweep ends expired requests. A request that cannot be ended, because it or its subject cannot be
// read, does not block others.
func (c *Decider) Sweep(ctx context.Context) error {
	for {
		page, err := c.o.Store.ExpiredApprovals(ctx, c.o.Now(), sweepPage)
		if err != nil || len(page) == 0 {
			return err
		}
		var failed []error
		ended := false
		for _, id := range page {
			// take ends an expired request.
			switch _, _, unlock, err := c.take(ctx, id); {
			case err == nil:
				unlock()
			case api.DetailsOf[api.Obstacle](err).Code == api.AlreadyDecided:
				ended = true
			default:
				failed = append(failed, err)
			}
		}
		if !ended || ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
}
