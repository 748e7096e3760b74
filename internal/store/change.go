package store

import (
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

// Change is what one decision writes. It is durable whole or not at all. The
// caller must not touch it again after handing it to [Store.Commit].
type Change struct {
	// Records are the decision's evidence, in order.
	Records []*audit.Record
	// Parts are the rows that belong to them, in the order in which they are written.
	// They need a record in the change: see [ErrUnrecorded].
	Parts []Part

	// Checkpoint asks for a checkpoint of the log right after the records,
	// unless the last record of it is one.
	Checkpoint bool
	// stated are rows that the first record says once more, as they are.
	stated []fold.Change
	// log is what the store itself writes of the log behind them.
	log logstore.Step
	// shrink asks for the memory of the writer's pages, which are read again when they
	// are wanted.
	shrink bool

	// Drains marks a change that ends something or is needed for it: a person's
	// decision, a delivery's receipt, the going of an app. It is written also while
	// the disk is nearly full, as long as there is more than the reserve.
	Drains bool
	// Last marks a person's decision. It drains, and may use the reserve.
	Last bool
	// Alarm marks records about the log itself, such as that the mirror is lost
	// or the daemon stops. They release nothing, so they are written also where
	// nothing may be released. An alarm drains, and may use the reserve.
	Alarm bool

	// Durable, where set, is called after the fsync, in commit order, before
	// Commit returns. It must not block: every other caller waits for it. A panic in it
	// ends the process.
	Durable func(Receipt)
}

// OnDurable adds to what happens when the change is durable, after what is set
// already. See [Change.Durable].
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

// drains reports whether the change is written while the disk is nearly full. One
// of nothing writes no more than what rides along with the next commit.
func (c *Change) drains() bool {
	return c.Drains || c.last() || len(c.Records) == 0 && len(c.Parts) == 0
}

// last reports whether the change may use the space that is kept for the end.
func (c *Change) last() bool { return c.Last || c.Alarm }

// releases reports whether something may follow from the change. What has no record
// is housekeeping: see [pending.prepare].
func (c *Change) releases() bool { return !c.Alarm && (len(c.Records) > 0 || c.Durable != nil) }

// Receipt says where a change went, and proves that its records are on disk.
type Receipt = gate.Receipt
