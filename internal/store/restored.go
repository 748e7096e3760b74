package store

import (
	"slices"

	"github.com/openclawos/ocipd/internal/audit/fold"
)

// Restored returns the id of the record of the newest restoration of the state, "" for none. The log
// holds it with each checkpoint. What people sign includes it, so that no signature from before a
// restoration counts after it.
func Restored(s *Store) string { return s.state.Restored() }

// Restore notes the id of the record of a restoration. The caller commits that record with a
// checkpoint next.
func Restore(s *Store, id string) { s.state.Restore(id) }

// Newest returns a value that must never go back, "" for none, as the newest checkpoint of the log has
// it. A process that can write the database can delete the row with such a value, or put an older row
// back, and no seal shows that.
func Newest(s *Store, name string) string { return s.state.Newest()[name] }

// SetNewest notes a value that must never go back. The next checkpoint has it, and every later one.
func SetNewest(s *Store, name, value string) { s.state.SetNewest(name, value) }

// OpenRows returns the keys of a table's open rows, as the log states them, in order.
func OpenRows(s *Store, t fold.Table) (keys [][]string) {
	s.state.Each(t, func(key []string, _ fold.Row, _, _ uint64) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, slices.Compare[[]string])
	return keys
}
