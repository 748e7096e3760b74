package settingsfile

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/test/buildtest"
	"github.com/pelletier/go-toml/v2"
)

func TestMain(m *testing.M) { buildtest.Isolated(m).Run() }

// From any TOML text, a table and a value are removed without anything else, and the text stays valid.
func TestWithout(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"a table":                    {"a = 1\n[x.y]\nb = 2\n[z]\n", "a = 1\n[z]\n"},
		"with tables below it":       {"[x.y]\nb = 2\n[x.y.env]\nA = \"b\"\n# of z\n\n# too\n[z]\n", "# of z\n\n# too\n[z]\n"},
		"the last one, with no line": {"a = 1\n[x.y]\nb = 2", "a = 1\n"},
		"a dotted key":               {"x.y.b = 2\na = 1\n", "a = 1\n"},
		"a key of a table":           {"[x]\ny = [\n 1, # one\n 2,\n]\nz = 3\n", "[x]\nz = 3\n"},
		"in one line":                {"x = {y = 'a', z = \"}\"} # mine\n", "x = {\"z\" = \"}\"} # mine\n"},
		"two parts of one":           {"[x.y]\na = 1\n[z]\nb = 1\n[x.y.q]\nc = 1\n", "[z]\nb = 1\n"},
		"another one":                {"[x.yy]\na = 1\n['x.y']\n", "[x.yy]\na = 1\n['x.y']\n"},
	} {
		got, err := (&Key{Path: []string{"x", "y"}}).Strip([]byte(tt.text))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
	if _, err := (&Key{Path: []string{"x", "y"}}).Strip([]byte("x = {y = 'a', z = [1]}\n")); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("a value that cannot be written anew: %v", err)
	}
}

// A block stays in its place, whatever another program adds around it, and is removed alone.
func TestBlock(t *testing.T) {
	t.Parallel()
	b := &Block{Text: "[s.gate]\ncommand = \"x\"\n\n[h.state.\"k:0\"]\nhash = \"1\"\n", Tables: [][]string{{"s", "gate"}, {"h", "state"}}}
	for _, before := range []string{"", "a = 1\n", "a = 1", "[s.other]\ncommand = 'y'\n# end\n"} {
		with, err := b.Add([]byte(before))
		if err != nil {
			t.Fatal(err)
		}
		if strays, err := b.Strays(with); err != nil || len(strays) > 0 {
			t.Errorf("%q: %v, %v", with, strays, err)
		}
		if got, err := b.Strip(with); err != nil || strings.TrimSuffix(string(got), "\n") != strings.TrimSuffix(before, "\n") {
			t.Errorf("%q became %q, %v", before, got, err)
		}
		// A block of an earlier version had other tables.
		if got, err := (&Block{Tables: b.Tables}).Strip(with); err != nil || strings.TrimSuffix(string(got), "\n") != strings.TrimSuffix(before, "\n") {
			t.Errorf("without a text %q became %q, %v", before, got, err)
		}
		within := strings.Replace(string(with), ends, "[tui]\nx = 1\n"+ends, 1)
		if strays, err := b.Strays([]byte(within)); err != nil || len(strays) > 0 {
			t.Errorf("%q: %v, %v", within, strays, err)
		}
		got, err := b.Strip([]byte(within))
		var whole map[string]any
		if err != nil || toml.Unmarshal(got, &whole) != nil || Under(whole, []string{"tui", "x"}) == nil || strings.Contains(string(got), "gate") {
			t.Errorf("%q became %q, %v", within, got, err)
		}
	}
	if _, err := b.Strip([]byte(begins + "x = 1\n")); err == nil {
		t.Error("a block without an end was taken out")
	}
}

// Differences are reported with their place.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is, want string
		says     []string
	}{
		{`{"a":1,"b":[1,{"c":"x"}]}`, `{"b":[1,{"c":"x"}],"a":1.0}`, nil},
		{`{"a":1,"z":0}`, `{"a":2,"b":3}`, []string{"it.a is 1, and 2 was entered", "it.b is missing", "it.z was not entered"}},
		{`{"b":[1,{"c":"x"}]}`, `{"b":[1,{"c":"y"}]}`, []string{`it.b[1].c is "x", and "y" was entered`}},
		{`{"b":[1]}`, `{"b":[1,2]}`, []string{"it.b has 1 elements, and 2 were entered"}},
		{`[]`, `{}`, []string{"it is [], and {} was entered"}},
	} {
		if got := Differences("it", jsontext.Value(tt.is), jsontext.Value(tt.want)); !slices.Equal(got, tt.says) {
			t.Errorf("%s and %s: %q, want %q", tt.is, tt.want, got, tt.says)
		}
	}
}

func FuzzJSONItem(f *testing.F) {
	for _, text := range []string{``, `{}`, `{"hooks":{"PreToolUse":[1, {"a":[]} ]}}`, `{"hooks" : {} , "x":1}`, `[]`, `{"hooks":[]}`} {
		f.Add(text)
	}
	const group = `{"matcher":"*","server":"gate"}`
	isOurs := func(v jsontext.Value) bool { return strings.Contains(string(v), `"server":"gate"`) }
	f.Fuzz(func(t *testing.T, text string) {
		for _, i := range []*JSON{{Path: []string{"hooks", "PreToolUse"}, Ours: isOurs, Value: group}, {Path: []string{"mcpServers"}, Name: "gate", Value: `{"command":"x"}`}} {
			bare, err := i.Strip([]byte(text))
			if err != nil {
				continue
			}
			with, err := i.Add(bare)
			if err != nil {
				continue
			}
			if strays, err := i.Strays(with); err != nil || len(strays) > 0 {
				t.Fatalf("%q became %q: %v", text, with, err)
			}
			again, err := i.Strip(with)
			if err != nil || strings.Contains(string(again), "gate") && !strings.Contains(text, "gate") {
				t.Fatalf("%q became %q and then %q: %v", text, with, again, err)
			}
		}
	})
}
