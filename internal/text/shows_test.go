package text

import (
	"strings"
	"testing"
)

// A byte that is to be escaped is found wherever it stands.
func TestEscapeJSONAnywhere(t *testing.T) {
	for at := range 20 {
		for _, c := range []string{"\x7f", "\u0085", "é", "\u202e"} {
			line := strings.Repeat("a", at) + c + strings.Repeat("b", 20)
			if got, want := string(EscapeJSON([]byte(line), 0)), string(AppendJSON(nil, line)); got != want {
				t.Errorf("%q at %d became %q, want %q", c, at, got, want)
			}
		}
		plain := strings.Repeat("~ \t", at)
		if got := string(EscapeJSON([]byte(plain), 0)); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
