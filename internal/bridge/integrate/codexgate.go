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

// hashTime bounds Codex's answer about the hashes of its hooks.
const hashTime = 20 * time.Second

// The hook events of Codex, as its files and its trust list name them. The first always
// fails open. Codex asks the second if a server's tools are on prompt, and it fails closed.
const (
	codexBefore = "PreToolUse"
	codexPrompt = "PermissionRequest"
)

func codexKey(event string) string {
	return map[string]string{codexBefore: "pre_tool_use", codexPrompt: "permission_request"}[event]
}

// codexGates enters the gate as a server, the hooks that ask it, and Codex's trust in them:
// Codex runs only trusted hooks. Servers that cannot be behind the proxy are put on prompt,
// and only the hook answers the prompts.
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
	shared, err := r.Elsewhere(p)
	if err != nil {
		return nil, err
	}
	proxied, prompted, onPrompt := codexKinds(p, servers, shared)
	// Remove prompt lines of earlier runs if no server needs them now.
	var items []settingsfile.Item
	if len(onPrompt.names) > 0 || bytes.Contains(text, []byte(promptLine)) {
		items = append(items, onPrompt)
	}
	groups := make(map[string]string)
	if groups[codexBefore], err = gateHook(".*", map[string]string{"call": "${tool_use_id}"}, nil); err != nil {
		return nil, err
	}
	if len(prompted) > 0 {
		if groups[codexPrompt], err = gateHook("^mcp__("+strings.Join(prompted, "|")+")__", nil, nil); err != nil {
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
	ours, trust, err := codexHookItems(hooks, groups, hashes)
	if err != nil {
		return nil, err
	}
	start += trust
	without := Edit{File: config, What: "the server that the hooks ask, servers over HTTP on prompt, and trust in the hooks", items: append([]settingsfile.Item{codexBlock(start)}, items...)}
	return p.managedFirst(with, managed, []Edit{{File: p.gateFile(r), What: "what the machine's gate is told of this user", Out: true, items: []settingsfile.Item{codexBlock("")}}, without}, Edit{File: hooks, What: "hooks before calls of tools", items: ours})
}

// codexHookItems returns the hooks in their file, and the lines by which Codex trusts them.
func codexHookItems(hooks string, groups, hashes map[string]string) (ours []settingsfile.Item, trust string, err error) {
	there, err := durable.ReadFile(hooks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	for _, event := range []string{codexBefore, codexPrompt} {
		i := &settingsfile.JSON{Path: []string{"hooks", event}, Ours: isHook, Value: groups[event]}
		if groups[event] == "" {
			ours = append(ours, settingsfile.Gone{Item: i}) // there may be one of before to take out
			continue
		}
		ours = append(ours, i)
		at, err := i.Index(there)
		if err != nil {
			return nil, "", fmt.Errorf("cannot read %s: %w", hooks, err)
		}
		trust += fmt.Sprintf("\n[hooks.state.%s]\ntrusted_hash = %s\n", settingsfile.QuoteTOML(codexTrust(hooks, event, at)), settingsfile.QuoteTOML(hashes[event]))
	}
	return ours, trust, nil
}

// codexKinds returns the servers whose calls the gate leaves to the proxy, and those on prompt, by
// their names in the names of tools. A server in another file keeps one of its name from being
// left to the proxy, unless it is behind the proxy too: Codex does not say to which a call goes.
func codexKinds(p *Place, servers []codexServer, shared []Server) (proxied, prompted []string, onPrompt *tomlPrompts) {
	onPrompt = new(tomlPrompts)
	for _, s := range servers {
		switch {
		case s.name == gateServer || slices.ContainsFunc(servers, func(o codexServer) bool { return o.kind(p) != s.kind(p) && covers(s.name, o.name) }):
			continue // its name would stand for the tools of another one too
		case s.kind(p) == behind && !slices.ContainsFunc(shared, func(o Server) bool { return !o.Gated() && covers(s.name, o.Name) }):
			proxied = append(proxied, codexName(s.name))
		case s.kind(p) == prompts:
			prompted = append(prompted, codexName(s.name))
			onPrompt.names = append(onPrompt.names, s.name)
		}
	}
	slices.Sort(proxied)
	return proxied, prompted, onPrompt
}

// How a server is gated, beyond the hook: not at all, behind the proxy, or on prompt.
const (
	asked = iota
	behind
	prompts
)

func (s *codexServer) kind(p *Place) int {
	_, placed := s.place("url")
	agent, _, _ := p.behind(&Server{Command: s.Command, Args: s.Args})
	switch {
	case p.started(&Server{Command: s.Command, Agent: agent, direct: s.direct(), remote: s.remote()}):
		return behind
	case s.URL != "" && (s.Mode == "" || s.ours) && placed: // a prompt of the user's own stays the user's to answer
		return prompts
	}
	return asked
}

// covers reports whether a tool of the other server could be mistaken for a tool of this one. A
// tool's name is the server's, with invalid characters replaced, two underscores, and the tool's own.
func covers(name, other string) bool {
	return strings.HasPrefix(codexName(other)+"__", codexName(name)+"__")
}

// codexName is a server's name within the names of its tools.
func codexName(name string) string { return strings.ReplaceAll(claudeToolName(name), "-", "_") }

// claudeToolName is the same for Claude Code, which keeps dashes.
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

// codexBlock is ocipd's block in Codex's settings: the server that the hooks ask, and trust
// in the hooks.
func codexBlock(text string) *settingsfile.Block {
	return &settingsfile.Block{Text: text, Tables: [][]string{{serversTable, gateServer}, {"hooks", "state"}}}
}

// gateFile holds the user's settings for the gate that the machine's settings start,
// because that command is the same for all users.
func (p *Place) gateFile(r *Runtime) string { return filepath.Join(p.Notes, r.Name+"-gate.toml") }

// UserGate is a user's settings for the gate of the machine's settings.
type UserGate struct {
	// Token is the file of the agent's token. Without lists servers whose calls the proxy
	// decides, and Prompts the servers whose prompts the gate answers.
	Token   string   `toml:"token_file"`
	Without []string `toml:"without"`
	Prompts []string `toml:"prompts"`
}

// GateOf reads this user's settings for the gate.
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

// codexManaged returns the hooks and their server for the machine's settings. It sets every
// member of the server that could stop it from answering, because a user's value would
// apply to an unset member.
func codexManaged(r *Runtime, p *Place) ([]Edit, error) {
	groups := make(map[string]string)
	var err error
	if groups[codexBefore], err = gateHook(".*", map[string]string{"call": "${tool_use_id}"}, nil); err != nil {
		return nil, err
	}
	if groups[codexPrompt], err = gateHook("^mcp__", nil, nil); err != nil {
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

// requirements encodes the hooks for the machine's settings, with a member that forbids
// users to bypass them.
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

// codexTrust is Codex's name of a hook: its file, event and position.
func codexTrust(file, event string, at int) string {
	return fmt.Sprintf("%s:%s:%d:0", file, codexKey(event), at)
}

// promptMode makes Codex ask before each call of a server's tools.
const promptMode = "prompt"

// promptLine puts a server on prompt.
const promptLine = modeKey + " = \"" + promptMode + "\"" + promptMark

// promptMark distinguishes this line from a line of the user.
const (
	modeKey    = "default_tools_approval_mode"
	promptMark = " # by ocipd integrate\n"
)

// tomlPrompts puts the named servers, and no others, on prompt.
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

// strip removes all such lines, because nobody would answer the prompts without the hook.
func (t *tomlPrompts) Strip(text []byte) ([]byte, error) {
	return bytes.ReplaceAll(text, []byte(promptLine), nil), nil
}

// codexServer is a server with Codex's settings for its tools.
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
	// ours is set if ocipd entered the line that puts the server on prompt.
	ours bool
}

// env returns the variables set for the server.
func (s *codexServer) env() map[string]string {
	env := make(map[string]string)
	for name, value := range s.Env {
		env[name] = fmt.Sprint(value)
	}
	return env
}

// passed returns the names of the variables that Codex passes to the server. Each entry is
// a name or a table with one.
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

// place is the position of a key's value, if it is known.
func (s *codexServer) place(key string) (span, bool) { return s.places.of(s.name, key) }

// whole is the position of a key with its value, if it is in the server's own table.
func (s *codexServer) whole(key string) (span, bool) {
	at, ok := s.places.lines[[2]string{s.name, key}]
	return at, ok
}

const (
	bearerKey = "bearer_token_env_var"
	passedKey = "env_vars"
)

// forBoth are the keys that servers with an address and servers with a command share.
// forCommand are further keys of the latter, and forAddress of the former that a command can
// replace. With elsewhere, Codex does not start the command here, or does not start at all.
var (
	forBoth    = []string{"enabled", "required", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", modeKey, "enabled_tools", "disabled_tools", "tools"}
	forCommand = []string{"command", "args", "env", passedKey, "cwd", "supports_parallel_tool_calls"}
	forAddress = []string{"url", bearerKey}
	elsewhere  = []string{"url", "environment_id", "experimental_environment"}
)

// others returns the keys that a server with a command does not have.
func (s *codexServer) others() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(s.keys)), func(key string) bool {
		return slices.Contains(forBoth, key) || slices.Contains(forCommand, key)
	})
}

// direct reports whether Codex does not start the server's command.
func (s *codexServer) direct() bool {
	return s.Command != "" && slices.ContainsFunc(s.keys, func(key string) bool { return slices.Contains(elsewhere, key) })
}

// remote returns the server over HTTP, or nil if a command cannot replace it.
func (s *codexServer) remote() *remote {
	_, placed := s.whole("url")
	_, named := s.whole(bearerKey)
	if s.URL == "" || strings.Contains(s.URL, "?") || s.Command != "" || !placed || s.Bearer != "" && !named || slices.ContainsFunc(s.keys, func(key string) bool { return !slices.Contains(forBoth, key) && !slices.Contains(forAddress, key) }) {
		return nil
	}
	return &remote{url: s.URL, bearer: s.Bearer}
}

// start replaces the address by a command, and passes the token's variable to it.
func (s *codexServer) start(command string, args []string) []piece {
	first, list := writeTOML(command, args, true)
	at, _ := s.whole("url")
	pieces := []piece{{at, "command = " + first + list}}
	if at, ok := s.whole(bearerKey); ok {
		pieces = append(pieces, piece{at, passedKey + " = [" + settingsfile.QuoteTOML(s.Bearer) + "]"})
	}
	return pieces
}

// back replaces the command by the address again.
func (s *codexServer) back(_ *entry, m *remote, _ []entry) (pieces []piece) {
	for key, text := range map[string]string{"command": "url = " + settingsfile.QuoteTOML(m.url), "args": "", passedKey: bearerKey + " = " + settingsfile.QuoteTOML(m.bearer)} {
		at, ok := s.whole(key)
		switch {
		case !ok:
			continue
		case key == "args":
			at.begin-- // and the line's end before it
		case key == passedKey && m.bearer == "":
			continue
		}
		pieces = append(pieces, piece{at, text})
	}
	return pieces
}

// codexServers finds the servers. The library decodes the file; its parser gives the positions.
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

// CodexHashes asks Codex for the hashes of groups of hooks, by event. Codex reads them in a
// temporary home, so it does not touch the user's files.
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
		list, err := codexHooks(ctx, program, home)
		if err != nil {
			return nil, err
		}
		hashes := make(map[string]string)
		for _, h := range list {
			for event := range groups {
				if strings.HasSuffix(h.Key, ":"+codexKey(event)+":0:0") {
					hashes[event] = h.Hash
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
}

// codexHook is a hook in Codex's answer.
type codexHook struct {
	Key  string `json:"key"`
	Hash string `json:"currentHash"`
}

// codexHooks asks Codex for the hooks of a home.
func codexHooks(ctx context.Context, program, home string) (list []codexHook, err error) {
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
	// The program may be a script that started another process, which still holds the output.
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
					Hooks []codexHook `json:"hooks"`
				} `json:"data"`
			} `json:"result"`
		}
		if json.Unmarshal(lines.Bytes(), &got) != nil || got.ID != 2 {
			continue
		}
		for _, d := range got.Result.Data {
			list = append(list, d.Hooks...)
		}
		return list, nil
	}
	return nil, errors.New("cannot have Codex trust the hooks: it has not said by what it knows them")
}
