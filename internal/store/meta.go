package store

import (
	"context"
	"fmt"
)

// Meta is one named value of the database itself, such as a key made on first start. As a part it
// replaces an earlier one.
type Meta struct {
	Key   string
	Value []byte
}

func (m Meta) prepare() (int, error) { return len(m.Value), nil }

func (m Meta) put(tx *transaction) error { return tx.PutNamed(m.Key, m.Value) }

// Dropped is the name of a value to delete, as a part.
type Dropped string

func (Dropped) prepare() (int, error) { return 0, nil }

func (key Dropped) put(tx *transaction) error { return tx.DropNamed(string(key)) }

// Meta returns a named value of the database, or [ErrNotFound].
func (s *State) Meta(ctx context.Context, key string) ([]byte, error) { return s.db.Named(ctx, key) }

// MetaUnder returns the named values whose keys begin with a prefix. The prefix
// ends in a byte below 0xff.
func (s *State) MetaUnder(ctx context.Context, prefix string) (map[string][]byte, error) {
	return s.db.NamedUnder(ctx, prefix)
}

// MarkCopy marks a database that no daemon uses as a copy. [IsCopy] reports it to the daemon
// that opens it, or a copy of it.
func MarkCopy(path string) error {
	if err := schema().MarkCopy(path); err != nil {
		return fmt.Errorf("cannot mark the copy of the database: %w", err)
	}
	return nil
}

// IsCopy reports whether the database is marked as a copy: its state may have gone on elsewhere.
func IsCopy(ctx context.Context, s *Store) (bool, error) { return schema().IsCopy(ctx, s.db) }

// NoCopy is the part of a change that removes the mark of a copy.
type NoCopy struct{}

func (NoCopy) prepare() (int, error) { return 0, nil }

func (NoCopy) put(tx *transaction) error { return schema().NoCopy(tx.Writer) }
