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
	"github.com/openclawos/ocipd/internal/api"
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
	// offs are settings that switch the hook off.
	offs []switching
}

// switching is a setting that can switch a hook off: unless it has the value on, or, with on "", if
// it lists the hook. projects is set if a project's settings can have it too.
type switching struct {
	file     string
	path     []string
	on       string
	projects bool
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
		offs:   []switching{{"settings.json", []string{"hooksConfig", "enabled"}, "true", true}, {"settings.json", []string{"hooksConfig", "disabled"}, "", true}},
	},
	"copilot": {
		variable: "COPILOT_HOME", own: true, folder: ".copilot", servers: "mcp-config.json", hooks: "hooks/ocipd.json",
		path:    []string{"hooks", "preToolUse"},
		group:   `{"type":"command","exec":$program,"args":$words,"timeoutSec":300}`,
		besides: map[string]string{"version": "1"},
		offs:    []switching{{"hooks/ocipd.json", []string{"disableAllHooks"}, "false", false}},
	},
	"cursor": {
		folder: ".cursor", servers: "mcp.json", hooks: "hooks.json",
		path:    []string{"hooks", "preToolUse"},
		group:   `{"command":$command,"timeout":300,"failClosed":true}`,
		besides: map[string]string{"version": "1"},
	},
	"goose": {
		folder: ".agents", hooks: "plugins/" + hookName + "/hooks/hooks.json",
		path:  []string{"hooks", "PreToolUse"},
		group: `{"hooks":[{"type":"command","command":$command,"timeout":300,"on_failure":"block"}]}`,
		offs:  []switching{{"../.config/goose/settings.json", []string{"disabledPlugins"}, "", false}},
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
	return &Runtime{
		Name: row.Name, Title: row.Title, Program: row.Program, Open: open, row: row,
		files: h.listing, read: readHooked, gates: hookGates, switches: hookSwitches, Canary: tryHook,
		variable: h.variable, least: row.Least, exempts: func(s *Server) string { return s.Name },
		member: claudeMember,
	}
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
	words := slices.Concat(p.finds(), []string{hookCommand, r.Name, tokenFlag, p.Token})
	for i := range servers {
		if s := &servers[i]; p.started(s) {
			words = append(words, withoutFlag, s.Name)
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

// hookSwitches finds settings of the user, or of the current project, that switch the hook off.
func hookSwitches(r *Runtime, p *Place, _ bool) (list []off, err error) {
	h := hookings[r.Name]
	for _, s := range h.offs {
		file := filepath.Join(h.dir(p), filepath.FromSlash(s.file))
		text, err := durable.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if what := s.found(text); what != "" {
			list = append(list, off{Stray{File: file, What: what}, settingsfile.Gone{Item: s.item(text)}})
		}
		if p.Folder == "" || !s.projects {
			continue
		}
		file = filepath.Join(p.Folder, h.folder, filepath.FromSlash(s.file))
		if samePlace(file, filepath.Join(h.dir(p), filepath.FromSlash(s.file))) {
			continue
		}
		switch text, err := durable.ReadUpTo(file, maxShared); {
		case missing(err):
		case err != nil:
			list = append(list, off{Stray: Stray{File: file, What: "it cannot be read, and can switch the hook off"}})
		default:
			if what := s.found(text); what != "" {
				list = append(list, off{Stray: Stray{File: file, What: what}})
			}
		}
	}
	return list, nil
}

// found says that a text has the setting, or anything that the runtime could take for it: a value of
// another type, or one in which the runtime puts variables.
func (s *switching) found(text []byte) string {
	if len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	value := settingsfile.Plain(text)
	for _, name := range s.path {
		list, err := members(value, span{0, len(value)})
		if err != nil {
			return "it cannot be read, and can switch the hook off"
		}
		i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
		if i < 0 {
			return ""
		}
		value = value[list[i].at.begin:list[i].at.end]
	}
	var names []string
	harmless := string(value) == s.on
	if s.on == "" {
		harmless = json.Unmarshal(value, &names) == nil && !slices.ContainsFunc(names, func(name string) bool { return name == hookName || strings.Contains(name, "$") })
	}
	if harmless {
		return ""
	}
	return strings.Join(s.path, ".") + " is " + settingsfile.Short(string(value)) + ", so that the hook does not run"
}

// item is the part of a text that switches the hook off: the whole setting, or an element of a list.
func (s *switching) item(text []byte) settingsfile.Item {
	last := len(s.path) - 1
	element := &settingsfile.JSON{Path: s.path, Value: `"` + hookName + `"`, Ours: func(v jsontext.Value) bool {
		name, ok := api.Text(v)
		return ok && name == hookName
	}}
	if s.on == "" {
		if without, err := element.Strip(text); err == nil && !bytes.Equal(without, text) {
			return element
		}
	}
	return &settingsfile.JSON{Path: s.path[:last], Name: s.path[last], Value: s.on}
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
