package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/openclawos/ocipd/internal/config/running"
)

const socketKey = running.Socket

// places are the keys of the places of a daemon and its files.
func (c *Config) places() map[string]*string {
	return map[string]*string{
		socketKey: &c.IPC.Socket, "store.url": &c.Store.URL,
		"audit.mirror": &c.Audit.Mirror, "audit.checkpoints": &c.Audit.Checkpoints, "audit.keys": &c.Audit.Keys,
	}
}

// Locate is [Load] for commands that only look for a daemon or its files, because a daemon
// may run with an earlier configuration while the file is broken. In that case, the error
// says so, and the configuration is [Default] except for the keys of places: ipc.socket,
// store.url, audit.mirror, audit.checkpoints and audit.keys. Their values come from flags
// and variables, or else from the file if the file itself is valid, or else from the place
// file of the daemon that runs with this configuration, see [Running]. Nothing comes from a
// broken file: a truncated one could name another daemon's place. Callers must ask
// [Config.Certain] before they rely on a place. The configuration is nil if a named file
// does not exist.
func Locate(opts Options) (*Config, error) {
	c, broken := Load(opts)
	if broken == nil {
		return c, nil
	}
	env := environ(opts.Env)
	getenv := func(name string) string { return env[name] }
	c = Default()
	c.File = opts.File
	if c.File == "" {
		c.File = FilePath(getenv)
	}
	data, err := read(c.File)
	if opts.File != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, broken
	}
	known := map[string]string{}
	if !errors.Is(err, fs.ErrNotExist) {
		if known = placesIn(c.File, data, err); known == nil {
			known, c.doubt.why = placesOf(c.File, getenv)
		}
	}
	for key, value := range c.places() {
		*value = known[key]
		set := false
		if text, ok := env[EnvName(key)]; ok {
			*value, set = text, true
		}
		if text := env[socketVariable]; key == socketKey && text != "" {
			*value, set = text, true
		}
		if flag := opts.Flags[key]; flag != nil {
			*value, set = fmt.Sprint(flag), true
		}
		if c.doubt.why != "" && !set {
			c.doubt.keys = append(c.doubt.keys, key)
		}
	}
	return c, broken
}

// placesIn returns a file's places if the file is valid and a variable or a flag is broken,
// or else nil.
func placesIn(file string, data []byte, err error) map[string]string {
	if err != nil {
		return nil
	}
	c, err := Parse(file, data)
	if err != nil {
		return nil
	}
	known := map[string]string{}
	for key, value := range c.places() {
		known[key] = *value
	}
	return known
}

// placesOf returns the places that the daemon running with a file has published, or why
// they are unknown.
func placesOf(file string, getenv func(string) string) (known map[string]string, doubt string) {
	whole, err := filepath.Abs(file)
	if err != nil {
		return nil, err.Error()
	}
	daemons := running.With(filepath.Join(runtimeDir(getenv), "running"), whole, slices.Collect(maps.Keys(Default().places())))
	switch len(daemons) {
	case 0:
		return nil, "it is broken, and no running daemon uses it"
	case 1:
		return daemons[0].Places, ""
	}
	return nil, fmt.Sprintf("it is broken, and %d daemons run with it", len(daemons))
}

// Certain returns nil if each of the places, such as "ipc.socket", is known. Otherwise the
// configuration is one of [Locate] for a broken file, and the error says why the place is
// unknown. That file's daemon may be anywhere.
func (c *Config) Certain(keys ...string) error {
	for _, key := range keys {
		if slices.Contains(c.doubt.keys, key) {
			return fmt.Errorf("cannot tell what %s is in %s: %s", key, c.File, c.doubt.why)
		}
	}
	return nil
}
