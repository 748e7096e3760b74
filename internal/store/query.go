package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// LastSeq returns the number of the last record, zero where there is none.
func (s *Store) LastSeq(ctx context.Context) (seq uint64, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT coalesce(max(seq), 0) FROM records`, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				seq = uint64(stmt.ColumnInt64(0))
				return nil
			},
		})
	})
	if err != nil {
		return 0, fmt.Errorf("cannot read the audit log: %w", err)
	}
	return seq, nil
}

// Line returns one record's line, or [ErrNotFound].
func (s *Store) Line(ctx context.Context, seq uint64) (line []byte, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT line FROM records WHERE seq = ?`, &sqlitex.ExecOptions{
			Args: []any{int64(seq)},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				line = []byte(stmt.ColumnText(0))
				return nil
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read audit record %d: %w", seq, err)
	}
	if line == nil {
		return nil, ErrNotFound
	}
	return line, nil
}

// linePage is how many lines one query reads, so that no reader holds a
// snapshot that would keep the write-ahead log from being reused.
const linePage = 512

// EachLine calls visit for every record after seq, oldest first, up to the
// last one at the time of its call. The line is valid during the visit only.
// An error of visit ends the walk and is returned as it is.
func (s *Store) EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	for {
		n := 0
		var visitErr error
		err := s.scan(ctx, func(conn *sqlite.Conn) error {
			return sqlitex.Execute(conn, `SELECT seq, line FROM records WHERE seq > ? ORDER BY seq LIMIT ?`, &sqlitex.ExecOptions{
				Args: []any{int64(after), linePage},
				ResultFunc: func(stmt *sqlite.Stmt) error {
					n++
					after = uint64(stmt.ColumnInt64(0))
					visitErr = visit(after, []byte(stmt.ColumnText(1)))
					return visitErr
				},
			})
		})
		switch {
		case visitErr != nil:
			return visitErr
		case err != nil:
			return fmt.Errorf("cannot read the audit log: %w", err)
		case n < linePage:
			return nil
		}
	}
}

// Query returns up to limit records before seq that a filter selects, newest
// first, and where to go on: the number to ask for next, or zero where nothing
// more can match.
func (s *Store) Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	last := s.Head().Seq
	if !f.Until.IsZero() {
		if last, err = s.SeqAt(ctx, f.Until); err != nil {
			return nil, 0, err
		}
	}
	if before == 0 || before > last {
		before = last + 1
	}
	first := uint64(0)
	if !f.Since.IsZero() {
		if first, err = s.SeqAt(ctx, f.Since); err != nil {
			return nil, 0, err
		}
	}
	for before > first+1 {
		n := 0
		err := s.scan(ctx, func(conn *sqlite.Conn) error {
			return sqlitex.Execute(conn, `SELECT seq, line FROM records WHERE seq < ? AND seq > ? ORDER BY seq DESC LIMIT ?`, &sqlitex.ExecOptions{
				Args: []any{int64(before), int64(first), linePage},
				ResultFunc: func(stmt *sqlite.Stmt) error {
					n++
					if len(lines) == limit {
						return nil
					}
					before = uint64(stmt.ColumnInt64(0))
					if line := []byte(stmt.ColumnText(1)); f.Match(line) {
						lines = append(lines, line)
					}
					return nil
				},
			})
		})
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("cannot read the audit log: %w", err)
		case len(lines) == limit:
			if before <= first+1 {
				before = 0
			}
			return lines, before, nil
		case n < linePage:
			return lines, 0, nil
		}
	}
	return lines, 0, nil
}

// SeqAt returns the number of the last record before a moment. Records are
// ordered by time, so a few look-ups find it however long the log is.
func (s *Store) SeqAt(ctx context.Context, at time.Time) (uint64, error) {
	low, high := uint64(0), s.Head().Seq
	for low < high {
		middle := low + (high-low+1)/2
		line, err := s.Line(ctx, middle)
		if err != nil {
			return 0, err
		}
		head, err := audit.HeadOf(line)
		if err != nil {
			return 0, fmt.Errorf("cannot read audit record %d: %w", middle, err)
		}
		if head.Time.Before(at) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}

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
	return ocip.Exchange{
		Agent:          stmt.ColumnText(0),
		ID:             stmt.ColumnText(1),
		ConversationID: stmt.ColumnText(2),
		Counterparty:   stmt.ColumnText(3),
		Outcome:        ocip.Outcome(stmt.ColumnText(4)),
		ExpiresAt:      fromMilli(stmt.ColumnInt64(5)),
		Type:           state.Type,
		SessionKey:     state.SessionKey,
		Round:          state.Round,
		MaxRounds:      state.MaxRounds,
		Level:          state.Level,
		OpenedAt:       fromMilli(state.OpenedAt),
		UpdatedAt:      fromMilli(state.UpdatedAt),
		Transcript:     state.Transcript,
	}, nil
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
	// ActiveSince selects sessions used at or after it, IdleSince those used
	// before it.
	ActiveSince, IdleSince time.Time
}

const sessionColumns = `key, agent_id, channel_id, account_id, created_at, last_active_at, message_count`

const sessionMatch = ` FROM sessions WHERE (?1 = '' OR agent_id = ?1) AND (?2 = '' OR channel_id = ?2)
	AND (?3 = '' OR account_id = ?3) AND (?4 = 0 OR last_active_at >= ?4) AND (?5 = 0 OR last_active_at < ?5)`

// Sessions returns a page of the sessions that match, last used first, and how
// many match in all.
func (s *Store) Sessions(ctx context.Context, f SessionFilter, limit, offset int) (page []Session, total int, err error) {
	s.flushTouches()
	match := []any{f.AgentID, f.ChannelID, f.AccountID, unixMilli(f.ActiveSince), unixMilli(f.IdleSince)}
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
		return sqlitex.Execute(conn, `SELECT `+sessionColumns+sessionMatch+` ORDER BY last_active_at DESC, key LIMIT ?6 OFFSET ?7`, &sqlitex.ExecOptions{
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

// Messages returns up to limit messages of a queue after an id, in order.
func (s *Store) Messages(ctx context.Context, queue string, after int64, limit int) (page []*Message, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT id, record_seq, dispatch_id, expires_at, message FROM outbox
			WHERE queue = ? AND id > ? ORDER BY id LIMIT ?`, &sqlitex.ExecOptions{
			Args: []any{queue, after, limit},
			ResultFunc: func(stmt *sqlite.Stmt) error {
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
		return sqlitex.Execute(conn, `SELECT queue, max(id), count(*) FROM outbox GROUP BY queue`, &sqlitex.ExecOptions{
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

// ExchangeCounts returns how many exchange sides have each outcome.
func (s *Store) ExchangeCounts(ctx context.Context) (counts map[ocip.Outcome]int, err error) {
	counts = make(map[ocip.Outcome]int)
	err = s.scan(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT outcome, count(*) FROM exchanges GROUP BY outcome`, &sqlitex.ExecOptions{
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
func (s *Store) Meta(ctx context.Context, key string) (value []byte, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
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
