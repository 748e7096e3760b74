package integrate

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"go.yaml.in/yaml/v3"
)

// claudePlugin is an installed plugin of Claude Code that no settings switch off.
type claudePlugin struct {
	name, dir, scope string
	// machine is set if the machine's settings switch it on.
	machine bool
}

// claudeHome is the folder of a user's settings, agents, skills and plugins.
func claudeHome(p *Place) string { return filepath.Dir(claudeSettings(p)) }

// claudePlugins returns the installed plugins. Those of which no settings say anything count as
// switched on. If the list cannot be read, it says why.
func claudePlugins(p *Place, files []claudeFile) (list []claudePlugin, file, why string) {
	file = filepath.Join(claudeHome(p), "plugins", "installed_plugins.json")
	text, err := durable.ReadUpTo(file, maxOwn)
	if missing(err) {
		return nil, file, ""
	}
	var all struct {
		Plugins map[string]jsontext.Value `json:"plugins"`
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, file, "cannot be read, so the plugins are not known"
	}
	on := make(map[string]bool)
	machine := make(map[string]bool)
	for i := range files {
		text, err := durable.ReadUpTo(files[i].file, maxOwn)
		var s struct {
			Enabled map[string]any `json:"enabledPlugins"`
		}
		if err != nil || json.Unmarshal(text, &s) != nil {
			continue // that it cannot be read is said already
		}
		for name, is := range s.Enabled {
			on[name] = on[name] || is != false
			machine[name] = machine[name] || files[i].machine && is != false
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all.Plugins)) {
		type place struct {
			Dir   string `json:"installPath"`
			Scope string `json:"projectPath"`
		}
		places := make([]place, 1)
		if all.Plugins[id].Kind() == '[' {
			err = json.Unmarshal(all.Plugins[id], &places)
		} else {
			err = json.Unmarshal(all.Plugins[id], &places[0])
		}
		if err != nil {
			return nil, file, "cannot be read, so the plugins are not known"
		}
		name, _, _ := strings.Cut(id, "@")
		for _, at := range places {
			if is, said := on[id]; at.Dir != "" && (is || !said) {
				list = append(list, claudePlugin{name, at.Dir, at.Scope, machine[id]})
			}
		}
	}
	return list, file, ""
}

// missing reports whether a file is not there, or is nobody's here.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// pluginPart is one value that a plugin gives for a member, with its file.
type pluginPart struct {
	file  string
	value jsontext.Value
	// unread is set if the file cannot be read.
	unread bool
}

// parts returns what a plugin gives for a member of its manifest: in the usual file, in the
// manifest, and in the files that the manifest names.
func (c *claudePlugin) parts(member, usual string) (list []pluginPart) {
	read := func(name string) {
		file := filepath.Join(c.dir, name)
		text, err := durable.ReadUpTo(file, maxShared)
		if !missing(err) {
			list = append(list, pluginPart{file, text, err != nil || !jsontext.Value(text).IsValid()})
		}
	}
	read(usual)
	manifest := filepath.Join(c.dir, ".claude-plugin", "plugin.json")
	text, err := durable.ReadUpTo(manifest, maxShared)
	if missing(err) {
		return list
	}
	var all map[string]jsontext.Value
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return append(list, pluginPart{manifest, nil, true})
	}
	values := []jsontext.Value{all[member]}
	if all[member].Kind() == '[' {
		_ = json.Unmarshal(all[member], &values) // it is an array
	}
	for _, value := range values {
		var name string
		switch value.Kind() {
		case '"':
			if json.Unmarshal(value, &name) == nil && filepath.Clean(name) != usual {
				read(name)
			}
		case '{':
			list = append(list, pluginPart{manifest, value, false})
		}
	}
	return list
}

