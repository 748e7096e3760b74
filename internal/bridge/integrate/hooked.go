package integrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/hook"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// hooking has the files of a runtime of [hook.Rows], and the form of its hook's entry.
type hooking struct {
	// variable names the folder that holds folder, in place of the user's home. own is set if it names
	// folder itself.
	variable string
	own      bool
	folder   string
	// servers is the file below the folder that lists MCP servers, or "". hooks is the one with hooks.
	servers, hooks string
	// path leads to the list of hooks, and group is an element that runs a command, with $command for
	// it and $words for its words as a list of JSON.
	path  []string
	group string
	// besides are members that the file of hooks has to have, by name.
	besides map[string]string
	// failed is put behind the command, for a shell.
	failed string
	// offs are settings that switch the hook off, and others are files with hooks of others that can
	// change a call after the gate has allowed it: each in a folder of the user, or of a project.
	offs   []switching
	others []hookFile
	// config is the file that lists servers, for a runtime that has it elsewhere, and read finds them.
	config func(*Place) string
	read   func(file string, text []byte) ([]entry, error)
	member func(s *Server, path ...string) settingsfile.Item
}

// hookName is ocipd's name among hooks and plugins.
const hookName = "ocipd"

var hookings = map[string]hooking{
	"gemini": {
		variable: "GEMINI_CLI_HOME", folder: ".gemini", servers: "settings.json", hooks: "settings.json",
		path:  []string{"hooks", "BeforeTool"},
		group: `{"matcher":"*","hooks":[{"name":"` + hookName + `","type":"command","command":$command,"timeout":300000}]}`,
		// A hook that is killed or missing, and one that fails without a word, would let the call through.
		failed: ` || { echo "ocipd: the hook has failed" >&2; exit 2; }`,
		offs: []switching{
			{"settings.json", []string{"hooksConfig", "enabled"}, "true", geminiProject, geminiMachine},
			{"settings.json", []string{"hooksConfig", "disabled"}, "", geminiProject, geminiMachine},
			{"settings.json", []string{"hooks"}, object, geminiProject, geminiMachine},
		},
		others: []hookFile{{user: "settings.json"}, {user: "extensions/*/hooks/hooks.json"}, {project: ".gemini/settings.json"}},
	},
	"copilot": {
		variable: "COPILOT_HOME", own: true, folder: ".copilot", servers: "mcp-config.json", hooks: "hooks/ocipd.json",
		path:    []string{"hooks", "preToolUse"},
		group:   `{"type":"command","exec":$program,"args":$words,"timeoutSec":300}`,
		besides: map[string]string{"version": "1"},
		offs: []switching{
			{"hooks/ocipd.json", []string{"disableAllHooks"}, "false", nil, nil},
			{"settings.json", []string{"disableAllHooks"}, "false", copilotProject, nil},
			{"settings.json", []string{"disabledHooks"}, nobody, nil, nil},
		},
		others: []hookFile{{user: "hooks/*.json"}, {user: "settings.json"}, {project: ".github/hooks/*.json"}, {project: ".github/copilot/settings*.json"}, {project: ".claude/settings*.json"}},
	},
	"cursor": {
		folder: ".cursor", servers: "mcp.json", hooks: "hooks.json",
		path:    []string{"hooks", "preToolUse"},
		group:   `{"command":$command,"timeout":300,"failClosed":true}`,
		besides: map[string]string{"version": "1"},
		others:  []hookFile{{user: "hooks.json"}, {project: ".cursor/hooks.json"}},
	},
	"goose": {
		variable: gooseVariable, folder: ".agents", hooks: goosePlugin + "/hooks/hooks.json",
		path:   []string{"hooks", "PreToolUse"},
		group:  `{"hooks":[{"type":"command","command":$command,"timeout":300,"on_failure":"block"}]}`,
		offs:   []switching{{"../.config/goose/settings.json", []string{"disabledPlugins"}, "", []string{".config/goose/settings.json", ".config/goose/settings.local.json"}, nil}},
		config: gooseConfig, read: readGoose, member: gooseMember,
	},
}

