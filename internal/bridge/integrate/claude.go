package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// claudeCode keeps the servers of all projects in one file of its user. ocipd does not
// change a project's .mcp.json, because everybody on the project shares it.
var claudeCode = &Runtime{
	Name: "claude-code", Title: directory.TitleOf("claude"), Program: "claude",
	files: claudeFiles,
	read:  readClaude,
	gates: claudeGates, managed: claudeManaged, switches: claudeSwitches, Canary: tryCommands,
	variable: claudeVariable, member: claudeMember,
	exempts: claudeName, toolName: claudeToolName,
	// The oldest version tested. 2.1.197 silently ignores onFailure.
	least:     [3]int{2, 1, 330},
	elsewhere: claudeShared,
}

const claudeVariable = "CLAUDE_CONFIG_DIR"

// claudeDir is the folder of Claude Code's files: one in the user's home, unless the
// environment names another.
func claudeDir(p *Place, usual string) string {
	if own := p.Getenv(claudeVariable); own != "" {
		return own
	}
	return usual
}

func claudeFiles(p *Place) []string {
	return []string{filepath.Join(claudeDir(p, p.Home), ".claude.json")}
}

// Words of the hook and of the gate's command line.
const (
	gateServer  = toolgate.Name
	gateTool    = toolgate.Tool
	runtimeFlag = "--runtime"
	withoutFlag = "--without"
)

// gateArgs returns the arguments that start the gate of a runtime.
func (p *Place) gateArgs(r *Runtime, without ...string) []string {
	args := slices.Concat(p.finds(), []string{gateCommand, runtimeFlag, r.Name, tokenFlag, p.Token})
	for _, name := range without {
		args = append(args, withoutFlag, name)
	}
	return args
}

// hookTimeout bounds a hook, in seconds. It is longer than the gate lets a call wait.
const hookTimeout = 300

// gateHook returns a group of hooks, in the form of a runtime's settings, that asks the gate.
// It passes the input that every runtime gives a hook, and the values in besides. more
// holds further members of the hook.
func gateHook(matcher string, besides map[string]string, more map[string]any) (string, error) {
	input := map[string]string{"event": "${hook_event_name}", "tool": "${tool_name}", "input": "${tool_input}", "cwd": "${cwd}", "session": "${session_id}"}
	maps.Copy(input, besides)
	call := map[string]any{"type": "mcp_tool", "server": gateServer, "tool": gateTool, "timeout": hookTimeout, "input": input}
	maps.Copy(call, more)
	text, err := json.Marshal(map[string]any{"matcher": matcher, "hooks": []any{call}}, json.Deterministic(true))
	return string(text), err
}

// isHook reports whether ocipd entered a group of hooks.
func isHook(group jsontext.Value) bool {
	var g struct {
		Hooks []struct {
			Server string `json:"server"`
			Tool   string `json:"tool"`
		} `json:"hooks"`
	}
	return json.Unmarshal(group, &g) == nil && len(g.Hooks) == 1 && g.Hooks[0].Server == gateServer && g.Hooks[0].Tool == gateTool || asksHook(group)
}

