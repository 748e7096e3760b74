package integrate

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"github.com/pelletier/go-toml/v2"
)

// codexLayer is the part of one of Codex's files that can disable a gate.
type codexLayer struct {
	Features map[string]any        `toml:"features"`
	Profiles map[string]codexLayer `toml:"profiles"`
	Projects map[string]struct {
		Trust string `toml:"trust_level"`
	} `toml:"projects"`
	Servers map[string]any `toml:"mcp_servers"`
	Managed bool           `toml:"allow_managed_hooks_only"`
	Hooks   map[string]any `toml:"hooks"`
}

// codexLook collects what disables a gate in Codex's files. own is the user's file, prompted are
// the servers that were put on prompt, and ours are Codex's names of ocipd's hooks without their
// file. managed is set if the machine's settings contain the hooks, which run regardless of the
// user's settings. alone is set if Codex runs no other hooks.
type codexLook struct {
	own, etc       string
	prompted, ours []string
	managed, alone bool
	list           []off
}

func (l *codexLook) stray(file, scope, what string, out settingsfile.Item) {
	l.list = append(l.list, off{Stray{File: file, Scope: scope, What: what}, out})
}

// read reads one file. A file that cannot be read is a stray.
func (l *codexLook) read(file, scope string) (c codexLayer) {
	text, err := durable.ReadUpTo(file, maxShared)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return c
	}
	if err == nil {
		err = toml.Unmarshal(text, &c)
	}
	if err != nil {
		l.stray(file, scope, "cannot be read, so what it switches off is not known", nil)
	}
	return c
}

// layer notes what one file switches off. gate is set if a server with the name of the gate is
// not to be in it.
func (l *codexLook) layer(file, scope string, gate bool, c *codexLayer) {
	l.part(file, scope, gate, c)
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		profile := c.Profiles[name]
		l.part(file, scope, gate, &profile, "profiles", name)
	}
}

// part notes what one file, or one profile at a path in it, switches off.
func (l *codexLook) part(file, scope string, gate bool, c *codexLayer, path ...string) {
	l.switched(file, scope, c.Features, path...)
	name := func(words ...string) string { return strings.Join(slices.Concat(path, words), ".") }
	if gate && c.Servers[gateServer] != nil {
		l.stray(file, scope, name(serversTable, gateServer)+" takes the place of what was entered", nil)
	}
	for _, what := range foreignHooks(c.Hooks) {
		l.foreign(file, scope, name(what))
	}
	if file == l.own && len(path) == 0 {
		return // its servers and the state of the hooks are compared with what was entered
	}
	for _, server := range l.prompted {
		keys, _ := c.Servers[server].(map[string]any)
		for _, key := range []string{modeKey, "tools"} {
			if keys[key] != nil && keys[key] != promptMode {
				l.stray(file, scope, name(serversTable, server, key)+" takes the place of what was entered", nil)
			}
		}
	}
	state, _ := c.Hooks["state"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if !l.managed && l.isOurs(key) {
			l.stray(file, scope, name("hooks", "state", key)+" takes the place of what was entered", nil)
		}
	}
}

// isOurs reports whether Codex's name of a hook is that of a hook of ocipd.
func (l *codexLook) isOurs(key string) bool {
	return slices.ContainsFunc(l.ours, func(end string) bool {
		file, ok := strings.CutSuffix(key, end)
		return ok && samePlace(file, l.hooks())
	})
}

// hooks is the user's file of hooks.
func (l *codexLook) hooks() string { return filepath.Join(filepath.Dir(l.own), "hooks.json") }

// foreign notes hooks of others, if Codex runs them.
func (l *codexLook) foreign(file, scope, what string) {
	if !l.alone || strings.HasPrefix(file, l.etc) {
		l.list = append(l.list, off{Stray: Stray{File: file, Scope: scope, What: what, Hook: true}})
	}
}

func (l *codexLook) switched(file, scope string, features map[string]any, path ...string) {
	for _, name := range []string{"hooks", "codex_hooks"} {
		if features[name] != false || l.managed {
			continue
		}
		at := slices.Concat(path, []string{"features", name})
		var out settingsfile.Item
		if file == l.own {
			out = settingsfile.Gone{Item: &settingsfile.Key{Path: at}}
		}
		l.stray(file, scope, strings.Join(at, ".")+" is false", out)
	}
}

