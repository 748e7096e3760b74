package integrate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tasked are settings with comments, a server and tool policies of a person's own.
const tasked = `// mine
{"mcp": {"servers": {"chat": {"command": "chat"}}}, "tools": {"allow": ["read", "exec"]},
 "agents": {"entries": {"alice": {"tools": {"deny": ["exec"]}}, "bob": {"tools": {"allow": ["read"]}}}}}
`

// policies are the parts of settings that the servers of tasks are in.
type policies struct {
	MCP struct {
		Servers map[string]struct {
			Command string
			Args    []string
		}
	}
	Tools  struct{ Allow []string }
	Agents struct {
		Entries map[string]struct {
			Tools struct{ Allow, AlsoAllow, Deny []string }
		}
	}
}

func readPolicies(t *testing.T, file string) (is policies) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), &is); err != nil {
		t.Fatal(err)
	}
	return is
}

// enterTasks enters servers for actors of agents, with their tokens.
func enterTasks(t *testing.T, p *Place, pairs ...string) *OpenClaw {
	t.Helper()
	o := findOpenClaw(t, p)
	var list []TaskServer
	for _, pair := range pairs {
		actor, agent, _ := strings.Cut(pair, "=")
		list = append(list, TaskServer{Actor: actor, Agent: agent, Token: o.TokenOf(actor), Grant: "grt_" + actor})
		if err := errors.Join(os.MkdirAll(p.Notes, 0o700), os.WriteFile(o.TokenOf(actor), []byte("t"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.EnterTasks(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return findOpenClaw(t, p)
}

// Each actor gets a server of its own, and every agent is denied all servers but its own, beside its
// own policy. Entering the same again changes nothing, and an actor that is left out is taken out.
func TestTaskServersIntoOpenClaw(t *testing.T) {
	p, file := openClawPlace(t, tasked)
	o := enterTasks(t, p, "lead=alice", "checker=bob")
	is := readPolicies(t, file)
	lead, checker := is.MCP.Servers["ocipd-lead"], is.MCP.Servers["ocipd-checker"]
	if lead.Command != p.Self || !slices.Equal(lead.Args, []string{"mcp", "--token-file", o.TokenOf("lead")}) || checker.Args[2] != o.TokenOf("checker") || is.MCP.Servers["chat"].Command != "chat" {
		t.Errorf("the servers are %v", is.MCP.Servers)
	}
	alice, bob := is.Agents.Entries["alice"].Tools, is.Agents.Entries["bob"].Tools
	if !slices.Equal(alice.Deny, []string{"exec", "ocipd-checker__*"}) || !slices.Equal(bob.Deny, []string{"ocipd-lead__*"}) {
		t.Errorf("alice is denied %q, and bob %q", alice.Deny, bob.Deny)
	}
	// Where tools have to be allowed, the agent's own are, and no others.
	if len(alice.Allow)+len(alice.AlsoAllow) > 0 || !slices.Equal(bob.Allow, []string{"read", "ocipd-checker__*"}) || !slices.Equal(is.Tools.Allow, []string{"read", "exec", "ocipd-lead__*", "ocipd-checker__*"}) {
		t.Errorf("alice is allowed %q %q, bob %q, all %q", alice.Allow, alice.AlsoAllow, bob.Allow, is.Tools.Allow)
	}
	if entered, members, err := TaskStrays(t.Context(), p); !entered || len(members) > 0 || err != nil {
		t.Errorf("entered: %t, strays: %q, %v", entered, members, err)
	}
	if openClaw.Integrated(p) {
		t.Error("OpenClaw counts as gated by the plugin, which is not there")
	}
	enterTasks(t, p, "critic=alice")
	is = readPolicies(t, file)
	if alice, bob := is.Agents.Entries["alice"].Tools, is.Agents.Entries["bob"].Tools; len(is.MCP.Servers) != 2 || !slices.Equal(alice.Deny, []string{"exec"}) || !slices.Equal(bob.Deny, []string{"ocipd-critic__*"}) || !slices.Equal(bob.Allow, []string{"read"}) {
		t.Errorf("with another actor there are %v, alice is denied %q, bob %q", is.MCP.Servers, alice.Deny, bob.Deny)
	}
}

// A policy or server that somebody edits is reported, and an agent without its denial too.
func TestTaskStrays(t *testing.T) {
	for patch, member := range map[string]string{
		`{"agents": {"entries": {"bob": {"tools": {"deny": null}}}}}`:                   "agents.entries.bob.tools.deny",
		`{"agents": {"entries": {"bob": null}}}`:                                        "agents.entries.bob.tools.deny",
		`{"mcp": {"servers": {"ocipd-lead": {"args": ["mcp", "x"]}}}}`:                  "mcp.servers.ocipd-lead",
		`{"mcp": {"servers": {"ocipd-lead": {"env": {"OCIPD_TOKEN": "mine"}}}}}`:        "mcp.servers.ocipd-lead",
		`{"agents": {"entries": {"bob": {"tools": {"deny": ["x", "ocipd-lead__*"]}}}}}`: "",
	} {
		p, file := openClawPlace(t, `{}`)
		enterTasks(t, p, "lead=alice")
		if err := pretend(filepath.Dir(file), []string{"config", "patch", "--file", patchFile(t, patch)}); err != nil {
			t.Fatal(err)
		}
		if entered, members, err := TaskStrays(t.Context(), p); !entered || strings.Join(members, " ") != member || err != nil {
			t.Errorf("%s: entered: %t, strays: %q, %v", patch, entered, members, err)
		}
	}
}

// Removal brings the settings back byte for byte, whatever was entered first, and removes the tokens.
// If somebody has changed the settings since, also between two of our changes, only our entries go.
func TestTaskServersAndBack(t *testing.T) {
	plugin := func(t *testing.T, p *Place) {
		t.Helper()
		o := findOpenClaw(t, p)
		if err := errors.Join(o.Note(nil), o.Install(t.Context(), "/k")); err != nil {
			t.Fatal(err)
		}
	}
	servers := func(t *testing.T, p *Place) { t.Helper(); enterTasks(t, p, "lead=alice", "checker=bob") }
	edit := func(t *testing.T, p *Place) {
		t.Helper()
		if err := pretend(filepath.Join(p.Home, ".openclaw"), []string{"config", "patch", "--file", patchFile(t, `{"theirs": 1, "agents": {"entries": {"bob": {"tools": {"deny": ["ocipd-lead__*", "write"]}}}}}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, steps := range map[string][]func(*testing.T, *Place){
		"servers":               {servers},
		"twice":                 {servers, servers},
		"servers, plugin":       {servers, plugin},
		"plugin, servers":       {plugin, servers},
		"servers, edit":         {servers, edit},
		"plugin, edit, servers": {plugin, edit, servers},
		"servers, edit, plugin": {servers, edit, plugin},
	} {
		p, file := openClawPlace(t, tasked)
		for _, step := range steps {
			step(t, p)
		}
		o := findOpenClaw(t, p)
		if plan, err := o.Planned(); err != nil || !strings.Contains(strings.Join(plan, "\n"), "the grant of checker is revoked") {
			t.Errorf("%s: planned %q, %v", name, plan, err)
		}
		if _, err := o.Remove(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := o.Forget(); err != nil {
			t.Fatal(err)
		}
		got := read(t, file)
		edited := strings.Contains(name, "edit")
		if !edited && got != tasked {
			t.Errorf("%s: the settings are\n%s", name, got)
		}
		if edited {
			is := readPolicies(t, file)
			if strings.Contains(got, "ocipd-") || !strings.Contains(got, "theirs") || !slices.Equal(is.Agents.Entries["bob"].Tools.Deny, []string{"write"}) ||
				!slices.Equal(is.Agents.Entries["alice"].Tools.Deny, []string{"exec"}) || !slices.Equal(is.Tools.Allow, []string{"read", "exec"}) || len(is.MCP.Servers) != 1 {
				t.Errorf("%s: the settings are\n%s", name, got)
			}
		}
		if _, err := os.Stat(o.TokenOf("lead")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the token is there still", name)
		}
	}
}

// Servers that OpenClaw could not keep apart are refused, and nothing is changed.
func TestTaskServersRefused(t *testing.T) {
	for _, tt := range []struct {
		settings, pairs, says string
	}{
		{`{}`, "lead=alice checker=alice", "agent alice cannot be both lead and checker"},
		{`{}`, "lead=carol", `OpenClaw has no agent "carol": its agents are alice, bob`},
		{`{}`, "the.lead=alice", "cannot name a server after the actor"},
		{`{}`, strings.Repeat("a", 21) + "=alice", "cannot name a server after the actor"},
		{`{"mcp": {"servers": {"ocipd-lead": {"command": "other"}}}}`, "lead=alice", "OpenClaw has an MCP server ocipd-lead already"},
		{`{"tools": {"deny": ["bundle-mcp"]}}`, "lead=alice", "OpenClaw's tools.deny has bundle-mcp"},
		{`{"gateway": {"mode": "remote"}}`, "lead=alice", "the Gateway of another machine"},
	} {
		p, file := openClawPlace(t, tt.settings)
		var list []TaskServer
		for pair := range strings.FieldsSeq(tt.pairs) {
			actor, agent, _ := strings.Cut(pair, "=")
			list = append(list, TaskServer{Actor: actor, Agent: agent, Token: "/t"})
		}
		if patch, err := findOpenClaw(t, p).TaskPatch(t.Context(), list); err == nil || !strings.Contains(err.Error(), tt.says) || patch != nil {
			t.Errorf("%s in %s: %v", tt.pairs, tt.settings, err)
		}
		if got := read(t, file); got != tt.settings {
			t.Errorf("%s: the settings are %s", tt.pairs, got)
		}
	}
}
