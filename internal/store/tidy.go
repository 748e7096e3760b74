package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// tidyAtOnce bounds the rows that one commit of [Store.Tidy] deletes, small enough not to delay
// other commits.
const tidyAtOnce = 256

// Tidy deletes rows without effect: debts that have ended, counts and chains from before a time
// that no window reaches, and answers to old requests. Then it cleans the files: see [Store.Clean].
// It is called regularly. It reads without blocking anybody, writes a few rows at a time, and
// continues an interrupted call.
func (s *Store) Tidy(ctx context.Context, now, before time.Time) error {
	for _, find := range []func(context.Context) ([]Part, error){
		func(ctx context.Context) ([]Part, error) {
			return db.Rows(ctx, s.db, "what is owed no longer",
				`SELECT agent, counterparty, value, until FROM owed WHERE until BETWEEN 1 AND ? LIMIT ?`, []any{now.UnixMilli() - 1, tidyAtOnce},
				func(stmt *sqlite.Stmt) (Part, error) {
					o, err := scanOwed(stmt)
					return lapsed(o), err
				})
		},
		func(ctx context.Context) ([]Part, error) {
			return db.Rows(ctx, s.db, "outdated counts",
				`SELECT DISTINCT scope FROM spent WHERE minute < ? LIMIT ?`, []any{minute(before), tidyAtOnce},
				func(stmt *sqlite.Stmt) (Part, error) { return outdated{stmt.ColumnText(0), minute(before)}, nil })
		},
		func(ctx context.Context) ([]Part, error) {
			return db.Rows(ctx, s.db, "what was heard long ago",
				`SELECT agent, counterparty FROM heard WHERE at < ? LIMIT ?`, []any{before.UnixMilli(), tidyAtOnce},
				func(stmt *sqlite.Stmt) (Part, error) {
					return faded{stmt.ColumnText(0), stmt.ColumnText(1), before.UnixMilli()}, nil
				})
		},
		func(ctx context.Context) ([]Part, error) {
			old := now.Add(-keepRequests).UnixMilli()
			return db.Rows(ctx, s.db, "answers that are old",
				`SELECT actor, key FROM request_keys WHERE at < ? LIMIT ?`, []any{old, tidyAtOnce},
				func(stmt *sqlite.Stmt) (Part, error) {
					return forgotten{stmt.ColumnText(0), stmt.ColumnText(1), old}, nil
				})
		},
	} {
		for {
			parts, err := find(ctx)
			if err != nil {
				return err
			}
			if len(parts) > 0 {
				if _, err := s.Commit(&Change{Parts: parts, Drains: true}); err != nil {
					return err
				}
			}
			if len(parts) < tidyAtOnce {
				break
			}
		}
	}
	return s.Clean(ctx)
}

// faded deletes an agent's chain from before a time.
type faded struct {
	agent, counterparty string
	before              int64
}

func (faded) prepare() (int, error) { return 0, nil }

func (f faded) put(tx *transaction) error {
	return tx.Exec("that something was heard long ago", `DELETE FROM main.heard WHERE agent = ? AND counterparty = ? AND at < ?`, db.Text(f.agent), db.Text(f.counterparty), db.Int(f.before))
}
