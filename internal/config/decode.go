package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"go.yaml.in/yaml/v3"
)

// Limits of a file. The counts follow aliases, so that a small file cannot stand for a huge tree.
const (
	maxDepth  = 64
	maxValues = 100_000
)

// rest is the tag of the field that collects keys without a field of their own.
const rest = "*"

var (
	durationType = reflect.TypeFor[time.Duration]()
	treeType     = reflect.TypeFor[map[string]any]()
)

// decoder decodes a YAML document into a [Config] and remembers the position of each key. It is
// stricter than yaml.v3: a number is not a string, and duplicate or unknown keys are errors.
type decoder struct {
	*problems
	// text is the file, and values counts the values read so far.
	text   []byte
	values int
	full   bool
	// shapes are the keys of the structs met so far.
	shapes map[reflect.Type]*shape
}

// shape is a struct as a mapping: its keys in the order of its fields, the field of each,
// and the field for all other keys, -1 for none.
type shape struct {
	names []string
	field map[string]int
	rest  int
}

// parse decodes the single document of a file into c.
func (p *problems) parse(data []byte, c *Config) {
	if len(data) > yamltext.MaxBytes {
		p.add(nil, "", "cannot read a configuration of more than %d bytes: a long directory belongs into a file of its own, see directory_file", yamltext.MaxBytes)
		return
	}
	d := &decoder{problems: p, text: data, shapes: map[reflect.Type]*shape{}}
	if line, column, what := yamltext.Hidden(data); what != "" {
		d.report(origin{d.file, line, column}, nil, "", "cannot read this file: "+what)
		return
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return
	}
	if err == nil {
		if err = dec.Decode(&second); err == nil {
			d.fail(nil, &second, "a second YAML document, want one")
			return
		}
	}
	if !errors.Is(err, io.EOF) {
		line, column, what := yamltext.Broken(data, err)
		d.report(origin{d.file, line, column}, nil, "", "cannot read YAML: "+what)
		return
	}
	d.value(nil, doc.Content[0], reflect.ValueOf(c).Elem())
}

// fail reports a problem at a node.
func (d *decoder) fail(at keypath.Path, n *yaml.Node, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(at) > 0 {
		message = masked(at) + ": " + message
	}
	d.report(d.place(n), at, "", message)
}

func (d *decoder) place(n *yaml.Node) origin { return origin{d.file, n.Line, n.Column} }

// enter counts one value and follows an alias. It returns false if the file is too large or
// too deep, and reports that once.
func (d *decoder) enter(at keypath.Path, n **yaml.Node) bool {
	if d.full {
		return false
	}
	if d.values++; d.values > maxValues || len(at) > maxDepth {
		d.full = true
		d.fail(nil, *n, "cannot read more than %d values or %d levels, aliases followed", maxValues, maxDepth)
		return false
	}
	if (*n).Kind == yaml.AliasNode {
		*n = (*n).Alias
	}
	return true
}

// value decodes a node into out, which holds the default. A null keeps the default.
func (d *decoder) value(at keypath.Path, n *yaml.Node, out reflect.Value) {
	if !d.enter(at, &n) || n.ShortTag() == "!!null" {
		if out.Kind() == reflect.String && n.Value == "" && yamltext.Commented(d.text, n.Line) {
			d.fail(at, n, "what begins with # is a comment, so that there is no value here: put a text that begins so in quotes, or a blank behind the #")
		}
		return
	}
	if len(at) > 0 {
		d.origins[at.String()] = d.place(n)
	}
	switch {
	case out.Type() == treeType:
		if n.Kind != yaml.MappingNode {
			d.want(at, n, "a mapping")
			return
		}
		if tree, ok := d.raw(at, n).(map[string]any); ok && len(tree) > 0 {
			out.Set(reflect.ValueOf(tree))
		}
	case out.Kind() == reflect.Struct:
		d.fields(at, n, out)
	case out.Kind() == reflect.Map:
		for key, child := range d.pairs(at, n) {
			item := newItem(out.Type().Elem())
			d.value(at.Under(key.Value), child, item)
			if out.IsNil() {
				out.Set(reflect.MakeMap(out.Type()))
			}
			out.SetMapIndex(reflect.ValueOf(key.Value), item)
		}
	case out.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.want(at, n, "a list")
			return
		}
		out.SetZero()
		if len(n.Content) == 0 {
			return
		}
		list := reflect.MakeSlice(out.Type(), len(n.Content), len(n.Content))
		for i, child := range n.Content {
			setDefault(list.Index(i))
			d.value(at.Item(i), child, list.Index(i))
		}
		out.Set(list)
	case out.Kind() == reflect.Pointer:
		out.Set(reflect.New(out.Type().Elem()))
		if out.Elem().Kind() == reflect.Struct {
			d.fields(at, n, out.Elem())
			return
		}
		d.scalar(at, n, out.Elem())
	default:
		d.scalar(at, n, out)
	}
}

