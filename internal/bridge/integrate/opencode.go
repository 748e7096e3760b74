package integrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/integrations"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// openCode asks by a plugin in a folder that it reads with any settings. If a project's settings put
// another server in the place of one behind the proxy, the plugin asks about that server's calls as
// calls of tools.
var openCode = &Runtime{
	Name: "opencode", Title: directory.TitleOf("opencode"), Program: "opencode",
	Open: []string{
		"an opencode that is started with --pure or OPENCODE_PURE, or with another XDG_CONFIG_HOME: it does not load the plugin",
		"what other plugins, and the language servers and formatters of a project's settings, do by themselves: that is no call of a tool",
	},
	files: openCodeFiles, read: readOpenCode, gates: openCodeGates, switches: openCodeSwitches, Canary: tryOpenCode,
	variable: openCodeVariable, member: openCodeMember,
	exempts:   func(s *Server) string { return s.Name },
	least:     [3]int{1, 18, 33},
	elsewhere: openCodeProjects,
	asked:     openCodeGate,
}

const (
	openCodeVariable = "XDG_CONFIG_HOME"
	// openCodePure is the variable with which opencode loads no plugin of its user.
	openCodePure = "OPENCODE_PURE"
)

func openCodeFolder(p *Place) string {
	dir := p.Getenv(openCodeVariable)
	if dir == "" {
		dir = filepath.Join(p.Home, ".config")
	}
	return filepath.Join(dir, "opencode")
}

// openCodeFiles are in the order in which opencode reads them. A later one overrides members of an
// earlier one.
func openCodeFiles(p *Place) (files []string) {
	for _, name := range []string{"config.json", "opencode.json", "opencode.jsonc"} {
		files = append(files, filepath.Join(openCodeFolder(p), name))
	}
	return files
}

// openCodeBegins begins each plugin that ocipd wrote.
const openCodeBegins = "const gate = "

func openCodePlugin(p *Place) string { return filepath.Join(openCodeFolder(p), "plugins", "ocipd.js") }

func openCodeGates(r *Runtime, p *Place) ([]Edit, error) {
	proxy, args := p.before(p.agent, "", "", nil)
	proxied := slices.Concat([]string{proxy}, args[:slices.Index(args, nameFlag)])
	text, err := integrations.OpenCode(slices.Concat([]string{p.Self}, p.gateArgs(r)), proxied, slices.Concat([]string{p.Self}, p.finds(), []string{serveCommand}))
	return []Edit{{File: openCodePlugin(p), What: "a plugin that asks before each call of a tool", items: []settingsfile.Item{&settingsfile.Whole{Text: text, Begins: openCodeBegins}}}}, err
}

