package store

import (
	"context"
	"errors"
	"time"

	"zombiezen.com/go/sqlite"
)

// CommitmentGrant is what a person has approved beforehand, as the store keeps it. Body is in the
// form of internal/grants. As a part it begins to be in force.
type CommitmentGrant struct {
	ID    string
	Agent string // an instance id
	Kind  string
	State string
	Until time.Time
	// Uses counts the messages that were let go with it, of at most MaxUses unless that
	// is zero.
	Uses, MaxUses int
	Body          []byte
}

// The states of a grant.
const (
	GrantInForce = "in_force"
	GrantRevoked = "revoked"
)

var (
	// ErrGrantKnown means that there was a grant of the same id before.
	ErrGrantKnown = errors.New("there is, or was, a grant with this id")
	// ErrGrantOver means that a grant is not in force: it was revoked, its time has run
	// out, or it was used as often as it may be.
	ErrGrantOver = errors.New("the grant is no longer in force")
)

func (g *CommitmentGrant) prepare() (int, error) { return len(g.Body), nil }

// guard refuses an id that was used before: who signed a grant has signed it once.
func (g *CommitmentGrant) guard(w *writer) (refusal, err error) {
	known, err := w.scalar("the grant", `SELECT count(*) FROM commitment_grants WHERE id = ?`, text(g.ID))
	if err == nil && known > 0 {
		refusal = ErrGrantKnown
	}
	return refusal, err
}

func (g *CommitmentGrant) put(w *writer, _ *pending) error {
	return w.exec("the grant", `INSERT INTO commitment_grants (id, agent, kind, state, until, uses, max_uses, body) VALUES (?, ?, ?, ?, ?, 0, ?, CAST(? AS TEXT))`,
		text(g.ID), text(g.Agent), text(g.Kind), text(GrantInForce), moment(g.Until), number(int64(g.MaxUses)), bytesOf(g.Body))
}

// GrantUse is a message that is let go with a grant, as a part of the change that lets
// it go: the grant is counted down with the message or neither happens.
type GrantUse struct {
	ID string
	At time.Time
}

const usable = `state = 'in_force' AND until > ? AND (max_uses = 0 OR uses < max_uses)`

func (GrantUse) prepare() (int, error) { return 0, nil }

func (u GrantUse) guard(w *writer) (refusal, err error) {
	good, err := w.scalar("the grant", `SELECT count(*) FROM commitment_grants WHERE id = ? AND `+usable, text(u.ID), moment(u.At))
	if err == nil && good == 0 {
		refusal = ErrGrantOver
	}
	return refusal, err
}

func (u GrantUse) put(w *writer, _ *pending) error {
	err := w.exec("the use of a grant", `UPDATE commitment_grants SET uses = uses + 1 WHERE id = ? AND `+usable, text(u.ID), moment(u.At))
	if err == nil && w.conn.Changes() == 0 {
		// The guard saw it good: the change itself has used it up before.
		return ErrGrantOver
	}
	return err
}

// GrantEnded is a grant that a person takes back, as a part.
type GrantEnded string

func (GrantEnded) prepare() (int, error) { return 0, nil }

func (id GrantEnded) put(w *writer, _ *pending) error {
	return w.exec("the end of a grant", `UPDATE commitment_grants SET state = ? WHERE id = ?`, text(GrantRevoked), text(string(id)))
}

const grantColumns = `id, agent, kind, state, until, uses, max_uses, body`

func scanGrant(stmt *sqlite.Stmt) (CommitmentGrant, error) {
	return CommitmentGrant{
		ID: stmt.ColumnText(0), Agent: stmt.ColumnText(1), Kind: stmt.ColumnText(2), State: stmt.ColumnText(3), Until: fromMilli(stmt.ColumnInt64(4)),
		Uses: stmt.ColumnInt(5), MaxUses: stmt.ColumnInt(6), Body: []byte(stmt.ColumnText(7)),
	}, nil
}

// CommitmentGrantsInForce returns the grants that may be used at a time.
func (s *Store) CommitmentGrantsInForce(ctx context.Context, at time.Time) ([]CommitmentGrant, error) {
	return rows(ctx, &s.reader, "the grants", `SELECT `+grantColumns+` FROM commitment_grants WHERE `+usable+` ORDER BY id`, []any{at.UnixMilli()}, scanGrant)
}

// CommitmentGrants returns the newest grants, up to a limit, of one agent unless that is empty.
func (s *Store) CommitmentGrants(ctx context.Context, agent string, limit int) ([]CommitmentGrant, error) {
	where, args := matching([2]string{"agent = ?", agent})
	return rows(ctx, &s.reader, "the grants", `SELECT `+grantColumns+` FROM commitment_grants WHERE `+where+` ORDER BY until DESC, id LIMIT ?`, append(args, limit), scanGrant)
}

// CommitmentGrant returns one grant, or [ErrNotFound].
func (s *Store) CommitmentGrant(ctx context.Context, id string) (CommitmentGrant, error) {
	return row(ctx, &s.reader, "the grant", `SELECT `+grantColumns+` FROM commitment_grants WHERE id = ?`, []any{id}, scanGrant)
}
