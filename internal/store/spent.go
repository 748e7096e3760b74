package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Spent are messages that count for a scope, such as "session:telegram:bob". As a part it adds to
// the count.
type Spent struct {
	Scope string
	At    time.Time
	Count int
}

func (c Spent) prepare() (int, error) { return bounded("a count", c.Scope) }

func (c Spent) put(tx *transaction) error {
	const what = "a count"
	err := tx.Exec(what, `UPDATE main.spent SET count = count + ? WHERE scope = ? AND minute = ?`, db.Int(int64(c.Count)), db.Text(c.Scope), db.Int(minute(c.At)))
	if err != nil || tx.Changes() > 0 {
		return err
	}
	return tx.Insert(what, "spent", db.Text(c.Scope), db.Int(minute(c.At)), db.Int(int64(c.Count)))
}

// minute returns the beginning of the minute of a time. Messages are counted by the minute.
func minute(at time.Time) int64 { return at.Truncate(time.Minute).Unix() }

// Spent returns how many messages were counted for a scope since a time, including the whole minute
// of that time: rather too many than too few.
func (s *State) Spent(ctx context.Context, scope string, since time.Time) (int, error) {
	return db.Row(ctx, s.db, "a count", `SELECT coalesce(sum(count), 0) FROM spent WHERE scope = ? AND minute >= ?`, []any{scope, minute(since)},
		func(stmt *sqlite.Stmt) (int, error) { return stmt.ColumnInt(0), nil })
}

// outdated deletes the counts of a scope from before a minute.
type outdated struct {
	scope  string
	before int64
}

func (outdated) prepare() (int, error) { return 0, nil }

func (c outdated) put(tx *transaction) error {
	return tx.Exec("that counts are outdated", `DELETE FROM main.spent WHERE scope = ? AND minute < ?`, db.Text(c.scope), db.Int(c.before))
}

// SpentByMinute returns the counts of a scope since a time, with that of the minute
// the time is in, oldest first.
func (s *State) SpentByMinute(ctx context.Context, scope string, since time.Time) ([]Spent, error) {
	return db.Rows(ctx, s.db, "counts", `SELECT minute, count FROM spent WHERE scope = ? AND minute >= ? ORDER BY minute`, []any{scope, minute(since)},
		func(stmt *sqlite.Stmt) (Spent, error) {
			return Spent{Scope: scope, At: time.Unix(stmt.ColumnInt64(0), 0).UTC(), Count: stmt.ColumnInt(1)}, nil
		})
}
