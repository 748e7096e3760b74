package jsonline

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// everything has each kind of member, once as a member that is always written and once as one that
// may be left out.
type everything struct {
	Text      string `json:"text"`
	Int       int    `json:"int"`
	Bool      bool   `json:"bool"`
	TextIfAny string `json:"textIfAny,omitzero"`
	True      bool   `json:"true,omitzero"`
}

func (e everything) write(b []byte) []byte {
	b = append(b, '{')
	b = TextIfAny(b, "first", "") // an omitted member leaves no comma
	b = Text(b, "text", e.Text)
	b = Int(b, "int", e.Int)
	b = Bool(b, "bool", e.Bool)
	b = TextIfAny(b, "textIfAny", e.TextIfAny)
	b = BoolIfTrue(b, "true", e.True)
	return append(b, '}')
}

func FuzzAsTheLibrary(f *testing.F) {
	f.Add("", 0, false, "", false)
	f.Add("a \"quote\", \\ and </script>", -1, true, "\u2028\x00\t", true)
	f.Add("not UTF-8: \xff\xfe", 7, true, "\xc3", false)
	f.Fuzz(func(t *testing.T, text string, n int, yes bool, some string, also bool) {
		e := everything{text, n, yes, some, also}
		want, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.write([]byte("before")); string(got) != "before"+string(want) {
			t.Errorf("got  %s\nwant before%s", got, want)
		}
	})
}

// PlainLength agrees with a scan byte by byte, for every end.
func FuzzPlainLength(f *testing.F) {
	for _, end := range []string{"", "\"", "\\", "\n", "\x1f!\x00", "é", "\x7f\xff", "]\\[", "#\"!"} {
		f.Add("plain text that is longer than a look", end)
		f.Add("x", end)
	}
	f.Fuzz(func(t *testing.T, begin, end string) {
		text := begin + end
		want := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= utf8.RuneSelf })
		if want < 0 {
			want = len(text)
		}
		if got := PlainLength(text); got != want || PlainLength([]byte(text)) != want {
			t.Errorf("%q is plain for %d bytes, want %d", text, got, want)
		}
	})
}

// The text means the same after ASCII, and bytes before the index do not change.
func FuzzASCII(f *testing.F) {
	for _, text := range []string{
		"", "ascii", "héllo", "締め切り", "🤝🏽", "\u2028 and \x7f", "\U0010FFFF\uFFFF\u0080\u07FF\u0800", "not UTF-8: \xff\xe2\x82", "long enough for a look at eight, then é",
		"\xf0\x9f\x98\xe2\x82\xac", "\xed\xa0\x80", `a "quote" and \`, strings.Repeat("ж", 300),
	} {
		f.Add("before é", text)
	}
	f.Fuzz(func(t *testing.T, before, text string) {
		quoted := Quote(nil, text)
		got := ASCII(append([]byte(before), quoted...), len(before))
		rest, ok := bytes.CutPrefix(got, []byte(before))
		if !ok || bytes.ContainsFunc(rest, func(r rune) bool { return r >= utf8.RuneSelf }) {
			t.Fatalf("%q became %q", text, got)
		}
		var was, is string
		if err := json.Unmarshal(quoted, &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(rest, &is); err != nil || is != was {
			t.Fatalf("%q became %q, %v", was, is, err)
		}
		// Invalid UTF-8 is replaced byte by byte, as in the library.
		raw := ASCII([]byte(text), 0)
		var want []byte
		for _, r := range text {
			want = ASCII(utf8.AppendRune(want, r), len(want))
		}
		if !bytes.Equal(raw, want) {
			t.Fatalf("%q became %q, want %q", text, raw, want)
		}
	})
}

func BenchmarkASCII(b *testing.B) {
	for name, text := range map[string]string{
		"ascii":      strings.Repeat("A message of a thousand characters. ", 28),
		"one":        strings.Repeat("A message of a thousand characters. ", 28) + "é",
		"japanese":   strings.Repeat("締め切りは明日です。", 33),
		"emoji 240k": strings.Repeat("🤝", 60<<10),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var line []byte
			for b.Loop() {
				line = ASCII(append(line[:0], text...), 0)
			}
		})
	}
}

// A text is plain if the library quotes it unchanged, for every byte at every position.
func FuzzPlain(f *testing.F) {
	for at := range 18 {
		for _, c := range []string{"\"", "\\", "\x00", "\x1f", "\x7f", "\x80", "é", " ", "!", "#", "[", "]"} {
			f.Add(strings.Repeat("a", at) + c + strings.Repeat("~", 10))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := jsontext.AppendQuote(nil, text)
		ascii := !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
		if want := err == nil && ascii && string(quoted) == `"`+text+`"`; Plain(text) != want || Plain([]byte(text)) != want {
			t.Errorf("%q: got %v, want %v", text, !want, want)
		}
		if got := Quote(nil, text); string(got) != string(quoted) {
			t.Errorf("got %s, want %s", got, quoted)
		}
	})
}
