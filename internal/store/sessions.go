package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Session is the stored state of a session. As a part it is a new one. If another tenant's agent
// owns the session, the part's key is a [TenantSession]; a read returns the session's own.
type Session struct {
	Key string
	SessionOwner
	// Former, in a part, is the previous owner that is gone.
	Former       SessionOwner
	ChannelID    string
	AccountID    string
	CreatedAt    time.Time
	LastActiveAt time.Time
	MessageCount int64
}

// SessionOwner is the agent that owns a session: its id, and the identity that distinguishes it
// from another agent under that id.
type SessionOwner struct{ AgentID, Identified string }

func (Session) prepare() (int, error) { return 0, nil }

func (s Session) put(tx *transaction) error {
	if s.Former != (SessionOwner{}) {
		if err := tx.Exec("the former session", `DELETE FROM main.sessions WHERE key = ? AND agent_id = ? AND identified = ?`,
			db.Text(s.Key), db.Text(s.Former.AgentID), db.Text(s.Former.Identified)); err != nil {
			return err
		}
	}
	const what = "the session"
	there, err := tx.Scalar(what, `SELECT count(*) FROM sessions WHERE key = ?`, db.Text(s.Key))
	if err != nil || there > 0 {
		return err
	}
	return tx.Insert(what, "sessions", db.Text(s.Key), db.Text(s.AgentID), db.Text(s.ChannelID), db.Text(s.AccountID), db.Int(s.CreatedAt.UnixMilli()), db.Int(s.LastActiveAt.UnixMilli()),
		db.Int(s.MessageCount), db.Text(s.Identified))
}

// SettledSessions sets, as a part, the owners of sessions that were stored without one: the agents
// that have their agents' ids, or else nobody.
type SettledSessions []SessionOwner

func (SettledSessions) prepare() (int, error) { return 0, nil }

func (s SettledSessions) put(tx *transaction) error {
	owners := make(map[string]string, len(s))
	for _, o := range s {
		owners[o.AgentID] = o.Identified
	}
	_, err := tx.Amend("whose sessions are", "sessions", func(row []db.Value) {
		const agent, identified = 1, 7
		row[identified] = db.Text(cmp.Or(owners[row[agent].String()], "?"))
	}, `identified = ''`)
	return err
}

// UnsettledSessions reports whether there are sessions that were stored without an owner.
func (s *State) UnsettledSessions(ctx context.Context) (bool, error) {
	some, err := db.Row(ctx, s.db, "sessions", `SELECT EXISTS (SELECT 1 FROM sessions WHERE identified = '')`, nil, db.ScanInt)
	return some > 0, err
}

// putTouch writes that a session was used.
func (tx *transaction) putTouch(key string, t touch) error {
	return tx.Exec("the session", `UPDATE main.sessions SET last_active_at = max(last_active_at, ?), message_count = message_count + ? WHERE key = ?`,
		db.Int(t.at.UnixMilli()), db.Int(t.messages), db.Text(key))
}

// Session returns a session by its key, or [ErrNotFound].
func (s *State) Session(ctx context.Context, key string) (Session, error) {
	return db.Row(ctx, s.db, "the session", `SELECT `+sessionColumns+` FROM sessions WHERE key = ?`, []any{key}, scanSession)
}

// FreshSession returns a session with every use of it counted.
func (s *Store) FreshSession(ctx context.Context, key string) (Session, error) {
	s.Flush()
	return s.Session(ctx, key)
}

// SessionFilter selects sessions; an empty field selects all.
type SessionFilter struct {
	AgentID, ChannelID, AccountID string
	// Of, if set, selects only the sessions of some agents and some channels.
	Of *SessionOwners
	// ActiveSince selects sessions used at or after it, IdleSince those used before it.
	ActiveSince, IdleSince time.Time
}

// SessionOwners selects visible sessions: those of the agents, and those whose key begins with one
// of the channels, if their agent is one that the channels serve.
type SessionOwners struct {
	Agents, Served []SessionOwner
	Channels       []string
}

// lists returns the owners in the form for the query.
func (o *SessionOwners) lists() (agents, channels, served string) {
	if o == nil {
		return "", "", ""
	}
	return pairs(o.Agents), jsonList(o.Channels), pairs(o.Served)
}

// pairs encodes owners for queries: a list of lists.
func pairs(owners []SessionOwner) string {
	list := make([]string, len(owners))
	for i, o := range owners {
		list[i] = jsonList([]string{o.AgentID, o.Identified})
	}
	return "[" + strings.Join(list, ",") + "]"
}

func jsonList(names []string) string {
	b := []byte{'['}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonline.Quote(b, name)
	}
	return string(append(b, ']'))
}

const sessionColumns = `key, agent_id, identified, channel_id, account_id, created_at, last_active_at, message_count`

const sessionMatch = ` WHERE (?1 = '' OR agent_id = ?1) AND (?2 = '' OR channel_id = ?2)
	AND (?3 = '' OR account_id = ?3) AND (?4 = 0 OR last_active_at >= ?4) AND (?5 = 0 OR last_active_at < ?5)
	AND (?6 = '' OR (agent_id, identified) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?6)) OR substr(key, 1, instr(key, ':') - 1) IN (SELECT value FROM json_each(?7))
	AND (agent_id, identified) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?8)))`

// Sessions returns a page of the matching sessions, last used first, and the number of all that
// match. With a list for them, it leaves altered rows out.
func (s *Store) Sessions(ctx context.Context, f SessionFilter, limit, offset int, left *Left) (page []Session, total int, err error) {
	s.Flush()
	agents, channels, served := f.Of.lists()
	match := []any{f.AgentID, f.ChannelID, f.AccountID, db.Milliseconds(f.ActiveSince), db.Milliseconds(f.IdleSince), agents, channels, served}
	var counts []int64
	err = s.db.Around(left).Long(ctx, func(conn *sqlite.Conn) (err error) {
		// Both queries see one state, so that the total fits the page.
		defer sqlitex.Transaction(conn)(&err)
		if err := db.Collect(conn, &counts, `SELECT count(*) FROM main.sessions`+sessionMatch, match, db.ScanInt); err != nil {
			return err
		}
		return db.Collect(conn, &page, `SELECT `+sessionColumns+` FROM sessions`+sessionMatch+` ORDER BY last_active_at DESC, key LIMIT ?9 OFFSET ?10`,
			append(match, limit, offset), scanSession)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot list sessions: %w", err)
	}
	return page, int(counts[0]), nil
}

func scanSession(stmt *sqlite.Stmt) (Session, error) {
	return Session{
		Key: sessionOf(stmt.ColumnText(0)), SessionOwner: SessionOwner{stmt.ColumnText(1), stmt.ColumnText(2)}, ChannelID: stmt.ColumnText(3), AccountID: stmt.ColumnText(4),
		CreatedAt: db.TimeOf(stmt.ColumnInt64(5)), LastActiveAt: db.TimeOf(stmt.ColumnInt64(6)), MessageCount: stmt.ColumnInt64(7),
	}, nil
}
