// Package db opens SQLite databases for one process and reads and writes them. It knows no table
// except the named values of every database; the packages that use it know the others.
//
// A database has one [Writer], which its owner hands around, and a few connections in a [Reader],
// which never wait for it. [Claim] keeps other processes off the file, a [Schema] makes its tables,
// and the package makes sure that deleted data are gone from the file.
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

// JournalLimit is the size to which SQLite cuts back the write-ahead log.
const JournalLimit = 64 << 20

// readerSettings bound a reading connection. A page in SQLite's cache takes twice its size here,
// since its allocator rounds up to powers of two, and the system has the file in its own cache. All
// connections share their limits: together they may fill the sum of the sizes.
var readerSettings = []string{"cache_size=-128", "query_only=ON"}

// OpenWriter opens the connection that writes. The caller has claimed the file.
func OpenWriter(path string) (*Writer, error) {
	conn, err := openAlone(path, []string{
		// Claim keeps other daemons off, so a lock here is another program's.
		"busy_timeout=1000",
		// Set before anything is written: SQLite's own limit is 1000, and the write in the next
		// line would checkpoint a longer log at every start.
		"wal_autocheckpoint=4000",
		// For a new file. An older one is rewritten: see [Writer.MakeMovable]. SQLite writes the
		// file's header in either case.
		fmt.Sprintf("auto_vacuum=%d", autoVacuum),
		"journal_mode=WAL",
		"synchronous=FULL",
		fmt.Sprintf("journal_size_limit=%d", JournalLimit),
		// A commit's changed pages stay here until its end, or are written twice: about three
		// hundred, if the largest batch of messages shares one.
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

// openAlone opens a connection of a claimed database. All of them use SQLite's unix-excl VFS, as
// [walfile] extends it: the first one locks the file for this process until the last is closed, so
// that no other process that heeds SQLite's locks reads or writes it, and the index of the
// write-ahead log is in this process's memory. So there is no -shm file that somebody could take
// away, and no transaction makes a system call for a lock. Each connection opens the file for
// writing, since a read-only one would lock by itself and weaken the lock.
//
// POSIX locks belong to the process and are lost when it closes any descriptor of the file: nothing
// else in the process may open it.
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

// uriEscaper escapes the characters that end the path in a URI.
var uriEscaper = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// QueryInt returns the single number of a query on a connection.
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

// IsFull reports whether an error says that the disk is full.
func IsFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// IsIO reports whether the file cannot be trusted after an error.
func IsIO(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultIOErr, sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return true
	}
	return false
}
