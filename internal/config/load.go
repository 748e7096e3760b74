package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"github.com/spf13/viper"
)

// envPrefix begins every variable that sets a key: ipc.max_line_bytes is
// OCIPD_IPC_MAX_LINE_BYTES.
const envPrefix = "OCIPD_"

// noticePrefix begins the variables with which a notification command gets a notice. They
// are not configuration keys, so that such a command may run ocipd.
const noticePrefix = envPrefix + "NOTICE_"

// other reports whether a variable has another use: the token of a command, the inputs of
// an effect's command, and the program of a workflow.
func other(name string) bool {
	return strings.HasPrefix(name, noticePrefix) || slices.Contains([]string{"OCIPD_TOKEN", "OCIPD_TOKEN_FILE", "OCIPD_TASK", "OCIPD_EFFECT", "OCIPD_BIN"}, name)
}

// socketVariable also sets ipc.socket, because apps use it. It wins over OCIPD_IPC_SOCKET.
//
// Source: protocol, section 1.
const socketVariable = "OPENCLAWOS_KERNEL_SOCKET"

// SourceDefault is the [Config.Source] of a key that nobody set.
const SourceDefault = "default"

// Options give the sources of the configuration.
type Options struct {
	// File is a file that must exist. Empty means [FilePath], where the file may be missing.
	File string
	// Env is the environment in the form of os.Environ. Nil is an empty one.
	Env []string
	// Flags are values by dotted key, which override everything else. A value has the type
	// of its key, or is a text that parses as one. Nil is none.
	Flags map[string]any
}

