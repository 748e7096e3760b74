package db

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Rows reads the rows of a query.
func Rows[T any](ctx context.Context, r *Reader, what, query string, args []any, scan func(*sqlite.Stmt) (T, error)) (found []T, err error) {
	err = r.Scan(ctx, func(conn *sqlite.Conn) error { return Collect(conn, &found, query, args, scan) })
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return found, nil
}

// Collect appends the rows of a query on a connection.
func Collect[T any](conn *sqlite.Conn, found *[]T, query string, args []any, scan func(*sqlite.Stmt) (T, error)) error {
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
		Args: args,
		ResultFunc: func(stmt *sqlite.Stmt) error {
			one, err := scan(stmt)
			*found = append(*found, one)
			return err
		},
	})
}

// Row reads the one row a query finds, or returns [ErrNotFound].
func Row[T any](ctx context.Context, r *Reader, what, query string, args []any, scan func(*sqlite.Stmt) (T, error)) (one T, err error) {
	found := false
	err = r.Read(ctx, func(conn *sqlite.Conn) error {
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

// ScanText reads a row of one text.
func ScanText(stmt *sqlite.Stmt) (string, error) { return stmt.ColumnText(0), nil }

// ScanBytes reads a row of one blob or long text.
func ScanBytes(stmt *sqlite.Stmt) ([]byte, error) { return ColumnBytes(stmt, 0), nil }

// ScanInt reads a row of one number.
func ScanInt(stmt *sqlite.Stmt) (int64, error) { return stmt.ColumnInt64(0), nil }

// ColumnBytes returns a copy of a column's bytes, and never nil.
func ColumnBytes(stmt *sqlite.Stmt, column int) []byte {
	b := make([]byte, stmt.ColumnLen(column))
	stmt.ColumnBytes(column, b)
	return b
}

// Matching returns the conditions and arguments for the members of a filter that are set.
func Matching(members ...[2]string) (where string, args []any) {
	where = "1"
	for _, m := range members {
		if m[1] != "" {
			where += " AND " + m[0]
			args = append(args, m[1])
		}
	}
	return where, args
}

// Milliseconds is zero for the zero time: see [Time].
func Milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// TimeOf is the time of a column that was written as a [Time].
func TimeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
