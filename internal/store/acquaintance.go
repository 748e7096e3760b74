package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
)

// Heard is what an agent heard, from one counterparty or, where that is "", from
// anybody: the causal chain it came in, and none where it was a person's word.
type Heard struct {
	Agent        string // an instance id
	Counterparty string // an instance id, or ""
	At           time.Time
	Chain        ocip.Chain
}

// Seen is the agent that an envelope has shown to be at a session.
type Seen struct {
	SessionKey string
	ocip.Identity
}

// Heard returns what an agent heard from a counterparty, or from anybody where that
// is "", or [ErrNotFound].
func (s *Store) Heard(ctx context.Context, agent, counterparty string) (Heard, error) {
	return row(ctx, &s.reader, "what an agent heard", `SELECT agent, counterparty, at, chain FROM heard WHERE agent = ? AND counterparty = ?`,
		[]any{agent, counterparty}, func(stmt *sqlite.Stmt) (Heard, error) {
			h := Heard{Agent: stmt.ColumnText(0), Counterparty: stmt.ColumnText(1), At: fromMilli(stmt.ColumnInt64(2))}
			if text := stmt.ColumnText(3); text != "" {
				return h, json.Unmarshal([]byte(text), &h.Chain)
			}
			return h, nil
		})
}

const seenColumns = `session_key, instance_id, user_id, org_unit, tenant_id`

func scanSeen(stmt *sqlite.Stmt) (Seen, error) {
	return Seen{SessionKey: stmt.ColumnText(0), Identity: ocip.Identity{
		InstanceID: stmt.ColumnText(1), UserID: stmt.ColumnText(2), OrgUnit: stmt.ColumnText(3), TenantID: stmt.ColumnText(4),
	}}, nil
}

// SeenAt returns the agent seen at a session, or [ErrNotFound].
func (s *Store) SeenAt(ctx context.Context, sessionKey string) (ocip.Identity, error) {
	one, err := row(ctx, &s.reader, "the agent seen at a session", `SELECT `+seenColumns+` FROM seen_agents WHERE session_key = ?`, []any{sessionKey}, scanSeen)
	return one.Identity, err
}

// SeenAfter returns up to limit agents that were seen at sessions, by the sessions'
// keys, from behind one of them on; "" is before all.
func (s *Store) SeenAfter(ctx context.Context, sessionKey string, limit int) ([]Seen, error) {
	return rows(ctx, &s.reader, "the agents seen at sessions",
		`SELECT `+seenColumns+` FROM seen_agents WHERE session_key > ? ORDER BY session_key LIMIT ?`, []any{sessionKey, limit}, scanSeen)
}

// Forgotten is a session of which nothing is known any more that a message of it
// has shown: no agent, and no address. It is a part.
type Forgotten string

func (f Forgotten) check() error { return nil }

func (f Forgotten) put(w *writer) error {
	const what = "that a session is forgotten"
	if err := w.exec(what, `DELETE FROM seen_agents WHERE session_key = ?`, string(f)); err != nil {
		return err
	}
	return w.exec(what, `DELETE FROM brought WHERE session_key = ?`, string(f))
}

// encodeChain is the line as text, empty where there is none.
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
