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

// BackupPath is where a database at an older schema version is kept when a newer
// daemon migrates it. To go back, stop the daemon, put this file in the
// database's place, remove the -wal and -shm files beside it, move the file of
// checkpoints and the mirror aside, and start the daemon that wrote it.
func BackupPath(database string, version int) string {
	return fmt.Sprintf("%s.v%d.bak", database, version)
}

// migrate brings the database to the newest schema version. Before that changes
// anything the database is copied: one copy is kept of each version, the newest. Nothing
// is copied where the migration would find no room afterwards, and the copy goes again
// where the migration changed nothing. Seal is done in the same transaction.
func (s *Store) migrate(ctx context.Context, w *db.Writer, seal func() error) error {
	version, newest, err := schema().Versions(w.Conn)
	if err != nil {
		return err
	}
	kept := BackupPath(s.path, version)
	if version != 0 && version != newest {
		if err := s.keepCopy(ctx, w, kept, version, newest); err != nil {
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

func (s *Store) keepCopy(ctx context.Context, w *db.Writer, kept string, version, newest int) error {
	size, err := db.Size(w.Conn)
	if err != nil {
		return err
	}
	free, err := s.space.Free()
	if err != nil {
		return err
	}
	rewritten, err := rewrittenBytes(w, version)
	if err != nil {
		return err
	}
	if needed := size + migrationRoom(rewritten); free < needed {
		return fmt.Errorf("%d MiB are free in %s, %d are needed: %d for the copy and %d for the migration; free some space, or give the database a larger disk",
			free>>20, filepath.Dir(s.path), mebibytes(needed), mebibytes(size), mebibytes(needed-size))
	}
	s.logger.Info("keeping a copy of the store before it is migrated",
		zap.Int("from", version), zap.Int("to", newest), zap.String("copy", kept), zap.Int64("bytes", size))
	return w.Keep(ctx, kept)
}

// mebibytes rounds up.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// The schema versions from which exchanges are in a table with row numbers, waiting
// messages in one that says which app they are from, and seen agents in one that says
// which tenant saw them: the migrations to them write all of them again.
const (
	exchangesByRow = 6
	outboxByApp    = 7
	seenByTenant   = 8
)

// rewrittenBytes is what the migrations from a version write again of what the
// database holds: the size of those tables in it.
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

// migrationRoom is what a migration takes of the disk that writes so many bytes
// again: they are in the write-ahead log, and from there in the file, before
// anything of either is given back. The key of a table with row numbers is a tree
// of its own, and what is written in another order fills its pages less.
func migrationRoom(rewritten int64) int64 {
	return 2*(rewritten+rewritten/4) + diskspace.Least
}

// NoRoomError means that a copy of the database finds no room beside it.
type NoRoomError struct {
	Dir          string
	Free, Needed int64
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("cannot copy the database: %d MiB are free in %s, %d are needed", e.Free>>20, e.Dir, mebibytes(e.Needed))
}

// Snapshot copies the database as it is now into a file beside it, for its owner
// alone, and returns the file's path; whoever has read it calls remove. The copy is
// made from one read transaction: commits go on, and what they write stays in the
// write-ahead log until the copy is made. Copies are made one after another. What a
// crash leaves of one is removed by the next start.
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
		free, err := s.space.Free()
		if err != nil {
			return err
		}
		if needed := size + s.space.Kept(); free < needed {
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
