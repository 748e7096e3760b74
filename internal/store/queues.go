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
		return sqlitex.Execute(conn, `SELECT name FROM queues WHERE name > ? AND EXISTS
			(SELECT 1 FROM outbox WHERE id > no << 40 AND id < (no + 1) << 40) ORDER BY name LIMIT 1`, &sqlitex.ExecOptions{
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

// Flush writes now what would wait for the next commit.
func (s *Store) Flush() { s.flushTouches() }
