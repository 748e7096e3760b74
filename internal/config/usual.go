package config

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// usual reads a line as commands usually write it, in one pass: known keys, each once and with its
// type, and texts without escapes. It leaves every other line to the JSON library, errors too, so
// that it can only be faster, never more lenient: a fuzz test compares the two.
type usual struct {
	line string
	i    int
	// lists has the memory of the lists of the line before.
	lists [3][]string
}

// parse reads a line, and reports whether it could. The strings are parts of the line, and the
// lists are valid until the next one.
func (p *usual) parse(line string) (c Contact, ok bool) {
	c.Kind = defaultContact().Kind
	p.line, p.i = line, 0
	if !p.next('{') {
		return c, false
	}
	var seen [8]bool
	for {
		key, ok := p.text()
		n := slices.Index(entryKeys(), key)
		if !ok || !p.next(':') || n < 0 || seen[n] {
			return c, false
		}
		seen[n] = true
		switch n {
		case 0:
			c.Kind, ok = p.text()
		case 1:
			c.InstanceID, ok = p.text()
		case 2:
			c.UserID, ok = p.text()
		case 3:
			c.OrgUnit, ok = p.text()
		case 4:
			c.TenantID, ok = p.text()
		case 5:
			c.Accepts, ok = p.list(0)
		case 6:
			c.Sessions, ok = p.list(1)
		case 7:
			c.Members, ok = p.list(2)
		}
		if !ok {
			return c, false
		}
		if p.next(',') {
			continue
		}
		return c, p.next('}') && p.i == len(line)
	}
}

// next takes a character if it is the next one.
func (p *usual) next(c byte) bool {
	for p.i < len(p.line) && (p.line[p.i] == ' ' || p.line[p.i] == '\t') {
		p.i++
	}
	if p.i < len(p.line) && p.line[p.i] == c {
		p.i++
		return true
	}
	return false
}

// text takes a string without escapes.
func (p *usual) text() (string, bool) {
	if !p.next('"') {
		return "", false
	}
	n := strings.IndexByte(p.line[p.i:], '"')
	if n < 0 {
		return "", false
	}
	s := p.line[p.i : p.i+n]
	p.i += n + 1
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == '\\':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return s, ascii || utf8.ValidString(s)
}

// list takes a list of strings without escapes.
func (p *usual) list(n int) ([]string, bool) {
	if !p.next('[') {
		return nil, false
	}
	list := p.lists[n][:0]
	if list == nil {
		list = make([]string, 0, 4)
	}
	for !p.next(']') {
		if len(list) > 0 && !p.next(',') {
			return nil, false
		}
		s, ok := p.text()
		if !ok {
			return nil, false
		}
		list = append(list, s)
	}
	p.lists[n] = list
	return list, true
}
