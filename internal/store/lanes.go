package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"zombiezen.com/go/sqlite"
)

// ErrLaneFull means that as many messages of a lane as are permitted have no receipt. ErrLaneMoved
// means that a message is not the next of its lane any more.
var (
	ErrLaneFull  = errors.New("too many messages wait for the other host")
	ErrLaneMoved = errors.New("the message is not the next of its lane")
)

// AnyNumber is a limit of a lane that is none.
const AnyNumber = math.MaxInt

// LaneSent is a message to another host of the fleet, which waits for that host's receipt. As a
// part, behind its message, it gets the next number of the lane.
type LaneSent struct {
	Lane, Host string
	// Seq is the number in the lane, from 1. The store assigns it.
	Seq uint64
	// Message is the message in the outbox.
	Message *Message
	// Most is how many messages of the lane may wait for a receipt.
	Most int
}

func (l *LaneSent) prepare() (int, error) { return bounded("the lane of a message", l.Lane, l.Host) }

func (l *LaneSent) fold(f *folding) { f.row(fold.Lanes, []string{l.Lane}).add++ }

func (l *LaneSent) guard(tx *transaction) (refusal, err error) {
	wait, err := tx.Scalar("the lane of a message", `SELECT coalesce((SELECT last FROM lanes WHERE name = ?1) - (SELECT min(seq) FROM main.lane_sent WHERE lane = ?1) + 1, 0)`, db.Text(l.Lane))
	if err == nil && wait >= int64(l.Most) {
		return ErrLaneFull, nil
	}
	return nil, err
}

func (l *LaneSent) put(tx *transaction) error {
	const what = "the lane of a message"
	last, err := tx.advance(l.Lane)
	if err != nil {
		return err
	}
	l.Seq = uint64(last)
	m := l.Message
	return tx.Insert(what, "lane_sent", db.Text(l.Lane), db.Int(last), db.Text(l.Host), db.Int(m.ID), db.Text(m.DispatchID), db.Int(int64(m.RecordSeq)), db.Time(m.ExpiresAt))
}

// advance raises the last number of a lane, and returns it.
func (tx *transaction) advance(lane string) (last int64, err error) {
	const what = "the last number of a lane"
	last, err = tx.Scalar(what, `SELECT coalesce((SELECT last FROM lanes WHERE name = ?), 0) + 1`, db.Text(lane))
	if err == nil {
		err = tx.Put(what, "lanes", db.Text(lane), db.Int(last))
	}
	return last, err
}

// LaneTaken is a message that this daemon has taken from another host, or refused, and the receipt
// for it. As a part it takes the place of its number in the lane, which must be the next.
type LaneTaken struct {
	Lane, Host   string
	Seq          uint64
	DispatchID   string
	Result, Code string
	Reason       string
	// RecordSeq is the record of the decision. The store assigns it.
	RecordSeq uint64
	// ForgetAt is when nobody needs the receipt any more.
	ForgetAt time.Time
}

func (l *LaneTaken) prepare() (int, error) {
	return bounded("the receipt for a message", l.Lane, l.Host, l.DispatchID, l.Result, l.Code, l.Reason)
}

func (l *LaneTaken) fold(f *folding) { f.row(fold.Lanes, []string{l.Lane}).add++ }

func (l *LaneTaken) guard(tx *transaction) (refusal, err error) {
	next, err := tx.Scalar("the receipt for a message", `SELECT coalesce((SELECT last FROM lanes WHERE name = ?), 0) + 1`, db.Text(l.Lane))
	if err == nil && uint64(next) != l.Seq {
		return ErrLaneMoved, nil
	}
	return nil, err
}

func (l *LaneTaken) put(tx *transaction) error {
	if _, err := tx.advance(l.Lane); err != nil {
		return err
	}
	l.RecordSeq = tx.receipt.Seq
	return tx.Insert("the receipt for a message", "lane_taken", db.Text(l.Lane), db.Int(int64(l.Seq)), db.Text(l.Host), db.Text(l.DispatchID),
		db.Int(int64(l.RecordSeq)), db.Text(l.Result), db.Text(l.Code), db.Text(l.Reason), db.Time(l.ForgetAt))
}

// LaneEnded is a number of a lane whose message has its receipt, as a part.
type LaneEnded struct {
	Lane string
	Seq  uint64
}

func (LaneEnded) prepare() (int, error) { return 0, nil }

func (l LaneEnded) put(tx *transaction) error {
	return tx.Exec("that a message has its receipt", `DELETE FROM main.lane_sent WHERE lane = ? AND seq = ?`, db.Text(l.Lane), db.Int(int64(l.Seq)))
}

// laneForgotten deletes the receipts that nobody needs any more.
type laneForgotten struct{ before int64 }

func (laneForgotten) prepare() (int, error) { return 0, nil }

func (l laneForgotten) put(tx *transaction) error {
	return tx.Exec("that receipts are old", `DELETE FROM main.lane_taken WHERE forget_at > 0 AND forget_at < ?`, db.Int(l.before))
}

// Lanes reads the lanes of a store.
type Lanes struct{ s *Store }

// LanesOf returns the lanes of a store.
func LanesOf(s *Store) Lanes { return Lanes{s} }

