package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const self = "/usr/bin/ocipd"

// place makes a home with one file in it.
func place(t *testing.T, name, text string) (*Place, string) {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return &Place{Home: home, Getenv: func(string) string { return "" }, Self: self, Token: "/t", Notes: filepath.Join(home, "state", "integrations")}, file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runtimeTests are files as runtimes and people write them.
var runtimeTests = []struct {
	name, runtime, file, text, want string
}{
	{"claude", "claude-code", ".claude.json",
		`{"numStartups": 12345678901234567890, "mcpServers": {"slack": {"type":"stdio","command":"npx","args":["-y","server-slack"],"env":{"T":"x"}}, "web":{"type":"http","url":"https://x"}},` + "\n" + `  "projects": {"/w": {"mcpServers": {"local":{"command":"/bin/l"}}, "history":[]}}}`,
		`{"numStartups": 12345678901234567890, "mcpServers": {"slack": {"type":"stdio","command":"/usr/bin/ocipd","args":["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "slack", "--", "npx", "-y", "server-slack"],"env":{"T":"x"}}, "web":{"type":"http","url":"https://x"}},` + "\n" + `  "projects": {"/w": {"mcpServers": {"local":{"command":"/usr/bin/ocipd", "args": ["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "local", "--", "/bin/l"]}}, "history":[]}}}`},
	{"claude, arguments first", "claude-code", ".claude.json",
		`{"mcpServers":{"a":{"args":[],"env":{},"command":"x \"y\" é"}}}`,
		`{"mcpServers":{"a":{"args":["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "a", "--", "x \"y\" é"],"env":{},"command":"/usr/bin/ocipd"}}}`},
	{"claude, nothing to do", "claude-code", ".claude.json", `{"a":1}`, `{"a":1}`},
	{"claude, the daemon's own", "claude-code", ".claude.json",
		`{"mcpServers":{"ocipd":{"command":"/usr/bin/ocipd","args":["mcp","--token-file","t"]}}}`,
		`{"mcpServers":{"ocipd":{"command":"/usr/bin/ocipd","args":["mcp","--token-file","t"]}}}`},
	{"claude, another program of the name", "claude-code", ".claude.json",
		`{"mcpServers":{"ocipd":{"command":"/opt/ocipd","args":["mcp"]}}}`,
		`{"mcpServers":{"ocipd":{"command":"/usr/bin/ocipd","args":["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "ocipd", "--", "/opt/ocipd", "mcp"]}}}`},
	{"codex", "codex", ".codex/config.toml",
		"# mine\nmodel = \"o\"\n\n[mcp_servers.slack] # chat\ncommand = 'npx' # why\nargs = [\n  \"-y\", # yes ]\n  'server-slack',\n]\n[mcp_servers.slack.env]\nT = \"x\"\n\n[mcp_servers.\"odd name\"]\ncommand = \"a\"\n[mcp_servers.web]\nurl = \"https://x\"\n",
		"# mine\nmodel = \"o\"\n\n[mcp_servers.slack] # chat\ncommand = \"/usr/bin/ocipd\" # why\nargs = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"slack\", \"--\", \"npx\", \"-y\", \"server-slack\"]\n[mcp_servers.slack.env]\nT = \"x\"\n\n[mcp_servers.\"odd name\"]\ncommand = \"/usr/bin/ocipd\"\nargs = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"odd name\", \"--\", \"a\"]\n[mcp_servers.web]\nurl = \"https://x\"\n"},
	{"codex, dotted keys and an empty list", "codex", ".codex/config.toml",
		"mcp_servers.b.args = []\nmcp_servers.b.command = \"\"\"b\"\"\"\n",
		"mcp_servers.b.args = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"b\", \"--\", \"b\"]\nmcp_servers.b.command = \"/usr/bin/ocipd\"\n"},
	{"codex, no line at the end", "codex", ".codex/config.toml",
		"[mcp_servers.b]\ncommand = \"b\"",
		"[mcp_servers.b]\ncommand = \"/usr/bin/ocipd\"\nargs = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"b\", \"--\", \"b\"]"},
	{"opencode", "opencode", ".config/opencode/opencode.jsonc",
		"{ // mine\n  \"model\": \"//o\", /* , */ \"mcp\": {\n    \"timeout\": 9,\n    \"slack\": {\"type\": \"local\", \"command\": [ \"npx\", \"server \\\"slack\\\"\", ], \"enabled\": true, }, // chat\n    \"off\": {\"enabled\": false},\n  },\n}\n",
		"{ // mine\n  \"model\": \"//o\", /* , */ \"mcp\": {\n    \"timeout\": 9,\n    \"slack\": {\"type\": \"local\", \"command\": [\"/usr/bin/ocipd\", \"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"slack\", \"--\", \"npx\", \"server \\\"slack\\\"\"], \"enabled\": true, }, // chat\n    \"off\": {\"enabled\": false},\n  },\n}\n"},
	{"opencode, the later form", "opencode", ".config/opencode/opencode.json",
		`{"mcp":{"servers":{"b":{"command":["b"],"type":"local","disabled":false}}}}`,
		`{"mcp":{"servers":{"b":{"command":["/usr/bin/ocipd", "mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "b", "--", "b"],"type":"local","disabled":false}}}}`},
	{"opencode, a server of that name", "opencode", ".config/opencode/opencode.json",
		`{"mcp":{"servers":{"type":"local","command":["b"],"environment":{"T":"x"}}}}`,
		`{"mcp":{"servers":{"type":"local","command":["/usr/bin/ocipd", "mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "servers", "--", "b"],"environment":{"T":"x"}}}}`},
	{"opencode, the daemon's own", "opencode", ".config/opencode/config.json",
		`{"mcp":{"ocipd":{"type":"local","command":["/usr/bin/ocipd","mcp","--token-file","t"]}}}`,
		`{"mcp":{"ocipd":{"type":"local","command":["/usr/bin/ocipd","mcp","--token-file","t"]}}}`},
}

// A server goes behind the proxy, once, and comes out again unchanged. Everything else in
// the file stays byte for byte.
func TestBehindAndBack(t *testing.T) {
	for _, tt := range runtimeTests {
		t.Run(tt.name, func(t *testing.T) {
			r := Find(tt.runtime)
			p, file := place(t, tt.file, tt.text)
			for range 2 {
				plan, err := r.Behind(p, "alice")
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, file); len(plan.Changes) > 0 && got != tt.text {
					t.Fatalf("a plan has changed the file to\n%s", got)
				}
				if err := plan.Apply(); err != nil {
					t.Fatal(err)
				}
				if got := read(t, file); got != tt.want {
					t.Fatalf("got\n%s\nwant\n%s", got, tt.want)
				}
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("the file's mode: %v, %v", info.Mode(), err)
			}
			servers, err := r.Servers(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range servers {
				if s.Command != "" && !s.Gated() {
					t.Errorf("%s is not gated", s.Name)
				}
			}
			plan, err := r.Remove(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Apply(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, file); got != tt.text {
				t.Errorf("after removing\n%s\nwant\n%s", got, tt.text)
			}
			if _, err := os.Stat(r.noteFile(p)); err == nil {
				t.Error("a note stays")
			}
		})
	}
}

// Changes by others stay: only our own entries are removed.
func TestRemoveKeepsOthersChanges(t *testing.T) {
	for _, tt := range runtimeTests {
		r := Find(tt.runtime)
		p, file := place(t, tt.file, tt.text)
		plan, err := r.Behind(p, "alice")
		if err == nil {
			err = plan.Apply()
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		more := "\n"
		if tt.runtime == "codex" {
			more = "\n[other]\nx = 1\n"
		}
		text := read(t, file) + more
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := r.Servers(p)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		plan, err = r.Remove(p)
		if err == nil {
			err = plan.Apply()
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := read(t, file)
		if !strings.HasSuffix(got, more) {
			t.Errorf("%s: what was added is gone:\n%s", tt.name, got)
		}
		after, err := r.Servers(p)
		if err != nil || len(after) != len(before) {
			t.Fatalf("%s: %d servers, want %d, %v", tt.name, len(after), len(before), err)
		}
		for _, s := range after {
			if s.Agent != "" || !s.Own && s.Command == self {
				t.Errorf("%s: %s is still behind the proxy: %q %q", tt.name, s.Name, s.Command, s.Args)
			}
		}
	}
}

// Another agent replaces the first: there is never a proxy behind a proxy.
func TestAnotherAgent(t *testing.T) {
	p, file := place(t, ".claude.json", `{"mcpServers":{"a":{"command":"a","args":["--","b"]}}}`)
	for _, agent := range []string{"alice", "bob"} {
		plan, err := claudeCode.Behind(p, agent)
		if err == nil {
			err = plan.Apply()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(read(t, file), "mcp-proxy"); got != 1 {
		t.Errorf("%d proxies:\n%s", got, read(t, file))
	}
	servers, err := claudeCode.Servers(p)
	if err != nil || len(servers) != 1 || servers[0].Agent != "bob" || !slices.Equal(servers[0].Args, []string{"mcp-proxy", "--agent", "bob", "--token-file", "/t", "--name", "a", "--", "a", "--", "b"}) {
		t.Errorf("%+v, %v", servers, err)
	}
}

// A file that the runtime writes between plan and change is not overwritten.
func TestChangedMeanwhile(t *testing.T) {
	p, file := place(t, ".claude.json", `{"mcpServers":{"a":{"command":"a"}}}`)
	plan, err := claudeCode.Behind(p, "alice")
	if err != nil {
		t.Fatal(err)
	}
	other := `{"mcpServers":{"a":{"command":"other"}}}`
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
		t.Errorf("got %v", err)
	}
	if got := read(t, file); got != other {
		t.Errorf("it was written: %s", got)
	}
}

// A failed removal can be repeated, and still restores the file byte for byte.
func TestRemovalThatHasFailed(t *testing.T) {
	t.Parallel()
	const before = "{ \"mcpServers\" : {\n\t\"a\":{\"command\":\"a\"} } }"
	p, file := place(t, ".claude.json", before)
	plan, err := claudeCode.Behind(p, "alice")
	apply(t, plan, err)
	behind := read(t, file)
	for _, text := range []string{behind + " ", behind} {
		plan, err := claudeCode.Remove(p)
		if err != nil {
			t.Fatal(err)
		}
		if text == behind {
			apply(t, plan, nil)
			break
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plan.Apply(); !errors.Is(err, ErrChanged) {
			t.Errorf("got %v", err)
		}
		if err := os.WriteFile(file, []byte(behind), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, file); got != before || claudeCode.Integrated(p) {
		t.Errorf("it is %s, and there is a note: %v", got, claudeCode.Integrated(p))
	}
}

// A link to the file stays a link.
func TestThroughALink(t *testing.T) {
	p, file := place(t, "dotfiles/claude.json", `{"mcpServers":{"a":{"command":"a"}}}`)
	link := filepath.Join(p.Home, ".claude.json")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	plan, err := claudeCode.Behind(p, "alice")
	if err == nil {
		err = plan.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
	if !strings.Contains(read(t, file), "mcp-proxy") {
		t.Error("the file was not changed")
	}
}

// A broken file is reported, and left alone.
func TestBrokenFiles(t *testing.T) {
	for _, tt := range []struct{ runtime, file, text, want string }{
		{"claude-code", ".claude.json", `{"mcpServers":`, "no JSON object"},
		{"claude-code", ".claude.json", `[]`, "no JSON object"},
		{"claude-code", ".claude.json", `{} {}`, "something stands behind it"},
		{"claude-code", ".claude.json", `{"mcpServers":[]}`, "mcpServers is no object"},
		{"claude-code", ".claude.json", `{"mcpServers":{"a":{"command":1}}}`, "mcpServers.a: command"},
		{"claude-code", ".claude.json", `{"mcpServers":{"a":{"command":"x","command":"y"}}}`, "duplicate"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp":{}} /*`, "opencode.json is no JSON object"},
		{"opencode", ".config/opencode/opencode.json", `[]`, "no JSON object"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp":[]}`, "mcp is no object"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp":{"a":{"type":"local","command":"x"}}}`, "mcp.a: command"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp":{"servers":{"a":{"type":"local","command":[1]}}}}`, "mcp.servers.a: command"},
		{"codex", ".codex/config.toml", "x = ", "cannot read"},
		{"codex", ".codex/config.toml", "[mcp_servers]\na = {command = \"x\"}\n", "table of its own"},
		{"codex", ".codex/config.toml", "[mcp_servers.a]\ncommand = 1\n", "cannot read"},
	} {
		p, file := place(t, tt.file, tt.text)
		if _, err := Find(tt.runtime).Behind(p, "alice"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
		if got := read(t, file); got != tt.text {
			t.Errorf("%q was changed to %q", tt.text, got)
		}
	}
	p, _ := place(t, ".claude.json", `{"mcpServers":{"a":{"command":"a"}}}`)
	p.Self = "/opt/\xff/ocipd"
	if _, err := claudeCode.Behind(p, "alice"); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("a path without UTF-8: %v", err)
	}
}

// For any content of the file, either nothing is planned, or the written text is read back as planned.
func FuzzBehind(f *testing.F) {
	for _, tt := range runtimeTests {
		f.Add(tt.runtime, []byte(tt.text))
	}
	f.Fuzz(func(t *testing.T, runtime string, text []byte) {
		r := Find(runtime)
		if r == nil || r.read == nil {
			return
		}
		entries, err := r.read("f", text)
		if err != nil {
			return
		}
		p := &Place{Self: self, Token: "/t"}
		after := text
		slices.SortFunc(entries, func(a, b entry) int { return a.command.begin - b.command.begin })
		for _, e := range slices.Backward(entries) {
			if e.Command != "" {
				command, args := p.before("alice", e.Name, e.Command, e.Args)
				after = e.replace(after, command, args)
			}
		}
		again, err := r.read("f", after)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, after, err)
		}
		for i, e := range again {
			if e.Command == "" {
				continue
			}
			if agent, _, _ := p.behind(&e.Server); agent != "alice" {
				t.Fatalf("%q became %q: server %d is %q %q", text, after, i, e.Command, e.Args)
			}
		}
		if !bytes.Equal(after, text) && len(entries) == 0 {
			t.Fatal("it was changed without a server in it")
		}
	})
}

// A server is gated only if this program starts the proxy exactly as entered. A server of
// this daemon is recognized by its sub-command. Entering again rewrites everything else.
func TestChangedEntriesAreOpen(t *testing.T) {
	t.Parallel()
	p := &Place{Self: "/usr/bin/ocipd"}
	for line, want := range map[string]string{
		"/usr/bin/ocipd mcp-proxy --agent a --token-file /t --name x -- npx x":                   "gated",
		"/usr/bin/ocipd --socket /s mcp-proxy --agent a --token-file /t -- npx x":                "gated",
		"/usr/bin/ocipd --socket /s --config /c mcp-proxy --agent a --token-file /t -- npx x":    "changed",
		"/usr/bin/ocipd --socket /s --socket /x mcp-proxy --agent a --token-file /t -- npx x":    "changed",
		"ocipd mcp-proxy --agent a --token-file /t --name x -- npx x":                            "changed",
		"/usr/bin/ocipd mcp-proxy --agent a --token-file /t --unmapped=pass -- npx x":            "changed",
		"/usr/bin/ocipd mcp-proxy --agent a --token-file /t --unmapped pass -- npx x":            "changed",
		"/usr/bin/ocipd mcp-proxy --map /empty.yaml --agent a --token-file /t --name x -- npx x": "changed",
		"/tmp/ocipd mcp-proxy --agent a --token-file /t --name x -- npx x":                       "changed",
		"/usr/bin/ocipd mcp-connect --url http://evil/ mcp":                                      "open",
		"/usr/bin/ocipd mcp": "own",
		"/usr/bin/ocipd --socket /s tool-gate --runtime claude-code":           "own",
		"/usr/bin/other mcp-proxy --agent a --token-file /t --name x -- npx x": "open",
	} {
		words := strings.Fields(line)
		s := &Server{Name: "x", Command: words[0], Args: words[1:]}
		s.Agent, s.Own, s.Changed = p.behind(s)
		got := "open"
		switch {
		case s.Own:
			got = "own"
		case s.Changed != "":
			got = "changed"
		case s.Agent != "":
			got = "gated"
		}
		if got != want || s.Gated() != (want == "gated" || want == "own") {
			t.Errorf("%s is %s, want %s: %s", line, got, want, s.Why(p))
		}
	}
}

// A server's name must not be mistaken for another's, and a changed entry is entered again.
func TestNamesAndChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, says string }{
		"two lines in a name": {`{"mcpServers":{"gh__x":{"command":"a"}}}`, "gh__x"},
		"a line at its end":   {`{"mcpServers":{"gh_":{"command":"a"}}}`, `"gh_"`},
		"a dot at its end":    {`{"mcpServers":{"gh.":{"command":"a"}}}`, `"gh."`},
		"a mark at its end":   {`{"mcpServers":{"gh!":{"command":"a"}}}`, `"gh!"`},
		"a space and a dot":   {`{"mcpServers":{"gh. x":{"command":"a"}}}`, `"gh. x"`},
		"a map of one's own":  {`{"mcpServers":{"slack":{"command":"/usr/bin/ocipd","args":["mcp-proxy","--agent","alice","--token-file","/t","--unmapped=pass","--","npx","@modelcontextprotocol/server-slack"]}}}`, ""},
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &Place{Home: home, Getenv: func(string) string { return "" }, Self: "/usr/bin/ocipd", Token: "/t", Notes: filepath.Join(home, "notes"), Etc: home}
		r := Find("claude-code")
		plan, err := r.Behind(p, "alice")
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
			if err := os.MkdirAll(filepath.Join(home, ".codex"), 0o700); err != nil {
				t.Fatal(err)
			}
			// Codex treats dashes like any other character.
			for _, server := range []string{strings.Split(tc.file, `"`)[3], "gh-", "gh--x"} {
				if err := os.WriteFile(filepath.Join(home, ".codex", "config.toml"), fmt.Appendf(nil, "[mcp_servers.%q]\ncommand = \"a\"\n", server), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := Find("codex").Behind(p, "alice"); err == nil || !strings.Contains(err.Error(), server) {
					t.Errorf("Codex, %s: %v", server, err)
				}
			}
			continue
		}
		if err == nil {
			err = plan.Apply()
		}
		if err != nil {
			t.Fatal(err)
		}
		servers, err := r.Servers(p)
		if err != nil || len(servers) != 1 || !servers[0].Gated() || servers[0].Map != "slack" || slices.Contains(servers[0].Args, "--unmapped=pass") {
			t.Errorf("%s: %+v, %v", name, servers, err)
		}
	}
}
