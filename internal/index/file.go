package index

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// file is the database with the blocks that are full. Nothing in it is waited
// for or synced: what is lost is made again from the log.
type file struct {
	path    string
	writer  *sqlite.Conn
	readers chan *sqlite.Conn
	scratch []posting
}

// applicationID marks the file as an index of ours ("ocix" in ASCII), and
// formatVersion the form of what is in it. Any other file is made anew.
const (
	applicationID = 0x6f636978
	formatVersion = 2
)

const schema = `
-- Terms and their places, some terms of a block in a row.
CREATE TABLE postings (key INTEGER PRIMARY KEY, lists BLOB NOT NULL) STRICT;
-- The blocks, each with the last record that is in it and the numbers for
-- statistics.
CREATE TABLE blocks (
    block        INTEGER PRIMARY KEY,
    last         INTEGER NOT NULL,
    hash         TEXT NOT NULL,
    first_minute INTEGER NOT NULL,
    last_minute  INTEGER NOT NULL,
    counts       BLOB NOT NULL
) STRICT;
-- Reasons by the block they came first in, and the last block that has one of
-- them.
CREATE TABLE texts (block INTEGER PRIMARY KEY, folded BLOB NOT NULL) STRICT;
CREATE TABLE text_uses (block INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;
-- The boot of the machine during which the file was opened, empty once it was
-- closed: without syncing, a file is whole only then.
CREATE TABLE opened (boot TEXT NOT NULL) STRICT;
INSERT INTO opened VALUES ('');
PRAGMA application_id=%d;
PRAGMA user_version=%d;`

// readerCount bounds the queries that run side by side.
const readerCount = 2

// errUnusable means that there is no index of ours at the path.
var errUnusable = errors.New("no index that can be used")

// openFile opens the file, and makes it where there is none.
func openFile(path string) (*file, error) {
	// SQLite makes files by the umask; evidence is for its owner alone.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit index: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("cannot open the audit index: %w", err)
	}
	conn, err := openConn(path, sqlite.OpenReadWrite, "journal_mode=WAL", "synchronous=OFF", "journal_size_limit=16777216", "cache_size=-2048", "trusted_schema=OFF")
	if err != nil {
		return nil, err
	}
	x := &file{path: path, writer: conn, readers: make(chan *sqlite.Conn, readerCount)}
	if err := x.claim(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for range readerCount {
		x.readers <- nil // opened when it is needed
	}
	return x, nil
}

func openConn(path string, flags sqlite.OpenFlags, settings ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit index: %w", err)
	}
	for _, setting := range append([]string{"busy_timeout=5000", "temp_store=MEMORY"}, settings...) {
		if err := sqlitex.ExecuteTransient(conn, "PRAGMA "+setting, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot open the audit index: PRAGMA %s: %w", setting, err), conn.Close())
		}
	}
	return conn, nil
}

// claim makes the tables of a new file, or sees that an old one is ours and
// whole, and notes that it is open.
func (x *file) claim() error {
	conn := x.writer
	owner, err := queryInt(conn, "PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := queryInt(conn, "PRAGMA user_version")
	if err != nil {
		return err
	}
	tables, err := queryInt(conn, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	switch {
	case owner == 0 && version == 0 && tables == 0:
		if err := sqlitex.ExecuteScript(conn, fmt.Sprintf(schema, applicationID, formatVersion), nil); err != nil {
			return fmt.Errorf("cannot make the audit index: %w", err)
		}
	case owner != applicationID || version != formatVersion:
		return errUnusable
	}
	now, err := bootID()
	if err != nil {
		return fmt.Errorf("cannot open the audit index: %w", err)
	}
	boot := "?"
	err = sqlitex.Execute(conn, `SELECT boot FROM opened`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		boot = stmt.ColumnText(0)
		return nil
	}})
	if err != nil {
		return fmt.Errorf("cannot read the audit index: %w", err)
	}
	if boot != "" && boot != now {
		return errUnusable
	}
	return x.mark(now)
}

// mark notes during which boot the file was opened, or that it is closed.
func (x *file) mark(boot string) error {
	if err := sqlitex.Execute(x.writer, `UPDATE opened SET boot = ?`, &sqlitex.ExecOptions{Args: []any{boot}}); err != nil {
		return fmt.Errorf("cannot write the audit index: %w", err)
	}
	return nil
}

// bootID names the time since the machine was started. After a kill the kernel
// has all that was written; after a power failure it may have parts.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

func queryInt(conn *sqlite.Conn, query string) (value int64, err error) {
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		value = stmt.ColumnInt64(0)
		return nil
	}})
	if err != nil {
		return 0, fmt.Errorf("cannot read the audit index: %w", err)
	}
	return value, nil
}

