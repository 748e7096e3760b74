package settingsfile

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Comments and commas before a closing bracket become spaces, and nothing else does.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1}`:                         `{"a": 1}`,
		"{ // x \"\n\"a\": [1, 2,], }":     "{       \n\"a\": [1, 2 ]  }",
		`{"a": /* , ] */ "// \" /*", }`:    `{"a":           "// \" /*"  }`,
		"{\"a\": 1, // the last\r\n /**/}": "{\"a\": 1             \r\n     }",
		`{"a": [ , ]}`:                     `{"a": [ , ]}`,
		`{} /*/`:                           `{} /*/`,
		`{"a`:                              `{"a`,
		`[1,,]`:                            `[1,,]`,
		`[1,"]"]`:                          `[1,"]"]`,
	} {
		if got := string(Plain([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if jsontext.Value(Plain([]byte(`[1,,]`))).IsValid() || jsontext.Value(Plain([]byte(`{} /*/`))).IsValid() {
		t.Error("a broken text became JSON")
	}
}

// A member is removed with its comma from among comments.
func TestCommented(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"m": {"a": 1, /* b */ "x": 2, "c": 3,}} // end`: `{"m": {"a": 1, "c": 3,}} // end`,
		`{"m": {"x": 2}, "n": [1,],}`:                     `{"n": [1,],}`,
		`{"n": 1}`:                                        `{"n": 1}`,
	} {
		got, err := (&Commented{JSON{Path: []string{"m"}, Name: "x"}}).Strip([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q became %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := (&Commented{JSON{Path: []string{"m"}, Name: "x"}}).Strip([]byte(`{"m": {"x": 2}, }`)); err == nil {
		t.Errorf("a comma alone is left: %q", got)
	}
}

// A file of ours is entered whole, and one of somebody else is not removed.
func TestWhole(t *testing.T) {
	t.Parallel()
	w := &Whole{Text: "const a = 1\n// more\nb\n", Begins: "const a = "}
	text, err := w.Add([]byte("theirs"))
	if strays, failed := w.Strays(text); err != nil || failed != nil || len(strays) > 0 {
		t.Errorf("%v, %v, %v", strays, err, failed)
	}
	for is, want := range map[string]string{w.Text: "", "const a = 2\n": "", "theirs": "theirs"} {
		if got, err := w.Strip([]byte(is)); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", is, got, err)
		}
	}
	for is, want := range map[string]string{"": "missing", "const a = 2\n": "not as it was entered"} {
		if got, err := w.Strays([]byte(is)); err != nil || len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %v, %v", is, got, err)
		}
	}
	if got := w.String(); got != "const a = 1\n… and 2 lines" {
		t.Errorf("shown as %q", got)
	}
}

// Whatever a text is, its plain form has its length and its lines, and what is JSON stays as it is.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{`{"a": [1,], /* x */ "b": "//"} // y`, "{\n}", `"\"`, `/*`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Plain(text)
		if len(got) != len(text) || bytes.Count(got, []byte("\n")) != bytes.Count(text, []byte("\n")) {
			t.Fatalf("%q became %q", text, got)
		}
		if jsontext.Value(text).IsValid() && !bytes.Equal(got, text) {
			t.Fatalf("JSON %q became %q", text, got)
		}
		if again := Plain(got); jsontext.Value(got).IsValid() && !bytes.Equal(again, got) {
			t.Fatalf("%q became %q, and that %q", text, got, again)
		}
	})
}
