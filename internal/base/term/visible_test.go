package term

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain text":                            "plain text",
		"naïve 日本\u3000語 🙂 שלום":                "naïve 日本\u3000語 🙂 שלום",
		"a\x1b[31mb\a":                          "a‹U+001B›[31mb‹U+0007›",
		"one\ttwo\r":                            "one‹tab›two‹U+000D›",
		"abc\u202etxt.exe":                      "abc‹U+202E›txt.exe",
		"a\u2066b\u2069":                        "a‹U+2066›b‹U+2069›",
		"zero\u200bwidth\ufeff":                 "zero‹U+200B›width‹U+FEFF›",
		"para\u2029\u0085":                      "para‹U+2029›‹U+0085›",
		"bad\xff\xfeutf":                        "bad‹0xFF›‹0xFE›utf",
		"real \ufffd replacement":               "real ‹U+FFFD› replacement",
		"tag\U000e0041":                         "tag‹U+E0041›",
		"‹U+202E›":                              "‹U+2039›U+202E‹U+203A›",
		"fill\u3164er\u115f\u2800":              "fill‹U+3164›er‹U+115F›‹U+2800›",
		"heart❤\ufe0f":                          "heart❤‹U+FE0F›",
		"no\u00a0break\u2003em":                 "no‹U+00A0›break‹U+2003›em",
		"e\u0301":                               "e\u0301",
		"\u0301e":                               "‹U+0301›e",
		"z\u0300\u0300\u0300\u0300\u0300\u0300": "z\u0300\u0300\u0300\u0300‹U+0300›‹U+0300›",
	} {
		if got := Printable(text); got != want {
			t.Errorf("printable(%+q) is %+q, want %+q", text, got, want)
		}
	}
}

