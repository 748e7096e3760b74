package integrate

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// remoteTests are servers over HTTP in the files of runtimes. Those without a want stay.
var remoteTests = []struct{ name, runtime, file, text, want string }{
	{"claude", "claude-code", ".claude.json",
		`{"mcpServers": { "web" : {"url":"https://x/mcp","type":"http"} }}`,
		`{"mcpServers": { "web" : {"type": "stdio", "command": "/usr/bin/ocipd", "args": ["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "web", "--", "/usr/bin/ocipd", "mcp-connect", "--url", "https://x/mcp", "web"]} }}`},
	{"claude, with headers, of a project", "claude-code", ".claude.json",
		`{"projects": {"/w": {"mcpServers": {"web":{"type":"http","url":"https://x/mcp","headers":{"X-Z":"\"é","Authorization":"Bearer t: u"}}}}}}`,
		`{"projects": {"/w": {"mcpServers": {"web":{"type": "stdio", "command": "/usr/bin/ocipd", "args": ["mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "web", "--", "/usr/bin/ocipd", "mcp-connect", "--url", "https://x/mcp", "web"], "env": {"OCIPD_HEADERS": "Authorization: Bearer t: u\nX-Z: \"é"}}}}}}`},
	{"claude, an older transport", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"sse","url":"https://x/mcp"}}}`, ""},
	{"claude, a login", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"http","url":"https://login/mcp"}}}`, ""},
	{"claude, an app that logs in", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"http","url":"https://x/mcp","oauth":{"clientId":"c"}}}}`, ""},
	{"claude, a variable", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"http","url":"https://x/mcp","headers":{"A":"${B}"}}}}`, ""},
	{"claude, a key in the address", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"http","url":"https://x/mcp?key=k"}}}`, ""},
	{"claude, a header of two lines", "claude-code", ".claude.json", `{"mcpServers":{"web":{"type":"http","url":"https://x/mcp","headers":{"A":"b\nC: d"}}}}`, ""},
	{"codex", "codex", ".codex/config.toml",
		"[mcp_servers.web] # mine\nurl = 'https://x/mcp' # theirs\ntool_timeout_sec = 9\n[mcp_servers.web.tools.look]\napproval_mode = \"approve\"\n",
		"[mcp_servers.web] # mine\ncommand = \"/usr/bin/ocipd\"\nargs = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"web\", \"--\", \"/usr/bin/ocipd\", \"mcp-connect\", \"--url\", \"https://x/mcp\", \"web\"] # theirs\ntool_timeout_sec = 9\n[mcp_servers.web.tools.look]\napproval_mode = \"approve\"\n"},
	{"codex, a token", "codex", ".codex/config.toml",
		"[mcp_servers.web]\nbearer_token_env_var = \"TOKEN\"\nurl = \"https://x/mcp\"",
		"[mcp_servers.web]\nenv_vars = [\"TOKEN\"]\ncommand = \"/usr/bin/ocipd\"\nargs = [\"mcp-proxy\", \"--agent\", \"alice\", \"--token-file\", \"/t\", \"--name\", \"web\", \"--\", \"/usr/bin/ocipd\", \"mcp-connect\", \"--url\", \"https://x/mcp\", \"--bearer\", \"TOKEN\", \"web\"]"},
	{"opencode", "opencode", ".config/opencode/opencode.json",
		`{"mcp": { "web" : {"enabled":true, "url": "https://x/mcp","type":"remote"} }}`,
		`{"mcp": { "web" : {"enabled":true, "command": ["/usr/bin/ocipd", "mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "web", "--", "/usr/bin/ocipd", "mcp-connect", "--url", "https://x/mcp", "web"],"type":"local"} }}`},
	{"opencode, with headers", "opencode", ".config/opencode/opencode.json",
		`{"mcp":{"web":{"type":"remote","url": "https://x/mcp","headers": {"A":"Bearer {env:T}","B":"c"},"timeout":9}}}`,
		`{"mcp":{"web":{"type":"local","command": ["/usr/bin/ocipd", "mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "web", "--", "/usr/bin/ocipd", "mcp-connect", "--url", "https://x/mcp", "web"],"environment": {"OCIPD_HEADERS": "A: Bearer {env:T}\nB: c"},"timeout":9}}}`},
	{"opencode, a login", "opencode", ".config/opencode/opencode.json", `{"mcp":{"web":{"type":"remote","url":"https://login/mcp"}}}`, ""},
	{"opencode, an app that logs in", "opencode", ".config/opencode/opencode.json", `{"mcp":{"web":{"type":"remote","url":"https://x/mcp","oauth":{"clientId":"c"}}}}`, ""},
	{"opencode, a key in the address", "opencode", ".config/opencode/opencode.json", `{"mcp":{"web":{"type":"remote","url":"https://x/mcp?key=k"}}}`, ""},
	{"codex, headers", "codex", ".codex/config.toml", "[mcp_servers.web]\nurl = \"https://x/mcp\"\nhttp_headers = {A = \"b\"}\n", ""},
	{"codex, headers in a table", "codex", ".codex/config.toml", "[mcp_servers.web]\nurl = \"https://x/mcp\"\n[mcp_servers.web.http_headers]\nA = \"b\"\n", ""},
	{"codex, in one line", "codex", ".codex/config.toml", "[mcp_servers]\nweb = {url = \"https://x/mcp\"}\n", ""},
	{"codex, dotted", "codex", ".codex/config.toml", "mcp_servers.web.url = \"https://x/mcp\"\n", ""},
	{"codex, a login", "codex", ".codex/config.toml", "[mcp_servers.web]\nurl = \"https://login/mcp\"\n", ""},
}

// reaching is a place from which the servers can be reached without a login.
func reaching(t *testing.T, name, text string) (*Place, string) {
	p, file := place(t, name, text)
	p.Reach = func(url string, _ map[string]string) error {
		if strings.Contains(url, "login") {
			return errors.New("a login")
		}
		return nil
	}
	return p, file
}

// If a command can replace a server over HTTP, it goes behind the proxy, once, and gets its address
// back afterwards: byte for byte if nobody has changed the file since, otherwise in its place.
func TestServersOverHTTP(t *testing.T) {
	t.Parallel()
	for _, tt := range remoteTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Find(tt.runtime)
			p, file := reaching(t, tt.file, tt.text)
			want := tt.want
			if want == "" {
				want = tt.text
			}
			for range 2 {
				plan, err := r.Behind(p, "alice")
				apply(t, plan, err)
				if got := read(t, file); got != want {
					t.Fatalf("got\n%s\nwant\n%s", got, want)
				}
			}
			servers, err := r.Servers(p)
			if err != nil || len(servers) != 1 || servers[0].Gated() != (tt.want != "") {
				t.Errorf("the servers: %+v, %v", servers, err)
			}
			plan, err := r.Behind(p, "bob")
			apply(t, plan, err)
			if got := read(t, file); got != strings.ReplaceAll(want, "alice", "bob") {
				t.Errorf("as another agent\n%s", got)
			}
			if err := os.WriteFile(file, []byte(read(t, file)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.Reach = nil
			plan, err = r.Remove(p)
			apply(t, plan, err)
			if got := read(t, file); strings.ReplaceAll(got, "'", `"`) != strings.ReplaceAll(tt.text, "'", `"`)+"\n" {
				t.Errorf("after a change and removing\n%s\nwant\n%s", got, tt.text)
			}
			p, file = reaching(t, tt.file, tt.text)
			plan, err = r.Behind(p, "alice")
			apply(t, plan, err)
			plan, err = r.Remove(p)
			apply(t, plan, err)
			if got := read(t, file); got != tt.text {
				t.Errorf("after removing\n%s\nwant\n%s", got, tt.text)
			}
		})
	}
}

// If the notes about a server are gone, it is written anew, and leads to the same address.
func TestServersOverHTTPWithoutNotes(t *testing.T) {
	t.Parallel()
	for _, tt := range remoteTests[:2] {
		r := Find(tt.runtime)
		p, file := reaching(t, tt.file, tt.text)
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		if err := os.RemoveAll(p.Notes); err != nil {
			t.Fatal(err)
		}
		plan, err = r.Remove(p)
		apply(t, plan, err)
		was, err := r.read("", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		is, err := r.read("", []byte(read(t, file)))
		if err != nil || len(is) != 1 || is[0].remote == nil || is[0].remote.url != was[0].remote.url || !maps.Equal(is[0].remote.headers, was[0].remote.headers) {
			t.Errorf("%s: %s, %v", tt.name, read(t, file), err)
		}
	}
}

// A server that goes behind the proxy is neither asked about as a tool nor put on prompt,
// from the first run on.
func TestGatesBesideServersOverHTTP(t *testing.T) {
	t.Parallel()
	for runtime, files := range map[string]map[string]string{
		"claude-code": {".claude.json": `{"mcpServers":{"web":{"type":"http","url":"https://x"},"in":{"type":"http","url":"https://login"}}}`, ".claude/settings.json": "{}"},
		"codex":       {".codex/config.toml": "[mcp_servers.web]\nurl = \"https://x\"\n[mcp_servers.in]\nurl = \"https://login\"\n"},
	} {
		r, p := Find(runtime), asking(t, files)
		with, _ := reaching(t, "x", "")
		// In an earlier run it was asked about as a tool.
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		p.Reach = with.Reach
		plan, err = r.Behind(p, "alice")
		apply(t, plan, err)
		once := all(t, p)
		name := map[string]string{"claude-code": ".claude.json", "codex": ".codex/config.toml"}[runtime]
		if text := once[name]; strings.Count(text, "--without") != 1 || strings.Contains(text, "user:in") || strings.Count(text, strings.TrimSpace(promptMark)) != map[string]int{"codex": 1}[runtime] {
			t.Errorf("%s is\n%s", name, text)
		}
		plan, err = r.Behind(p, "alice")
		if apply(t, plan, err); !plan.Empty() || !maps.Equal(all(t, p), once) {
			t.Errorf("a second time changes %+v", plan.Edits)
		}
		plan, err = r.Remove(p)
		if apply(t, plan, err); !maps.Equal(all(t, p), files) {
			t.Errorf("after removing %v", all(t, p))
		}
	}
}

// The first run removes members that a proxied server does not have, and leaves a server alone
// that is not started by its command. Removal restores the file byte for byte.
func TestMembersOfServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		runtime, file, text, has string
		gated                    bool
	}{
		{"claude-code", ".claude.json", `{"mcpServers":{"a":{"command":"x","note":"n","env":{"T":"x","LD_PRELOAD":"y"},"timeout":3}}}`, `"env":{"T":"x"},"timeout":3}`, true},
		{"claude-code", ".claude.json", `{"projects":{"/w":{"mcpServers":{"a":{"url":"https://y","command":"x"}}}}}`, `"mcpServers":{"a":{"command":"/usr/bin/ocipd"`, true},
		{"claude-code", ".claude.json", `{"mcpServers":{"a":{"type":"http","url":"https://y","command":"x"}}}`, `"a":{"type":"http","url":"https://y","command":"x"}`, false},
		{"codex", ".codex/config.toml", "[mcp_servers.a]\ncommand = \"x\"\nnote = \"n\"\nenv_vars = ['A', 'LD_PRELOAD']\ncwd = \"/\"\n", "env_vars = [\"A\"]\ncwd = \"/\"\n", true},
		{"codex", ".codex/config.toml", "[mcp_servers.a]\ncommand = \"x\"\nenvironment_id = \"y\"\n", "[mcp_servers.a]\ncommand = \"x\"\nenvironment_id = \"y\"\n", false},
	} {
		r, p := Find(tt.runtime), asking(t, map[string]string{tt.file: tt.text})
		for range 2 {
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
		}
		file := filepath.Join(p.Home, tt.file)
		got := read(t, file)
		servers, err := r.Servers(p)
		if err != nil || servers[0].Gated() != tt.gated || !strings.Contains(got, tt.has) || strings.Contains(got, "note") || strings.Contains(got, withoutFlag) != tt.gated {
			t.Errorf("%s became\n%s: %s, %v", tt.text, got, servers[0].Why(p), err)
		}
		plan, err := r.Remove(p)
		if apply(t, plan, err); read(t, file) != tt.text {
			t.Errorf("%s came back as\n%s", tt.text, read(t, file))
		}
	}
}
