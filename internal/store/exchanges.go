package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Exchange is one side of an exchange. As a part it replaces the stored one.
type Exchange struct {
	ocip.Exchange
	state []byte
}

func (e *Exchange) prepare() (int, error) {
	e.state = encodeState(&e.Exchange)
	return len(e.state), nil
}

func (e *Exchange) put(tx *transaction) error {
	const what = "the exchange"
	row := []db.Value{
		db.Text(e.Agent), db.Text(e.ID), db.Text(e.ConversationID), db.Text(e.Counterparty), db.Text(string(e.Outcome)), db.Time(e.ExpiresAt), db.Bytes(e.state),
	}
	if e.Outcome == ocip.InProgress && e.Round > 1 {
		// If an exchange goes on, no indexed column changes.
		if found, err := tx.PutOver(what, "exchanges", "state", row...); err != nil || found {
			return err
		}
	}
	return tx.Put(what, "exchanges", row...)
}

// Current binds a session to the exchange of its next message, for one agent.
type Current struct {
	Agent      string
	SessionKey string
	ExchangeID string
}

func (Current) prepare() (int, error) { return 0, nil }

func (c Current) put(tx *transaction) error {
	return tx.Put("the current exchange", "current_exchanges", db.Text(c.Agent), db.Text(c.SessionKey), db.Text(c.ExchangeID))
}

// exchangeState is the part of an exchange that no query selects by.
type exchangeState struct {
	Type       ocip.ExchangeType `json:"type"`
	SessionKey string            `json:"sessionKey"`
	Round      int               `json:"round"`
	MaxRounds  int               `json:"maxRounds"`
	Awaiting   ocip.ReplyPolicy  `json:"awaiting,omitzero"`
	Commitment bool              `json:"awaitsCommitment,omitzero"`
	Asks       bool              `json:"asks,omitzero"`
	ForPerson  bool              `json:"forPerson,omitzero"`
	Approved   bool              `json:"approved,omitzero"`
	Stopped    bool              `json:"stopped,omitzero"`
	Chain      *ocip.Chain       `json:"chain,omitempty"`
	Level      ocip.Level        `json:"level"`
	OpenedAt   int64             `json:"openedAt"`
	UpdatedAt  int64             `json:"updatedAt"`
	Transcript []ocip.Turn       `json:"transcript,omitempty"`
	Shared     []ocip.Shared     `json:"shared,omitempty"`
	Withheld   []ocip.Withheld   `json:"withheld,omitempty"`
}

// encodeState encodes an [exchangeState] as the JSON library would: it runs for every message.
func encodeState(e *ocip.Exchange) []byte {
	b := make([]byte, 0, 896)
	b = jsonline.Text(append(b, '{'), "type", string(e.Type))
	b = jsonline.Text(b, "sessionKey", e.SessionKey)
	b = jsonline.Int(b, "round", e.Round)
	b = jsonline.Int(b, "maxRounds", e.MaxRounds)
	b = jsonline.TextIfAny(b, "awaiting", string(e.Awaiting))
	b = jsonline.BoolIfTrue(b, "awaitsCommitment", e.AwaitsCommitment)
	b = jsonline.BoolIfTrue(b, "asks", e.Asks)
	b = jsonline.BoolIfTrue(b, "forPerson", e.ForPerson)
	b = jsonline.BoolIfTrue(b, "approved", e.Approved)
	b = jsonline.BoolIfTrue(b, "stopped", e.Stopped)
	if e.Chain.ID != "" {
		b = append(jsonline.Key(b, "chain"), e.Chain.Annotation()...)
	}
	b = jsonline.Text(b, "level", e.Level.String())
	b = jsonline.Int(b, "openedAt", e.OpenedAt.UnixMilli())
	b = jsonline.Int(b, "updatedAt", e.UpdatedAt.UnixMilli())
	if len(e.Transcript) > 0 {
		b = append(jsonline.Key(b, "transcript"), '[')
		for i, turn := range e.Transcript {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonline.Int(append(b, '{'), "round", turn.Round)
			b = jsonline.Text(b, "sender", turn.Sender)
			b = append(jsonline.BoolIfTrue(jsonline.Text(b, "summary", turn.Summary), "claimed", turn.Claimed), '}')
		}
		b = append(b, ']')
	}
	b = appendTracked(b, "shared", e.Shared)
	b = appendTracked(b, "withheld", e.Withheld)
	return append(b, '}')
}

// appendTracked encodes the data of an exchange, which is empty for most.
func appendTracked[T any](b []byte, name string, items []T) []byte {
	if len(items) == 0 {
		return b
	}
	list, err := json.Marshal(items, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("store: data items cannot fail to encode: " + err.Error())
	}
	return append(jsonline.Key(b, name), list...)
}

