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

// Part is one set of rows of a [Change]: a noun with a table of its own, which is written with the
// change's records or not at all. Only types of this package are parts; tables of another package
// are [Rows].
type Part interface {
	// prepare refuses invalid rows and encodes the others, before the change waits for its turn. It
	// returns about how many bytes the rows take.
	prepare() (size int, err error)
	// put writes the rows within the change's transaction, after its records.
	put(tx *transaction) error
}

// guarded is a part that may be written only under a condition.
type guarded interface {
	// guard checks the condition within the change's transaction, before its records are sealed and
	// after the changes before it. A refusal drops only this change, and its caller gets it. An
	// error fails the transaction.
	guard(tx *transaction) (refusal, err error)
}

// transaction is the transaction of a change, for its parts, and the state that stays from one to
// the next.
type transaction struct {
	*db.Writer
	// receipt is the receipt of the change.
	receipt     Receipt
	nextMessage int64
	queues      map[string]int64
	// removed is that of [cleaning].
	removed *atomic.Uint32
}

// Rows are a part in tables of another package, which reads them from [Store.Tables].
type Rows struct {
	// Size is about how many bytes they take.
	Size int
	// Guard, if set, checks within the change's transaction whether they may be written. A refusal
	// drops only this change, an error fails the transaction.
	Guard func(*db.Writer) (refusal, err error)
	// Put writes them within the transaction.
	Put func(*db.Writer) error
	// Folded, if set, is the log's statement about one of the rows: its table, key and columns.
	Folded *FoldedRow
}

// FoldedRow is a row that the log states: see internal/audit/fold.
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

// ErrTooLarge means that a part exceeds the limit of its kind.
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

// housekeeping reports whether a part concerns only the daemon's own rows: its own values,
// delivered messages, rows without effect, the owners of an earlier version's sessions. It has no
// consequences, so it needs no record.
func housekeeping(p Part) bool {
	switch p.(type) {
	case Meta, Dropped, NoCopy, Taken, SettledSessions, lapsed, outdated, faded, forgotten, laneForgotten:
		return true
	}
	return false
}

// prepare readies a change's parts. It refuses parts that are too large, and parts without a record
// or beside one about the log itself, because such a change may have no consequences, see
// [Change.releases].
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

// maxPartText bounds a text of a part, in bytes. Texts that apps choose are bounded before.
const maxPartText = 4096

// bounded refuses texts of a part that are too long, and returns their total length.
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

// shareOf returns a tenant's own range of row numbers in a table that bounds each tenant's rows.
func shareOf(tenant string) (first, last db.Value) {
	const bits = 40
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // a hash never fails
	at := int64(h.Sum32()&0x3fffff) << bits
	return db.Int(at), db.Int(at + 1<<bits - 1)
}
