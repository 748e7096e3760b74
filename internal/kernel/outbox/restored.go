package outbox

import (
	"context"

	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/store"
)

// Restored removes each waiting message that a person approved, also one in the event for an app,
// and has a person asked about it anew: a copy of the state was restored, and the message may have
// been sent, or dropped, after the copy was made.
func Restored(ctx context.Context, o *Outbox, why string) error {
	return o.eachQueue(ctx, "", "", func(queue string) (bool, error) {
		return o.eachMessage(ctx, queue, 0, func(m *store.Message, d *Delivery) (bool, error) {
			if d.approvalID() == "" || !m.ExpiresAt.IsZero() && !o.now().Before(m.ExpiresAt) {
				return true, nil
			}
			err := o.notDue(m, d, &gate.Anew{Reason: why})
			return err == nil, err
		})
	})
}
