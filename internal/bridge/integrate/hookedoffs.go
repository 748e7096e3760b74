package integrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
)

// switching is a setting that can switch a hook off: unless it has the value on, or, with on "", if
// it lists the hook, or, with on [nobody], if it lists any, or, with on [object], unless it is an object.
// projects are the files below a project's folder that can have it too, and machine those below /etc.
type switching struct {
	file              string
	path              []string
	on                string
	projects, machine []string
}

// nobody is the value of a setting that lists hooks by keys which only the runtime knows.
const nobody = "[]"

// object is the value of a setting whose members are merged with those of other files. A value of another
// kind takes the place of all of them.
const object = "{}"

var (
	geminiProject  = []string{".gemini/settings.json"}
	geminiMachine  = []string{geminiSystem, geminiDefaults}
	copilotProject = []string{".github/copilot/settings.json", ".github/copilot/settings.local.json", ".claude/settings.json", ".claude/settings.local.json"}
)

// Files of Gemini CLI for all users of the machine, below /etc, and the variables that name others in their place.
const (
	geminiSystem        = "gemini-cli/settings.json"
	geminiDefaults      = "gemini-cli/system-defaults.json"
	geminiSystemNamed   = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"
	geminiDefaultsNamed = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
)

// machineFile is a file of the machine. The second one of Gemini CLI is beside the first.
func (p *Place) machineFile(name string) string {
	system := cmp.Or(p.Getenv(geminiSystemNamed), filepath.Join(p.Etc, geminiSystem))
	switch name {
	case geminiSystem:
		return system
	case geminiDefaults:
		return cmp.Or(p.Getenv(geminiDefaultsNamed), filepath.Join(filepath.Dir(system), filepath.Base(name)))
	}
	return filepath.Join(p.Etc, name)
}

// machineServers are the servers in the machine's settings. The runtime starts them in the place of the
// user's servers of the same names.
func (h *hooking) machineServers(p *Place) (list []Server, err error) {
	var seen []string
	for _, s := range h.offs {
		for _, name := range s.machine {
			file := p.machineFile(name)
			if slices.Contains(seen, file) {
				continue
			}
			seen = append(seen, file)
			text, err := durable.ReadUpTo(file, maxShared)
			if missing(err) {
				continue
			}
			var entries []entry
			if err == nil {
				entries, err = readHooked(file, settingsfile.Plain(text))
			}
			if err != nil {
				list = append(list, unreadServers(file, ""))
				continue
			}
			list = append(list, p.sharedBy(file, "", entries)...)
		}
	}
	return list, nil
}

// hookFile is a pattern of files that can have hooks of others: in the folder of the user's files, or
// below the folder of a project.
type hookFile struct{ user, project string }

// goosePlugin is ocipd's plugin below a folder of plugins. One of a project with that name takes the
// place of the user's.
const goosePlugin = "plugins/" + hookName

// above are the folder in which the user works and the folders above it: a runtime reads the settings of
// a project from a folder inside it too.
func (p *Place) above() (folders []string) {
	for folder := p.Folder; folder != ""; folder = filepath.Dir(folder) {
		folders = append(folders, folder)
		if folder == filepath.Dir(folder) {
			break
		}
	}
	return folders
}

