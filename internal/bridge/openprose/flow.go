package openprose

import "slices"

// loops read parallel, repeat, for, parallel for and loop.
func (p *parser) loops(indent int) (n *node, err error) {
	n = &node{kind: p.peekWord(), at: p.pos}
	p.pos += len(n.kind)
	p.blanks()
	shape(p, n)
	switch n.kind {
	case kindParallel:
		if n.items, err = p.modifiers(); err != nil {
			return nil, err
		}
		if w := p.peekWord(); w != "" {
			return nil, fail(p.pos, "%s follows “parallel”: there are “parallel:” and “parallel for”", quote(w))
		}
	case kindRepeat:
		if n.value, err = times(p); err != nil {
			return nil, err
		}
		if err := p.as(n); err != nil {
			return nil, err
		}
	case kindFor:
		if n.targets, err = p.each(); err != nil {
			return nil, err
		}
		if n.value, err = p.inner(); err != nil {
			return nil, err
		}
		if n.items, err = p.modifiers(); err != nil {
			return nil, err
		}
	case kindLoop:
		if err := p.loop(n); err != nil {
			return nil, err
		}
	}
	n.body, err = p.body(indent, "the "+n.kind)
	return n, err
}

// modifiers read (…) after parallel.
func (p *parser) modifiers() (list []*node, err error) {
	if p.blanks(); p.pos >= len(p.src) || p.src[p.pos] != '(' {
		return nil, nil
	}
	return list, p.entries(')', func() error {
		if p.src[p.pos] == '"' {
			s, err := p.string()
			list = append(list, s)
			return err
		}
		name, err := p.identifier("a modifier")
		if err != nil {
			return err
		}
		n := &node{kind: kindProp, at: name.at, name: name.name, nameAt: name.at}
		if err := p.want(":", "the modifier"); err != nil {
			return err
		}
		p.blanks()
		n.value, err = p.inner()
		list = append(list, n)
		return err
	})
}

// as reads ["as" identifier].
func (p *parser) as(n *node) error {
	if p.blanks(); !p.word("as") {
		return nil
	}
	name, err := p.identifier("the name of the round")
	n.targets = append(n.targets, name)
	return err
}

// each reads identifier ["," identifier] "in".
func (p *parser) each() ([]*node, error) {
	name, err := p.identifier("the name of an item")
	if err != nil {
		return nil, err
	}
	list := []*node{name}
	if p.sign(",") {
		if name, err = p.identifier("the name of its place"); err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	if p.blanks(); !p.word("in") {
		return nil, fail(p.pos, "%s stands where “in” belongs", p.shown())
	}
	p.blanks()
	return list, nil
}

// loop reads the head of a loop: its condition, its bound, and the name of its round.
func (p *parser) loop(n *node) (err error) {
	switch {
	case p.word("for"):
		if p.blanks(); !p.word("each") {
			return fail(p.pos, "%s stands where “each” belongs", p.shown())
		}
		n.text = "for each"
		if n.targets, err = p.each(); err != nil {
			return err
		}
		if n.value, err = p.inner(); err != nil {
			return err
		}
	case p.word("until"), p.word("while"):
		if n.text, err = p.condition("loop", true); err != nil {
			return err
		}
	}
	if p.sign("(") {
		p.blanks()
		if !p.word("max") {
			return fail(p.pos, "%s stands where “max:” belongs", p.shown())
		}
		if err := p.want(":", "(max: number)"); err != nil {
			return err
		}
		p.blanks()
		if p.pos >= len(p.src) || !digit(p.src[p.pos]) && p.src[p.pos] != '-' {
			return fail(p.pos, "%s stands where a number belongs, in (max: number)", p.shown())
		}
		if n.max, err = p.number(); err != nil {
			return err
		}
		if err := p.want(")", "(max: number)"); err != nil {
			return err
		}
	}
	return p.as(n)
}

func (p *parser) conditional(indent int) (n *node, err error) {
	n = &node{kind: kindIf, at: p.pos}
	p.pos += len("if")
	if n.text, err = p.condition("if", false); err != nil {
		return nil, err
	}
	if n.body, err = p.body(indent, "the if"); err != nil {
		return nil, err
	}
	for clause := p.clause(indent, kindElif, kindElse); clause != nil; clause = p.clause(indent, kindElif, kindElse) {
		if i := len(n.items); i > 0 && n.items[i-1].kind == kindElse {
			p.pos = clause.at
			return nil, fail(p.pos, "%s follows the else", quote(clause.kind))
		}
		if clause.kind == kindElif {
			if clause.text, err = p.condition("elif", false); err != nil {
				return nil, err
			}
		}
		if clause.body, err = p.body(indent, "the "+clause.kind); err != nil {
			return nil, err
		}
		n.items = append(n.items, clause)
	}
	return n, nil
}

func (p *parser) choice(indent int) (n *node, err error) {
	n = &node{kind: kindChoice, at: p.pos}
	p.pos += len("choice")
	if n.text, err = p.condition("choice", false); err != nil {
		return nil, err
	}
	if err := p.header("the choice"); err != nil {
		return nil, err
	}
	now := p.indent()
	for now > indent && p.pos < len(p.src) && p.indent() == now {
		p.pos += now
		at := p.pos
		if !p.word("option") {
			return nil, fail(at, "%s stands where an option belongs", p.shown())
		}
		p.blanks()
		label, err := p.string()
		if err != nil {
			return nil, err
		}
		o := &node{kind: kindOption, at: label.at, name: label.text, nameAt: label.at}
		if o.body, err = p.body(now, "the option"); err != nil {
			return nil, err
		}
		n.items = append(n.items, o)
	}
	if len(n.items) == 0 {
		return nil, fail(n.at, "the choice has no options")
	}
	if rest := p.indent(); p.pos < len(p.src) && rest > indent {
		return nil, fail(p.pos+rest, "this line is indented like no option of the choice")
	}
	return n, nil
}

// clause reads the keyword of a further clause of a statement, if it is next.
func (p *parser) clause(indent int, of ...string) *node {
	if p.pos >= len(p.src) || p.indent() != indent {
		return nil
	}
	w := wordAt(p.src[p.pos+indent:])
	if !slices.Contains(of, w) {
		return nil
	}
	n := &node{kind: w, at: p.pos + indent}
	p.pos += indent + len(w)
	return n
}

func (p *parser) try(indent int) (n *node, err error) {
	n = &node{kind: kindTry, at: p.pos}
	p.pos += len("try")
	if n.body, err = p.body(indent, "the try"); err != nil {
		return nil, err
	}
	for clause := p.clause(indent, kindCatch, kindFinally); clause != nil; clause = p.clause(indent, kindCatch, kindFinally) {
		for _, before := range n.items {
			switch before.kind {
			case clause.kind:
				p.found(clause.at, "the try has a %s already", clause.kind)
			case kindFinally:
				p.found(clause.at, "%s follows the finally", quote(clause.kind))
			}
		}
		if clause.kind == kindCatch {
			if err := p.as(clause); err != nil {
				return nil, err
			}
		}
		if clause.body, err = p.body(indent, "the "+clause.kind); err != nil {
			return nil, err
		}
		n.items = append(n.items, clause)
	}
	if len(n.items) == 0 {
		p.found(n.at, "the try has no catch and no finally")
	}
	return n, nil
}
