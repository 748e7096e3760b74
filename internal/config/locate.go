package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const socketKey = "ipc.socket"

// maxSectionLines bounds the section of a broken file that is read as far as it
// goes.
const maxSectionLines = 256

// placeSection begins a section of the file that names places.
var placeSection = regexp.MustCompile(`^["']?(?:ipc|store|audit)["']?[ \t]*:`)

// places are the keys that say where a daemon and its files are.
func (c *Config) places() map[string]*string {
	return map[string]*string{
		socketKey: &c.IPC.Socket, "store.url": &c.Store.URL,
		"audit.mirror": &c.Audit.Mirror, "audit.checkpoints": &c.Audit.Checkpoints, "audit.keys": &c.Audit.Keys,
	}
}

// Locate is [Load] for whoever only looks for a daemon or its files: the daemon may
// go on with an earlier configuration when the one that is there is broken. Where
// it is, the error says so, and the configuration is [Default] but for what can be
// read of the keys that name places: ipc.socket, store.url, audit.mirror,
// audit.checkpoints and audit.keys. It is nil where a file was named and there is
// none.
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
	written := placesIn(data)
	for key, value := range c.places() {
		*value = written[key]
		if text, ok := env[EnvName(key)]; ok {
			*value = text
		}
		if text := env[socketVariable]; key == socketKey && text != "" {
			*value = text
		}
		if flag := opts.Flags[key]; flag != nil {
			*value = fmt.Sprint(flag)
		}
	}
	return c, broken
}

// placesIn is what can be read of the places in a file that is broken somewhere.
func placesIn(data []byte) map[string]string {
	found := map[string]string{}
	if text := bytes.TrimLeft(data, " \t\r\n"); bytes.HasPrefix(text, []byte("{")) && len(data) <= maxFileBytes {
		takePlaces(data, found)
		return found
	}
	var section [][]byte
	take := func() {
		// Where it is broken, what is above may still be good.
		for ; len(section) > 0 && len(section) <= maxSectionLines; section = section[:len(section)-1] {
			if takePlaces(bytes.Join(section, nil), found) {
				break
			}
		}
		section = nil
	}
	for line := range bytes.Lines(data) {
		switch {
		case strings.IndexByte(" \t\r\n#]}", line[0]) >= 0:
			if section != nil && len(section) <= maxSectionLines {
				section = append(section, line)
			}
		case placeSection.Match(line):
			take()
			section = [][]byte{line}
		default:
			take()
		}
	}
	take()
	return found
}

// takePlaces takes the places out of a text, and reports whether it is YAML.
func takePlaces(text []byte, found map[string]string) bool {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return false
	}
	known := slices.Collect(maps.Keys(Default().places()))
	for section, keys := range mapping(doc.Content[0]) {
		for key, value := range mapping(keys) {
			name := section + "." + key
			if _, there := found[name]; slices.Contains(known, name) && !there && value.Kind == yaml.ScalarNode && value.ShortTag() == "!!str" {
				found[name] = value.Value
			}
		}
	}
	return true
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
