package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// reader is the side of a database that only reads: some connections, and the
// queries over the evidence. An open [Store] and a [Reader] ask the same ones.
type reader struct {
	conns chan *sqlite.Conn
	count int
	// closed ends the waiting for a connection.
	closed chan struct{}
	// settled, where set, says after each query whether the file is still the
	// one that was opened.
	settled func() error
	// failed, where set, says what the failure of a query means.
	failed func(error) error
}

func newReader(capacity int) reader {
	return reader{conns: make(chan *sqlite.Conn, capacity), closed: make(chan struct{})}
}

func (r *reader) add(conn *sqlite.Conn) {
	r.count++
	r.conns <- conn
}

// read runs a short query on one of the connections, which never wait for a
// writer.
func (r *reader) read(ctx context.Context, query func(*sqlite.Conn) error) error {
	select {
	case <-r.closed:
		return ErrClosed
	default:
	}
	select {
	case conn := <-r.conns:
		defer func() { r.conns <- conn }()
		if err := query(conn); err != nil {
			if r.settled != nil {
				// A file that is being written reads as a broken one.
				err = cmp.Or(r.settled(), err)
			}
			if r.failed != nil && isIO(err) {
				return r.failed(err)
			}
			return err
		}
		if r.settled != nil {
			return r.settled()
		}
		return nil
	case <-r.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scan is [reader.read] for a query that may run long: it ends with the caller.
func (r *reader) scan(ctx context.Context, query func(*sqlite.Conn) error) error {
	return r.read(ctx, func(conn *sqlite.Conn) error {
		conn.SetInterrupt(ctx.Done())
		defer conn.SetInterrupt(nil)
		err := query(conn)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	})
}

// close refuses further queries and closes the connections, each when its
// query is done.
func (r *reader) close() error {
	close(r.closed)
	var errs []error
	for range r.count {
		conn := <-r.conns
		if err := conn.Close(); err != nil {
			errs = append(errs, fmt.Errorf("cannot close the store: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Reader reads a database that no daemon uses. It changes nothing, makes no file and
// keeps no daemon from starting. Its methods are safe for concurrent use.
type Reader struct{ Evidence }

// OpenReader opens a database to read its evidence, or returns [ErrRunning] where a
// daemon uses it. A write-ahead log beside the file, as a crash leaves it, is read
// along. Should a daemon start meanwhile, the queries fail rather than show a mixture
// of old and new.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := unclaimed(path); err != nil {
		return nil, err
	}
	conn, settled, err := openBeside(path)
	if err != nil {
		return nil, err
	}
	version, err := identify(conn)
	if err == nil && version == 0 {
		err = errEmpty
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	sides := newReader(1)
	r := &Reader{Evidence{&sides}}
	r.settled = settled
	r.add(conn)
	return r, nil
}

// unclaimed returns [ErrRunning] where a store has the file, see [claimFile].
func unclaimed(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	// Closing the file gives the lock back at once.
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("cannot read %s: %w", path, ErrRunning)
	} else if err != nil {
		// A file system without such locks has no daemon on it either.
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Close closes the database. Queries that come later get [ErrClosed].
func (r *Reader) Close() error { return r.close() }

var errEmpty = errors.New("cannot use the store: the file is an empty database")

// openBeside opens a database for reading in such a way that neither it nor
// any file beside it is changed or made, and that no lock is taken. Settled says
// whether both were left alone since.
func openBeside(path string) (conn *sqlite.Conn, settled func() error, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the store: %w", err)
	}
	opened, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the store: %w", err)
	}
	if opened.Size() == 0 {
		// SQLite would remove a write-ahead log beside it, also where it only
		// reads, and with it what is left of the records.
		return nil, nil, errEmpty
	}
	log, err := os.Stat(path + "-wal")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot open the store: %w", err)
	}
	// Where there is no log, or one that was begun and has no frame, the file is whole
	// by itself. Otherwise the index of the log is made in memory; in exclusive mode
	// SQLite needs no file for it, and the VFS takes no lock. That mode has to be set
	// before anything is read.
	mode, settings := "immutable=1", readerSettings
	if log != nil && log.Size() > walHeader {
		mode, settings = "vfs=unix-none", append([]string{"locking_mode=EXCLUSIVE"}, readerSettings...)
	}
	conn, err = openConn("file:"+uriEscaper.Replace(path)+"?mode=ro&"+mode, sqlite.OpenReadOnly|sqlite.OpenURI, settings)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the store %s: %w", path, err)
	}
	return conn, func() error { return leftAlone(path, opened, log) }, nil
}

// walHeader is the length of a write-ahead log that holds nothing, in bytes.
//
// Source: https://www.sqlite.org/fileformat2.html, section 4.1.
const walHeader = 32

// uriEscaper hides the characters that end the path in a URI.
var uriEscaper = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// leftAlone reports an error where a file that is read without locks is being
// written after all.
func leftAlone(path string, opened, log fs.FileInfo) error {
	now, err := os.Stat(path)
	if err == nil && same(now, opened) {
		now, err = os.Stat(path + "-wal")
		switch quiet := errors.Is(err, fs.ErrNotExist) || err == nil && now.Size() <= walHeader; {
		case log == nil || log.Size() <= walHeader:
			if quiet {
				return nil
			}
		case err == nil && same(now, log):
			return nil
		}
	}
	return fmt.Errorf("a daemon has opened %s meanwhile: try again", path)
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// refuseForeign looks at a file before it is opened for writing, so that one
// of another program or of a newer daemon is left exactly as it is.
func refuseForeign(path string) error {
	conn, _, err := openBeside(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errEmpty):
		return nil
	case err != nil:
		return err
	}
	_, err = identify(conn)
	return errors.Join(err, conn.Close())
}

var errForeign = errors.New("cannot use the store: the file is another program's")

// identify returns the schema version of an open database, zero for an empty
// one, and refuses those that are not for this daemon.
func identify(conn *sqlite.Conn) (int, error) {
	version, err := queryInt(conn, "PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	owner, err := queryInt(conn, "PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	tables, err := queryInt(conn, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, err
	}
	steps, err := migrationSteps()
	switch {
	case err != nil:
		return 0, err
	case owner == 0 && version == 0 && tables == 0:
		return 0, nil
	case owner != applicationID:
		return 0, errForeign
	case version > len(steps):
		return 0, fmt.Errorf("cannot use the store: its schema version %d is newer than this daemon's %d; use the daemon that wrote it", version, len(steps))
	}
	return version, nil
}

func queryInt(conn *sqlite.Conn, query string) (int, error) {
	var value int
	err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error {
			value = stmt.ColumnInt(0)
			return nil
		},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot read the store: %s: %w", query, err)
	}
	return value, nil
}
