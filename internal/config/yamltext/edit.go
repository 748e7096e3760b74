package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"go.yaml.in/yaml/v3"
)

// errByHand means that a program cannot edit the form of a file.
var errByHand = errors.New("it is written in a form that no program should edit: add the lines by hand")

// Edit adds a value to a configuration's text and keeps everything else, including
// comments. The value is YAML on one line. Edit creates missing parts of the path. If the
// path leads to a list, the value becomes another item. The path may contain keys, and
// indexes of existing lists.
//
// The caller must check that the result is a valid configuration.
func Edit(text []byte, at keypath.Path, value string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return append([]byte(flow(at, value)), '\n'), nil
	}
	if _, _, what := Hidden(text); what != "" || len(text) > MaxBytes {
		return nil, errByHand
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("cannot read YAML: %w", err)
	}
	if len(doc.Content) == 0 {
		// Only comments.
		return append(line(text), flow(at, value)+"\n"...), nil
	}
	n := doc.Content[0]
	if n.Kind != yaml.MappingNode {
		return nil, errByHand
	}
	for i, step := range at {
		next := child(n, step)
		if next == nil && (step.Index >= 0 || n.Kind != yaml.MappingNode) {
			return nil, errByHand
		}
		if next == nil {
			added := flow(at[i:], value)
			if i == 0 && n.Style&yaml.FlowStyle == 0 {
				return append(line(text), added+"\n"...), nil
			}
			return into(text, n, added)
		}
		if nothing(next) && i < len(at)-1 {
			return replace(text, next, "{"+flow(at[i+1:], value)+"}")
		}
		n = next
	}
	if n.Kind == yaml.SequenceNode {
		return into(text, n, value)
	}
	return replace(text, n, value)
}

// flow is a value at a new path, on one line.
func flow(at keypath.Path, value string) string {
	var b strings.Builder
	for i, s := range at {
		key := s.Key
		if !keypath.Plain(key) {
			key = quote(key)
		}
		b.WriteString(key + ": ")
		if i < len(at)-1 {
			b.WriteString("{")
		}
	}
	return b.String() + value + strings.Repeat("}", max(0, len(at)-1))
}

// quote quotes any text for YAML, as JSON does.
func quote(text string) string {
	out, err := yaml.Marshal(&yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: text})
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(out), "\n")
}

// nothing reports whether a value is empty.
func nothing(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" || n.Kind == yaml.MappingNode && len(n.Content) == 0
}

// child is the value one step below a node, or nil.
func child(n *yaml.Node, step keypath.Step) *yaml.Node {
	switch {
	case n.Kind == yaml.SequenceNode && step.Index >= 0 && step.Index < len(n.Content):
		return n.Content[step.Index]
	case n.Kind == yaml.MappingNode && step.Index < 0:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step.Key {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// line returns a text that ends with a line end.
func line(text []byte) []byte {
	text = bytes.Clone(text)
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	return text
}

// offset is the position of a node, or -1 if it is unknown.
func offset(text []byte, n *yaml.Node) int {
	at := 0
	for range n.Line - 1 {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			return -1
		}
		at += next + 1
	}
	// Columns count characters.
	for range n.Column - 1 {
		_, size := nextRune(text[at:])
		at += size
	}
	if n.Line < 1 || n.Column < 1 || at > len(text) {
		return -1
	}
	return at
}

func nextRune(text []byte) (rune, int) {
	for i, r := range string(text[:min(len(text), 4)]) {
		if i == 0 {
			return r, len(string(r))
		}
	}
	return 0, 0
}

// into inserts an item, or a key with its value, before the others of a node.
func into(text []byte, n *yaml.Node, added string) ([]byte, error) {
	if n.Kind != yaml.MappingNode && n.Kind != yaml.SequenceNode {
		return nil, errByHand
	}
	if n.Style&yaml.FlowStyle != 0 {
		at := offset(text, n)
		if at < 0 || at >= len(text) || text[at] != '{' && text[at] != '[' {
			return nil, errByHand
		}
		if len(n.Content) > 0 {
			added += ", "
		}
		return splice(text, at+1, 0, added), nil
	}
	if len(n.Content) == 0 {
		return nil, errByHand
	}
	first := n.Content[0]
	if n.Kind == yaml.SequenceNode {
		first, added = n, "- "+added
	}
	at := offset(text, first)
	if at < 0 {
		return nil, errByHand
	}
	return splice(text, at, 0, added+"\n"+strings.Repeat(" ", first.Column-1)), nil
}

// replace replaces a plain or empty value.
func replace(text []byte, n *yaml.Node, value string) ([]byte, error) {
	at := offset(text, n)
	if at < 0 {
		return nil, errByHand
	}
	raw := n.Value
	switch {
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		raw = "{}"
	case n.Kind != yaml.ScalarNode:
		return nil, errByHand
	case n.Style&yaml.DoubleQuotedStyle != 0:
		raw = `"` + raw + `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		raw = "'" + raw + "'"
	case raw == "":
		// The value is missing; insert it after the colon.
		if at > 0 && text[at-1] == ':' {
			value = " " + value
		}
	}
	if !bytes.HasPrefix(text[at:], []byte(raw)) {
		return nil, errByHand
	}
	return splice(text, at, len(raw), value), nil
}

// splice replaces n bytes by a text.
func splice(text []byte, at, n int, added string) []byte {
	out := make([]byte, 0, len(text)+len(added))
	out = append(out, text[:at]...)
	out = append(out, added...)
	return append(out, text[at+n:]...)
}