// hookSwitches finds settings of the user, of the current project and of the machine that switch the
// hook off, and hooks of others that can change a call after it.
func hookSwitches(r *Runtime, p *Place, _ bool) (list []off, err error) {
	h := hookings[r.Name]
	for _, s := range h.offs {
		file := filepath.Join(h.dir(p), filepath.FromSlash(s.file))
		text, err := durable.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if what := s.found(text); what != "" {
			list = append(list, off{Stray{File: file, What: what}, s.out(text)})
		}
		for _, name := range s.machine {
			list = append(list, s.foreign(p.machineFile(name), "")...)
		}
		for _, folder := range p.above() {
			for _, name := range s.projects {
				if there := filepath.Join(folder, filepath.FromSlash(name)); !samePlace(there, file) {
					list = append(list, s.foreign(there, folder)...)
				}
			}
		}
	}
	if h.config != nil {
		more, err := gooseSwitches(&h, p)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return append(list, h.otherHooks(p)...), nil
}

// foreign looks for the setting in a file that ocipd does not change.
func (s *switching) foreign(file, scope string) []off {
	text, err := durable.ReadUpTo(file, maxShared)
	what := ""
	switch {
	case missing(err):
	case err != nil:
		what = "it cannot be read, and can switch the hook off"
	default:
		what = s.found(text)
	}
	if what == "" {
		return nil
	}
	return []off{{Stray: Stray{File: file, Scope: scope, What: what}}}
}

// otherHooks finds hooks of others before a call of a tool.
func (h *hooking) otherHooks(p *Place) (list []off) {
	own := h.file(p)
	look := func(root, pattern, scope string) {
		files, _ := filepath.Glob(filepath.Join(globbed(root), filepath.FromSlash(pattern))) // the pattern is well-formed
		for _, file := range files {
			if scope != "" && samePlace(filepath.Dir(file), filepath.Dir(own)) {
				continue // the user's own, which was looked at
			}
			for _, what := range h.othersIn(file) {
				list = append(list, off{Stray: Stray{File: file, Scope: scope, What: what, Hook: true}})
			}
		}
	}
	for _, one := range h.others {
		if one.user != "" {
			look(h.dir(p), one.user, "")
			continue
		}
		for _, folder := range p.above() {
			look(folder, one.project, folder)
		}
	}
	return list
}

// othersIn names the hooks of others in a file. The name of the event begins with a small letter or a
// large one, in files that several runtimes read.
func (h *hooking) othersIn(file string) (list []string) {
	const changes = "can change a call after the gate has allowed it"
	text, err := durable.ReadUpTo(file, maxShared)
	if missing(err) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var settings struct {
		Hooks map[string]jsontext.Value `json:"hooks"`
	}
	if err == nil {
		err = json.Unmarshal(settingsfile.Plain(text), &settings)
	}
	if err != nil {
		return []string{"it cannot be read, and a hook in it " + changes}
	}
	event := h.path[len(h.path)-1]
	for name, value := range settings.Hooks {
		if !strings.EqualFold(name, event) {
			continue
		}
		var groups []jsontext.Value
		if json.Unmarshal(value, &groups) != nil {
			groups = []jsontext.Value{value}
		}
		for i, group := range groups {
			if !isHook(group) && !idle(group) {
				list = append(list, fmt.Sprintf("hooks.%s[%d] %s", name, i, changes))
			}
		}
	}
	slices.Sort(list)
	return list
}

// idle reports whether a group of hooks runs nothing.
func idle(group jsontext.Value) bool {
	var g map[string]jsontext.Value
	if json.Unmarshal(group, &g) != nil {
		return false
	}
	hooks, ok := g["hooks"]
	var list []jsontext.Value
	return ok && json.Unmarshal(hooks, &list) == nil && len(list) == 0
}

// gooseSwitches finds what keeps Goose from loading the plugin with the hook, besides its settings: the
// list of plugins in its configuration, and a plugin of that name in a project.
func gooseSwitches(h *hooking, p *Place) (list []off, err error) {
	file := gooseConfig(p)
	text, err := durable.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	y, err := parseYAML(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	path := []string{"plugins", filepath.Join(h.dir(p), filepath.FromSlash(goosePlugin)), "enabled"}
	if n := valueYAML(y.top, path...); n != nil && n.Value != "true" {
		list = append(list, off{Stray{File: file, What: strings.Join(path, ".") + " is " + settingsfile.Short(n.Value) + ", so that the hook does not run"}, settingsfile.Gone{Item: &yamlItem{path: path, value: "true"}}})
	}
	for _, folder := range p.above() {
		plugin := filepath.Join(folder, h.folder, filepath.FromSlash(goosePlugin))
		if info, err := os.Stat(plugin); err == nil && info.IsDir() && !samePlace(plugin, filepath.Join(h.dir(p), filepath.FromSlash(goosePlugin))) {
			list = append(list, off{Stray: Stray{File: plugin, Scope: folder, What: "a plugin of this name takes the place of the one with the hook"}})
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
	switch s.on {
	case object:
		harmless = jsontext.Value(value).Kind() == '{'
	case nobody:
		harmless = json.Unmarshal(value, &names) == nil && len(names) == 0
	case "":
		harmless = json.Unmarshal(value, &names) == nil && !slices.ContainsFunc(names, func(name string) bool { return name == hookName || strings.Contains(name, "$") })
	}
	if harmless {
		return ""
	}
	return strings.Join(s.path, ".") + " is " + settingsfile.Short(string(value)) + ", so that the hook does not run"
}

// out takes the setting out of a file of the user's, or is nil if ocipd cannot tell what it is about.
func (s *switching) out(text []byte) settingsfile.Item {
	if s.on == nobody {
		return nil
	}
	return settingsfile.Gone{Item: s.item(text)}
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
