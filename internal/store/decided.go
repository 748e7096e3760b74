package store

import (
	"context"
	"errors"
	"math"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"zombiezen.com/go/sqlite"
)

// Decision is a record that was read back, which may have let a message through, and the
// receipt that proves it.
type Decision struct {
	audit.Entry
	Receipt gate.Receipt
}

// decidedWithin is how many records from the one that a message names may be of its
// decision. A person's words come before the records of what they let go, each side has
// one, and a person may end many requests at once.
var decidedWithin = [...]int{8, 1024}

// DecisionsOf returns the records of the decision about a message: those with its
// dispatchID among the first from seq on, none if its row was not written by a decision or
// the records were retired while it waited. The caller closes the message anew and opens it
// with the receipt of one of them before it hands over what it read from the database:
// whoever can write the file can put rows there. If somebody else than the daemon has written
// one of the records that it reads, it returns an [*AlteredError].
func (s *Store) DecisionsOf(ctx context.Context, seq uint64, dispatchID string) (found []Decision, err error) {
	for _, limit := range decidedWithin {
		if found, err = s.decisionsAmong(ctx, seq, dispatchID, limit); err != nil || len(found) > 0 {
			break
		}
	}
	return found, err
}

func (s *Store) decisionsAmong(ctx context.Context, seq uint64, dispatchID string, limit int) (found []Decision, err error) {
	rows, err := s.written(ctx, seq, limit)
	for i := range rows {
		if rows[i].Seq != seq+uint64(i) {
			// It was retired, or is none.
			break
		}
		if e := rows[i]; e.DispatchID == dispatchID {
			found = append(found, Decision{Entry: e, Receipt: gate.ReadBack(&e)})
		}
	}
	return found, err
}

// WrittenAs returns the record of a line that a search has found, by which something is
// decided, or [ErrNotFound] if there is none under its number or it is of before records had
// seals. One that somebody else than the daemon has written is an [*AlteredError].
func (s *Store) WrittenAs(ctx context.Context, line []byte) (audit.Entry, error) {
	head, err := audit.HeadOf(line)
	if err != nil {
		return audit.Entry{}, err
	}
	rows, err := s.written(ctx, head.Seq, 1)
	if err == nil && (len(rows) == 0 || rows[0].Seq != head.Seq) {
		err = ErrNotFound
	}
	if err != nil {
		return audit.Entry{}, err
	}
	return rows[0], nil
}

// written is the one way in which the daemon reads a record to decide by it: some records
// from a number on, up to the first that is of before records had seals.
func (s *Store) written(ctx context.Context, seq uint64, limit int) (found []audit.Entry, err error) {
	_, err = db.Rows(ctx, s.db, "the record of a decision", `SELECT seq, line, seal FROM records WHERE seq >= ? ORDER BY seq LIMIT ?`,
		[]any{int64(min(seq, math.MaxInt64)), limit}, func(stmt *sqlite.Stmt) (none struct{}, err error) {
			e, err := rowseal.Record(s.seals, s.sealedFrom, uint64(stmt.ColumnInt64(0)), db.ColumnBytes(stmt, 1), db.ColumnBytes(stmt, 2))
			if err == nil {
				found = append(found, e)
			}
			return none, err
		})
	if errors.Is(err, rowseal.ErrUnsealed) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}
