package integrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const gooseText = `# mine
GOOSE_PROVIDER: openai
extensions:
  developer:
    enabled: true
    name: developer
    type: builtin
  slack: # chat
    args:
    # yes
    - -y
    - '@x/server-slack'   # the server
    cmd: npx
    enabled: true
    envs:
      T: "x"
    name: Slack Chat
    type: stdio
  quiet:
    type: stdio
    cmd: "/opt/quiet \"x\""
    args: []
  flow: {type: stdio, cmd: 'it''s', args: [a, "b c"], enabled: true}
  bare:
    type: stdio
    cmd: bare # none
  web:
    type: streamable_http
    uri: http://127.0.0.1:1/mcp
    timeout: 300
  secret:
    type: streamable_http
    uri: http://127.0.0.1:1/mcp
    headers: {A: $B}
`

const gooseWant = `# mine
GOOSE_PROVIDER: openai
extensions:
  developer:
    enabled: true
    name: developer
    type: builtin
  slack: # chat
    args:
    # yes
    - mcp-proxy
    - "--agent"
    - alice
    - "--token-file"
    - /t
    - "--name"
    - slack
    - "--"
    - npx
    - -y
    - '@x/server-slack'   # the server
    cmd: /usr/bin/ocipd
    enabled: true
    envs:
      T: "x"
    name: Slack Chat
    type: stdio
  quiet:
    type: stdio
    cmd: /usr/bin/ocipd
    args: [mcp-proxy, "--agent", alice, "--token-file", /t, "--name", quiet, "--", "/opt/quiet \"x\""]
  flow: {type: stdio, cmd: /usr/bin/ocipd, args: [mcp-proxy, "--agent", alice, "--token-file", /t, "--name", flow, "--", "it's", a, "b c"], enabled: true}
  bare:
    type: stdio
    cmd: /usr/bin/ocipd
    args: [mcp-proxy, "--agent", alice, "--token-file", /t, "--name", bare, "--", bare] # none
  web:
    type: stdio
    cmd: /usr/bin/ocipd
    args: [mcp-proxy, "--agent", alice, "--token-file", /t, "--name", web, "--", /usr/bin/ocipd, mcp-connect, "--url", "http://127.0.0.1:1/mcp", web]
    timeout: 300
  secret:
    type: streamable_http
    uri: http://127.0.0.1:1/mcp
    headers: {A: $B}
`

func goosePlace(t *testing.T, text string) (*Place, string) {
	t.Helper()
	p, file := place(t, ".config/goose/config.yaml", text)
	p.Reach = func(string, map[string]string) error { return nil }
	return p, file
}

// Goose's extensions go behind the proxy with every other byte of its configuration kept, and come out
// again: byte for byte, and without the former text for a file that was changed meanwhile.
func TestGooseServers(t *testing.T) {
	t.Parallel()
	r := Find("goose")
	p, file := goosePlace(t, gooseText)
	plan, err := r.Behind(p, "alice")
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); got != gooseWant {
		t.Fatalf("it became\n%s", got)
	}
	servers, err := r.Servers(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		if s := &servers[i]; s.Gated() != (s.Name != "secret") {
			t.Errorf("%s: %s", s.Name, s.Why(p))
		}
	}
	if again, err := r.Behind(p, "alice"); err != nil || !again.Empty() {
		t.Errorf("a second time: %v, %v", again.Changes, err)
	}
	if err := os.WriteFile(file, []byte(gooseWant+"later: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := r.Remove(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Apply(); err != nil {
		t.Fatal(err)
	}
	// Quotes that a text does not need are gone, and the two arguments that were none are there.
	want := strings.NewReplacer("'it''s'", `"it's"`, "cmd: bare # none", "cmd: bare\n    args: [] # none", "uri: http://127.0.0.1:1/mcp\n    timeout", "uri: \"http://127.0.0.1:1/mcp\"\n    timeout").Replace(gooseText) + "later: 1\n"
	if got := read(t, file); got != want {
		t.Errorf("taken out it is\n%s", got)
	}
}

