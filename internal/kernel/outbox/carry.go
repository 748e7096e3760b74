package outbox

import (
	"context"

	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Waits returns one waiting message of a queue without an app, weighed again, to be handed over at
// once. It is nil if the message is gone, or was removed just now because it may not leave any more.
// KeptBack says that a pause or a person keeps it back. Nobody can drop a message that was returned.
func Waits(ctx context.Context, o *Outbox, id store.MessageID) (d *Delivery, keptBack bool, err error) {
	page, err := o.store.Messages(ctx, id.Queue, id.ID-1, 1)
	if err != nil || len(page) == 0 || page[0].ID != id.ID {
		return nil, false, err
	}
	if d, err = o.dueOf(nil, page[0]); err != nil || d == nil {
		return nil, false, err
	}
	if o.keptBack(d) || !o.give(id) {
		return nil, true, nil
	}
	return d, false, nil
}

// Arrived forgets that a carrier got a message, once its receipt is durable.
func Arrived(o *Outbox, id store.MessageID) { o.given.remove(id) }

// mayArrive reports whether a carrier may have got a message for another host, which then arrives
// whatever becomes of its row. Of messages from before its start the daemon does not know.
func mayArrive(o *Outbox, m *store.Message) bool {
	kind, _ := directory.Split(m.Queue)
	return kind == hostKind && (m.RecordSeq <= o.found || o.given.has(m.MessageID))
}