// close closes the file. Where it is whole, it is synced and marked so.
func (x *file) close(whole bool) error {
	var errs []error
	for range readerCount {
		if conn := <-x.readers; conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	if whole {
		errs = append(errs, x.mark(""))
		for _, pragma := range []string{"synchronous=FULL", "wal_checkpoint(TRUNCATE)"} {
			errs = append(errs, sqlitex.ExecuteTransient(x.writer, "PRAGMA "+pragma, nil))
		}
	}
	if err := errors.Join(append(errs, x.writer.Close())...); err != nil {
		return fmt.Errorf("cannot close the audit index: %w", err)
	}
	return nil
}

// remove deletes a file that is closed.
func remove(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the audit index: %w", err)
		}
	}
	return nil
}

// read runs a query on one of the connections. It ends with the caller.
func (x *file) read(ctx context.Context, query func(*sqlite.Conn) error) (err error) {
	var conn *sqlite.Conn
	select {
	case conn = <-x.readers:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { x.readers <- conn }()
	if conn == nil {
		if conn, err = openConn(x.path, sqlite.OpenReadOnly, "cache_size=-2048", "query_only=ON"); err != nil {
			return err
		}
	}
	conn.SetInterrupt(ctx.Done())
	defer conn.SetInterrupt(nil)
	if err = query(conn); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// end is the last record that the file has and its hash, zero for none.
func (x *file) end() (last uint64, hash string, err error) {
	err = sqlitex.Execute(x.writer, `SELECT last, hash FROM blocks ORDER BY block DESC LIMIT 1`, &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error {
			last, hash = uint64(stmt.ColumnInt64(0)), stmt.ColumnText(1)
			return nil
		},
	})
	if err != nil {
		return 0, "", fmt.Errorf("cannot read the audit index: %w", err)
	}
	return last, hash, nil
}

// write writes a block, in one transaction.
func (x *file) write(b *builder) (err error) {
	x.scratch = append(x.scratch[:0], b.postings...)
	slices.Sort(x.scratch)
	numbers := countsOf(b.list, b.events)
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write the audit index: %w", err)
		}
	}()
	end, err := sqlitex.ImmediateTransaction(x.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	if err := x.writeGroups(b.block, x.scratch); err != nil {
		return err
	}
	if err := x.writeBlock(b.block, b.last, hex.EncodeToString(b.hash[:]), numbers); err != nil {
		return err
	}
	if b.textCount > 0 {
		err := sqlitex.Execute(x.writer, `INSERT INTO texts (block, folded) VALUES (?, ?)`, &sqlitex.ExecOptions{
			Args: []any{int64(b.block), sealed(slices.Clone(b.texts), b.block)},
		})
		if err != nil {
			return err
		}
	}
	for block := range b.uses {
		err := sqlitex.Execute(x.writer, `INSERT INTO text_uses (block, last) VALUES (?, ?) ON CONFLICT (block) DO UPDATE SET last = excluded.last`,
			&sqlitex.ExecOptions{Args: []any{int64(block), int64(b.block)}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *file) writeGroups(block uint64, sorted []posting) error {
	stmt, err := x.writer.Prepare(`INSERT INTO postings (key, lists) VALUES (?, ?)`)
	if err != nil {
		return err
	}
	return groups(block, sorted, func(key uint64, content []byte) error {
		stmt.BindInt64(1, int64(key))
		stmt.BindBytes(2, content)
		if _, err := stmt.Step(); err != nil {
			return err
		}
		return stmt.Reset()
	})
}

func (x *file) writeBlock(block, last uint64, hash string, numbers counts) error {
	var first, end int64
	if n := len(numbers.minutes); n > 0 {
		first, end = numbers.minutes[0].minute, numbers.minutes[n-1].minute
	}
	return sqlitex.Execute(x.writer, `INSERT OR REPLACE INTO blocks (block, last, hash, first_minute, last_minute, counts) VALUES (?, ?, ?, ?, ?, ?)`,
		&sqlitex.ExecOptions{Args: []any{int64(block), int64(last), hash, first, end, numbers.encode(block)}})
}

// lookUp appends the places of a term in a block to dst.
func lookUp(conn *sqlite.Conn, dst []uint16, buffer *[]byte, block uint64, t term) ([]uint16, error) {
	stmt, err := conn.Prepare(`SELECT key, lists FROM postings WHERE key <= ? ORDER BY key DESC LIMIT 1`)
	if err != nil {
		return dst, err
	}
	stmt.BindInt64(1, int64(groupKey(block, t)))
	found, err := stmt.Step()
	if err != nil || !found {
		return dst, errors.Join(err, stmt.Reset())
	}
	key := uint64(stmt.ColumnInt64(0))
	if key>>termBits == block {
		content := blob(stmt, buffer)
		err = eachList(key, content, func(have term, list []byte) bool {
			if have == t {
				dst = places(dst, list)
			}
			return have < t
		})
	}
	return dst, errors.Join(err, stmt.Reset())
}

// eachGroup calls visit with the lists of a block's terms from one on.
func eachGroup(conn *sqlite.Conn, buffer *[]byte, block uint64, from term, visit func(t term, list []byte) bool) error {
	stmt, err := conn.Prepare(`SELECT key, lists FROM postings WHERE key >= coalesce((SELECT key FROM postings WHERE key <= ?1 ORDER BY key DESC LIMIT 1), ?1) AND key < ?2 ORDER BY key`)
	if err != nil {
		return err
	}
	stmt.BindInt64(1, int64(groupKey(block, from)))
	stmt.BindInt64(2, int64(groupKey(block+1, 0)))
	for more := true; more; {
		row, err := stmt.Step()
		if err != nil || !row {
			return errors.Join(err, stmt.Reset())
		}
		key := uint64(stmt.ColumnInt64(0))
		if key>>termBits != block {
			continue
		}
		err = eachList(key, blob(stmt, buffer), func(t term, list []byte) bool {
			if t >= from {
				more = visit(t, list)
			}
			return more
		})
		if err != nil {
			return errors.Join(err, stmt.Reset())
		}
	}
	return stmt.Reset()
}

// blob reads a row's second column into a buffer that grows.
func blob(stmt *sqlite.Stmt, buffer *[]byte) []byte {
	const col = 1
	n := stmt.ColumnLen(col)
	*buffer = slices.Grow((*buffer)[:0], n)[:n]
	return (*buffer)[:stmt.ColumnBytes(col, *buffer)]
}

// blocks lists the blocks of a range, both ends included, oldest first.
func (x *file) blocks(from, to uint64) (list []uint64, err error) {
	err = sqlitex.Execute(x.writer, `SELECT block FROM blocks WHERE block BETWEEN ? AND ? ORDER BY block`, &sqlitex.ExecOptions{
		Args: []any{int64(from), int64(to)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			list = append(list, uint64(stmt.ColumnInt64(0)))
			return nil
		},
	})
	return list, err
}

// drop deletes a block, in one transaction.
func (x *file) drop(block uint64) (err error) {
	end, err := sqlitex.ImmediateTransaction(x.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	if err := x.dropGroups(block); err != nil {
		return err
	}
	return sqlitex.Execute(x.writer, `DELETE FROM blocks WHERE block = ?`, &sqlitex.ExecOptions{Args: []any{int64(block)}})
}

func (x *file) dropGroups(block uint64) error {
	return sqlitex.Execute(x.writer, `DELETE FROM postings WHERE key >= ? AND key < ?`, &sqlitex.ExecOptions{
		Args: []any{int64(groupKey(block, 0)), int64(groupKey(block+1, 0))},
	})
}

// cut takes the records before a place out of a block, whose numbers are then
// those given.
func (x *file) cut(block, pos uint64, numbers counts) (err error) {
	var kept []posting
	var buffer []byte
	var at []uint16
	err = eachGroup(x.writer, &buffer, block, 0, func(t term, list []byte) bool {
		for _, p := range places(at[:0], list) {
			if uint64(p) >= pos {
				kept = append(kept, posting(t)<<posBits|posting(p))
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	var last uint64
	var hash string
	err = sqlitex.Execute(x.writer, `SELECT last, hash FROM blocks WHERE block = ?`, &sqlitex.ExecOptions{
		Args: []any{int64(block)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			last, hash = uint64(stmt.ColumnInt64(0)), stmt.ColumnText(1)
			return nil
		},
	})
	if err != nil {
		return err
	}
	end, err := sqlitex.ImmediateTransaction(x.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	if err := x.dropGroups(block); err != nil {
		return err
	}
	if err := x.writeGroups(block, kept); err != nil {
		return err
	}
	return x.writeBlock(block, last, hash, numbers)
}

// dropTexts deletes the reasons that no block from one on has, but for those
// that are in use.
func (x *file) dropTexts(from uint64, used map[uint64]bool) error {
	var unused []int64
	err := sqlitex.Execute(x.writer, `SELECT block FROM text_uses WHERE last < ?`, &sqlitex.ExecOptions{
		Args: []any{int64(from)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			if block := stmt.ColumnInt64(0); !used[uint64(block)] {
				unused = append(unused, block)
			}
			return nil
		},
	})
	for _, block := range unused {
		for _, query := range []string{`DELETE FROM texts WHERE block = ?`, `DELETE FROM text_uses WHERE block = ?`} {
			err = errors.Join(err, sqlitex.Execute(x.writer, query, &sqlitex.ExecOptions{Args: []any{block}}))
		}
	}
	return err
}
