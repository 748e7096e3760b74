package keypath

import (
	"reflect"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	tree := map[string]any{
		"channels": map[string]any{"telegram": map[string]any{"botToken": "t", "hosts": []any{"a", map[string]any{"b": 1}}}},
		"apps":     map[string]any{"@acme/x.y": map[string]any{"key": "v"}, "": 0, "$": 1, "é ü": 2, "q\"'\\\n": 3, "0": 4, "nil": nil},
	}
	for _, tt := range []struct {
		path string
		want any
		ok   bool
	}{
		{"channels.telegram.botToken", "t", true},
		{"$.channels.telegram.botToken", "t", true},
		{"$channels", nil, false},
		{`$["channels"]["telegram"].botToken`, "t", true},
		{"channels.telegram.hosts[0]", "a", true},
		{"channels.telegram.hosts[1].b", 1, true},
		{"channels.telegram.hosts[2]", nil, false},
		{"channels.telegram.hosts.b", nil, false},
		{"channels.telegram[0]", nil, false},
		{"channels.telegram.botToken.x", nil, false},
		{"Channels", nil, false},
		{`apps["@acme/x.y"].key`, "v", true},
		{`apps['@acme/x.y'].key`, "v", true},
		{`apps.@acme/x.y`, nil, false},
		{`apps[""]`, 0, true},
		{`apps.$`, 1, true},
		{`apps["é ü"]`, 2, true},
		{`apps["\u00e9 ü"]`, 2, true},
		{`apps["q\"'\\\n"]`, 3, true},
		{`apps['q"\'\\\n']`, 3, true},
		{`apps.0`, 4, true},
		{`apps.nil`, nil, true},
	} {
		got, ok, err := Lookup(tree, tt.path)
		if tt.path == "$channels" {
			if err == nil {
				t.Errorf("%s was read", tt.path)
			}
			continue
		}
		if err != nil || ok != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s gives %v, %v, %v, want %v, %v", tt.path, got, ok, err, tt.want, tt.ok)
		}
	}
	for _, whole := range []string{"", "$"} {
		if got, ok, err := Lookup(tree, whole); err != nil || !ok || !reflect.DeepEqual(got, tree) {
			t.Errorf("%q is not the whole tree: %v, %v", whole, ok, err)
		}
	}
}

func TestMalformedPaths(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{".a", "a key is missing before the dot at character 1"},
		{"a.", "a key is missing at character 3"},
		{"$.", "a key is missing at character 3"},
		{"a..b", "a key is missing at character 3"},
		{"a[0]b", "want a dot or a bracket at character 5"},
		{"$a", "want a dot or a bracket at character 2"},
		{"a b", "want a dot or a bracket at character 2"},
		{"a[", "a bracket that holds neither an index nor a quoted key at character 2"},
		{"a[]", "neither an index nor a quoted key at character 2"},
		{"a[-1]", "neither an index nor a quoted key at character 2"},
		{"a[*]", "neither an index nor a quoted key at character 2"},
		{"a[99999999999]", "neither an index nor a quoted key at character 2"},
		{`a["b`, "does not end in a quote and a bracket at character 2"},
		{`a["b"`, "does not end in a quote and a bracket at character 2"},
		{`a["b']`, "does not end in a quote and a bracket at character 2"},
		{`a["\q"]`, "a broken escape in the quoted key at character 2"},
	} {
		_, err := Compile(tt.path)
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %s", tt.path, err, tt.want)
		}
		if _, _, again := Lookup(nil, tt.path); again == nil {
			t.Errorf("%q: Lookup read it", tt.path)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		watch, change string
		want          bool
	}{
		{"channels.telegram", "channels.telegram.botToken", true},
		{"channels.telegram.botToken", "channels.telegram", true},
		{"channels.telegram.hosts[0].b", "channels.telegram.hosts", true},
		{"channels.telegram", "channels.telegram", true},
		{"", "apps.x", true},
		{"channels.telegram", "channels.telegram2", false},
		{"channels.telegram", "channels.irc.telegram", false},
		{`apps["a.b"]`, "apps.a.b", false},
		{"a[0]", "a[1]", false},
		{"a[0]", `a["0"]`, false},
	} {
		watch, err := Compile(tt.watch)
		if err != nil {
			t.Fatal(err)
		}
		change, err := Compile(tt.change)
		if err != nil {
			t.Fatal(err)
		}
		if got := watch.Covers(change); got != tt.want {
			t.Errorf("%q covers %q: %v, want %v", tt.watch, tt.change, got, tt.want)
		}
	}
}

