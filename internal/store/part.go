package store

import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/quota"
)

// Part is one set of rows of a [Change]: a noun with a table of its own, which is
// written with the change's records or not at all. The types of this package alone
// are parts; tables of another package are [Rows].
type Part interface {
	// prepare refuses what may not be written and encodes the rest, before the change
	// waits for its turn. It returns about how many bytes the rows take.
	prepare() (size int, err error)
	// put writes the rows within the change's transaction, behind its records.
	put(tx *transaction) error
}

// guarded is a part that may be written only as long as something holds.
type guarded interface {
	// guard looks within the change's transaction, before its records are sealed and
	// behind the changes before it. A refusal drops the change alone, and its caller
	// gets it; the others of the transaction stay. An error fails the transaction.
	guard(tx *transaction) (refusal, err error)
}

// transaction is the one that a change is written in, for its parts, and what is
// remembered from one to the next.
type transaction struct {
	*db.Writer
	// receipt is that of the change which is written.
	receipt     Receipt
	nextMessage int64
	queues      map[string]int64
	// boot is the only one that app processes are remembered of, once it is known, and
	// noted is how many were.
	boot  string
	noted int
	// removed is [Store.removed].
	removed *atomic.Uint32
}

// Rows are a part in tables that another package knows, which reads them from
// [Store.Tables].
type Rows struct {
	// Size is about how many bytes they take.
	Size int
	// Guard, where set, looks whether they may be written, within the change's
	// transaction. A refusal drops the change alone, an error fails the transaction.
	Guard func(*db.Writer) (refusal, err error)
	// Put writes them within the transaction.
	Put func(*db.Writer) error
	// Folded, where set, is what the log says of one of the rows: its table, key and columns.
	Folded *FoldedRow
}

// FoldedRow is a row of which the log says what it is: see internal/audit/fold.
type FoldedRow struct {
	Table fold.Table
	Key   string
	Row   fold.Row
}

func (r Rows) fold(f *folding) {
	if r.Folded != nil {
		f.row(r.Folded.Table, []string{r.Folded.Key}).now = r.Folded.Row
	}
}

func (r Rows) prepare() (int, error) { return r.Size, nil }

func (r Rows) guard(tx *transaction) (refusal, err error) {
	if r.Guard == nil {
		return nil, nil
	}
	return r.Guard(tx.Writer)
}

func (r Rows) put(tx *transaction) error { return r.Put(tx.Writer) }

// ErrUnrecorded means that a change was to write a part without a record of it.
var ErrUnrecorded = errors.New("a change of what is known needs a record")

// ErrTooLarge means that a part is larger than what is kept of its kind.
var ErrTooLarge = errors.New("more than is kept")

// Add adds parts to the change.
func (c *Change) Add(parts ...Part) {
	if c.Parts == nil {
		c.Parts = make([]Part, 0, max(8, len(parts)))
	}
	c.Parts = append(c.Parts, parts...)
}

// Each returns the parts of one kind, in order.
func Each[T Part](c *Change) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, p := range c.Parts {
			if part, ok := p.(T); ok && !yield(part) {
				return
			}
		}
	}
}

// housekeeping reports whether a part is about the daemon's own rows alone: values
// of its own, what has been delivered, what has no effect any more, whose the sessions of an earlier version are. Nothing follows
// from it, so it needs no record.
func housekeeping(p Part) bool {
	switch p.(type) {
	case Meta, Dropped, Taken, SettledSessions, lapsed, outdated, faded, forgotten:
		return true
	}
	return false
}

// prepare readies a change's parts. It refuses those that are too large, and those
// without a record or beside one about the log itself: from such a change nothing
// may follow, see [Change.releases].
func (p *pending) prepare() error {
	for _, part := range p.Parts {
		if (len(p.Records) == 0 || p.Alarm) && !housekeeping(part) {
			return ErrUnrecorded
		}
		size, err := part.prepare()
		if err != nil {
			return err
		}
		p.size += int64(size)
		if g, ok := part.(guarded); ok {
			p.guards = append(p.guards, g)
		}
		if m, ok := part.(*Message); ok {
			p.waiting = append(p.waiting, quota.Message{App: m.App, Bytes: len(m.Body)})
		}
	}
	return nil
}

// maxPartText bounds a text of a part, in bytes. What apps may choose is bounded
// before it comes here.
const maxPartText = 4096

// bounded refuses texts of a part that are too long, and returns how long they are
// together.
func bounded(what string, texts ...string) (size int, err error) {
	for _, text := range texts {
		if len(text) > maxPartText {
			return 0, tooLarge(what, len(text))
		}
		size += len(text)
	}
	return size, nil
}

func tooLarge(what string, size int) error {
	return fmt.Errorf("cannot keep %s: %w: %d bytes, limit %d", what, ErrTooLarge, size, maxPartText)
}

// shareOf is the range of row numbers that is a tenant's own in a table of which each
// tenant has a bounded part.
func shareOf(tenant string) (first, last db.Value) {
	const bits = 40
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // a hash takes everything
	at := int64(h.Sum32()&0x3fffff) << bits
	return db.Int(at), db.Int(at + 1<<bits - 1)
}
