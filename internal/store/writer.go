package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
)

// writer is the one connection that writes. Whoever leads a commit uses it;
// nobody else does.
type writer struct {
	conn *sqlite.Conn

	begin, commit, rollback   *sqlite.Stmt
	record, exchange, current *sqlite.Stmt
	session, touch            *sqlite.Stmt
	queue, enqueue, remove    *sqlite.Stmt
	advance, heard, seen      *sqlite.Stmt
	hold, decide              *sqlite.Stmt
	escalate, settle          *sqlite.Stmt
	run, endRun, meta, drop   *sqlite.Stmt
	tile, retired, prune      *sqlite.Stmt
	rows, pages               *sqlite.Stmt
	pageSize                  int64

	// signing is nil where the log is not signed.
	signing     *Signing
	leaves      func(line []byte) audit.Hash
	nextMessage int64
	queues      map[string]int64
	// boot is the only one that app processes are remembered of, once it is known.
	boot    string
	touches *touches
	// ready has the last word before a batch goes to the disk.
	ready func([]*pending) error
	// grown, where set, is told how large the database is after so many bytes more;
	// counted is how many were written since.
	grown   func(bytes int64)
	counted int64
	// idle says that the last batch had nothing to write, and so took no fsync.
	idle bool
}

const insertMeta = `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

func newWriter(s *Store, conn *sqlite.Conn) (*writer, error) {
	s.queue.relay = make(chan struct{}, 1)
	w := &writer{conn: conn, queues: make(map[string]int64), touches: &s.touches, ready: s.mayWrite, signing: s.signing, leaves: audit.Leaves()}
	for _, prepare := range []struct {
		stmt **sqlite.Stmt
		text string
	}{
		{&w.begin, `BEGIN IMMEDIATE`},
		{&w.commit, `COMMIT`},
		{&w.rollback, `ROLLBACK`},
		{&w.rows, `SELECT total_changes()`},
		{&w.pages, `PRAGMA page_count`},
		// Long texts are bound as bytes: those are copied once, and as one.
		{&w.record, `INSERT INTO records (seq, line) VALUES (?, CAST(? AS TEXT))`},
		{&w.exchange, `INSERT INTO exchanges (agent, id, conversation_id, counterparty, outcome, expires_at, state)
			VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT))
			ON CONFLICT (id, agent) DO UPDATE SET outcome = excluded.outcome, expires_at = excluded.expires_at, state = excluded.state`},
		// An exchange that goes on changes nothing that an index is made of.
		{&w.advance, `UPDATE exchanges SET state = CAST(? AS TEXT) WHERE id = ? AND agent = ? AND outcome = ? AND expires_at = ?`},
		{&w.heard, `INSERT INTO heard (agent, counterparty, at, chain) VALUES (?, ?, ?, ?)
			ON CONFLICT (agent, counterparty) DO UPDATE SET at = excluded.at, chain = excluded.chain`},
		{&w.hold, `INSERT INTO approvals (` + approvalColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&w.decide, `UPDATE approvals SET state = ?, summary = ?, body = ? WHERE id = ? AND state = 'pending'`},
		{&w.seen, `INSERT INTO seen_agents (session_key, seen_by, instance_id, user_id, org_unit, tenant_id) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (session_key, seen_by) DO UPDATE SET instance_id = excluded.instance_id, user_id = excluded.user_id,
				org_unit = excluded.org_unit, tenant_id = excluded.tenant_id`},
		{&w.current, `INSERT INTO current_exchanges (agent, session_key, exchange_id) VALUES (?, ?, ?)
			ON CONFLICT (agent, session_key) DO UPDATE SET exchange_id = excluded.exchange_id`},
		{&w.session, `INSERT INTO sessions (key, agent_id, channel_id, account_id, created_at, last_active_at, message_count)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (key) DO NOTHING`},
		{&w.touch, `UPDATE sessions SET last_active_at = max(last_active_at, ?), message_count = message_count + ? WHERE key = ?`},
		{&w.queue, `INSERT INTO queues (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = name RETURNING no`},
		{&w.enqueue, `INSERT INTO outbox (id, record_seq, dispatch_id, expires_at, app, message) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))`},
		{&w.remove, `DELETE FROM outbox WHERE id BETWEEN ? AND ?`},
		{&w.run, `INSERT INTO runs (id, agent_id, session_key, queued_at) VALUES (?, ?, ?, ?)`},
		{&w.endRun, `DELETE FROM runs WHERE id = ?`},
		{&w.escalate, `INSERT INTO escalations (first, second, exchange_id, opened_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (first, second) DO NOTHING`},
		{&w.settle, `DELETE FROM escalations WHERE first = ? AND second = ?`},
		{&w.meta, insertMeta},
		{&w.drop, `DELETE FROM meta WHERE key = ?`},
		{&w.tile, insertTile},
		{&w.retired, `INSERT INTO retired (upto, note, leaves) VALUES (?, ?, ?)`},
		{&w.prune, `DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE seq <= ? ORDER BY seq LIMIT ?)`},
	} {
		stmt, err := conn.Prepare(prepare.text)
		if err != nil {
			return nil, fmt.Errorf("cannot prepare the store: %w", err)
		}
		*prepare.stmt = stmt
	}
	size, err := queryInt(conn, "PRAGMA page_size")
	if err != nil {
		return nil, err
	}
	w.pageSize = int64(size)
	if s.space.on() {
		w.grown = s.space.pages.Store
	}
	last, err := conn.Prepare(fmt.Sprintf(`SELECT coalesce(max(id & %d), 0) FROM outbox`, int64(sequenceMask)))
	if err != nil {
		return nil, fmt.Errorf("cannot prepare the store: %w", err)
	}
	if _, err := last.Step(); err != nil {
		return nil, fmt.Errorf("cannot read the outbox: %w", err)
	}
	w.nextMessage = last.ColumnInt64(0)
	return w, last.Reset()
}

func (w *writer) close() error {
	if err := w.conn.Close(); err != nil {
		return fmt.Errorf("cannot close the store: %w", err)
	}
	return nil
}

// write makes a batch durable and returns its sealed lines, one after another
// with newlines, and the log's new end.
func (w *writer) write(batch []*pending, now end, at time.Time) (lines []byte, next end, err error) {
	if err := exec(w.begin); err != nil {
		return nil, now, err
	}
	before, err := w.changed(batch)
	if err == nil {
		lines, next, err = w.fill(batch, now, at)
	}
	if w.idle = err == nil && len(lines) == 0; w.idle {
		var after int64
		after, err = w.changed(batch)
		w.idle = after == before
	}
	// Up to here all is in memory: what is refused now leaves nothing behind.
	if err == nil {
		err = w.ready(batch)
	}
	if err == nil {
		err = exec(w.commit)
	}
	if err != nil {
		w.touches.restore()
		// Queues that were numbered in this transaction are not.
		clear(w.queues)
		w.boot = ""
		// SQLite has rolled back by itself after some errors; asking again is
		// then an error that says nothing.
		if !w.conn.AutocommitEnabled() {
			err = errors.Join(err, exec(w.rollback))
		}
		return nil, now, err
	}
	w.touches.forget()
	for _, p := range batch {
		w.counted += p.size
	}
	if w.counted >= countEvery && w.grown != nil {
		w.counted = 0
		// It is for the ladder of the disk alone: what cannot be told stays as it was.
		if pages, err := scalar(w.pages); err == nil {
			w.grown(pages * w.pageSize)
		}
	}
	return lines, next, nil
}

// countEvery is after how many bytes the size of the database is looked at.
const countEvery = 256 << 10

// scalar returns the one number that a statement asks for.
func scalar(stmt *sqlite.Stmt) (n int64, err error) {
	_, err = stmt.Step()
	n = stmt.ColumnInt64(0)
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	return n, err
}

// changed returns how many rows were ever written, where the batch brings no
// record: one that does writes.
func (w *writer) changed(batch []*pending) (rows int64, err error) {
	for _, p := range batch {
		if len(p.bodies) > 0 {
			return 0, nil
		}
	}
	return scalar(w.rows)
}

func (w *writer) fill(batch []*pending, log end, at time.Time) ([]byte, end, error) {
	size := 0
	for _, p := range batch {
		for _, body := range p.bodies {
			size += len(body) + 256
		}
	}
	lines := make([]byte, 0, size)
	if log.overdue(at) && slices.ContainsFunc(batch, (*pending).seals) {
		var err error
		if lines, err = w.sign(lines, &log, at, &pending{Change: &Change{}}); err != nil {
			return nil, log, err
		}
	}
	for _, p := range batch {
		p.receipt = Receipt{}
		var err error
		for i, body := range p.bodies {
			if lines, err = w.seal(lines, &log, at, body); err != nil {
				return nil, log, err
			}
			if i == 0 {
				p.receipt = Receipt{Seq: log.head.Seq, Time: log.head.Time}
			}
			if log.due() {
				if lines, err = w.sign(lines, &log, at, p); err != nil {
					return nil, log, err
				}
			}
		}
		if lines, err = w.conclude(lines, &log, at, p); err != nil {
			return nil, log, err
		}
		if err := w.apply(p); err != nil {
			return nil, log, err
		}
	}
	return lines, log, w.applyTouches(at)
}

// seal writes the next record: its line, and its leaf in the tree.
func (w *writer) seal(lines []byte, log *end, at time.Time, body []byte) ([]byte, error) {
	start := len(lines)
	lines, log.head = log.head.Seal(lines, at, body)
	line := lines[start:]
	w.record.BindInt64(1, int64(log.head.Seq))
	w.record.BindBytes(2, line)
	if err := exec(w.record); err != nil {
		return nil, fmt.Errorf("cannot write audit record: %w", err)
	}
	if log.unsigned.IsZero() {
		log.unsigned = log.head.Time
	}
	err := log.tree.Append(w.leaves(line), func(t audit.Tile) error { return putTile(w.tile, t) })
	return append(lines, '\n'), err
}

// apply writes the state that belongs to the records.
func (w *writer) apply(p *pending) error {
	for i := range p.Exchanges {
		if err := w.putExchange(&p.Exchanges[i], p.states[i]); err != nil {
			return err
		}
	}
	for _, c := range p.Current {
		w.current.BindText(1, c.Agent)
		w.current.BindText(2, c.SessionKey)
		w.current.BindText(3, c.ExchangeID)
		if err := exec(w.current); err != nil {
			return fmt.Errorf("cannot write the current exchange: %w", err)
		}
	}
	if err := w.putEscalations(p.Change); err != nil {
		return err
	}
	if err := w.putAcquaintance(p.Change); err != nil {
		return err
	}
	if err := w.putApprovals(p.Change); err != nil {
		return err
	}
	for _, s := range p.Sessions {
		w.session.BindText(1, s.Key)
		w.session.BindText(2, s.AgentID)
		w.session.BindText(3, s.ChannelID)
		w.session.BindText(4, s.AccountID)
		w.session.BindInt64(5, s.CreatedAt.UnixMilli())
		w.session.BindInt64(6, s.LastActiveAt.UnixMilli())
		w.session.BindInt64(7, s.MessageCount)
		if err := exec(w.session); err != nil {
			return fmt.Errorf("cannot write the session: %w", err)
		}
	}
	for _, m := range p.Outbox {
		if err := w.putMessage(m, p.receipt.Seq); err != nil {
			return err
		}
	}
	for _, id := range p.Taken {
		if err := w.takeOut(id.ID, id.ID); err != nil {
			return err
		}
	}
	for _, r := range p.Runs {
		w.run.BindText(1, r.ID)
		w.run.BindText(2, r.AgentID)
		w.run.BindText(3, r.SessionKey)
		w.run.BindInt64(4, r.QueuedAt.UnixMilli())
		if err := exec(w.run); err != nil {
			return fmt.Errorf("cannot write the run: %w", err)
		}
	}
	for _, id := range p.EndedRuns {
		w.endRun.BindText(1, id)
		if err := exec(w.endRun); err != nil {
			return fmt.Errorf("cannot end the run: %w", err)
		}
	}
	for _, key := range p.Dropped {
		w.drop.BindText(1, key)
		if err := exec(w.drop); err != nil {
			return fmt.Errorf("cannot drop %s: %w", key, err)
		}
	}
	for _, m := range p.Meta {
		if err := w.putMeta(m); err != nil {
			return err
		}
	}
	return w.putParts(p.Parts)
}

func (w *writer) putMeta(m Meta) error {
	w.meta.BindText(1, m.Key)
	w.meta.BindBytes(2, m.Value)
	if err := exec(w.meta); err != nil {
		return fmt.Errorf("cannot write %s: %w", m.Key, err)
	}
	return nil
}

func (w *writer) putEscalations(c *Change) error {
	for _, e := range c.Escalations {
		w.escalate.BindText(1, e.First)
		w.escalate.BindText(2, e.Second)
		w.escalate.BindText(3, e.ExchangeID)
		w.escalate.BindInt64(4, e.OpenedAt.UnixMilli())
		if err := exec(w.escalate); err != nil {
			return fmt.Errorf("cannot write the escalation: %w", err)
		}
	}
	for _, p := range c.Settled {
		w.settle.BindText(1, p.First)
		w.settle.BindText(2, p.Second)
		if err := exec(w.settle); err != nil {
			return fmt.Errorf("cannot end the escalation: %w", err)
		}
	}
	return nil
}

// putAcquaintance writes what agents heard, and of whom.
func (w *writer) putAcquaintance(c *Change) error {
	for _, h := range c.Heard {
		chain, err := encodeChain(h.Chain)
		if err != nil {
			return err
		}
		w.heard.BindText(1, h.Agent)
		w.heard.BindText(2, h.Counterparty)
		w.heard.BindInt64(3, h.At.UnixMilli())
		w.heard.BindText(4, chain)
		if err := exec(w.heard); err != nil {
			return fmt.Errorf("cannot write what agent %s heard: %w", h.Agent, err)
		}
	}
	for _, s := range c.Seen {
		w.seen.BindText(1, s.SessionKey)
		w.seen.BindText(2, s.By)
		w.seen.BindText(3, s.InstanceID)
		w.seen.BindText(4, s.UserID)
		w.seen.BindText(5, s.OrgUnit)
		w.seen.BindText(6, s.TenantID)
		if err := exec(w.seen); err != nil {
			return fmt.Errorf("cannot write the agent seen at session %s: %w", s.SessionKey, err)
		}
	}
	return nil
}

func (w *writer) putExchange(e *ocip.Exchange, state []byte) error {
	if e.Outcome == ocip.InProgress && e.Round > 1 {
		w.advance.BindBytes(1, state)
		w.advance.BindText(2, e.ID)
		w.advance.BindText(3, e.Agent)
		w.advance.BindText(4, string(e.Outcome))
		w.advance.BindInt64(5, unixMilli(e.ExpiresAt))
		if err := exec(w.advance); err != nil {
			return fmt.Errorf("cannot write the exchange: %w", err)
		}
		if w.conn.Changes() > 0 {
			return nil
		}
	}
	w.exchange.BindText(1, e.Agent)
	w.exchange.BindText(2, e.ID)
	w.exchange.BindText(3, e.ConversationID)
	w.exchange.BindText(4, e.Counterparty)
	w.exchange.BindText(5, string(e.Outcome))
	w.exchange.BindInt64(6, unixMilli(e.ExpiresAt))
	w.exchange.BindBytes(7, state)
	if err := exec(w.exchange); err != nil {
		return fmt.Errorf("cannot write the exchange: %w", err)
	}
	return nil
}

// exchangeState is the part of an exchange that no query selects by.
type exchangeState struct {
	Type       ocip.ExchangeType `json:"type"`
	SessionKey string            `json:"sessionKey"`
	Round      int               `json:"round"`
	MaxRounds  int               `json:"maxRounds"`
	Awaiting   ocip.ReplyPolicy  `json:"awaiting,omitzero"`
	Commitment bool              `json:"awaitsCommitment,omitzero"`
	ForPerson  bool              `json:"forPerson,omitzero"`
	Approved   bool              `json:"approved,omitzero"`
	Chain      *ocip.Chain       `json:"chain,omitempty"`
	Level      ocip.Level        `json:"level"`
	OpenedAt   int64             `json:"openedAt"`
	UpdatedAt  int64             `json:"updatedAt"`
	Transcript []ocip.Turn       `json:"transcript,omitempty"`
	Shared     []ocip.Shared     `json:"shared,omitempty"`
	Withheld   []ocip.Withheld   `json:"withheld,omitempty"`
}

// encodeState writes an [exchangeState], as the JSON library would: it is written
// for every message.
func encodeState(e *ocip.Exchange) []byte {
	b := make([]byte, 0, 640)
	b = jsonline.Text(append(b, '{'), "type", string(e.Type))
	b = jsonline.Text(b, "sessionKey", e.SessionKey)
	b = jsonline.Int(b, "round", e.Round)
	b = jsonline.Int(b, "maxRounds", e.MaxRounds)
	b = jsonline.TextIfAny(b, "awaiting", string(e.Awaiting))
	b = jsonline.BoolIfTrue(b, "awaitsCommitment", e.AwaitsCommitment)
	b = jsonline.BoolIfTrue(b, "forPerson", e.ForPerson)
	b = jsonline.BoolIfTrue(b, "approved", e.Approved)
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

// appendTracked writes the data of an exchange, of which most have none.
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

// A message's id holds its queue's number above sequenceBits.
const (
	sequenceBits = 40
	sequenceMask = 1<<sequenceBits - 1
)

func (w *writer) putMessage(m *Message, recordSeq uint64) error {
	no, err := w.queueNo(m.Queue)
	if err != nil {
		return err
	}
	w.nextMessage++
	m.ID, m.RecordSeq = no<<sequenceBits|w.nextMessage, recordSeq
	w.enqueue.BindInt64(1, m.ID)
	w.enqueue.BindInt64(2, int64(m.RecordSeq))
	w.enqueue.BindText(3, m.DispatchID)
	w.enqueue.BindInt64(4, unixMilli(m.ExpiresAt))
	w.enqueue.BindText(5, m.App)
	w.enqueue.BindBytes(6, m.Body)
	if err := exec(w.enqueue); err != nil {
		return fmt.Errorf("cannot write the message: %w", err)
	}
	return nil
}

// rememberedQueues bounds the queue numbers kept in memory.
const rememberedQueues = 4096

// queueNo returns the number of a queue, which it gets on first use.
func (w *writer) queueNo(name string) (int64, error) {
	if no, ok := w.queues[name]; ok {
		return no, nil
	}
	w.queue.BindText(1, name)
	_, err := w.queue.Step()
	no := w.queue.ColumnInt64(0)
	if resetErr := w.queue.Reset(); err == nil {
		err = resetErr
	}
	if err != nil {
		return 0, fmt.Errorf("cannot number the queue: %w", err)
	}
	if len(w.queues) >= rememberedQueues {
		clear(w.queues)
	}
	w.queues[name] = no
	return no, nil
}

func (w *writer) takeOut(first, last int64) error {
	w.remove.BindInt64(1, first)
	w.remove.BindInt64(2, last)
	if err := exec(w.remove); err != nil {
		return fmt.Errorf("cannot take a message out of the outbox: %w", err)
	}
	return nil
}

// applyTouches writes what came along without a commit of its own.
func (w *writer) applyTouches(now time.Time) error {
	taken, sessions := w.touches.due(now)
	for _, upTo := range taken {
		if err := w.takeOut(upTo&^sequenceMask, upTo); err != nil {
			return err
		}
	}
	for key, t := range sessions {
		w.touch.BindInt64(1, t.at.UnixMilli())
		w.touch.BindInt64(2, t.messages)
		w.touch.BindText(3, key)
		if err := exec(w.touch); err != nil {
			return fmt.Errorf("cannot write the session: %w", err)
		}
	}
	return nil
}

// exec runs a prepared statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	return err
}

// unixMilli is zero for the zero time, which means "never" in the tables.
func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func isFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// isIO reports an error after which the file can no longer be believed.
func isIO(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultIOErr, sqlite.ResultCorrupt, sqlite.ResultNotADB, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return true
	}
	return false
}