// newItem is a map entry with its defaults, and setDefault gives a list item its defaults.
func newItem(t reflect.Type) reflect.Value {
	item := reflect.New(t).Elem()
	setDefault(item)
	return item
}

func setDefault(item reflect.Value) {
	switch at := item.Addr().Interface().(type) {
	case *Agent:
		*at = defaultAgent()
	case *Contact:
		*at = defaultContact()
	case *Sink:
		*at = defaultSink()
	}
}

func (d *decoder) fields(at keypath.Path, n *yaml.Node, out reflect.Value) {
	known := d.shape(out.Type())
	var extra map[string]any
	for k, child := range d.pairs(at, n) {
		key, below := k.Value, at.Under(k.Value)
		if i, ok := known.field[key]; ok {
			d.value(below, child, out.Field(i))
			continue
		}
		if known.rest >= 0 {
			if extra == nil {
				extra = map[string]any{}
			}
			extra[key] = d.raw(below, child)
			continue
		}
		message := fmt.Sprintf("unknown key %q", clip(key))
		guess := text.Nearest(key, known.names, text.Near(key))
		if guess == "" {
			guess = elsewhere(key)
		}
		if guess == "" {
			message += ", want one of " + strings.Join(known.names, ", ")
		}
		d.report(d.place(k), below, guess, message)
	}
	if len(extra) > 0 {
		d.origins[at.String()+"."+rest] = d.place(n)
		out.Field(known.rest).Set(reflect.ValueOf(extra))
	}
}

// elsewhere returns the one key with that name in another section, or "" if there is none
// or more than one.
func elsewhere(name string) (found string) {
	for key := range leaves(Default()) {
		if !strings.HasSuffix(key, "."+name) {
			continue
		}
		if found != "" {
			return ""
		}
		found = key
	}
	return found
}

func (d *decoder) shape(t reflect.Type) *shape {
	known := d.shapes[t]
	if known == nil {
		known = &shape{field: map[string]int{}, rest: -1}
		for i := range t.NumField() {
			switch key := keyOf(t.Field(i)); key {
			case "":
			case rest:
				known.rest = i
			default:
				known.names = append(known.names, key)
				known.field[key] = i
			}
		}
		d.shapes[t] = known
	}
	return known
}

// keyOf is the key of a struct field, or "".
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" {
		return ""
	}
	return key
}

// pairs iterates over the keys and values of a mapping, and reports keys that are
// duplicates or not plain text.
func (d *decoder) pairs(at keypath.Path, n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			d.want(at, n, "a mapping")
			return
		}
		lines := map[string]int{} // by key
		for i := 0; i+1 < len(n.Content) && !d.full; i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode {
				d.fail(at, k, "a key must be plain text")
				continue
			}
			if k.ShortTag() == "!!merge" {
				d.fail(at.Key(k.Value), k, "merge keys are not read: write the keys out")
				continue
			}
			if first, ok := lines[k.Value]; ok {
				d.report(d.place(k), at.Key(k.Value), "", fmt.Sprintf("duplicate key %q, first at line %d", clip(k.Value), first))
				continue
			}
			lines[k.Value] = k.Line
			if !yield(k, n.Content[i+1]) {
				return
			}
		}
	}
}

