package content

import (
	"strings"
	"testing"
)

// TestEight compares the checks of eight bytes with those of one, for each byte at each position.
func TestEight(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("a\n", 10)
			s = s[:at] + string([]byte{byte(c)}) + s[at:]
			want := len(s)
			if (c < ' ' || c >= 0x7f) && c != '\n' && c != '\r' && c != '\t' {
				want = at
			}
			if got := odd(s); got != want {
				t.Errorf("%q: %d, want %d", s, got, want)
			}
			want = len(s)
			if '0' <= c && c <= '9' {
				want = at
			}
			if got := nextDigit(s, 0); got != want {
				t.Errorf("%q: a digit at %d, want %d", s, got, want)
			}
		}
	}
}
