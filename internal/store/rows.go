package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// AlteredError means that somebody other than the daemon changed a row.
type AlteredError = db.AlteredError

// Left are the altered rows that a list leaves out.
type Left = db.Left

// settleSeals migrates the database, and makes sure that its rows are sealed. Accepted says that the
// operator accepts the rows as they are, for this start.
func (s *Store) settleSeals(ctx context.Context, w *db.Writer, o Options) (seals *db.Seals, accepted bool, err error) {
	version, newest, err := schema().Versions(w.Conn)
	if err == nil {
		err = checkSchema(w.Conn)
	}
	if _, ok := errors.AsType[*audit.Fault](err); ok {
		err = fmt.Errorf("cannot use the store: %w; "+audit.PutBack, err)
	}
	if err != nil {
		return nil, false, err
	}
	if o.RowKey == nil {
		o.RowKey = rowseal.KnownToAll
	}
	key, err := o.RowKey()
	if err != nil {
		return nil, false, err
	}
	seals, err = key.Settle(ctx, w, version, newest, func(seal func() error) error { return s.migrate(ctx, w, seal) })
	return seals, key.Accept, err
}

// checkSchema returns an [audit.Fault] if the database has other tables, indexes, triggers or views
// than the daemon made.
func checkSchema(conn *sqlite.Conn) error {
	err := schema().Check(conn)
	if found, ok := errors.AsType[*db.SchemaError](err); ok {
		return &audit.Fault{Problem: found.Error() + ": somebody else has changed the database"}
	}
	return err
}

// checkTail returns an [audit.Fault] if this daemon did not write a record at the end of the log:
// one of the last, or one that no checkpoint covers. Anybody can make their hashes fit.
func (s *Store) checkTail(ctx context.Context) error {
	const last = 256
	from := max(s.sealedFrom, s.Retired()+1, s.Head().Seq-min(s.Head().Seq, last))
	if first := s.FoundUnsigned().First; first > 0 {
		from = max(s.sealedFrom, min(from, first))
	}
	err := rowseal.Tail(ctx, s.db, s.seals, from)
	if found, ok := errors.AsType[*AlteredError](err); ok {
		return fmt.Errorf("cannot start on a damaged audit log: %w", &audit.Fault{
			Problem: "audit record " + found.Key + ": its seal says that somebody else than the daemon wrote it, or changed it; " + audit.PutBack,
		})
	}
	return err
}

// SealedRows returns the reason why rows were accepted as found, if that is not on record yet, or
// "". The part goes into the change that records it.
func (s *Store) SealedRows(ctx context.Context) (why string, recorded Part, err error) {
	value, err := s.Meta(ctx, rowseal.Unrecorded)
	if errors.Is(err, ErrNotFound) {
		return "", nil, nil
	}
	return string(value), Dropped(rowseal.Unrecorded), err
}

// altered records that a row was changed, once for each row.
func (s *Store) altered(found *AlteredError) {
	s.alterations.Report(found, func() {
		about := []zap.Field{zap.String("table", found.Table), zap.String("row", found.Row)}
		s.logger.Error("a row of the database was changed by somebody else than the daemon, and is not used: ocipd audit verify shows it", about...)
		if s.onAltered == nil {
			return
		}
		if _, err := s.Commit(s.onAltered(found.Table, found.Row)); err != nil {
			s.logger.Error("cannot record that a row of the database was changed", append(about, zap.Error(err))...)
		}
	})
}

// CheckRows reads every sealed row, records the altered ones, and returns their number. It reads on
// a connection of its own, so that it blocks nobody.
func (s *Store) CheckRows(ctx context.Context) (altered int, err error) {
	reader, err := db.NewReader(s.path, 1, nil)
	if err != nil {
		return 0, err
	}
	found, err := rowseal.Check(ctx, s.seals, reader)
	for _, row := range found {
		s.altered(row)
	}
	return len(found), errors.Join(err, reader.Close())
}
