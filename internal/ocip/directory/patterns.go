package directory

import "slices"

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
	if !slices.Contains(p.lengths, len(key)) {
		p.lengths = append(p.lengths, len(key))
		slices.SortFunc(p.lengths, func(a, b int) int { return b - a })
	}
}

// grow makes room for that many keys.
func (p *patterns[V]) grow(n int) { p.exact = make(map[string]V, n) }

// empty reports whether there are no values.
func (p *patterns[V]) empty() bool { return len(p.exact) == 0 && len(p.lengths) == 0 }

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