func TestDiff(t *testing.T) {
	before := map[string]any{
		"b":    map[string]any{"same": 1, "gone": "x", "list": []any{1, 2}, "leaf": 1, "tree": map[string]any{"k": 1}},
		"a.b":  1,
		"none": map[string]any{},
		"kept": []any{map[string]any{"x": 1}},
	}
	after := map[string]any{
		"b":    map[string]any{"same": 1, "new": map[string]any{"Deep": true, "empty": map[string]any{}}, "list": []any{2, 1}, "leaf": map[string]any{"k": 1}, "tree": 2},
		"a.b":  2,
		"none": map[string]any{"x": 1},
		"kept": []any{map[string]any{"x": 1}},
	}
	want := []Change{
		{`["a.b"]`, 1, 2},
		{"b.gone", "x", nil},
		{"b.leaf", 1, nil},
		{"b.leaf.k", nil, 1},
		{"b.list", []any{1, 2}, []any{2, 1}},
		{"b.new.Deep", nil, true},
		{"b.new.empty", nil, map[string]any{}},
		{"b.tree", nil, 2},
		{"b.tree.k", 1, nil},
		{"none", map[string]any{}, nil},
		{"none.x", nil, 1},
	}
	got := Diff(before, after)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	for _, c := range got {
		was, _, err := Lookup(before, c.Path)
		is, _, err2 := Lookup(after, c.Path)
		if err != nil || err2 != nil || c.Old != nil && !reflect.DeepEqual(was, c.Old) || c.New != nil && !reflect.DeepEqual(is, c.New) {
			t.Errorf("%s leads to %v and %v, want %v and %v", c.Path, was, is, c.Old, c.New)
		}
	}
	if same := Diff(before, before); same != nil {
		t.Errorf("a tree differs from itself: %v", same)
	}
	if all := Diff(nil, map[string]any{"a": map[string]any{"b": 1}}); len(all) != 1 || all[0].Path != "a.b" {
		t.Errorf("got %v", all)
	}
}

func TestPathIsNotShared(t *testing.T) {
	base := make(Path, 0, 8).Key("a")
	one, two := base.Key("b"), base.Key("c")
	if one.String() != "a.b" || two.String() != "a.c" {
		t.Errorf("got %s and %s", one, two)
	}
}

// FuzzPath checks that a path and its text, and a key and its path, convert into each other.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "$", "a.b[0]", `apps["@acme/x.y"].key`, `$['q"\''][12]`, "a\xff.b", "$.é", `["\xff\u00e9"]`, "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := Compile(s); err == nil {
			again, err := Compile(p.String())
			if err != nil || !reflect.DeepEqual(again, p) {
				t.Fatalf("%q is printed as %q, which reads as %v, %v", s, p, again, err)
			}
			if !p.Covers(again) || !again.Covers(p) {
				t.Fatalf("%q does not cover itself", s)
			}
		}
		changes := Diff(nil, map[string]any{s: map[string]any{s: 1}})
		if len(changes) != 1 {
			t.Fatalf("got %v", changes)
		}
		got, ok, err := Lookup(map[string]any{s: map[string]any{s: 1}}, changes[0].Path)
		if err != nil || !ok || got != 1 {
			t.Fatalf("key %q is printed as %s, which gives %v, %v, %v", s, changes[0].Path, got, ok, err)
		}
	})
}
