package audit

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// appendCanonical appends a JSON text in the canonical form of RFC 8785.
//
// It runs for every message, so [canonical.value] handles the usual parts of messages; the fuzz
// tests compare it with the library. The library handles everything else.
func appendCanonical(b []byte, text jsontext.Value) ([]byte, error) {
	c := canonical{to: b, from: text}
	if end := c.value(c.blank(0), 0); end >= 0 && c.blank(end) == len(text) {
		return c.copied(len(text)), nil
	}
	text = bytes.Clone(text)
	if err := text.Canonicalize(); err != nil {
		return b, err
	}
	return append(b, text...), nil
}

// canonical writes the canonical form of its input. It copies parts that have that form already as
// one piece: nothing after mark is written yet. Its methods take the beginning of something and
// return its end, or a negative number if they do not know its form: they refuse nothing by
// themselves.
type canonical struct {
	to, from []byte
	mark     int
}

const (
	// usualDepth and usualMembers bound the input that is written without the library.
	usualDepth   = 6
	usualMembers = 32
	// exactDigits is the number of digits that every double holds exactly.
	exactDigits = 15
	unknown     = -1
)

// copied writes the input before an index.
func (c *canonical) copied(end int) []byte {
	c.to = append(c.to, c.from[c.mark:end]...)
	c.mark = end
	return c.to
}

// written returns the length of the output once everything before an index is written.
func (c *canonical) written(at int) int { return len(c.to) + at - c.mark }

// blank skips white space.
func (c *canonical) blank(at int) int {
	end := at
	for end < len(c.from) && (c.from[end] == ' ' || c.from[end] == '\n' || c.from[end] == '\t' || c.from[end] == '\r') {
		end++
	}
	if end > at {
		c.copied(at)
		c.mark = end
	}
	return end
}

// is reports whether the input has a byte at an index.
func (c *canonical) is(at int, b byte) bool { return at < len(c.from) && c.from[at] == b }

func (c *canonical) value(at, depth int) (end int) {
	if at == len(c.from) {
		return unknown
	}
	switch b := c.from[at]; {
	case b == '"':
		return c.text(at)
	case b == '{' && depth < usualDepth:
		return c.object(at, depth)
	case b == '[' && depth < usualDepth:
		return c.array(at, depth)
	case b == '-' || '0' <= b && b <= '9':
		return c.whole(at)
	case b == 't':
		return c.word(at, "true")
	case b == 'f':
		return c.word(at, "false")
	case b == 'n':
		return c.word(at, "null")
	}
	return unknown
}

func (c *canonical) word(at int, word string) (end int) {
	if end = at + len(word); end <= len(c.from) && string(c.from[at:end]) == word {
		return end
	}
	return unknown
}

// whole handles a whole number that a double holds exactly.
func (c *canonical) whole(at int) (end int) {
	digits := at
	if c.from[at] == '-' {
		digits++
	}
	end = digits
	for end < len(c.from) && '0' <= c.from[end] && c.from[end] <= '9' {
		end++
	}
	n := end - digits
	if n == 0 || n > exactDigits || c.from[digits] == '0' && end > at+1 || c.is(end, '.') || c.is(end, 'e') || c.is(end, 'E') {
		return unknown
	}
	return end
}

// plain handles an ASCII string without escapes, eight bytes at a time.
func (c *canonical) plain(at int) (end int) {
	at++
	at += jsonline.PlainLength(c.from[at:])
	if c.is(at, '"') {
		return at + 1
	}
	return unknown
}

// text handles a string whose escapes are those of the canonical form.
func (c *canonical) text(at int) (end int) {
	if end = c.plain(at); end >= 0 {
		return end
	}
	for i := at + 1; i < len(c.from); i++ {
		switch b := c.from[i]; {
		case b == '"':
			if !utf8.Valid(c.from[at:i]) {
				return unknown
			}
			return i + 1
		case b == '\\':
			if i++; i == len(c.from) || bytes.IndexByte([]byte(`"\bfnrt`), c.from[i]) < 0 {
				return unknown
			}
		case b < ' ':
			return unknown
		}
	}
	return unknown
}

func (c *canonical) array(at, depth int) (end int) {
	if at = c.blank(at + 1); c.is(at, ']') {
		return at + 1
	}
	for {
		if at = c.value(at, depth+1); at < 0 {
			return unknown
		}
		if at = c.blank(at); c.is(at, ']') {
			return at + 1
		}
		if !c.is(at, ',') {
			return unknown
		}
		at = c.blank(at + 1)
	}
}

// member is the position of a member in the output, and of its name in the input.
type member struct{ begin, end, name, nameEnd int }

// object sorts the members if they are not sorted. It knows only names in plain ASCII, which sort
// as their bytes do.
func (c *canonical) object(at, depth int) (end int) {
	var members [usualMembers]member
	if at = c.blank(at + 1); c.is(at, '}') {
		return at + 1
	}
	n, sorted := 0, true
	for {
		if n == usualMembers || !c.is(at, '"') {
			return unknown
		}
		m := member{begin: c.written(at), name: at + 1}
		if at = c.plain(at); at < 0 {
			return unknown
		}
		m.nameEnd = at - 1
		if at = c.blank(at); !c.is(at, ':') {
			return unknown
		}
		if at = c.value(c.blank(at+1), depth+1); at < 0 {
			return unknown
		}
		m.end = c.written(at)
		// The members before are sorted: insert this one before those that it precedes.
		to := n
		for ; to > 0; to-- {
			before := members[to-1]
			order := bytes.Compare(c.from[before.name:before.nameEnd], c.from[m.name:m.nameEnd])
			if order == 0 {
				return unknown
			}
			if order < 0 {
				break
			}
			members[to], sorted = before, false
		}
		members[to] = m
		n++
		if at = c.blank(at); c.is(at, '}') {
			break
		}
		if !c.is(at, ',') {
			return unknown
		}
		at = c.blank(at + 1)
	}
	if !sorted {
		c.copied(at)
		c.order(members[:n])
	}
	return at + 1
}

// order rewrites the members of the object that was written last.
func (c *canonical) order(members []member) {
	end := len(c.to)
	start := end
	for i, m := range members {
		start = min(start, m.begin)
		if i > 0 {
			c.to = append(c.to, ',')
		}
		c.to = append(c.to, c.to[m.begin:m.end]...)
	}
	c.to = append(c.to[:start], c.to[end:]...)
}