// Load reads, merges and checks the configuration. The error is [Errors] with all faults,
// or says that the file cannot be read. It refuses files over 1 MiB, over 64 levels deep or
// over 100,000 values; a directory file may have 64 MiB and 1,000,000 entries.
func Load(opts Options) (*Config, error) {
	env := environ(opts.Env)
	file := cmp.Or(opts.File, FilePath(func(name string) string { return env[name] }))
	data, err := read(file)
	if opts.File == "" && errors.Is(err, fs.ErrNotExist) {
		file = ""
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return opts.load(file, data, sha256.Sum256(data), env, nil)
}

// environ returns an environment by name.
func environ(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}

// load makes a configuration from the content of a file, empty for none. It reuses the
// directory file of an earlier configuration if that is unchanged.
func (o Options) load(file string, data []byte, sum [sha256.Size]byte, env map[string]string, earlier *Config) (*Config, error) {
	empty := len(bytes.TrimSpace(data)) == 0
	c, err := merge(file, data, env, o.Flags, func(c *Config, p *problems) {
		c.list(p, earlier)
		readRoster(c, p, earlier)
	})
	if err != nil {
		return nil, err
	}
	c.opts = Options{File: file, Env: slices.Clone(o.Env), Flags: maps.Clone(o.Flags)}
	if file != "" {
		c.empty, c.sum = empty, sum
	}
	return c, nil
}

// Reload reads the configuration's file again, under the environment and the flags of the first
// load, so that they override the file as before. It leaves c unchanged, and returns c if the
// file is unchanged. If there was no file before, it reads one that has appeared at [FilePath].
//
// An empty file that had content before is an error, and so is such a directory file. An
// edit that failed on a full disk leaves one, and it must not stand for the defaults.
func (c *Config) Reload() (*Config, error) {
	if c.File == "" {
		again, err := Load(c.opts)
		if err != nil || again.File != "" {
			return again, err
		}
		return c, nil
	}
	if err := stillFile(c.File); err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	data, err := read(c.File)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	sum := sha256.Sum256(data)
	if sum == c.sum && c.listed.unchanged() && c.Fleet.read.unchanged() {
		return c, nil
	}
	again, err := c.opts.load(c.File, data, sum, environ(c.opts.Env), c)
	if err == nil && again.empty && !c.empty {
		return nil, fmt.Errorf("cannot read the configuration: %s has become empty", c.File)
	}
	if err == nil && c.listed != nil && again.listed != nil && again.listed.empty && !c.listed.empty && again.listed.file == c.listed.file {
		return nil, fmt.Errorf("cannot read the directory file: %s has become empty; for none, leave a line with a # in it", c.listed.file)
	}
	return again, err
}

// Parse parses and checks a document alone, without environment, flags or directory file.
// name stands for the file in errors and in Config.File.
func Parse(name string, data []byte) (*Config, error) {
	return merge(name, data, nil, nil, func(*Config, *problems) {})
}

// read returns at most one byte more than a file may have.
func read(file string) ([]byte, error) {
	if file == "" {
		return nil, fs.ErrNotExist
	}
	return readUpTo(file, yamltext.MaxBytes)
}

// merge stacks the layers in viper, lowest first. All values in viper are checked and have
// their final type. Maps with the operator's own keys are single opaque values there,
// because viper would lower their case and split them at dots.
//
// more reads the further files that the configuration names.
func merge(file string, data []byte, env map[string]string, flags map[string]any, more func(*Config, *problems)) (*Config, error) {
	p := &problems{file: file, origins: map[string]origin{}}
	v := viper.New()
	for key, value := range leaves(Default()) {
		if !value.IsZero() {
			v.SetDefault(key, opaque(value))
		}
	}

	written := Default()
	p.parse(data, written)
	layer, said := map[string]any{}, map[string]any{}
	for key, value := range leaves(written) {
		if _, ok := p.origins[key]; ok {
			if value.Kind() != reflect.Map && value.Kind() != reflect.Slice {
				said[key] = value.Interface()
			}
			nest(layer, key, opaque(value))
		}
	}
	if err := v.MergeConfigMap(layer); err != nil {
		return nil, fmt.Errorf("cannot merge %s: %w", file, err)
	}

	layer = map[string]any{}
	for key, value := range p.environment(env) {
		nest(layer, key, value)
	}
	if err := v.MergeConfigMap(layer); err != nil {
		return nil, fmt.Errorf("cannot merge the environment: %w", err)
	}
	for key, value := range p.flags(flags) {
		v.Set(key, value)
	}

	c := &Config{}
	err := v.UnmarshalExact(c, func(dc *mapstructure.DecoderConfig) {
		dc.TagName = "yaml"
		dc.WeaklyTypedInput = false
		// Take a value that already has its type as a whole, not by entry.
		dc.DecodeHook = func(from, to reflect.Value) (any, error) {
			if from.Kind() != reflect.Slice || from.Type() != to.Type() {
				return from.Interface(), nil
			}
			to.Set(from)
			return nil, nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cannot merge the configuration: %w", err)
	}
	c.File, c.origins = file, p.origins
	c.overridden = c.differing(said)
	c.inherit()
	more(c, p)
	c.check(p)
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// differing returns the keys whose values in c differ from the file's.
func (c *Config) differing(file map[string]any) (keys []string) {
	for key, value := range leaves(c) {
		if said, ok := file[key]; ok && !reflect.DeepEqual(said, value.Interface()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Overridden returns the keys whose values in the file a variable or a flag overrides:
// [Config.Source] says which.
func (c *Config) Overridden() []string { return slices.Clone(c.overridden) }

// environment reads the variables that set scalars, and the one for the socket.
func (p *problems) environment(env map[string]string) map[string]any {
	keys := map[string]string{}
	for _, key := range Keys() {
		keys[EnvName(key)] = key
	}
	names := slices.Sorted(maps.Keys(keys))
	layer := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !strings.HasPrefix(name, envPrefix) || other(name) {
			continue
		}
		at := origin{name: name}
		key, ok := keys[name]
		if !ok {
			p.reportUnknown(at, "the variable", name, names, EnvName)
			continue
		}
		p.origins[key] = at
		if value, ok := p.convert(key, env[name]); ok {
			layer[key] = value
		}
	}
	if socket := env[socketVariable]; socket != "" {
		p.origins[socketKey] = origin{name: socketVariable}
		layer[socketKey] = socket
	}
	return layer
}

// reportUnknown reports a variable or a flag without a key, with the probable one.
func (p *problems) reportUnknown(at origin, what, name string, known []string, nameOf func(key string) string) {
	for key := range leaves(Default()) {
		if nameOf(key) == name {
			p.report(at, keypath.Path{}.Key(name), "", fmt.Sprintf("%s cannot set %s, which is a list or a mapping: only the file can", what, key))
			return
		}
	}
	// The prefix is the same for all, so it does not count.
	p.report(at, keypath.Path{}.Key(name), text.Nearest(name, known, text.Near(strings.TrimPrefix(name, envPrefix))), what+" names no key that holds one value")
}

// flags checks the values given on the command line.
func (p *problems) flags(given map[string]any) map[string]any {
	keys := Keys()
	layer := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if given[key] == nil {
			continue
		}
		at := origin{name: "flag " + key}
		if !slices.Contains(keys, key) {
			p.reportUnknown(at, "the flag", key, keys, func(key string) string { return key })
			continue
		}
		p.origins[key] = at
		if value, ok := p.convert(key, given[key]); ok {
			layer[key] = value
		}
	}
	return layer
}

// convert gives a value from outside the file the type of its key.
func (p *problems) convert(key string, value any) (any, bool) {
	var out reflect.Value
	for k, leaf := range leaves(Default()) {
		if k == key {
			out = reflect.New(leaf.Type()).Elem()
		}
	}
	if reflect.TypeOf(value) == out.Type() {
		return value, true
	}
	if text, ok := value.(string); ok && setText(out, text) {
		return out.Interface(), true
	}
	want, _ := describeType(out.Type())
	at, _ := keypath.Compile(key)
	p.bad(at, "want %s, got %#v", want, value)
	return nil, false
}

// leaves iterates over the keys that are single values for viper: scalars, lists, and maps
// with the operator's own keys.
func leaves(c *Config) func(yield func(string, reflect.Value) bool) {
	var walk func(prefix string, section reflect.Value, yield func(string, reflect.Value) bool) bool
	walk = func(prefix string, section reflect.Value, yield func(string, reflect.Value) bool) bool {
		for i := range section.NumField() {
			key, field := keyOf(section.Type().Field(i)), section.Field(i)
			switch {
			case key == "":
			case field.Kind() == reflect.Struct:
				if !walk(prefix+key+".", field, yield) {
					return false
				}
			case !yield(prefix+key, field):
				return false
			}
		}
		return true
	}
	return func(yield func(string, reflect.Value) bool) {
		walk("", reflect.ValueOf(c).Elem(), yield)
	}
}

// opaque hides a map from viper behind another type.
func opaque(value reflect.Value) any {
	type tree map[string]any
	if value.Type() == treeType {
		return tree(value.Interface().(map[string]any))
	}
	return value.Interface()
}

// nest sets a value at a dotted key.
func nest(layer map[string]any, key string, value any) {
	section, below, ok := strings.Cut(key, ".")
	if !ok {
		layer[key] = value
		return
	}
	child, _ := layer[section].(map[string]any)
	if child == nil {
		child = map[string]any{}
		layer[section] = child
	}
	nest(child, below, value)
}

// Keys lists every key with one value, dotted, in the order of the default file. Variables
// and flags may set these keys.
func Keys() []string {
	var keys []string
	for key, value := range leaves(Default()) {
		if k := value.Kind(); k != reflect.Slice && k != reflect.Map {
			keys = append(keys, key)
		}
	}
	return keys
}

// EnvName is the variable that sets a key, such as OCIPD_LOG_LEVEL.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Source says what set a key, given as a [keypath.Path]: [SourceDefault], a file with its
// line ("ocipd.yaml:12"), a variable ("OCIPD_LOG_LEVEL") or a flag ("flag log.level").
func (c *Config) Source(key string) string {
	o, ok := c.origins[key]
	if !ok && c.listed != nil {
		if at, err := keypath.Compile(key); err == nil {
			o, ok = c.listed.find(at)
		}
	}
	return o.source(ok)
}

// SourceAt is [Config.Source] for the path of a key.
func (c *Config) SourceAt(at keypath.Path) string {
	if o, ok := c.listed.find(at); ok {
		return o.source(true)
	}
	o, ok := c.origins[at.String()]
	return o.source(ok)
}

// source formats an origin for [Config.Source].
func (o origin) source(known bool) string {
	switch {
	case !known:
		return SourceDefault
	case o.line > 0:
		return o.name + ":" + strconv.Itoa(o.line)
	}
	return o.name
}
