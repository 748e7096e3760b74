package integrate

import (
	"bytes"
	"cmp"
	"errors"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/pelletier/go-toml/v2"
)

// Stray is something that is in a runtime's files, or missing from them, so that a gate no
// longer works as entered.
type Stray struct {
	// File is its file. Scope is the project's folder if it applies only there.
	File, Scope string
	// What names the member and the problem.
	What string
	// Hook is set for a hook of others, which can change a call that the gate has allowed. The
	// gate itself works, and ocipd removes no such hook.
	Hook bool
}

// String names a stray with its file.
func (s *Stray) String() string { return s.File + ": " + s.What }

// entered is one entry of ocipd, in one of several forms.
type entered struct {
	Path    []string `json:"path,omitempty"`
	Name    string   `json:"name,omitzero"`
	Value   string   `json:"value,omitzero"`
	Block   string   `json:"block,omitzero"`
	Prompts []string `json:"prompts,omitempty"`
	Whole   string   `json:"whole,omitzero"`
}

func (e *entered) item() settingsfile.Item {
	switch {
	case e.Block != "":
		return codexBlock(e.Block)
	case len(e.Prompts) > 0:
		return &tomlPrompts{names: e.Prompts}
	case e.Whole != "":
		return &settingsfile.Whole{Text: e.Whole, Begins: openCodeBegins}
	}
	return &settingsfile.JSON{Path: e.Path, Name: e.Name, Ours: isHook, Value: e.Value}
}

// asks reports whether the entry makes the runtime ask before tool calls.
func (e *entered) asks() bool { return e.Whole != "" || len(e.Path) > 0 && e.Path[0] == "hooks" }

// off is a stray that somebody has added. out removes it; it is nil if ocipd must not
// change the file.
type off struct {
	Stray
	out settingsfile.Item
}

// Strays returns everything that keeps the gate of an integrated runtime from working as entered.
func (r *Runtime) Strays(p *Place) ([]Stray, error) {
	if r.strays != nil {
		return r.strays(p)
	}
	k, err := r.kept(p)
	if err != nil || len(k.Files) == 0 || r.gates == nil {
		return nil, err
	}
	var list []Stray
	var asks []string // servers that the gate leaves to the proxy
	for _, file := range slices.Sorted(maps.Keys(k.Files)) {
		n := k.Files[file]
		file = cmp.Or(n.Link, file)
		text, err := durable.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range n.Entered {
			asks = append(asks, e.without()...)
			what, err := e.item().Strays(text)
			if err != nil {
				what = []string{"cannot be read: " + err.Error()}
			}
			for _, w := range what {
				list = append(list, Stray{File: file, What: w})
			}
		}
	}
	if k.Managed {
		machine, _, err := r.machineStrays(p)
		if err != nil {
			return nil, err
		}
		list = append(list, machine...)
	}
	servers, err := r.strayServers(p, asks)
	if err != nil {
		return nil, err
	}
	list = append(list, servers...)
	offs, err := r.switches(r, p, k.Managed)
	for i := range offs {
		list = append(list, offs[i].Stray)
	}
	seen := make(map[Stray]bool)
	return slices.DeleteFunc(list, func(s Stray) bool {
		was := seen[s]
		seen[s] = true
		return was
	}), err
}

// strayServers returns the servers that are not gated as entered. asks are those that the gate leaves
// to the proxy.
func (r *Runtime) strayServers(p *Place, asks []string) (list []Stray, err error) {
	servers, err := r.Servers(p)
	if err != nil {
		return nil, err
	}
	shared, err := r.Elsewhere(p)
	if err != nil {
		return nil, err
	}
	for i, s := range slices.Concat(servers, shared) {
		switch {
		case i < len(servers) && s.Changed != "":
			list = append(list, Stray{File: s.File, Scope: s.Scope, What: "server " + s.Name + ": " + s.Changed})
		case !s.Gated() && slices.Contains(asks, r.exempts(&s)):
			list = append(list, Stray{File: s.File, Scope: s.Scope, What: "server " + s.Name + " is not behind the proxy, and its calls are asked about nowhere else"})
		}
	}
	return list, nil
}

// without returns the servers whose calls a gate leaves to the proxy, according to the entry.
func (e *entered) without() (names []string) {
	var s struct {
		Args []string `json:"args"`
	}
	names = leftOut(e.Value)
	if e.Name == gateServer && json.Unmarshal([]byte(e.Value), &s) == nil {
		names = append(names, exempted(s.Args)...)
	}
	var gate UserGate // of the machine's settings
	if toml.Unmarshal([]byte(e.Block), &gate) == nil {
		names = append(names, gate.Without...)
	}
	servers, _ := codexServers("", []byte(e.Block)) // it is ours, and may be another kind of block
	for _, server := range servers {
		names = append(names, exempted(server.Args)...)
	}
	return names
}