// trusted notes hooks of ocipd that Codex does not trust, and so does not run.
func (l *codexLook) trusted(state map[string]any) error {
	hooks := l.hooks()
	text, err := durable.ReadFile(hooks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, event := range deciding {
		at, err := (&settingsfile.JSON{Path: []string{"hooks", event}, Ours: isHook}).At(text)
		if err != nil || at < 0 {
			continue // that it is missing, or that the file cannot be read, is said already
		}
		// Codex identifies a hook by its position among the others.
		key := codexTrust(hooks, event, at)
		l.ours = append(l.ours, strings.TrimPrefix(key, hooks))
		if settingsfile.Under(state, []string{"state", key}) == nil {
			l.stray(l.own, "", "hooks.state."+key+" is missing, and Codex runs no hook that nobody has trusted", nil)
		}
	}
	return nil
}

// codexFile is a file of settings besides the user's. machine is set for the machine's.
type codexFile struct {
	file, scope string
	machine     bool
}

// codexOthers returns the files of settings besides the user's that are known: the profiles
// beside it, those of the trusted projects, and the machine's.
func codexOthers(p *Place, own *codexLayer) (list []codexFile) {
	profiles, _ := filepath.Glob(filepath.Join(globbed(filepath.Dir(codexFiles(p)[0])), "*.config.toml")) // the pattern is well-formed
	for _, file := range profiles {
		list = append(list, codexFile{file: file})
	}
	for _, folder := range slices.Sorted(maps.Keys(own.Projects)) {
		if own.Projects[folder].Trust == "trusted" {
			list = append(list, codexFile{file: filepath.Join(folder, ".codex", "config.toml"), scope: folder})
		}
	}
	for _, name := range []string{"config.toml", "managed_config.toml", codexRules} {
		list = append(list, codexFile{file: filepath.Join(p.Etc, "codex", name), machine: true})
	}
	return list
}

// codexRules is the machine's file of requirements. It defines no server.
const codexRules = "requirements.toml"

// codexSwitches finds settings that stop Codex from running hooks or from asking their server,
// and hooks of others, in every layer of its settings that is known.
func codexSwitches(_ *Runtime, p *Place, managed bool) ([]off, error) {
	l := &codexLook{own: codexFiles(p)[0], etc: filepath.Join(p.Etc, "codex"), managed: managed}
	own := l.read(l.own, "")
	if err := l.trusted(own.Hooks); err != nil {
		return nil, err
	}
	for name, server := range own.Servers {
		if keys, _ := server.(map[string]any); keys["url"] != nil && keys[modeKey] == promptMode {
			l.prompted = append(l.prompted, name)
		}
	}
	slices.Sort(l.prompted)
	others := codexOthers(p, &own)
	var rules codexLayer
	if managed {
		rules = (&codexLook{}).read(filepath.Join(l.etc, codexRules), "")
	}
	l.alone = managed && rules.Managed
	l.layer(l.own, "", false, &own)
	l.hooksBeside(l.own, "")
	for _, o := range others {
		c := l.read(o.file, o.scope)
		l.layer(o.file, o.scope, !o.machine || !managed || filepath.Base(o.file) == "config.toml", &c)
		if filepath.Base(o.file) == "config.toml" {
			l.hooksBeside(o.file, o.scope)
		}
		if o.machine && c.Managed && !managed {
			l.stray(o.file, "", "allow_managed_hooks_only is true, so that hooks of a user's own do not run", nil)
		}
	}
	l.elsewhere(own.Hooks, others)
	return l.list, nil
}

// hooksBeside notes the hooks of others in the file of hooks beside a file of settings.
func (l *codexLook) hooksBeside(file, scope string) {
	file = filepath.Join(filepath.Dir(file), "hooks.json")
	text, err := durable.ReadUpTo(file, maxShared)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return // nobody here can read it, or that is said already
	}
	var all struct {
		Hooks any `json:"hooks"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		l.foreign(file, scope, "cannot be read, so its hooks are not known")
		return
	}
	for _, what := range foreignHooks(all.Hooks) {
		l.foreign(file, scope, what)
	}
}

// elsewhere notes the hooks that Codex trusts in a place that is not looked at, such as a plugin.
func (l *codexLook) elsewhere(hooks map[string]any, others []codexFile) {
	state, _ := hooks["state"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(state)) {
		is, _ := state[key].(map[string]any)
		file := ""
		for _, event := range deciding {
			if before, _, ok := strings.Cut(key, ":"+codexKey(event)+":"); ok {
				file = before
			}
		}
		known := func(settings string) bool {
			return file == settings || samePlace(file, filepath.Join(filepath.Dir(settings), "hooks.json"))
		}
		if file == "" || is["enabled"] == false || is["trusted_hash"] == nil || known(l.own) || slices.ContainsFunc(others, func(o codexFile) bool { return known(o.file) }) {
			continue
		}
		l.foreign(l.own, "", "hooks.state."+key+" trusts a hook that can change a call after the gate has allowed it")
	}
}

// codexElsewhere returns the servers in files besides the user's. Codex merges the tables of one
// name, so a table that has a part of a server counts too.
func codexElsewhere(p *Place) (list []Server, err error) {
	own := (&codexLook{}).read(codexFiles(p)[0], "")
	for _, o := range codexOthers(p, &own) {
		if filepath.Base(o.file) == codexRules {
			continue
		}
		text, err := durable.ReadUpTo(o.file, maxShared)
		switch {
		case missing(err):
			continue
		case err != nil:
			return nil, err
		}
		servers, err := codexServers(o.file, text)
		if err != nil {
			list = append(list, unreadServers(o.file, o.scope))
			continue
		}
		for i := range servers {
			s := servers[i].server()
			if s.Name == gateServer || !slices.ContainsFunc(servers[i].keys, func(key string) bool { return !slices.Contains(forBoth, key) }) {
				continue
			}
			s.File, s.Scope = o.file, o.scope
			s.Agent, s.Own, s.Changed = p.behind(&s)
			list = append(list, s)
		}
	}
	return list, nil
}

func codexMember(s *Server, path ...string) settingsfile.Item {
	key := settingsfile.Key{Path: slices.Concat([]string{serversTable, s.Name}, path)}
	if path[0] == passedKey {
		return &tomlPassed{key}
	}
	return &key
}

// tomlPassed is a variable that Codex passes to a server: an element of its list.
type tomlPassed struct{ settingsfile.Key }

// Strip implements [settingsfile.Item].
func (t *tomlPassed) Strip(text []byte) ([]byte, error) {
	servers, err := codexServers("the file", text)
	for _, s := range servers {
		at, ok := s.place(passedKey)
		if names := s.passed(); ok && s.name == t.Path[1] && slices.Contains(names, t.Path[3]) {
			_, list := writeTOML("", slices.DeleteFunc(names, func(name string) bool { return name == t.Path[3] }), false)
			return slices.Concat(text[:at.begin], []byte(list), text[at.end:]), nil
		}
	}
	return text, err
}

// globbed quotes a path for use in a pattern.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
