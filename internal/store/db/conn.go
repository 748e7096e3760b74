// Package db opens SQLite databases for one process and reads and writes them. It
// knows no table but the named values of every database: what is in the others is
// known to the packages that use it.
//
// A database has one [Writer], which its owner hands around, and a few connections
// in a [Reader], which never wait for it. [Claim] keeps other processes off the file,
// a [Schema] makes its tables, and this package sees to it that what was deleted is
// gone from the file.
package db

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/store/walfile"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// JournalLimit is the size that SQLite cuts the write-ahead log back to.
const JournalLimit = 64 << 20

// readerSettings bound what a reading connection may do and take. A page in SQLite's
// cache takes twice its size here, since its allocator rounds up to powers of two, and
// the system has the file in its own cache. All connections fill what they may have
// together, whichever of them reads: the sizes count as one.
var readerSettings = []string{"cache_size=-128", "query_only=ON"}

// OpenWriter opens the connection that writes. Whoever calls it has claimed the file.
func OpenWriter(path string) (*Writer, error) {
	conn, err := openAlone(path, []string{
		// Databases are kept apart by Claim: who is in the way is no daemon.
		"busy_timeout=1000",
		// Before anything is written: SQLite's own limit is 1000, and the next line's
		// write would bring a longer log into the file at every start.
		"wal_autocheckpoint=4000",
		// For a file that is made here. Another is written anew: see [Writer.MakeMovable].
		// SQLite writes the file's header in either case.
		fmt.Sprintf("auto_vacuum=%d", autoVacuum),
		"journal_mode=WAL",
		"synchronous=FULL",
		fmt.Sprintf("journal_size_limit=%d", JournalLimit),
		// What a commit changes stays here until its end, or is written twice: about three
		// hundred pages, where as many messages share one as can be under way.
		"cache_size=-2048",
		"trusted_schema=OFF",
	})
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		err = fmt.Errorf("cannot open the store: another program has %s open; end it (fuser -v names it), and start again", path)
	}
	if err != nil {
		return nil, err
	}
	return &Writer{Conn: conn, stmts: make(map[string]*sqlite.Stmt)}, nil
}

// openAlone opens a connection of a claimed database. All of them use SQLite's unix-excl
// VFS, as [walfile] extends it: the first one locks the file for this process until the
// last is closed, so that no other process that heeds SQLite's locks reads or writes it,
// and the index of the write-ahead log is in this process's memory. So there is no -shm
// file that somebody could take away, and no transaction makes a system call for a lock.
// Each connection opens the file for writing, since one for reading alone would lock by
// itself and weaken the lock.
//
// POSIX locks belong to the process and are lost when it closes any descriptor of the
// file: nothing else in the process may open it.
func openAlone(path string, settings []string) (*sqlite.Conn, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	vfs, err := walfile.VFS()
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return openConn("file:"+uriEscaper.Replace(whole)+"?vfs="+vfs, sqlite.OpenReadWrite|sqlite.OpenURI, settings)
}

func openConn(name string, flags sqlite.OpenFlags, settings []string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(name, flags)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	for _, setting := range append([]string{"busy_timeout=5000", "temp_store=MEMORY"}, settings...) {
		err := sqlitex.ExecuteTransient(conn, "PRAGMA "+setting, nil)
		if sqlite.ErrCode(err) == sqlite.ResultNotADB {
			return nil, errors.Join(ErrForeign, conn.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot open the store: PRAGMA %s: %w", setting, err), conn.Close())
		}
	}
	return conn, nil
}

// uriEscaper hides the characters that end the path in a URI.
var uriEscaper = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// QueryInt returns the one number that a query gives on a connection.
func QueryInt(conn *sqlite.Conn, query string) (int, error) {
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

// IsFull reports that an error says that the disk is full.
func IsFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// IsIO reports an error after which the file can no longer be believed.
func IsIO(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultIOErr, sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return true
	}
	return false
}
