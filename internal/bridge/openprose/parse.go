package openprose

import (
	"errors"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
)

// maxDepth bounds the nesting of blocks and values.
const maxDepth = 64

// parser parses a script.
type parser struct {
	scanner
	depth int
	// legacy permits declarations of standalone scripts.
	legacy bool
}

// enter bounds the depth.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return fail(p.pos, "blocks and values are more than %d deep", maxDepth)
	}
	return nil
}

// script reads a whole script.
func (p *parser) script() []*node {
	p.lines()
	var list []*node
	for p.pos < len(p.src) {
		if indent := p.indent(); indent > 0 {
			p.found(p.pos+indent, "this line is indented, and no block begins before it")
			p.over(0)
			continue
		}
		list = append(list, p.statements(0)...)
	}
	return list
}

// statements reads the statements of one indentation.
func (p *parser) statements(indent int) (list []*node) {
	for p.pos < len(p.src) {
		begin := p.pos
		switch now := p.indent(); {
		case now < indent:
			return list
		case now > indent:
			p.found(p.pos+now, "this line is indented further than the one before it, which begins no block")
			p.over(indent)
			continue
		}
		p.pos += indent
		at := p.pos
		n, err := p.statement(indent)
		if err == nil || n != nil && slices.Contains([]string{kindLet, kindConst, kindAgent, kindBlock}, n.kind) {
			// A faulty definition still defines its name, so that uses of it are not errors too.
			list = append(list, n)
		}
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*fault](err)
		if !ok {
			f = &fault{at: at, text: err.Error()}
		}
		p.found(f.at, "%s", f.text)
		// Continue with the next statement; always advance.
		p.pos = max(begin, min(p.pos, len(p.src)))
		if line := strings.LastIndexByte(p.src[:p.pos], '\n') + 1; line > begin && p.pos == line {
			p.lines()
			if p.indent() > indent {
				p.over(indent)
			}
			continue
		}
		p.over(indent)
	}
	return list
}

// starters are the words that begin statements.
func starters() []string {
	return []string{
		"use", "agent", "block", "let", "const", "return", "call", "session", "resume", "do", "parallel", "repeat", "for", "loop", "if", "choice", "try", "throw",
	}
}

func (p *parser) statement(indent int) (n *node, err error) {
	defer func(d int) { p.depth = d }(p.depth)
	if err := p.enter(); err != nil {
		return nil, err
	}
	at := p.pos
	w := p.peekWord()
	// A keyword may be the name in an assignment.
	if rest := strings.TrimLeft(p.src[p.pos+len(w):], " "); w != "" && strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "==") {
		return p.assignment(indent)
	}
	switch w {
	case "use":
		return p.use()
	case "agent":
		return p.agent(indent)
	case "block":
		return p.block(indent)
	case "let", "const":
		return p.binding(indent)
	case "return", "throw":
		p.pos += len(w)
		n = &node{kind: w, at: at}
		if p.ends() {
			return n, p.endLine(w)
		}
		n.value, err = p.expression(indent)
		return n, err
	case "call", "session", "resume", "do":
		return p.expression(indent)
	case "parallel", "repeat", "for", "loop":
		return p.loops(indent)
	case "if":
		return p.conditional(indent)
	case "choice":
		return p.choice(indent)
	case "try":
		return p.try(indent)
	case "elif", "else":
		return nil, fail(at, "%s follows no if", quote(w))
	case "catch", "finally":
		return nil, fail(at, "%s follows no try", quote(w))
	case "option":
		return nil, fail(at, "an option stands outside of a choice")
	case "input", "output":
		return p.interfaceOf(w, indent)
	case "":
		return nil, fail(at, "%s begins no statement", p.shown())
	}
	if rest := p.src[p.pos+len(w):]; strings.HasPrefix(rest, ".") {
		return p.assignment(indent)
	}
	all := ": a statement begins with " + strings.Join(starters(), ", ") + ", or with a name that is assigned to"
	return nil, fail(at, "%s begins no statement%s", quote(w), nearest(w, starters(), all))
}

// nearest proposes the name that somebody may have meant, and otherwise shows all.
func nearest(name string, names []string, all string) string {
	if near := text.Nearest(name, names, text.Near(name)); near != "" {
		return ": did you mean " + quote(near) + "?"
	}
	return all
}

