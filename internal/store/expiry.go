package store

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ExchangeKey is a place in the order in which exchanges are kept.
type ExchangeKey struct{ ID, Agent string }

// Expired looks at the next count exchange sides behind a place, and returns
// those that are open and have expired, and the place to go on from: the zero
// one where the end was reached.
//
// No index finds them, on purpose: every message would pay for it with a page
// more to sync, and an exchange that has expired takes no message whether or not
// it was found yet.
func (s *Store) Expired(ctx context.Context, behind ExchangeKey, count int, now time.Time) (page []ocip.Exchange, next ExchangeKey, err error) {
	seen := 0
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT `+exchangeColumns+`, outcome = 'in_progress' AND expires_at BETWEEN 1 AND ?3
			FROM exchanges WHERE (id, agent) > (?1, ?2) ORDER BY id, agent LIMIT ?4`, &sqlitex.ExecOptions{
			Args: []any{behind.ID, behind.Agent, now.UnixMilli(), count},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				seen++
				next = ExchangeKey{ID: stmt.ColumnText(1), Agent: stmt.ColumnText(0)}
				if !stmt.ColumnBool(7) {
					return nil
				}
				e, err := scanExchange(stmt)
				page = append(page, e)
				return err
			},
		})
	})
	if err != nil {
		return nil, ExchangeKey{}, fmt.Errorf("cannot look for expired exchanges: %w", err)
	}
	if seen < count {
		next = ExchangeKey{}
	}
	return page, next, nil
}
