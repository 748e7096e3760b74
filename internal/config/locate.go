package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const socketKey = "ipc.socket"

// places are the keys that say where a daemon and its files are.
func (c *Config) places() map[string]*string {
	return map[string]*string{
		socketKey: &c.IPC.Socket, "store.url": &c.Store.URL,
		"audit.mirror": &c.Audit.Mirror, "audit.checkpoints": &c.Audit.Checkpoints, "audit.keys": &c.Audit.Keys,
	}
}

// Locate is [Load] for whoever only looks for a daemon or its files: the daemon may
// go on with an earlier configuration when the one that is there is broken. Where
// it is, the error says so, and the configuration is [Default] but for the keys that
// name places: ipc.socket, store.url, audit.mirror, audit.checkpoints and
// audit.keys. Of these it has what the file says for certain; the caller asks
// [Config.Certain] before it relies on one. It is nil where a file was named and
// there is none.
func Locate(opts Options) (*Config, error) {
	c, broken := Load(opts)
	if broken == nil {
		return c, nil
	}
	env := environ(opts.Env)
	c = Default()
	c.File = opts.File
	if c.File == "" {
		c.File = FilePath(func(name string) string { return env[name] })
	}
	data, err := read(c.File)
	if opts.File != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, broken
	}
	written := reading{}
	switch {
	case err == nil:
		written = readPlaces(c.File, data)
	case !errors.Is(err, fs.ErrNotExist):
		written.doubtAll("the file cannot be read")
	}
	for key, value := range c.places() {
		*value = written[key].value
		why, set := written[key].doubt, false
		if text, ok := env[EnvName(key)]; ok {
			*value, set = text, true
		}
		if text := env[socketVariable]; key == socketKey && text != "" {
			*value, set = text, true
		}
		if flag := opts.Flags[key]; flag != nil {
			*value, set = fmt.Sprint(flag), true
		}
		if why != "" && !set {
			if c.doubts == nil {
				c.doubts = map[string]string{}
			}
			c.doubts[key] = why
		}
	}
	return c, broken
}

// Certain is nil where each of the places, such as "ipc.socket", is known. Else
// the configuration is one of [Locate], of a file in which what it says of the
// place, or that it says nothing, cannot be read for certain, and the error says
// why. The daemon of such a file may be anywhere.
func (c *Config) Certain(keys ...string) error {
	for _, key := range keys {
		if why, doubted := c.doubts[key]; doubted {
			return fmt.Errorf("cannot tell what %s is in %s: %s", key, c.File, why)
		}
	}
	return nil
}

// place is what a file that is broken says of a place, "" for nothing, or why that
// cannot be told.
type place struct{ value, doubt string }

// reading is what was read of the places, by key.
type reading map[string]place

// placeKeys are the keys of all places, in order.
func placeKeys() []string { return slices.Sorted(maps.Keys(Default().places())) }

func (r reading) doubtAll(why string) {
	for _, key := range placeKeys() {
		r[key] = place{doubt: why}
	}
}

// What is said of a place that is in doubt.
const (
	doubtCut   = "the file does not end with a whole line, and may have been cut short"
	doubtTwice = "it stands there more than once"
	doubtForm  = "the file is broken, and it does not stand there plainly, as text on a line of its own"
	doubtAbove = "the file is broken there or above"
	doubtNone  = "the file is broken, and may name it in a part that cannot be read"
)