// Nobody but a byte-for-byte copy of the file is left if nothing has changed it.
func TestGooseGivenBack(t *testing.T) {
	t.Parallel()
	r := Find("goose")
	p, file := goosePlace(t, gooseText)
	p.Tools = true
	plan, err := r.Behind(p, "alice")
	if err == nil {
		err = plan.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
	hooks := filepath.Join(p.Home, ".agents/plugins/ocipd/hooks/hooks.json")
	if text := read(t, hooks); !strings.Contains(text, "hook goose") || strings.Contains(text, withoutFlag) {
		t.Errorf("the hook leaves calls to the proxy, which a recipe's extension of the same name does not pass: %s", text)
	}
	out, err := r.Remove(p)
	if err == nil {
		err = out.Apply()
	}
	if _, there := os.Stat(filepath.Join(p.Home, ".agents")); err != nil || read(t, file) != gooseText || there == nil {
		t.Errorf("%v, %v:\n%s", err, there, read(t, file))
	}
}

// A configuration that Goose or ocipd cannot read, or should not change, is named, and stays as it is.
func TestGooseUnreadable(t *testing.T) {
	t.Parallel()
	r := Find("goose")
	for text, want := range map[string]string{
		"extensions: [":                   "config.yaml: it is no YAML",
		"- a\n":                           "config.yaml: its top is no mapping",
		"a: 1\n---\nb: 2\n":               "more than one document",
		"extensions: [1]\n":               "line 1: extensions is no mapping",
		"extensions:\n  a: {}\n  a: {}\n": `line 3: the key "a" is there twice`,
	} {
		p, file := goosePlace(t, text)
		if _, err := r.Behind(p, "alice"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if read(t, file) != text {
			t.Errorf("%q was changed", text)
		}
	}
	for _, text := range []string{
		"", "# nothing\n", "extensions:\n", "extensions: {}\n",
		"extensions:\n  a:\n    type: stdio\n    cmd: >\n      folded\n    args: []\n",
		"x: &x\n  type: stdio\n  cmd: npx\n  args: []\nextensions:\n  a: *x\n",
		"extensions:\n  a:\n    type: stdio\n    cmd: npx\n    args:\n    - &b one\n",
		"extensions:\n  a:\n    type: stdio\n    cmd: npx\n    args: 7\n",
	} {
		p, file := goosePlace(t, text)
		plan, err := r.Behind(p, "alice")
		if err != nil || !plan.Empty() {
			t.Errorf("%q: %v, %v", text, plan, err)
		}
		if servers, err := r.Servers(p); err != nil || slices.ContainsFunc(servers, func(s Server) bool { return s.Gated() || s.Closable() }) {
			t.Errorf("%q: %v, %v", text, servers, err)
		}
		if read(t, file) != text {
			t.Errorf("%q was changed", text)
		}
	}
}

// Members that were put into an entry of ocipd, and the setting with which Goose leaves the plugin out,
// are found and taken out.
func TestGooseSwitches(t *testing.T) {
	t.Parallel()
	r := Find("goose")
	p, file := goosePlace(t, "extensions:\n  a:\n    type: stdio\n    cmd: npx\n    args: []\n")
	p.Tools, p.Folder = true, t.TempDir()
	plan, err := r.Behind(p, "alice")
	if err == nil {
		err = plan.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
	good := read(t, file)
	plugin := filepath.Join(p.Home, ".agents/plugins/ocipd")
	bad := strings.Replace(good, "    cmd:", "    envs:\n      LD_PRELOAD: /x.so\n    cmd:", 1) + "plugins:\n  " + plugin + ":\n    enabled: false\n"
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	strays, err := r.Strays(p)
	if err != nil || len(strays) != 2 || !strings.Contains(strays[0].What, "LD_PRELOAD") || !strings.Contains(strays[1].What, "enabled is false, so that the hook does not run") {
		t.Fatalf("%v, %v", strays, err)
	}
	plan, err = r.Behind(p, "alice")
	if err == nil {
		err = plan.Apply()
	}
	if want := good + "plugins:\n  " + plugin + ":\n    enabled: true\n"; err != nil || read(t, file) != want {
		t.Errorf("%v:\n%s", err, read(t, file))
	}
	if strays, err := r.Strays(p); err != nil || len(strays) > 0 {
		t.Errorf("%v, %v", strays, err)
	}
	for name, text := range map[string]string{
		".config/goose/settings.local.json":         `{"disabledPlugins":["ocipd"]}`,
		".agents/plugins/ocipd/.plugin/plugin.json": `{}`,
	} {
		there := filepath.Join(p.Folder, name)
		if err := os.MkdirAll(filepath.Dir(there), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(there, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	strays, err = r.Strays(p)
	if err != nil || len(strays) != 2 || strays[0].Scope != p.Folder || strays[1].File != filepath.Join(p.Folder, ".agents/plugins/ocipd") {
		t.Errorf("%v, %v", strays, err)
	}
}

// What is parsed, changed and taken out again is as before, whatever the text.
func FuzzGoose(f *testing.F) {
	f.Add(gooseText)
	f.Add(gooseWant)
	f.Add("extensions: {a: {type: stdio, cmd: x, args: []}}")
	f.Add("extensions:\n  a:\n    type: stdio\n    args:\n    -\n      x\n    cmd: y")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := readGoose("f", []byte(text))
		if err != nil {
			return
		}
		for i := range entries {
			e := &entries[i]
			if e.Command == "" || e.direct {
				continue
			}
			after := e.replace([]byte(text), self, slices.Concat([]string{"a b", e.Command}, e.Args))
			again, err := readGoose("f", after)
			if err != nil || len(again) != len(entries) {
				continue // what is written is checked before a file is changed
			}
			for n := range again {
				if n != i && !slices.Equal(again[n].words(), entries[n].words()) {
					t.Fatalf("%q: %v became %v in %q", text, entries[n].words(), again[n].words(), after)
				}
			}
		}
	})
}
