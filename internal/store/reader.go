package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/db"
	"github.com/openclawos/ocipd/internal/logstore"
	"zombiezen.com/go/sqlite"
)

// Reader reads a database that no daemon uses. It changes nothing, makes no file and
// keeps no daemon from starting. Its methods are safe for concurrent use.
type Reader struct {
	logstore.Evidence
	db *db.Reader
}

// OpenReader opens a database to read its evidence, or returns [ErrRunning] where a
// daemon uses it. A write-ahead log beside the file, as a crash leaves it, is read
// along. Should a daemon start meanwhile, the queries fail rather than show a mixture
// of old and new.
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

// CopyTo copies the database into a new file, durable and for its owner alone.
func (r *Reader) CopyTo(ctx context.Context, path string) error { return r.db.CopyTo(ctx, path) }

// Close closes the database. Queries that come later get [ErrClosed].
func (r *Reader) Close() error { return r.db.Close() }

// ErrDamaged means that a file is no database of ours, or not any more.
var ErrDamaged = errors.New("the database is damaged")

// Damaged adds [ErrDamaged] to errors that say so.
func Damaged(err error) error {
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case err == nil:
		return nil
	case code == sqlite.ResultCorrupt, code == sqlite.ResultNotADB, errors.Is(err, db.ErrForeign), errors.Is(err, db.ErrEmpty):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