func exempted(args []string) (names []string) {
	for i, arg := range args {
		if arg == withoutFlag && i+1 < len(args) {
			names = append(names, args[i+1])
		}
	}
	return names
}

// machineStrays returns the strays of the machine's settings. there is set if all of its
// files contain ocipd's entries.
func (r *Runtime) machineStrays(p *Place) (list []Stray, there bool, err error) {
	if r.managed == nil {
		return nil, false, nil
	}
	whole := *p
	if r.machine != nil {
		// An administrator chose the options with which it finds its daemon.
		servers, err := r.listed(p, []string{r.machine(p)})
		if err != nil {
			return nil, false, err
		}
		for i := range servers {
			if s := &servers[i]; s.Name == gateServer {
				_, rest := subcommand(s.Args)
				whole.Options = s.Args[:max(0, len(s.Args)-len(rest)-1)]
			}
		}
	}
	edits, err := r.managed(r, &whole)
	if err != nil {
		return nil, false, err
	}
	there = true
	for i := range edits {
		stands, err := edits[i].stands()
		if err != nil {
			return nil, false, err
		}
		there = there && stands
		text, err := durable.ReadFile(edits[i].File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
		for _, item := range edits[i].items {
			what, err := item.Strays(text)
			if err != nil {
				what = []string{"cannot be read: " + err.Error()}
			}
			for _, w := range what {
				list = append(list, Stray{File: edits[i].File, What: w})
			}
		}
	}
	return list, there, nil
}

// Tools reports whether the runtime asks about calls of tools, and why, or why not: "" for
// one that has another gate. Rest are the projects in which it does not.
func (r *Runtime) Tools(p *Place) (asks bool, why string, rest []Stray, err error) {
	return r.tools(p, false)
}

// tools is [Runtime.Tools]. Set alone to leave out the hooks of others, which do not keep the gate
// from being asked.
func (r *Runtime) tools(p *Place, alone bool) (asks bool, why string, rest []Stray, err error) {
	if r.gates == nil {
		return false, "", nil, nil
	}
	k, err := r.kept(p)
	if err != nil {
		return false, "", nil, err
	}
	own := false
	for _, n := range k.Files {
		own = own || slices.ContainsFunc(n.Entered, func(e entered) bool { return e.asks() })
	}
	strays, err := r.Strays(p)
	if err != nil {
		return false, "", nil, err
	}
	machine, there, err := r.machineStrays(p)
	switch {
	case err != nil:
		return false, "", nil, err
	case !own && !there && !k.Managed:
		there := *p
		there.Hashes = nil // find the entries whatever their hash
		edits, err := r.gates(r, &there)
		if err != nil {
			return false, "", nil, err
		}
		for i := range edits {
			if stands, err := edits[i].stands(); err == nil && stands && !edits[i].Out {
				return false, "how they were put behind the daemon is not known here: " + enterAgain, nil, nil
			}
		}
		return false, "nobody asks the daemon about them", nil, nil
	case len(k.Files) == 0:
		strays = append(strays, machine...)
	}
	var wrong []string
	for i := range strays {
		if alone && strays[i].Hook {
			continue
		}
		if strays[i].Scope != "" {
			rest = append(rest, strays[i])
			continue
		}
		wrong = append(wrong, strays[i].String())
	}
	switch {
	case len(wrong) > 0:
		advice := enterAgain
		if !slices.ContainsFunc(strays, func(s Stray) bool { return s.Scope == "" && !s.Hook }) {
			advice = "take it out there"
		}
		return false, "changed: " + strings.Join(wrong, "; ") + ": " + advice, rest, nil
	case !own || k.Managed:
		return true, "decided by the daemon before each call; in the machine's settings, which no user can switch off", rest, nil
	}
	return true, "decided by the daemon before each call", rest, nil
}

const enterAgain = "enter it again"

// Held returns, for each integrated runtime by name, the problems that keep its gate from
// working as entered; none if it works. It uses the notes in a directory, because the caller
// does not know the runtime's user and environment. A check that fails counts as a problem.
func Held(notes string) map[string][]string {
	found := make(map[string][]string)
	for _, r := range Runtimes() {
		p := &Place{Notes: notes, Etc: "/etc"}
		k, err := r.kept(p)
		if r.gates == nil || err == nil && (len(k.Files) == 0 || k.Home == "") {
			continue // an earlier version did not note the place of the files
		}
		p.Home, p.Self, p.Getenv = k.Home, k.Self, func(name string) string {
			if name == r.variable {
				return k.Folder
			}
			return ""
		}
		var strays []Stray
		if err == nil {
			strays, err = r.Strays(p)
		}
		if err != nil {
			strays = append(strays, Stray{File: r.noteFile(p), What: err.Error()})
		}
		found[r.Name] = make([]string, len(strays))
		for i := range strays {
			found[r.Name][i] = strays[i].String()
		}
	}
	return found
}

// steers reports whether an environment variable can make this program, or its dynamic
// loader, deviate from the command line. [HeadersVariable] belongs to a server's entry.
func steers(name string) bool {
	return name != HeadersVariable && (strings.HasPrefix(name, "OCIPD_") || strings.HasPrefix(name, "OPENCLAWOS_") || strings.HasPrefix(name, "LD_"))
}

// claudeHookless are the variables with which Claude Code runs no hooks of its user: the first two by
// a trial of 2.1.330, which set each name of a variable in the program to 1, and the others, which
// take other values, by the program's text. With those of claudeElsewhere, it reads other settings
// or plugins, starts servers through another program, names tools otherwise, or loads code into
// itself.
var (
	claudeHookless  = []string{"CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE", "CLAUDE_CODE_PERSONAL_HOOKS_OFF", "CLAUDE_CODE_RESTRICT_PERSONAL_CONFIG", "CLAUDE_CODE_USE_COWORK_PLUGINS"}
	claudeElsewhere = []string{claudeVariable, "CLAUDE_CODE_SHELL_PREFIX", "BUN_OPTIONS", "BUN_INSPECT_PRELOAD",
		"CLAUDE_CODE_PLUGIN_DIRS", "CLAUDE_CODE_PLUGIN_CACHE_DIR", "CLAUDE_CODE_PLUGIN_SEED_DIR",
		"CLAUDE_CODE_MANAGED_SETTINGS_PATH", "CLAUDE_CODE_REMOTE_SETTINGS_PATH", "CLAUDE_AGENT_SDK_MCP_NO_PREFIX"}
)

// claudeFile is a settings file that Claude Code reads. ours is set for the user's own
// files, machine for the machine's and for those of the user's organization, which Claude Code
// keeps beside the user's and treats alike; neither for a project's.
type claudeFile struct {
	file, scope   string
	ours, machine bool
}

// claudeReads returns the settings files that Claude Code reads, and the one with its servers,
// of which it applies the variables.
func claudeReads(p *Place) (list []claudeFile, err error) {
	list = append(list, claudeFile{file: claudeSettings(p), ours: true}, claudeFile{file: claudeFiles(p)[0], ours: true})
	text, err := durable.ReadFile(claudeFiles(p)[0])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var known struct {
		Projects map[string]jsontext.Value `json:"projects"`
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &known); err != nil {
			return nil, err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(known.Projects)) {
		list = append(list, claudeFile{file: filepath.Join(folder, ".claude", "settings.local.json"), scope: folder, ours: true},
			claudeFile{file: filepath.Join(folder, ".claude", "settings.json"), scope: folder})
	}
	dir, home := filepath.Join(p.Etc, "claude-code"), claudeHome(p)
	machines := []string{filepath.Join(dir, "managed-settings.json"), filepath.Join(home, "remote-settings.json")}
	for _, pattern := range []string{filepath.Join(globbed(dir), "managed-settings.d", "*.json"), filepath.Join(globbed(home), "state", "hybrid-settings*.json")} {
		more, _ := filepath.Glob(pattern) // the pattern is well-formed
		machines = append(machines, more...)
	}
	for _, file := range machines {
		list = append(list, claudeFile{file: file, machine: true})
	}
	return list, nil
}

// claudeSwitches finds settings that stop Claude Code from asking the gate or from starting
// its server.
func claudeSwitches(r *Runtime, p *Place, managed bool) (list []off, err error) {
	files, err := claudeReads(p)
	if err != nil {
		return nil, err
	}
	for i := range files {
		list = append(list, files[i].offs(managed)...)
	}
	list = append(list, claudeHooks(p, files, managed)...)
	main := claudeFiles(p)[0]
	text, err := durable.ReadFile(main)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	var known struct {
		Projects map[string]struct {
			Disabled jsontext.Value `json:"disabledMcpServers"`
		} `json:"projects"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, err
	}
	for _, folder := range slices.Sorted(maps.Keys(known.Projects)) {
		var names []string
		if json.Unmarshal(known.Projects[folder].Disabled, &names) == nil && slices.Contains(names, gateServer) {
			list = append(list, off{Stray{File: main, Scope: folder, What: "disabledMcpServers has " + gateServer}, settingsfile.Gone{Item: &settingsfile.JSON{
				Path: []string{"projects", folder, "disabledMcpServers"}, Ours: isText(gateServer), Value: `"` + gateServer + `"`}}})
		}
	}
	others, err := r.otherGates(p)
	return append(list, others...), err
}

// otherGates finds servers of a project that have the name of the gate. Claude Code asks
// them in the place of the one that was entered.
func (r *Runtime) otherGates(p *Place) (list []off, err error) {
	own, err := r.Servers(p)
	if err != nil {
		return nil, err
	}
	shared, err := r.Elsewhere(p)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Concat(own, shared) {
		if s.Name != gateServer || s.Scope == "" {
			continue
		}
		o := off{Stray: Stray{File: s.File, Scope: s.Scope, What: "mcpServers." + gateServer + " takes the place of what was entered"}}
		if s.File == r.files(p)[0] {
			o.out = settingsfile.Gone{Item: &settingsfile.JSON{Path: []string{"projects", s.Scope, "mcpServers"}, Name: gateServer}}
		}
		list = append(list, o)
	}
	return list, nil
}

// added returns the paths of foreign members of a proxied server's entry. Such a member could keep
// the runtime from starting the proxy, or point the proxy at another daemon or program.
func (s *Server) added() (paths [][]string) {
	for _, name := range s.others {
		paths = append(paths, []string{name})
	}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		paths = append(paths, []string{"env", name})
	}
	for _, name := range s.passed {
		paths = append(paths, []string{passedKey, name})
	}
	return slices.DeleteFunc(paths, func(path []string) bool { return len(path) == 2 && !steers(path[1]) })
}

func isText(want string) func(jsontext.Value) bool {
	return func(v jsontext.Value) bool {
		var text string
		return json.Unmarshal(v, &text) == nil && text == want
	}
}

// isGate reports whether an element of a list of servers names the gate, by its name or its command.
func isGate(v jsontext.Value) bool {
	var s struct {
		Name    string   `json:"serverName"`
		Command []string `json:"serverCommand"`
	}
	return json.Unmarshal(v, &s) == nil && (s.Name == gateServer || slices.Contains(s.Command, gateCommand))
}

// offs finds settings in one file that stop Claude Code from asking the gate.
func (f *claudeFile) offs(managed bool) (list []off) {
	most := int64(maxShared)
	if f.scope == "" {
		most = maxOwn
	}
	text, err := durable.ReadUpTo(f.file, most)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	stray := func(what string, out settingsfile.Item) {
		o := off{Stray: Stray{File: f.file, Scope: f.scope, What: what}}
		if f.ours {
			o.out = out
		}
		list = append(list, o)
	}
	var s struct {
		NoHooks jsontext.Value   `json:"disableAllHooks"`
		Managed bool             `json:"allowManagedHooksOnly"`
		Plugins jsontext.Value   `json:"strictPluginOnlyCustomization"`
		Env     map[string]any   `json:"env"`
		Denied  []jsontext.Value `json:"deniedMcpServers"`
		Allowed []jsontext.Value `json:"allowedMcpServers"`
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		stray("cannot be read, so what it switches off is not known", nil)
		return list
	}
	// The machine's hooks run regardless of the user's settings.
	if no := string(s.NoHooks); !slices.Contains([]string{"", "null", "false", `"false"`}, no) && (f.machine || !managed) {
		stray("disableAllHooks is "+settingsfile.Short(no), settingsfile.Gone{Item: &settingsfile.JSON{Name: "disableAllHooks", Value: no}})
	}
	if f.machine && !managed {
		for name, is := range map[string]bool{"allowManagedHooksOnly": s.Managed, "strictPluginOnlyCustomization": string(s.Plugins) == "true" || bytes.Contains(s.Plugins, []byte(`"hooks"`))} {
			if is {
				stray(name+" is set, so that hooks of a user's own do not run", nil)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if steers(name) || slices.Contains(claudeElsewhere, name) || !managed && slices.Contains(claudeHookless, name) {
			stray("env."+name+" is set for all that Claude Code starts", settingsfile.Gone{Item: &settingsfile.JSON{Path: []string{"env"}, Name: name}})
		}
	}
	if slices.ContainsFunc(s.Denied, isGate) {
		stray("deniedMcpServers has "+gateServer, settingsfile.Gone{Item: &settingsfile.JSON{Path: []string{"deniedMcpServers"}, Ours: isGate}})
	}
	if s.Allowed != nil && !slices.ContainsFunc(s.Allowed, isGate) {
		stray("allowedMcpServers does not have "+gateServer, &settingsfile.JSON{Path: []string{"allowedMcpServers"}, Ours: isGate, Value: `{"serverName":"` + gateServer + `"}`})
	}
	return list
}
