package store

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"
)

// Owed is what an agent owes another an answer to, whatever exchange that is in. As
// a part it is written over what was owed; with an empty Value nothing is owed any
// more.
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

func (o Owed) put(w *writer, _ *pending) error {
	if o.Value == "" {
		return w.exec("what an agent owes", `DELETE FROM owed WHERE agent = ? AND counterparty = ?`, text(o.Agent), text(o.Counterparty))
	}
	return w.exec("what an agent owes", `INSERT INTO owed (agent, counterparty, value, until) VALUES (?, ?, ?, ?)
		ON CONFLICT (agent, counterparty) DO UPDATE SET value = excluded.value, until = excluded.until`,
		text(o.Agent), text(o.Counterparty), text(o.Value), moment(o.Until))
}

// Owed returns what an agent owes another, also where its time is over, or
// [ErrNotFound].
func (s *Store) Owed(ctx context.Context, agent, counterparty string) (Owed, error) {
	return row(ctx, &s.reader, "what an agent owes", `SELECT agent, counterparty, value, until FROM owed WHERE agent = ? AND counterparty = ?`,
		[]any{agent, counterparty}, scanOwed)
}

func scanOwed(stmt *sqlite.Stmt) (Owed, error) {
	return Owed{Agent: stmt.ColumnText(0), Counterparty: stmt.ColumnText(1), Value: stmt.ColumnText(2), Until: fromMilli(stmt.ColumnInt64(3))}, nil
}

// lapsed takes away what is owed no longer, as long as nobody has written it over.
type lapsed Owed

func (lapsed) prepare() (int, error) { return 0, nil }

func (o lapsed) put(w *writer, _ *pending) error {
	return w.exec("that nothing is owed any more", `DELETE FROM owed WHERE agent = ? AND counterparty = ? AND until = ?`,
		text(o.Agent), text(o.Counterparty), moment(o.Until))
}