const exchangeColumns = `agent, id, conversation_id, counterparty, outcome, expires_at, state`

// Exchange returns one side of an exchange by its id, or [ErrNotFound].
func (s *State) Exchange(ctx context.Context, agent, id string) (ocip.Exchange, error) {
	e, err := db.Row(ctx, s.db, "the exchange", `SELECT `+exchangeColumns+` FROM exchanges WHERE agent = ? AND id = ?`, []any{agent, id}, scanExchange)
	return e, s.found(fold.Exchanges, []string{agent, id}, func() fold.Row { return exchangeRow(&e) }, err)
}

// ExchangeByConversation returns one side of an exchange by its conversation,
// or [ErrNotFound].
func (s *State) ExchangeByConversation(ctx context.Context, agent, conversation string) (ocip.Exchange, error) {
	e, err := s.Exchange(ctx, agent, conversation)
	if err == nil && e.ConversationID == conversation || err != nil && !errors.Is(err, ErrNotFound) {
		return e, err
	}
	return s.oneExchange(ctx, `SELECT `+exchangeColumns+` FROM exchanges
		WHERE agent = ? AND conversation_id = ? AND conversation_id <> id ORDER BY id DESC LIMIT 1`, agent, conversation)
}

// CurrentExchange returns the exchange that a session's next message belongs
// to for an agent, or [ErrNotFound].
func (s *State) CurrentExchange(ctx context.Context, agent, sessionKey string) (ocip.Exchange, error) {
	return s.oneExchange(ctx, `SELECT `+exchangeColumns+` FROM exchanges WHERE agent = ?1 AND id =
		(SELECT exchange_id FROM current_exchanges WHERE agent = ?1 AND session_key = ?2)`, agent, sessionKey)
}

func (s *State) oneExchange(ctx context.Context, query string, args ...any) (ocip.Exchange, error) {
	e, err := db.Row(ctx, s.db, "the exchange", query, args, scanExchange)
	if err == nil {
		err = s.agrees(fold.Exchanges, []string{e.Agent, e.ID}, exchangeRow(&e))
	}
	return e, err
}

func scanExchange(stmt *sqlite.Stmt) (ocip.Exchange, error) {
	var state exchangeState
	if err := json.Unmarshal([]byte(stmt.ColumnText(6)), &state); err != nil {
		return ocip.Exchange{}, fmt.Errorf("cannot decode exchange %s: %w", stmt.ColumnText(1), err)
	}
	e := state.exchange()
	e.Agent, e.ID, e.ConversationID = stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2)
	e.Counterparty, e.Outcome, e.ExpiresAt = stmt.ColumnText(3), ocip.Outcome(stmt.ColumnText(4)), db.TimeOf(stmt.ColumnInt64(5))
	return e, nil
}

// exchange returns the exchange of a state.
func (s *exchangeState) exchange() ocip.Exchange {
	e := ocip.Exchange{
		Type: s.Type, SessionKey: s.SessionKey, Round: s.Round, MaxRounds: s.MaxRounds,
		Awaiting: s.Awaiting, AwaitsCommitment: s.Commitment, Asks: s.Asks, ForPerson: s.ForPerson, Approved: s.Approved, Stopped: s.Stopped, Level: s.Level,
		OpenedAt: db.TimeOf(s.OpenedAt), UpdatedAt: db.TimeOf(s.UpdatedAt), Transcript: s.Transcript, Shared: s.Shared, Withheld: s.Withheld,
	}
	if s.Chain != nil {
		e.Chain = *s.Chain
	}
	return e
}

// ExchangeFilter selects exchange sides; an empty member selects all.
type ExchangeFilter struct {
	ID, Agent, Counterparty string
	Outcome                 ocip.Outcome
	// Before continues a page: the id of its last exchange.
	Before string
}

