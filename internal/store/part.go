package store

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	"github.com/openclawos/ocipd/internal/quota"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Part is one set of rows of a [Change]: a noun with a table of its own, which is
// written with the change's records or not at all. The types of this package alone
// are parts.
type Part interface {
	// prepare refuses what may not be written and encodes the rest, before the change
	// waits for its turn. It returns about how many bytes the rows take.
	prepare() (size int, err error)
	// put writes the rows within the change's transaction, p, behind its records.
	put(w *writer, p *pending) error
}

// guarded is a part that may be written only as long as something holds.
type guarded interface {
	// guard looks within the change's transaction, before its records are sealed and
	// behind the changes before it. A refusal drops the change alone, and its caller
	// gets it; the others of the transaction stay. An error fails the transaction.
	guard(w *writer) (refusal, err error)
}

// ErrUnrecorded means that a change was to write a part without a record of it.
var ErrUnrecorded = errors.New("a change of what is known needs a record")

// ErrTooLarge means that a part is larger than what is kept of its kind.
var ErrTooLarge = errors.New("more than is kept")

// Add adds parts to the change.
func (c *Change) Add(parts ...Part) {
	if c.Parts == nil {
		c.Parts = make([]Part, 0, max(8, len(parts)))
	}
	c.Parts = append(c.Parts, parts...)
}

// Each returns the parts of one kind, in order.
func Each[T Part](c *Change) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, p := range c.Parts {
			if part, ok := p.(T); ok && !yield(part) {
				return
			}
		}
	}
}

// housekeeping reports whether a part is about the daemon's own rows alone: values
// of its own, what has been delivered, what has no effect any more. Nothing follows
// from it, so it needs no record.
func housekeeping(p Part) bool {
	switch p.(type) {
	case Meta, Dropped, Taken, lapsed, outdated, faded:
		return true
	}
	return false
}

// prepare readies a change's parts. It refuses those that are too large, and those
// without a record or beside one about the log itself: from such a change nothing
// may follow, see [Change.releases].
func (p *pending) prepare() error {
	for _, part := range p.Parts {
		if (len(p.Records) == 0 || p.Alarm) && !housekeeping(part) {
			return ErrUnrecorded
		}
		size, err := part.prepare()
		if err != nil {
			return err
		}
		p.size += int64(size)
		if g, ok := part.(guarded); ok {
			p.guards = append(p.guards, g)
		}
		if m, ok := part.(*Message); ok {
			p.waiting = append(p.waiting, quota.Message{App: m.App, Bytes: len(m.Body)})
		}
	}
	return nil
}

// maxPartText bounds a text of a part, in bytes. What apps may choose is bounded
// before it comes here.
const maxPartText = 4096

// bounded refuses texts of a part that are too long, and returns how long they are
// together.
func bounded(what string, texts ...string) (size int, err error) {
	for _, text := range texts {
		if len(text) > maxPartText {
			return 0, tooLarge(what, len(text))
		}
		size += len(text)
	}
	return size, nil
}

func tooLarge(what string, size int) error {
	return fmt.Errorf("cannot keep %s: %w: %d bytes, limit %d", what, ErrTooLarge, size, maxPartText)
}

// value is an argument of a statement: a [text], a [number], [bytesOf] something or
// a [moment]. It is no interface, so that none takes memory of its own.
type value struct {
	kind  sqlite.ColumnType
	n     int64
	text  string
	bytes []byte
}

func text(s string) value { return value{kind: sqlite.TypeText, text: s} }

func number(n int64) value { return value{kind: sqlite.TypeInteger, n: n} }

// bytesOf is for blobs, and for long texts: those are copied once, and as one.
func bytesOf(b []byte) value { return value{kind: sqlite.TypeBlob, bytes: b} }

func moment(t time.Time) value { return number(unixMilli(t)) }

