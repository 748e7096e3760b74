package integrate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/pelletier/go-toml/v2"
)

// hashTime is how long Codex may take to say by what it knows hooks.
const hashTime = 20 * time.Second

// The events of Codex that hooks are for, as its files and its trust name them. The first
// fails open whatever is done; the second is asked where a server's tools are on prompt, and
// fails closed.
const (
	codexBefore = "PreToolUse"
	codexPrompt = "PermissionRequest"
)

func codexKey(event string) string {
	return map[string]string{codexBefore: "pre_tool_use", codexPrompt: "permission_request"}[event]
}

// codexGates enters the gate as a server, hooks that ask it, and that Codex may trust them:
// it runs no hook that nobody has trusted. Servers that no proxy can stand before are put on
// prompt, which the hook answers and nothing else does.
func codexGates(r *Runtime, p *Place) ([]Edit, error) {
	config := codexFiles(p)[0]
	text, err := durable.ReadFile(config)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	servers, err := codexServers(config, text)
	if err != nil {
		return nil, err
	}
	var proxied, prompted []string
	var onPrompt tomlPrompts
	for _, s := range servers {
		switch {
		case s.name == gateServer || slices.ContainsFunc(servers, func(o codexServer) bool { return o.kind(p) != s.kind(p) && covers(s.name, o.name) }):
			continue // its name would stand for the tools of another one too
		case s.kind(p) == behind:
			proxied = append(proxied, codexName(s.name))
		case s.kind(p) == prompts:
			prompted = append(prompted, codexName(s.name))
			onPrompt.names = append(onPrompt.names, s.name)
		}
	}
	// Lines of before are taken out where no server needs them any more.
	var items []settingsfile.Item
	if len(onPrompt.names) > 0 || bytes.Contains(text, []byte(promptLine)) {
		items = append(items, &onPrompt)
	}
	slices.Sort(proxied)
	groups := make(map[string]string)
	if groups[codexBefore], err = hook(".*", map[string]string{"call": "${tool_use_id}"}, nil); err != nil {
		return nil, err
	}
	if len(prompted) > 0 {
		if groups[codexPrompt], err = hook("^mcp__("+strings.Join(prompted, "|")+")__", nil, nil); err != nil {
			return nil, err
		}
	}
	start := writeCodexServer(p.Self, p.gateArgs(r, proxied...)) + "required = true\n"
	hooks := filepath.Join(filepath.Dir(config), "hooks.json")
	with := []Edit{
		{File: p.gateFile(r), What: "what the machine's gate is told of this user", items: []settingsfile.Item{codexBlock(p.gateSettings(proxied, prompted))}},
		{File: config, What: "servers over HTTP on prompt", Out: len(items) == 0, items: append([]settingsfile.Item{codexBlock("")}, items...)},
	}
	managed, err := codexManaged(r, p)
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]string)
	if p.Hashes != nil {
		if hashes, err = p.Hashes(p, groups); err != nil {
			return nil, err
		}
	}
	there, err := durable.ReadFile(hooks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ours []settingsfile.Item
	var trust strings.Builder
	for _, event := range []string{codexBefore, codexPrompt} {
		i := &settingsfile.JSON{Path: []string{"hooks", event}, Ours: isHook, Value: groups[event]}
		if groups[event] == "" && p.Hashes != nil {
			continue
		}
		if ours = append(ours, i); groups[event] == "" {
			continue // there may be one of before to take out
		}
		at, err := i.Index(there)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", hooks, err)
		}
		fmt.Fprintf(&trust, "\n[hooks.state.%s]\ntrusted_hash = %s\n", settingsfile.QuoteTOML(codexTrust(hooks, event, at)), settingsfile.QuoteTOML(hashes[event]))
	}
	start += trust.String()
	without := Edit{File: config, What: "the server that the hooks ask, servers over HTTP on prompt, and trust in the hooks", items: append([]settingsfile.Item{codexBlock(start)}, items...)}
	return p.managedFirst(with, managed, []Edit{{File: p.gateFile(r), What: "what the machine's gate is told of this user", Out: true, items: []settingsfile.Item{codexBlock("")}}, without}, Edit{File: hooks, What: "hooks before calls of tools", items: ours})
}

// What is done about a server besides that the hook asks: nothing, that it is put behind the
// proxy, or on prompt.
const (
	asked = iota
	behind
	prompts
)

func (s *codexServer) kind(p *Place) int {
	_, placed := s.place("url")
	switch m := s.remote(); {
	case s.Command != "" || m != nil && p.reached(m) == nil:
		return behind
	case s.URL != "" && (s.Mode == "" || s.ours) && placed: // a prompt of the user's own stays the user's to answer
		return prompts
	}
	return asked
}

