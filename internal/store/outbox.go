package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/quota"
	"zombiezen.com/go/sqlite"
)

// MessageID names a message in the outbox.
type MessageID struct {
	Queue string
	// ID orders the messages of all queues by the time of their decisions. The store assigns it.
	ID int64
}

// Message is one message on its way to a receiver. As a part it is queued.
type Message struct {
	MessageID
	// RecordSeq is the record of the decision that allowed it. The store assigns it.
	RecordSeq  uint64
	DispatchID string
	// ExpiresAt is when it expires; zero never does.
	ExpiresAt time.Time
	// App is the app that sent it, whose queued messages are limited. If it is empty, the store
	// sets it from the change's records.
	App string
	// Body is the message for its receiver, in the kernel's form.
	Body []byte
	// Altered is set for a message from the database that is not as the daemon wrote it. Everything
	// else except its id is empty: nothing of it may be used.
	Altered bool
}

func (m *Message) prepare() (int, error) { return len(m.Body), nil }

// attribute sets the app of a change's messages: the one in the change's records. It runs before
// anything is redacted in those.
func (p *pending) attribute() {
	if len(p.waiting) == 0 {
		return
	}
	app := ""
	for i := 0; i < len(p.Records) && app == ""; i++ {
		app = p.Records[i].AppID
	}
	i := 0
	for m := range Each[*Message](p.Change) {
		m.App = cmp.Or(m.App, app)
		p.waiting[i].App = m.App
		i++
	}
}

// outboxTable has the columns id, record_seq, dispatch_id, expires_at, app, message and queue,
// in this order.
const outboxTable = "outbox"

// A message's id holds its queue's number above sequenceBits.
const (
	sequenceBits = 40
	sequenceMask = 1<<sequenceBits - 1
)

func (m *Message) put(tx *transaction) error {
	no, err := tx.queueNo(m.Queue)
	if err != nil {
		return err
	}
	tx.nextMessage++
	m.ID, m.RecordSeq = no<<sequenceBits|tx.nextMessage, tx.receipt.Seq
	return tx.Insert("the message", outboxTable, db.Int(m.ID), db.Int(int64(m.RecordSeq)), db.Text(m.DispatchID), db.Time(m.ExpiresAt), db.Text(m.App), db.Bytes(m.Body), db.Text(m.Queue))
}

// rememberedQueues bounds the queue numbers kept in memory.
const rememberedQueues = 4096

// queueNo returns the number of a queue, and assigns it on first use.
func (tx *transaction) queueNo(name string) (int64, error) {
	if no, ok := tx.queues[name]; ok {
		return no, nil
	}
	const what = "the queue's number"
	no, err := tx.Scalar(what, `SELECT coalesce((SELECT no FROM queues WHERE name = ?), 0)`, db.Text(name))
	if err == nil && no == 0 {
		if no, err = tx.Scalar(what, `SELECT coalesce(max(no), 0) + 1 FROM main.queues`); err == nil {
			err = tx.Insert(what, "queues", db.Int(no), db.Text(name))
		}
	}
	if err != nil {
		return 0, err
	}
	if len(tx.queues) >= rememberedQueues {
		clear(tx.queues)
	}
	tx.queues[name] = no
	return no, nil
}

// EndedBy reports whether a record says that the message has left the outbox: its receiver has it,
// or it was removed. Nobody may put its row back after that.
func (m *Message) EndedBy(r *audit.Record) bool {
	seq, _ := r.Details["decidedBy"].(float64)
	if r.DispatchID != m.DispatchID || seq == 0 || uint64(seq) != m.RecordSeq {
		return false
	}
	if queue, named := r.Details["queue"]; named {
		return queue == m.Queue
	}
	switch r.Event {
	case "delivered", "failed", "read", "receipt":
		// Receivers of events do not confirm them.
		return r.ActionType == audit.ActionDelivery && !strings.HasPrefix(m.Queue, "app:")
	}
	return false
}

// Taken are messages that their receivers have, as a part.
type Taken []MessageID

func (Taken) prepare() (int, error) { return 0, nil }

