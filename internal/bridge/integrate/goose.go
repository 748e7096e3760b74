package integrate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"go.yaml.in/yaml/v3"
)

// Goose keeps its extensions, most of which are MCP servers, in a YAML file.
//
// Source: the program's own source, of which no version was run.
const (
	gooseVariable = "GOOSE_PATH_ROOT"
	gooseServers  = "extensions"
	gooseStdio    = "stdio"
	gooseRemote   = "streamable_http"
)

// gooseConfig is the file with the extensions. Goose reads no relative path of a variable.
func gooseConfig(p *Place) string {
	if root := p.Getenv(gooseVariable); filepath.IsAbs(root) {
		return filepath.Join(root, "config", "config.yaml")
	}
	dir := p.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(p.Home, ".config")
	}
	return filepath.Join(dir, "goose", "config.yaml")
}

// gooseMembers are the members of an extension that a command starts, or that an address reaches. Goose
// ignores members that it does not know, but a later version may use them.
var gooseMembers = []string{"type", "name", "description", "display_name", "bundled", "enabled", "timeout", "available_tools", "cmd", "args", "envs", "env_keys", "cwd", "uri", "headers", "version"}

// readGoose finds the extensions that are servers. Goose leaves out an entry that it cannot read.
func readGoose(file string, text []byte) (list []entry, err error) {
	y, err := parseYAML(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	servers := valueYAML(y.top, gooseServers)
	if servers == nil || nullYAML(servers) {
		return nil, nil
	}
	if servers.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: line %d: %s is no mapping", file, servers.Line, gooseServers)
	}
	for i := 0; i < len(servers.Content); i += 2 {
		if e := y.gooseServer(servers.Content[i].Value, servers.Content[i+1]); e.Command != "" || e.URL != "" {
			list = append(list, e)
		}
	}
	return list, nil
}

// gooseServer reads an extension, which has neither a command nor an address if it is no server.
func (y *yamlFile) gooseServer(name string, n *yaml.Node) (e entry) {
	e.Name, e.path = name, []string{gooseServers, name}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
		e.others = append(e.others, "a reference of YAML (*)")
	}
	text := func(name string) string {
		if v := valueYAML(n, name); v != nil && v.Kind == yaml.ScalarNode {
			return v.Value
		}
		return ""
	}
	args := valueYAML(n, "args")
	switch e.kind = text("type"); {
	case e.kind == gooseStdio && (args == nil || args.Decode(&e.Args) == nil):
		e.Command = text("cmd")
	case e.kind == gooseRemote || e.kind == "sse":
		e.URL = text("uri")
	}
	if e.Command == "" && e.URL == "" {
		return e
	}
	if env := valueYAML(n, "envs"); env != nil {
		_ = env.Decode(&e.env) // one that is no such thing is none of ours
	}
	if keys := valueYAML(n, "env_keys"); keys != nil {
		_ = keys.Decode(&e.passed)
	}
	for i := 0; i < len(n.Content); i += 2 {
		if !slices.Contains(gooseMembers, n.Content[i].Value) {
			e.others = append(e.others, n.Content[i].Value)
		}
	}
	var err error
	if e.Command != "" {
		err = y.gooseCommand(&e, n, args)
	} else {
		err = y.gooseAddress(&e, n)
	}
	if err != nil && e.Command != "" {
		e.direct, e.others = true, append(e.others, "text in a form of YAML that ocipd does not change")
	}
	return e
}

// gooseCommand finds the position and the form of an extension's command.
func (y *yamlFile) gooseCommand(e *entry, n, args *yaml.Node) (err error) {
	if len(e.others) > 0 && strings.HasPrefix(e.others[0], "a reference") {
		return errYAML
	}
	if e.command, err = y.span(valueYAML(n, "cmd")); err != nil {
		return err
	}
	flow := n.Style&yaml.FlowStyle != 0
	e.args = span{e.command.end, e.command.end}
	list := &yamlList{y: y, flow: true}
	if args != nil {
		if e.args, err = y.span(args); err != nil {
			return err
		}
		if err = list.read(args, e.args, e.Args); err != nil {
			return err
		}
		if !list.flow {
			// All text after the colon, since an empty list cannot stand in the place of the first element.
			key, err := y.span(n.Content[memberYAML(n, "args")])
			if err != nil {
				return err
			}
			e.args.begin = key.end + 1
			list.head = string(y.text[e.args.begin:list.from])
		}
	}
	e.write = func(command string, args []string, bare bool) (string, string) {
		text := list.write(args)
		switch {
		case bare && flow:
			text = ", args: " + text
		case bare:
			text = "\n" + indent(n.Content[0]) + "args: " + text
		}
		return quoteYAML(command), text
	}
	e.back = func(_ *entry, m *remote, _ []entry) []piece { return y.gooseBack(n, m) }
	return nil
}

