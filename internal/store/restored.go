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

// OpenRows returns the keys of a table's open rows, as the log states them, in order.
func OpenRows(s *Store, t fold.Table) (keys [][]string) {
	s.state.Each(t, func(key []string, _ fold.Row, _, _ uint64) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, slices.Compare[[]string])
	return keys
}
