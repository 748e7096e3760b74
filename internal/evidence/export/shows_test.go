package export

import (
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// TestOneLineHasOnlyWhatShows walks through all of Unicode.
func TestOneLineHasOnlyWhatShows(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r > 0x30000 && r>>12 != 0xe0 && r%997 != 0 {
			continue // unassigned
		}
		want := string(r)
		if !text.Shows(r) {
			want = " "
		}
		if got := oneLine(string(r)); got != want {
			t.Errorf("U+%04X: %q, want %q", r, got, want)
		}
	}
}

// Receivers accept the default length without configuration.
func TestDefaultLength(t *testing.T) {
	if DefaultMaxBytes > 8000 {
		t.Errorf("a message has up to %d bytes", DefaultMaxBytes)
	}
}
