package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Approval is one approval request in stored form. Summary and Body are in the form of
// internal/approval. As a part it begins to wait, or stores a person's decision.
type Approval struct {
	ID         string
	Kind       string // the request's kind
	Agent      string // an instance id
	AppID      string
	ExchangeID string
	// Asked is the digest of the app's request. It is deleted with the text when the request is
	// decided.
	Asked     string
	State     string
	ExpiresAt time.Time
	Summary   []byte
	Body      []byte
	// New is set on a change that makes the approval; one without it changes an
	// approval that must still be in the state From, pending if that is empty.
	New  bool
	From string
}

// PendingApproval is the state of an undecided approval.
const PendingApproval = "pending"

// ErrDecided means that an approval is no longer in the state from which it was to change.
var ErrDecided = errors.New("the approval is decided already")

const approvalColumns = `id, kind, agent, app_id, exchange_id, asked, state, expires_at, summary, body`

func (a *Approval) from() string { return cmp.Or(a.From, PendingApproval) }

func (a *Approval) prepare() (int, error) { return len(a.Summary) + len(a.Body), nil }

// guard refuses a decision about an approval that has left its state: nobody decides twice.
func (a *Approval) guard(tx *transaction) (refusal, err error) {
	if a.New {
		return nil, nil
	}
	same, err := tx.Scalar("the held message", `SELECT count(*) FROM approvals WHERE id = ? AND state = ?`, db.Text(a.ID), db.Text(a.from()))
	if err == nil && same == 0 {
		refusal = ErrDecided
	}
	return refusal, err
}

func (a *Approval) put(tx *transaction) error {
	if a.New {
		return tx.Insert("the held message", "approvals", db.Text(a.ID), db.Text(a.Agent), db.Text(a.AppID), db.Text(a.ExchangeID), db.Text(a.Asked),
			db.Text(a.State), db.Time(a.ExpiresAt), db.Bytes(a.Summary), db.Bytes(a.Body), db.Text(a.Kind))
	}
	changed, err := tx.Amend("the decision", "approvals", func(row []db.Value) {
		const asked, state, summary, body = 4, 5, 7, 8
		if a.State != PendingApproval {
			row[asked] = db.Text("")
		}
		row[state], row[summary], row[body] = db.Text(a.State), db.Bytes(a.Summary), db.Bytes(a.Body)
	}, `id = ? AND state = ?`, db.Text(a.ID), db.Text(a.from()))
	tx.removed.Or(removedTexts)
	if err == nil && changed == 0 {
		// The guard passed, so the change itself has decided the approval before.
		return ErrDecided
	}
	return err
}

func scanApproval(stmt *sqlite.Stmt) (Approval, error) {
	return Approval{
		ID: stmt.ColumnText(0), Kind: stmt.ColumnText(1), Agent: stmt.ColumnText(2), AppID: stmt.ColumnText(3), ExchangeID: stmt.ColumnText(4),
		Asked: stmt.ColumnText(5), State: stmt.ColumnText(6), ExpiresAt: db.TimeOf(stmt.ColumnInt64(7)),
		Summary: []byte(stmt.ColumnText(8)), Body: []byte(stmt.ColumnText(9)),
	}, nil
}

// Approval returns one approval, or [ErrNotFound].
func (s *State) Approval(ctx context.Context, id string) (Approval, error) {
	a, err := db.Row(ctx, s.db, "the approval", `SELECT `+approvalColumns+` FROM approvals WHERE id = ?`, []any{id}, scanApproval)
	return a, s.found(fold.Approvals, []string{id}, a.row, err)
}

// PendingOf returns the pending approvals of an exchange.
func (s *State) PendingOf(ctx context.Context, exchangeID string) ([]Approval, error) {
	list, err := db.Rows(ctx, s.db, "the approvals", `SELECT `+approvalColumns+` FROM approvals WHERE exchange_id = ? AND state = 'pending' ORDER BY id`,
		[]any{exchangeID}, scanApproval)
	for i := 0; i < len(list) && err == nil; i++ {
		err = s.agrees(fold.Approvals, []string{list[i].ID}, list[i].row())
	}
	return list, err
}

// ExpiredApprovals returns the ids of up to limit pending approvals whose time
// has run out, the longest expired first.
func (s *State) ExpiredApprovals(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return db.Rows(ctx, s.db, "expired approvals", `SELECT id FROM approvals WHERE state = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?`,
		[]any{now.UnixMilli(), limit}, db.ScanText)
}

// Pending calls visit with the id, kind, agent and asked digest of every pending
// approval.
func (s *State) Pending(ctx context.Context, visit func(id, kind, agent, asked string)) error {
	_, err := db.Rows(ctx, s.db, "the approvals", `SELECT id, kind, agent, asked FROM approvals WHERE state = 'pending'`, nil,
		func(stmt *sqlite.Stmt) (struct{}, error) {
			visit(stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2), stmt.ColumnText(3))
			return struct{}{}, nil
		})
	return err
}

// ApprovalFilter selects approvals; an empty member selects all.
type ApprovalFilter struct {
	State, Agent string
	// After continues a page: the id of its last approval.
	After string
}

// ApprovalSummary is the stored form of an approval for a list.
type ApprovalSummary struct {
	ID, State string
	Text      []byte
}

func scanSummary(stmt *sqlite.Stmt) (ApprovalSummary, error) {
	return ApprovalSummary{stmt.ColumnText(0), stmt.ColumnText(1), db.ColumnBytes(stmt, 2)}, nil
}

// Summaries returns the summaries of up to limit approvals, oldest first, without altered ones, and the
// number of all that match.
func (s *State) Summaries(ctx context.Context, f ApprovalFilter, limit int, left *Left) (page []ApprovalSummary, total int, err error) {
	count, list, args := summariesOf(f)
	var counts []int64
	err = s.db.Around(left).Scan(ctx, func(conn *sqlite.Conn) error {
		if err := db.Collect(conn, &counts, count, args, db.ScanInt); err != nil {
			return err
		}
		return db.Collect(conn, &page, list, append(args, f.After, limit), scanSummary)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot list the approvals: %w", err)
	}
	return page, int(counts[0]), nil
}

// summariesOf returns the queries that count the approvals of a filter, and list a page of them. The
// arguments of both are the same, but for those that the page ends with. The work for one agent's
// requests follows their number, however many others wait.
func summariesOf(f ApprovalFilter) (count, list string, args []any) {
	where, args := db.Matching([2]string{"state = ?", f.State}, [2]string{"agent = ?", f.Agent})
	return `SELECT count(*) FROM main.approvals WHERE ` + where, `SELECT id, state, summary FROM approvals WHERE ` + where + ` AND id > ? ORDER BY id LIMIT ?`, args
}
