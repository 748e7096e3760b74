package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Brought holds the address members of a session's last message, which an answer may repeat. As a
// part it replaces the session's earlier row.
type Brought struct {
	// SessionKey is the session's, or with several tenants, its [TenantSession].
	SessionKey string
	Account    string
	Members    map[string]string
	At         time.Time
}

// TenantSession names a session for the agents of one of several tenants. No session key contains a
// zero byte.
func TenantSession(tenant, session string) string { return tenant + "\x00" + session }

// sessionOf returns the session's key from a [TenantSession] or from the key itself.
func sessionOf(key string) string { return key[strings.IndexByte(key, 0)+1:] }

// tenantOf returns the tenant of a [TenantSession], "" for a session's key.
func tenantOf(key string) string {
	tenant, _, found := strings.Cut(key, "\x00")
	if !found {
		return ""
	}
	return tenant
}

// maxBrought bounds the stored sessions of one tenant. Beyond it the ones first heard of are
// deleted, until they are heard of again. Other tenants' rows are not affected.
const maxBrought = 65536

func (b Brought) prepare() (int, error) {
	size := 0
	for name, value := range b.Members {
		size += len(name) + len(value)
	}
	if size > maxPartText {
		return 0, tooLarge("the address of a session", size)
	}
	return bounded("the address of a session", b.SessionKey, b.Account)
}

func (b Brought) put(tx *transaction) error {
	const what = "the address of a session"
	members, err := json.Marshal(b.Members, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	first, last := shareOf(tenantOf(b.SessionKey))
	no, err := tx.Scalar(what, `SELECT coalesce((SELECT no FROM brought WHERE session_key = ?), (SELECT max(no) + 1 FROM main.brought WHERE no BETWEEN ? AND ?), ? + 1)`,
		db.Text(b.SessionKey), first, last, first)
	if err != nil {
		return err
	}
	err = tx.Put(what, "brought", db.Int(no), db.Text(b.SessionKey), db.Text(b.Account), db.Text(string(members)), db.Int(b.At.UnixMilli()))
	if err != nil {
		return err
	}
	return tx.Exec(what, `DELETE FROM main.brought WHERE no BETWEEN ? AND (SELECT max(no) FROM brought WHERE no BETWEEN ? AND ?) - ?`,
		first, first, last, db.Int(maxBrought))
}

// Brought returns the address members of a session's last message, or [ErrNotFound].
func (s *Known) Brought(ctx context.Context, sessionKey string) (Brought, error) {
	return db.Row(ctx, s.db, "the address of a session", `SELECT session_key, account, members, at FROM brought WHERE session_key = ?`, []any{sessionKey},
		func(stmt *sqlite.Stmt) (Brought, error) {
			b := Brought{SessionKey: stmt.ColumnText(0), Account: stmt.ColumnText(1), At: db.TimeOf(stmt.ColumnInt64(3))}
			return b, json.Unmarshal([]byte(stmt.ColumnText(2)), &b.Members)
		})
}
