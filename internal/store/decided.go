package store

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"zombiezen.com/go/sqlite"
)

// Decision is a record from the database that may have allowed a message, with the receipt that
// proves it.
type Decision struct {
	audit.Entry
	Receipt gate.Receipt
}

// decidedWithin is how many records from the one that a message names may belong to its decision.
// The record of a person's decision comes before those of its effects, each side has one, and a
// person may end many requests at once.
var decidedWithin = [...]int{8, 1024}

// DecisionsOf returns the records of the decision about a message: those with its dispatchID among
// the first from seq on. There are none if no decision wrote its row, or the records were retired
// while it waited. Before the caller hands over a message from the database, it closes it again and
// opens it with the receipt of one of the records, since anybody who can write the file can add
// rows. If somebody other than the daemon wrote one of the records that it reads, it returns an
// [*AlteredError].
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
			// It was retired, or never existed.
			break
		}
		if e := rows[i]; e.DispatchID == dispatchID {
			found = append(found, Decision{Entry: e, Receipt: gate.ReadBack(&e)})
		}
	}
	return found, err
}

// WrittenAs returns the record of a search result that a decision depends on, or [ErrNotFound] if
// there is none under its number or it is older than the seals of records. If somebody other than
// the daemon wrote it, it returns an [*AlteredError].
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

// searched is the size of the pages that are read to find a record.
const searched = 200

// EachWritten calls visit with the records like another one that the daemon has written, newest first.
// A record that is older than the seals of records is left out. It reads the
// log itself: a process that can write the search index can make it find nothing.
func EachWritten(ctx context.Context, s *Store, like *audit.Record, visit func(*audit.Entry)) error {
	return eachLike(ctx, s, like, func(line []byte) error {
		e, err := s.WrittenAs(ctx, line)
		if err == nil {
			visit(&e)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// eachLike calls visit with the lines of the records like another one, newest first.
func eachLike(ctx context.Context, s *Store, like *audit.Record, visit func(line []byte) error) error {
	f := audit.Filter{Like: *like}
	for before := uint64(0); ; {
		lines, next, err := s.Query(ctx, f, 0, before, searched)
		for i := 0; err == nil && i < len(lines); i++ {
			err = visit(lines[i])
		}
		if before = next; err != nil || next == 0 {
			return err
		}
	}
}

// Search finds the records that a filter selects before a number, newest first: see
// [logstore.Records.Query].
type Search func(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)

// EndOf returns the number of the record that ended a message, 0 if there is none up to a number.
func EndOf(ctx context.Context, s *Store, search Search, m *Message, upTo uint64) (seq uint64, err error) {
	e, err := newest(ctx, s, search, &audit.Record{DispatchID: m.DispatchID}, m.RecordSeq, upTo+1, m.EndedBy)
	return e.Seq, err
}

// newest returns the newest record like another one between two, both exclusive, that is the wanted one.
// It returns an empty one if there is none. Zero for before is the end of the log.
func newest(ctx context.Context, s *Store, search Search, like *audit.Record, after, before uint64, wanted func(*audit.Record) bool) (audit.Entry, error) {
	const page = 16 // a message or a request has few records
	for f := (audit.Filter{Like: *like}); before == 0 || before > after+1; {
		lines, next, err := search(ctx, f, before, page)
		if err != nil {
			return audit.Entry{}, err
		}
		for _, line := range lines {
			e, err := s.WrittenAs(ctx, line)
			switch {
			case errors.Is(err, ErrNotFound):
			case err != nil:
				return audit.Entry{}, err
			case e.Seq <= after:
				return audit.Entry{}, nil
			case wanted(&e.Record):
				return e, nil
			}
		}
		if before = next; next == 0 {
			break
		}
	}
	return audit.Entry{}, nil
}

// AgreesEnd compares the state of a decided approval, as it was read, with the newest record that says
// one of the states in which approvals end. [Store.Agrees] knows only the undecided ones, so an earlier
// row that somebody has put back, with its own seal, would fit. If no record says how it ended, since
// they are retired or older than the seals of records, the row stands. Another state is an
// [*AlteredError].
func AgreesEnd(ctx context.Context, s *Store, search Search, id, state string, ends []string) error {
	says := func() (string, error) {
		e, err := newest(ctx, s, search, &audit.Record{ActionType: audit.ActionApproval, ApprovalID: id}, 0, 0, func(r *audit.Record) bool { return slices.Contains(ends, r.Event) })
		return cmp.Or(e.Event, state), err
	}
	said, err := says()
	if err != nil || said == state {
		return err
	}
	// A decision may have been committed between the two reads. None is now.
	err = s.between(func(w *writer) error {
		row, err := foldrows.Find(w.Conn, fold.Approvals, []string{id})
		if err == nil && row != nil {
			const column = 3
			state = row[column]
		}
		return err
	})
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrLatched) {
		// Nothing is decided any more.
		return nil
	}
	if err == nil {
		said, err = says()
	}
	if err != nil || said == state {
		return err
	}
	return s.Altered(fold.Approvals, id)
}

// KeyGone returns the number of the record after another one that says that a tenant's digest key is
// destroyed or lost, 0 if there is none. Digests from before that match nothing any more.
func KeyGone(ctx context.Context, s *Store, search Search, tenant string, after uint64) (seq uint64, err error) {
	for _, event := range []string{audit.KeyDestroyed, audit.KeyLost} {
		lines, _, err := search(ctx, audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, Event: event, TenantID: tenant}}, 0, 1)
		if err != nil {
			return 0, err
		}
		for _, line := range lines {
			e, err := s.WrittenAs(ctx, line)
			switch {
			case errors.Is(err, ErrNotFound):
			case err != nil:
				return 0, err
			case e.Seq > after && e.Event == event && e.TenantID == tenant:
				return e.Seq, nil
			}
		}
	}
	return 0, nil
}

// written reads the records that decisions depend on, and is the only function that does: some from
// a number on, up to the first that is older than the seals of records.
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
