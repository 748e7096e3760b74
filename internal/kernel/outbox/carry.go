package outbox

import (
	"context"

	"github.com/openclawos/ocipd/internal/store"
)

// Waits returns one waiting message of a queue without an app, weighed again, to be handed over at
// once. It is nil if the message is gone, or was removed just now because it may not leave any more.
// KeptBack says that a pause or a person keeps it back.
func Waits(ctx context.Context, o *Outbox, id store.MessageID) (d *Delivery, keptBack bool, err error) {
	page, err := o.store.Messages(ctx, id.Queue, id.ID-1, 1)
	if err != nil || len(page) == 0 || page[0].ID != id.ID {
		return nil, false, err
	}
	if d, err = o.dueOf(nil, page[0]); err != nil || d == nil {
		return nil, false, err
	}
	if o.keptBack(d) {
		return nil, true, nil
	}
	return d, false, nil
}
