package store

import (
	"errors"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

// writer writes batches of changes, each in one transaction. Only the leader of a commit uses it.
type writer struct {
	transaction
	log     *logstore.Writer
	touches *touches
	// state are the open rows, as the log states them now.
	state    *fold.Set
	pageSize int64
	// ready decides last whether a batch goes to the disk.
	ready func([]*pending) error
	// grown, if set, is called with the size of the database after so many more bytes; counted is
	// how many were written since.
	grown   func(bytes int64)
	counted int64
	// idle says that the last batch had nothing to write, and so made no fsync.
	idle bool
}

func newWriter(s *Store, database *db.Writer, log *logstore.Writer) (*writer, error) {
	w := &writer{
		transaction: transaction{Writer: database, queues: make(map[string]int64), removed: &s.cleaning.removed},
		log:         log, touches: &s.touches, state: s.state, ready: s.health.mayWrite,
	}
	size, err := db.QueryInt(w.Conn, "PRAGMA page_size")
	if err != nil {
		return nil, err
	}
	w.pageSize = int64(size)
	if s.commits.space.On() {
		w.grown = s.commits.space.Grown
	}
	w.nextMessage, err = w.Scalar("the outbox", `SELECT coalesce(max(id & ?), 0) FROM main.outbox`, db.Int(sequenceMask))
	return w, err
}

// write makes a batch durable. It leaves out changes that their guards refuse, and notes the
// refusal.
func (w *writer) write(batch []*pending, at time.Time) error {
	if err := w.Run(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	w.state.Begin()
	before, err := w.changed(batch)
	if err == nil {
		err = w.fill(batch, at)
	}
	if w.idle = err == nil && !w.log.Grown(); w.idle {
		var after int64
		after, err = w.changed(batch)
		w.idle = after == before
	}
	// Until here everything is in memory: a refused change leaves no trace.
	if err == nil {
		err = w.ready(batch)
	}
	if err == nil {
		err = w.Run(`COMMIT`)
	}
	if err != nil {
		w.touches.restore()
		w.state.Rollback()
		// The numbers that this transaction gave to queues are gone.
		clear(w.queues)
		// SQLite rolls back by itself after some errors; another rollback would then be a
		// meaningless error.
		if !w.Conn.AutocommitEnabled() {
			err = errors.Join(err, w.Run(`ROLLBACK`))
		}
		return err
	}
	w.touches.forget()
	for _, p := range batch {
		if p.shrink {
			// A failure only costs memory.
			_ = w.Shrink()
		}
		if p.refused == nil {
			w.counted += p.size
		}
	}
	if w.counted >= countEvery && w.grown != nil {
		w.counted = 0
		// Only the monitor of the disk uses it: on failure the old value stays.
		if pages, err := w.Scalar("the size of the store", `PRAGMA page_count`); err == nil {
			w.grown(pages * w.pageSize)
		}
	}
	return nil
}

// countEvery is the number of bytes after which the database's size is checked.
const countEvery = 256 << 10

// changed returns the number of rows ever written, if the batch brings no record: one that does
// always writes.
func (w *writer) changed(batch []*pending) (rows int64, err error) {
	for _, p := range batch {
		if len(p.bodies) > 0 {
			return 0, nil
		}
	}
	return w.Scalar("what was written", `SELECT total_changes()`)
}

func (w *writer) fill(batch []*pending, at time.Time) error {
	size := 0
	for _, p := range batch {
		for _, body := range p.bodies {
			size += len(body) + 256
		}
	}
	w.log.Begin(at, size)
	taken, sessions := w.touches.due(at)
	// Messages leave the outbox before others enter it, into the same page.
	for _, upTo := range taken {
		if err := w.takeOut(upTo&^sequenceMask, upTo); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(batch, (*pending).seals) {
		if err := w.log.SignOverdue(); err != nil {
			return err
		}
	}
	for _, p := range batch {
		p.receipt = Receipt{}
		var err error
		if p.refused, err = w.refusal(p); err != nil {
			return err
		}
		if p.refused != nil {
			continue
		}
		if err := w.add(p); err != nil {
			return err
		}
	}
	if err := foldrows.List(w.Writer, w.state); err != nil {
		return err
	}
	for key, t := range sessions {
		if err := w.putTouch(key, t); err != nil {
			return err
		}
	}
	return nil
}

// refusal asks the guards of a change.
func (w *writer) refusal(p *pending) (refusal, err error) {
	for _, g := range p.guards {
		if refusal, err = g.guard(&w.transaction); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return w.stale(p), nil
}

// add writes a change: its records, and the rows that belong to them.
func (w *writer) add(p *pending) error {
	before := w.log.Head().Seq
	if err := w.log.Append(p.bodies, func(i int, head audit.Head) {
		if p.folded != nil {
			w.state.Apply(head.Seq, head.Time, p.folded[i])
		}
	}); err != nil {
		return err
	}
	if p.log != nil {
		if err := p.log(w.log); err != nil {
			return err
		}
	}
	if p.Checkpoint {
		if err := w.log.Sign(); err != nil {
			return err
		}
	}
	if head := w.log.Head(); head.Seq > before {
		// All records of a change have the same time.
		p.receipt = Receipt{Seq: before + 1, Time: head.Time}
	}
	w.receipt = p.receipt
	for _, part := range p.Parts {
		if err := part.put(&w.transaction); err != nil {
			return err
		}
	}
	return nil
}
