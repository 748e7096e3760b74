package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Run is one agent invocation that has not completed. As a part it is a new one.
type Run struct {
	ID         string
	AgentID    string
	SessionKey string
	QueuedAt   time.Time
}

func (Run) prepare() (int, error) { return 0, nil }

func (r Run) put(tx *transaction) error {
	return tx.Insert("the run", "runs", db.Text(r.ID), db.Text(r.AgentID), db.Text(r.SessionKey), db.Int(r.QueuedAt.UnixMilli()))
}

// EndedRun is the id of a run that has completed, as a part.
type EndedRun string

func (EndedRun) prepare() (int, error) { return 0, nil }

func (id EndedRun) put(tx *transaction) error {
	return tx.Exec("the end of the run", `DELETE FROM main.runs WHERE id = ?`, db.Text(string(id)))
}

// Run returns an agent run that has not completed, or [ErrNotFound].
func (s *State) Run(ctx context.Context, id string) (Run, error) {
	return db.Row(ctx, s.db, "the run", `SELECT id, agent_id, session_key, queued_at FROM runs WHERE id = ?`, []any{id},
		func(stmt *sqlite.Stmt) (Run, error) {
			return Run{ID: stmt.ColumnText(0), AgentID: stmt.ColumnText(1), SessionKey: stmt.ColumnText(2), QueuedAt: db.TimeOf(stmt.ColumnInt64(3))}, nil
		})
}
