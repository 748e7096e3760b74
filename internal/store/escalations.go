package store

import (
	"context"
	"errors"
	"github.com/openclawos/ocipd/internal/store/db"
	"time"
)

// Pair is two agents, in an order that does not depend on the caller.
type Pair struct{ First, Second string }

// PairOf returns the pair of two instance ids.
func PairOf(a, b string) Pair {
	if b < a {
		a, b = b, a
	}
	return Pair{First: a, Second: b}
}

// Escalation is a reached round limit between two agents that no person has settled. As a part it
// is opened.
type Escalation struct {
	Pair
	ExchangeID string
	OpenedAt   time.Time
}

func (Escalation) prepare() (int, error) { return 0, nil }

func (e Escalation) put(tx *transaction) error {
	const what = "the escalation"
	there, err := tx.Scalar(what, `SELECT count(*) FROM escalations WHERE first = ? AND second = ?`, db.Text(e.First), db.Text(e.Second))
	if err != nil || there > 0 {
		return err
	}
	return tx.Insert(what, "escalations", db.Text(e.First), db.Text(e.Second), db.Text(e.ExchangeID), db.Time(e.OpenedAt))
}

// Settled are two agents whose escalation a person has ended, as a part.
type Settled Pair

func (Settled) prepare() (int, error) { return 0, nil }

func (p Settled) put(tx *transaction) error {
	return tx.Exec("the end of the escalation", `DELETE FROM main.escalations WHERE first = ? AND second = ?`, db.Text(p.First), db.Text(p.Second))
}

// Escalated returns the exchange whose escalation is open between two agents,
// or "".
func (s *State) Escalated(ctx context.Context, p Pair) (exchangeID string, err error) {
	exchangeID, err = db.Row(ctx, s.db, "the escalations", `SELECT exchange_id FROM escalations WHERE first = ? AND second = ?`, []any{p.First, p.Second}, db.ScanText)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return exchangeID, err
}
