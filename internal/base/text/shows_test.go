package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A byte that needs an escape is found at every position.
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

// The table has the same result as a check of each character.
func TestTable(t *testing.T) {
	for r := range rune(tableEnd) {
		if drawn := table()[r>>6]>>(r&63)&1 != 0; drawn != shows(r) {
			t.Errorf("%U: the table says %t", r, drawn)
		}
	}
}

// A usual character is one whole letter, or a stop of East Asian texts, that shows.
func TestUsual(t *testing.T) {
	found := 0
	for lead := range 256 {
		for second := range 256 {
			for _, third := range []byte{0, 'a', 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xff} {
				for _, s := range []string{string([]byte{byte(lead), byte(second), third}), string([]byte{byte(lead), byte(second)}), string([]byte{byte(lead)})} {
					n := Usual(s, 0)
					if n == 0 {
						continue
					}
					found++
					if r, size := utf8.DecodeRuneInString(s); size != n || !Shows(r) || !unicode.IsLetter(r) && r != '×' && r != '÷' && (r <= 0x3000 || r >= 0x3020) {
						t.Fatalf("%q is a letter of %d bytes", s, n)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("nothing is usual")
	}
	for r := rune(0x3000); r < 0xd000; r++ {
		if n := Usual(string(r), 0); n > 0 && !Shows(r) {
			t.Errorf("%U does not show", r)
		}
	}
}
