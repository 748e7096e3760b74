package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/diskspace"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// backupPages is how many pages are copied between two looks at the context.
const backupPages = 1024

// BackupPath is where a database at an older schema version is kept when a newer
// daemon migrates it. To go back, stop the daemon, put this file in the
// database's place, remove the -wal and -shm files beside it, move the file of
// checkpoints and the mirror aside, and start the daemon that wrote it.
func BackupPath(database string, version int) string {
	return fmt.Sprintf("%s.v%d.bak", database, version)
}

// backUp copies the database, page by page, before its schema is changed. One
// copy is kept of each version, the newest. It is on the disk when backUp
// returns; what was there before is replaced as a whole or not at all. Nothing is
// copied where the migration would find no room afterwards. Discard takes the copy
// away again after a migration that changed nothing.
func (s *Store) backUp(ctx context.Context, conn *sqlite.Conn) (discard func() error, err error) {
	none := func() error { return nil }
	steps, err := migrationSteps()
	if err != nil {
		return none, err
	}
	version, err := identify(conn)
	if err != nil || version == 0 || version == len(steps) {
		return none, err
	}
	kept := BackupPath(s.path, version)
	fail := func(err error) (func() error, error) {
		return none, fmt.Errorf("cannot keep a copy of the store before it is migrated from version %d to %d: %w", version, len(steps), err)
	}
	size, err := databaseSize(conn)
	if err != nil {
		return fail(err)
	}
	free, err := s.space.Free()
	if err != nil {
		return fail(err)
	}
	rewritten, err := rewrittenBytes(conn, version)
	if err != nil {
		return fail(err)
	}
	if needed := size + migrationRoom(rewritten); free < needed {
		return fail(fmt.Errorf("%d MiB are free in %s, %d are needed: %d for the copy and %d for the migration; free some space, or give the database a larger disk",
			free>>20, filepath.Dir(s.path), mebibytes(needed), mebibytes(size), mebibytes(needed-size)))
	}
	s.log.Info("keeping a copy of the store before it is migrated",
		zap.Int("from", version), zap.Int("to", len(steps)), zap.String("copy", kept), zap.Int64("bytes", size))
	partial := kept + ".partial"
	if err := errors.Join(copyDatabase(ctx, conn, partial), syncPath(partial)); err != nil {
		return fail(errors.Join(err, removeIfThere(partial)))
	}
	if err := os.Rename(partial, kept); err != nil {
		return fail(err)
	}
	if err := syncPath(filepath.Dir(s.path)); err != nil {
		return fail(err)
	}
	return func() error {
		if now, err := identify(conn); err != nil || now != version {
			return err
		}
		return removeIfThere(kept)
	}, nil
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
func rewrittenBytes(conn *sqlite.Conn, version int) (int64, error) {
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
	pages, err := queryInt(conn, "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN ("+tables+"))")
	return int64(pages), err
}

// migrationRoom is what a migration takes of the disk that writes so many bytes
// again: they are in the write-ahead log, and from there in the file, before
// anything of either is given back. The key of a table with row numbers is a tree
// of its own, and what is written in another order fills its pages less.
func migrationRoom(rewritten int64) int64 {
	return 2*(rewritten+rewritten/4) + diskspace.Least
}

func databaseSize(conn *sqlite.Conn) (int64, error) {
	pages, err := queryInt(conn, "PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	size, err := queryInt(conn, "PRAGMA page_size")
	return int64(pages) * int64(size), err
}

// copyDatabase makes a copy for its owner alone. It is not durable yet.
func copyDatabase(ctx context.Context, from *sqlite.Conn, path string) (err error) {
	if err := removeIfThere(path); err != nil {
		return err
	}
	// SQLite makes files by the umask.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	to, err := openConn(path, sqlite.OpenReadWrite, []string{"synchronous=OFF", "journal_mode=OFF"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	copying, err := sqlite.NewBackup(to, "main", from, "main")
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		if err = ctx.Err(); err != nil {
			break
		}
		more, err = copying.Step(backupPages)
	}
	return errors.Join(err, copying.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncPath makes a file's content, or the names in a directory, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
