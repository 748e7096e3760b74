package a2aproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// node is a JSON value that was parsed strictly. Members keep their order, and scalars their
// spelling.
type node struct {
	// kind is the first character: { [ " 0 t f n.
	kind  jsontext.Kind
	names []string
	kids  []*node
	// raw is a scalar's text. text is the value of a string.
	raw  jsontext.Value
	text string
}

// maxDepth bounds the nesting of a message.
const maxDepth = 64

// errMalformed means that two programs could read a message in different ways.
var errMalformed = errors.New("not a message that all programs read alike")

// parse reads one JSON value. It refuses invalid UTF-8, doubled members, members that differ
// in case or signs alone, and everything behind the value.
func parse(text []byte) (*node, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not UTF-8", errMalformed)
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	n, err := read(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something stands behind it", errMalformed)
	}
	return n, nil
}

func read(d *jsontext.Decoder, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: it is nested more than %d times", errMalformed, maxDepth)
	}
	switch kind := d.PeekKind(); kind {
	case '{', '[':
		if _, err := d.ReadToken(); err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		n := &node{kind: kind}
		for d.PeekKind() != '}' && d.PeekKind() != ']' {
			if kind == '{' {
				name, err := d.ReadToken()
				if err != nil {
					return nil, fmt.Errorf("%w: %w", errMalformed, err)
				}
				n.names = append(n.names, name.String())
			}
			kid, err := read(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.kids = append(n.kids, kid)
		}
		if _, err := d.ReadToken(); err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return n, n.distinct()
	default:
		raw, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		n := &node{kind: kind, raw: raw.Clone()}
		if kind == '"' {
			n.text, _ = toolmap.Text(n.raw)
		}
		return n, nil
	}
}

// distinct refuses names that a lenient reader could confuse with each other.
func (n *node) distinct() error {
	list := make([]toolmap.Member, len(n.names))
	for i, name := range n.names {
		list[i].Name = name
	}
	if err := toolmap.Exactly(list); err != nil {
		return fmt.Errorf("%w: two members have names that differ in case or signs alone", errMalformed)
	}
	return nil
}

func (n *node) get(name string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	if i := slices.Index(n.names, name); i >= 0 {
		return n.kids[i]
	}
	return nil
}

func (n *node) set(name string, kid *node) {
	if i := slices.Index(n.names, name); i >= 0 {
		n.kids[i] = kid
		return
	}
	n.names, n.kids = append(n.names, name), append(n.kids, kid)
}

func (n *node) remove(name string) {
	if i := slices.Index(n.names, name); i >= 0 {
		n.names, n.kids = slices.Delete(n.names, i, i+1), slices.Delete(n.kids, i, i+1)
	}
}

// write appends the value as JSON.
func (n *node) write(b []byte) []byte {
	switch n.kind {
	case '{', '[':
		b = append(b, byte(n.kind))
		for i, kid := range n.kids {
			if i > 0 {
				b = append(b, ',')
			}
			if n.kind == '{' {
				b = appendText(b, n.names[i])
				b = append(b, ':')
			}
			b = kid.write(b)
		}
		return append(b, map[jsontext.Kind]byte{'{': '}', '[': ']'}[n.kind])
	default:
		return append(b, n.raw...)
	}
}

func (n *node) clone() *node {
	c := &node{kind: n.kind, names: slices.Clone(n.names), raw: n.raw, text: n.text}
	for _, kid := range n.kids {
		c.kids = append(c.kids, kid.clone())
	}
	return c
}

func textNode(s string) *node {
	return &node{kind: '"', text: s, raw: appendText(nil, s)}
}

func rawNode(v jsontext.Value) (*node, error) { return parse(v) }

func objectNode() *node { return &node{kind: '{'} }

func nullNode() *node { return &node{kind: 'n', raw: jsontext.Value("null")} }

// appendText appends a string as JSON. What is not UTF-8 is replaced.
func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(s, "\ufffd")) // a valid text has no error
	return b
}
