package db

import (
	"context"

	"zombiezen.com/go/sqlite"
)

const insertNamed = `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

// PutNamed stores a named value of the database itself in the table meta, in place of an earlier
// one.
func (w *Writer) PutNamed(key string, value []byte) error {
	if w.Sealed("meta") {
		return w.Put(key, "meta", Text(key), Bytes(value))
	}
	return w.Exec(key, insertNamed, Text(key), Bytes(value))
}

// DropNamed deletes a named value.
func (w *Writer) DropNamed(key string) error {
	return w.Exec("that "+key+" is dropped", `DELETE FROM main.meta WHERE key = ?`, Text(key))
}

// Named returns a named value of the database, or [ErrNotFound].
func (r *Reader) Named(ctx context.Context, key string) ([]byte, error) {
	return Row(ctx, r, key, `SELECT value FROM meta WHERE key = ?`, []any{key}, ScanBytes)
}

// NamedUnder returns the named values whose keys begin with a prefix. The prefix
// ends in a byte below 0xff.
func (r *Reader) NamedUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	values, end := make(map[string][]byte), []byte(prefix)
	end[len(end)-1]++
	_, err := Rows(ctx, r, prefix, `SELECT key, value FROM meta WHERE key >= ? AND key < ?`, []any{prefix, string(end)},
		func(stmt *sqlite.Stmt) (struct{}, error) {
			values[stmt.ColumnText(0)] = ColumnBytes(stmt, 1)
			return struct{}{}, nil
		})
	if err != nil {
		return nil, err
	}
	return values, nil
}
