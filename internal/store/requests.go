package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// RequestKey is the answer to a request, as a part. Asked is a digest of the request.
type RequestKey struct {
	Actor, Key, Asked string
	At                time.Time
	Result            []byte
}

// keepRequests is how long answers to requests are kept.
const keepRequests = 24 * time.Hour

func (k *RequestKey) prepare() (int, error) { return len(k.Result) + 128, nil }

func (k *RequestKey) put(tx *transaction) error {
	return tx.Put("the answer", "request_keys", db.Text(k.Actor), db.Text(k.Key), db.Time(k.At), db.Text(k.Asked), db.Bytes(k.Result))
}

// RequestOf returns the answer to an actor's request, or [ErrNotFound].
func (s *State) RequestOf(ctx context.Context, actor, key string, now time.Time) (RequestKey, error) {
	return db.Row(ctx, s.db, "the answer", `SELECT asked, result FROM request_keys WHERE actor = ? AND key = ? AND at > ?`, []any{actor, key, now.Add(-keepRequests).UnixMilli()},
		func(stmt *sqlite.Stmt) (RequestKey, error) {
			return RequestKey{Actor: actor, Key: key, Asked: stmt.ColumnText(0), Result: db.ColumnBytes(stmt, 1)}, nil
		})
}

// forgotten deletes the answer to a request after its time.
type forgotten struct {
	actor, key string
	before     int64
}

func (forgotten) prepare() (int, error) { return 0, nil }

func (f forgotten) put(tx *transaction) error {
	return tx.Exec("an answer that is old", `DELETE FROM main.request_keys WHERE actor = ? AND key = ? AND at < ?`, db.Text(f.actor), db.Text(f.key), db.Int(f.before))
}
