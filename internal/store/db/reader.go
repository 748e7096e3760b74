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
	// conns are the open connections that no query uses. Unopened has a place for each connection
	// that has not been needed yet: to open one takes as long as hundreds of queries.
	conns    chan reading
	unopened chan struct{}
	open     func() (reading, error)
	// long is held by the one running query of [Reader.Long].
	long chan struct{}
	// closed ends the waits for a connection.
	closed chan struct{}
	// settled, if set, checks after each query that the file is still the opened one.
	settled func() error
	// Unmoved, if set, checks that the database's files are still the opened ones, before and after
	// a further connection opens them by their names. It is set before the reader is shared.
	Unmoved func() error
	// Failed, if set, interprets the error of a query that failed as on a broken disk. It is set
	// before the reader is shared.
	Failed func(error) error
	// Altered, if set, is called for each altered row that ended a query, and words the query's
	// error, which wraps its argument. It must not wait for a query.
	Altered func(*AlteredError) error
	// left, if set, notes the altered rows that queries leave out, see [Reader.Around].
	left *Left
}

// reading is a reading connection with the checker of its rows, nil in a database without seals.
type reading struct {
	*sqlite.Conn
	checker *checker
}

// NewReader reads a claimed database on up to so many connections. The first is opened now, so that
// a database that cannot be read is noticed; each other one when a query finds all of them in use.
// If there are seals, the connections check those of the rows that they read.
func NewReader(path string, count int, seals *Seals) (*Reader, error) {
	r := newReader(count)
	r.open = func() (reading, error) {
		conn, err := openAlone(path, readerSettings)
		if err != nil {
			return reading{}, err
		}
		checker, err := seals.check(conn)
		if err != nil {
			return reading{}, errors.Join(err, conn.Close())
		}
		return reading{conn, checker}, nil
	}
	first, err := r.open()
	if err != nil {
		return nil, err
	}
	r.begin(first)
	return r, nil
}

// check has a reading connection check the seals of the rows that it reads, if there are seals.
func (s *Seals) check(conn *sqlite.Conn) (c *checker, err error) {
	if s == nil {
		return nil, nil
	}
	// Views cannot be made on a read-only connection.
	err = sqlitex.ExecuteTransient(conn, "PRAGMA query_only=OFF", nil)
	if err == nil {
		c, err = s.install(conn)
	}
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, "PRAGMA query_only=ON", nil)
	}
	return c, err
}

func newReader(count int) *Reader {
	return &Reader{
		conns: make(chan reading, count), unopened: make(chan struct{}, count),
		long: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// begin adds the first connection.
func (r *Reader) begin(first reading) {
	r.conns <- first
	for range cap(r.unopened) - 1 {
		r.unopened <- struct{}{}
	}
}

// OpenUnclaimed opens a database that no process has claimed for reading, or returns [ErrRunning].
// It also reads a write-ahead log beside the file, for example after a crash. It changes neither,
// makes no file, and keeps no process from claiming the database. If a process does that meanwhile,
// the queries fail rather than show a mixture of old and new.
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
	r := newReader(1)
	r.settled = settled
	r.begin(reading{Conn: conn})
	return r, nil
}

// take waits for a connection that no query uses. The caller gives it back to conns.
func (r *Reader) take(ctx context.Context) (reading, error) {
	select {
	case <-r.closed:
		return reading{}, ErrClosed
	default:
	}
	// An open connection goes before one that has to be opened.
	select {
	case conn := <-r.conns:
		return conn, nil
	default:
	}
	for unopened := r.unopened; ; {
		select {
		case conn := <-r.conns:
			return conn, nil
		case <-unopened:
			conn, err := r.further()
			if err == nil {
				return conn, nil
			}
			// Without files or memory for one more connection, the query waits for an open one. If
			// the database is lost, the open ones and the next commit say so.
			r.unopened <- struct{}{}
			unopened = nil
		case <-r.closed:
			return reading{}, ErrClosed
		case <-ctx.Done():
			return reading{}, ctx.Err()
		}
	}
}

// further opens one more connection of the same files.
func (r *Reader) further() (reading, error) {
	if err := r.unmoved(); err != nil {
		return reading{}, err
	}
	conn, err := r.open()
	if err != nil {
		return reading{}, err
	}
	if err := r.unmoved(); err != nil {
		return reading{}, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (r *Reader) unmoved() error {
	if r.Unmoved == nil {
		return nil
	}
	return r.Unmoved()
}

// Read runs a short query on one of the connections, which never wait for a
// writer.
func (r *Reader) Read(ctx context.Context, query func(*sqlite.Conn) error) error {
	conn, err := r.take(ctx)
	if err != nil {
		return err
	}
	defer func() { r.conns <- conn }()
	if err := r.around(conn.checker, func() error { return query(conn.Conn) }); err != nil {
		if r.Altered != nil {
			if found, ok := errors.AsType[*AlteredError](err); ok {
				return r.Altered(found)
			}
		}
		if r.settled != nil {
			// A file that is being written looks like a broken one.
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

// Long is [Reader.Scan] for a query that anybody can ask for and whose cost grows with other
// callers' data. Such queries run one after another, so that the other connections stay free,
// however many are asked for.
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
	for range cap(r.conns) {
		select {
		case <-r.unopened:
		case conn := <-r.conns:
			if err := conn.Close(); err != nil {
				errs = append(errs, fmt.Errorf("cannot close the store: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// Shrink frees the memory of the pages of connections that no query uses. A failure only costs memory.
func (r *Reader) Shrink() {
	for range cap(r.conns) {
		select {
		case conn := <-r.conns:
			_ = sqlitex.ExecuteTransient(conn.Conn, shrinkMemory, nil)
			r.conns <- conn
		default:
		}
	}
}

// openBeside opens a database for reading without a lock, and without changing or making any file.
// Settled reports whether the database and its log were left alone since.
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
		// SQLite would remove a write-ahead log beside it, even if it only reads, and with it the
		// remaining records.
		return nil, nil, ErrEmpty
	}
	log, err := os.Stat(path + "-wal")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot open the store: %w", err)
	}
	// Without a log, or with one that has no frame yet, the file is complete. Otherwise SQLite
	// makes the index of the log in memory: in exclusive mode it needs no file for it, and the VFS
	// takes no lock. That mode must be set before anything is read.
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

// walHeader is the length of a write-ahead log without frames, in bytes.
//
// Source: https://www.sqlite.org/fileformat2.html, section 4.1.
const walHeader = 32

// leftAlone returns an error if a file that is read without locks is being written.
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