// stmt returns a statement with its arguments, all of them. It is prepared on its
// first use and kept with the connection.
func (w *writer) stmt(query string, args []value) (*sqlite.Stmt, error) {
	stmt, ok := w.stmts[query]
	if !ok {
		var err error
		if stmt, err = w.conn.Prepare(query); err != nil {
			return nil, err
		}
		w.stmts[query] = stmt
	}
	for i := range args {
		switch arg := &args[i]; arg.kind {
		case sqlite.TypeText:
			stmt.BindText(i+1, arg.text)
		case sqlite.TypeInteger:
			stmt.BindInt64(i+1, arg.n)
		case sqlite.TypeBlob:
			stmt.BindBytes(i+1, arg.bytes)
		case sqlite.TypeNull:
			stmt.BindNull(i + 1)
		}
	}
	return stmt, nil
}

// exec executes a statement that returns no rows.
func (w *writer) exec(what, query string, args ...value) error {
	stmt, err := w.stmt(query, args)
	if err == nil {
		err = exec(stmt)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return nil
}

// scalar returns the one number that a statement gives.
func (w *writer) scalar(what, query string, args ...value) (n int64, err error) {
	stmt, err := w.stmt(query, args)
	if err == nil {
		_, err = stmt.Step()
		n = stmt.ColumnInt64(0)
		if resetErr := stmt.Reset(); err == nil {
			err = resetErr
		}
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return n, nil
}

// exec runs a prepared statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	return err
}

// rows reads what a query finds.
func rows[T any](ctx context.Context, r *reader, what, query string, args []any, scan func(*sqlite.Stmt) (T, error)) (found []T, err error) {
	err = r.scan(ctx, func(conn *sqlite.Conn) error { return collect(conn, &found, query, args, scan) })
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return found, nil
}

// collect appends what a query finds.
func collect[T any](conn *sqlite.Conn, found *[]T, query string, args []any, scan func(*sqlite.Stmt) (T, error)) error {
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
		Args: args,
		ResultFunc: func(stmt *sqlite.Stmt) error {
			one, err := scan(stmt)
			*found = append(*found, one)
			return err
		},
	})
}

// row reads the one row a query finds, or returns [ErrNotFound].
func row[T any](ctx context.Context, r *reader, what, query string, args []any, scan func(*sqlite.Stmt) (T, error)) (one T, err error) {
	found := false
	err = r.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: args,
			ResultFunc: func(stmt *sqlite.Stmt) (err error) {
				found = true
				one, err = scan(stmt)
				return err
			},
		})
	})
	if err != nil {
		return one, fmt.Errorf("cannot read %s: %w", what, err)
	}
	if !found {
		return one, ErrNotFound
	}
	return one, nil
}

// scanText, scanBytes and scanInt read a row of one column.
func scanText(stmt *sqlite.Stmt) (string, error) { return stmt.ColumnText(0), nil }

func scanBytes(stmt *sqlite.Stmt) ([]byte, error) { return columnBytes(stmt, 0), nil }

func scanInt(stmt *sqlite.Stmt) (int64, error) { return stmt.ColumnInt64(0), nil }

// columnBytes returns a copy of a column's bytes, and never nil.
func columnBytes(stmt *sqlite.Stmt, column int) []byte {
	b := make([]byte, stmt.ColumnLen(column))
	stmt.ColumnBytes(column, b)
	return b
}

// matching are the conditions and arguments of those members of a filter that
// select something.
func matching(members ...[2]string) (where string, args []any) {
	where = "1"
	for _, m := range members {
		if m[1] != "" {
			where += " AND " + m[0]
			args = append(args, m[1])
		}
	}
	return where, args
}

// unixMilli is zero for the zero time, which means "never" in the tables.
func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// shareOf is the range of row numbers that is a tenant's own in a table of which each
// tenant has a bounded part.
func shareOf(tenant string) (first, last value) {
	const bits = 40
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // a hash takes everything
	at := int64(h.Sum32()&0x3fffff) << bits
	return number(at), number(at + 1<<bits - 1)
}
