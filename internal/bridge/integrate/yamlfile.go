package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/openclawos/ocipd/internal/config/yamltext"
	"go.yaml.in/yaml/v3"
)

// yamlFile is the text of a YAML file whose top is a mapping, or is empty. Changes keep all other bytes.
type yamlFile struct {
	text []byte
	top  *yaml.Node
}

// parseYAML reads a text as one document. A key that is there twice is an error, as it is for the
// programs that read such files.
func parseYAML(text []byte) (*yamlFile, error) {
	y := &yamlFile{text: text}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return y, nil
	} else if err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document is in it, or text that is no YAML")
	}
	if len(doc.Content) == 0 || nullYAML(doc.Content[0]) {
		return y, nil
	}
	y.top = doc.Content[0]
	if y.top.Kind != yaml.MappingNode {
		return nil, errors.New("its top is no mapping")
	}
	return y, unique(y.top)
}

func nullYAML(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// unique returns an error for a key that a mapping below a node has twice.
func unique(n *yaml.Node) error {
	seen := make(map[string]bool)
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[child.Value] {
				return fmt.Errorf("line %d: the key %q is there twice", child.Line, child.Value)
			}
			seen[child.Value] = true
		}
		if err := unique(child); err != nil {
			return err
		}
	}
	return nil
}

// memberYAML returns the index of a key in a mapping, or -1.
func memberYAML(n *yaml.Node, name string) int {
	if n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return i
			}
		}
	}
	return -1
}

// valueYAML returns the value at a path, or nil.
func valueYAML(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		i := memberYAML(n, name)
		if i < 0 {
			return nil
		}
		n = n.Content[i+1]
	}
	return n
}

// errYAML means that a part of a file has a form that no program should change.
var errYAML = errors.New("it is written in a form that no program should change")

// offset is the position of a node. Columns count characters.
func (y *yamlFile) offset(n *yaml.Node) (int, error) {
	at := 0
	for range n.Line - 1 {
		next := bytes.IndexByte(y.text[at:], '\n')
		if next < 0 {
			return 0, errYAML
		}
		at += next + 1
	}
	line, _, _ := strings.Cut(string(y.text[at:]), "\n")
	characters := []rune(line)
	if n.Line < 1 || n.Column < 1 || n.Column-1 > len(characters) {
		return 0, errYAML
	}
	return at + len(string(characters[:n.Column-1])), nil
}

// span is the position of a key or a value. It is an error for one whose end is not plain to see, such
// as text over several lines, and for references.
func (y *yamlFile) span(n *yaml.Node) (at span, err error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return at, errYAML
	}
	if at.begin, err = y.offset(n); err != nil {
		return at, err
	}
	if n.Kind == yaml.ScalarNode {
		at.end, err = y.scalarEnd(n, at.begin)
		return at, err
	}
	at.end = at.begin
	if len(n.Content) > 0 {
		last, err := y.span(n.Content[len(n.Content)-1])
		if err != nil {
			return at, err
		}
		at.end = last.end
	} else {
		at.end++ // behind the bracket
	}
	if n.Style&yaml.FlowStyle == 0 {
		return at, nil
	}
	shut := map[yaml.Kind]byte{yaml.SequenceNode: ']', yaml.MappingNode: '}'}[n.Kind]
	for ; at.end < len(y.text); at.end++ {
		switch c := y.text[at.end]; c {
		case ' ', '\t', '\r', '\n', ',':
		case shut:
			at.end++
			return at, nil
		default:
			return at, errYAML
		}
	}
	return at, errYAML
}

// scalarEnd is the end of a text that begins at a position and stays on its line.
func (y *yamlFile) scalarEnd(n *yaml.Node, begin int) (int, error) {
	line, _, _ := bytes.Cut(y.text[begin:], []byte("\n"))
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i := 1; i < len(line); i++ {
			switch line[i] {
			case '\\':
				i++
			case '"':
				return begin + i + 1, nil
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i := 1; i < len(line); i++ {
			if line[i] != '\'' {
				continue
			}
			if i+1 == len(line) || line[i+1] != '\'' {
				return begin + i + 1, nil
			}
			i++
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && n.Value != "" && bytes.HasPrefix(line, []byte(n.Value)):
		end := begin + len(n.Value)
		if end == len(y.text) || strings.IndexByte(" \t\r\n,:]}", y.text[end]) >= 0 {
			return end, nil
		}
	}
	return 0, errYAML
}

// quoteYAML encodes a text, without quotes if it needs none.
func quoteYAML(text string) string {
	var is any
	bare := text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_./+-", c)
	}) && !strings.HasPrefix(text, "-")
	if bare && yaml.Unmarshal([]byte(text), &is) == nil && is == text {
		return text
	}
	return yamltext.Quote(text)
}

// indent is the space before a key or an element.
func indent(n *yaml.Node) string { return strings.Repeat(" ", max(0, n.Column-1)) }

// cutMember is the part of a text to remove for a member of a mapping: with its line or its comma.
func (y *yamlFile) cutMember(n *yaml.Node, i int) (at span, err error) {
	key, err := y.span(n.Content[i])
	if err != nil {
		return at, err
	}
	value, err := y.span(n.Content[i+1])
	if err != nil {
		return at, err
	}
	at = span{key.begin, value.end}
	switch last := i+2 == len(n.Content); {
	case n.Style&yaml.FlowStyle == 0 && !last:
		// Up to the next key, which takes this one's place.
		if at.end, err = y.offset(n.Content[i+2]); err != nil {
			return at, err
		}
	case n.Style&yaml.FlowStyle == 0:
		before, err := y.span(n.Content[i-1])
		if err != nil {
			return at, err
		}
		at.begin = before.end
	case !last:
		if at.end, err = y.offset(n.Content[i+2]); err != nil {
			return at, err
		}
	case i > 0:
		before, err := y.span(n.Content[i-1])
		if err != nil {
			return at, err
		}
		at.begin = before.end
	}
	return at, nil
}

// yamlItem is a member of a YAML file that is to be absent or, with a value, to have that value if it is
// there.
type yamlItem struct {
	path  []string
	value string
}

// String describes the item.
func (i *yamlItem) String() string { return strings.Join(i.path, ".") }

// Strays implements [settingsfile.Item].
func (i *yamlItem) Strays([]byte) ([]string, error) { return nil, nil }

// Add implements [settingsfile.Item].
func (i *yamlItem) Add(text []byte) ([]byte, error) { return text, nil }

// Strip implements [settingsfile.Item]. A mapping that holds nothing else goes too.
func (i *yamlItem) Strip(text []byte) ([]byte, error) {
	y, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	n := valueYAML(y.top, i.path...)
	if n == nil {
		return text, nil
	}
	if i.value != "" {
		at, err := y.span(n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i, err)
		}
		return swap(text, []piece{{at, i.value}}), nil
	}
	path := i.path
	into := valueYAML(y.top, path[:len(path)-1]...)
	for len(into.Content) == 2 && len(path) > 1 {
		path = path[:len(path)-1]
		into = valueYAML(y.top, path[:len(path)-1]...)
	}
	if len(into.Content) == 2 {
		return []byte{}, nil
	}
	at, err := y.cutMember(into, memberYAML(into, path[len(path)-1]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i, err)
	}
	return swap(text, []piece{{at, ""}}), nil
}
