package openprose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// node is a statement, an expression, or a part of one, with its position in the script.
type node struct {
	kind string
	at   int
	// name is the name that is called, defined or referred to, and nameAt its position.
	name   string
	nameAt int
	// targets are the names that a binding binds, or the parameters of a block or loop.
	targets []*node
	// text is the text of a string or a condition.
	text string
	// value is the value that is bound, returned, thrown or iterated over.
	value *node
	// props are properties, or the entries of an object.
	props []*node
	// items are arguments, elements, options, clauses or steps of a pipeline.
	items []*node
	body  []*node
	// max is a loop's bound.
	max *node
}

// The kinds of nodes.
const (
	kindUse      = "use"
	kindInput    = "input"
	kindOutput   = "output"
	kindAgent    = "agent"
	kindBlock    = "block"
	kindLet      = "let"
	kindConst    = "const"
	kindAssign   = "="
	kindReturn   = "return"
	kindThrow    = "throw"
	kindCall     = "call"
	kindSession  = "session"
	kindResume   = "resume"
	kindDo       = "do"
	kindDoCall   = "do name"
	kindParallel = "parallel"
	kindRepeat   = "repeat"
	kindFor      = "for"
	kindLoop     = "loop"
	kindIf       = "if"
	kindElif     = "elif"
	kindElse     = "else"
	kindChoice   = "choice"
	kindOption   = "option"
	kindTry      = "try"
	kindCatch    = "catch"
	kindFinally  = "finally"
	kindPipe     = "pipeline"
	kindStep     = "step"
	kindString   = "string"
	kindNumber   = "number"
	kindBool     = "boolean"
	kindNull     = "null"
	kindRef      = "reference"
	kindObject   = "object"
	kindArray    = "array"
	kindProp     = "property"
	kindName     = "name"
)

// maxDepth bounds the nesting of blocks and values.
const maxDepth = 64

// fault is a parse error, which ends its statement.
type fault struct {
	at   int
	text string
}

func (f *fault) Error() string { return f.text }

// parser parses a script. It works on bytes, because conditions are free text and not tokens.
type parser struct {
	src string
	pos int
	// found takes an error at a byte position.
	found func(at int, format string, args ...any)
	depth int
	// legacy permits declarations of standalone scripts.
	legacy bool
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &fault{at: at, text: fmt.Sprintf(format, args...)}
}

// enter bounds the depth.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.pos, "blocks and values are more than %d deep", maxDepth)
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

// indent returns the indentation of a line; the parser is at its start. A tab, already
// reported, counts as a blank.
func (p *parser) indent() int {
	n := 0
	for p.pos+n < len(p.src) && (p.src[p.pos+n] == ' ' || p.src[p.pos+n] == '\t') {
		n++
	}
	return n
}

// lines skips empty lines and comments. The parser is at the start of a line before and after.
func (p *parser) lines() {
	for p.pos < len(p.src) {
		line, _, _ := strings.Cut(p.src[p.pos:], "\n")
		body := strings.TrimSpace(line)
		if body != "" && body[0] != '#' {
			if i := strings.IndexByte(line[:len(line)-len(strings.TrimLeft(line, " \t"))], '\t'); i >= 0 {
				p.found(p.pos+i, "a tab indents the line: blocks are indented by spaces")
			}
			return
		}
		p.pos += min(len(line)+1, len(p.src)-p.pos)
	}
}