func TestBeware(t *testing.T) {
	for text, want := range map[string][]string{
		"nothing\nwrong": nil,
		"one\u202e":      {"1 character of it does not show as what it is: it is named in ‹›"},
		"a\u202e\nb\x1b": {"2 characters of it do not show as what they are: they are named in ‹›"},
		"שלום":           {"it has letters that are written from right to left: some terminals show such lines in another order"},
	} {
		if got := Misleading(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// original restores a text from its shown form.
func original(t *testing.T, shown string) string {
	var b strings.Builder
	for shown != "" {
		inner, named := strings.CutPrefix(shown, "‹")
		if !named {
			_, size := utf8.DecodeRuneInString(shown)
			b.WriteString(shown[:size])
			shown = shown[size:]
			continue
		}
		name, rest, closed := strings.Cut(inner, "›")
		code, isRune := strings.CutPrefix(name, "U+")
		octet, isByte := strings.CutPrefix(name, "0x")
		switch {
		case name == "tab":
			b.WriteByte('\t')
		case closed && isRune:
			r, err := strconv.ParseInt(code, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteRune(rune(r))
		case closed && isByte:
			c, err := strconv.ParseUint(octet, 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteByte(byte(c))
		default:
			t.Fatalf("%q is not how anything is shown", shown)
		}
		shown = rest
	}
	return b.String()
}

// FuzzQuote shows a text and reads it back: nothing is lost, nothing looks like something else, and
// no line of it can pass for one of the program's.
func FuzzQuote(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "I promise\nto do it", "a\x1b[0m\r\n", "‹U+202E›\u202e", "\xff\xfe", "e\u0301\u0301\u0301\u0301\u0301\u0301",
		strings.Repeat("日本語 ", 40), "    │ a\n  digest        sha256:0", "\U000e0041\u3164 \u00a0", "👨\u200d👩\u200d👧 🇩🇪",
	} {
		f.Add(seed, 80, 0, 9)
		f.Add(seed, 1, 3, 4)
	}
	f.Fuzz(func(t *testing.T, content string, width, start, end int) {
		if len(content) > 1<<12 {
			t.Skip()
		}
		width = 1 + max(width, -width)%200
		p := &Page{Screen: Screen{Terminal: true, Width: width}}
		p.Quote(content, Span{start, end, "found\x1b"})
		var back strings.Builder
		for i, line := range p.Lines {
			if utf8.ValidString(line) && strings.IndexFunc(line, hidden) >= 0 || !utf8.ValidString(line) {
				t.Fatalf("%q shows as %q", content, line)
			}
			if w := Width(line); w > max(width, 16) {
				t.Fatalf("at width %d a line takes %d: %q", width, w, line)
			}
			switch {
			case strings.HasPrefix(line, Gutter):
				if i > 0 {
					back.WriteByte('\n')
				}
				back.WriteString(original(t, strings.TrimPrefix(line, Gutter)))
			case strings.HasPrefix(line, gutterOn):
				back.WriteString(original(t, strings.TrimPrefix(line, gutterOn)))
			default:
				label := strings.TrimSuffix(strings.TrimLeft(strings.TrimPrefix(line, gutterAt), " ^"), "…")
				if !strings.HasPrefix(line, gutterAt) || !strings.Contains(line, "^") || !strings.HasPrefix("found‹U+001B›", label) {
					t.Fatalf("%q is a line of %q", line, content)
				}
			}
		}
		if back.String() != content {
			t.Fatalf("%q was shown as %q", content, back.String())
		}
	})
}

func TestQuotePoints(t *testing.T) {
	p := &Page{Screen: Screen{Terminal: true, Width: 30}}
	p.Quote("日本 promise \u202e deadline\n\nfine", Span{7, 14, "promise"}, Span{19, 27, "deadline (quote)"}, Span{0, 0, "nothing"}, Span{-5, 400, "all of it, which is long"})
	want := []string{
		"    │ 日本 promise ‹U+202E› ",
		"      ^^^^^^^^^^^^^^^^^^^^^^ …",
		"    ┊ deadline",
		"      ^^^^^^^^ deadline (quot…",
		"    │ ",
		"    │ fine",
		"      ^^^^ all of it, which i…",
	}
	if !slices.Equal(p.Lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(p.Lines, "\n"), strings.Join(want, "\n"))
	}
	p = &Page{Screen: Screen{Terminal: true, Width: 80, Colour: Palette{On: true}}}
	p.Quote("I promise\u202e", Span{2, 9, "promise"})
	want = []string{
		"\x1b[2m    │ \x1b[0mI \x1b[1;33mpromise\x1b[0m\x1b[31m‹U+202E›\x1b[0m",
		"      \x1b[33m  ^^^^^^^ promise\x1b[0m",
	}
	if !slices.Equal(p.Lines, want) {
		t.Errorf("got %q, want %q", p.Lines, want)
	}
}

// TestAttack27WhatDoesNotShowIsWritten walks through all of Unicode: all ways in which the program
// writes a foreign text agree on the visible characters.
func TestAttack27WhatDoesNotShowIsWritten(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r >= 0xd800 && r < 0xe000 || r > 0x30000 && r>>12 != 0xe0 && r%997 != 0 {
			continue // no characters, or unassigned
		}
		s := "a" + string(r) + "b"
		shows := text.Shows(r)
		// The quotes themselves are spelled out, and so is a mark on nothing.
		if got := Printable(s); (got == s) != (shows && r != '‹' && r != '›') {
			t.Errorf("U+%04X is shown %q", r, got)
		}
		quoted, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, terminal := range []bool{true, false} {
			line := Screen{Terminal: terminal}.JSONLine(quoted)
			var back string
			if err := json.Unmarshal(line, &back); err != nil || back != s {
				t.Errorf("U+%04X in JSON is %s: %q, %v", r, line, back, err)
			}
			if strings.IndexFunc(strings.TrimSuffix(string(line), "\n"), hidden) >= 0 {
				t.Errorf("U+%04X in JSON is %q", r, line)
			}
		}
	}
}
