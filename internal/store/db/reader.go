package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ErrClosed means that the database is closing or closed.
var ErrClosed = errors.New("the store is closed")

// Reader is the side of a database that only reads: some connections. It is safe for
// concurrent use.
type Reader struct {
	conns chan reading
	count int
	// long is taken by the one query of [Reader.Long] that runs.
	long chan struct{}
	// closed ends the waiting for a connection.
	closed chan struct{}
	// settled, where set, says after each query whether the file is still the
	// one that was opened.
	settled func() error
	// Failed, where set, says what it means that a query failed as on a broken disk. It
	// is set before the reader is used by many.
	Failed func(error) error
	// Altered, where set, is told of each altered row that ended a query, and words the
	// query's error, which wraps what it is given. It must not wait for a query.
	Altered func(*AlteredError) error
}

// reading is a connection that reads, with what checks the rows that it reads; that is
// nil in a database without seals.
type reading struct {
	*sqlite.Conn
	checker *checker
}

// NewReader opens some connections of a claimed database, and has them check the seals
// of the rows that they read, where there are some.
func NewReader(path string, count int, seals *Seals) (*Reader, error) {
	r := &Reader{conns: make(chan reading, count), long: make(chan struct{}, 1), closed: make(chan struct{})}
	for range count {
		conn, err := openAlone(path, readerSettings)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		if err := r.add(conn, seals); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// OpenUnclaimed opens a database with the schema for reading, one that no process has
// claimed, or returns [ErrRunning]. A write-ahead log beside the file, as a crash leaves
// it, is read along. Neither is changed, no file is made, and no process is kept from
// claiming it. Should one do so meanwhile, the queries fail rather than show a mixture
// of old and new.
func (s *Schema) OpenUnclaimed(path string) (*Reader, error) {
	if err := unclaimed(path); err != nil {
		return nil, err
	}
	conn, settled, err := openBeside(path)
	if err != nil {
		return nil, err
	}
	version, _, err := s.Versions(conn)
	if err == nil && version == 0 {
		err = ErrEmpty
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	r := &Reader{conns: make(chan reading, 1), long: make(chan struct{}, 1), closed: make(chan struct{}), settled: settled}
	return r, r.add(conn, nil)
}

func (r *Reader) add(conn *sqlite.Conn, seals *Seals) (err error) {
	one := reading{Conn: conn}
	if seals != nil {
		// A connection that only reads makes no views either.
		err = sqlitex.ExecuteTransient(conn, "PRAGMA query_only=OFF", nil)
		if err == nil {
			one.checker, err = seals.install(conn)
		}
		if err == nil {
			err = sqlitex.ExecuteTransient(conn, "PRAGMA query_only=ON", nil)
		}
	}
	r.count++
	r.conns <- one
	return err
}

// Read runs a short query on one of the connections, which never wait for a
// writer.
func (r *Reader) Read(ctx context.Context, query func(*sqlite.Conn) error) error {
	select {
	case <-r.closed:
		return ErrClosed
	default:
	}
	select {
	case conn := <-r.conns:
		defer func() { r.conns <- conn }()
		if err := conn.checker.take(query(conn.Conn)); err != nil {
			if r.Altered != nil {
				if found, ok := errors.AsType[*AlteredError](err); ok {
					return r.Altered(found)
				}
			}
			if r.settled != nil {
				// A file that is being written reads as a broken one.
				err = cmp.Or(r.settled(), err)
			}
			if r.Failed != nil && IsIO(err) {
				return r.Failed(err)
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

// Scan is [Reader.Read] for a query that may run long: it ends with the caller.
func (r *Reader) Scan(ctx context.Context, query func(*sqlite.Conn) error) error {
	return r.Read(ctx, func(conn *sqlite.Conn) error {
		conn.SetInterrupt(ctx.Done())
		defer conn.SetInterrupt(nil)
		err := query(conn)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	})
}

// Long is [Reader.Scan] for a query that grows with what others have in the database, and
// that whoever likes can ask for. They run one after another, so that however many are
// asked for the other connections stay free.
func (r *Reader) Long(ctx context.Context, query func(*sqlite.Conn) error) error {
	select {
	case r.long <- struct{}{}:
		defer func() { <-r.long }()
		return r.Scan(ctx, query)
	case <-r.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close refuses further queries and closes the connections, each when its
// query is done.
func (r *Reader) Close() error {
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

// Shrink gives back the memory of the connections' pages. What cannot be given back
// costs memory and nothing else.
func (r *Reader) Shrink(ctx context.Context) {
	for range r.count {
		_ = r.Read(ctx, func(conn *sqlite.Conn) error { return sqlitex.ExecuteTransient(conn, shrinkMemory, nil) })
	}
}

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
		return nil, nil, ErrEmpty
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
