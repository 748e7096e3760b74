package notify

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

func TestClean(t *testing.T) {
	tests := []struct {
		name, text string
		limit      int
		lines      bool
		want       string
	}{
		{"plain", "Alice asks: 2 < 3 & true?", 50, false, "Alice asks: 2 < 3 & true?"},
		{"other scripts", "Größe 東京 שלום مرحبا हिन्दी", 50, false, "Größe 東京 שלום مرحبا हिन्दी"},
		{"emoji loses its form", "ok \u2714\ufe0f", 50, false, "ok \u2714"},
		{"empty", "", 5, true, ""},
		{"controls", "a\x00b\x07c\x08d\x7fe", 50, true, "abcde"},
		{"C1 controls", "a\u0080b\u0090c\u009fd", 50, true, "abcd"},
		{"no UTF-8", "a\xffb\xc3", 50, true, "a\ufffdb\ufffd"},
		{"bidi override", "pay \u202e001\u202c now\u2066\u2069\u200f", 50, false, "pay 001 now"},
		{"zero width", "ap\u200bpr\u2060ove\ufeff\u00ad", 50, false, "approve"},
		{"tags and selectors", "a\U000e0041\U000e0100\ufe00b", 50, false, "ab"},
		{"blank letters", "a\u3164\u115f\uffa0b", 50, false, "ab"},
		{"private use", "a\ue000b\U000f0000c", 50, false, "abc"},
		{"lines kept", "a\r\nb\rc\u2028d\ve\u0085f", 50, true, "a\nb\nc\nd\ne\nf"},
		{"lines joined", "a\r\nb\nc\u2029d", 50, false, "a b c d"},
		{"empty lines", "\n\n a\n\n\n\n b \n\n", 50, true, "a\n\nb"},
		{"spaces", " \ta \u00a0\u3000\t b  ", 50, false, "a b"},
		{"colours", "a\x1b[1;31mb\x1b[0mc", 50, false, "abc"},
		{"colours of 8 bits", "a\u009b31mb", 50, false, "ab"},
		{"cursor and clear", "a\x1b[2J\x1b[1;1H\x1b7\x1bcb", 50, false, "ab"},
		{"title", "a\x1b]0;evil\ab\x1b]2;evil\x1b\\c\u009d0;evil\u009cd", 50, false, "abcd"},
		{"link", "\x1b]8;;http://evil.example/\x1b\\here\x1b]8;;\x1b\\", 50, false, "here"},
		{"device control", "a\x1bPevil\x1b\\b\x1b_evil\x1b\\c\x1b^evil\x1b\\d\x1bXevil\x1b\\e", 50, false, "abcde"},
		{"character set", "a\x1b(0b", 50, false, "ab"},
		{"title without end", "a\x1b]0;b\nc", 50, true, "a0;b\nc"},
		{"title with a far end", "\x1b]" + strings.Repeat("x", text.MaxSequence) + "\a", 400, true, strings.Repeat("x", text.MaxSequence)},
		{"colour without end", "a\x1b[31", 50, true, "a31"},
		{"escape at the end", "a\x1b", 50, true, "a"},
		{"escape before a letter beyond ASCII", "\x1bé", 50, true, "é"},
		{"escape inside a sequence", "a\x1b[3\x1b[31mb", 50, true, "a3b"},
		{"sequence made by removal", "a\x1b\x00[31mb", 50, true, "a[31mb"},
		{"marks", "e" + strings.Repeat("\u0301", 40) + "f\u0301", 50, true, "e\u0301\u0301\u0301\u0301f\u0301"},
		{"as long as may be", "abcdé", 5, false, "abcdé"},
		{"too long", "abcdéf", 5, false, "abcd…"},
		{"cut at a space", "abc def", 5, false, "abc…"},
		{"cut at a line", "abc\n\nd", 5, true, "abc…"},
		{"hidden text does not count", strings.Repeat("\u200b", 100) + "abc", 3, false, "abc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := clean(tt.text, tt.limit, tt.lines); got != tt.want {
				t.Errorf("clean(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"plain", "a\r\n\n\nb", "\x1b[31mred\x1b[0m", "\x1b]0;x\a", "\u202eabc", "e\u0301\u0301\u0301\u0301\u0301",
		"\xff\xc3\x28", "\u009b1m\u0085\u009d;\u009c", "a …", "\x1b\x1b[[mm", "\x1b( \x1b", "日本\u3000語\ufe0f",
	} {
		f.Add(seed, 7, true)
		f.Add(seed, 40, false)
	}
	f.Fuzz(func(t *testing.T, s string, limit int, lines bool) {
		limit = 1 + max(0, limit)%300
		got := clean(s, limit, lines)
		if !utf8.ValidString(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		if n := utf8.RuneCountInString(got); n > limit {
			t.Fatalf("%d characters, limit %d: %q", n, limit, got)
		}
		for _, r := range got {
			if r == '\n' && lines {
				continue
			}
			if !text.Shows(r) && r != utf8.RuneError || unicode.Is(unicode.Zs, r) && r != ' ' {
				t.Fatalf("%U in %q", r, got)
			}
		}
		if strings.TrimSpace(got) != got || strings.Contains(got, "  ") || strings.Contains(got, "\n\n\n") {
			t.Fatalf("loose space: %q", got)
		}
		if again := clean(got, limit, lines); again != got {
			t.Fatalf("cleaned again: %q, before %q", again, got)
		}
	})
}

func TestNoticeIsBounded(t *testing.T) {
	n := Notice{
		ID: strings.Repeat("i", 500), Title: strings.Repeat("😀\n", 5000), Body: strings.Repeat("\"\U0001f600\"\n", 50000),
		Urgency: "highest", Fields: map[string]string{"": "x", "1a": "x", "a-b": "x", "a=b": "x", "é": "x", "a\x00": "x", strings.Repeat("k", 33): "x"},
	}
	for i := range 100 {
		n.Fields[fmt.Sprintf("Key_%03d", i)] = strings.Repeat("😀", 5000)
	}
	c := n.clean()
	for what, length := range map[string]struct{ got, want int }{
		"id":     {utf8.RuneCountInString(c.ID), maxID},
		"title":  {utf8.RuneCountInString(c.Title), maxTitle},
		"body":   {utf8.RuneCountInString(c.Body), maxBody},
		"fields": {len(c.Fields), maxFields},
		"value":  {utf8.RuneCountInString(c.Fields["Key_000"]), maxValue},
	} {
		if length.got != length.want {
			t.Errorf("%s: length %d, want %d", what, length.got, length.want)
		}
	}
	if c.Fields["Key_015"] == "" || c.Fields["Key_016"] != "" {
		t.Errorf("kept %v, want the first 16 keys", maps.Keys(c.Fields))
	}
	if c.Urgency != Normal {
		t.Errorf("urgency %q, want %q", c.Urgency, Normal)
	}
	line, err := encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > 32<<10 {
		t.Errorf("%d bytes of JSON", len(line))
	}
	if env := strings.Join(variables(c), "\x00"); len(env) > 32<<10 {
		t.Errorf("%d bytes of environment", len(env))
	}
}

func TestEscapeMarkup(t *testing.T) {
	got := escapeMarkup(`<a href="x">5 > 3 &amp; 2</a>`)
	if want := `&lt;a href="x"&gt;5 &gt; 3 &amp;amp; 2&lt;/a&gt;`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTailAndMask(t *testing.T) {
	out := &tail{limit: 16}
	for range 1000 {
		if n, err := out.Write([]byte("0123456789 secret\n")); n != 18 || err != nil {
			t.Fatal(n, err)
		}
	}
	if cap(out.kept) > 64 {
		t.Errorf("%d bytes kept", cap(out.kept))
	}
	if got := out.text(); out.total != 18000 || got != " secret\n" {
		t.Errorf("%d bytes, end %q", out.total, got)
	}
	if n, err := out.Write([]byte(strings.Repeat("x", 500) + "é é" + strings.Repeat(" ", 12))); n != 517 || err != nil {
		t.Error(n, err)
	}
	if got := out.text(); got != " é"+strings.Repeat(" ", 12) {
		t.Errorf("end %q", got)
	}

	n := Notice{Title: "Pay Bob", Body: "wire 40000 to\nIBAN-77, ok?", Fields: map[string]string{"agent": "größe"}}
	for _, tt := range []struct{ output, want string }{
		{"mail: cannot connect to smtp.example.org:25", "mail: cannot connect to smtp.example.org:25"},
		{`{"title":"PAY bob","body":"Wire 40000 to\nIBAN-77, ok?"}`, `{"title":"*** ***","body":"*** *** to\***-77, ok?"}`},
		{"sent wi\x1b[1mre\x1b[0m 40\u200b000 of GRÖSSE größe", "sent *** *** of GRÖSSE ***"},
		{"40000", "***"},
		{"to ok 77", "to ok 77"},
		{"", ""},
	} {
		if got := mask(tt.output, n); got != tt.want {
			t.Errorf("mask(%q) = %q, want %q", tt.output, got, tt.want)
		}
	}
}

// TestCleanKeepsWhatShows walks through all of Unicode.
func TestCleanKeepsWhatShows(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r == utf8.RuneError || !utf8.ValidRune(r) || r > 0x30000 && r>>12 != 0xe0 && r%997 != 0 {
			continue // the sign for lost bytes, or an unassigned character
		}
		for _, lines := range []bool{false, true} {
			got := clean("a"+string(r)+"b", 50, lines)
			want := "ab"
			switch {
			case lineEnd(r) && lines:
				want = "a\nb"
			case lineEnd(r), r == '\t', unicode.Is(unicode.Zs, r):
				want = "a b"
			case text.Shows(r):
				want = "a" + string(r) + "b"
			case r == 0x1b, r >= 0x80 && r <= 0x9f:
				continue // begins a sequence
			}
			if got != want {
				t.Errorf("U+%04X: %q, want %q", r, got, want)
			}
		}
	}
}
