package store

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// NextQueue returns the name of the queue behind another that holds a message,
// "" where there is none. The first one is behind "".
func (s *Store) NextQueue(ctx context.Context, behind string) (name string, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT queue FROM outbox WHERE queue > ? ORDER BY queue LIMIT 1`, &sqlitex.ExecOptions{
			Args: []any{behind},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				name = stmt.ColumnText(0)
				return nil
			},
		})
	})
	if err != nil {
		return "", fmt.Errorf("cannot read the outbox: %w", err)
	}
	return name, nil
}

// LinesAfter returns a page of records after seq, oldest first, and the number
// of the last one, or seq where there is none. Unlike [Store.EachLine] it holds
// nothing while the caller does with them what it does.
func (s *Store) LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error) {
	upTo = seq
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT seq, line FROM records WHERE seq > ? ORDER BY seq LIMIT ?`, &sqlitex.ExecOptions{
			Args: []any{int64(seq), linePage},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				upTo = uint64(stmt.ColumnInt64(0))
				lines = append(lines, []byte(stmt.ColumnText(1)))
				return nil
			},
		})
	})
	if err != nil {
		return nil, seq, fmt.Errorf("cannot read the audit log: %w", err)
	}
	return lines, upTo, nil
}

// Flush writes now what would wait for the next commit.
func (s *Store) Flush() { s.flushTouches() }
