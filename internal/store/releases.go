package store

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Release is an approval for a runtime that delivers by itself. As a part it becomes ready, or goes
// from one state to another.
type Release struct {
	Approval, AppID string
	State           string
	// Claim is the digest of the current claim, and Key the key of the request that made it. For a
	// word about a tool call, Key names the call that may use it.
	Claim, Key string
	ExpiresAt  time.Time
	// Origin is the part of the runtime that asked for it, and Data the message that may be sent.
	Origin string
	Data   []byte
	// RecordSeq is the first record of the decision that released the message. The store assigns
	// it; it is zero if that was before releases kept it.
	RecordSeq uint64
	// From are the state and the claim that it must have when it is written, empty for a new one.
	From, FromClaim string
}

// States of a release. The first two are not final.
const (
	ReleaseReady   = "ready"
	ReleaseClaimed = "claimed"
	// ReleaseAbandoned is the final state of a release that a person has given up.
	ReleaseAbandoned = "abandoned"
)

// ErrMoved means that a release is not in the state from which it was to go on.
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
func (s *State) Release(ctx context.Context, approval string) (Release, error) {
	r, err := db.Row(ctx, s.db, "the release", `SELECT `+releaseColumns+` FROM releases WHERE approval = ?`, []any{approval}, scanRelease)
	return r, s.found(fold.Releases, []string{approval}, r.row, err)
}

// ReadyReleases returns the oldest unclaimed releases of an app, up to a limit: those with a key,
// or those without, so that neither kind crowds out the other.
func (s *State) ReadyReleases(ctx context.Context, app, key string, now time.Time, limit int) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE app_id = ? AND state = 'ready' AND request_key = ? AND expires_at > ? ORDER BY approval LIMIT ?`,
		[]any{app, key, now.UnixMilli(), limit}, scanRelease)
}

// OpenReleases returns the open releases: the unclaimed ones, and the claimed ones without
// confirmation.
func (s *State) OpenReleases(ctx context.Context) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE state IN ('ready', 'claimed') ORDER BY approval`, nil, scanRelease)
}

// ExpiredReleases returns up to limit unclaimed releases whose time is over.
func (s *State) ExpiredReleases(ctx context.Context, now time.Time, limit int) ([]Release, error) {
	return db.Rows(ctx, s.db, "the releases", `SELECT `+releaseColumns+` FROM releases WHERE state = 'ready' AND expires_at <= ? ORDER BY expires_at LIMIT ?`,
		[]any{now.UnixMilli(), limit}, scanRelease)
}