// over skips the rest of a faulty statement: all lines with more indentation.
func (p *parser) over(indent int) {
	for p.pos < len(p.src) {
		i := strings.IndexByte(p.src[p.pos:], '\n')
		if i < 0 {
			p.pos = len(p.src)
			return
		}
		p.pos += i + 1
		p.lines()
		if p.indent() <= indent {
			return
		}
	}
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

// blanks skips blanks within a line.
func (p *parser) blanks() {
	for p.pos < len(p.src) && (p.src[p.pos] == ' ' || p.src[p.pos] == '\t' || p.src[p.pos] == '\r') {
		p.pos++
	}
}

// white skips blanks, line ends and comments within brackets.
func (p *parser) white() {
	for {
		p.blanks()
		switch {
		case p.pos < len(p.src) && p.src[p.pos] == '\n':
			p.pos++
		case p.pos < len(p.src) && p.src[p.pos] == '#':
			i := strings.IndexByte(p.src[p.pos:], '\n')
			if i < 0 {
				i = len(p.src) - p.pos
			}
			p.pos += i
		default:
			return
		}
	}
}

// ends reports whether only a comment follows on the line.
func (p *parser) ends() bool {
	p.blanks()
	return p.pos >= len(p.src) || p.src[p.pos] == '\n' || p.src[p.pos] == '#'
}

// endLine expects the end of the line, and goes to the start of the next line with content.
func (p *parser) endLine(after string) error {
	if !p.ends() {
		return p.fail(p.pos, "%s follows %s: want the end of the line", p.shown(), after)
	}
	if i := strings.IndexByte(p.src[p.pos:], '\n'); i >= 0 {
		p.pos += i + 1
		p.lines()
		return nil
	}
	p.pos = len(p.src)
	return nil
}

// shown is the text at this position, for an error message.
func (p *parser) shown() string {
	if p.pos >= len(p.src) {
		return "the end of the script"
	}
	if p.src[p.pos] == '\n' {
		return "the end of the line"
	}
	if w := p.peekWord(); w != "" {
		return quote(w)
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	return quote(string(r))
}

func quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return "“" + strings.ToValidUTF8(s, "�") + "”"
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// wordAt is the identifier at the start of a text, or "".
func wordAt(s string) string {
	n := 0
	for n < len(s) && (letter(s[n]) || n > 0 && (digit(s[n]) || s[n] == '-')) {
		n++
	}
	return s[:n]
}

func (p *parser) peekWord() string { return wordAt(p.src[p.pos:]) }

// word reads a keyword, if it is next.
func (p *parser) word(w string) bool {
	if p.peekWord() != w {
		return false
	}
	p.pos += len(w)
	return true
}

// sign reads a sign, if it is next after blanks.
func (p *parser) sign(s string) bool {
	p.blanks()
	if !strings.HasPrefix(p.src[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *parser) want(s, where string) error {
	if p.sign(s) {
		return nil
	}
	return p.fail(p.pos, "%s stands where %s belongs, in %s", p.shown(), quote(s), where)
}

// identifier reads a name.
func (p *parser) identifier(what string) (*node, error) {
	p.blanks()
	w := p.peekWord()
	if w == "" {
		return nil, p.fail(p.pos, "%s stands where %s belongs: a letter or _, then letters, digits, _ or -", p.shown(), what)
	}
	n := &node{kind: kindName, at: p.pos, name: w, nameAt: p.pos}
	p.pos += len(w)
	return n, nil
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
		return nil, p.fail(at, "%s follows no if", quote(w))
	case "catch", "finally":
		return nil, p.fail(at, "%s follows no try", quote(w))
	case "option":
		return nil, p.fail(at, "an option stands outside of a choice")
	case "input", "output":
		return p.interfaceOf(w, indent)
	case "":
		return nil, p.fail(at, "%s begins no statement", p.shown())
	}
	if rest := p.src[p.pos+len(w):]; strings.HasPrefix(rest, ".") {
		return p.assignment(indent)
	}
	hint := ": a statement begins with " + strings.Join(starters(), ", ") + ", or with a name that is assigned to"
	if near := text.Nearest(w, starters(), text.Near(w)); near != "" {
		hint = ": did you mean " + quote(near) + "?"
	}
	return nil, p.fail(at, "%s begins no statement%s", quote(w), hint)
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
		alias, err := p.identifier("the dependency's name here")
		if err != nil {
			return nil, err
		}
		n.name, n.nameAt = alias.name, alias.at
	}
	return n, p.endLine("the dependency")
}

// interfaceOf reads input NAME: STRING and output NAME = EXPRESSION of standalone
// scripts.
func (p *parser) interfaceOf(w string, indent int) (*node, error) {
	n := &node{kind: w, at: p.pos}
	if !p.legacy {
		return nil, p.fail(p.pos, "%s is of standalone scripts: the contract's Parameters, Requires, Returns and Maintains declare what goes in and out", quote(w))
	}
	p.pos += len(w)
	name, err := p.identifier("its name")
	if err != nil {
		return nil, err
	}
	n.name, n.nameAt = name.name, name.at
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
		return nil, p.fail(min(p.pos, len(p.src)), "%s has no body: it is indented further than its header", what)
	}
	list := p.statements(now)
	if rest := p.indent(); p.pos < len(p.src) && rest > indent && rest < now {
		return nil, p.fail(p.pos+rest, "this line is indented like none of the blocks it may belong to")
	}
	return list, nil
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
		return nil, p.fail(p.pos+rest, "this line is indented like no property of %s", of)
	}
	return list, nil
}