func (t Taken) put(tx *transaction) error {
	for _, id := range t {
		if err := tx.takeOut(id.ID, id.ID); err != nil {
			return err
		}
	}
	return nil
}

func (tx *transaction) takeOut(first, last int64) error {
	err := tx.Exec("that a message was taken", `DELETE FROM main.outbox WHERE id BETWEEN ? AND ?`, db.Int(first), db.Int(last))
	if err == nil && tx.Changes() > 0 {
		tx.removed.Or(removedTexts)
	}
	return err
}

// Messages returns up to limit messages of a queue after an id, in order. An altered one does not
// block those after it. Since they are about to be delivered, it returns none whose record is not
// yet known to be kept, and an error if the database is lost.
func (s *Store) Messages(ctx context.Context, queue string, after int64, limit int) ([]*Message, error) {
	if err := s.health.noticeLoss(s.health.files.Check()); err != nil {
		return nil, err
	}
	head := s.Head().Seq
	page, err := db.Rows(ctx, s.db, "the outbox", `SELECT `+s.seals.Columns(outboxTable)+` FROM (SELECT no FROM queues WHERE name = ?1) CROSS JOIN main.outbox
			WHERE id > max(?2, no << 40) AND id < (no + 1) << 40 ORDER BY id LIMIT ?3`, []any{queue, after, limit},
		func(stmt *sqlite.Stmt) (*Message, error) {
			m := &Message{MessageID: MessageID{Queue: queue, ID: stmt.ColumnInt64(0)}}
			found := s.seals.Altered(outboxTable, stmt)
			if found == nil && stmt.ColumnText(6) != queue {
				// It belongs to an earlier queue with the same number.
				found = db.NewAltered(outboxTable, stmt.ColumnText(0))
			}
			if found != nil {
				s.altered(found)
				m.Altered = true
				return m, nil
			}
			m.RecordSeq = uint64(stmt.ColumnInt64(1))
			m.DispatchID = stmt.ColumnText(2)
			m.ExpiresAt = db.TimeOf(stmt.ColumnInt64(3))
			m.Body = db.ColumnBytes(stmt, 5)
			return m, nil
		})
	return slices.DeleteFunc(page, func(m *Message) bool { return m.RecordSeq > head }), err
}

// Queue is the backlog of one receiver.
type Queue struct {
	Name string
	// Last is the id of the newest message.
	Last  int64
	Count int
}

// Queues lists the receivers with queued messages.
func (s *State) Queues(ctx context.Context) ([]Queue, error) {
	return db.Rows(ctx, s.db, "the outbox", `SELECT name, max(id), count(*) FROM queues JOIN main.outbox ON id > no << 40 AND id < (no + 1) << 40 GROUP BY no`, nil,
		func(stmt *sqlite.Stmt) (Queue, error) {
			return Queue{Name: stmt.ColumnText(0), Last: stmt.ColumnInt64(1), Count: stmt.ColumnInt(2)}, nil
		})
}

// NextQueue returns the name of the next queue with a message after another, or "". The first one
// is after "".
func (s *State) NextQueue(ctx context.Context, behind string) (name string, err error) {
	name, err = db.Row(ctx, s.db, "the outbox", `SELECT name FROM queues WHERE name > ? AND EXISTS
			(SELECT 1 FROM main.outbox WHERE id > no << 40 AND id < (no + 1) << 40) ORDER BY name LIMIT 1`, []any{behind}, db.ScanText)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return name, err
}

// Waiting returns the backlog of each app's messages.
func (s *State) Waiting(ctx context.Context) ([]quota.Waiting, error) {
	return db.Rows(ctx, s.db, "the outbox", `SELECT app, count(*), sum(octet_length(message)) FROM main.outbox WHERE app <> '' GROUP BY app`, nil,
		func(stmt *sqlite.Stmt) (quota.Waiting, error) {
			return quota.Waiting{App: stmt.ColumnText(0), Messages: stmt.ColumnInt(1), Bytes: stmt.ColumnInt64(2)}, nil
		})
}
