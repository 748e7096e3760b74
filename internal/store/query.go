package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const exchangeColumns = `agent, id, conversation_id, counterparty, outcome, expires_at, state`

// Exchange returns one side of an exchange by its id, or [ErrNotFound].
func (s *Store) Exchange(ctx context.Context, agent, id string) (ocip.Exchange, error) {
	return s.oneExchange(ctx, `SELECT `+exchangeColumns+` FROM exchanges WHERE agent = ? AND id = ?`, agent, id)
}

// ExchangeByConversation returns one side of an exchange by its conversation,
// or [ErrNotFound].
func (s *Store) ExchangeByConversation(ctx context.Context, agent, conversation string) (ocip.Exchange, error) {
	e, err := s.Exchange(ctx, agent, conversation)
	if err == nil && e.ConversationID == conversation {
		return e, nil
	}
	return s.oneExchange(ctx, `SELECT `+exchangeColumns+` FROM exchanges
		WHERE agent = ? AND conversation_id = ? AND conversation_id <> id ORDER BY id DESC LIMIT 1`, agent, conversation)
}

// CurrentExchange returns the exchange that a session's next message belongs
// to for an agent, or [ErrNotFound].
func (s *Store) CurrentExchange(ctx context.Context, agent, sessionKey string) (ocip.Exchange, error) {
	return s.oneExchange(ctx, `SELECT `+exchangeColumns+` FROM exchanges WHERE agent = ?1 AND id =
		(SELECT exchange_id FROM current_exchanges WHERE agent = ?1 AND session_key = ?2)`, agent, sessionKey)
}

func (s *Store) oneExchange(ctx context.Context, query string, args ...any) (e ocip.Exchange, err error) {
	found := false
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: args,
			ResultFunc: func(stmt *sqlite.Stmt) error {
				found = true
				e, err = scanExchange(stmt)
				return err
			},
		})
	})
	if err != nil {
		return ocip.Exchange{}, fmt.Errorf("cannot read the exchange: %w", err)
	}
	if !found {
		return ocip.Exchange{}, ErrNotFound
	}
	return e, nil
}

func scanExchange(stmt *sqlite.Stmt) (ocip.Exchange, error) {
	var state exchangeState
	if err := json.Unmarshal([]byte(stmt.ColumnText(6)), &state); err != nil {
		return ocip.Exchange{}, fmt.Errorf("cannot decode exchange %s: %w", stmt.ColumnText(1), err)
	}
	e := state.exchange()
	e.Agent, e.ID, e.ConversationID = stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2)
	e.Counterparty, e.Outcome, e.ExpiresAt = stmt.ColumnText(3), ocip.Outcome(stmt.ColumnText(4)), fromMilli(stmt.ColumnInt64(5))
	return e, nil
}

// exchange is what the state says of an exchange.
func (s *exchangeState) exchange() ocip.Exchange {
	e := ocip.Exchange{
		Type: s.Type, SessionKey: s.SessionKey, Round: s.Round, MaxRounds: s.MaxRounds,
		Awaiting: s.Awaiting, AwaitsCommitment: s.Commitment, ForPerson: s.ForPerson, Approved: s.Approved, Level: s.Level,
		OpenedAt: fromMilli(s.OpenedAt), UpdatedAt: fromMilli(s.UpdatedAt), Transcript: s.Transcript, Shared: s.Shared, Withheld: s.Withheld,
	}
	if s.Chain != nil {
		e.Chain = *s.Chain
	}
	return e
}