func (p *parser) agent(indent int) (*node, error) {
	n := &node{kind: kindAgent, at: p.pos}
	p.pos += len("agent")
	name, err := p.identifier("the agent's name")
	if err != nil {
		return nil, err
	}
	n.name, n.nameAt = name.name, name.at
	if err := p.header("the agent"); err != nil {
		return n, err
	}
	if n.props, err = p.properties(indent, kindAgent); err == nil && len(n.props) == 0 {
		err = p.fail(name.at, "the agent %s has no properties", quote(name.name))
	}
	return n, err
}

func (p *parser) block(indent int) (n *node, err error) {
	n = &node{kind: kindBlock, at: p.pos}
	p.pos += len("block")
	name, err := p.identifier("the block's name")
	if err != nil {
		return nil, err
	}
	n.name, n.nameAt = name.name, name.at
	if p.sign("(") {
		if n.targets, err = p.names(")"); err != nil {
			return nil, err
		}
	}
	n.body, err = p.body(indent, "the block")
	return n, err
}

// names reads names up to a closing sign.
func (p *parser) names(closing string) (list []*node, err error) {
	for {
		name, err := p.identifier("a name")
		if err != nil {
			return nil, err
		}
		list = append(list, name)
		if p.sign(closing) {
			return list, nil
		}
		if err := p.want(",", "the names"); err != nil {
			return nil, err
		}
	}
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

func (p *parser) reference() (*node, error) {
	name, err := p.identifier("a name")
	if err != nil {
		return nil, err
	}
	name.kind = kindRef
	for p.pos+1 < len(p.src) && p.src[p.pos] == '.' && letter(p.src[p.pos+1]) {
		p.pos++
		w := p.peekWord()
		name.text += "." + w
		p.pos += len(w)
	}
	return name, nil
}

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
		if p.blanks(); p.pos < len(p.src) && p.src[p.pos] == '|' {
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
				return nil, p.fail(s.at, "reduce takes two names: reduce(accumulator, item)")
			}
		default:
			return nil, p.fail(s.at, "%s is no step of a pipeline: there are map, filter, pmap and reduce", p.shown())
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
		return nil, false, p.fail(p.pos, "a value is missing")
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
		return nil, false, p.fail(p.pos, "%s follows the name %s: a reference is a name and its properties, such as review.score", p.shown(), quote(n.name+n.text))
	}
	return n, false, err
}

func (p *parser) number() (*node, error) {
	at := p.pos
	p.sign("-")
	from := p.pos
	for p.pos < len(p.src) && digit(p.src[p.pos]) {
		p.pos++
	}
	if p.pos == from {
		return nil, p.fail(at, "“-” begins no number")
	}
	if p.pos+1 < len(p.src) && p.src[p.pos] == '.' && digit(p.src[p.pos+1]) {
		for p.pos++; p.pos < len(p.src) && digit(p.src[p.pos]); p.pos++ {
		}
	}
	return &node{kind: kindNumber, at: at, text: p.src[at:p.pos]}, nil
}