// hooked returns the runtime of a row of hooks.
func hooked(name string) *Runtime {
	row, h := hook.Find(name), hookings[name]
	open := slices.Clone(row.Open)
	for _, f := range row.Fails {
		if !f.Closed {
			open = append(open, "a call, if "+f.How)
		}
	}
	if row.Run == "" {
		open = append(open, "calls about which a version does otherwise than its documentation says: it was not run with ocipd")
	}
	r := &Runtime{
		Name: row.Name, Title: row.Title, Program: row.Program, Open: open, row: row,
		files: h.listing, read: readHooked, gates: hookGates, switches: hookSwitches, Canary: tryHook,
		variable: h.variable, least: row.Least, exempts: func(s *Server) string { return s.Name },
		member: claudeMember, elsewhere: h.machineServers,
	}
	if h.config != nil {
		r.files = func(p *Place) []string { return []string{h.config(p)} }
		// A recipe or a plugin can have another extension of a name, so the hook asks about all.
		r.read, r.member, r.exempts = h.read, h.member, func(*Server) string { return "" }
	}
	return r
}

// dir is the folder of the runtime's files.
func (h *hooking) dir(p *Place) string {
	if h.variable != "" {
		if named := p.Getenv(h.variable); named != "" {
			if h.own {
				return named
			}
			return filepath.Join(named, h.folder)
		}
	}
	return filepath.Join(p.Home, h.folder)
}

func (h hooking) listing(p *Place) []string {
	if h.servers == "" {
		return nil
	}
	return []string{filepath.Join(h.dir(p), filepath.FromSlash(h.servers))}
}

func (h *hooking) file(p *Place) string { return filepath.Join(h.dir(p), filepath.FromSlash(h.hooks)) }

// readHooked finds the servers in a file with mcpServers.
func readHooked(file string, text []byte) ([]entry, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	list, err := readClaude(file, text)
	if err != nil {
		return nil, explained(file, text, err)
	}
	list = slices.DeleteFunc(list, func(e entry) bool { return e.Scope != "" })
	for i := range list {
		e := &list[i]
		if e.kind == localType {
			e.direct = false
			e.others = slices.DeleteFunc(e.others, func(name string) bool { return name == "type" })
		}
		e.others = slices.DeleteFunc(e.others, func(name string) bool { return slices.Contains(hookedMembers, name) })
	}
	return list, nil
}

// hookedMembers are members that say nothing of the way to a server, in one runtime or another.
var hookedMembers = []string{"cwd", "trust", "description", "includeTools", "excludeTools", "tools"}

// explained explains an error about a file that has comments.
func explained(file string, text []byte, err error) error {
	if bytes.Contains(text, []byte("//")) || bytes.Contains(text, []byte("/*")) {
		return fmt.Errorf("%w; if these are comments in %s, which JSON does not have, take them out: ocipd changes no file that it cannot read whole", err, file)
	}
	return err
}

// shellWord quotes a word for a shell, unless it needs no quotes.
func shellWord(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("/._-:@%+=,", c)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// shellLine is the line of words that a shell takes apart again.
func shellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = shellWord(word)
	}
	return strings.Join(quoted, " ")
}

const hookCommand = "hook"