// raw decodes a node into maps, lists and scalars in JSON's types.
func (d *decoder) raw(at keypath.Path, n *yaml.Node) any {
	if !d.enter(at, &n) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		tree := map[string]any{}
		for key, child := range d.pairs(at, n) {
			tree[key.Value] = d.raw(at.Under(key.Value), child)
		}
		return tree
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, child := range n.Content {
			list[i] = d.raw(at.Item(i), child)
		}
		return list
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!str", "!!timestamp":
		return n.Value
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			d.fail(at, n, "cannot read this as %s", tag)
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			d.fail(at, n, "want a number that JSON can hold")
		}
		return v
	default:
		if !strings.HasPrefix(tag, "!!") {
			// YAML reads an unquoted value that begins with ! as a tag.
			d.fail(at, n, "cannot read a value with a tag: put it in quotes")
			return nil
		}
		d.fail(at, n, "cannot read a value tagged %s, want text, a number, true, false or null", tag)
		return nil
	}
}

// scalar reads one value of a known type.
func (d *decoder) scalar(at keypath.Path, n *yaml.Node, out reflect.Value) {
	want, tag := describeType(out.Type())
	got := n.ShortTag()
	if n.Kind != yaml.ScalarNode || got != tag && (out.Type() != sizeType || got != "!!str") {
		d.want(at, n, want)
		return
	}
	text := n.Value
	if got == "!!int" {
		var v int64
		if err := n.Decode(&v); err != nil {
			d.want(at, n, want)
			return
		}
		text = strconv.FormatInt(v, 10)
	}
	if !setText(out, text) {
		d.want(at, n, want)
	}
}

// describeType describes the values of a type in words, with its tag.
func describeType(t reflect.Type) (want, tag string) {
	switch {
	case t == durationType:
		return "a duration such as 250ms, 5s or 24h", "!!str"
	case t == sizeType:
		return "a size such as 4096, 64KB or 1MiB", "!!int"
	case t.Kind() == reflect.Bool:
		return "true or false", "!!bool"
	case t.Kind() == reflect.Int:
		return "a whole number", "!!int"
	}
	return "text", "!!str"
}

// setText parses text into a value of a scalar type, from the file, a variable or a flag.
// It reports whether the text fits.
func setText(out reflect.Value, text string) bool {
	switch {
	case out.Type() == durationType:
		v, err := time.ParseDuration(text)
		out.SetInt(int64(v))
		return err == nil
	case out.Type() == sizeType:
		v, err := parseSize(text)
		out.SetInt(int64(v))
		return err == nil
	case out.Kind() == reflect.Bool:
		v, err := strconv.ParseBool(text)
		out.SetBool(v)
		return err == nil
	case out.Kind() == reflect.Int:
		v, err := strconv.Atoi(text)
		out.SetInt(int64(v))
		return err == nil
	}
	out.SetString(text)
	return true
}

// want reports a node that does not fit its key. If the value may be secret, or is in the
// place of a section or a list, it names only the kind.
func (d *decoder) want(at keypath.Path, n *yaml.Node, want string) {
	if tag := n.ShortTag(); n.Kind == yaml.ScalarNode && !strings.HasPrefix(tag, "!!") {
		// YAML reads an unquoted value that begins with ! as a tag.
		d.fail(at, n, "cannot read a value with a tag: put it in quotes")
		return
	}
	got, hint := kindOf(n), ""
	if n.Kind == yaml.ScalarNode && ruleAt(at) == "" && want != "a mapping" && want != "a list" {
		if got = clip(mask.Scrub(n.Value)); n.ShortTag() == "!!str" {
			got = strconv.Quote(got)
		}
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!str" && want == "text" {
		hint = ": put it in quotes"
	}
	d.fail(at, n, "want %s, got %s%s", want, got, hint)
}

// kindOf describes the kind of a node.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "text"
}

// clip shortens a long value for the terminal.
func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
