package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Paused is a pause of a person: of "all", or of one agent or channel. As a part it replaces an
// earlier one of its scope.
type Paused struct {
	Scope string
	At    time.Time
	By    string
}

// Resumed is the scope of a pause that ends, as a part.
type Resumed string

func (p Paused) prepare() (int, error) { return bounded("what is paused", p.Scope, p.By) }

func (p Paused) put(tx *transaction) error {
	return tx.Put("what is paused", "paused", db.Text(p.Scope), db.Int(p.At.UnixMilli()), db.Text(p.By))
}

func (Resumed) prepare() (int, error) { return 0, nil }

func (p Resumed) put(tx *transaction) error {
	return tx.Exec("what goes on", `DELETE FROM main.paused WHERE scope = ?`, db.Text(string(p)))
}

// Paused returns all pauses.
func (s *State) Paused(ctx context.Context) ([]Paused, error) {
	return db.Rows(ctx, s.db, "what is paused", `SELECT scope, at, by FROM paused ORDER BY scope`, nil,
		func(stmt *sqlite.Stmt) (Paused, error) {
			return Paused{Scope: stmt.ColumnText(0), At: db.TimeOf(stmt.ColumnInt64(1)), By: stmt.ColumnText(2)}, nil
		})
}
