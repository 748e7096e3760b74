package store

import (
	"slices"

	"github.com/openclawos/ocipd/internal/audit/fold"
)

// OpenRows returns the keys of a table's open rows, as the log states them, in order.
func OpenRows(s *Store, t fold.Table) (keys [][]string) {
	s.state.Each(t, func(key []string, _ fold.Row, _, _ uint64) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, slices.Compare[[]string])
	return keys
}
