package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Approval is one held message as the store keeps it. Summary and Body are in
// the kernel's form.
type Approval struct {
	ID         string
	Agent      string // an instance id
	AppID      string
	ExchangeID string
	// Asked is the digest of what the app asked for.
	Asked     string
	State     string
	ExpiresAt time.Time
	Summary   []byte
	Body      []byte
	// New is set on a change that makes the approval; one without it changes an
	// approval that must still be pending.
	New bool
}

// PendingApproval is the state in which an approval can change.
const PendingApproval = "pending"

// ErrDecided means that an approval was to change that is no longer pending.
var ErrDecided = errors.New("the approval is decided already")

const approvalColumns = `id, agent, app_id, exchange_id, asked, state, expires_at, summary, body`

func scanApproval(stmt *sqlite.Stmt) Approval {
	return Approval{
		ID: stmt.ColumnText(0), Agent: stmt.ColumnText(1), AppID: stmt.ColumnText(2), ExchangeID: stmt.ColumnText(3),
		Asked: stmt.ColumnText(4), State: stmt.ColumnText(5), ExpiresAt: fromMilli(stmt.ColumnInt64(6)),
		Summary: []byte(stmt.ColumnText(7)), Body: []byte(stmt.ColumnText(8)),
	}
}

// Approval returns one approval, or [ErrNotFound].
func (s *Store) Approval(ctx context.Context, id string) (a Approval, err error) {
	page, err := s.approvals(ctx, `WHERE id = ?`, id)
	if err == nil && len(page) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Approval{}, err
	}
	return page[0], nil
}

// PendingOf returns the pending approvals of an exchange.
func (s *Store) PendingOf(ctx context.Context, exchangeID string) ([]Approval, error) {
	return s.approvals(ctx, `WHERE exchange_id = ? AND state = 'pending' ORDER BY id`, exchangeID)
}

// ExpiredApprovals returns the ids of up to limit pending approvals whose time
// has run out, the longest expired first.
func (s *Store) ExpiredApprovals(ctx context.Context, now time.Time, limit int) (ids []string, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT id FROM approvals WHERE state = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?`, &sqlitex.ExecOptions{
			Args: []any{now.UnixMilli(), limit},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				ids = append(ids, stmt.ColumnText(0))
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for expired approvals: %w", err)
	}
	return ids, nil
}

func (s *Store) approvals(ctx context.Context, where string, args ...any) (page []Approval, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT `+approvalColumns+` FROM approvals `+where, &sqlitex.ExecOptions{
			Args: args,
			ResultFunc: func(stmt *sqlite.Stmt) error {
				page = append(page, scanApproval(stmt))
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the approvals: %w", err)
	}
	return page, nil
}

// Pending calls visit with the id, agent and asked digest of every pending
// approval.
func (s *Store) Pending(ctx context.Context, visit func(id, agent, asked string)) error {
	err := s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT id, agent, asked FROM approvals WHERE state = 'pending'`, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				visit(stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2))
				return nil
			},
		})
	})
	if err != nil {
		return fmt.Errorf("cannot read the approvals: %w", err)
	}
	return nil
}

// ApprovalFilter selects approvals; an empty member selects all.
type ApprovalFilter struct {
	State, Agent string
	// After continues a page: the id of its last approval.
	After string
}

// Summaries returns the summaries of up to limit approvals, oldest first, and
// how many match in all.
func (s *Store) Summaries(ctx context.Context, f ApprovalFilter, limit int) (page [][]byte, total int, err error) {
	where, args := []string{"1"}, []any{}
	for _, c := range []struct{ text, value string }{{"state = ?", f.State}, {"agent = ?", f.Agent}} {
		if c.value != "" {
			where, args = append(where, c.text), append(args, c.value)
		}
	}
	matching := strings.Join(where, " AND ")
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		err := sqlitex.Execute(conn, `SELECT count(*) FROM approvals WHERE `+matching, &sqlitex.ExecOptions{
			Args: args,
			ResultFunc: func(stmt *sqlite.Stmt) error {
				total = stmt.ColumnInt(0)
				return nil
			},
		})
		if err != nil {
			return err
		}
		return sqlitex.Execute(conn, `SELECT summary FROM approvals WHERE `+matching+` AND id > ? ORDER BY id LIMIT ?`, &sqlitex.ExecOptions{
			Args: append(args, f.After, limit),
			ResultFunc: func(stmt *sqlite.Stmt) error {
				page = append(page, []byte(stmt.ColumnText(0)))
				return nil
			},
		})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot list the approvals: %w", err)
	}
	return page, total, nil
}

// putApprovals writes held messages. A decision about one that is no longer
// pending fails whole: nobody decides twice.
func (w *writer) putApprovals(c *Change) error {
	for i := range c.Approvals {
		a := &c.Approvals[i]
		if a.New {
			w.hold.BindText(1, a.ID)
			w.hold.BindText(2, a.Agent)
			w.hold.BindText(3, a.AppID)
			w.hold.BindText(4, a.ExchangeID)
			w.hold.BindText(5, a.Asked)
			w.hold.BindText(6, a.State)
			w.hold.BindInt64(7, unixMilli(a.ExpiresAt))
			w.hold.BindText(8, string(a.Summary))
			w.hold.BindText(9, string(a.Body))
			if err := exec(w.hold); err != nil {
				return fmt.Errorf("cannot write the held message: %w", err)
			}
			continue
		}
		w.decide.BindText(1, a.State)
		w.decide.BindText(2, string(a.Summary))
		w.decide.BindText(3, string(a.Body))
		w.decide.BindText(4, a.ID)
		if err := exec(w.decide); err != nil {
			return fmt.Errorf("cannot write the decision: %w", err)
		}
		if w.conn.Changes() == 0 {
			return ErrDecided
		}
	}
	return nil
}
