package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// copyInfix marks the names of copies that are made beside a database in use.
const copyInfix = ".copy-"

// Size returns the size of a database in bytes, without its write-ahead log.
func Size(conn *sqlite.Conn) (int64, error) {
	pages, err := QueryInt(conn, "PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	size, err := QueryInt(conn, "PRAGMA page_size")
	return int64(pages) * int64(size), err
}

// Keep copies the database into a file readable only by its owner, which is on the disk when Keep
// returns. An earlier file is replaced as a whole or not at all.
func (w *Writer) Keep(ctx context.Context, path string) error {
	partial := path + ".partial"
	if err := errors.Join(copyPages(ctx, w.Conn, partial), syncPath(partial)); err != nil {
		return errors.Join(err, removeIfThere(partial))
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// CopyBeside copies the current state of a claimed database into a file beside it, readable only by
// its owner, and returns the file's path. The caller removes it after reading. The copy is made
// from one read transaction: commits go on, and their data stay in the write-ahead log until the
// copy is done. CopyBeside first calls room to check the free space.
func CopyBeside(ctx context.Context, database string, room func(size int64) error) (path string, err error) {
	conn, err := openAlone(database, readerSettings)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	size, err := Size(conn)
	if err != nil {
		return "", err
	}
	if err := room(size); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(database), filepath.Base(database)+copyInfix+"*")
	if err != nil {
		return "", err
	}
	if err = f.Close(); err == nil {
		err = copyState(ctx, conn, f.Name())
	}
	if err != nil {
		return "", errors.Join(err, removeIfThere(f.Name()))
	}
	return f.Name(), nil
}

// CopyTo copies the database into a new file, durable and readable only by its owner.
func (r *Reader) CopyTo(ctx context.Context, path string) error {
	err := r.Scan(ctx, func(conn *sqlite.Conn) error { return copyState(ctx, conn, path) })
	if err == nil {
		err = syncPath(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot copy the database: %w", err), removeIfThere(path))
	}
	return nil
}

// MarkCopy marks a database as a copy. Nobody may have it open.
func (s *Schema) MarkCopy(path string) error {
	conn, err := openConn(path, sqlite.OpenReadWrite, nil)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteTransient(conn, fmt.Sprintf("PRAGMA application_id=%d", s.Copy), nil), conn.Close())
	}
	if err == nil {
		err = syncPath(path)
	}
	return err
}

// IsCopy reports whether an open database is marked as a copy.
func (s *Schema) IsCopy(ctx context.Context, r *Reader) (copied bool, err error) {
	err = r.Scan(ctx, func(conn *sqlite.Conn) error {
		owner, err := QueryInt(conn, "PRAGMA application_id")
		copied = owner == s.Copy
		return err
	})
	return copied, err
}

// NoCopy removes the mark of a copy.
func (s *Schema) NoCopy(w *Writer) error {
	return w.Exec("that the database is no copy", fmt.Sprintf("PRAGMA application_id=%d", s.Application))
}

// copyState copies the state of one read transaction.
func copyState(ctx context.Context, from *sqlite.Conn, path string) (err error) {
	defer sqlitex.Transaction(from)(&err)
	// A transaction begins with its first read.
	if _, err := QueryInt(from, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	}
	return copyPages(ctx, from, path)
}

// pagesAtOnce is the number of pages that are copied between two checks of the context.
const pagesAtOnce = 1024

// copyPages makes a copy that only its owner can read. It is not durable yet.
func copyPages(ctx context.Context, from *sqlite.Conn, path string) (err error) {
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
		more, err = copying.Step(pagesAtOnce)
	}
	return errors.Join(err, copying.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncPath makes a file's content durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// DropLeftovers removes the remains of copies after a crash, and the shared-memory file of an
// earlier daemon that used one.
func DropLeftovers(database string) error {
	target, err := filepath.EvalSymlinks(database)
	if err != nil {
		return fmt.Errorf("cannot find the store: %w", err)
	}
	err = removeIfThere(target + "-shm")
	dir, readErr := os.ReadDir(filepath.Dir(database))
	for _, entry := range dir {
		if strings.HasPrefix(entry.Name(), filepath.Base(database)+copyInfix) && entry.Type().IsRegular() {
			err = errors.Join(err, removeIfThere(filepath.Join(filepath.Dir(database), entry.Name())))
		}
	}
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("cannot remove what a crash has left beside the store: %w", err)
	}
	return nil
}
