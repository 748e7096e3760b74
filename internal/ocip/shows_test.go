package ocip

import (
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// TestSummaryHasOnlyWhatShows walks through all of Unicode.
func TestSummaryHasOnlyWhatShows(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r > 0x30000 && r>>12 != 0xe0 && r%997 != 0 {
			continue // unassigned
		}
		s := "a" + string(r) + "b"
		want := s
		switch {
		case r == '\n':
			want = "a"
		case !text.Shows(r):
			want = "a b"
		}
		if got := Summarize(s); got != want {
			t.Errorf("U+%04X: %q, want %q", r, got, want)
		}
	}
}
