package openprose

import (
	"slices"
	"strings"
)

// expression reads a value to the end of its line, and the lines below that belong to it:
// properties, body and pipeline.
func (p *parser) expression(indent int) (*node, error) {
	defer func(d int) { p.depth = d }(p.depth)
	if err := p.enter(); err != nil {
		return nil, err
	}
	p.blanks()
	n, ended, err := p.atom(indent)
	if err != nil {
		return nil, err
	}
	if !ended {
		if p.blanks(); p.at('|') {
			return p.pipeline(n, indent)
		}
		if err := p.endLine("the value"); err != nil {
			return nil, err
		}
	}
	if now := p.indent(); p.pos < len(p.src) && now > indent && p.src[p.pos+now] == '|' {
		return p.pipeline(n, indent)
	}
	return n, nil
}

// pipeline reads the steps after a value.
func (p *parser) pipeline(first *node, indent int) (*node, error) {
	n := &node{kind: kindPipe, at: first.at, value: first}
	for {
		step := indent
		if line := p.src[strings.LastIndexByte(p.src[:p.pos], '\n')+1 : p.pos]; strings.TrimSpace(line) == "" {
			now := p.indent()
			if p.pos+now >= len(p.src) || now+len(line) <= indent || p.src[p.pos+now] != '|' {
				return n, nil
			}
			step = now + len(line)
			p.pos += now
		}
		if !p.sign("|") {
			return n, nil
		}
		p.blanks()
		s := &node{kind: kindStep, at: p.pos, name: p.peekWord()}
		var err error
		switch s.name {
		case "map", "filter", "pmap":
			p.pos += len(s.name)
		case "reduce":
			p.pos += len(s.name)
			if err := p.want("(", "reduce(accumulator, item)"); err != nil {
				return nil, err
			}
			if s.targets, err = p.names(")"); err != nil {
				return nil, err
			}
			if len(s.targets) != 2 {
				return nil, fail(s.at, "reduce takes two names: reduce(accumulator, item)")
			}
		default:
			return nil, fail(s.at, "%s is no step of a pipeline: there are map, filter, pmap and reduce", p.shown())
		}
		if s.body, err = p.body(step, "the step"); err != nil {
			return nil, err
		}
		n.items = append(n.items, s)
		if p.pos >= len(p.src) {
			return n, nil
		}
	}
}

// atom reads one value. ended is set if the value ends the line; its properties or body
// follow on their own lines.
func (p *parser) atom(indent int) (n *node, ended bool, err error) {
	at := p.pos
	if p.pos >= len(p.src) || p.src[p.pos] == '\n' {
		return nil, false, fail(p.pos, "a value is missing")
	}
	switch c := p.src[p.pos]; {
	case c == '"':
		n, err = p.string()
		return n, false, err
	case digit(c), c == '-':
		n, err = p.number()
		return n, false, err
	case c == '[':
		n, err = p.array()
		return n, false, err
	case c == '{':
		n, err = p.object()
		return n, false, err
	}
	switch w := p.peekWord(); w {
	case "true", "false":
		p.pos += len(w)
		return &node{kind: kindBool, at: at, text: w}, false, nil
	case "null":
		p.pos += len(w)
		return &node{kind: kindNull, at: at}, false, nil
	case "call":
		n, err = p.call(indent)
		return n, true, err
	case "session", "resume":
		n, err = p.session(indent)
		return n, true, err
	case "do":
		return p.do(indent)
	}
	n, err = p.reference()
	if err == nil && p.pos < len(p.src) && (p.src[p.pos] == '[' || p.src[p.pos] == '(') {
		return nil, false, fail(p.pos, "%s follows the name %s: a reference is a name and its properties, such as review.score", p.shown(), quote(n.name+n.text))
	}
	return n, false, err
}

// entries reads entries between brackets, separated by commas or line ends.
func (p *parser) entries(closing byte, one func() error) error {
	defer func(d int) { p.depth = d }(p.depth)
	if err := p.enter(); err != nil {
		return err
	}
	open := p.pos
	p.pos++
	for {
		p.white()
		switch {
		case p.pos >= len(p.src):
			return fail(open, "%s is not closed", quote(p.src[open:open+1]))
		case p.src[p.pos] == closing:
			p.pos++
			return nil
		}
		if err := one(); err != nil {
			return err
		}
		before := p.pos
		p.white()
		if p.at(',') {
			p.pos++
			continue
		}
		if p.pos < len(p.src) && p.src[p.pos] != closing && !strings.Contains(p.src[before:p.pos], "\n") {
			return fail(p.pos, "%s stands where “,” or %s belongs", p.shown(), quote(string(closing)))
		}
	}
}

