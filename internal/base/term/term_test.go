package term

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
)

// hidden returns the characters that no line for a person may have.
func hidden(r rune) bool { return !text.Shows(r) }

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"", "a\x1b[0m", `{"a":"` + "\u202e\U000e0041\u009b" + `"}`, "\xff", `"\u202e"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown := Printable(text)
		if strings.IndexFunc(shown, hidden) >= 0 {
			t.Errorf("%q shows as %q", text, shown)
		}
		value := jsontext.Value(text)
		if !value.IsValid() || strings.ContainsAny(text, "\n\r\t") {
			return
		}
		line := PrintableJSON(value)
		if strings.IndexFunc(string(line), hidden) >= 0 {
			t.Errorf("%q shows as %q", text, line)
		}
		before, after := value.Clone(), line.Clone()
		if err := errors.Join(before.Canonicalize(), after.Canonicalize()); err != nil {
			t.Skip() // numbers without a canonical form
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%s became %s", before, after)
		}
	})
}

func TestTableFits(t *testing.T) {
	columns := []Column{{Title: "NAME", Least: 6}, {Title: "N", Least: 3, Right: true}, {Title: "TEXT", Least: 8}}
	tab := Table{Columns: columns}
	tab.Add(Plain("short"), Plain("7"), Plain("x"))
	tab.Add(Plain("a name that goes on and on"), Plain("12345"), Plain("日本語のとても長い文章 and\nmore"))
	tab.Add(Plain("empty end"), Plain(""), Plain(""))
	for width := 1; width < 100; width++ {
		var out bytes.Buffer
		if err := tab.Write(&out, Screen{Terminal: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 4 {
			t.Fatalf("width %d gives %d lines", width, len(lines))
		}
		for _, line := range lines {
			if w := Width(line); w > width {
				t.Errorf("at width %d a line takes %d: %q", width, w, line)
			}
			if line != strings.TrimRight(line, " ") {
				t.Errorf("at width %d a line ends in blanks: %q", width, line)
			}
		}
	}
	var out bytes.Buffer
	if err := tab.Write(&out, Screen{Terminal: true, Width: 80}); err != nil {
		t.Fatal(err)
	}
	want := "NAME                            N  TEXT\n" +
		"short                           7  x\n" +
		"a name that goes on and on  12345  日本語のとても長い文章 and‹U+000A›more\n" +
		"empty end\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if err := tab.Write(&out, Screen{Terminal: true, Width: 30}); err != nil {
		t.Fatal(err)
	}
	want = "NAME            N  TEXT\n" +
		"short           7  x\n" +
		"a name th…  12345  日本語のと…\n" +
		"empty end\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestColour(t *testing.T) {
	c := Tinted("denied", Red)
	columns := []Column{{Title: "RESULT"}}
	for on, want := range map[bool]string{false: "denied\n", true: "\x1b[31mdenied\x1b[0m\n"} {
		if got := RowLine(columns, []int{6}, []Cell{c}, Screen{Terminal: true, Width: 80, Colour: Palette{On: on}}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestScreenOfAProgram(t *testing.T) {
	var env []string
	getenv := func(name string) (value string) {
		for _, kv := range env {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				value = v
			}
		}
		return value
	}
	if scr := ScreenOf(&bytes.Buffer{}, getenv); scr.Terminal || scr.Colour.On || scr.Width != 80 {
		t.Errorf("got %+v", scr)
	}
	env = []string{"COLUMNS=132", "COLUMNS=133"}
	if scr := ScreenOf(&bytes.Buffer{}, getenv); scr.Width != 133 {
		t.Errorf("got %+v", scr)
	}
}

func TestFoldAtBlanks(t *testing.T) {
	for text, want := range map[string][]string{
		"":                    {""},
		"one two three":       {"one two", "three"},
		"a  b":                {"a  b"},
		"/longer/than/a/line": {"/longer/than/a/line"},
		"rm /longer/than/a":   {"rm", "/longer/than/a"},
	} {
		if got := FoldAtBlanks(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
