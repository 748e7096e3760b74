package store

import (
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

// Change is the set of rows and records of one decision. It is durable whole or not at all. The
// caller must not touch it again after handing it to [Store.Commit].
type Change struct {
	// Records are the decision's evidence, in order.
	Records []*audit.Record
	// Parts are the rows that belong to the records, written in this order. They need a record in
	// the change: see [ErrUnrecorded].
	Parts []Part

	// Checkpoint asks for a checkpoint of the log right after the records, unless the last record
	// is one.
	Checkpoint bool
	// stated are unchanged rows that the first record states again.
	stated []fold.Change
	// log is the store's own step on the log after the records.
	log logstore.Step
	// shrink frees the memory of the writer's pages, which are read again when needed.
	shrink bool

	// Drains marks a change that ends something or is needed to end it: a person's decision, a
	// delivery's receipt, the end of an app. It is written even while the disk is nearly full, as
	// long as there is more than the reserve.
	Drains bool
	// Last marks a person's decision, and what the person reads for it. It drains, and may use the
	// reserve.
	Last bool
	// Alarm marks records about the log itself, such as that the mirror is lost or the daemon
	// stops. They release nothing, so they are written even when nothing may be released. An alarm
	// drains, and may use the reserve.
	Alarm bool

	// Durable, if set, is called after the fsync, in commit order, before Commit returns. It must
	// not block: every other caller waits for it. A panic in it ends the process.
	Durable func(Receipt)
}

// OnDurable adds a function to Durable, after those that are set already. See [Change.Durable].
func (c *Change) OnDurable(f func(Receipt)) {
	first := c.Durable
	if first == nil {
		c.Durable = f
		return
	}
	c.Durable = func(r Receipt) {
		first(r)
		f(r)
	}
}

// drains reports whether the change is written while the disk is nearly full. An empty change only
// writes touches, which would ride on the next commit anyway.
func (c *Change) drains() bool {
	return c.Drains || c.last() || len(c.Records) == 0 && len(c.Parts) == 0
}

// last reports whether the change may use the space that is reserved for the end.
func (c *Change) last() bool { return c.Last || c.Alarm }

// releases reports whether the change can have consequences. A change without a record is
// housekeeping: see [pending.prepare].
func (c *Change) releases() bool { return !c.Alarm && (len(c.Records) > 0 || c.Durable != nil) }

// Receipt names the records of a change, and proves that they are on disk.
type Receipt = gate.Receipt
