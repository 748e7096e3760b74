package store

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// CommitmentGrant is an approval given beforehand, in stored form. Body is in the form of
// internal/approval/grants. As a part it comes into force.
type CommitmentGrant struct {
	ID    string
	Agent string // an instance id
	Kind  string
	State string
	Until time.Time
	// Uses counts the messages that the grant released, of at most MaxUses unless that is zero.
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
	// ErrGrantOver means that a grant is not in force: it was revoked, its time is over, or it was
	// used as often as it may be.
	ErrGrantOver = errors.New("the grant is no longer in force")
)

func (g *CommitmentGrant) prepare() (int, error) { return len(g.Body), nil }

// guard refuses an id that was used before: a signature is valid for one grant.
func (g *CommitmentGrant) guard(tx *transaction) (refusal, err error) {
	known, err := tx.Scalar("the grant", `SELECT count(*) FROM main.commitment_grants WHERE id = ?`, db.Text(g.ID))
	if err == nil && known > 0 {
		refusal = ErrGrantKnown
	}
	return refusal, err
}

func (g *CommitmentGrant) put(tx *transaction) error {
	return tx.Insert("the grant", "commitment_grants", db.Text(g.ID), db.Text(g.Agent), db.Text(g.Kind), db.Text(GrantInForce), db.Time(g.Until), db.Int(0), db.Int(int64(g.MaxUses)), db.Bytes(g.Body))
}

// GrantUse is a message that a grant releases, as a part of the change that releases it: either
// both the count and the message are durable or neither is.
type GrantUse struct {
	ID string
	At time.Time
}

const usable = `state = 'in_force' AND until > ? AND (max_uses = 0 OR uses < max_uses)`

func (GrantUse) prepare() (int, error) { return 0, nil }

func (u GrantUse) guard(tx *transaction) (refusal, err error) {
	good, err := tx.Scalar("the grant", `SELECT count(*) FROM commitment_grants WHERE id = ? AND `+usable, db.Text(u.ID), db.Time(u.At))
	if err == nil && good == 0 {
		refusal = ErrGrantOver
	}
	return refusal, err
}

func (u GrantUse) put(tx *transaction) error {
	used, err := tx.Amend("the use of a grant", "commitment_grants", func(row []db.Value) {
		const uses = 5
		row[uses] = row[uses].Plus(1)
	}, `id = ? AND `+usable, db.Text(u.ID), db.Time(u.At))
	if err == nil && used == 0 {
		// The guard passed, so the change itself has used it up before.
		return ErrGrantOver
	}
	return err
}

// GrantEnded is a grant that a person revokes, as a part.
type GrantEnded string

func (GrantEnded) prepare() (int, error) { return 0, nil }

func (id GrantEnded) put(tx *transaction) error {
	_, err := tx.Amend("the end of a grant", "commitment_grants", func(row []db.Value) {
		const state = 3
		row[state] = db.Text(GrantRevoked)
	}, `id = ?`, db.Text(string(id)))
	return err
}

const grantColumns = `id, agent, kind, state, until, uses, max_uses, body`

func scanGrant(stmt *sqlite.Stmt) (CommitmentGrant, error) {
	return CommitmentGrant{
		ID: stmt.ColumnText(0), Agent: stmt.ColumnText(1), Kind: stmt.ColumnText(2), State: stmt.ColumnText(3), Until: db.TimeOf(stmt.ColumnInt64(4)),
		Uses: stmt.ColumnInt(5), MaxUses: stmt.ColumnInt(6), Body: []byte(stmt.ColumnText(7)),
	}, nil
}

// CommitmentGrantsInForce returns the grants that may be used at a time.
func (s *State) CommitmentGrantsInForce(ctx context.Context, at time.Time) ([]CommitmentGrant, error) {
	return db.Rows(ctx, s.db, "the grants", `SELECT `+grantColumns+` FROM commitment_grants WHERE `+usable+` ORDER BY id`, []any{at.UnixMilli()}, scanGrant)
}

// GrantFilter selects grants; an empty member selects all.
type GrantFilter struct {
	Agent, Kind string
	// UsableAt selects those that may be used at a time.
	UsableAt time.Time
	// Until and After continue a page: the end and the id of its last grant.
	Until time.Time
	After string
}

// CommitmentGrants returns up to limit grants, those that end last first.
func (s *State) CommitmentGrants(ctx context.Context, f GrantFilter, limit int) ([]CommitmentGrant, error) {
	where, args := db.Matching([2]string{"agent = ?", f.Agent}, [2]string{"kind = ?", f.Kind})
	if !f.UsableAt.IsZero() {
		where, args = where+" AND "+usable, append(args, f.UsableAt.UnixMilli())
	}
	if f.After != "" {
		where, args = where+" AND (until < ? OR until = ? AND id > ?)", append(args, f.Until.UnixMilli(), f.Until.UnixMilli(), f.After)
	}
	return db.Rows(ctx, s.db, "the grants", `SELECT `+grantColumns+` FROM commitment_grants WHERE `+where+` ORDER BY until DESC, id LIMIT ?`, append(args, limit), scanGrant)
}

// CommitmentGrant returns one grant, or [ErrNotFound].
func (s *State) CommitmentGrant(ctx context.Context, id string) (CommitmentGrant, error) {
	g, err := db.Row(ctx, s.db, "the grant", `SELECT `+grantColumns+` FROM commitment_grants WHERE id = ?`, []any{id}, scanGrant)
	return g, s.found(fold.CommitmentGrants, []string{id}, g.row, err)
}
