package text

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRender(t *testing.T) {
	for _, tt := range []struct {
		text string
		as   []Rendering
		want string
	}{
		{`I \x70\x72omise`, nil, `I \x70\x72omise`},
		{`I \x70\x72omise`, []Rendering{RenderNone}, `I \x70\x72omise`},
		{`I \x70\x72omise`, []Rendering{RenderIRC}, "I promise"},
		{`\x41KIAIOSFODNN7SAMPLED`, []Rendering{RenderIRC}, "AKIAIOSFODNN7SAMPLED"},
		{"AKIA\x02IOSFODNN7SAMPLED", []Rendering{RenderIRC}, "AKIAIOSFODNN7SAMPLED"},
		{`pro\0mise`, []Rendering{RenderIRC}, "promise"},
		{`a\r\nb\tc`, []Rendering{RenderIRC}, "a bc"},
		{`\u0070\ud83d\ude00\ud800x`, []Rendering{RenderIRC}, "p😀\ufffdx"},
		{`\x5cu0041 \x5cx41 \\x41`, []Rendering{RenderIRC}, `A \x41 \A`},
		{`\xg1 \u12 \q \`, []Rendering{RenderIRC}, `\xg1 \u12 \q \`},
		{"AKIA<b>IOSFODNN7SAMPLED</b>", []Rendering{RenderHTML}, "AKIAIOSFODNN7SAMPLED"},
		{"&#65;KIA &#x41; &#65 &lt;b&gt; &amp;lt; &nosuch; &", []Rendering{RenderHTML}, "AKIA A A <b> &lt; &nosuch; &"},
		{"a<br>b<p class='x'>c</p><!-- d > --><a href=\"?x>y\">e</a>", []Rendering{RenderHTML}, "a\nb\nc\ne"},
		{"1 < 2 and 3 > 2, a<b", []Rendering{RenderHTML}, "1 < 2 and 3 > 2, a<b"},
		{"<b title=\"x>promise</b>", []Rendering{RenderHTML}, "promise"},
		{"AKIA**IOSF**ODNN _x_ ~~y~~ `z` ||w||", []Rendering{RenderMarkdown}, "AKIAIOSFODNN x y z w"},
		{"snake_case 5 * 3 a|b \\*x\\*", []Rendering{RenderMarkdown}, "snake_case 5 * 3 a|b *x*"},
		{"[AKIA](http://x)IOSF [a] b](c) [d]", []Rendering{RenderMarkdown}, "AKIAIOSF [a] b](c) [d]"},
		{"a\x1b[1;31mb\x1b[0m\x02c\x1b[2Jd\n\te", []Rendering{RenderPlain}, "abc[2Jd\n\te"},
		{"A\u200bK\u3164I\U000e0041A\u00a0\u2028\ufffd\ue000é", []Rendering{RenderPlain}, "AKIA\u00a0\u2028\ufffd\ue000é"},
		{"**&#65;**KIA", []Rendering{RenderMarkdown, RenderHTML}, "AKIA"},
	} {
		if got := Render(tt.text, tt.as...); got != tt.want {
			t.Errorf("Render(%q, %q) = %q, want %q", tt.text, tt.as, got, tt.want)
		}
	}
}

// TestSpan finds the original of a part of the rendered text.
func TestSpan(t *testing.T) {
	for _, tt := range []struct {
		text, find string
		as         []Rendering
		want       string
	}{
		{`so I \x70\x72omise it`, "promise", []Rendering{RenderIRC}, `\x70\x72omise`},
		{"key AKIA<b>IOSF</b>.", "AKIAIOSF", []Rendering{RenderHTML}, "AKIA<b>IOSF"},
		{"key &#65;KIA.", "AKIA", []Rendering{RenderHTML}, "&#65;KIA"},
		{`key \x5cu0041KIA`, "AKIA", []Rendering{RenderIRC}, `\x5cu0041KIA`},
		{"a **pro**mise.", "promise", []Rendering{RenderMarkdown}, "pro**mise"},
		{"a **&#112;ro**mise.", "promise", []Rendering{RenderMarkdown, RenderHTML}, "&#112;ro**mise"},
		{"plain promise", "promise", []Rendering{RenderHTML}, "promise"},
	} {
		v := See(tt.text, tt.as...)
		at := strings.Index(v.Text, tt.find)
		if at < 0 {
			t.Errorf("%q is rendered %q, without %q", tt.text, v.Text, tt.find)
			continue
		}
		from, to := v.Span(at, at+len(tt.find))
		if got := tt.text[from:to]; got != tt.want {
			t.Errorf("%q stands at %q in %q, want %q", tt.find, got, tt.text, tt.want)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`\x5cu0041\ud83d\ude00\0`, "<b a='>'><!-- --></b>&#65;&amp&#x;", "[a](b)**c**\\*_d_||", "<a\"<a\"<a\">", "\r\n\x02", "\xff&\\",
	} {
		f.Add(s, uint8(0xe4))
	}
	f.Fuzz(func(t *testing.T, s string, choice uint8) {
		all := []Rendering{RenderPlain, RenderIRC, RenderHTML, RenderMarkdown}
		as := []Rendering{all[choice&3], all[choice>>2&3], all[choice>>4&3]}
		v := See(s, as...)
		if !v.Changed() && v.Text != s {
			t.Fatalf("%q became %q and says that it did not change", s, v.Text)
		}
		if utf8.ValidString(s) && !utf8.ValidString(v.Text) {
			t.Errorf("%q became %q", s, v.Text)
		}
		if slices.Contains(as, RenderIRC) && as[2] == RenderIRC && strings.ContainsAny(v.Text, "\r\n\x00\x1b") {
			t.Errorf("%q became %q", s, v.Text)
		}
		last := 0
		for i := range len(v.Text) {
			from, to := v.Span(i, i+1)
			if from < 0 || to > len(s) || from >= to || from < last {
				t.Fatalf("byte %d of %q stands at %d to %d of %q", i, v.Text, from, to, s)
			}
			last = from
		}
	})
}

// BenchmarkRender compares the cost of hostile texts with that of plain ones.
func BenchmarkRender(b *testing.B) {
	for _, bb := range []struct{ name, unit string }{
		{"plain", "the quick brown fox "}, {"tags", "<a\">"}, {"open", "<a"}, {"quotes", "<a\"'"}, {"escapes", `\x41`},
		{"strokes", `\`}, {"comments", "<!--"}, {"references", "&#6"}, {"brackets", "["}, {"links", "[a]("}, {"stars", "a*"},
	} {
		s := strings.Repeat(bb.unit, 256<<10/len(bb.unit))
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				Render(s, Renderings()...)
			}
		})
	}
}

// TestPrintable8 compares the fast check with the slow one, at every position.
func TestPrintable8(t *testing.T) {
	for c := range 256 {
		for at := range 8 {
			s := []byte("abcdefgh")
			s[at] = byte(c)
			if got := printable8(string(s)); got && (c < ' ' || c >= 0x7f) {
				t.Errorf("%q is taken for text that shows", s)
			}
		}
	}
	if !printable8("Az09 ~!x") || printable8("short") {
		t.Error("plain text is not taken for it")
	}
}