// Session returns a session by its key, or [ErrNotFound].
func (s *Store) Session(ctx context.Context, key string) (Session, error) {
	var found []Session
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT `+sessionColumns+` FROM sessions WHERE key = ?`, &sqlitex.ExecOptions{
			Args:       []any{key},
			ResultFunc: scanSessions(&found),
		})
	})
	if err != nil {
		return Session{}, fmt.Errorf("cannot read the session: %w", err)
	}
	if len(found) == 0 {
		return Session{}, ErrNotFound
	}
	return found[0], nil
}

// SessionFilter selects sessions; an empty field selects all.
type SessionFilter struct {
	AgentID, ChannelID, AccountID string
	// Of, where set, selects only the sessions of some agents and some channels.
	Of *SessionOwners
	// ActiveSince selects sessions used at or after it, IdleSince those used
	// before it.
	ActiveSince, IdleSince time.Time
}

// SessionOwners are whose sessions may be seen: those of the agents, and those
// whose key begins with one of the channels where they are of an agent that the
// channels serve.
type SessionOwners struct{ Agents, Channels, Served []string }

// lists are the owners as the query takes them.
func (o *SessionOwners) lists() (agents, channels, served string) {
	if o == nil {
		return "", "", ""
	}
	return jsonList(o.Agents), jsonList(o.Channels), jsonList(o.Served)
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

const sessionColumns = `key, agent_id, channel_id, account_id, created_at, last_active_at, message_count`

const sessionMatch = ` FROM sessions WHERE (?1 = '' OR agent_id = ?1) AND (?2 = '' OR channel_id = ?2)
	AND (?3 = '' OR account_id = ?3) AND (?4 = 0 OR last_active_at >= ?4) AND (?5 = 0 OR last_active_at < ?5)
	AND (?6 = '' OR agent_id IN (SELECT value FROM json_each(?6)) OR substr(key, 1, instr(key, ':') - 1) IN (SELECT value FROM json_each(?7))
	AND agent_id IN (SELECT value FROM json_each(?8)))`

// Sessions returns a page of the sessions that match, last used first, and how
// many match in all.
func (s *Store) Sessions(ctx context.Context, f SessionFilter, limit, offset int) (page []Session, total int, err error) {
	s.flushTouches()
	agents, channels, served := f.Of.lists()
	match := []any{f.AgentID, f.ChannelID, f.AccountID, unixMilli(f.ActiveSince), unixMilli(f.IdleSince), agents, channels, served}
	err = s.scan(ctx, func(conn *sqlite.Conn) (err error) {
		// Both queries see one state, so that the total fits the page.
		defer sqlitex.Transaction(conn)(&err)
		err = sqlitex.Execute(conn, `SELECT count(*)`+sessionMatch, &sqlitex.ExecOptions{
			Args: match,
			ResultFunc: func(stmt *sqlite.Stmt) error {
				total = stmt.ColumnInt(0)
				return nil
			},
		})
		if err != nil {
			return err
		}
		return sqlitex.Execute(conn, `SELECT `+sessionColumns+sessionMatch+` ORDER BY last_active_at DESC, key LIMIT ?9 OFFSET ?10`, &sqlitex.ExecOptions{
			Args:       append(match, limit, offset),
			ResultFunc: scanSessions(&page),
		})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot list sessions: %w", err)
	}
	return page, total, nil
}

func scanSessions(into *[]Session) func(*sqlite.Stmt) error {
	return func(stmt *sqlite.Stmt) error {
		*into = append(*into, Session{
			Key:          stmt.ColumnText(0),
			AgentID:      stmt.ColumnText(1),
			ChannelID:    stmt.ColumnText(2),
			AccountID:    stmt.ColumnText(3),
			CreatedAt:    fromMilli(stmt.ColumnInt64(4)),
			LastActiveAt: fromMilli(stmt.ColumnInt64(5)),
			MessageCount: stmt.ColumnInt64(6),
		})
		return nil
	}
}

// FreshSession returns a session with every use of it counted.
func (s *Store) FreshSession(ctx context.Context, key string) (Session, error) {
	s.flushTouches()
	return s.Session(ctx, key)
}

// Messages returns up to limit messages of a queue after an id, in order. They
// are there to be delivered, so it returns none whose record is not yet known
// to be kept, and an error where the database is lost.
func (s *Store) Messages(ctx context.Context, queue string, after int64, limit int) (page []*Message, err error) {
	if err := s.noticeLoss(s.watch.glance()); err != nil {
		return nil, err
	}
	head := s.Head().Seq
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT id, record_seq, dispatch_id, expires_at, message FROM queues, outbox
			WHERE name = ?1 AND id > max(?2, no << 40) AND id < (no + 1) << 40 ORDER BY id LIMIT ?3`, &sqlitex.ExecOptions{
			Args: []any{queue, after, limit},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				if uint64(stmt.ColumnInt64(1)) > head {
					return nil
				}
				page = append(page, &Message{
					MessageID:  MessageID{Queue: queue, ID: stmt.ColumnInt64(0)},
					RecordSeq:  uint64(stmt.ColumnInt64(1)),
					DispatchID: stmt.ColumnText(2),
					ExpiresAt:  fromMilli(stmt.ColumnInt64(3)),
					Body:       []byte(stmt.ColumnText(4)),
				})
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the outbox: %w", err)
	}
	return page, nil
}

