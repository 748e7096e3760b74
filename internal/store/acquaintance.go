package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Heard is what an agent heard last: the causal line it came in, and none where
// it was a person's word.
type Heard struct {
	Agent string // an instance id
	At    time.Time
	Chain ocip.Chain
}

// Seen is the agent that an envelope has shown to be at a session.
type Seen struct {
	SessionKey string
	ocip.Identity
}

// Heard returns what an agent heard last, or [ErrNotFound].
func (s *Store) Heard(ctx context.Context, agent string) (h Heard, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT agent, at, chain FROM heard WHERE agent = ?`, &sqlitex.ExecOptions{
			Args: []any{agent},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				h = Heard{Agent: stmt.ColumnText(0), At: fromMilli(stmt.ColumnInt64(1))}
				if text := stmt.ColumnText(2); text != "" {
					return json.Unmarshal([]byte(text), &h.Chain)
				}
				return nil
			},
		})
	})
	if err != nil {
		return Heard{}, fmt.Errorf("cannot read what agent %s heard: %w", agent, err)
	}
	if h.Agent == "" {
		return Heard{}, ErrNotFound
	}
	return h, nil
}

// SeenAt returns the agent seen at a session, or [ErrNotFound].
func (s *Store) SeenAt(ctx context.Context, sessionKey string) (id ocip.Identity, err error) {
	found := false
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT instance_id, user_id, org_unit, tenant_id FROM seen_agents WHERE session_key = ?`, &sqlitex.ExecOptions{
			Args: []any{sessionKey},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				found = true
				id = ocip.Identity{InstanceID: stmt.ColumnText(0), UserID: stmt.ColumnText(1), OrgUnit: stmt.ColumnText(2), TenantID: stmt.ColumnText(3)}
				return nil
			},
		})
	})
	if err != nil {
		return ocip.Identity{}, fmt.Errorf("cannot read the agent seen at session %s: %w", sessionKey, err)
	}
	if !found {
		return ocip.Identity{}, ErrNotFound
	}
	return id, nil
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
