package directory

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// index finds numbers by exact keys and by the beginnings of keys, as [patterns] finds values. It holds
// no keys, and has them made anew for a comparison: a long directory takes little memory.
type index struct {
	exact, begin entries.Table
	lengths      []int
	// key makes the key of a number.
	key func(number int) string
}

// add enters a key, or the beginning of keys if it is open. It returns the number that the key had.
func (x *index) add(key string, open bool, number int) (before int, had bool) {
	into := &x.exact
	if open {
		into = &x.begin
		x.lengths = withLength(x.lengths, len(key))
	}
	return into.Set(key, number, x.is(key))
}

// is returns a comparison with a key.
func (x *index) is(key string) func(int) bool {
	return func(number int) bool { return x.key(number) == key }
}

// empty reports whether there are no numbers.
func (x *index) empty() bool { return x.exact.Len() == 0 && len(x.lengths) == 0 }

// exactly returns the number of a whole key.
func (x *index) exactly(key string) (number int, ok bool) {
	return x.exact.Find(key, x.is(key))
}

// find returns the number of a key, or else of its longest beginning.
func (x *index) find(key string) (number int, ok bool) {
	if number, ok = x.exactly(key); ok {
		return number, true
	}
	for _, n := range x.lengths {
		if n > len(key) {
			continue
		}
		if number, ok = x.begin.Find(key[:n], x.is(key[:n])); ok {
			return number, true
		}
	}
	return 0, false
}

// withLength enters a length, the longest first.
func withLength(lengths []int, n int) []int {
	if !slices.Contains(lengths, n) {
		lengths = append(lengths, n)
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
	}
	return lengths
}

// patterns finds values by exact keys and by the beginnings of keys. A longer
// beginning wins over a shorter one.
type patterns[V any] struct {
	exact    map[string]V
	prefixes map[string]V
	// lengths of the prefixes, longest first. One look-up for each length finds any of them.
	lengths []int
}

// add enters a key, or the beginning of keys if it is open.
func (p *patterns[V]) add(key string, open bool, value V) {
	if !open {
		if p.exact == nil {
			p.exact = make(map[string]V)
		}
		p.exact[key] = value
		return
	}
	if p.prefixes == nil {
		p.prefixes = make(map[string]V)
	}
	p.prefixes[key] = value
	p.lengths = withLength(p.lengths, len(key))
}

func (p *patterns[V]) find(key string) (value V, ok bool) {
	if value, ok = p.exact[key]; ok {
		return value, true
	}
	for _, n := range p.lengths {
		if n > len(key) {
			continue
		}
		if value, ok = p.prefixes[key[:n]]; ok {
			return value, true
		}
	}
	return value, false
}