// covers reports whether tools of another server can be taken for tools of this one: their
// names are the server's, with what cannot stand in them replaced, two underscores, and the
// tool's.
func covers(name, other string) bool {
	return strings.HasPrefix(codexName(other)+"__", codexName(name)+"__")
}

// codexName is a server's name in those of its tools.
func codexName(name string) string { return strings.ReplaceAll(claudeToolName(name), "-", "_") }

// claudeToolName is the same for Claude Code, which writes dashes.
func claudeToolName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func writeCodexServer(command string, args []string) string {
	first, list := writeTOML(command, args, true)
	return "[" + serversTable + "." + gateServer + "]\ncommand = " + first + list + "\n"
}

// codexBlock is what stands in Codex's settings: the server that hooks ask, and trust in the hooks.
func codexBlock(text string) *settingsfile.Block {
	return &settingsfile.Block{Text: text, Tables: [][]string{{serversTable, gateServer}, {"hooks", "state"}}}
}

// gateFile is where the gate that a machine's settings start finds what it has to know of a
// user: the gate is the same for all of them.
func (p *Place) gateFile(r *Runtime) string { return filepath.Join(p.Notes, r.Name+"-gate.toml") }

// UserGate is what the gate of a machine's settings is told of a user.
type UserGate struct {
	// Token is the file of the agent's token, Without are servers whose calls are decided by
	// the proxy, and Prompts those of which the prompts are the gate's to answer.
	Token   string   `toml:"token_file"`
	Without []string `toml:"without"`
	Prompts []string `toml:"prompts"`
}

// GateOf reads what the gate of a machine's settings is told of this user.
func (r *Runtime) GateOf(p *Place) (*UserGate, error) {
	text, err := durable.ReadFile(p.gateFile(r))
	if err != nil {
		return nil, fmt.Errorf("nothing is known of this user's agent (ocipd integrate %s --agent ID): %w", r.Name, err)
	}
	g := new(UserGate)
	if err := toml.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", p.gateFile(r), err)
	}
	return g, nil
}

func (p *Place) gateSettings(without, prompts []string) string {
	_, servers := writeTOML("", without, false)
	_, prompted := writeTOML("", prompts, false)
	return "token_file = " + settingsfile.QuoteTOML(p.Token) + "\nwithout = " + servers + "\nprompts = " + prompted + "\n"
}

// codexManaged are the hooks and the server that they ask in the machine's settings. Of the
// server each member is set that could keep it from answering: what a user says of one that
// is not would hold.
func codexManaged(r *Runtime, p *Place) ([]Edit, error) {
	groups := make(map[string]string)
	var err error
	if groups[codexBefore], err = hook(".*", map[string]string{"call": "${tool_use_id}"}, nil); err != nil {
		return nil, err
	}
	if groups[codexPrompt], err = hook("^mcp__", nil, nil); err != nil {
		return nil, err
	}
	server := writeCodexServer(p.Self, slices.Concat(p.Options, []string{gateCommand, runtimeFlag, r.Name}))
	_, passed := writeTOML("", ownFolders, false)
	server += "env_vars = " + passed + "\ncwd = \"/\"\nenvironment_id = \"local\"\nenabled = true\nrequired = true\nenabled_tools = [\"" + gateTool +
		"\"]\ndisabled_tools = []\nstartup_timeout_sec = 30\ntool_timeout_sec = " + strconv.Itoa(hookTimeout) + "\n"
	return []Edit{
		{File: filepath.Join(p.Etc, "codex", "requirements.toml"), What: "hooks that no user can switch off", items: []settingsfile.Item{&settingsfile.Block{Text: requirements(groups), Alone: true}}},
		{File: codexMachine(p), What: "the server that the hooks ask", items: []settingsfile.Item{codexBlock(server)}},
	}, nil
}

// requirements are hooks, as the machine's settings have them, and that nobody goes around
// them.
func requirements(groups map[string]string) string {
	var b strings.Builder
	b.WriteString("allowed_approval_policies = [\"on-request\", \"untrusted\", \"never\"]\nallowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n\n[features]\nhooks = true\n\n[hooks]\nmanaged_dir = \"/usr/libexec/ocipd\"\n")
	for _, event := range []string{codexBefore, codexPrompt} {
		var g struct {
			Matcher string `json:"matcher"`
			Hooks   []struct {
				Input map[string]string `json:"input"`
			} `json:"hooks"`
		}
		if groups[event] == "" || json.Unmarshal([]byte(groups[event]), &g) != nil {
			continue
		}
		fmt.Fprintf(&b, "\n[[hooks.%s]]\nmatcher = %s\n[[hooks.%s.hooks]]\ntype = \"mcp_tool\"\nserver = %q\ntool = %q\ntimeout = %d\n[hooks.%s.hooks.input]\n",
			event, settingsfile.QuoteTOML(g.Matcher), event, gateServer, gateTool, hookTimeout, event)
		var names []string
		for name := range g.Hooks[0].Input {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, "%s = %s\n", name, settingsfile.QuoteTOML(g.Hooks[0].Input[name]))
		}
	}
	return b.String()
}

