package store

import (
	"context"

	"zombiezen.com/go/sqlite"
)

// Meta is one named value of the database itself, such as a key made on first start.
// As a part it is written over an earlier one.
type Meta struct {
	Key   string
	Value []byte
}

func (m Meta) prepare() (int, error) { return len(m.Value), nil }

func (m Meta) put(w *writer, _ *pending) error { return w.putMeta(m) }

const insertMeta = `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

func (w *writer) putMeta(m Meta) error {
	return w.exec(m.Key, insertMeta, text(m.Key), bytesOf(m.Value))
}

// Dropped is the name of a value that goes, as a part.
type Dropped string

func (Dropped) prepare() (int, error) { return 0, nil }

func (key Dropped) put(w *writer, _ *pending) error {
	return w.exec("that "+string(key)+" is dropped", `DELETE FROM meta WHERE key = ?`, text(string(key)))
}

// Meta returns a named value of the database, or [ErrNotFound].
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) { return s.meta(ctx, key) }

func (r *reader) meta(ctx context.Context, key string) ([]byte, error) {
	return row(ctx, r, key, `SELECT value FROM meta WHERE key = ?`, []any{key}, scanBytes)
}

// MetaUnder returns the named values whose keys begin with a prefix. The prefix
// ends in a byte below 0xff.
func (s *Store) MetaUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	values, end := make(map[string][]byte), []byte(prefix)
	end[len(end)-1]++
	_, err := rows(ctx, &s.reader, prefix, `SELECT key, value FROM meta WHERE key >= ? AND key < ?`, []any{prefix, string(end)},
		func(stmt *sqlite.Stmt) (struct{}, error) {
			values[stmt.ColumnText(0)] = columnBytes(stmt, 1)
			return struct{}{}, nil
		})
	if err != nil {
		return nil, err
	}
	return values, nil
}
