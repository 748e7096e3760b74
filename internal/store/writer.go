package store

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
)

// writer is the one connection that writes. Whoever leads a commit uses it;
// nobody else does.
type writer struct {
	conn *sqlite.Conn

	// stmts are the statements, by their texts.
	stmts    map[string]*sqlite.Stmt
	pageSize int64

	// signing is nil where the log is not signed.
	signing     *Signing
	leaves      func(line []byte) audit.Hash
	nextMessage int64
	queues      map[string]int64
	// boot is the only one that app processes are remembered of, once it is known.
	boot    string
	noted   int
	touches *touches
	// removed is [Store.removed].
	removed *atomic.Uint32
	// ready has the last word before a batch goes to the disk.
	ready func([]*pending) error
	// grown, where set, is told how large the database is after so many bytes more;
	// counted is how many were written since.
	grown   func(bytes int64)
	counted int64
	// idle says that the last batch had nothing to write, and so took no fsync.
	idle bool
}

func newWriter(s *Store, conn *sqlite.Conn) (*writer, error) {
	s.queue.relay = make(chan struct{}, 1)
	w := &writer{
		conn: conn, stmts: make(map[string]*sqlite.Stmt), queues: make(map[string]int64),
		touches: &s.touches, removed: &s.removed, ready: s.mayWrite, signing: s.signing, leaves: audit.Leaves(),
	}
	size, err := queryInt(conn, "PRAGMA page_size")
	if err != nil {
		return nil, err
	}
	w.pageSize = int64(size)
	if s.space.On() {
		w.grown = s.space.Grown
	}
	w.nextMessage, err = w.scalar("the outbox", `SELECT coalesce(max(id & ?), 0) FROM outbox`, number(sequenceMask))
	return w, err
}

func (w *writer) close() error {
	if err := w.conn.Close(); err != nil {
		return fmt.Errorf("cannot close the store: %w", err)
	}
	return nil
}

// write makes a batch durable and returns its sealed lines, one after another
// with newlines, and the log's new end. Changes that their guards refuse are left
// out of it, with the refusal.
func (w *writer) write(batch []*pending, now end, at time.Time) (lines []byte, next end, err error) {
	if err := w.control(`BEGIN IMMEDIATE`); err != nil {
		return nil, now, err
	}
	before, err := w.changed(batch)
	if err == nil {
		lines, next, err = w.fill(batch, now, at)
	}
	if w.idle = err == nil && len(lines) == 0; w.idle {
		var after int64
		after, err = w.changed(batch)
		w.idle = after == before
	}
	// Up to here all is in memory: what is refused now leaves nothing behind.
	if err == nil {
		err = w.ready(batch)
	}
	if err == nil {
		err = w.control(`COMMIT`)
	}
	if err != nil {
		w.touches.restore()
		// Queues that were numbered in this transaction are not.
		clear(w.queues)
		w.boot = ""
		// SQLite has rolled back by itself after some errors; asking again is
		// then an error that says nothing.
		if !w.conn.AutocommitEnabled() {
			err = errors.Join(err, w.control(`ROLLBACK`))
		}
		return nil, now, err
	}
	w.touches.forget()
	for _, p := range batch {
		if p.shrink {
			// What is not given back costs memory and nothing else.
			_ = w.control(shrinkMemory)
		}
		if p.refused == nil {
			w.counted += p.size
		}
	}
	if w.counted >= countEvery && w.grown != nil {
		w.counted = 0
		// It is for the monitor of the disk alone: what cannot be told stays as it was.
		if pages, err := w.scalar("the size of the store", `PRAGMA page_count`); err == nil {
			w.grown(pages * w.pageSize)
		}
	}
	return lines, next, nil
}

// shrinkMemory gives back the memory of a connection's pages.
const shrinkMemory = `PRAGMA shrink_memory`

// countEvery is after how many bytes the size of the database is looked at.
const countEvery = 256 << 10

// control begins or ends a transaction.
func (w *writer) control(statement string) error {
	stmt, err := w.stmt(statement, nil)
	if err != nil {
		return err
	}
	return exec(stmt)
}

// changed returns how many rows were ever written, where the batch brings no
// record: one that does writes.
func (w *writer) changed(batch []*pending) (rows int64, err error) {
	for _, p := range batch {
		if len(p.bodies) > 0 {
			return 0, nil
		}
	}
	return w.scalar("what was written", `SELECT total_changes()`)
}

func (w *writer) fill(batch []*pending, log end, at time.Time) ([]byte, end, error) {
	size := 0
	for _, p := range batch {
		for _, body := range p.bodies {
			size += len(body) + 256
		}
	}
	lines := make([]byte, 0, size)
	if log.overdue(at) && slices.ContainsFunc(batch, (*pending).seals) {
		var err error
		if lines, err = w.sign(lines, &log, at, &pending{Change: &Change{}}); err != nil {
			return nil, log, err
		}
	}
	for _, p := range batch {
		p.receipt = Receipt{}
		var err error
		if p.refused, err = w.refusal(p); err != nil {
			return nil, log, err
		}
		if p.refused != nil {
			continue
		}
		if lines, err = w.add(lines, &log, at, p); err != nil {
			return nil, log, err
		}
	}
	return lines, log, w.applyTouches(at)
}

// refusal asks the guards of a change.
func (w *writer) refusal(p *pending) (refusal, err error) {
	for _, g := range p.guards {
		if refusal, err = g.guard(w); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil
}

// add writes a change: its records, and the rows that belong to them.
func (w *writer) add(lines []byte, log *end, at time.Time, p *pending) (_ []byte, err error) {
	for i, body := range p.bodies {
		if lines, err = w.seal(lines, log, at, body); err != nil {
			return nil, err
		}
		if i == 0 {
			p.receipt = Receipt{Seq: log.head.Seq, Time: log.head.Time}
		}
		if log.due() {
			if lines, err = w.sign(lines, log, at, p); err != nil {
				return nil, err
			}
		}
	}
	if lines, err = w.conclude(lines, log, at, p); err != nil {
		return nil, err
	}
	for _, part := range p.Parts {
		if err := part.put(w, p); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// insertRecord has a long text bound as bytes: it is copied once, and as one.
const insertRecord = `INSERT INTO records (seq, line) VALUES (?, CAST(? AS TEXT))`

// seal writes the next record: its line, and its leaf in the tree.
func (w *writer) seal(lines []byte, log *end, at time.Time, body []byte) ([]byte, error) {
	start := len(lines)
	lines, log.head = log.head.Seal(lines, at, body)
	line := lines[start:]
	if err := w.exec("the audit record", insertRecord, number(int64(log.head.Seq)), bytesOf(line)); err != nil {
		return nil, err
	}
	if log.unsigned.IsZero() {
		log.unsigned = log.head.Time
	}
	err := log.tree.Append(w.leaves(line), w.putTile)
	return append(lines, '\n'), err
}

// applyTouches writes what came along without a commit of its own.
func (w *writer) applyTouches(now time.Time) error {
	taken, sessions := w.touches.due(now)
	for _, upTo := range taken {
		if err := w.takeOut(upTo&^sequenceMask, upTo); err != nil {
			return err
		}
	}
	for key, t := range sessions {
		if err := w.putTouch(key, t); err != nil {
			return err
		}
	}
	return nil
}

func isFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// isIO reports an error after which the file can no longer be believed.
func isIO(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultIOErr, sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return true
	}
	return false
}