// openCodeGate is the command that the plugin in the user's folder asks.
func openCodeGate(p *Place) (*Server, error) {
	text, err := durable.ReadFile(openCodePlugin(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var words []string
	if list, ok := strings.CutPrefix(line, openCodeBegins); !ok || json.Unmarshal([]byte(list), &words) != nil || len(words) == 0 {
		return nil, fmt.Errorf("%s: it is not the plugin of ocipd", openCodePlugin(p))
	}
	return &Server{Name: gateServer, File: openCodePlugin(p), Command: words[0], Args: words[1:]}, nil
}

// openCodeSwitches finds what keeps opencode from loading the plugin. No setting does.
func openCodeSwitches(_ *Runtime, p *Place, _ bool) (list []off, err error) {
	if value := p.Getenv(openCodePure); !slices.Contains([]string{"", "0", "false"}, value) {
		list = append(list, off{Stray: Stray{File: "the environment", What: openCodePure + " is " + settingsfile.Short(value)}})
	}
	return list, nil
}

// openCodeProjects returns the servers that the settings of the current project list. opencode
// starts them in the place of the user's servers of the same names.
func openCodeProjects(p *Place) (list []Server, err error) {
	if p.Folder == "" {
		return nil, nil
	}
	for folder := p.Folder; ; folder = filepath.Dir(folder) {
		for _, dir := range []string{folder, filepath.Join(folder, ".opencode")} {
			for _, name := range []string{"opencode.json", "opencode.jsonc"} {
				file := filepath.Join(dir, name)
				text, err := durable.ReadUpTo(file, maxShared)
				if missing(err) {
					continue
				}
				var entries []entry
				if err == nil {
					entries, err = readOpenCode(file, text)
				}
				if err != nil {
					list = append(list, unreadServers(file, folder))
					continue
				}
				for _, s := range p.sharedBy(file, folder, entries) {
					s.source = "project"
					list = append(list, s)
				}
			}
		}
		if folder == filepath.Dir(folder) {
			return list, nil
		}
	}
}

func openCodeMember(s *Server, path ...string) settingsfile.Item {
	at := slices.Concat(s.path, path)
	if len(path) > 0 && path[0] == "env" {
		at[len(s.path)] = "environment"
	}
	return &settingsfile.Commented{JSON: settingsfile.JSON{Path: at[:len(at)-1], Name: at[len(at)-1]}}
}

// readOpenCode finds the servers in mcp, and in mcp.servers, which is a later form of it.
func readOpenCode(file string, text []byte) (list []entry, err error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, nil
	}
	plain := settingsfile.Plain(text)
	top, err := members(plain, span{0, len(plain)})
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON object: %w", file, err)
	}
	take := func(path []string, at span) error {
		servers, err := members(plain, at)
		if err != nil {
			return fmt.Errorf("%s: %s is no object: %w", file, strings.Join(path, "."), err)
		}
		for _, s := range servers {
			e, err := readOpenCodeServer(plain, s)
			if err != nil {
				return fmt.Errorf("%s: %s.%s: %w", file, strings.Join(path, "."), s.name, err)
			}
			if e.path = append(slices.Clip(path), s.name); e.Command != "" || e.URL != "" {
				list = append(list, e)
			}
		}
		return nil
	}
	for _, m := range top {
		if m.name != "mcp" {
			continue
		}
		path := []string{m.name}
		servers, err := members(plain, m.at)
		if err != nil {
			return nil, fmt.Errorf("%s: mcp is no object: %w", file, err)
		}
		for _, s := range servers {
			if s.name == "servers" && newForm(plain, s.at) {
				if err := take(append(path, s.name), s.at); err != nil {
					return nil, err
				}
			}
		}
		if err := take(path, m.at); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// newForm reports whether mcp.servers is a list of servers, and not a server of that name.
func newForm(text []byte, at span) bool {
	list, err := members(text, at)
	return err == nil && !slices.ContainsFunc(list, func(m member) bool {
		return (m.name == "type" || m.name == "enabled") && text[m.at.begin] != '{'
	})
}

// Members of a server that opencode starts, and of one that it reaches over HTTP. What it would make
// of a further member is not known. The last of each are those that a command and an address share.
var (
	openCodeLocal  = []string{"type", "command", "environment", "cwd", "enabled", "disabled", "timeout"}
	openCodeRemote = []string{"type", "url", "headers", "enabled", "disabled", "timeout"}
)

const (
	localType  = "local"
	remoteType = "remote"
)

func readOpenCodeServer(text []byte, s member) (e entry, err error) {
	e.Name = s.name
	list, err := members(text, s.at)
	if err != nil {
		return e, nil // it is no server, such as a timeout for all
	}
	kind, at := "", make(map[string]member)
	var words []string
	for _, m := range list {
		value := text[m.at.begin:m.at.end]
		switch at[m.name] = m; m.name {
		case "command":
			err = json.Unmarshal(value, &words)
			e.command = m.at
		case "url":
			err = json.Unmarshal(value, &e.URL)
		case "environment":
			_ = json.Unmarshal(value, &e.env) // one that is no such thing is none of ours
		case "type":
			err = json.Unmarshal(value, &kind)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if len(words) > 0 && kind != remoteType {
		e.Command, e.Args = words[0], words[1:]
	}
	e.args = span{e.command.end, e.command.end}
	e.write = func(command string, args []string, _ bool) (string, string) {
		_, list := writeJSON("", slices.Concat([]string{command}, args), false)
		return list, ""
	}
	known := openCodeLocal
	if kind == remoteType {
		known = openCodeRemote
	}
	for _, m := range list {
		if !slices.Contains(known, m.name) {
			e.others = append(e.others, m.name)
		}
	}
	if kind == remoteType && len(e.others) == 0 {
		e.remote = openCodeAddress(text, e.URL, at["headers"])
	}
	if e.remote != nil {
		e.command = s.at
		e.start = func(command string, args []string) []piece { return openCodeCommand(e.remote, at, command, args) }
	}
	e.back = func(_ *entry, m *remote, _ []entry) []piece { return openCodeBack(text, m, at) }
	return e, nil
}

// openCodeAddress reads a server over HTTP, and returns nil if a command cannot express it.
func openCodeAddress(text []byte, address string, headers member) *remote {
	m := &remote{url: address}
	if headers.name != "" && json.Unmarshal(text[headers.at.begin:headers.at.end], &m.headers) != nil || address == "" || strings.Contains(address, "?") {
		return nil // all users see command lines, and a query can contain a key
	}
	for name, value := range m.headers {
		if name == "" || strings.ContainsAny(name+value, "\r\n") || strings.Contains(name, ": ") {
			return nil
		}
	}
	return m
}

// openCodeCommand replaces the address and the headers by a command and its environment.
func openCodeCommand(m *remote, at map[string]member, command string, args []string) []piece {
	_, list := writeJSON("", slices.Concat([]string{command}, args), false)
	pieces := []piece{{at["type"].at, `"` + localType + `"`}, {at["url"].whole(), `"command": ` + list}}
	if headers, ok := at["headers"]; ok {
		pieces = append(pieces, piece{headers.whole(), `"environment": {"` + HeadersVariable + `": ` + string(appendJSON(nil, headerLines(m.headers))) + `}`})
	}
	return pieces
}

// openCodeBack replaces the command by the address again.
func openCodeBack(text []byte, m *remote, at map[string]member) []piece {
	pieces := []piece{{at["type"].at, `"` + remoteType + `"`}, {at["command"].whole(), `"url": ` + string(appendJSON(nil, m.url))}}
	if env, ok := at["environment"]; ok {
		var variables map[string]string
		_ = json.Unmarshal(text[env.at.begin:env.at.end], &variables) // what was ours is one
		headers, err := ReadHeaders(variables[HeadersVariable])
		if list, failed := json.Marshal(headers, json.Deterministic(true)); err == nil && failed == nil {
			pieces = append(pieces, piece{env.whole(), `"headers": ` + string(list)})
		}
	}
	return pieces
}

// tryOpenCode has opencode say that it loads the plugin, and then asks the gate that the plugin asks.
func tryOpenCode(ctx context.Context, r *Runtime, p *Place, c *Canary) (ways int, err error) {
	if gate, err := openCodeGate(p); err != nil || gate == nil {
		return tryCommands(ctx, r, p, c)
	}
	if err := loadsPlugin(ctx, r, p); err != nil {
		return 0, err
	}
	return tryCommands(ctx, r, p, c)
}

// loadsPlugin returns an error unless opencode says that it loads the plugin. Its first start in a
// home can take a minute, so that the canary's time is the only bound.
func loadsPlugin(ctx context.Context, r *Runtime, p *Place) error {
	program := r.Installed(p)
	if program == "" {
		return fmt.Errorf("%s is not on your PATH, so that nothing shows that it loads the plugin", r.Program)
	}
	cmd := exec.CommandContext(ctx, program, "debug", "info")
	cmd.Dir, cmd.WaitDelay = p.Home, time.Second
	cmd.Env = os.Environ()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s debug info does not say which plugins it loads: %w", r.Program, err)
	}
	for line := range strings.Lines(string(out)) {
		at, ok := strings.CutPrefix(strings.TrimSpace(line), "- file://")
		if path, err := url.PathUnescape(at); ok && err == nil && samePlace(path, openCodePlugin(p)) {
			return nil
		}
	}
	return fmt.Errorf("OpenCode does not load %s: %s", openCodePlugin(p), strings.TrimSpace(string(out)))
}