// codexTrust is how Codex names a hook by its file, event and place.
func codexTrust(file, event string, at int) string {
	return fmt.Sprintf("%s:%s:%d:0", file, codexKey(event), at)
}

// promptMode has Codex ask before each call of a server's tools.
const promptMode = "prompt"

// promptLine is what puts a server on prompt.
const promptLine = modeKey + " = \"" + promptMode + "\"" + promptMark

// promptMark tells that line from one that the user has written.
const (
	modeKey    = "default_tools_approval_mode"
	promptMark = " # by ocipd integrate\n"
)

// tomlPrompts puts servers on prompt, and no other one.
type tomlPrompts struct{ names []string }

func (t *tomlPrompts) String() string {
	lines := make([]string, len(t.names))
	for i, name := range t.names {
		lines[i] = serversTable + "." + name + ": " + strings.TrimSpace(promptLine)
	}
	return strings.Join(lines, "\n")
}

func (t *tomlPrompts) Strays(text []byte) (list []string, err error) {
	servers, err := codexServers("the file", text)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if place := serversTable + "." + s.name + "." + modeKey; s.ours != slices.Contains(t.names, s.name) {
			list = append(list, fmt.Sprintf("%s is %q, and %q was entered for %s", place, s.Mode, promptMode, strings.Join(t.names, ", ")))
		}
	}
	for _, name := range t.names {
		if !slices.ContainsFunc(servers, func(s codexServer) bool { return s.name == name }) {
			list = append(list, serversTable+"."+name+" is gone")
		}
	}
	return list, nil
}

func (t *tomlPrompts) Add(text []byte) (_ []byte, err error) {
	for _, name := range t.names {
		if text, err = addPrompt(text, name); err != nil {
			return nil, err
		}
	}
	return text, nil
}

func addPrompt(text []byte, name string) ([]byte, error) {
	places, err := tomlPlaces(text)
	if err != nil {
		return nil, err
	}
	at, ok := places.of(name, "url")
	if !ok {
		return nil, fmt.Errorf("cannot tell where the url of %s.%s stands", serversTable, name)
	}
	if end := bytes.IndexByte(text[at.end:], '\n'); end >= 0 {
		return slices.Concat(text[:at.end+end+1], []byte(promptLine), text[at.end+end+1:]), nil
	}
	return slices.Concat(text, []byte("\n"+promptLine)), nil
}

// strip takes all such lines out: without the hook they would have nobody answer.
func (t *tomlPrompts) Strip(text []byte) ([]byte, error) {
	return bytes.ReplaceAll(text, []byte(promptLine), nil), nil
}

// codexServer is a server, and what Codex does about its tools.
type codexServer struct {
	name    string
	Command string         `toml:"command"`
	Args    []string       `toml:"args"`
	URL     string         `toml:"url"`
	Mode    string         `toml:"default_tools_approval_mode"`
	Bearer  string         `toml:"bearer_token_env_var"`
	Env     map[string]any `toml:"env"`
	EnvVars []any          `toml:"env_vars"`
	places  *tomlTable
	keys    []string
	// ours is set where the line that puts it on prompt was entered by this package.
	ours bool
}

// env are the variables that the server is started with.
func (s *codexServer) env() map[string]string {
	env := make(map[string]string)
	for name, value := range s.Env {
		env[name] = fmt.Sprint(value)
	}
	return env
}