// Exchanges returns up to limit exchange sides, highest id first, which for the
// daemon's own ids is newest first. With a list for them, it leaves altered rows out.
func (s *State) Exchanges(ctx context.Context, f ExchangeFilter, limit int, left *Left) (found []ocip.Exchange, err error) {
	where, args := db.Matching([2]string{"id = ?", f.ID}, [2]string{"agent = ?", f.Agent}, [2]string{"counterparty = ?", f.Counterparty},
		[2]string{"outcome = ?", string(f.Outcome)}, [2]string{"id < ?", f.Before})
	read := s.db.Around(left).Long
	if f.ID != "" {
		read = s.db.Around(left).Scan
	}
	err = read(ctx, func(conn *sqlite.Conn) error {
		return db.Collect(conn, &found, `SELECT `+exchangeColumns+` FROM exchanges WHERE `+where+` ORDER BY id DESC, agent LIMIT ?`, append(args, limit), scanExchange)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read exchanges: %w", err)
	}
	return found, nil
}

// ExchangeKey is a position in the order of the exchanges.
type ExchangeKey struct{ ID, Agent string }

// Expired examines the next count exchange sides after a position. It returns the open ones that
// have expired, and the position to continue from: the zero one at the end.
//
// No index finds them, on purpose: it would add a page to sync to every message, and an expired
// exchange takes no message whether or not it was found yet.
//
// A row in progress that no record has opened is reported as altered: a start compares the
// exchanges that the database lists, and this finds the others.
func (s *State) Expired(ctx context.Context, behind ExchangeKey, count int, now time.Time) (page []ocip.Exchange, next ExchangeKey, err error) {
	var open []ExchangeKey
	seen := 0
	// Most rows are skipped; the seal is checked for the others.
	_, err = db.Rows(ctx, s.db, "expired exchanges", `SELECT id, agent, outcome = 'in_progress', expires_at BETWEEN 1 AND ?3
			FROM main.exchanges WHERE (id, agent) > (?1, ?2) ORDER BY id, agent LIMIT ?4`, []any{behind.ID, behind.Agent, now.UnixMilli(), count},
		func(stmt *sqlite.Stmt) (none struct{}, err error) {
			key := ExchangeKey{ID: stmt.ColumnText(0), Agent: stmt.ColumnText(1)}
			if seen++; seen == count {
				next = key
			}
			if !stmt.ColumnBool(2) {
				return none, nil
			}
			if said, _ := s.state.Get(fold.Exchanges, []string{key.Agent, key.ID}); said == nil || stmt.ColumnBool(3) {
				open = append(open, key)
			}
			return none, nil
		})
	for i := 0; i < len(open) && err == nil; i++ {
		var expired ocip.Exchange
		expired, err = s.Exchange(ctx, open[i].Agent, open[i].ID)
		if _, altered := errors.AsType[*AlteredError](err); altered || errors.Is(err, ErrNotFound) {
			// The altered row is on record by now, and must not keep other exchanges from expiring.
			err = nil
			continue
		}
		if err == nil && (expired.ExpiresAt.IsZero() || expired.ExpiresAt.After(now)) {
			// It was opened, or goes on, since the rows were read.
			continue
		}
		page = append(page, expired)
	}
	if err != nil {
		return nil, ExchangeKey{}, err
	}
	return page, next, nil
}

// countExchanges counts each exchange once: it skips the side of one between two agents of this
// database if the other side has the lesser agent. The two sides share the conversation, and nearly
// always the id. It does not check the seals: an altered row must not hide the numbers of the
// others.
const countExchanges = `SELECT outcome, count(*) FROM main.exchanges AS e WHERE e.counterparty >= e.agent OR NOT EXISTS (
		SELECT 1 FROM main.exchanges AS o WHERE o.id = e.id AND o.agent = e.counterparty
		AND o.counterparty = e.agent AND o.conversation_id = e.conversation_id AND o.agent < e.agent
	) AND NOT EXISTS (
		SELECT 1 FROM main.exchanges AS o WHERE o.id = e.conversation_id AND o.id <> e.id AND o.agent = e.counterparty
		AND o.counterparty = e.agent AND o.conversation_id = e.conversation_id AND o.agent < e.agent
	) AND NOT EXISTS (
		SELECT 1 FROM main.exchanges AS o WHERE o.agent = e.counterparty AND o.conversation_id = e.conversation_id
		AND o.conversation_id <> o.id AND o.id <> e.id AND o.counterparty = e.agent AND o.agent < e.agent
	) GROUP BY outcome`

// ExchangeCounts returns the number of exchanges by outcome. One between two agents of this
// database counts once, though each has its side of it.
func (s *State) ExchangeCounts(ctx context.Context) (map[ocip.Outcome]int, error) {
	counts := make(map[ocip.Outcome]int)
	_, err := db.Rows(ctx, s.db, "how many exchanges there are", countExchanges, nil, func(stmt *sqlite.Stmt) (struct{}, error) {
		switch outcome := ocip.Outcome(stmt.ColumnText(0)); outcome {
		case ocip.InProgress, ocip.Resolved, ocip.Escalated, ocip.Denied, ocip.Expired:
			counts[outcome] = stmt.ColumnInt(1)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}
