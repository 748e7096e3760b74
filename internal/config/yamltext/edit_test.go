package yamltext_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
)

func TestEdit(t *testing.T) {
	grant := keypath.Path{}.Key("access").Key("apps").Key("@a/b").Key("channels")
	uid := keypath.Path{}.Key("agents").Index(0).Key("uid")
	for _, tt := range []struct {
		name, text string
		at         keypath.Path
		value      string
		want       string // empty: it is refused
	}{
		{"nothing", "", keypath.Path{}.Key("directory_file"), "x.jsonl", "directory_file: x.jsonl\n"},
		{"comments", "# mine", keypath.Path{}.Key("directory_file"), "x.jsonl", "# mine\ndirectory_file: x.jsonl\n"},
		{"at the end", "log: {}", keypath.Path{}.Key("directory_file"), "x.jsonl", "log: {}\ndirectory_file: x.jsonl\n"},
		{"empty text", "a: 1\ndirectory_file: \"\" # none\nb: 2\n", keypath.Path{}.Key("directory_file"), "x.jsonl", "a: 1\ndirectory_file: x.jsonl # none\nb: 2\n"},
		{"plain text", "directory_file: old.jsonl # none\n", keypath.Path{}.Key("directory_file"), "x.jsonl", "directory_file: x.jsonl # none\n"},
		{"no value", "directory_file:\nlog: {}\n", keypath.Path{}.Key("directory_file"), "x.jsonl", "directory_file: x.jsonl\nlog: {}\n"},
		{"braces", "{log: {}}\n", keypath.Path{}.Key("directory_file"), "x.jsonl", "{directory_file: x.jsonl, log: {}}\n"},
		{"a whole branch", "log: {}\n", grant, "[irc]", "log: {}\naccess: {apps: {\"@a/b\": {channels: [irc]}}}\n"},
		{"an empty branch", "access:\n  apps: {} # none\n", grant, "[irc]", "access:\n  apps: {\"@a/b\": {channels: [irc]}} # none\n"},
		{"another app", "access:\n  # who\n  apps:\n    # that one\n    \"@a/c\": {}\n", grant, "[irc]", "access:\n  # who\n  apps:\n    # that one\n    \"@a/b\": {channels: [irc]}\n    \"@a/c\": {}\n"},
		{"another grant", "access:\n  apps:\n    \"@a/b\":\n      tenants: [x]\n", grant, "[irc]", "access:\n  apps:\n    \"@a/b\":\n      channels: [irc]\n      tenants: [x]\n"},
		{"another item", "access: {apps: {\"@a/b\": {channels: [x, y]}}}\n", grant, "irc", "access: {apps: {\"@a/b\": {channels: [irc, x, y]}}}\n"},
		{"an item below others", "access:\n  apps:\n    \"@a/b\":\n      channels:\n        - x\n", grant, "irc", "access:\n  apps:\n    \"@a/b\":\n      channels:\n        - irc\n        - x\n"},
		{"other apps", "access:\n  channels: {irc: {case: ascii}}\n", grant, "[irc]", "access:\n  apps: {\"@a/b\": {channels: [irc]}}\n  channels: {irc: {case: ascii}}\n"},
		{"an agent", "agents:\n  - id: ä # me\n    app: x\n", uid, "7", "agents:\n  - uid: 7\n    id: ä # me\n    app: x\n"},
		{"an agent in braces", "agents:\n  - {id: ä}\n", uid, "7", "agents:\n  - {uid: 7, id: ä}\n"},
		{"behind letters", "a: {ä: {}, log: {}}\n", keypath.Path{}.Key("a").Key("log").Key("x"), "7", "a: {ä: {}, log: {x: 7}}\n"},
		{"no such item", "agents: []\n", uid, "7", ""},
		{"another kind", "access: x\n", grant, "[irc]", ""},
		{"no mapping", "[1]\n", grant, "[irc]", ""},
		{"an alias", "a: &a {}\naccess: *a\n", grant, "[irc]", ""},
		{"escapes", "directory_file: \"\\x41\"\n", keypath.Path{}.Key("directory_file"), "x.jsonl", ""},
		{"a hidden line", "# a\u2028b: c\n", grant, "[irc]", ""},
		{"no YAML", "a: [\n", grant, "[irc]", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := yamltext.Edit([]byte(tt.text), tt.at, tt.value)
			if (err != nil) != (tt.want == "") || string(got) != tt.want {
				t.Errorf("got %v\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

// FuzzEdit checks that an added value is in the result and nothing else has changed, or
// that it is refused.
func FuzzEdit(f *testing.F) {
	f.Add("log: {level: debug}\n", "x")
	f.Add("# c\r\nlog:\r\n  level: debug\r\naccess:\n  apps: {}\n", "@a/b")
	f.Add("{\"log\": {\"level\": \"debug\"}}", "é\"\n")
	f.Fuzz(func(t *testing.T, text, app string) {
		before, err := config.Parse("f", []byte(text))
		if err != nil || before.Access.Apps != nil {
			return
		}
		app = "@a/" + strings.ToValidUTF8(app, "")
		out, err := yamltext.Edit([]byte(text), keypath.Path{}.Key("access").Key("apps").Key(app).Key("channels"), "[irc]")
		if err != nil {
			return
		}
		after, err := config.Parse("f", out)
		if err != nil {
			return // not every text is an app's id, and the caller checks
		}
		if d := after.Since(before); len(d.Keys) != 1 || d.Keys[0] != "access.apps" || len(after.Access.Apps[app].Channels) != 1 {
			t.Errorf("%q became %q: %+v", text, out, d)
		}
	})
}