// passed are the variables that Codex passes to the server: each is a name, or a table with one.
func (s *codexServer) passed() (names []string) {
	for _, v := range s.EnvVars {
		switch v := v.(type) {
		case string:
			names = append(names, v)
		case map[string]any:
			name, _ := v["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// place is where the value of one of its keys stands, if that can be told.
func (s *codexServer) place(key string) (span, bool) { return s.places.of(s.name, key) }

// whole is where one of its keys stands with its value, if that is in a table of its own.
func (s *codexServer) whole(key string) (span, bool) {
	at, ok := s.places.lines[[2]string{s.name, key}]
	return at, ok
}

const bearerKey = "bearer_token_env_var"

// forBoth are the keys that a server over HTTP and one with a command have alike.
var forBoth = []string{
	"url", bearerKey, "enabled", "required", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", modeKey, "enabled_tools", "disabled_tools", "tools",
}

// remote is the server over HTTP, nil where a command cannot take its place.
func (s *codexServer) remote() *remote {
	_, placed := s.whole("url")
	_, named := s.whole(bearerKey)
	if s.URL == "" || strings.Contains(s.URL, "?") || s.Command != "" || !placed || s.Bearer != "" && !named || slices.ContainsFunc(s.keys, func(key string) bool { return !slices.Contains(forBoth, key) }) {
		return nil
	}
	return &remote{url: s.URL, bearer: s.Bearer}
}

// start has a command in the place of the address, and the token's variable passed to it.
func (s *codexServer) start(command string, args []string) []piece {
	first, list := writeTOML(command, args, true)
	at, _ := s.whole("url")
	pieces := []piece{{at, "command = " + first + list}}
	if at, ok := s.whole(bearerKey); ok {
		pieces = append(pieces, piece{at, "env_vars = [" + settingsfile.QuoteTOML(s.Bearer) + "]"})
	}
	return pieces
}

// back has the address in the place of the command again.
func (s *codexServer) back(_ *entry, m *remote, _ []entry) (pieces []piece) {
	for key, text := range map[string]string{"command": "url = " + settingsfile.QuoteTOML(m.url), "args": "", "env_vars": bearerKey + " = " + settingsfile.QuoteTOML(m.bearer)} {
		at, ok := s.whole(key)
		switch {
		case !ok:
			continue
		case key == "args":
			at.begin-- // and the line's end before it
		case key == "env_vars" && m.bearer == "":
			continue
		}
		pieces = append(pieces, piece{at, text})
	}
	return pieces
}

// codexServers finds the servers. What the file means says the library; where it stands,
// its parser.
func codexServers(file string, text []byte) (list []codexServer, err error) {
	var whole struct {
		Servers map[string]codexServer `toml:"mcp_servers"`
	}
	var all struct {
		Servers map[string]map[string]any `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(text, &whole); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	if err := toml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	places, err := tomlPlaces(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	for _, name := range places.order {
		s := whole.Servers[name]
		s.name, s.places, s.keys = name, places, slices.Collect(maps.Keys(all.Servers[name]))
		if at, ok := s.place(modeKey); ok {
			s.ours = s.Mode == promptMode && bytes.HasPrefix(text[at.end:], []byte(promptMark))
		}
		list = append(list, s)
	}
	return list, nil
}

// CodexHashes asks Codex by which hashes it knows groups of hooks, by event. It looks at
// them in a home of their own, so that nothing of the user's is touched.
func CodexHashes(ctx context.Context) func(*Place, map[string]string) (map[string]string, error) {
	return func(p *Place, groups map[string]string) (map[string]string, error) {
		program := codex.Installed(p)
		if program == "" {
			return nil, errors.New("cannot have Codex trust the hooks: it is not there")
		}
		home, err := os.MkdirTemp("", "ocipd-codex")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(home) }() // it holds nothing of anybody
		events := make(map[string][]jsontext.Value)
		for event, group := range groups {
			events[event] = []jsontext.Value{jsontext.Value(group)}
		}
		text, err := json.Marshal(map[string]any{"hooks": events})
		if err == nil {
			err = os.WriteFile(filepath.Join(home, "hooks.json"), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, hashTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "app-server")
		cmd.Env = append(os.Environ(), "CODEX_HOME="+home)
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("cannot start Codex: %w", err)
		}
		defer func() {
			cancel()
			_ = cmd.Wait()
		}()
		// The program may be a script that has started another one, which has the output.
		defer context.AfterFunc(ctx, func() { _ = out.Close() })()
		asked, err := json.Marshal(map[string]any{"id": 2, "method": "hooks/list", "params": map[string]any{"cwds": []string{home}}})
		if err != nil {
			return nil, err
		}
		if _, err := in.Write([]byte(`{"id":1,"method":"initialize","params":{"clientInfo":{"name":"ocipd","version":"1"}}}` + "\n" + `{"method":"initialized"}` + "\n" + string(asked) + "\n")); err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var got struct {
				ID     int `json:"id"`
				Result struct {
					Data []struct {
						Hooks []struct {
							Key  string `json:"key"`
							Hash string `json:"currentHash"`
						} `json:"hooks"`
					} `json:"data"`
				} `json:"result"`
			}
			if json.Unmarshal(lines.Bytes(), &got) != nil || got.ID != 2 {
				continue
			}
			hashes := make(map[string]string)
			for _, d := range got.Result.Data {
				for _, h := range d.Hooks {
					for event := range groups {
						if strings.HasSuffix(h.Key, ":"+codexKey(event)+":0:0") {
							hashes[event] = h.Hash
						}
					}
				}
			}
			for event := range groups {
				if groups[event] != "" && hashes[event] == "" {
					return nil, fmt.Errorf("cannot have Codex trust the hooks: it says nothing of %s", event)
				}
			}
			return hashes, nil
		}
		return nil, errors.New("cannot have Codex trust the hooks: it has not said by what it knows them")
	}
}
