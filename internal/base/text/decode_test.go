package text

import (
	"encoding/base64"
	hexadecimal "encoding/hex"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	long := strings.Repeat("We meet on Friday, as it was said. ", 8)
	wrapped := base64.StdEncoding.EncodeToString([]byte(long))
	var lines []string
	for rest := wrapped; rest != ""; {
		n := min(76, len(rest))
		lines, rest = append(lines, rest[:n]), rest[n:]
	}
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"Ym9vaw==", "book"},
		{"see Ym9vaw== there", "book"},
		{"Ym9vaw", ""}, // too short to be told from a word
		{"cHJvbWlzZQ==, cHJvbWlzZQ", "promise|promise"},
		{"626f6f6b", "book"}, {"0x626F6F6B", "book"}, {"626f6f6", ""},
		{base64.URLEncoding.EncodeToString([]byte("is it? yes > no")), "is it? yes > no"},
		{base64.StdEncoding.EncodeToString([]byte("会议在星期五")), "会议在星期五"},
		{strings.Join(lines, "\n"), long}, {strings.Join(lines, "\r\n"), long},
		{"a\n" + wrapped + "\nbcdefghi", "*"},
		{base64.StdEncoding.EncodeToString([]byte("\x00\x01binary\xff")), ""},
		{"internationalization of antidisestablishmentarianism", ""},
		{"f47ac10b-58cc-4372-a567-0e02b2c3d479", ""}, {"20261122 12345678 2026112212345678", ""},
		{"https://example.org/some/long/path/to/things", ""},
		{"====================", ""}, {"abc ====================", ""},
	} {
		var got []string
		for _, e := range Decode(tt.text) {
			if e.Start < 0 || e.End > len(tt.text) || e.Start >= e.End {
				t.Errorf("%q: span of %+v", tt.text, e)
			}
			got = append(got, e.Text)
		}
		if have := strings.Join(got, "|"); have != tt.want && tt.want != "*" {
			t.Errorf("%q: got %q, want %q", tt.text, have, tt.want)
		}
	}
}

// FuzzDecode checks that spans are in order and disjoint, and that Decode finds an encoded text.
func FuzzDecode(f *testing.F) {
	f.Add("please confirm", "and = that ==")
	f.Add("====", " a=========b")
	f.Fuzz(func(t *testing.T, a, b string) {
		last := 0
		for _, e := range Decode(a + b) {
			if e.Start < last || e.End <= e.Start || e.End > len(a)+len(b) || len(e.Text) > e.End-e.Start {
				t.Fatalf("%q: %+v after %d", a+b, e, last)
			}
			last = e.End
		}
		if len(a) < 9 || !Showable(a) {
			return
		}
		for _, encoded := range []string{base64.StdEncoding.EncodeToString([]byte(a)), hexadecimal.EncodeToString([]byte(a))} {
			if got := Decode(". " + encoded + " ."); len(got) != 1 || got[0].Text != a || got[0].Start != 2 || got[0].End != 2+len(encoded) {
				t.Fatalf("%q: %+v of %q", a, got, encoded)
			}
		}
	})
}

// TestDecodeIsLinear checks that the worst texts take no noticeable time.
func TestDecodeIsLinear(t *testing.T) {
	for _, unit := range []string{"=", "a", "a=", "abcdefgh=", "626f6f6b", "Ym9vaw== ", "\n", strings.Repeat("Q", 32) + "\n", "= ", "a ="} {
		Decode(strings.Repeat(unit, 4<<20/len(unit)))
	}
}
