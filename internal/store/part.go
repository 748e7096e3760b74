package store

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Part is one set of rows of a [Change]: a noun with a table of its own, which is
// written with the change's records or not at all. The types of this package alone
// are parts.
type Part interface {
	// check refuses what may not be written, before it waits for its turn.
	check() error
	// put writes the rows within the change's transaction.
	put(w *writer) error
}

// ErrUnrecorded means that a change was to write a part without a record of it.
var ErrUnrecorded = errors.New("a change of what is known needs a record")

// ErrTooLarge means that a part is larger than what is kept of its kind.
var ErrTooLarge = errors.New("more than is kept")

// checkParts refuses parts that are too large, and parts without a record: what has
// none is taken for what rides along with the next commit, and releases nothing. A
// change that says of itself that it drains needs none: it ends something.
func (c *Change) checkParts() error {
	if len(c.Parts) > 0 && len(c.Records) == 0 && !c.Drains {
		return ErrUnrecorded
	}
	for _, p := range c.Parts {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// maxPartText bounds a text of a part, in bytes. What apps may choose is bounded
// before it comes here.
const maxPartText = 4096

// bounded refuses texts of a part that are too long.
func bounded(what string, texts ...string) error {
	for _, text := range texts {
		if len(text) > maxPartText {
			return tooLarge(what, len(text))
		}
	}
	return nil
}

func tooLarge(what string, size int) error {
	return fmt.Errorf("cannot keep %s: %w: %d bytes, limit %d", what, ErrTooLarge, size, maxPartText)
}

// putParts writes the parts of a change, in order.
func (w *writer) putParts(parts []Part) error {
	for _, p := range parts {
		if err := p.put(w); err != nil {
			return err
		}
	}
	return nil
}

// exec executes a statement of a part with its arguments, which are texts and
// numbers. The connection keeps the statement.
func (w *writer) exec(what, query string, args ...any) error {
	stmt, err := w.conn.Prepare(query)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			stmt.BindText(i+1, arg)
		case int64:
			stmt.BindInt64(i+1, arg)
		default:
			return fmt.Errorf("cannot write %s: argument %d is a %T", what, i+1, arg)
		}
	}
	if err := exec(stmt); err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return nil
}

// rows reads what a query finds.
func rows[T any](ctx context.Context, r *reader, what, query string, args []any, scan func(*sqlite.Stmt) (T, error)) (found []T, err error) {
	err = r.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: args,
			ResultFunc: func(stmt *sqlite.Stmt) error {
				one, err := scan(stmt)
				found = append(found, one)
				return err
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return found, nil
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
