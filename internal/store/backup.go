package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/diskspace"
	"go.uber.org/zap"
)

// BackupPath returns the path of the copy that a newer daemon keeps of a database at an older
// schema version when it migrates it. To go back, stop the daemon, put this file in the database's
// place, remove the -wal and -shm files beside it, move the file of checkpoints and the mirror
// aside, and start the daemon that wrote it.
func BackupPath(database string, version int) string {
	return fmt.Sprintf("%s.v%d.bak", database, version)
}

// migrate brings the database to the newest schema version. It first copies the database, and keeps
// one copy of each version, the newest. It makes no copy if the migration would then lack space,
// and removes the copy if the migration changed nothing. It calls seal in the same transaction.
func (s *Store) migrate(ctx context.Context, w *db.Writer, seal func() error) error {
	version, newest, err := schema().Versions(w.Conn)
	if err != nil {
		return err
	}
	kept := BackupPath(s.path, version)
	if version != 0 && version != newest {
		if err := keepCopy(ctx, w, s.commits.space, s.logger, kept, version, newest); err != nil {
			return fmt.Errorf("cannot keep a copy of the store before it is migrated from version %d to %d: %w", version, newest, err)
		}
	}
	if err = w.Together(func() error {
		if err := schema().Migrate(w); err != nil {
			return err
		}
		return seal()
	}); err == nil || version == 0 || version == newest || db.IsIO(err) {
		return err
	}
	now, _, lookErr := schema().Versions(w.Conn)
	if lookErr == nil && now == version {
		lookErr = removeIfThere(kept)
	}
	return errors.Join(err, lookErr)
}

func keepCopy(ctx context.Context, w *db.Writer, space *diskspace.Monitor, log *zap.Logger, kept string, version, newest int) error {
	size, err := db.Size(w.Conn)
	if err != nil {
		return err
	}
	free, err := space.Free()
	if err != nil {
		return err
	}
	rewritten, err := rewrittenBytes(w, version)
	if err != nil {
		return err
	}
	if needed := size + migrationRoom(rewritten); free < needed {
		return fmt.Errorf("%d MiB are free in %s, %d are needed: %d for the copy and %d for the migration; free some space, or give the database a larger disk",
			free>>20, filepath.Dir(kept), mebibytes(needed), mebibytes(size), mebibytes(needed-size))
	}
	log.Info("keeping a copy of the store before it is migrated",
		zap.Int("from", version), zap.Int("to", newest), zap.String("copy", kept), zap.Int64("bytes", size))
	return w.Keep(ctx, kept)
}

// mebibytes rounds up.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// The schema versions that introduced row numbers for exchanges, the app of each waiting message,
// and the tenant of each seen agent. The migrations to them rewrite these tables.
const (
	exchangesByRow = 6
	outboxByApp    = 7
	seenByTenant   = 8
)

// rewrittenBytes returns how many bytes the migrations from a version rewrite: the size of those
// tables.
func rewrittenBytes(w *db.Writer, version int) (int64, error) {
	var tables string
	switch {
	case version < exchangesByRow:
		tables = "'exchanges', 'outbox', 'seen_agents'"
	case version < outboxByApp:
		tables = "'outbox', 'seen_agents'"
	case version < seenByTenant:
		tables = "'seen_agents'"
	default:
		return 0, nil
	}
	pages, err := db.QueryInt(w.Conn, "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN ("+tables+"))")
	return int64(pages), err
}

// migrationRoom returns the disk space for a migration that rewrites so many bytes: they are in the
// write-ahead log and then also in the file, before either frees anything. The key of a table with
// row numbers is a separate tree, and rows written in another order fill its pages less.
func migrationRoom(rewritten int64) int64 {
	return 2*(rewritten+rewritten/4) + diskspace.Least
}

// NoRoomError means that there is no space for a copy beside the database.
type NoRoomError struct {
	Dir          string
	Free, Needed int64
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("cannot copy the database: %d MiB are free in %s, %d are needed", e.Free>>20, e.Dir, mebibytes(e.Needed))
}

// Snapshot copies the current database into a file beside it, readable only by its owner, and
// returns the file's path. The caller calls remove after reading it. The copy is made from one read
// transaction: commits go on, and their data stay in the write-ahead log until the copy is done.
// Copies are made one after another. The next start removes the remains of a crash.
func (s *Store) Snapshot(ctx context.Context) (path string, remove func() error, err error) {
	path, err = s.snapshot(ctx)
	if _, full := errors.AsType[*NoRoomError](err); full {
		return "", nil, err
	}
	if err != nil && s.closing.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		return "", nil, fmt.Errorf("cannot copy the database: %w", err)
	}
	return path, func() error { return removeIfThere(path) }, nil
}

func (s *Store) snapshot(ctx context.Context) (path string, err error) {
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-s.closing.Done():
		return "", ErrClosed
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.closing.Err() != nil {
		return "", ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	return db.CopyBeside(ctx, s.path, func(size int64) error {
		free, err := s.commits.space.Free()
		if err != nil {
			return err
		}
		if needed := size + s.commits.space.Kept(); free < needed {
			return &NoRoomError{Dir: filepath.Dir(s.path), Free: free, Needed: needed}
		}
		return nil
	})
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
