package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Heard is the causal chain that an agent heard from one counterparty, or with "" from anybody. A
// person's word has no chain. As a part it replaces the agent's earlier row for that counterparty.
type Heard struct {
	Agent        string // an instance id
	Counterparty string // an instance id, or ""
	At           time.Time
	Chain        ocip.Chain
}

// Seen is the agent that an envelope has shown at a session. By is the tenant of the agent that got
// the envelope, "" if that was not kept. As a part it replaces an earlier row of its session and
// tenant.
type Seen struct {
	SessionKey, By string
	ocip.Identity
}

func (Heard) prepare() (int, error) { return 0, nil }

func (h Heard) put(tx *transaction) error {
	chain, err := encodeChain(h.Chain)
	if err != nil {
		return err
	}
	return tx.Put("what an agent heard", "heard", db.Text(h.Agent), db.Text(h.Counterparty), db.Int(h.At.UnixMilli()), db.Text(chain))
}

func (Seen) prepare() (int, error) { return 0, nil }

func (s Seen) put(tx *transaction) error {
	return tx.Put("the agent seen at a session", "seen_agents",
		db.Text(s.SessionKey), db.Text(s.By), db.Text(s.InstanceID), db.Text(s.UserID), db.Text(s.OrgUnit), db.Text(s.TenantID))
}

// Heard returns what an agent heard from a counterparty, or with "" from anybody, or [ErrNotFound].
func (s *Known) Heard(ctx context.Context, agent, counterparty string) (Heard, error) {
	return db.Row(ctx, s.db, "what an agent heard", `SELECT agent, counterparty, at, chain FROM heard WHERE agent = ? AND counterparty = ?`,
		[]any{agent, counterparty}, func(stmt *sqlite.Stmt) (Heard, error) {
			h := Heard{Agent: stmt.ColumnText(0), Counterparty: stmt.ColumnText(1), At: db.TimeOf(stmt.ColumnInt64(2))}
			if text := stmt.ColumnText(3); text != "" {
				return h, json.Unmarshal([]byte(text), &h.Chain)
			}
			return h, nil
		})
}

// SeenAt returns the agent that a tenant's agents saw at a session, or [ErrNotFound].
func (s *Known) SeenAt(ctx context.Context, tenant, sessionKey string) (ocip.Identity, error) {
	one, err := db.Row(ctx, s.db, "the agent seen at a session",
		selectSeen+` AND seen_by IN (?, '') ORDER BY seen_by DESC LIMIT 1`, []any{sessionKey, tenant}, scanSeen)
	return one.Identity, err
}

// SeenByAll returns the agents that were seen at a session, by the tenants that saw them.
func (s *Known) SeenByAll(ctx context.Context, sessionKey string) ([]Seen, error) {
	return db.Rows(ctx, s.db, "the agents seen at a session", selectSeen+` ORDER BY seen_by`, []any{sessionKey}, scanSeen)
}

const selectSeen = `SELECT session_key, seen_by, instance_id, user_id, org_unit, tenant_id FROM seen_agents WHERE session_key = ?`

func scanSeen(stmt *sqlite.Stmt) (Seen, error) {
	return Seen{SessionKey: stmt.ColumnText(0), By: stmt.ColumnText(1), Identity: ocip.Identity{
		InstanceID: stmt.ColumnText(2), UserID: stmt.ColumnText(3), OrgUnit: stmt.ColumnText(4), TenantID: stmt.ColumnText(5),
	}}, nil
}

// Forgotten is a session whose messages' knowledge is deleted: the agent seen there, and the
// addresses. It is a part.
type Forgotten string

func (Forgotten) prepare() (int, error) { return 0, nil }

func (f Forgotten) put(tx *transaction) error {
	const what = "that a session is forgotten"
	if err := tx.Exec(what, `DELETE FROM main.seen_agents WHERE session_key = ?`, db.Text(string(f))); err != nil {
		return err
	}
	return tx.Exec(what, `DELETE FROM main.brought WHERE session_key = ?`, db.Text(string(f)))
}

// encodeChain encodes a chain, empty if there is none.
func encodeChain(c ocip.Chain) (string, error) {
	if c.ID == "" {
		return "", nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("cannot encode chain %s: %w", c.ID, err)
	}
	return string(text), nil
}