// yamlList writes a list of texts so that those which stay are as they were.
type yamlList struct {
	y    *yamlFile
	flow bool
	// head is the text before the first element of a list of lines, and in the indent of the elements.
	head, in string
	from     int
	// items are the positions of the elements, the first with its dash, and texts their values.
	items []span
	texts []string
	end   int
}

func (l *yamlList) read(n *yaml.Node, at span, texts []string) error {
	l.flow, l.texts, l.from, l.end, l.in = n.Style&yaml.FlowStyle != 0, texts, at.begin, at.end, indent(n)
	for _, item := range n.Content {
		one, err := l.y.span(item)
		if err != nil {
			return err
		}
		if !l.flow {
			// The dash is in the column of the list.
			dash, err := l.y.offset(&yaml.Node{Line: item.Line, Column: n.Column})
			if err != nil || l.y.text[dash] != '-' {
				return errYAML
			}
			one.begin = dash
		}
		l.items = append(l.items, one)
	}
	return nil
}

// write encodes a list. If it ends with the former one, or the former one with it, that part is copied.
func (l *yamlList) write(args []string) string {
	before, kept := args, ""
	switch more := len(args) - len(l.texts); {
	case len(l.texts) > 0 && more >= 0 && slices.Equal(args[more:], l.texts):
		before, kept = args[:more], string(l.y.text[l.items[0].begin:l.end])
	case more < 0 && len(args) > 0 && slices.Equal(l.texts[-more:], args):
		before, kept = nil, string(l.y.text[l.items[-more].begin:l.end])
	}
	var parts []string
	for _, arg := range before {
		one := quoteYAML(arg)
		if !l.flow {
			one = "- " + one
		}
		parts = append(parts, one)
	}
	switch {
	case l.flow && kept != "":
		return "[" + strings.Join(append(parts, kept), ", ")
	case l.flow:
		return "[" + strings.Join(parts, ", ") + "]"
	case len(args) == 0:
		return " []"
	case kept != "":
		parts = append(parts, kept)
	}
	return l.head + strings.Join(parts, "\n"+l.in)
}

// gooseAddress finds out whether a command can take the place of an address: one with headers, with
// variables in it or with a key behind a question mark keeps it.
func (y *yamlFile) gooseAddress(e *entry, n *yaml.Node) error {
	empty := func(name string) bool {
		v := valueYAML(n, name)
		return v == nil || nullYAML(v) || len(v.Content) == 0
	}
	if e.kind != gooseRemote || len(e.others) > 0 || strings.ContainsAny(e.URL, "?$") || !empty("headers") || !empty("envs") || !empty("env_keys") {
		return nil
	}
	kind, err := y.span(valueYAML(n, "type"))
	if err != nil {
		return err
	}
	at := memberYAML(n, "uri")
	key, err := y.span(n.Content[at])
	if err != nil {
		return err
	}
	value, err := y.span(n.Content[at+1])
	if err != nil {
		return err
	}
	e.command, e.remote = span{key.begin, value.end}, &remote{url: e.URL}
	e.start = func(command string, args []string) []piece {
		parting := "\n" + indent(n.Content[0])
		if n.Style&yaml.FlowStyle != 0 {
			parting = ", "
		}
		list := (&yamlList{flow: true}).write(args)
		return []piece{{kind, gooseStdio}, {e.command, "cmd: " + quoteYAML(command) + parting + "args: " + list}}
	}
	return nil
}

// gooseBack replaces a command by the address again.
func (y *yamlFile) gooseBack(n *yaml.Node, m *remote) []piece {
	kind, err := y.span(valueYAML(n, "type"))
	at := memberYAML(n, "cmd")
	key, failed := y.span(n.Content[at])
	value, failed2 := y.span(n.Content[at+1])
	args, failed3 := y.cutMember(n, memberYAML(n, "args"))
	if cmp.Or(err, failed, failed2, failed3) != nil {
		return nil // the check of the changed text finds it
	}
	return []piece{{kind, gooseRemote}, {span{key.begin, value.end}, "uri: " + quoteYAML(m.url)}, {args, ""}}
}

func gooseMember(s *Server, path ...string) settingsfile.Item {
	at := slices.Concat(s.path, path)
	if len(path) > 0 && path[0] == "env" {
		at[len(s.path)] = "envs"
	}
	return &yamlItem{path: at}
}