// hookGates enters the hook. Calls of servers behind the proxy are left to it.
func hookGates(r *Runtime, p *Place) ([]Edit, error) {
	h := hookings[r.Name]
	servers, err := r.Servers(p)
	if err != nil {
		return nil, err
	}
	machine, err := r.Elsewhere(p)
	if err != nil {
		return nil, err
	}
	words := slices.Concat(p.finds(), []string{hookCommand, r.Name, tokenFlag, p.Token})
	for i := range servers {
		s := &servers[i]
		if p.started(s) && r.exempts(s) != "" && !slices.ContainsFunc(machine, func(m Server) bool { return m.Name == s.Name && !m.Gated() }) {
			words = append(words, withoutFlag, r.exempts(s))
		}
	}
	line := shellLine(append([]string{p.Self}, words...)...)
	list, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	group := h.group
	for name, value := range map[string]string{"$command": string(appendJSON(nil, line+h.failed)), "$program": string(appendJSON(nil, p.Self)), "$words": string(list)} {
		group = strings.ReplaceAll(group, name, value)
	}
	edit := Edit{File: h.file(p), What: "a hook before each call of a tool", items: []settingsfile.Item{&settingsfile.JSON{Path: h.path, Ours: isHook, Value: group}}}
	text, err := durable.ReadFile(edit.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for name, value := range h.besides {
		i := &settingsfile.JSON{Name: name, Value: value}
		switch strays, err := i.Strays(text); {
		case err != nil:
			return nil, explained(edit.File, text, fmt.Errorf("cannot read %s: %w", edit.File, err))
		case len(strays) > 0: // one of the user's stays the user's
			edit.items = append(edit.items, i)
		}
	}
	if len(bytes.TrimSpace(text)) > 0 {
		if _, err := members(text, span{0, len(text)}); err != nil {
			return nil, explained(edit.File, text, fmt.Errorf("%s is no JSON object: %w", edit.File, err))
		}
	}
	return []Edit{edit}, nil
}

// action is the part of a group that runs a command, in one of several forms.
type action struct {
	Command string   `json:"command"`
	Exec    string   `json:"exec"`
	Args    []string `json:"args"`
	Hooks   []action `json:"hooks"`
}

// line is the command line of a group's only action, or "".
func (a *action) line() string {
	switch {
	case len(a.Hooks) == 1:
		return a.Hooks[0].line()
	case a.Exec != "":
		return strings.Join(slices.Concat([]string{a.Exec}, a.Args), " ")
	}
	return a.Command
}

// asksHook reports whether ocipd entered an element of a list of hooks.
func asksHook(group jsontext.Value) bool {
	var a action
	if json.Unmarshal(group, &a) != nil {
		return false
	}
	line := a.line()
	return slices.ContainsFunc(hook.Names(), func(name string) bool {
		return strings.Contains(line, " "+hookCommand+" "+name+" "+tokenFlag+" ")
	})
}

// leftOut returns the servers whose calls an entered hook leaves to the proxy.
func leftOut(value string) (names []string) {
	var a action
	if json.Unmarshal([]byte(value), &a) != nil || !asksHook(jsontext.Value(value)) {
		return nil
	}
	names = exempted(strings.Fields(a.line()))
	for i := range names {
		names[i] = strings.Trim(names[i], "'")
	}
	return names
}

// tryHook runs the entered hook as the runtime does, and asks it about a canary; then the proxies.
func tryHook(ctx context.Context, r *Runtime, p *Place, c *Canary) (ways int, err error) {
	asks, why, _, err := r.tools(p, true)
	if err != nil {
		return 0, err
	}
	if asks {
		if err := r.runHook(ctx, p, c); err != nil {
			return 0, err
		}
		ways++
	}
	proxies, err := tryCommands(ctx, r, p, c)
	switch {
	case errors.Is(err, ErrNoGate) && ways > 0:
		err = nil
	case errors.Is(err, ErrNoGate) && why != "":
		err = fmt.Errorf("its own tools: %s", why)
	}
	return ways + proxies, err
}

func (r *Runtime) runHook(ctx context.Context, p *Place, c *Canary) error {
	h := hookings[r.Name]
	text, err := durable.ReadFile(h.file(p))
	if err != nil {
		return err
	}
	group, err := (&settingsfile.JSON{Path: h.path, Ours: isHook}).Find(text)
	if err != nil {
		return err
	}
	var a action
	if err := json.Unmarshal(group, &a); err != nil {
		return err
	}
	if len(a.Hooks) == 1 {
		a = a.Hooks[0]
	}
	input, err := json.Marshal(&toolgate.CanaryCall{To: c.Target, Text: c.Text})
	if err != nil {
		return err
	}
	asked, err := r.row.Write(&toolgate.Question{Tool: "mcp__" + toolgate.Canary + "__send", Server: toolgate.Canary, Name: "send", Input: input})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", a.Command)
	if a.Exec != "" {
		cmd = exec.CommandContext(ctx, a.Exec, a.Args...)
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(asked), &out, &said
	failed := cmd.Run()
	if cmd.ProcessState == nil {
		return failed
	}
	if !r.row.Refused(out.Bytes(), cmd.ProcessState.ExitCode()) {
		return fmt.Errorf("the hook in its settings has answered %q", cmp.Or(strings.TrimSpace(out.String()+said.String()), "nothing"))
	}
	return nil
}
