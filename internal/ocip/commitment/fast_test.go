package commitment

import (
	"strings"
	"testing"
)

// The fast checks never exclude a hit: neither those of the first symbols, nor the later ones.
func FuzzBeginnings(f *testing.F) {
	d := detector(f, Options{})
	for _, seed := range []string{
		"I'll send it", "we  can offer", "c o m m i t", "c.o.m mit", "b00k", "BOOK", "pleaseBook", "me eting", "d e a l", "on it", "the company will pay", "ich schicke es",
		"la reserva", "pay 5 k", "5k-10k", "usd\u00a05", "co\u200bmmit", "4pprove", "c<b>o</b>mmit", "s, c, h", "1 4gree", "co-\n> mmit", "\u0063ommit", "we *will* send", "the &nbsp;company will",
	} {
		f.Add(seed)
		f.Add("a " + strings.ToUpper(seed) + ".")
	}
	f.Fuzz(func(t *testing.T, text string) {
		for pos := range text {
			if len(text)-pos < 6 || plainLetter[text[pos]] == 0 {
				continue
			}
			what := d.beginsAs(plainLetter[text[pos]])
			if pos == 0 || plainLetter[text[pos-1]] == 0 {
				if at, opens, known := d.pass(text, pos, &gathering{d: d}); at != pos || known {
					what &= opens
				}
			}
			w := walk{d: d, text: text}
			w.follow(pos, pos, steps{})
			if w.end > 0 && (what&wordBegins == 0 || !d.words.promises(d.atlas, text, pos)) {
				t.Errorf("%q is a word at %d (%q) and none begins there: %b", text, pos, text[pos:w.end], what)
			}
			if _, _, end := d.cue(text, pos, true); end > 0 && (what&cueBegins == 0 || !d.cues.leads(d.atlas, text, pos)) {
				t.Errorf("%q is a cue at %d (%q) and none begins there: %b", text, pos, text[pos:end], what)
			}
		}
		for pos := 0; pos < len(text); pos++ {
			if text[pos]-'0' < 10 {
				end := number(text, pos)
				if _, _, strong := d.amount(text, pos, end); strong && !d.denominated(text, pos, end) {
					t.Errorf("%q has a sum at %d that nothing stands beside", text, pos)
				}
				pos = end
			}
		}
	})
}

// The scan of eight letters at a time ends at the same place as that of one at a time.
func TestLowers(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("az", 10)
			s = s[:at] + string([]byte{byte(c)}) + s[at:]
			for from := range at + 1 {
				want := at
				if 'a' <= c && c <= 'z' {
					want = len(s)
				}
				if got := lowers(s, from); got != want {
					t.Fatalf("%q from %d: %d, want %d", s, from, got, want)
				}
			}
		}
	}
}
