package integrate

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// asking is a place with some files, whose runtimes ask about tool calls.
func asking(t *testing.T, files map[string]string) *Place {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Place{
		Home: home, Getenv: func(string) string { return "" }, Self: self, Socket: "/s", Token: "/t", Notes: filepath.Join(home, "state"), Tools: true, Etc: filepath.Join(home, "etc"),
		Hashes: func(_ *Place, groups map[string]string) (map[string]string, error) {
			hashes := make(map[string]string)
			for event := range groups {
				hashes[event] = "sha256:" + event
			}
			return hashes, nil
		},
	}
}

// all returns every file of a place, except the notes.
func all(t *testing.T, p *Place) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(p.Home, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, p.Notes) {
			return err
		}
		name, _ := filepath.Rel(p.Home, path)
		files[name] = read(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func apply(t *testing.T, plan *Plan, err error) *Plan {
	t.Helper()
	if err == nil {
		err = plan.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

var gateTests = []struct {
	name, runtime string
	managed       bool
	files         map[string]string
	has           map[string][]string
}{
	{"claude", "claude-code", false,
		map[string]string{
			".claude.json":          "{\n  \"mcpServers\": {\"slack\": {\"command\":\"npx\"}, \"web\":{\"type\":\"http\",\"url\":\"https://x\"}}\n}\n",
			".claude/settings.json": "{\"model\": \"o\", \"hooks\": {\"PreToolUse\": [ {\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"mine\"}]} ], \"Stop\": []}}",
		},
		map[string][]string{
			".claude.json":          {`"args": ["--socket", "/s", "mcp-proxy"`, `"ocipd-gate": {"args":["--socket","/s","tool-gate","--runtime","claude-code","--token-file","/t","--without","user:slack"],"command":"/usr/bin/ocipd"`, `"--", "npx"]`},
			".claude/settings.json": {`"command":"mine"}]}, {"hooks":[{`, `"onFailure":"block"`, `"matcher":"*"`, `"Stop": []`},
		}},
	{"claude, nothing there", "claude-code", false, map[string]string{}, map[string][]string{".claude.json": {"ocipd-gate"}, ".claude/settings.json": {"onFailure"}}},
	{"claude, managed", "claude-code", true, map[string]string{".claude.json": "{}", ".claude/settings.json": "{}"},
		map[string][]string{".claude.json": {"ocipd-gate"}, ".claude/settings.json": {"{}"}, "etc/claude-code/managed-settings.d/50-ocipd.json": {"onFailure"}}},
	{"codex", "codex", false,
		map[string]string{
			".codex/config.toml": "model = \"o\"\n[mcp_servers.web] # mine\nurl = \"https://x\" # theirs\n[mcp_servers.own]\nurl = \"https://y\"\ndefault_tools_approval_mode = \"approve\"\n[mcp_servers.slack]\ncommand = \"npx\"",
			".codex/hooks.json":  `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"mine"}]}]}}`,
		},
		map[string][]string{
			".codex/config.toml": {"url = \"https://x\" # theirs\ndefault_tools_approval_mode = \"prompt\"", "[mcp_servers.ocipd-gate]", "required = true", `"--without", "slack"]`, `hooks.json:pre_tool_use:1:0"]` + "\ntrusted_hash = \"sha256:PreToolUse\"", `hooks.json:permission_request:0:0"]`, `"approve"`},
			".codex/hooks.json":  {`"command":"mine"`, `"matcher":"^mcp__(web)__"`, `"matcher":".*"`},
		}},
	{"opencode", "opencode", false,
		map[string]string{".config/opencode/opencode.jsonc": "{ // mine\n\"mcp\": {\"slack\": {\"type\": \"local\", \"command\": [\"npx\"]}},}\n"},
		map[string][]string{
			".config/opencode/opencode.jsonc":   {`["/usr/bin/ocipd", "--socket", "/s", "mcp-proxy", "--agent", "alice"`, "{ // mine"},
			".config/opencode/plugins/ocipd.js": {`const gate = ["/usr/bin/ocipd","--socket","/s","tool-gate","--runtime","opencode","--token-file","/t"]`, `const proxied = ["/usr/bin/ocipd","--socket","/s","mcp-proxy","--agent","alice","--token-file","/t"]`, `const served = ["/usr/bin/ocipd","--socket","/s","mcp"]`, `"tool.execute.before"`},
		}},
	{"opencode, a file of the user's in the plugin's place", "opencode", false,
		map[string]string{".config/opencode/plugins/ocipd.js": "export const mine = async () => ({})\n"},
		map[string][]string{".config/opencode/plugins/ocipd.js": {"const gate = "}}},
	{"opencode, nothing there", "opencode", false, map[string]string{}, map[string][]string{".config/opencode/plugins/ocipd.js": {"const gate = "}}},
	{"codex, nothing there", "codex", false, map[string]string{}, map[string][]string{".codex/config.toml": {"ocipd-gate"}, ".codex/hooks.json": {"PreToolUse"}}},
	{"codex, managed", "codex", true, map[string]string{".codex/config.toml": "model = \"o\"\n[mcp_servers.web]\nurl = \"https://x\"\n[mcp_servers.slack]\ncommand = \"npx\"\n"},
		map[string][]string{
			"state/codex-gate.toml":         {"token_file = \"/t\"", `without = ["slack"]`, `prompts = ["web"]`},
			"etc/codex/managed_config.toml": {`args = ["tool-gate", "--runtime", "codex"]`, "required = true", "enabled = true"},
			"etc/codex/requirements.toml":   {"[[hooks.PreToolUse.hooks]]", "hooks = true", `cwd = "${cwd}"`, `allowed_sandbox_modes = ["read-only", "workspace-write"]`, `matcher = "^mcp__"`}}},
}

// A runtime is made to ask about tool calls, once. Removal restores everything byte for
// byte, and deletes new files.
func TestGatesAndBack(t *testing.T) {
	for _, tt := range gateTests {
		t.Run(tt.name, func(t *testing.T) {
			r, p := Find(tt.runtime), asking(t, tt.files)
			p.Managed = tt.managed
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
			for name, want := range tt.has {
				for _, part := range want {
					if got := read(t, filepath.Join(p.Home, name)); !strings.Contains(got, part) {
						t.Errorf("%s has no %s:\n%s", name, part, got)
					}
				}
			}
			if asks, why, _, err := r.tools(p, true); err != nil || !asks || strings.Contains(why, "machine") != tt.managed {
				t.Errorf("it asks: %t, %s, %v", asks, why, err)
			}
			once := all(t, p)
			plan, err = r.Behind(p, "alice")
			if apply(t, plan, err); !plan.Empty() || !maps.Equal(all(t, p), once) {
				t.Errorf("a second time changes %+v", plan.Edits)
			}
			plan, err = r.Remove(p)
			apply(t, plan, err)
			if got := all(t, p); !maps.Equal(got, tt.files) {
				t.Errorf("after removing %v, want %v", got, tt.files)
			}
			if asks, _, _, err := r.Tools(p); err != nil || asks {
				t.Errorf("it asks still: %v", err)
			}
		})
	}
}

// Of a user's and the machine's hooks only the machine's stay, in whichever order they are
// entered, so that a call is decided once.
func TestManagedTakesTheUsersPlace(t *testing.T) {
	for _, tt := range gateTests {
		if tt.managed || !Find(tt.runtime).Machine() {
			continue
		}
		own := map[string]string{"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}[tt.runtime]
		for _, order := range [][]bool{{false, true}, {true, false}} {
			r, p := Find(tt.runtime), asking(t, tt.files)
			for _, p.Managed = range order {
				plan, err := r.Behind(p, "alice")
				apply(t, plan, err)
			}
			now := all(t, p)
			if got := now[own]; got != tt.files[own] {
				t.Errorf("%s, %t: %s is\n%s\nwant\n%s", tt.name, order, own, got, tt.files[own])
			}
			if config := now[".codex/config.toml"]; strings.Contains(config, "hooks.state") {
				t.Errorf("%s, %t: hooks that are gone are trusted:\n%s", tt.name, order, config)
			}
			if asks, why, _, err := r.tools(p, true); err != nil || !asks || !strings.Contains(why, "machine") {
				t.Errorf("%s, %t: it asks: %t, %s, %v", tt.name, order, asks, why, err)
			}
			p.Managed = true
			plan, err := r.Remove(p)
			apply(t, plan, err)
			if got := all(t, p); !maps.Equal(got, tt.files) {
				t.Errorf("%s, %t: after removing %v, want %v", tt.name, order, got, tt.files)
			}
		}
	}
}

// All users of the machine can read the machine's settings.
func TestManagedFilesAreForAll(t *testing.T) {
	for _, tt := range gateTests {
		if !tt.managed {
			continue
		}
		r, p := Find(tt.runtime), asking(t, tt.files)
		p.Managed = true
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		err = filepath.WalkDir(p.Etc, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode()&0o044 != 0o044 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Changes by others stay, and nothing else of ocipd's does.
func TestGatesAmongOthersChanges(t *testing.T) {
	for _, tt := range gateTests {
		t.Run(tt.name, func(t *testing.T) {
			r, p := Find(tt.runtime), asking(t, tt.files)
			p.Managed = tt.managed
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
			for name := range tt.has {
				file := filepath.Join(p.Home, name)
				if err := os.WriteFile(file, []byte(read(t, file)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			plan, err = r.Remove(p)
			apply(t, plan, err)
			for name, text := range all(t, p) {
				if strings.Contains(text, gateServer) || strings.Contains(text, "ocipd") {
					t.Errorf("%s has still\n%s", name, text)
				}
				text = strings.NewReplacer(`, "args": []`, "", "\nargs = []", "").Replace(text)
				if was := tt.files[name]; strings.TrimSpace(was) != "" && strings.TrimSpace(text) != strings.TrimSpace(was) {
					t.Errorf("%s is\n%s\nwant\n%s", name, text, was)
				}
			}
		})
	}
}

// Entries for another agent, or another list of servers, replace the earlier ones.
func TestGatesOfAnotherAgent(t *testing.T) {
	for _, tt := range gateTests {
		r, p := Find(tt.runtime), asking(t, tt.files)
		p.Managed = tt.managed
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		p.Token = "/other"
		plan, err = r.Behind(p, "bob")
		apply(t, plan, err)
		for name, text := range all(t, p) {
			if strings.Contains(text, `"/t"`) || strings.Count(text, "[mcp_servers.ocipd-gate]") > 1 || strings.Count(text, `"ocipd-gate":`) > 1 {
				t.Errorf("%s: %s is\n%s", tt.name, name, text)
			}
		}
		plan, err = r.Remove(p)
		apply(t, plan, err)
		if got := all(t, p); !maps.Equal(got, tt.files) {
			t.Errorf("%s: after removing %v, want %v", tt.name, got, tt.files)
		}
	}
}

// Servers that a project shares are listed as open, and are not changed.
func TestSharedServersAreListed(t *testing.T) {
	p := asking(t, map[string]string{"w/.mcp.json": `{"mcpServers":{"theirs":{"command":"x"},"ours":{"command":"/usr/bin/ocipd","args":[]}` +
		`,"posing":{"command":"/w/ocipd","args":["mcp-proxy","--agent","a","--token-file","/t","--","y"]},"elsewhere":{"command":"/usr/bin/ocipd","args":["--socket","/w/s","mcp-proxy","--agent","a","--token-file","/t","--","y"]}` +
		`,"lax":{"command":"/usr/bin/ocipd","args":["mcp-proxy","--agent","a","--token-file","/t","--unmapped","pass","--","y"]},"own":{"command":"/w/ocipd","args":["mcp"]}}}`,
		"broken/.mcp.json": `{"mcpServers":7}`, "link/x": "", "none/x": ""})
	folder := filepath.Join(p.Home, "w")
	at := func(name string) string { return filepath.Join(p.Home, name) }
	command, args := p.before("a", "ours", "y", nil)
	_, entered := writeJSON(command, args, false)
	err := errors.Join(os.WriteFile(at("w/.mcp.json"), []byte(strings.Replace(read(t, at("w/.mcp.json")), "[]", entered, 1)), 0o600), os.Symlink("/dev/zero", at("link/.mcp.json")), os.Mkdir(at("pipe"), 0o700), syscall.Mkfifo(at("pipe/.mcp.json"), 0o600),
		os.WriteFile(at(".claude.json"), []byte(`{"projects":{"`+folder+`":{},"/nowhere":{},"`+at("broken")+`":{},"`+at("link")+`":{},"`+at("none")+`":{},"`+at("none/x")+`":{},"`+at("pipe")+`":{}}}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	list, err := claudeCode.Elsewhere(p)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for i := range list {
		name, _ := filepath.Rel(p.Home, list[i].Scope)
		got[name+": "+list[i].Name] = list[i].Gated()
	}
	const unread = ": all of a file that cannot be read"
	want := map[string]bool{
		"w: theirs": false, "w: ours": true, "w: posing": false, "w: elsewhere": false, "w: lax": false, "w: own": false, "broken" + unread: false, "link" + unread: false, "pipe" + unread: false,
	}
	if !maps.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
}

// The servers in Codex's files besides the user's are listed, with what changes one of the user's. One
// that is not gated keeps the user's server of its name from being left to the proxy.
func TestCodexServersElsewhere(t *testing.T) {
	t.Parallel()
	p := asking(t, map[string]string{".codex/config.toml": "", "w/.codex/config.toml": "[mcp_servers.slack]\ncommand = \"x\"\n[mcp_servers.gated]\ncommand = \"y\"\n", "other/.codex/config.toml": "[mcp_servers.untrusted]\ncommand = \"x\"\n",
		".codex/p.config.toml": "[mcp_servers.ocipd-gate]\ncommand = \"x\"\n[mcp_servers.late]\ntool_timeout_sec = 3\n[mcp_servers.part]\nenv = {A = \"b\"}\n", ".codex/q.config.toml": "[", "etc/codex/config.toml": "[mcp_servers.web]\nurl = \"https://x\"\n"})
	at := func(name string) string { return filepath.Join(p.Home, name) }
	write(t, at(".codex/config.toml"), "[projects.\""+at("w")+"\"]\ntrust_level = \"trusted\"\n[projects.\""+at("other")+"\"]\ntrust_level = \"untrusted\"\n[mcp_servers.slack]\ncommand = \"npx\"\n[mcp_servers.gated]\ncommand = \"npx\"\n")
	command, args := p.before("alice", "gated", "y", nil)
	first, list := writeTOML(command, args, true)
	write(t, at("w/.codex/config.toml"), strings.Replace(read(t, at("w/.codex/config.toml")), "\"y\"", first+list, 1))
	servers, err := codex.Elsewhere(p)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for i := range servers {
		file, _ := filepath.Rel(p.Home, servers[i].File)
		got[file+": "+servers[i].Name] = servers[i].Gated()
	}
	want := map[string]bool{"w/.codex/config.toml: slack": false, "w/.codex/config.toml: gated": true, ".codex/p.config.toml: part": false, ".codex/q.config.toml: all of a file that cannot be read": false, "etc/codex/config.toml: web": false}
	if !maps.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	plan, err := codex.Behind(p, "alice")
	apply(t, plan, err)
	if now := read(t, at(".codex/config.toml")); strings.Contains(now, `"--without", "slack"`) || !strings.Contains(now, `"--without", "gated"`) {
		t.Errorf("entered is\n%s", now)
	}
}

// With the hooks in the machine's settings, a user's gate leaves no server to the proxy either that a
// later file replaces.
func TestCodexServersElsewhereWithTheMachinesGate(t *testing.T) {
	t.Parallel()
	p := asking(t, map[string]string{".codex/config.toml": "[mcp_servers.slack]\ncommand = \"npx\"\n"})
	p.Managed = true
	plan, err := codex.Behind(p, "alice")
	apply(t, plan, err)
	twin := filepath.Join(p.Home, ".codex", "p.config.toml")
	write(t, twin, "[mcp_servers.slack]\ncommand = \"x\"\n")
	if asks, why, _, err := codex.Tools(p); asks || err != nil || !strings.Contains(why, twin+": server slack is not behind the proxy") {
		t.Errorf("%t, %s, %v", asks, why, err)
	}
	plan, err = codex.Behind(p, "alice")
	apply(t, plan, err)
	if asks, why, _, err := codex.Tools(p); !asks || err != nil || strings.Contains(read(t, p.gateFile(codex)), "slack") {
		t.Errorf("entered again: %t, %s, %v", asks, why, err)
	}
	write(t, filepath.Join(p.Home, ".codex", "hooks.json"), `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}}`)
	if asks, why, _, err := codex.Tools(p); asks || err != nil || !strings.Contains(why, "hooks.PreToolUse[0] can change a call") {
		t.Errorf("another hook: %t, %s, %v", asks, why, err)
	}
	rules := filepath.Join(p.Etc, "codex", codexRules)
	write(t, rules, "allow_managed_hooks_only = true\n"+read(t, rules))
	if strays, err := codex.Strays(p); err != nil || slices.ContainsFunc(strays, func(s Stray) bool { return s.Hook }) {
		t.Errorf("one that does not run: %v, %v", strays, err)
	}
}

// A server that the user has put on prompt keeps asking the user: the hook answers only
// prompts that ocipd entered.
func TestCodexPromptOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	const file = "[mcp_servers.mine]\nurl = \"https://y\"\ndefault_tools_approval_mode = \"prompt\"\n[mcp_servers.noted]\nurl = \"https://z\"\ndefault_tools_approval_mode = \"prompt\" # mine\n"
	for _, tt := range []struct{ name, more, matcher string }{
		{"alone", "", ""},
		{"beside one without a mode", "[mcp_servers.web]\nurl = \"https://x\"\n", `"matcher":"^mcp__(web)__"`},
		{"beside two without a mode", "[mcp_servers.web]\nurl = \"https://x\"\n[mcp_servers.wide]\nurl = \"https://w\"\n", `"matcher":"^mcp__(web|wide)__"`},
	} {
		files := map[string]string{".codex/config.toml": file + tt.more}
		r, p := Find("codex"), asking(t, files)
		for range 2 { // the second run recognizes the entries of the first
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
			hooks := read(t, filepath.Join(p.Home, ".codex/hooks.json"))
			if strings.Contains(hooks, "mine") || strings.Contains(hooks, "noted") || !strings.Contains(hooks, tt.matcher) || strings.Contains(hooks, codexPrompt) != (tt.matcher != "") {
				t.Errorf("%s: the hooks are %s", tt.name, hooks)
			}
			if got := read(t, filepath.Join(p.Home, ".codex/config.toml")); strings.Count(got, strings.TrimSpace(promptMark)) != strings.Count(tt.more, "url") {
				t.Errorf("%s: the servers are\n%s", tt.name, got)
			}
		}
		plan, err := r.Remove(p)
		if apply(t, plan, err); !maps.Equal(all(t, p), files) {
			t.Errorf("%s: after removing %v", tt.name, all(t, p))
		}
	}
}

// If the names of two servers' tools can be confused, the exemption and the prompts of one
// do not apply to the other.
func TestNamesThatCoverOthers(t *testing.T) {
	t.Parallel()
	const web = "url = \"https://x\"\n"
	for _, tt := range []struct {
		other, rest string
		exempted    bool
	}{
		{"a_b", web, false}, {"a.b", web, false}, {"a-b__x", web, false}, {"a-b_", web, false},
		{"a", web, true}, {"a-bc", web, true}, {"a_b_c", web, true}, {"a_b", "command = \"y\"\n", true},
	} {
		p := asking(t, map[string]string{".codex/config.toml": "[mcp_servers.a-b]\ncommand = \"x\"\n[mcp_servers.\"" + tt.other + "\"]\n" + tt.rest})
		plan, err := Find("codex").Behind(p, "alice")
		apply(t, plan, err)
		if got := read(t, filepath.Join(p.Home, ".codex/config.toml")); strings.Contains(got, `"--without", "a_b"`) != tt.exempted {
			t.Errorf("Codex, beside %s %s:\n%s", tt.other, tt.rest, got)
		}
		p = asking(t, map[string]string{".codex/config.toml": "[mcp_servers.a-b]\n" + web + "[mcp_servers.\"" + tt.other + "\"]\n" + web + "default_tools_approval_mode = \"prompt\"\n"})
		plan, err = Find("codex").Behind(p, "alice")
		apply(t, plan, err)
		if got := read(t, filepath.Join(p.Home, ".codex/hooks.json")); strings.Contains(got, "mcp__(a_b)__") != (tt.exempted && tt.other != "a_b") {
			t.Errorf("Codex's prompts, beside %s: %s", tt.other, got)
		}
	}
	p := asking(t, map[string]string{".claude.json": `{"mcpServers":{"slack":{"command":"x"},"slack__x":{"type":"http","url":"https://x"}}}`})
	plan, err := claudeCode.Behind(p, "alice")
	apply(t, plan, err)
	if got := read(t, filepath.Join(p.Home, ".claude.json")); strings.Contains(got, withoutFlag) {
		t.Errorf("Claude Code: %s", got)
	}
}

func TestVersionsThatFailClosed(t *testing.T) {
	for version, closes := range map[string]bool{
		"2.1.330 (Claude Code)": true, "2.2.0 (Claude Code)": true, "2.1.197 (Claude Code)": false, "2.0.999": false, "": false, "Claude": false,
	} {
		if err := claudeCode.Closes(version); (err == nil) != closes {
			t.Errorf("%q: %v", version, err)
		}
	}
	if err := codex.Closes("codex-cli 0.169.0"); err != nil {
		t.Error(err)
	}
}
