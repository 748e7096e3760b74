// Package keypath names places in trees of maps and lists, such as
// channels.telegram.botToken, finds values there, and compares trees.
package keypath

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Path is a place in a tree of maps and lists. Its text is keys joined by dots, with brackets
// for list indexes and for keys with other characters than letters, digits, "_" and "-":
//
//	channels.telegram.botToken
//	apps["@acme/x.y"].hosts[0]
//
// An empty path is the whole tree.
type Path []Step

// Step is one step; Index is -1 for a key.
type Step struct {
	Key   string
	Index int
}

// Key returns the path of a key below p.
func (p Path) Key(key string) Path {
	return append(slices.Clip(p), Step{Key: key, Index: -1})
}

// Index returns the path of a list item below p, counted from 0.
func (p Path) Index(i int) Path {
	return append(slices.Clip(p), Step{Index: i})
}

// Under and Item are Key and Index for a path that is not kept: the next path below p may
// overwrite it. They save a million copies while a large file is read.
func (p Path) Under(key string) Path { return append(p, Step{Key: key, Index: -1}) }

// Item is Index in the same way.
func (p Path) Item(i int) Path { return append(p, Step{Index: i}) }

// String writes the path so that [Compile] reads it back.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.Index >= 0:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case !Plain(s.Key):
			b.WriteString("[" + strconv.Quote(s.Key) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Key)
		}
	}
	return b.String()
}

// Plain reports whether a key needs no quotes in a path.
func Plain(key string) bool {
	for i := range len(key) {
		c := key[i]
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return key != ""
}

// Covers reports whether a change at other concerns a watcher of p, that is, whether one of
// the two contains the other. A watch on channels.telegram is concerned by a change at
// channels.telegram.botToken, and a watch on channels.telegram.hosts[0] by one at
// channels.telegram.hosts, which is how [Diff] reports a list that changed as a whole.
func (p Path) Covers(other Path) bool {
	n := min(len(p), len(other))
	return slices.Equal(p[:n], other[:n])
}

// Compile parses a path. Besides the canonical text it accepts a leading "$" or "$.", single
// quotes in brackets, and bare keys with any character but dots, brackets, quotes, white space
// and control characters. The error for a malformed path gives the position, in bytes from 1.
func Compile(path string) (Path, error) {
	fail := func(at int, what string) (Path, error) {
		return nil, fmt.Errorf("cannot read path %q: %s at character %d", path, what, at+1)
	}
	var p Path
	i, rooted := 0, strings.HasPrefix(path, "$")
	if rooted {
		i = 1
	}
	for i < len(path) {
		start := i == 0
		if path[i] == '[' {
			seg, n, what := bracket(path[i:])
			if what != "" {
				return fail(i, what)
			}
			p, i = append(p, seg), i+n
			continue
		}
		switch {
		case path[i] == '.' && start:
			return fail(i, "a key is missing before the dot")
		case path[i] == '.':
			i++
		case !start:
			return fail(i, "want a dot or a bracket")
		}
		n := strings.IndexFunc(path[i:], func(r rune) bool {
			return strings.ContainsRune(`.[]"'`, r) || unicode.IsSpace(r) || unicode.IsControl(r)
		})
		if n < 0 {
			n = len(path) - i
		}
		if n == 0 {
			return fail(i, "a key is missing")
		}
		p, i = p.Key(path[i:i+n]), i+n
	}
	return p, nil
}

// bracket parses "[0]" or `["key"]` at the start of s and returns its length, or its fault.
func bracket(s string) (seg Step, n int, what string) {
	if len(s) > 1 && (s[1] == '"' || s[1] == '\'') {
		var key strings.Builder
		rest := s[2:]
		for rest != "" && rest[0] != s[1] {
			r, multibyte, tail, err := strconv.UnquoteChar(rest, s[1])
			if err != nil {
				return seg, 0, "a broken escape in the quoted key"
			}
			if r < utf8.RuneSelf || !multibyte {
				key.WriteByte(byte(r))
			} else {
				key.WriteRune(r)
			}
			rest = tail
		}
		if !strings.HasPrefix(rest, s[1:2]+"]") {
			return seg, 0, "a quoted key that does not end in a quote and a bracket"
		}
		return Step{Key: key.String(), Index: -1}, len(s) - len(rest) + 2, ""
	}
	digits, _, closed := strings.Cut(s[1:], "]")
	index, err := strconv.ParseUint(digits, 10, 31)
	if !closed || err != nil {
		return seg, 0, "a bracket that holds neither an index nor a quoted key"
	}
	return Step{Index: int(index)}, len(digits) + 2, ""
}

// Lookup finds the value at a path, see [Compile]. It returns false if there is none, also if the
// path treats a map as a list or the other way round. The value is part of the tree, not a copy.
func Lookup(tree map[string]any, path string) (any, bool, error) {
	p, err := Compile(path)
	if err != nil {
		return nil, false, err
	}
	var at any = tree
	for _, s := range p {
		switch node := at.(type) {
		case map[string]any:
			child, ok := node[s.Key]
			if !ok || s.Index >= 0 {
				return nil, false, nil
			}
			at = child
		case []any:
			if s.Index < 0 || s.Index >= len(node) {
				return nil, false, nil
			}
			at = node[s.Index]
		default:
			return nil, false, nil
		}
	}
	return at, true, nil
}

// Change is one different leaf. Old is nil for an added leaf, and New for a removed one.
type Change struct {
	Path     string
	Old, New any
}

// Diff lists the leaves in which two trees differ, ordered by key. Leaves are scalars,
// whole lists, and empty maps. If a scalar becomes a map, one leaf is removed and those of
// the map are added.
func Diff(before, after map[string]any) []Change {
	return diff(nil, nil, before, after)
}

func diff(changes []Change, at Path, before, after map[string]any) []Change {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		was, had := before[key]
		is, has := after[key]
		below := at.Key(key)
		wasMap, _ := was.(map[string]any)
		isMap, _ := is.(map[string]any)

		// A value that is not a leaf counts as absent.
		had, has = had && len(wasMap) == 0, has && len(isMap) == 0
		if had != has || had && !reflect.DeepEqual(was, is) {
			c := Change{Path: below.String()}
			if had {
				c.Old = was
			}
			if has {
				c.New = is
			}
			changes = append(changes, c)
		}
		changes = diff(changes, below, wasMap, isMap)
	}
	return changes
}