// claudeShared returns the servers in lists that ocipd does not change: those of projects and of
// plugins.
func claudeShared(p *Place) ([]Server, error) {
	list, err := claudeProjects(p)
	if err != nil {
		return nil, err
	}
	files, err := claudeReads(p)
	if err != nil {
		return nil, err
	}
	plugins, file, why := claudePlugins(p, files)
	if why != "" {
		list = append(list, unreadServers(file, ""))
	}
	for i := range plugins {
		c := &plugins[i]
		for _, part := range c.parts("mcpServers", ".mcp.json") {
			var whole map[string]jsontext.Value
			if !part.unread && json.Unmarshal(part.value, &whole) == nil && whole["mcpServers"] == nil {
				part.value = slices.Concat([]byte(`{"mcpServers":`), part.value, []byte("}"))
			}
			entries, err := readClaude(part.file, part.value)
			if part.unread || err != nil {
				list = append(list, unreadServers(part.file, c.scope))
				continue
			}
			for _, s := range p.sharedBy(part.file, c.scope, entries) {
				s.Name, s.source = "plugin:"+c.name+":"+s.Name, "plugin"
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// unreadServers stands for the servers of a file.
func unreadServers(file, scope string) Server {
	return Server{Name: "all of a file that cannot be read", File: file, Scope: scope}
}

// claudeHooks finds the hooks of others: in settings, of plugins, and of agents, skills and commands.
// managed is set if the gate's hook is the machine's: then the machine can forbid all others.
func claudeHooks(p *Place, files []claudeFile, managed bool) (list []off) {
	note := func(file, scope, what string) {
		list = append(list, off{Stray: Stray{File: file, Scope: scope, What: what, Hook: true}})
	}
	settings := make([]claudeHookSettings, len(files))
	alone := false
	for i := range files {
		settings[i].read(files[i].file)
		alone = alone || managed && files[i].machine && settings[i].Managed
	}
	for i := range files {
		f := &files[i]
		for _, what := range foreignHooks(settings[i].Hooks) {
			if f.machine || !alone {
				note(f.file, f.scope, what)
			}
		}
	}
	look := func(dir, scope string) {
		for _, kind := range []string{"agents", "skills", "commands"} {
			markdown(filepath.Join(dir, kind), markdownDepth, func(file string) {
				for _, what := range headHooks(file) {
					note(file, scope, what)
				}
			})
		}
	}
	plugins, file, why := claudePlugins(p, files)
	if why != "" {
		note(file, "", why)
	}
	for i := range plugins {
		c := &plugins[i]
		if alone && !c.machine {
			continue
		}
		for _, part := range c.parts("hooks", filepath.Join("hooks", "hooks.json")) {
			for _, what := range pluginHooks(&part) {
				note(part.file, c.scope, what)
			}
		}
		look(c.dir, c.scope)
	}
	look(filepath.Join(p.Etc, "claude-code", ".claude"), "")
	if alone {
		return list
	}
	look(claudeHome(p), "")
	for i := range files {
		if f := &files[i]; f.scope != "" && f.ours { // one of the two files of a project
			look(filepath.Dir(f.file), f.scope)
		}
	}
	return list
}

// claudeHookSettings are the settings of a file about hooks.
type claudeHookSettings struct {
	Hooks   any  `json:"hooks"`
	Managed bool `json:"allowManagedHooksOnly"`
}

// read reads them. That a file cannot be read is said elsewhere.
func (s *claudeHookSettings) read(file string) {
	if text, err := durable.ReadUpTo(file, maxOwn); err != nil || json.Unmarshal(text, s) != nil {
		*s = claudeHookSettings{}
	}
}

// pluginHooks names the hooks of a plugin that can change a call. What its modules do is not known.
func pluginHooks(part *pluginPart) []string {
	var all map[string]any
	if part.unread || json.Unmarshal(part.value, &all) != nil {
		return []string{"cannot be read, so its hooks are not known"}
	}
	hooks := any(all)
	if inner, ok := all["hooks"]; ok {
		hooks = inner
	}
	list := foreignHooks(hooks)
	if modules, _ := all["modules"].([]any); len(modules) > 0 {
		list = append(list, "modules can change a call after the gate has allowed it")
	}
	return list
}

// hooksKey finds the member in a head that is no YAML.
var hooksKey = regexp.MustCompile("(^|[\\s{,\"'])hooks[\"']?\\s*:")

// headHooks names the hooks in the head of an agent's, a skill's or a command's file.
func headHooks(file string) []string {
	text, err := durable.ReadUpTo(file, maxShared)
	if missing(err) {
		return nil
	}
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(text, []byte("---"))
	head, _, ended := bytes.Cut(rest, []byte("\n---"))
	if err == nil && (!ok || !ended) {
		return nil
	}
	var all struct {
		Hooks any `yaml:"hooks"`
	}
	if err == nil {
		if err = yaml.Unmarshal(head, &all); err != nil && !hooksKey.Match(head) {
			return nil // prose that is no YAML, of which Claude Code is tolerant
		}
	}
	if err != nil {
		return []string{"cannot be read, so its hooks are not known"}
	}
	return foreignHooks(all.Hooks)
}

// markdownDepth bounds the folders below one of agents, skills or commands, so that links that
// form a circle end.
const markdownDepth = 4

// markdown calls do with each file of Markdown below a folder. It follows links, as Claude Code does.
func markdown(dir string, depth int, do func(file string)) {
	entries, _ := os.ReadDir(dir) // without a folder there are none
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir() && depth > 0:
			markdown(path, depth-1, do)
		case !info.IsDir() && strings.EqualFold(filepath.Ext(path), ".md"):
			do(path)
		}
	}
}
