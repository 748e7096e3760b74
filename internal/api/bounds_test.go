package api

import "testing"

// Bounds that a person gives are within the offered ones only if no member goes beyond. A last round that is
// left out is no last round.
func TestBoundsWithin(t *testing.T) {
	offered := Bounds{Words: []string{"promise"}, Classification: "internal", MaxRound: 3, Until: 1000}
	for name, c := range map[string]struct {
		change func(*Bounds)
		want   bool
	}{
		"the same":       {func(*Bounds) {}, true},
		"narrower":       {func(b *Bounds) { b.Classification, b.MaxRound, b.Until = "public", 1, 10 }, true},
		"a later round":  {func(b *Bounds) { b.MaxRound = 4 }, false},
		"no last round":  {func(b *Bounds) { b.MaxRound = 0 }, false},
		"a later end":    {func(b *Bounds) { b.Until = 1001 }, false},
		"a higher level": {func(b *Bounds) { b.Classification = "confidential" }, false},
		"no level":       {func(b *Bounds) { b.Classification = "" }, false},
	} {
		b := offered
		c.change(&b)
		if got := b.Within(&offered); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	unbounded := Bounds{Classification: "internal", Until: 1000}
	if b := unbounded; !b.Within(&unbounded) {
		t.Error("no last round was offered")
	}
}