// string reads a quoted text. The names in it are checked later.
func (p *parser) string() (*node, error) {
	at := p.pos
	if !strings.HasPrefix(p.src[p.pos:], `"`) {
		return nil, p.fail(p.pos, "%s stands where a text in double quotes belongs", p.shown())
	}
	mark := `"`
	if strings.HasPrefix(p.src[p.pos:], `"""`) {
		mark = `"""`
	}
	p.pos += len(mark)
	n := &node{kind: kindString, at: at, nameAt: p.pos}
	for p.pos < len(p.src) {
		switch rest := p.src[p.pos:]; {
		case strings.HasPrefix(rest, mark):
			n.text = p.src[n.nameAt:p.pos]
			p.pos += len(mark)
			return n, nil
		case rest[0] == '\\':
			if len(rest) < 2 || !strings.ContainsRune(`\"nt{}`, rune(rest[1])) {
				return nil, p.fail(p.pos, `there is no such escape: a text has \\, \", \n, \t, \{ and \}`)
			}
			p.pos += 2
		case rest[0] == '\n' && mark == `"`:
			return nil, p.fail(at, "the text does not end on its line: one of several lines stands between \"\"\" and \"\"\"")
		default:
			p.pos++
		}
	}
	return nil, p.fail(at, "the text does not end")
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
			return p.fail(open, "%s is not closed", quote(p.src[open:open+1]))
		case p.src[p.pos] == closing:
			p.pos++
			return nil
		}
		if err := one(); err != nil {
			return err
		}
		before := p.pos
		p.white()
		if p.pos < len(p.src) && p.src[p.pos] == ',' {
			p.pos++
			continue
		}
		if p.pos < len(p.src) && p.src[p.pos] != closing && !strings.Contains(p.src[before:p.pos], "\n") {
			return p.fail(p.pos, "%s stands where “,” or %s belongs", p.shown(), quote(string(closing)))
		}
	}
}

