package audit

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/jsonline"
)

// appendCanonical appends a JSON text in the canonical form of RFC 8785.
//
// It is written for every message, so what messages usually are made of goes by
// [canonical.value], which the fuzz tests hold against the library. All else goes by
// the library.
func appendCanonical(b []byte, text jsontext.Value) ([]byte, error) {
	c := canonical{to: b, from: text}
	if c.value(0) && c.peek() == 0 && len(c.from) == 0 {
		return c.to, nil
	}
	text = bytes.Clone(text)
	if err := text.Canonicalize(); err != nil {
		return b, err
	}
	return append(b, text...), nil
}

// canonical writes the canonical form of what it reads. Its methods return false
// where they meet what they do not know: they refuse nothing by themselves.
type canonical struct{ to, from []byte }

const (
	// usualDepth and usualMembers bound what is written without the library.
	usualDepth   = 6
	usualMembers = 32
	// exactDigits is how many digits of a whole number every double has.
	exactDigits = 15
)

// peek returns the next byte that is no white space, zero at the end.
func (c *canonical) peek() byte {
	for i, b := range c.from {
		if b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			c.from = c.from[i:]
			return b
		}
	}
	c.from = nil
	return 0
}

func (c *canonical) value(depth int) bool {
	switch b := c.peek(); {
	case b == '"':
		_, ok := c.text()
		return ok
	case b == '{':
		return depth < usualDepth && c.object(depth)
	case b == '[':
		return depth < usualDepth && c.array(depth)
	case b == '-' || '0' <= b && b <= '9':
		return c.whole()
	}
	return c.word("true") || c.word("false") || c.word("null")
}

func (c *canonical) word(word string) bool {
	rest, ok := bytes.CutPrefix(c.from, []byte(word))
	if ok {
		c.to, c.from = append(c.to, word...), rest
	}
	return ok
}

// take moves bytes over as they are.
func (c *canonical) take(n int) {
	c.to, c.from = append(c.to, c.from[:n]...), c.from[n:]
}

// next takes one byte, where it is the next.
func (c *canonical) next(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.take(1)
	return true
}

// whole takes a whole number that a double has exactly.
func (c *canonical) whole() bool {
	digits := 0
	if c.from[0] == '-' {
		digits = 1
	}
	end := digits
	for end < len(c.from) && '0' <= c.from[end] && c.from[end] <= '9' {
		end++
	}
	n := end - digits
	if n == 0 || n > exactDigits || c.from[digits] == '0' && end > 1 {
		return false
	}
	if end < len(c.from) && (c.from[end] == '.' || c.from[end] == 'e' || c.from[end] == 'E') {
		return false
	}
	c.take(end)
	return true
}

// text takes a string whose escapes are those of the canonical form. Plain says that
// it has none, and nothing but ASCII.
func (c *canonical) text() (plain, ok bool) {
	end := bytes.IndexByte(c.from[1:], '"') + 1
	if end > 0 && jsonline.Plain(c.from[1:end]) {
		c.take(end + 1)
		return true, true
	}
	for i := 1; i < len(c.from); i++ {
		switch b := c.from[i]; {
		case b == '"':
			if !utf8.Valid(c.from[:i]) {
				return false, false
			}
			c.take(i + 1)
			return false, true
		case b == '\\':
			if i++; i == len(c.from) || bytes.IndexByte([]byte(`"\bfnrt`), c.from[i]) < 0 {
				return false, false
			}
		case b < ' ':
			return false, false
		}
	}
	return false, false
}

func (c *canonical) array(depth int) bool {
	c.take(1)
	if c.next(']') {
		return true
	}
	for c.value(depth + 1) {
		if c.next(']') {
			return true
		}
		if !c.next(',') {
			return false
		}
	}
	return false
}

// span is where a member and its name stand in what was written.
type span struct{ begin, name, end int }

// object takes an object, and puts its members in order where they are not. Only
// names that are plain ASCII are known: those are ordered as their bytes are.
func (c *canonical) object(depth int) bool {
	var members [usualMembers]span
	c.take(1)
	start := len(c.to)
	if c.next('}') {
		return true
	}
	n, sorted := 0, true
	for {
		if n == usualMembers || c.peek() != '"' {
			return false
		}
		m := span{begin: len(c.to)}
		if plain, _ := c.text(); !plain {
			return false
		}
		m.name = len(c.to)
		if !c.next(':') || !c.value(depth+1) {
			return false
		}
		m.end = len(c.to)
		// What is in order so far stays so: the member is put before those that it precedes.
		at := n
		for ; at > 0; at-- {
			before := members[at-1]
			// Without the closing quote a name stands before those that it begins.
			order := bytes.Compare(c.to[before.begin:before.name-1], c.to[m.begin:m.name-1])
			if order == 0 {
				return false
			}
			if order < 0 {
				break
			}
			members[at], sorted = before, false
		}
		members[at] = m
		n++
		if c.peek() == '}' {
			break
		}
		if !c.next(',') {
			return false
		}
	}
	if !sorted {
		c.order(start, members[:n])
	}
	return c.next('}')
}

// order rewrites the members of an object, which stand from an index on.
func (c *canonical) order(start int, members []span) {
	end := len(c.to)
	for i, m := range members {
		if i > 0 {
			c.to = append(c.to, ',')
		}
		c.to = append(c.to, c.to[m.begin:m.end]...)
	}
	c.to = append(c.to[:start], c.to[end:]...)
}
