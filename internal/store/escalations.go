package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Pair is two agents, in one order whichever way they are named.
type Pair struct{ First, Second string }

// PairOf returns the pair of two instance ids.
func PairOf(a, b string) Pair {
	if b < a {
		a, b = b, a
	}
	return Pair{First: a, Second: b}
}

// Escalation is a round limit that was reached between two agents and that no
// person has settled.
type Escalation struct {
	Pair
	ExchangeID string
	OpenedAt   time.Time
}

// Escalated returns the exchange whose escalation is open between two agents,
// or "".
func (s *Store) Escalated(ctx context.Context, p Pair) (exchangeID string, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT exchange_id FROM escalations WHERE first = ? AND second = ?`, &sqlitex.ExecOptions{
			Args: []any{p.First, p.Second},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				exchangeID = stmt.ColumnText(0)
				return nil
			},
		})
	})
	if err != nil {
		return "", fmt.Errorf("cannot read the escalations: %w", err)
	}
	return exchangeID, nil
}

// ExchangeFilter selects exchange sides; an empty member selects all.
type ExchangeFilter struct {
	ID, Agent, Counterparty string
	Outcome                 ocip.Outcome
	// Before continues a page: the id of its last exchange.
	Before string
}

// Exchanges returns up to limit exchange sides, highest id first, which for the
// daemon's own ids is newest first.
func (s *Store) Exchanges(ctx context.Context, f ExchangeFilter, limit int) (page []ocip.Exchange, err error) {
	where, args := []string{"1"}, []any{}
	for _, c := range []struct{ text, value string }{
		{"id = ?", f.ID}, {"agent = ?", f.Agent}, {"counterparty = ?", f.Counterparty}, {"outcome = ?", string(f.Outcome)}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			where, args = append(where, c.text), append(args, c.value)
		}
	}
	query := `SELECT ` + exchangeColumns + ` FROM exchanges WHERE ` + strings.Join(where, " AND ") + ` ORDER BY id DESC, agent LIMIT ?`
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: append(args, limit),
			ResultFunc: func(stmt *sqlite.Stmt) error {
				e, err := scanExchange(stmt)
				page = append(page, e)
				return err
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list exchanges: %w", err)
	}
	return page, nil
}
