package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Reader reads a database that no daemon uses. It changes nothing, makes no file and
// keeps no daemon from starting. Its methods are safe for concurrent use.
type Reader struct {
	logstore.Evidence
	db *db.Reader
}

// OpenReader opens a database to read its evidence, or returns [ErrRunning] if a daemon uses it. It
// also reads a write-ahead log beside the file, for example after a crash. If a daemon starts
// meanwhile, the queries fail rather than show a mixture of old and new.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reader, err := schema().OpenUnclaimed(path)
	if err != nil {
		return nil, err
	}
	return &Reader{logstore.EvidenceIn(reader), reader}, nil
}

// CopyTo copies the database into a new file, durable and readable only by its owner.
func (r *Reader) CopyTo(ctx context.Context, path string) error { return r.db.CopyTo(ctx, path) }

// CheckSchema returns an [audit.Fault] if the database has other tables, indexes, triggers or views
// than the daemon made.
func (r *Reader) CheckSchema(ctx context.Context) error { return r.db.Read(ctx, checkSchema) }

// AlteredRows returns the rows that somebody other than the daemon has changed, by their seals and
// the daemon's key, or [rowseal.ErrOther]. If records is set, it checks each record too, which takes
// as long as reading the log.
func (r *Reader) AlteredRows(ctx context.Context, key []byte, records bool) ([]*AlteredError, error) {
	var version int
	err := r.db.Read(ctx, func(conn *sqlite.Conn) (err error) {
		version, _, err = schema().Versions(conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rowseal.Inspect(ctx, r.db, key, version, records)
}

// UnlikeTheLog returns the differences between the rows and the log's statements. The caller has
// read all records.
func (r *Reader) UnlikeTheLog(ctx context.Context, log *fold.Replay) ([]fold.Difference, error) {
	if log.Silent() {
		// The tables may be those of an earlier version.
		return nil, nil
	}
	found := fold.NewFound()
	if err := r.db.Scan(ctx, func(conn *sqlite.Conn) error { return foldrows.Open(conn, log.Time(), found) }); err != nil {
		return nil, err
	}
	return append(log.Problems(), log.Compare(found, log.Time())...), nil
}

// Waits are the messages in the outbox, by their dispatch ids.
type Waits map[string][]Message

// Waits reads the outbox, without the texts. It is empty in a database of an early version, whose
// rows do not name their queues.
func (r *Reader) Waits(ctx context.Context) (Waits, error) {
	waits := make(Waits)
	err := r.db.Scan(ctx, func(conn *sqlite.Conn) error {
		named, err := db.QueryInt(conn, `SELECT count(*) FROM pragma_table_info('outbox') WHERE name = 'queue'`)
		if err != nil || named == 0 {
			return err
		}
		return sqlitex.Execute(conn, `SELECT record_seq, dispatch_id, queue FROM main.outbox`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			m := Message{MessageID: MessageID{Queue: stmt.ColumnText(2)}, RecordSeq: uint64(stmt.ColumnInt64(0)), DispatchID: stmt.ColumnText(1)}
			waits[m.DispatchID] = append(waits[m.DispatchID], m)
			return nil
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the outbox: %w", err)
	}
	return waits, nil
}

// EndedBy reports whether a record ended one of the waiting messages: somebody has put its row back.
func (w Waits) EndedBy(r *audit.Record) bool {
	return slices.ContainsFunc(w[r.DispatchID], func(m Message) bool { return m.EndedBy(r) })
}

// MetaUnder is [Store.MetaUnder].
func (r *Reader) MetaUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	return r.db.NamedUnder(ctx, prefix)
}

// Close closes the database. Queries that come later get [ErrClosed].
func (r *Reader) Close() error { return r.db.Close() }

// ErrDamaged means that a file is no database of ocipd, or not any more.
var ErrDamaged = errors.New("the database is damaged")

// Damaged adds [ErrDamaged] to errors that mean it.
func Damaged(err error) error {
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case err == nil:
		return nil
	case code == sqlite.ResultCorrupt, code == sqlite.ResultNotADB, errors.Is(err, db.ErrForeign), errors.Is(err, db.ErrEmpty):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
