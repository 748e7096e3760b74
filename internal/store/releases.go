package store

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Release is what a person has approved for a runtime that delivers by itself, as a part: it
// begins to be ready, or goes from one state to another.
type Release struct {
	Approval, AppID string
	State           string
	// Claim is the digest of who has it at present, Key what the claim was asked with; of a
	// word about a tool call, Key is the name of the call that may take it.
	Claim, Key string
	ExpiresAt  time.Time
	// Origin is which part of the runtime asked for it, and Data what may be sent.
	Origin string
	Data   []byte
	// RecordSeq is the first record of the decision that let the message go. The store
	// assigns it; it is zero if that was before releases kept it.
	RecordSeq uint64
	// From are the state and the claim that it must have when it is written, empty for one that is new.
	From, FromClaim string
}

// States of a release. Of the first two something can still come.
const (
	ReleaseReady   = "ready"
	ReleaseClaimed = "claimed"
	// ReleaseAbandoned is of one that a person has given up: nothing comes of it any more.
	ReleaseAbandoned = "abandoned"
)

// ErrMoved means that a release was to go on from a state in which it is not.
var ErrMoved = errors.New("the release is in another state by now")

const releaseColumns = `approval, app_id, state, claim, request_key, expires_at, origin, data, record_seq`

func (r *Release) prepare() (int, error) {
	_, err := bounded("a release", r.Approval, r.AppID, r.State, r.Claim, r.Key, r.Origin)
	return len(r.Data), err
}

func (r *Release) guard(tx *transaction) (refusal, err error) {
	if r.From == "" {
		return nil, nil
	}
	same, err := tx.Scalar("the release", `SELECT count(*) FROM releases WHERE approval = ? AND state = ? AND claim = ?`, db.Text(r.Approval), db.Text(r.From), db.Text(r.FromClaim))
	if err == nil && same == 0 {
		refusal = ErrMoved
	}
	return refusal, err
}

func (r *Release) put(tx *transaction) error {
	if r.From == "" {
		return tx.Insert("the release", "releases",
			db.Text(r.Approval), db.Text(r.AppID), db.Text(r.State), db.Text(r.Claim), db.Text(r.Key), db.Time(r.ExpiresAt), db.Text(r.Origin), db.Bytes(r.Data), db.Int(int64(tx.receipt.Seq)))
	}
	// The columns are those of releaseColumns, in this order.
	rows, err := tx.Amend("the release", "releases", func(values []db.Value) {
		values[2], values[3], values[4], values[7] = db.Text(r.State), db.Text(r.Claim), db.Text(r.Key), db.Bytes(r.Data)
	}, `approval = ? AND state = ? AND claim = ?`, db.Text(r.Approval), db.Text(r.From), db.Text(r.FromClaim))
	if len(r.Data) == 0 {
		tx.removed.Or(removedTexts)
	}
	if err == nil && rows == 0 {
		return ErrMoved
	}
	return err
}

func scanRelease(stmt *sqlite.Stmt) (Release, error) {
	return Release{
		Approval: stmt.ColumnText(0), AppID: stmt.ColumnText(1), State: stmt.ColumnText(2), Claim: stmt.ColumnText(3), Key: stmt.ColumnText(4),
		ExpiresAt: db.TimeOf(stmt.ColumnInt64(5)), Origin: stmt.ColumnText(6), Data: []byte(stmt.ColumnText(7)),
		RecordSeq: uint64(stmt.ColumnInt64(8)),
	}, nil
}

// Release returns one release, or [ErrNotFound].
func (s *Store) Release(ctx context.Context, approval string) (Release, error) {
	r, err := db.Row(ctx, s.db, "the release", `SELECT `+releaseColumns+` FROM releases WHERE approval = ?`, []any{approval}, scanRelease)
	return r, s.found(fold.Releases, []string{approval}, r.row, err)
}

// ReadyReleases returns the oldest releases of an app that nobody has claimed, up to a limit:
// those with a key, or those with none, so that the ones never crowd out the others.
func (s *Store) ReadyReleases(ctx context.Context, app, key string, now time.Time, limit int) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE app_id = ? AND state = 'ready' AND request_key = ? AND expires_at > ? ORDER BY approval LIMIT ?`,
		[]any{app, key, now.UnixMilli(), limit}, scanRelease)
}

// OpenReleases returns the releases of which something can still come: those that nobody has
// claimed, and those that somebody has and has not confirmed.
func (s *Store) OpenReleases(ctx context.Context) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE state IN ('ready', 'claimed') ORDER BY approval`, nil, scanRelease)
}

// ExpiredReleases returns up to limit releases whose time has run out and that nobody has claimed.
func (s *Store) ExpiredReleases(ctx context.Context, now time.Time, limit int) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE state = 'ready' AND expires_at <= ? ORDER BY expires_at LIMIT ?`,
		[]any{now.UnixMilli(), limit}, scanRelease)
}