// inner reads a value within brackets, which cannot have indented lines.
func (p *parser) inner() (*node, error) {
	switch w := p.peekWord(); w {
	case "call", "session", "resume", "do":
		rest := strings.TrimLeft(p.src[p.pos+len(w):], " ")
		if rest != "" && (letter(rest[0]) || rest[0] == '"' || rest[0] == ':') {
			return nil, fail(p.pos, "%s stands within brackets: bind its result before, and name it here", quote(w))
		}
	}
	n, _, err := p.atom(0)
	return n, err
}

func (p *parser) array() (*node, error) {
	n := &node{kind: kindArray, at: p.pos}
	return n, p.entries(']', func() error {
		item, err := p.inner()
		n.items = append(n.items, item)
		return err
	})
}

func (p *parser) object() (*node, error) {
	n := &node{kind: kindObject, at: p.pos}
	return n, p.entries('}', func() error {
		name, err := p.identifier("an entry's name")
		if err != nil {
			return err
		}
		entry := &node{kind: kindProp, at: name.at, name: name.name, nameAt: name.at}
		if slices.ContainsFunc(n.props, func(e *node) bool { return e.name == name.name }) {
			p.found(name.at, "the entry %s stands here again", quote(name.name))
		}
		if p.sign(":") {
			p.white()
			if entry.value, err = p.inner(); err != nil {
				return err
			}
		} else {
			entry.value = &node{kind: kindRef, at: name.at, name: name.name, nameAt: name.at}
		}
		n.props = append(n.props, entry)
		return nil
	})
}

func (p *parser) call(indent int) (n *node, err error) {
	n = &node{kind: kindCall, at: p.pos}
	p.pos += len("call")
	p.blanks()
	if p.at('"') {
		s, err := p.string()
		if err != nil {
			return nil, err
		}
		n.name, n.nameAt = s.text, s.at
	} else {
		if err := p.named(n, "what is called"); err != nil {
			return nil, err
		}
	}
	if err := p.endLine("the call"); err != nil {
		return nil, err
	}
	n.props, err = p.properties(indent, "the call")
	return n, err
}

// session reads session STRING, session: AGENT, session NAME: AGENT and resume: AGENT.
func (p *parser) session(indent int) (n *node, err error) {
	n = &node{kind: p.peekWord(), at: p.pos}
	p.pos += len(n.kind)
	p.blanks()
	switch {
	case n.kind == kindSession && p.at('"'):
		s, err := p.string()
		if err != nil {
			return nil, err
		}
		n.value = s
	default:
		if n.kind == kindSession && p.peekWord() != "" {
			label, err := p.identifier("the session's name")
			if err != nil {
				return nil, err
			}
			n.text = label.name
		}
		if err := p.want(":", "the "+n.kind); err != nil {
			return nil, err
		}
		if err := p.named(n, "an agent"); err != nil {
			return nil, err
		}
	}
	if err := p.endLine("the " + n.kind); err != nil {
		return nil, err
	}
	n.props, err = p.properties(indent, "the "+n.kind)
	return n, err
}

// do reads do: BODY and do NAME(ARGUMENTS).
func (p *parser) do(indent int) (n *node, ended bool, err error) {
	n = &node{kind: kindDo, at: p.pos}
	p.pos += len("do")
	p.blanks()
	if p.at(':') {
		n.body, err = p.body(indent, "do")
		return n, true, err
	}
	name, err := p.identifier("a block")
	if err != nil {
		return nil, false, err
	}
	n.kind, n.name, n.nameAt = kindDoCall, name.name, name.at
	if p.blanks(); p.at('(') {
		err = p.entries(')', func() error {
			item, err := p.inner()
			n.items = append(n.items, item)
			return err
		})
	}
	return n, false, err
}

// properties reads further indented lines of the form name: value, if there are any.
func (p *parser) properties(indent int, of string) ([]*node, error) {
	now := p.indent()
	if p.pos >= len(p.src) || now <= indent || strings.HasPrefix(p.src[p.pos+now:], "|") {
		return nil, nil
	}
	var list []*node
	seen := make(map[string]bool)
	for p.pos < len(p.src) && p.indent() == now {
		p.pos += now
		name, err := p.identifier("a property of " + of)
		if err != nil {
			return nil, err
		}
		if seen[name.name] {
			p.found(name.at, "the property %s stands here again", quote(name.name))
		}
		seen[name.name] = true
		n := &node{kind: kindProp, at: name.at, name: name.name, nameAt: name.at}
		if err := p.want(":", "the property "+quote(name.name)+" of "+of); err != nil {
			return nil, err
		}
		if of == kindAgent && name.name == "shape" {
			if err := p.endLine("shape:"); err != nil {
				return nil, err
			}
			if n.props, err = p.properties(now, "shape"); err != nil {
				return nil, err
			}
			if len(n.props) == 0 {
				p.found(name.at, "the shape says nothing: want self, delegates or prohibited")
			}
		} else if n.value, err = p.expression(now); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	if rest := p.indent(); p.pos < len(p.src) && rest > indent {
		return nil, fail(p.pos+rest, "this line is indented like no property of %s", of)
	}
	return list, nil
}
