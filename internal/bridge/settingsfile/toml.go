package settingsfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Block is our block at the end of a TOML file, between two marker lines; with an empty
// Text, it is to be absent. The block's tables are ours wherever they are.
type Block struct {
	Text string
	// Alone is set if the file must contain nothing else.
	Alone bool
	// Tables are prefixes of table names that are ours in a block of an earlier version,
	// whatever else the block contains.
	Tables [][]string
}

const (
	begins = "# What ocipd integrate has entered begins here.\n"
	ends   = "# What ocipd integrate has entered ends here.\n"
)

func (b *Block) String() string { return b.Text }

// paths are the keys of our entries: those of the tables, and keys outside tables.
func (b *Block) paths() (list [][]string) {
	inTable := false
	var p unstable.Parser
	p.Reset([]byte(b.Text))
	for p.NextExpression() {
		e := p.Expression()
		isTable := e.Kind != unstable.KeyValue
		if inTable = inTable || isTable; isTable || !inTable {
			list = append(list, KeyOf(e.Key()))
		}
	}
	return list
}

func (b *Block) values() map[string]any {
	values := make(map[string]any)
	_ = toml.Unmarshal([]byte(b.Text), &values) // it is ours
	return values
}

// Strays lists where our tables and keys differ from the block, wherever they are.
func (b *Block) Strays(text []byte) (list []string, err error) {
	var whole map[string]any
	if err := toml.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	if b.Text == "" {
		if bytes.Contains(text, []byte(begins)) {
			list = append(list, "has what is not to stand there any more")
		}
		return list, nil
	}
	if b.Alone {
		return differing("it", whole, b.values())
	}
	want := b.values()
	for _, path := range b.paths() {
		is, entered := Under(whole, path), Under(want, path)
		place := strings.Join(path, ".")
		switch {
		case entered == nil && is == nil:
			continue
		case entered == nil:
			list = append(list, place+" was not entered")
		case is == nil:
			list = append(list, place+" is missing")
		default:
			more, err := differing(place, is, entered)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
	}
	if len(list) == 0 && bytes.Count(text, []byte(begins)) != 1 {
		list = append(list, "the lines around what was entered are gone")
	}
	return list, nil
}

// Under returns the value at a path, or nil.
func Under(values any, path []string) any {
	for _, name := range path {
		table, _ := values.(map[string]any)
		values = table[name]
	}
	return values
}

// differing describes the differences between values.
func differing(place string, is, want any) ([]string, error) {
	a, err := json.Marshal(is, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(want, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return Differences(place, a, b), nil
}

// Add implements [Item].
func (b *Block) Add(text []byte) ([]byte, error) {
	if b.Text == "" {
		return text, nil
	}
	if b.Alone && len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("something else stands in it; add by hand what --dry-run shows")
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	return slices.Concat(text, []byte(begins+b.Text+ends)), nil
}

// Strip removes the block, and our tables outside it. It keeps entries of others within the
// block; some programs add tables after the last one.
func (b *Block) Strip(text []byte) ([]byte, error) {
	paths := b.paths()
	for {
		before, rest, found := bytes.Cut(text, []byte(begins))
		if !found {
			break
		}
		in, after, found := bytes.Cut(rest, []byte(ends))
		if !found {
			return nil, fmt.Errorf("the line %q is missing", strings.TrimSpace(ends))
		}
		theirs, err := cutTOML(in, func(key []string, inTable bool) bool {
			return b.Alone || !inTable || slices.ContainsFunc(slices.Concat(paths, b.Tables), func(path []string) bool { return isUnder(key, path...) })
		})
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(theirs)) == 0 {
			theirs = nil
		}
		text = slices.Concat(before, theirs, after)
	}
	return cutTOML(text, func(key []string, _ bool) bool {
		return slices.ContainsFunc(paths, func(path []string) bool { return isUnder(key, path...) })
	})
}

func isUnder(key []string, path ...string) bool {
	return len(key) >= len(path) && slices.Equal(key[:len(path)], path)
}

// gap is a value or a table's line in a TOML text, up to the next one.
type gap struct {
	begin int
	cut   bool
}

// cutTOML removes the tables and values whose keys are ours. inTable is set for a table and
// the values in it. Comments after them stay.
func cutTOML(text []byte, ours func(key []string, inTable bool) bool) ([]byte, error) {
	var gaps []gap
	var table []string
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		key := KeyOf(e.Key())
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			table = key
		} else {
			key = append(slices.Clip(table), key...)
		}
		first := e.Key()
		first.Next()
		at := bytes.LastIndexByte(text[:first.Node().Raw.Offset], '\n') + 1
		gaps = append(gaps, gap{at, ours(key, table != nil)})
	}
	if err := p.Error(); err != nil {
		return nil, err
	}
	for i, g := range slices.Backward(gaps) {
		if !g.cut {
			continue
		}
		end := len(text)
		if i+1 < len(gaps) {
			end = min(end, gaps[i+1].begin)
		}
		if i+1 < len(gaps) && gaps[i+1].cut {
			text = slices.Concat(text[:g.begin], text[end:])
			gaps[i+1].begin = g.begin
			continue
		}
		// Comments before the next entry belong to it.
		for above := end; above > g.begin; {
			line := bytes.LastIndexByte(text[g.begin:above-1], '\n') + 1 + g.begin
			words := bytes.TrimSpace(text[line:above])
			if line == g.begin || len(words) > 0 && words[0] != '#' {
				break
			}
			if above = line; len(words) > 0 {
				end = line
			}
		}
		text = slices.Concat(text[:g.begin], text[end:])
	}
	return text, nil
}

