package export

import (
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/text"
)

// TestOneLineHasOnlyWhatShows walks through all of Unicode.
func TestOneLineHasOnlyWhatShows(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		want := string(r)
		if !text.Shows(r) {
			want = " "
		}
		if got := oneLine(string(r)); got != want {
			t.Errorf("U+%04X: %q, want %q", r, got, want)
		}
	}
}