// inner reads a value within brackets, which cannot have indented lines.
func (p *parser) inner() (*node, error) {
	switch w := p.peekWord(); w {
	case "call", "session", "resume", "do":
		rest := strings.TrimLeft(p.src[p.pos+len(w):], " ")
		if rest != "" && (letter(rest[0]) || rest[0] == '"' || rest[0] == ':') {
			return nil, p.fail(p.pos, "%s stands within brackets: bind its result before, and name it here", quote(w))
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
	if p.pos < len(p.src) && p.src[p.pos] == '"' {
		s, err := p.string()
		if err != nil {
			return nil, err
		}
		n.name, n.nameAt = s.text, s.at
	} else {
		name, err := p.identifier("what is called")
		if err != nil {
			return nil, err
		}
		n.name, n.nameAt = name.name, name.at
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
	case n.kind == kindSession && p.pos < len(p.src) && p.src[p.pos] == '"':
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
		agent, err := p.identifier("an agent")
		if err != nil {
			return nil, err
		}
		n.name, n.nameAt = agent.name, agent.at
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
	if p.pos < len(p.src) && p.src[p.pos] == ':' {
		n.body, err = p.body(indent, "do")
		return n, true, err
	}
	name, err := p.identifier("a block")
	if err != nil {
		return nil, false, err
	}
	n.kind, n.name, n.nameAt = kindDoCall, name.name, name.at
	if p.blanks(); p.pos < len(p.src) && p.src[p.pos] == '(' {
		err = p.entries(')', func() error {
			item, err := p.inner()
			n.items = append(n.items, item)
			return err
		})
	}
	return n, false, err
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
			return nil, p.fail(p.pos, "%s follows “parallel”: there are “parallel:” and “parallel for”", quote(w))
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
		return nil, p.fail(p.pos, "%s stands where “in” belongs", p.shown())
	}
	p.blanks()
	return list, nil
}

// loop reads the head of a loop: its condition, its bound, and the name of its round.
func (p *parser) loop(n *node) (err error) {
	switch {
	case p.word("for"):
		if p.blanks(); !p.word("each") {
			return p.fail(p.pos, "%s stands where “each” belongs", p.shown())
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
			return p.fail(p.pos, "%s stands where “max:” belongs", p.shown())
		}
		if err := p.want(":", "(max: number)"); err != nil {
			return err
		}
		p.blanks()
		if p.pos >= len(p.src) || !digit(p.src[p.pos]) && p.src[p.pos] != '-' {
			return p.fail(p.pos, "%s stands where a number belongs, in (max: number)", p.shown())
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

// condition reads text for the model that runs the script, up to the “:” of its statement:
// bare, or between ** or ***. The text of a loop also ends before (max: …).
func (p *parser) condition(of string, loop bool) (string, error) {
	p.blanks()
	at := p.pos
	for _, mark := range []string{"***", "**"} {
		if !strings.HasPrefix(p.src[p.pos:], mark) {
			continue
		}
		rest := p.src[p.pos+len(mark):]
		i := strings.Index(rest, mark)
		if line, _, more := strings.Cut(rest, "\n"); mark == "**" && more && i > len(line) {
			i = -1
		}
		if i < 0 {
			return "", p.fail(at, "the condition that begins with %s does not end with it", mark)
		}
		p.pos += len(mark) + i + len(mark)
		if strings.TrimSpace(rest[:i]) == "" {
			p.found(at, "the condition of the %s is empty", of)
		}
		return strings.TrimSpace(rest[:i]), nil
	}
	line, _, _ := strings.Cut(p.src[p.pos:], "\n")
	end := strings.IndexByte(line, ':')
	if end < 0 {
		return "", p.fail(at, "the line of the %s has no “:” at its end", of)
	}
	if i := strings.LastIndex(line[:end], "("); loop && i >= 0 && strings.TrimSpace(line[i+1:end]) == "max" {
		end = i
	} else if i := strings.LastIndex(line[:end], " as "); loop && i >= 0 && wordAt(strings.TrimSpace(line[i+4:end])) == strings.TrimSpace(line[i+4:end]) {
		end = i
	}
	said := strings.TrimSpace(line[:end])
	if said == "" {
		p.found(at, "the condition of the %s is empty", of)
	}
	p.pos += end
	return said, nil
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
	for p.pos < len(p.src) && p.indent() == indent {
		w := wordAt(p.src[p.pos+indent:])
		if w != "elif" && w != "else" {
			break
		}
		p.pos += indent
		clause := &node{kind: w, at: p.pos}
		if i := len(n.items); i > 0 && n.items[i-1].kind == kindElse {
			return nil, p.fail(p.pos, "%s follows the else", quote(w))
		}
		p.pos += len(w)
		if w == "elif" {
			if clause.text, err = p.condition("elif", false); err != nil {
				return nil, err
			}
		}
		if clause.body, err = p.body(indent, "the "+w); err != nil {
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
			return nil, p.fail(at, "%s stands where an option belongs", p.shown())
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
		return nil, p.fail(n.at, "the choice has no options")
	}
	if rest := p.indent(); p.pos < len(p.src) && rest > indent {
		return nil, p.fail(p.pos+rest, "this line is indented like no option of the choice")
	}
	return n, nil
}

func (p *parser) try(indent int) (n *node, err error) {
	n = &node{kind: kindTry, at: p.pos}
	p.pos += len("try")
	if n.body, err = p.body(indent, "the try"); err != nil {
		return nil, err
	}
	for p.pos < len(p.src) && p.indent() == indent {
		w := wordAt(p.src[p.pos+indent:])
		if w != "catch" && w != "finally" {
			break
		}
		p.pos += indent
		clause := &node{kind: w, at: p.pos}
		for _, before := range n.items {
			switch before.kind {
			case w:
				p.found(p.pos, "the try has a %s already", w)
			case kindFinally:
				p.found(p.pos, "%s follows the finally", quote(w))
			}
		}
		p.pos += len(w)
		if w == "catch" {
			if err := p.as(clause); err != nil {
				return nil, err
			}
		}
		if clause.body, err = p.body(indent, "the "+w); err != nil {
			return nil, err
		}
		n.items = append(n.items, clause)
	}
	if len(n.items) == 0 {
		p.found(n.at, "the try has no catch and no finally")
	}
	return n, nil
}
