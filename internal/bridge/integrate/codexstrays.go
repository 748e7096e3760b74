package integrate

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"github.com/pelletier/go-toml/v2"
)

// codexLayer is the part of one of Codex's files that can disable a gate.
type codexLayer struct {
	Features map[string]any `toml:"features"`
	Profiles map[string]struct {
		Features map[string]any `toml:"features"`
	} `toml:"profiles"`
	Projects map[string]struct {
		Trust string `toml:"trust_level"`
	} `toml:"projects"`
	Servers map[string]any `toml:"mcp_servers"`
	Managed bool           `toml:"allow_managed_hooks_only"`
	Hooks   map[string]any `toml:"hooks"`
}

// codexLook collects what disables a gate in Codex's files. own is the user's file.
// managed is set if the machine's settings contain the hooks, which run regardless of the
// user's settings.
type codexLook struct {
	own     string
	managed bool
	list    []off
}

func (l *codexLook) stray(file, scope, what string, out settingsfile.Item) {
	l.list = append(l.list, off{Stray{file, scope, what}, out})
}

// layer reads one file, and notes what it switches off. gate is set if a server with the name
// of the gate is not to be in it.
func (l *codexLook) layer(file, scope string, gate bool) (c codexLayer) {
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
	l.switched(file, scope, c.Features)
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		l.switched(file, scope, c.Profiles[name].Features, "profiles", name)
	}
	if gate && c.Servers[gateServer] != nil {
		l.stray(file, scope, serversTable+"."+gateServer+" takes the place of what was entered", nil)
	}
	return c
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
	hooks := filepath.Join(filepath.Dir(l.own), "hooks.json")
	text, err := durable.ReadFile(hooks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, event := range []string{codexBefore, codexPrompt} {
		at, err := (&settingsfile.JSON{Path: []string{"hooks", event}, Ours: isHook}).At(text)
		if err != nil || at < 0 {
			continue // that it is missing, or that the file cannot be read, is said already
		}
		// Codex identifies a hook by its position among the others.
		if key := codexTrust(hooks, event, at); settingsfile.Under(state, []string{"state", key}) == nil {
			l.stray(l.own, "", "hooks.state."+key+" is missing, and Codex runs no hook that nobody has trusted", nil)
		}
	}
	return nil
}

// codexSwitches finds settings that stop Codex from running hooks or from asking their
// server, in every layer of its settings that is known: the user's file, the profiles beside
// it, the trusted projects, and the machine's files.
func codexSwitches(_ *Runtime, p *Place, managed bool) ([]off, error) {
	l := &codexLook{own: codexFiles(p)[0], managed: managed}
	c := l.layer(l.own, "", false)
	if err := l.trusted(c.Hooks); err != nil {
		return nil, err
	}
	profiles, _ := filepath.Glob(filepath.Join(globbed(filepath.Dir(l.own)), "*.config.toml")) // the pattern is well-formed
	for _, file := range profiles {
		l.layer(file, "", true)
	}
	for _, folder := range slices.Sorted(maps.Keys(c.Projects)) {
		if c.Projects[folder].Trust == "trusted" {
			l.layer(filepath.Join(folder, ".codex", "config.toml"), folder, true)
		}
	}
	for _, name := range []string{"config.toml", "managed_config.toml", "requirements.toml"} {
		file := filepath.Join(p.Etc, "codex", name)
		machine := l.layer(file, "", !managed || name == "config.toml")
		if machine.Managed && !managed {
			l.stray(file, "", "allow_managed_hooks_only is true, so that hooks of a user's own do not run", nil)
		}
	}
	return l.list, nil
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