// claudeGates enters the gate as a server, and a hook that asks it before each tool call.
func claudeGates(r *Runtime, p *Place) ([]Edit, error) {
	servers, err := r.Servers(p)
	if err != nil {
		return nil, err
	}
	// The gate skips calls that the proxy decides. Projects can have servers of the same
	// name, so the list is part of the name.
	var without []string
	for i := range servers {
		s := &servers[i]
		name := claudeName(s)
		if s.Name != gateServer && p.started(s) && !slices.ContainsFunc(servers, func(o Server) bool {
			return covers(s.Name, o.Name) && (o.Scope == "") == (s.Scope == "") && !p.started(&o)
		}) && !slices.Contains(without, name) {
			without = append(without, name)
		}
	}
	slices.Sort(without)
	start, err := json.Marshal(map[string]any{"type": "stdio", "command": p.Self, "args": p.gateArgs(r, without...)}, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	server := Edit{File: claudeFiles(p)[0], What: "the server that the hook asks", items: []settingsfile.Item{&settingsfile.JSON{Path: []string{"mcpServers"}, Name: gateServer, Value: string(start)}}}
	own, err := claudeHook(claudeSettings(p))
	if err != nil {
		return nil, err
	}
	managed, err := claudeManaged(r, p)
	if err != nil {
		return nil, err
	}
	return p.managedFirst([]Edit{server}, managed, []Edit{server}, own)
}

// claudeName is the name of a server together with its list.
func claudeName(s *Server) string {
	if s.source != "" {
		return s.source + ":" + s.Name
	}
	if s.Scope != "" {
		return "local:" + s.Name
	}
	return "user:" + s.Name
}

func claudeSettings(p *Place) string {
	return filepath.Join(claudeDir(p, filepath.Join(p.Home, ".claude")), "settings.json")
}

func claudeHook(file string) (Edit, error) {
	group, err := gateHook("*", map[string]string{"call": "${tool_use_id}", "source": "${mcp_server.source}"}, map[string]any{"onFailure": "block"})
	return Edit{File: file, What: "a hook before each call of a tool", items: []settingsfile.Item{&settingsfile.JSON{Path: []string{"hooks", "PreToolUse"}, Ours: isHook, Value: group}}}, err
}

func claudeManaged(_ *Runtime, p *Place) ([]Edit, error) {
	edit, err := claudeHook(filepath.Join(p.Etc, "claude-code", "managed-settings.d", "50-ocipd.json"))
	return []Edit{edit}, err
}

// managedFirst returns the edits of a runtime whose hooks can be in the user's or the
// machine's settings. With both, each call would be decided twice. If the machine's
// settings have the hooks, or are to have them, it removes the user's.
func (p *Place) managedFirst(with, managed, without []Edit, own Edit) ([]Edit, error) {
	all := true
	for i := range managed {
		managed[i].Shared = true
		stands, err := managed[i].stands()
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		all = all && stands
	}
	if !all && !p.Managed {
		return append(without, own), nil
	}
	own.Out, own.What = true, own.What+", which the machine's settings have"
	if p.Managed {
		with = append(with, managed...)
	}
	return append(with, own), nil
}

// maxShared bounds a project's file, which anybody on the project can write. maxOwn bounds
// others, of which the runtime may keep a history.
const (
	maxShared = 4 << 20
	maxOwn    = 1 << 30
)

// sharedServers returns the servers in a project's file. It does not block on something
// other than a file, such as a pipe.
func sharedServers(file string) ([]entry, error) {
	text, err := durable.ReadUpTo(file, maxShared)
	if err != nil {
		return nil, err
	}
	return readClaude(file, text)
}

// claudeProjects returns the servers in the files that projects share: Claude Code reads the
// file of a folder in all folders below it too. A file that cannot be read does not hide the
// others; it counts as an unknown server.
func claudeProjects(p *Place) (list []Server, err error) {
	text, err := durable.ReadFile(claudeFiles(p)[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var known struct {
		Projects map[string]jsontext.Value `json:"projects"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, err
	}
	folders := make(map[string]bool)
	for folder := range known.Projects {
		for ; !folders[folder]; folder = filepath.Dir(folder) {
			folders[folder] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		file := filepath.Join(folder, ".mcp.json")
		entries, err := sharedServers(file)
		switch {
		case missing(err):
			continue
		case err != nil:
			list = append(list, unreadServers(file, folder))
			continue
		}
		for _, s := range p.sharedBy(file, folder, entries) {
			s.source = "project"
			list = append(list, s)
		}
	}
	return list, nil
}

// sharedBy returns the servers in a file that ocipd does not change.
func (p *Place) sharedBy(file, scope string, entries []entry) (list []Server) {
	for i := range entries {
		s := entries[i].Server
		s.File, s.Scope = file, scope
		s.Agent, _, s.Changed = p.behind(&s)
		if s.Agent != "" && !(&entry{Server: s}).named() {
			s.Agent = "" // with its own name alone policies know which one it is
		}
		list = append(list, s)
	}
	return list
}

// readClaude finds mcpServers at the top level and in each project.
func readClaude(file string, text []byte) (list []entry, err error) {
	top, err := members(text, span{0, len(text)})
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON object: %w", file, err)
	}
	take := func(scope string, at span) error {
		servers, err := members(text, at)
		if err != nil {
			return fmt.Errorf("%s: mcpServers is no object: %w", file, err)
		}
		for _, s := range servers {
			e, err := readJSONServer(text, s)
			if err != nil {
				return fmt.Errorf("%s: mcpServers.%s: %w", file, s.name, err)
			}
			e.Scope = scope
			list = append(list, e)
		}
		return nil
	}
	for _, m := range top {
		switch m.name {
		case "mcpServers":
			if err := take("", m.at); err != nil {
				return nil, err
			}
		case "projects":
			projects, err := members(text, m.at)
			if err != nil {
				return nil, fmt.Errorf("%s: projects is no object: %w", file, err)
			}
			for _, project := range projects {
				settings, err := members(text, project.at)
				if err != nil {
					return nil, fmt.Errorf("%s: projects[%q] is no object: %w", file, project.name, err)
				}
				for _, s := range settings {
					if s.name != "mcpServers" {
						continue
					}
					if err := take(project.name, s.at); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return list, nil
}

func claudeMember(s *Server, path ...string) settingsfile.Item {
	at := slices.Concat([]string{"mcpServers", s.Name}, path)
	if s.Scope != "" {
		at = slices.Concat([]string{"projects", s.Scope}, at)
	}
	return &settingsfile.JSON{Path: at[:len(at)-1], Name: at[len(at)-1]}
}

// claudeMembers are the members of a server that a command starts, with stdioType as their
// type. With another type Claude Code does not start the command. What it would make of a
// further member is not known.
var claudeMembers = []string{"type", "command", "args", "env", "timeout", "alwaysLoad"}

const stdioType = "stdio"

func readJSONServer(text []byte, s member) (e entry, err error) {
	e.Name = s.name
	list, err := members(text, s.at)
	if err != nil {
		return e, fmt.Errorf("is no object: %w", err)
	}
	kind := stdioType
	for _, m := range list {
		value := text[m.at.begin:m.at.end]
		switch m.name {
		case "command":
			err = json.Unmarshal(value, &e.Command)
			e.command = m.at
		case "args":
			err = json.Unmarshal(value, &e.Args)
			e.args = m.at
		case "url":
			err = json.Unmarshal(value, &e.URL)
		case "env":
			_ = json.Unmarshal(value, &e.env) // one that is no such thing is none of ours
		case "type":
			err = json.Unmarshal(value, &kind)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if e.args == (span{}) {
		e.args = span{e.command.end, e.command.end}
	}
	e.direct, e.kind = e.Command != "" && kind != stdioType, kind
	for _, m := range list {
		if !slices.Contains(claudeMembers, m.name) || m.name == "type" && kind != stdioType {
			e.others = append(e.others, m.name)
		}
	}
	e.write = writeJSON
	at := s.at
	e.raw = string(text[at.begin:at.end])
	if e.remote = jsonRemote([]byte(e.raw)); e.remote != nil {
		e.command = at
		m := e.remote
		e.start = func(command string, args []string) []piece { return []piece{{at, m.asCommand(command, args)}} }
	}
	e.back = func(e *entry, m *remote, kept []entry) []piece {
		if headers, err := ReadHeaders(e.env[HeadersVariable]); err == nil {
			m.headers = headers
		}
		return []piece{{at, m.asAddress(kept, e)}}
	}
	return e, nil
}

// writeJSON encodes a command and its arguments. Set bare if the file has no member for the
// arguments yet.
func writeJSON(command string, args []string, bare bool) (string, string) {
	list := make([]byte, 0, 256)
	if bare {
		list = append(list, `, "args": `...)
	}
	list = append(list, '[')
	for i, arg := range args {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = appendJSON(list, arg)
	}
	return string(appendJSON(nil, command)), string(append(list, ']'))
}

func appendJSON(b []byte, text string) []byte {
	b, err := jsontext.AppendQuote(b, text)
	if err != nil {
		// Text from JSON has no invalid bytes, and paths with such bytes were refused earlier.
		panic("integrate: cannot write a text as JSON: " + err.Error())
	}
	return b
}

// member is a member of a JSON object, with the position of its value in the text.
type member struct {
	name string
	at   span
	// from is the position of its name.
	from int
}

// whole is the position of the member with its name.
func (m member) whole() span { return span{m.from, m.at.end} }

// members reads the members of the object at a position of a text. A duplicate name is an
// error, because programs differ in the one they use.
func members(text []byte, at span) (list []member, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text[at.begin:at.end]))
	if kind := d.PeekKind(); kind != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it is %s", kind)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != '}' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		name, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return nil, err
		}
		m := member{name: string(name), from: at.begin + int(d.InputOffset()) - len(raw)}
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.at.end = at.begin + int(d.InputOffset())
		m.at.begin = m.at.end - len(value)
		list = append(list, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind it")
	}
	return list, nil
}
