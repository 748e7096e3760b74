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
// audit.keys. Of these it has what flags and variables say, else the file, if it
// is not the file that is broken, else what the daemon that runs with the file has
// left word of, see [Running]. Nothing is taken from a broken file: one that was
// cut short would name the place of another daemon. The caller asks
// [Config.Certain] before it relies on a place. The configuration is nil where a
// file was named and there is none.
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
			known, c.doubt = placesOf(c.File, getenv)
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
		if c.doubt != "" && !set {
			c.doubted = append(c.doubted, key)
		}
	}
	return c, broken
}

// placesIn is what a file says of places where it is whole, and a variable or a
// flag is broken. Else it is nil.
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

// placesOf is what the daemon that runs with a file has left word of, or why that
// is not known.
func placesOf(file string, getenv func(string) string) (known map[string]string, doubt string) {
	whole, err := filepath.Abs(file)
	if err != nil {
		return nil, err.Error()
	}
	daemons := running.With(filepath.Join(runtimeDir(getenv), "running"), whole, slices.Collect(maps.Keys(Default().places())))
	switch len(daemons) {
	case 0:
		return nil, "it is broken, and no daemon that runs with it has left word where it is"
	case 1:
		return daemons[0].Places, ""
	}
	return nil, fmt.Sprintf("it is broken, and %d daemons run with it", len(daemons))
}

// Certain is nil where each of the places, such as "ipc.socket", is known. Else
// the configuration is one of [Locate], of a file that is broken, and the error
// says why the place is not known. The daemon of such a file may be anywhere.
func (c *Config) Certain(keys ...string) error {
	for _, key := range keys {
		if slices.Contains(c.doubted, key) {
			return fmt.Errorf("cannot tell what %s is in %s: %s", key, c.File, c.doubt)
		}
	}
	return nil
}
