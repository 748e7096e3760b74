package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// snapshotInfix stands in the names of copies that a running store makes of itself.
const snapshotInfix = ".copy-"

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
	fail := func(err error) (string, func() error, error) {
		if s.closing.Err() != nil {
			err = ErrClosed
		}
		return "", nil, fmt.Errorf("cannot copy the database: %w", err)
	}
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-s.closing.Done():
		return fail(ErrClosed)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	if s.closing.Err() != nil {
		return fail(ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	conn, err := openAlone(s.path, readerSettings)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	size, err := databaseSize(conn)
	if err != nil {
		return fail(err)
	}
	free, err := s.space.Free()
	if err != nil {
		return fail(err)
	}
	if needed := size + s.space.Kept(); free < needed {
		return "", nil, &NoRoomError{Dir: filepath.Dir(s.path), Free: free, Needed: needed}
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+snapshotInfix+"*")
	if err != nil {
		return fail(err)
	}
	path = f.Name()
	remove = func() error { return removeIfThere(path) }
	if err := f.Close(); err != nil {
		return fail(errors.Join(err, remove()))
	}
	if err := copySnapshot(ctx, conn, path); err != nil {
		return fail(errors.Join(err, remove()))
	}
	return path, remove, nil
}

// copySnapshot copies what one read transaction sees.
func copySnapshot(ctx context.Context, from *sqlite.Conn, path string) (err error) {
	defer sqlitex.Transaction(from)(&err)
	// A transaction begins with what it reads first.
	if _, err := queryInt(from, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	}
	return copyDatabase(ctx, from, path)
}

// dropLeftovers removes what a crash has left of copies, and the shared memory of a
// daemon of before, which had some.
func dropLeftovers(database string) error {
	target, err := filepath.EvalSymlinks(database)
	if err != nil {
		return fmt.Errorf("cannot find the store: %w", err)
	}
	err = removeIfThere(target + "-shm")
	dir, readErr := os.ReadDir(filepath.Dir(database))
	for _, entry := range dir {
		if strings.HasPrefix(entry.Name(), filepath.Base(database)+snapshotInfix) && entry.Type().IsRegular() {
			err = errors.Join(err, removeIfThere(filepath.Join(filepath.Dir(database), entry.Name())))
		}
	}
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("cannot remove what a crash has left beside the store: %w", err)
	}
	return nil
}

// CopyTo copies the database into a new file, durable and for its owner alone.
func (r *Reader) CopyTo(ctx context.Context, path string) error {
	err := r.scan(ctx, func(conn *sqlite.Conn) error { return copySnapshot(ctx, conn, path) })
	if err == nil {
		err = syncPath(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot copy the database: %w", err), removeIfThere(path))
	}
	return nil
}
