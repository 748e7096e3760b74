package logstore

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"golang.org/x/mod/sumdb/note"
)

// Writer adds to a log, within the transactions of its database's writer. Only the leader of a
// commit uses it. Its records count after [Writer.Publish], which is called after the transaction,
// and are forgotten with the next [Writer.Begin].
type Writer struct {
	log    *Log
	tx     *db.Writer
	newID  func() string
	leaves func(line []byte) audit.Hash
	mark   func(seq uint64, hash audit.Hash) []byte
	counts func(at time.Time) []audit.TableState
	// restored and newest are those of [Options].
	restored func() string
	newest   func() map[string]string

	// The current transaction: its time, its lines, one after another with newlines, and the log's
	// new end.
	at    time.Time
	lines []byte
	end   end
}

func newWriter(l *Log, tx *db.Writer, o *Options) *Writer {
	w := &Writer{log: l, tx: tx, leaves: audit.Leaves(), mark: o.Mark, counts: o.State, restored: o.Restored, newest: o.Newest}
	if o.Signing != nil {
		w.newID = o.Signing.NewID
	}
	return w
}

// Begin starts the part of a transaction, of about so many bytes.
func (w *Writer) Begin(at time.Time, size int) {
	w.at, w.lines, w.end = at, make([]byte, 0, size), *w.log.end.Load()
}

// Head returns the last record so far.
func (w *Writer) Head() audit.Head { return w.end.head }

// Grown reports whether the transaction wrote a record.
func (w *Writer) Grown() bool { return len(w.lines) > 0 }

// Append writes records, and a checkpoint after one if it is due. It calls written after each
// record, before the checkpoint.
func (w *Writer) Append(bodies [][]byte, written func(i int, head audit.Head)) error {
	for i, body := range bodies {
		if err := w.seal(body); err != nil {
			return err
		}
		written(i, w.end.head)
		if w.end.signer != nil && w.end.head.Seq >= w.end.stated+audit.CheckpointEvery {
			if err := w.sign(); err != nil {
				return err
			}
		}
	}
	return nil
}

// SignOverdue writes a checkpoint if an unsigned record would be too old for the next one.
func (w *Writer) SignOverdue() error {
	at := w.at
	if at.Before(w.end.head.Time) {
		at = w.end.head.Time
	}
	if w.end.signer == nil || w.end.unsigned.IsZero() || at.Sub(w.end.unsigned) <= audit.SignWithin {
		return nil
	}
	return w.sign()
}

// Sign writes a checkpoint of everything so far, unless the last record is a plain one.
func (w *Writer) Sign() error {
	if w.end.signer == nil || w.end.head.Seq <= w.end.newest.Seq {
		return nil
	}
	return w.sign()
}

// Publish makes the transaction's records the end of the log, once it is durable. A reader that
// sees the new end finds its lines.
func (w *Writer) Publish() {
	before, next := w.log.end.Load(), w.end
	if w.Grown() {
		w.log.recent.add(before.head.Seq+1, next.head.Seq, w.lines)
	}
	w.log.end.Store(&next)
}

// Tell wakes the readers that wait for published records.
func (w *Writer) Tell() {
	if w.Grown() {
		w.log.grown.tell()
	}
	w.lines = nil
}

// insertRecord has a long text bound as bytes: it is copied only once.
const insertRecord = `INSERT OR FAIL INTO records (seq, line, seal) VALUES (?, CAST(? AS TEXT), ?)`

// seal writes the next record: its line, and its leaf in the tree.
func (w *Writer) seal(body []byte) error {
	start := len(w.lines)
	w.lines, w.end.head = w.end.head.Seal(w.lines, w.at, body)
	line := w.lines[start:]
	seal := w.mark(w.end.head.Seq, w.end.head.Hash)
	if err := w.tx.Exec("the audit record", insertRecord, db.Int(int64(w.end.head.Seq)), db.Bytes(line), db.Bytes(seal)); err != nil {
		return err
	}
	if w.end.unsigned.IsZero() {
		w.end.unsigned = w.end.head.Time
	}
	err := w.end.tree.Append(w.leaves(line), w.putTile)
	w.lines = append(w.lines, '\n')
	return err
}

func (w *Writer) putTile(t audit.Tile) error { return putTile(w.tx, t) }

// sign writes a checkpoint of all records so far.
func (w *Writer) sign() error {
	c := w.checkpoint()
	signed, err := c.Sign(w.end.signer)
	if err != nil {
		return err
	}
	if err := w.state(audit.EventSigned, signed); err != nil {
		return err
	}
	w.end.newest = Signed{Seq: w.end.head.Seq, Note: signed}
	value, err := json.Marshal(w.end.newest)
	if err != nil {
		return fmt.Errorf("cannot keep the checkpoint of record %d: %w", w.end.head.Seq, err)
	}
	return w.tx.PutNamed(checkpointName, value)
}

// checkpoint returns the unsigned checkpoint of the current log.
func (w *Writer) checkpoint() audit.Checkpoint {
	return audit.Checkpoint{Origin: w.end.signer.Name(), Size: w.end.tree.Size(), Root: w.end.tree.Root()}
}

// state writes the record that holds a signed note.
func (w *Writer) state(event, signed string) error {
	r := &audit.Record{
		ID: w.newID(), ActionType: audit.ActionCheckpoint, Event: event,
		Details: map[string]any{"note": signed, audit.SignsWithin: int(audit.SignWithin.Seconds())},
	}
	if event == audit.EventSigned && w.counts != nil {
		r.State, r.Details[fold.FormName] = w.counts(w.end.head.Next(w.at)), fold.Form
		if restored := w.restored(); restored != "" {
			r.Details[fold.RestoredName] = restored
		}
		if newest := w.newest(); len(newest) > 0 {
			r.Details[fold.NewestName] = newest
		}
	}
	body, err := audit.Encode(r)
	if err != nil {
		return err
	}
	if err := w.seal(body); err != nil {
		return err
	}
	if event != audit.EventRetired {
		w.end.stated, w.end.unsigned = w.end.head.Seq, time.Time{}
	}
	return nil
}

// Step writes to the log itself, after the records of a change.
type Step func(*Writer) error

// HandOver returns the step that records the next key, with the signer next: the old one signs a
// checkpoint that names it, and the new one signs that too. The log must be signed.
func HandOver(next note.Signer, public string) Step {
	return func(w *Writer) error {
		c := audit.HandOver(w.checkpoint(), public)
		signed, err := c.Sign(w.end.signer, next)
		if err != nil {
			return err
		}
		w.end.signer = next
		if err := w.tx.PutNamed(publicKeyName, []byte(public)); err != nil {
			return err
		}
		return w.state(audit.EventRotated, signed)
	}
}
