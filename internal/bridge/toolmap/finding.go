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

// starts reports whether a command line starts a server of the map, or reaches it. An argument of another
// program says nothing.
func (m *Map) starts(command []string) bool {
	at := started(command)
	if at == len(command) {
		return false
	}
	is := func(list []string, arg string, is func(arg, name string) bool) bool {
		return slices.ContainsFunc(list, func(name string) bool { return is(arg, name) })
	}
	arg, rest := command[at], command[at+1:]
	switch name := baseOf(arg); {
	case is(m.Packages, arg, isPackage), is(m.Programs, name, func(arg, name string) bool { return arg == name }), at == 0 && len(rest) == 0 && is(m.Hosts, arg, isHost):
		return true
	case slices.Contains(containerPrograms, name):
		return is(m.Images, imageOf(rest), isImage)
	case isPackage(arg, "mcp-remote"), len(rest) > 0 && rest[0] == "mcp-connect":
		return slices.ContainsFunc(rest, func(arg string) bool { return is(m.Hosts, arg, isHost) })
	}
	return false
}

func baseOf(arg string) string { return filepath.Base(filepath.ToSlash(arg)) }

// launchers are programs that start another one, and their words before its name.
var launchers = []string{
	"bun", "bunx", "C", "c", "cmd", "corepack", "deno", "dlx", "env", "exec", "nice", "node", "nohup", "npm", "npx", "pipx", "pnpm", "pnpx", "run", "stdbuf", "sudo", "time", "tool", "tsx", "uv", "uvx", "x", "yarn",
}

// started is the index of the program that a command line starts: the first word that is no launcher, option or variable.
func started(command []string) int {
	at := slices.IndexFunc(command, func(arg string) bool {
		name, _, assigns := strings.Cut(arg, "=")
		return !strings.HasPrefix(arg, "-") && !slices.Contains(launchers, strings.TrimSuffix(baseOf(arg), ".exe")) && (!assigns || strings.ContainsAny(name, "/@:"))
	})
	if at < 0 {
		return len(command)
	}
	return at
}

// containerPrograms run images, and imageFlags are their options without a value.
var (
	containerPrograms = []string{"docker", "podman", "nerdctl", "finch", "container"}
	imageFlags        = []string{"--detach", "--disable-content-trust", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--rm", "--sig-proxy", "--tty"}
)

// imageOf is the image that the arguments of a container program run, "" for none.
func imageOf(rest []string) string {
	at := slices.Index(rest, "run")
	for i := at + 1; at >= 0 && i < len(rest); i++ {
		arg := rest[i]
		switch {
		case !strings.HasPrefix(arg, "-"):
			return arg
		case strings.Contains(arg, "="), slices.Contains(imageFlags, arg), strings.Trim(arg[1:], "itdPq") == "":
		default:
			i++ // the option's value
		}
	}
	return ""
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
