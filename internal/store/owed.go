package store

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Owed is the answer that an agent owes another, in any exchange. As a part it replaces the earlier
// row; an empty Value ends the debt.
type Owed struct {
	Agent, Counterparty string // instance ids
	// Value is in the kernel's form.
	Value string
	// Until is when it ends by itself; zero never.
	Until time.Time
}

func (o Owed) prepare() (int, error) {
	return bounded("what an agent owes", o.Agent, o.Counterparty, o.Value)
}

func (o Owed) put(tx *transaction) error {
	if o.Value == "" {
		return tx.Exec("what an agent owes", `DELETE FROM main.owed WHERE agent = ? AND counterparty = ?`, db.Text(o.Agent), db.Text(o.Counterparty))
	}
	return tx.Put("what an agent owes", "owed", o.values()...)
}

func (o Owed) values() []db.Value {
	return []db.Value{db.Text(o.Agent), db.Text(o.Counterparty), db.Text(o.Value), db.Time(o.Until)}
}

// owedKey is the key of a debt's row in the log: its agent and its seal.
func owedKey(seals *db.Seals, o Owed) []string {
	return []string{o.Agent, hex.EncodeToString(seals.Of("owed", o.values()...))}
}

func (o Owed) fold(f *folding) {
	pair := [2]string{o.Agent, o.Counterparty}
	was, known := f.owed[pair]
	if !known {
		was, f.err = f.s.Owed(context.Background(), o.Agent, o.Counterparty)
		if errors.Is(f.err, ErrNotFound) {
			f.err = nil
		}
	}
	if was.Value != "" {
		f.row(fold.Owed, owedKey(f.s.seals, was)).now = nil
	}
	if o.Value != "" {
		f.row(fold.Owed, owedKey(f.s.seals, o)).now = fold.Row{fold.Time(o.Until)}
	}
	if f.owed == nil {
		f.owed = make(map[[2]string]Owed)
	}
	f.owed[pair] = o
}

// Owed returns an agent's debt to another, even if its time is over, or [ErrNotFound].
func (s *State) Owed(ctx context.Context, agent, counterparty string) (Owed, error) {
	o, err := db.Row(ctx, s.db, "what an agent owes", `SELECT agent, counterparty, value, until FROM owed WHERE agent = ? AND counterparty = ?`,
		[]any{agent, counterparty}, scanOwed)
	if err == nil {
		err = s.agrees(fold.Owed, owedKey(s.seals, o), fold.Row{fold.Time(o.Until)})
	}
	return o, err
}

func scanOwed(stmt *sqlite.Stmt) (Owed, error) {
	return Owed{Agent: stmt.ColumnText(0), Counterparty: stmt.ColumnText(1), Value: stmt.ColumnText(2), Until: db.TimeOf(stmt.ColumnInt64(3))}, nil
}

// lapsed deletes an ended debt, unless it was replaced meanwhile.
type lapsed Owed

func (lapsed) prepare() (int, error) { return 0, nil }

func (o lapsed) put(tx *transaction) error {
	return tx.Exec("that nothing is owed any more", `DELETE FROM main.owed WHERE agent = ? AND counterparty = ? AND until = ?`,
		db.Text(o.Agent), db.Text(o.Counterparty), db.Time(o.Until))
}
