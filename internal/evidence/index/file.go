package index

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// file is the database. Only its checkpoints are synced, not its commits: records that a power
// failure removes from the end are read from the log again.
type file struct {
	path    string
	writer  *sqlite.Conn
	readers chan *sqlite.Conn
	// shard is the last written one, nil if it has to be read back.
	shard *shard
}

// applicationID marks the file as an index of this program ("ocix" in ASCII). Any other file, and
// one of another form, is replaced.
const applicationID = 0x6f636978

// form returns a number for the structure of the file: its version and its members.
func form() int64 {
	made := []byte("6")
	for _, m := range audit.Filters() {
		made = append(append(made, ' '), m.Name...)
	}
	return int64(crc32.ChecksumIEEE(made) >> 1)
}

const schema = `
-- The shards that are there. Each has two tables more: terms_N has what its
-- records are found by, and reasons_N the distinct reasons of its records.
CREATE TABLE shards (shard INTEGER PRIMARY KEY) STRICT;
-- How many records there are in each range, the last of them and its hash, and
-- the numbers for statistics.
CREATE TABLE ranges (
    range        INTEGER PRIMARY KEY,
    records      INTEGER NOT NULL,
    last         INTEGER NOT NULL,
    hash         TEXT NOT NULL,
    first_minute INTEGER NOT NULL,
    last_minute  INTEGER NOT NULL,
    counts       BLOB NOT NULL
) STRICT;
-- What the numbers of a shard are kept by.
CREATE TABLE subjects (
    shard  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    agent  TEXT NOT NULL,
    rule   TEXT NOT NULL,
    code   TEXT NOT NULL,
    result TEXT NOT NULL,
    about  TEXT NOT NULL,
    PRIMARY KEY (shard, number)
) STRICT, WITHOUT ROWID;
PRAGMA application_id=%d;
PRAGMA user_version=%d;`

// readerCount bounds the simultaneous queries.
const readerCount = 2

// errUnusable reports that there is no usable index at the path.
var errUnusable = errors.New("no index that can be used")

// openFile opens the file, and makes it if there is none.
func openFile(path string) (*file, error) {
	// SQLite makes files by the umask; evidence is for its owner alone.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit index: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("cannot open the audit index: %w", err)
	}
	conn, err := openConn(path, sqlite.OpenReadWrite, "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", "journal_size_limit=16777216", "cache_size=-512", "trusted_schema=OFF")
	if err != nil {
		return nil, err
	}
	x := &file{path: path, writer: conn, readers: make(chan *sqlite.Conn, readerCount)}
	if err := x.claim(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for range readerCount {
		x.readers <- nil // opened on demand
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

// claim makes the tables of a new file, or checks that an old one belongs to this program.
func (x *file) claim() error {
	var found [3]int64
	for i, query := range []string{"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"} {
		var err error
		if found[i], err = queryInt(x.writer, query); err != nil {
			return err
		}
	}
	switch found {
	case [3]int64{}:
		if err := sqlitex.ExecuteScript(x.writer, fmt.Sprintf(schema, applicationID, form()), nil); err != nil {
			return fmt.Errorf("cannot make the audit index: %w", err)
		}
	case [3]int64{applicationID, form(), found[2]}:
	default:
		return errUnusable
	}
	return nil
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

func (x *file) close() error {
	var errs []error
	for range readerCount {
		if conn := <-x.readers; conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	// The last connection to close leaves no file beside the database.
	if err := errors.Join(append(errs, x.writer.Close())...); err != nil {
		return fmt.Errorf("cannot close the audit index: %w", err)
	}
	return nil
}

// remove deletes a closed file.
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
		if conn, err = openConn(x.path, sqlite.OpenReadOnly, "cache_size=-128", "query_only=ON"); err != nil {
			return err
		}
	}
	conn.SetInterrupt(ctx.Done())
	// The query sees one moment.
	if err = sqlitex.Execute(conn, "BEGIN", nil); err == nil {
		err = query(conn)
		conn.SetInterrupt(nil)
		err = errors.Join(err, sqlitex.Execute(conn, "ROLLBACK", nil))
	}
	conn.SetInterrupt(nil)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// end returns the last record in the file and its hash, zero for none.
func (x *file) end() (last uint64, hash string, err error) {
	err = sqlitex.Execute(x.writer, `SELECT last, hash FROM ranges ORDER BY range DESC LIMIT 1`, &sqlitex.ExecOptions{
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

// change runs a function in one transaction. If it fails, nothing changes, and the state in memory
// is read back.
func (x *file) change(do func() error) (err error) {
	defer func() {
		if err != nil {
			x.shard = nil
			err = fmt.Errorf("cannot write the audit index: %w", err)
		}
	}()
	end, err := sqlitex.ImmediateTransaction(x.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	return do()
}

// add adds consecutive lines. Seq is the number of the first.
func (x *file) add(seq uint64, lines [][]byte) error {
	for i, line := range lines {
		if err := x.turnTo(shardOf(seq + uint64(i))); err != nil {
			return err
		}
		if err := x.shard.add(seq+uint64(i), line); err != nil {
			return err
		}
	}
	return nil
}

// turnTo opens a shard in place of the open one. It first sorts the earlier one, so that its data
// is in one place.
func (x *file) turnTo(number uint64) (err error) {
	if x.shard != nil && x.shard.number == number {
		return nil
	}
	if x.shard != nil {
		if err := x.flush(); err != nil {
			return err
		}
		for _, table := range []string{"terms", "reasons"} {
			optimize := fmt.Sprintf(`INSERT INTO %[1]s_%[2]d (%[1]s_%[2]d) VALUES ('optimize')`, table, x.shard.number)
			if err := sqlitex.ExecuteTransient(x.writer, optimize, nil); err != nil {
				return err
			}
		}
	}
	x.shard, err = openShard(x.writer, number)
	return err
}

func (x *file) flush() error {
	if x.shard == nil {
		return nil
	}
	return x.shard.flush()
}

// shards lists the shards of a range, both ends included, newest first.
func shards(conn *sqlite.Conn, from, to uint64) (list []uint64, err error) {
	err = sqlitex.Execute(conn, `SELECT shard FROM shards WHERE shard BETWEEN ? AND ? ORDER BY shard DESC`, &sqlitex.ExecOptions{
		Args: []any{int64(from), int64(to)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			list = append(list, uint64(stmt.ColumnInt64(0)))
			return nil
		},
	})
	return list, err
}