// Forget deletes the receipts of messages whose time to forget them is before a time.
func (l Lanes) Forget(ctx context.Context, before time.Time) error {
	old, err := db.Row(ctx, l.s.db, "old receipts", `SELECT count(*) FROM (SELECT 1 FROM main.lane_taken WHERE forget_at > 0 AND forget_at < ? LIMIT 1)`, []any{before.UnixMilli()}, db.ScanInt)
	if err != nil || old == 0 {
		return err
	}
	_, err = l.s.Commit(&Change{Parts: []Part{laneForgotten{before.UnixMilli()}}, Drains: true})
	return err
}

// Last returns the last number of a lane, 0 for a new one.
func (l Lanes) Last(ctx context.Context, lane string) (last uint64, err error) {
	n, err := db.Row(ctx, l.s.db, "a lane", `SELECT last FROM lanes WHERE name = ?`, []any{lane}, db.ScanInt)
	err = l.s.found(fold.Lanes, []string{lane}, func() fold.Row { return foldrows.Lane(n) }, err)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return uint64(n), err
}

// Messages returns up to limit messages of a lane that have no receipt, in order. Message has no
// text.
func (l Lanes) Messages(ctx context.Context, lane string, limit int) ([]*LaneSent, error) {
	return l.kept(ctx, `SELECT `+sentColumns+` FROM lane_sent WHERE lane = ? ORDER BY seq LIMIT ?`, []any{lane, limit})
}

// Stale returns up to limit messages to a host in other lanes than one, in the order of their
// decisions.
func (l Lanes) Stale(ctx context.Context, host, lane string, limit int) ([]*LaneSent, error) {
	// Two ranges of the index, since the lane itself may have thousands of messages.
	return l.kept(ctx, `SELECT `+sentColumns+` FROM lane_sent WHERE host = ?1 AND lane < ?2 UNION ALL SELECT `+sentColumns+` FROM lane_sent WHERE host = ?1 AND lane > ?2 ORDER BY message LIMIT ?3`, []any{host, lane, limit})
}

// kept returns the messages of a query whose records are known to be kept. [Store.Messages]
// leaves the others out too, and the carrier takes a message that is not in the outbox for a withdrawn one.
func (l Lanes) kept(ctx context.Context, query string, args []any) ([]*LaneSent, error) {
	head := l.s.Head().Seq
	rows, err := db.Rows(ctx, l.s.db, laneRead, query, args, scanSent)
	return slices.DeleteFunc(rows, func(m *LaneSent) bool { return m.Message.RecordSeq > head }), err
}

const (
	laneRead    = "the messages of a lane"
	sentColumns = `lane, seq, host, message, dispatch_id, record_seq, expires_at`
)

func scanSent(stmt *sqlite.Stmt) (*LaneSent, error) {
	m := &Message{MessageID: MessageID{ID: stmt.ColumnInt64(3)}, DispatchID: stmt.ColumnText(4), RecordSeq: uint64(stmt.ColumnInt64(5)), ExpiresAt: db.TimeOf(stmt.ColumnInt64(6))}
	return &LaneSent{Lane: stmt.ColumnText(0), Seq: uint64(stmt.ColumnInt64(1)), Host: stmt.ColumnText(2), Message: m}, nil
}

// Message returns the message of a number in a lane, or [ErrNotFound] if it has its receipt.
func (l Lanes) Message(ctx context.Context, lane string, seq uint64) (*LaneSent, error) {
	return db.Row(ctx, l.s.db, laneRead, `SELECT `+sentColumns+` FROM lane_sent WHERE lane = ? AND seq = ?`, []any{lane, int64(seq)}, scanSent)
}

// Waiting returns how many messages to a host have no receipt.
func (l Lanes) Waiting(ctx context.Context, host string) (int, error) {
	n, err := db.Row(ctx, l.s.db, "the messages of a lane", `SELECT count(*) FROM main.lane_sent WHERE host = ?`, []any{host}, db.ScanInt)
	return int(n), err
}

const takenColumns = `lane, seq, host, dispatch_id, record_seq, result, code, reason, forget_at`

// Receipt returns the receipt for a message of a host, or [ErrNotFound]: the one under its
// number, or else under its id in an earlier lane of the host.
func (l Lanes) Receipt(ctx context.Context, lane, host string, seq uint64, id string) (*LaneTaken, error) {
	const what = "the receipt for a message"
	t, err := db.Row(ctx, l.s.db, what, `SELECT `+takenColumns+` FROM lane_taken WHERE lane = ? AND seq = ?`, []any{lane, int64(seq)}, scanTaken)
	if !errors.Is(err, ErrNotFound) {
		return t, err
	}
	return db.Row(ctx, l.s.db, what, `SELECT `+takenColumns+` FROM lane_taken WHERE host = ? AND dispatch_id = ? ORDER BY record_seq LIMIT 1`, []any{host, id}, scanTaken)
}

func scanTaken(stmt *sqlite.Stmt) (*LaneTaken, error) {
	return &LaneTaken{
		Lane: stmt.ColumnText(0), Seq: uint64(stmt.ColumnInt64(1)), Host: stmt.ColumnText(2), DispatchID: stmt.ColumnText(3), RecordSeq: uint64(stmt.ColumnInt64(4)),
		Result: stmt.ColumnText(5), Code: stmt.ColumnText(6), Reason: stmt.ColumnText(7), ForgetAt: db.TimeOf(stmt.ColumnInt64(8)),
	}, nil
}

// Hosts lists the hosts to which messages have no receipt.
func (l Lanes) Hosts(ctx context.Context) ([]string, error) {
	return db.Rows(ctx, l.s.db, "the messages of lanes", `SELECT DISTINCT host FROM main.lane_sent ORDER BY host`, nil, db.ScanText)
}