// readPlaces reads the places of a file that is broken somewhere. It would rather
// doubt one than guess: who takes it for what it is not speaks to another daemon.
func readPlaces(file string, data []byte) reading {
	found := reading{}
	if c, err := Parse(file, data); err == nil {
		// A variable or a flag is broken, and not the file.
		for key, value := range c.places() {
			found[key] = place{value: *value}
		}
		return found
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	root, whole := document(data)
	switch {
	case root != nil && !whole:
		found.doubtAll("the file holds more than one YAML document")
	case root != nil:
		for _, key := range placeKeys() {
			found[key] = placeInTree(key, root, data)
		}
	case bytes.ContainsAny(data, "\r\x00\u0085\u2028\u2029\ufeff") || notUTF8(data) >= 0 || utf16(data):
		found.doubtAll("the file is broken, and has characters in it that hide where its lines end")
	default:
		lines := slices.Collect(bytes.Lines(data))
		for _, key := range placeKeys() {
			found[key] = placeInLines(key, lines)
		}
	}
	return found
}

// utf16 reports whether a text says that it is UTF-16.
func utf16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

// document is the first document of a text that is YAML as a whole, and whether it
// is the only one. It is nil for other texts, and for one that is too long.
func document(data []byte) (root *yaml.Node, only bool) {
	if len(data) > maxFileBytes {
		return nil, false
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if dec.Decode(&doc) != nil || len(doc.Content) == 0 {
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return doc.Content[0], false
	case !errors.Is(err, io.EOF):
		return nil, false
	}
	return doc.Content[0], true
}

// placeInTree reads a place of a file that is YAML, and no configuration.
func placeInTree(key string, root *yaml.Node, data []byte) place {
	section, name, _ := strings.Cut(key, ".")
	// Braces that are closed show that nothing is missing.
	lines := bytes.Count(data, []byte("\n"))
	cut := len(data) > 0 && data[len(data)-1] != '\n' && root.Style&yaml.FlowStyle == 0
	if root.Kind != yaml.MappingNode {
		return place{doubt: "the file is no mapping of keys"}
	}
	var value *yaml.Node
	sections, perhaps := 0, ""
	for top, keys := range mapping(root) {
		inside := top == section
		if inside {
			sections++
			if keys.Kind != yaml.MappingNode && keys.ShortTag() != "!!null" {
				return place{doubt: fmt.Sprintf("%s is no mapping of keys there", section)}
			}
		}
		if meant(top, section, name) && !knownKey(top) {
			perhaps = top
		}
		for below, n := range mapping(keys) {
			switch {
			case inside && below == name && value != nil:
				return place{doubt: doubtTwice}
			case inside && below == name:
				value = n
			case meant(below, section, name) && !knownKey(top+"."+below):
				perhaps = below
			}
		}
	}
	switch {
	case sections > 1:
		return place{doubt: doubtTwice}
	case value == nil && perhaps != "":
		return place{doubt: fmt.Sprintf("the key %q may be meant for it", clip(perhaps))}
	case value == nil && cut:
		return place{doubt: doubtCut}
	case value == nil:
		return place{}
	case cut && value.Line > lines:
		return place{doubt: doubtCut}
	case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
		return place{}
	case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || value.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
		return place{doubt: doubtForm}
	}
	return place{value: value.Value}
}

// knownKey reports whether a configuration has the key, given with dots.
func knownKey(key string) bool {
	for leaf := range leaves(Default()) {
		if leaf == key || strings.HasPrefix(leaf, key+".") || strings.HasPrefix(key, leaf+".") {
			return true
		}
	}
	return false
}

// meant reports whether a key that no configuration has may stand for a place, and
// not be where it belongs or not be written as it is. A merge key may hold any.
func meant(key, section, name string) bool {
	key = strings.ToLower(key)
	return key == "<<" || strings.Contains(key, section) || strings.Contains(key, name) ||
		nearest(key, []string{section, name}, near(key)) != ""
}

var (
	// plainKey begins a section in block style, or a key of its own.
	plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*:(?:[ \t]|$)`)
	// plainSection is a section of which all else is below.
	plainSection = regexp.MustCompile(`^[a-z]+:[ \t]*(?:#.*)?$`)
)

// indented reports whether a line begins with white space.
func indented(line []byte) bool { return line[0] == ' ' || line[0] == '\t' }

// placeInLines reads a place of a file that is no YAML. What is above the place and
// its own line must be YAML together, so that the line is what it looks like, and
// below must be nothing that says more of it.
func placeInLines(key string, lines [][]byte) place {
	section, name, _ := strings.Cut(key, ".")
	begin := slices.IndexFunc(lines, func(line []byte) bool {
		return bytes.HasPrefix(line, []byte(section+":")) && plainSection.Match(bytes.TrimRight(line, "\n"))
	})
	at := -1
	for i := begin + 1; begin >= 0 && i < len(lines) && (blank(lines[i]) || indented(lines[i])); i++ {
		if bytes.HasPrefix(bytes.TrimLeft(lines[i], " "), []byte(name+":")) {
			at = i
			break
		}
	}
	if at < 0 {
		return absentInLines(section, name, lines)
	}
	if !bytes.HasSuffix(lines[at], []byte("\n")) {
		return place{doubt: doubtCut}
	}
	root, whole := document(bytes.Join(lines[:at+1], nil))
	if root == nil || !whole {
		return place{doubt: doubtAbove}
	}
	column := len(lines[at]) - len(bytes.TrimLeft(lines[at], " "))
	inside := true
	next := true
	for _, line := range lines[at+1:] {
		if blank(line) {
			continue
		}
		if next {
			next = false
			if depth := len(line) - len(bytes.TrimLeft(line, " ")); depth != 0 && depth != column || line[0] == '\t' {
				// It may go on with the value.
				return place{doubt: doubtForm}
			}
		}
		switch {
		case indented(line):
		case bytes.Contains(bytes.ToLower(line), []byte(section)):
			return place{doubt: doubtTwice}
		case plainKey.Match(bytes.TrimRight(line, "\n")):
			inside = false
		case !plainItem(line) && bytes.IndexByte([]byte("]}"), line[0]) < 0:
			return place{doubt: doubtNone}
		}
		if inside && bytes.Contains(bytes.ToLower(line), []byte(name)) {
			return place{doubt: doubtTwice}
		}
	}
	found := placeInTree(key, root, bytes.Join(lines[:at+1], nil))
	if found.doubt != "" {
		return found
	}
	for top, keys := range mapping(root) {
		if top != section {
			continue
		}
		for below, n := range mapping(keys) {
			if below == name && n.Line == at+1 && keys.Style&yaml.FlowStyle == 0 && n.Anchor == "" {
				return found
			}
		}
	}
	return place{doubt: doubtForm}
}

// plainItem reports whether a line is an item of a list.
func plainItem(line []byte) bool {
	return bytes.HasPrefix(line, []byte("- ")) || string(line) == "-\n"
}

// absentInLines is nothing where a file that is no YAML certainly does not have a
// place.
func absentInLines(section, name string, lines [][]byte) place {
	last := 0
	for i, line := range lines {
		switch {
		case blank(line):
			continue
		case bytes.Contains(bytes.ToLower(line), []byte(section)) || bytes.Contains(bytes.ToLower(line), []byte(name)):
			return place{doubt: doubtForm}
		case plainKey.Match(bytes.TrimRight(line, "\n")):
			last = i
		case indented(line) && last == 0 && !slices.ContainsFunc(lines[:i], func(above []byte) bool { return !blank(above) }),
			!indented(line) && !plainItem(line):
			return place{doubt: doubtNone}
		}
	}
	if len(lines) > 0 && !bytes.HasSuffix(lines[len(lines)-1], []byte("\n")) {
		return place{doubt: doubtCut}
	}
	// Where the last part is broken, the file may have been cut there.
	if root, whole := document(bytes.Join(lines[last:], nil)); root == nil || !whole {
		return place{doubt: doubtNone}
	}
	return place{}
}

// mapping walks the keys and values of a node, none of one that is no mapping.
func mapping(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}