// Queue is how much waits for one receiver.
type Queue struct {
	Name string
	// Last is the id of the newest message.
	Last  int64
	Count int
}

// Queues lists the receivers for whom something waits.
func (s *Store) Queues(ctx context.Context) (queues []Queue, err error) {
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT name, max(id), count(*) FROM queues JOIN outbox ON id > no << 40 AND id < (no + 1) << 40 GROUP BY no`, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				queues = append(queues, Queue{Name: stmt.ColumnText(0), Last: stmt.ColumnInt64(1), Count: stmt.ColumnInt(2)})
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the outbox: %w", err)
	}
	return queues, nil
}

// Run returns an agent run that has not completed, or [ErrNotFound].
func (s *Store) Run(ctx context.Context, id string) (r Run, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT id, agent_id, session_key, queued_at FROM runs WHERE id = ?`, &sqlitex.ExecOptions{
			Args: []any{id},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				r = Run{ID: stmt.ColumnText(0), AgentID: stmt.ColumnText(1), SessionKey: stmt.ColumnText(2), QueuedAt: fromMilli(stmt.ColumnInt64(3))}
				return nil
			},
		})
	})
	if err != nil {
		return Run{}, fmt.Errorf("cannot read the run: %w", err)
	}
	if r.ID == "" {
		return Run{}, ErrNotFound
	}
	return r, nil
}

// countExchanges counts each exchange once: not the side of one between two
// agents of this database whose other side has the lesser agent. The two sides
// share the conversation, and nearly always the id.
const countExchanges = `SELECT outcome, count(*) FROM exchanges AS e WHERE e.counterparty >= e.agent OR NOT EXISTS (
		SELECT 1 FROM exchanges AS o WHERE o.id = e.id AND o.agent = e.counterparty
		AND o.counterparty = e.agent AND o.conversation_id = e.conversation_id AND o.agent < e.agent
	) AND NOT EXISTS (
		SELECT 1 FROM exchanges AS o WHERE o.id = e.conversation_id AND o.id <> e.id AND o.agent = e.counterparty
		AND o.counterparty = e.agent AND o.conversation_id = e.conversation_id AND o.agent < e.agent
	) AND NOT EXISTS (
		SELECT 1 FROM exchanges AS o WHERE o.agent = e.counterparty AND o.conversation_id = e.conversation_id
		AND o.conversation_id <> o.id AND o.id <> e.id AND o.counterparty = e.agent AND o.agent < e.agent
	) GROUP BY outcome`

// ExchangeCounts returns how many exchanges have each outcome. One between two
// agents of this database is one, though each has its side of it.
func (s *Store) ExchangeCounts(ctx context.Context) (counts map[ocip.Outcome]int, err error) {
	counts = make(map[ocip.Outcome]int)
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, countExchanges, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				counts[ocip.Outcome(stmt.ColumnText(0))] = stmt.ColumnInt(1)
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot count exchanges: %w", err)
	}
	return counts, nil
}

// Meta returns a named value of the database, or [ErrNotFound].
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) { return s.meta(ctx, key) }

func (r *reader) meta(ctx context.Context, key string) (value []byte, err error) {
	err = r.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT value FROM meta WHERE key = ?`, &sqlitex.ExecOptions{
			Args: []any{key},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				value = make([]byte, stmt.ColumnLen(0))
				stmt.ColumnBytes(0, value)
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", key, err)
	}
	if value == nil {
		return nil, ErrNotFound
	}
	return value, nil
}

// MetaUnder returns the named values whose keys begin with a prefix. The prefix
// ends in a byte below 0xff.
func (s *Store) MetaUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	values := make(map[string][]byte)
	end := []byte(prefix)
	end[len(end)-1]++
	err := s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT key, value FROM meta WHERE key >= ? AND key < ?`, &sqlitex.ExecOptions{
			Args: []any{prefix, string(end)},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				value := make([]byte, stmt.ColumnLen(1))
				stmt.ColumnBytes(1, value)
				values[stmt.ColumnText(0)] = value
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", prefix, err)
	}
	return values, nil
}