// Key is a TOML value that is to be absent. It is a value of its own, or in a one-line
// table of strings.
type Key struct{ Path []string }

func (k *Key) String() string { return strings.Join(k.Path, ".") }

// Strays implements [Item].
func (k *Key) Strays([]byte) ([]string, error) { return nil, nil }

// Add implements [Item].
func (k *Key) Add(text []byte) ([]byte, error) { return text, nil }

// Strip implements [Item].
func (k *Key) Strip(text []byte) ([]byte, error) {
	text, err := cutTOML(text, func(key []string, _ bool) bool { return isUnder(key, k.Path...) })
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	if err := toml.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	last := len(k.Path) - 1
	texts, _ := Under(whole, k.Path[:last]).(map[string]any)
	if texts[k.Path[last]] == nil {
		return text, nil
	}
	delete(texts, k.Path[last])
	var line strings.Builder
	line.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		value, ok := texts[name].(string)
		if !ok {
			return nil, fmt.Errorf("%s: take it out by hand", k)
		}
		if i > 0 {
			line.WriteString(", ")
		}
		line.WriteString(QuoteTOML(name) + " = " + QuoteTOML(value))
	}
	line.WriteString("}")
	at, err := inlineTable(text, k.Path[:last])
	if err != nil {
		return nil, fmt.Errorf("%s: take it out by hand: %w", k, err)
	}
	return slices.Concat(text[:at.begin], []byte(line.String()), text[at.end:]), nil
}

// inlineTable returns the position of a table that is written on one line after its key.
func inlineTable(text []byte, path []string) (at span, err error) {
	var table []string
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			table = KeyOf(e.Key())
		}
		if e.Kind != unstable.KeyValue || e.Value().Kind != unstable.InlineTable || !slices.Equal(append(slices.Clip(table), KeyOf(e.Key())...), path) {
			continue
		}
		for parts := e.Key(); parts.Next(); {
			at.begin = int(parts.Node().Raw.Offset + parts.Node().Raw.Length)
		}
		last := at.begin
		for pairs := e.Value().Children(); pairs.Next(); {
			last = int(pairs.Node().Value().Raw.Offset + pairs.Node().Value().Raw.Length)
		}
		open, shut := bytes.IndexByte(text[at.begin:], '{'), bytes.IndexByte(text[last:], '}')
		if open < 0 || shut < 0 {
			break
		}
		return span{at.begin + open, last + shut + 1}, nil
	}
	return span{}, errors.New("it is written in a way that is not understood")
}

// Gone is an item that is to be absent.
type Gone struct{ Item }

// Strays implements [Item].
func (g Gone) Strays(text []byte) ([]string, error) {
	without, err := g.Strip(text)
	if err != nil || bytes.Equal(text, without) {
		return nil, err
	}
	return []string{g.String()}, nil
}

// Add implements [Item].
func (g Gone) Add(text []byte) ([]byte, error) { return text, nil }

// QuoteTOML encodes a text as TOML. A JSON string is a TOML string, except for the one
// control character that JSON does not escape.
func QuoteTOML(text string) string { return strings.ReplaceAll(quote(text), "\x7f", `\u007f`) }

// KeyOf returns the parts of a key.
func KeyOf(parts unstable.Iterator) (key []string) {
	for parts.Next() {
		key = append(key, string(parts.Node().Data))
	}
	return key
}
