package toolmap

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Of returns the map for a command line: a given file or built-in map, or else the map
// whose package, program or image the command line names, or else one without tools. entry
// is the server's name in its client's list, or ""; it names a map without a name of its
// own, and its channel.
func Of(given, entry string, command []string) (*Map, error) {
	servers, err := Servers()
	if err != nil {
		return nil, err
	}
	if m, ok := servers[given]; ok {
		return &m, nil
	}
	if given != "" {
		m, err := readMap(given, nameOf(entry, command))
		if err != nil {
			err = fmt.Errorf("%w; those that come with ocipd are %s", err, strings.Join(slices.Sorted(maps.Keys(servers)), ", "))
		}
		return m, err
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if m := servers[name]; m.starts(command) {
			return &m, nil
		}
	}
	m := &Map{Name: nameOf(entry, command)}
	m.Channel = m.Name
	return m, m.Check()
}

// starts reports whether a command line starts or reaches a server of the map.
func (m *Map) starts(command []string) bool {
	some := func(list []string, is func(arg, name string) bool) bool {
		return slices.ContainsFunc(list, func(name string) bool {
			return slices.ContainsFunc(command, func(arg string) bool { return is(arg, name) })
		})
	}
	program := func(arg, name string) bool { return filepath.Base(filepath.ToSlash(arg)) == name }
	return some(m.Packages, isPackage) || some(m.Programs, program) || some(m.Images, isImage) || some(m.Hosts, isHost)
}

// isPackage reports whether an argument names a package: alone, with a version, or as a
// path in a folder of packages.
func isPackage(arg, pkg string) bool {
	return arg == pkg || strings.HasPrefix(arg, pkg+"@") || strings.Contains(filepath.ToSlash(arg)+"/", "/node_modules/"+pkg+"/")
}

// isImage reports whether an argument names an image, in any version.
func isImage(arg, image string) bool {
	arg = strings.TrimPrefix(arg, "docker.io/")
	return arg == image || strings.HasPrefix(arg, image+":") || strings.HasPrefix(arg, image+"@")
}

// isHost reports whether an argument is a host, or an address on it.
func isHost(arg, host string) bool {
	return arg == host || strings.HasPrefix(arg, "https://"+host+"/") || arg == "https://"+host
}

var wordPattern = regexp.MustCompile(`[^a-z0-9.-]+`)

// nameOf makes a name for a server without a map: from its entry's name, or from its
// command line if the entry has no name with a letter or digit.
func nameOf(entry string, command []string) string {
	if name := wordOf(entry); name != "" {
		return "mcp-" + name
	}
	for _, arg := range slices.Backward(command) {
		if !strings.HasPrefix(arg, "-") {
			if name := wordOf(strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg))); name != "" {
				return "mcp-" + name
			}
		}
	}
	return "mcp-server"
}

// wordOf reduces a text to the characters of a channel's name; the result may be "".
func wordOf(text string) string {
	return strings.Trim(wordPattern.ReplaceAllString(strings.ToLower(text), "-"), "-.")
}

// Server returns the map for a server's description of itself: by its name, or else by its
// tools and their arguments. It returns nil if there is none.
func Server(name string, tools map[string][]string) (*Map, error) {
	servers, err := Servers()
	if err != nil {
		return nil, err
	}
	for _, of := range slices.Sorted(maps.Keys(servers)) {
		if m := servers[of]; slices.Contains(m.Servers, name) {
			return &m, nil
		}
	}
	var best *Map
	most := 0
	for _, of := range slices.Sorted(maps.Keys(servers)) {
		m := servers[of]
		if n := m.shares(tools); n > most {
			most, best = n, &m
		}
	}
	return best, nil
}

// enough is how many tools a server must share with a map that is found by them.
const enough = 3

// shares counts the tools that a server shares with the map. It returns 0 if the map cannot
// be the server's: it has too few of the server's tools or none that sends, or a sending
// tool has arguments that are not in the map.
func (m *Map) shares(tools map[string][]string) (n int) {
	sends := false
	for name, arguments := range tools {
		if !m.Knows(name) {
			continue
		}
		n++
		t, ok := m.Tools[name]
		if !ok {
			continue
		}
		sends = true
		known := t.Arguments()
		if slices.ContainsFunc(arguments, func(a string) bool { return !slices.Contains(known, a) }) {
			return 0
		}
	}
	if !sends || 2*n < len(tools) || n < min(enough, len(m.names())) {
		return 0
	}
	return n
}