// use reads "use" string ["as" identifier].
func (p *parser) use() (*node, error) {
	n := &node{kind: kindUse, at: p.pos}
	p.pos += len("use")
	p.blanks()
	s, err := p.string()
	if err != nil {
		return nil, err
	}
	if n.text = s.text; n.text == "" {
		p.found(s.at, "the dependency is empty")
	}
	if p.blanks(); p.word("as") {
		if err := p.named(n, "the dependency's name here"); err != nil {
			return nil, err
		}
	}
	return n, p.endLine("the dependency")
}

// interfaceOf reads input NAME: STRING and output NAME = EXPRESSION of standalone
// scripts.
func (p *parser) interfaceOf(w string, indent int) (n *node, err error) {
	n = &node{kind: w, at: p.pos}
	if !p.legacy {
		return nil, fail(p.pos, "%s is of standalone scripts: the contract's Parameters, Requires, Returns and Maintains declare what goes in and out", quote(w))
	}
	p.pos += len(w)
	if err := p.named(n, "its name"); err != nil {
		return nil, err
	}
	if w == "input" {
		if err := p.want(":", "the input"); err != nil {
			return nil, err
		}
		p.blanks()
		if n.value, err = p.string(); err != nil {
			return nil, err
		}
		return n, p.endLine("the input")
	}
	if err := p.want("=", "the output"); err != nil {
		return nil, err
	}
	n.value, err = p.expression(indent)
	return n, err
}

// header reads the ":" before a block, and goes to the block's first line.
func (p *parser) header(what string) error {
	if err := p.want(":", what); err != nil {
		return err
	}
	return p.endLine("the “:” of " + what)
}

// body reads the lines that belong to a header.
func (p *parser) body(indent int, what string) ([]*node, error) {
	if err := p.header(what); err != nil {
		return nil, err
	}
	now := p.indent()
	if now <= indent || p.pos >= len(p.src) {
		return nil, fail(min(p.pos, len(p.src)), "%s has no body: it is indented further than its header", what)
	}
	list := p.statements(now)
	if rest := p.indent(); p.pos < len(p.src) && rest > indent && rest < now {
		return nil, fail(p.pos+rest, "this line is indented like none of the blocks it may belong to")
	}
	return list, nil
}

func (p *parser) agent(indent int) (n *node, err error) {
	n = &node{kind: kindAgent, at: p.pos}
	p.pos += len("agent")
	if err := p.named(n, "the agent's name"); err != nil {
		return nil, err
	}
	if err := p.header("the agent"); err != nil {
		return n, err
	}
	if n.props, err = p.properties(indent, kindAgent); err == nil && len(n.props) == 0 {
		err = fail(n.nameAt, "the agent %s has no properties", quote(n.name))
	}
	return n, err
}

func (p *parser) block(indent int) (n *node, err error) {
	n = &node{kind: kindBlock, at: p.pos}
	p.pos += len("block")
	if err := p.named(n, "the block's name"); err != nil {
		return nil, err
	}
	if p.sign("(") {
		if n.targets, err = p.names(")"); err != nil {
			return nil, err
		}
	}
	n.body, err = p.body(indent, "the block")
	return n, err
}

func (p *parser) binding(indent int) (n *node, err error) {
	n = &node{kind: p.peekWord(), at: p.pos}
	p.pos += len(n.kind)
	if p.sign("{") {
		n.targets, err = p.names("}")
	} else {
		var name *node
		name, err = p.identifier("the name that is bound")
		n.targets = []*node{name}
	}
	if err != nil {
		return nil, err
	}
	if err := p.want("=", "the binding"); err != nil {
		return n, err
	}
	p.blanks()
	if w := p.peekWord(); w == kindParallel || w == kindRepeat {
		n.value, err = p.loops(indent)
		if err == nil && n.value.kind == kindRepeat {
			n.value.name = kindLet // so that it is warned about
		} else if err == nil && n.value.kind != kindParallel {
			p.found(n.value.at, "a loop gives no value that can be bound: “let” takes “parallel:”, and no “parallel for”")
		}
		return n, err
	}
	n.value, err = p.expression(indent)
	return n, err
}

func (p *parser) assignment(indent int) (n *node, err error) {
	ref, err := p.reference()
	if err != nil {
		return nil, err
	}
	if err := p.want("=", "the assignment"); err != nil {
		return nil, err
	}
	n = &node{kind: kindAssign, at: ref.at, name: ref.name, nameAt: ref.at}
	p.blanks()
	n.value, err = p.expression(indent)
	return n, err
}
