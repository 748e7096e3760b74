package wire

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// usual reads requests as clients usually write them, in one pass: known members, each of its type,
// ids without escapes, no half characters. It leaves every other line to the JSON library, errors
// too, so that it can only be faster, never more lenient: a fuzz test holds the two against each
// other.
type usual struct {
	b     []byte
	i     int
	depth int
	// odd is that of [Request.oddNumbers].
	odd bool
	// names are those of the objects around the place, for finding one twice.
	names [usualNames][]byte
	known int
}

// usualNames is how many names are kept of the objects around a place; more are left
// to the library.
const usualNames = 48

// parseUsual reads a line, and reports whether it could.
func parseUsual(line []byte) (r Request, ok bool) {
	p := usual{b: line, depth: 1}
	if !p.next('{') {
		return r, false
	}
	var seen [6]bool
	once := func(i int) bool {
		first := !seen[i]
		seen[i] = true
		return first
	}
	for {
		name, ok := p.member()
		if !ok {
			return r, false
		}
		switch string(name) {
		case "id":
			ok = once(0) && p.text(&r.ID)
		case "type":
			ok = once(1) && p.text(&r.Type)
		case "timestamp":
			ok = once(2) && p.time(&r.Timestamp)
		case "method":
			ok = once(3) && p.text(&r.Method)
		case "params":
			p.space()
			from := p.i
			ok = once(4) && p.i < len(line) && line[from] == '{' && p.value()
			r.Params = line[from:p.i]
		case "token":
			ok = once(5) && p.text(&r.Token)
		default:
			ok = false
		}
		if !ok {
			return r, false
		}
		if p.next(',') {
			continue
		}
		if !p.next('}') {
			return r, false
		}
		p.space()
		r.Params = jsontext.Value(bytes.Clone(r.Params))
		r.oddNumbers = p.odd
		return r, p.i == len(line)
	}
}

func (p *usual) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\t' || p.b[p.i] == '\n' || p.b[p.i] == '\r') {
		p.i++
	}
}

// next takes a character if it is the next one.
func (p *usual) next(c byte) bool {
	p.space()
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// member takes the name of a member and the colon behind it. Names with escapes are
// left to the library: two spellings may be one name.
func (p *usual) member() (name []byte, ok bool) {
	name, escaped, ok := p.quoted()
	return name, ok && !escaped && p.next(':')
}

// text takes a string without escapes.
func (p *usual) text(into *string) bool {
	b, escaped, ok := p.quoted()
	*into = string(b)
	return ok && !escaped
}

// quoted takes a string. Escapes of code units are left to the library.
func (p *usual) quoted() (b []byte, escaped, ok bool) {
	if !p.next('"') {
		return nil, false, false
	}
	from, ascii := p.i, true
	for ; p.i < len(p.b); p.i++ {
		switch c := p.b[p.i]; {
		case c == '"':
			b = p.b[from:p.i]
			p.i++
			return b, escaped, ascii || utf8.Valid(b)
		case c == '\\':
			escaped = true
			if p.i++; p.i == len(p.b) {
				return nil, false, false
			}
			switch p.b[p.i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			default:
				return nil, false, false
			}
		case c < ' ':
			return nil, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false, false
}

// digits takes a run of digits, at least one.
func (p *usual) digits() bool {
	from := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

// time takes a whole number of so few digits that it is the same as a floating-point one.
func (p *usual) time(into *float64) bool {
	p.space()
	from := p.i
	if !p.digits() || p.i-from > 15 || p.b[from] == '0' {
		return false
	}
	n, err := strconv.ParseInt(string(p.b[from:p.i]), 10, 64)
	*into = float64(n)
	// A fraction or an exponent that follows is found where a comma is wanted.
	return err == nil
}

// number takes a number.
func (p *usual) number() bool {
	if p.b[p.i] == '-' {
		p.i++
	}
	from := p.i
	if !p.digits() || p.b[from] == '0' && p.i-from > 1 {
		return false
	}
	if p.i < len(p.b) && p.b[p.i] == '.' {
		p.i++
		if !p.digits() {
			return false
		}
	}
	if p.i < len(p.b) && (p.b[p.i] == 'e' || p.b[p.i] == 'E') {
		p.odd = true
		p.i++
		if p.i < len(p.b) && (p.b[p.i] == '+' || p.b[p.i] == '-') {
			p.i++
		}
		if !p.digits() {
			return false
		}
	}
	p.odd = p.odd || p.i-from > maxNumber
	return true
}

// literal takes a word.
func (p *usual) literal(word string) bool {
	if !bytes.HasPrefix(p.b[p.i:], []byte(word)) {
		return false
	}
	p.i += len(word)
	return true
}

// value takes any value.
func (p *usual) value() bool {
	p.space()
	if p.i == len(p.b) {
		return false
	}
	switch c := p.b[p.i]; c {
	case '{':
		return p.object()
	case '[':
		return p.list()
	case '"':
		_, _, ok := p.quoted()
		return ok
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	default:
		return (c == '-' || c >= '0' && c <= '9') && p.number()
	}
}

// open takes the bracket that a nested value begins with.
func (p *usual) open() bool {
	p.i++
	p.depth++
	return p.depth <= MaxDepth
}

// end takes the bracket that ends a nested value, if it is next.
func (p *usual) end(c byte) bool {
	if !p.next(c) {
		return false
	}
	p.depth--
	return true
}

func (p *usual) list() bool {
	if !p.open() {
		return false
	}
	if p.end(']') {
		return true
	}
	for p.value() {
		if p.end(']') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
	return false
}

func (p *usual) object() bool {
	if !p.open() {
		return false
	}
	first := p.known
	for ended := p.end('}'); !ended; ended = p.end('}') {
		if p.known > first && !p.next(',') {
			return false
		}
		name, ok := p.member()
		if !ok || p.known == usualNames || p.has(name, first) || !p.value() {
			return false
		}
	}
	p.known = first
	return true
}

// has reports whether an object has a name already, and keeps it.
func (p *usual) has(name []byte, first int) bool {
	for _, other := range p.names[first:p.known] {
		if bytes.Equal(name, other) {
			return true
		}
	}
	p.names[p.known] = name
	p.known++
	return false
}
