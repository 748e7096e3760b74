package openprose

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/task"
)

// program checks the meaning of a parsed script.
type program struct {
	*checker
	unit      *unit
	at        int
	functions map[string]*unit
	tools     map[string]bool
	legacy    bool
	// open scripts have inputs that are not declared here.
	open   bool
	agents map[string]*node
	blocks map[string]*node
	uses   map[string]bool
	// catching counts the enclosing catch clauses.
	catching int
}

// scope holds the names that a statement sees.
type scope struct {
	outer *scope
	names map[string]string
	// later are names bound in other branches, which exist after the join.
	later map[string]bool
}

func inner(outer *scope) *scope { return &scope{outer: outer, names: make(map[string]string)} }

func (s *scope) find(name string) (kind string, ok, later bool) {
	for ; s != nil; s = s.outer {
		if kind, ok = s.names[name]; ok {
			return kind, true, false
		}
		if s.later[name] {
			return "", false, true
		}
	}
	return "", false, false
}

// Kinds of bindings.
const (
	boundLet   = "let"
	boundConst = "a const"
	boundParam = "a parameter"
	boundKept  = "what is kept"
	boundRound = "a loop's"
	boundError = "a catch's"
	boundItem  = "a pipeline's"
)

func (k *program) error(at int, format string, args ...any)  { k.add(k.at+at, Error, format, args...) }
func (k *program) warn(at int, format string, args ...any)   { k.add(k.at+at, Warning, format, args...) }
func (k *program) refuse(at int, format string, args ...any) { k.rule(Error, at, format, args...) }

// rule adds a finding about a rule of the protocol.
func (k *program) rule(level string, at int, format string, args ...any) {
	if !k.LanguageOnly {
		k.add(k.at+at, level, format, args...)
	}
}

// check checks a script.
func (k *program) check(list []*node) {
	k.agents, k.blocks, k.uses = make(map[string]*node), make(map[string]*node), make(map[string]bool)
	top := inner(nil)
	for name := range k.unit.vars {
		top.names[name] = boundParam
	}
	for name := range k.unit.kept {
		top.names[name] = boundKept
	}
	began := false
	for _, n := range list {
		switch n.kind {
		case kindUse:
			k.use(n, began)
		case kindAgent:
			if k.agents[n.name] != nil {
				k.error(n.nameAt, "there is an agent %s already", quote(n.name))
			}
			k.agents[n.name] = n
		case kindBlock:
			if k.blocks[n.name] != nil {
				k.error(n.nameAt, "there is a block %s already", quote(n.name))
			}
			k.blocks[n.name] = n
		case kindInput:
			k.warn(n.at, "an input is of an older form of the language: prose upgrade --dry-run says what it becomes")
			k.bind(top, n, boundParam)
		default:
			began = true
		}
	}
	for name, b := range k.blocks {
		if k.agents[name] != nil || k.uses[name] {
			k.error(b.nameAt, "the block %s has the name of an agent or a dependency", quote(name))
		}
	}
	k.statements(list, top, true)
	for _, n := range list {
		switch n.kind {
		case kindAgent:
			k.agent(n, top)
		case kindBlock:
			s := inner(top)
			for _, param := range n.targets {
				if s.names[param.name] != "" {
					k.error(param.at, "the parameter %s stands here again", quote(param.name))
				}
				s.names[param.name] = boundParam
			}
			k.statements(n.body, s, false)
		}
	}
}

func (k *program) use(n *node, began bool) {
	if !k.legacy {
		k.error(n.at, "a contract's script declares no dependency: the contract does")
	}
	if began {
		k.error(n.at, "a dependency is declared after a statement: want it before them")
	}
	if n.name != "" {
		if k.uses[n.name] {
			k.error(n.nameAt, "there is a dependency %s already", quote(n.name))
		}
		k.uses[n.name] = true
	}
}

// bind binds a name in a scope.
func (k *program) bind(s *scope, n *node, kind string) {
	given, here := s.names[n.name]
	outer, ok, _ := s.find(n.name)
	switch {
	case here && s.outer == nil && given == boundKept, !here && outer == boundKept:
		// A render makes the value that it maintains anew.
	case here && s.outer == nil && given == boundParam:
		k.warn(n.nameAt, "%s hides what the script is given", quote(n.name))
	case here:
		k.error(n.nameAt, "%s is bound here already", quote(n.name))
	case ok:
		k.warn(n.nameAt, "%s hides the one of an outer block", quote(n.name))
	}
	s.names[n.name] = kind
}

func (k *program) statements(list []*node, s *scope, top bool) {
	for _, n := range list {
		switch n.kind {
		case kindUse, kindAgent, kindBlock, kindInput:
			if !top {
				k.error(n.at, "%s stands within a block: want it at the top", quote(n.kind))
			}
			continue
		}
		k.statement(n, s)
	}
}

func (k *program) statement(n *node, s *scope) {
	switch n.kind {
	case kindLet, kindConst, kindOutput:
		k.value(n.value, s)
		kind := boundLet
		if n.kind == kindConst {
			kind = boundConst
		}
		for _, target := range n.targets {
			k.bind(s, target, kind)
		}
		if n.kind == kindOutput {
			k.warn(n.at, "an output is of an older form of the language: prose upgrade --dry-run says what it becomes")
			k.bind(s, n, kind)
		}
	case kindAssign:
		k.assignment(n, s)
	case kindReturn:
		k.value(n.value, s)
	case kindThrow:
		if n.value == nil && k.catching == 0 {
			k.error(n.at, "throw says no error, and stands in no catch")
		}
		k.value(n.value, s)
	case kindParallel:
		k.parallel(n, s)
	case kindRepeat:
		repeat(k, n, s)
	case kindFor, kindLoop:
		k.loop(n, s)
	case kindIf:
		k.statements(n.body, inner(s), false)
		for _, clause := range n.items {
			k.statements(clause.body, inner(s), false)
		}
	case kindChoice:
		k.choice(n, s)
	case kindTry:
		k.try(n, s)
	default:
		k.value(n, s)
	}
}

func (k *program) assignment(n *node, s *scope) {
	k.value(n.value, s)
	switch kind, ok, later := s.find(n.name); {
	case later:
		k.error(n.nameAt, "%s is another branch's, and there after the join", quote(n.name))
	case !ok && !k.open:
		k.error(n.nameAt, "%s is not bound: let binds a name", quote(n.name))
	case ok && kind != boundLet:
		k.error(n.nameAt, "%s is %s, and is not assigned to", quote(n.name), kind)
	}
}

func (k *program) try(n *node, s *scope) {
	k.statements(n.body, inner(s), false)
	for _, clause := range n.items {
		within := inner(s)
		for _, name := range clause.targets {
			k.bind(within, name, boundError)
		}
		if clause.kind == kindCatch {
			k.catching++
		}
		k.statements(clause.body, within, false)
		if clause.kind == kindCatch {
			k.catching--
		}
	}
}

// rounds checks the body of a loop, with its names.
func (k *program) rounds(n *node, s *scope) {
	within := inner(s)
	for _, name := range n.targets {
		k.bind(within, name, boundRound)
	}
	k.statements(n.body, within, false)
}

func (k *program) loop(n *node, s *scope) {
	k.value(n.value, s)
	k.modifiers(n, s)
	if n.kind == kindLoop {
		switch {
		case n.max != nil:
			k.positive(n.max, "max")
		case n.text == "for each":
			k.error(n.at, "a loop over what a model has made has no bound: want (max: number)")
		case k.LanguageOnly:
			k.warn(n.at, "the loop has no bound: want (max: number)")
		default:
			k.error(n.at, "the loop has no bound: want (max: number)")
		}
	}
	if n.value != nil && slices.Contains([]string{kindString, kindNumber, kindBool, kindNull, kindObject}, n.value.kind) {
		k.error(n.value.at, "a %s is nothing to go through", n.value.kind)
	}
	k.rounds(n, s)
}

// positive requires a whole number above 0.
func (k *program) positive(n *node, what string) {
	if n == nil {
		return
	}
	if i, err := strconv.Atoi(n.text); n.kind != kindNumber || err != nil || i < 1 {
		k.error(n.at, "%s takes a whole number from 1 on", what)
	}
}

// parallel checks branches. A branch sees the names from before, and none from other branches.
func (k *program) parallel(n *node, s *scope) {
	k.modifiers(n, s)
	names := make(map[string]bool)
	for _, branch := range n.body {
		for _, target := range branch.targets {
			if branch.kind == kindLet || branch.kind == kindConst {
				names[target.name] = true
			}
		}
	}
	joined := make(map[string]string)
	for _, branch := range n.body {
		within := inner(s)
		within.later = names
		if branch.kind == kindUse || branch.kind == kindAgent || branch.kind == kindBlock {
			k.statements([]*node{branch}, within, false)
			continue
		}
		k.statement(branch, within)
		for _, target := range branch.targets {
			if kind, ok := within.names[target.name]; ok {
				if joined[target.name] != "" {
					k.error(target.at, "two branches bind %s", quote(target.name))
				}
				joined[target.name] = kind
			}
		}
	}
	maps.Copy(s.names, joined)
}

func (k *program) modifiers(n *node, s *scope) {
	join, count := "", false
	for _, m := range n.items {
		switch {
		case m.kind == kindString && slices.Contains([]string{"all", "first", "any"}, m.text):
			join = m.text
		case m.kind == kindString:
			k.error(m.at, "%s is no way to join: there are “all”, “first” and “any”", quote(m.text))
		case m.name == "count":
			count = true
			k.positive(m.value, "count")
			if i, err := strconv.Atoi(m.value.text); err == nil && n.kind == kindParallel && i > len(n.body) {
				k.error(m.at, "count is %d, and there are %d branches", i, len(n.body))
			}
		case m.name == "on-fail":
			if !slices.Contains([]string{"fail-fast", "continue", "ignore"}, m.value.text) || m.value.kind != kindString {
				k.error(m.at, "on-fail is “fail-fast”, “continue” or “ignore”")
			}
		default:
			k.error(m.at, "there is no modifier %s: there are count and on-fail", quote(m.name))
		}
		k.value(m.value, s)
	}
	if count && join != "any" {
		k.error(n.at, "count goes with “any” alone")
	}
}

func (k *program) choice(n *node, s *scope) {
	labels := make(map[string]bool)
	var phases []string
	for _, p := range task.Phases() {
		phases = append(phases, string(p))
	}
	onPhase := phaseWord.MatchString(n.text) || slices.ContainsFunc(n.items, func(o *node) bool { return slices.Contains(phases, o.name) })
	for _, o := range n.items {
		if labels[o.name] {
			k.warn(o.at, "there is an option %s already", quote(o.name))
		}
		labels[o.name] = true
		if onPhase && !slices.Contains(phases, o.name) {
			k.refuse(o.at, "%s is no phase%s", quote(o.name), nearest(o.name, phases, ": there are "+strings.Join(phases, ", ")))
		}
		k.statements(o.body, inner(s), false)
	}
	if !onPhase {
		return
	}
	var lacks []string
	for _, p := range phases {
		if !labels[p] {
			lacks = append(lacks, p)
		}
	}
	if len(lacks) > 0 {
		k.rule(Warning, n.at, "the choice has no option for %s: the model has to take a wrong one there", strings.Join(lacks, ", "))
	}
}

var phaseWord = regexp.MustCompile(`(?i)\bphase\b`)

// value checks an expression.
func (k *program) value(n *node, s *scope) {
	if n == nil {
		return
	}
	switch n.kind {
	case kindRef:
		k.reference(n.name, n.at, s)
	case kindString:
		k.interpolated(n, s)
	case kindArray:
		for _, item := range n.items {
			k.value(item, s)
		}
	case kindObject:
		for _, e := range n.props {
			k.value(e.value, s)
		}
	case kindCall:
		k.call(n, s)
	case kindSession, kindResume:
		k.session(n, s)
	case kindDo:
		k.statements(n.body, inner(s), false)
	case kindDoCall:
		b := k.blocks[n.name]
		switch {
		case b == nil:
			k.error(n.nameAt, "there is no block %s", quote(n.name))
		case len(b.targets) != len(n.items):
			k.error(n.nameAt, "the block %s takes %d arguments, and is given %d", quote(n.name), len(b.targets), len(n.items))
		}
		for _, item := range n.items {
			k.value(item, s)
		}
	case kindPipe:
		k.value(n.value, s)
		for _, step := range n.items {
			within := inner(s)
			if len(step.targets) == 0 {
				within.names["item"] = boundItem
			}
			for _, name := range step.targets {
				k.bind(within, name, boundItem)
			}
			k.statements(step.body, within, false)
		}
	case kindParallel, kindRepeat, kindFor, kindLoop:
		k.statement(n, s)
	}
}

func (k *program) reference(name string, at int, s *scope) {
	_, ok, later := s.find(name)
	switch {
	case ok:
	case later:
		k.error(at, "%s is another branch's, and there after the join", quote(name))
	case !k.open:
		k.error(at, "%s is not bound", quote(name))
	}
}

var interpolation = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_-]*)(\.[A-Za-z_][A-Za-z0-9_-]*)*\s*$`)

// interpolated checks the names in a text.
func (k *program) interpolated(n *node, s *scope) {
	for i := 0; i < len(n.text); i++ {
		switch n.text[i] {
		case '\\':
			i++
		case '{':
			end := strings.IndexAny(n.text[i+1:], "{}")
			if end < 0 || n.text[i+1+end] != '}' {
				continue
			}
			if m := interpolation.FindStringSubmatch(n.text[i+1 : i+1+end]); m != nil {
				k.reference(m[1], n.nameAt+i+1, s)
			}
			i += end + 1
		}
	}
}

// words are properties whose values are the host's words, not references.
func words() []string { return []string{"model", "persist", "backoff"} }

// property checks a property of a call, a session or an agent.
func (k *program) property(p *node, s *scope) {
	if slices.Contains(words(), p.name) && p.value != nil && p.value.kind == kindRef {
		return
	}
	k.value(p.value, s)
}

// retries checks retry and backoff of a call or a session.
func (k *program) retries(n *node) {
	var retry, backoff *node
	for _, p := range n.props {
		switch p.name {
		case "retry":
			retry = p
			k.positive(p.value, "retry")
		case "backoff":
			backoff = p
			word := p.value.name
			if p.value.kind == kindString {
				word = p.value.text
			}
			if !slices.Contains([]string{"none", "linear", "exponential"}, word) {
				k.error(p.value.at, "backoff is none, linear or exponential")
			}
		}
	}
	if backoff != nil && retry == nil {
		k.warn(backoff.at, "backoff says nothing without retry")
	}
	if retry != nil && roleOf(n.name) == string(task.Executor) {
		k.rule(Warning, retry.at, "%s is tried again without the store's seeing it: attempts, their leases and the circuit are its own", quote(n.name))
	}
}

func (k *program) call(n *node, s *scope) {
	k.retries(n)
	for _, p := range n.props {
		k.property(p, s)
	}
	k.says(n.name, n.props)
	f := k.functions[n.name]
	if f == nil || !f.declares {
		return
	}
	given := make(map[string]bool)
	for _, p := range n.props {
		if given[p.name] = true; !f.vars[p.name] && p.name != "retry" && p.name != "backoff" {
			k.error(p.nameAt, "%s takes no %s", quote(n.name), quote(p.name))
		}
	}
	var lacks []string
	for name := range f.vars {
		if !given[name] && !f.optional[name] {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) > 0 {
		slices.Sort(lacks)
		k.error(n.nameAt, "%s is not given %s", quote(n.name), strings.Join(lacks, ", "))
	}
}

func (k *program) session(n *node, s *scope) {
	agent := k.agents[n.name]
	if n.name != "" && agent == nil {
		k.error(n.nameAt, "there is no agent %s%s", quote(n.name), nearest(n.name, slices.Sorted(maps.Keys(k.agents)), ""))
	}
	if n.kind == kindResume && agent != nil && !persistent(agent) {
		k.error(n.nameAt, "the agent %s is not persistent, so that there is nothing to resume", quote(n.name))
	}
	k.retries(n)
	k.value(n.value, s)
	for _, p := range n.props {
		if !slices.Contains([]string{"prompt", "model", "context", "retry", "backoff"}, p.name) {
			k.error(p.nameAt, "a %s has no property %s: there are prompt, model, context, retry and backoff", n.kind, quote(p.name))
		}
		k.property(p, s)
	}
	props := n.props
	if n.value != nil {
		props = append(slices.Clone(props), &node{kind: kindProp, value: n.value})
	}
	k.says(n.name, props)
}

func persistent(agent *node) bool {
	for _, p := range agent.props {
		if p.name == "persist" {
			return p.value.kind != kindNull && (p.value.kind != kindBool || p.value.text == "true")
		}
	}
	return false
}

func (k *program) agent(n *node, s *scope) {
	for _, p := range n.props {
		switch p.name {
		case "shape":
			for _, part := range p.props {
				if !slices.Contains([]string{"self", "delegates", "prohibited"}, part.name) {
					k.error(part.nameAt, "a shape has no %s: there are self, delegates and prohibited", quote(part.name))
				}
				k.value(part.value, s)
				if part.name != "prohibited" {
					k.says(n.name, []*node{part})
				}
			}
			continue
		case "model", "prompt", "persist", "skills":
		default:
			k.error(p.nameAt, "an agent has no property %s: there are model, prompt, persist, skills and shape", quote(p.name))
		}
		if want := map[string]string{"prompt": kindString, "skills": kindArray}[p.name]; want != "" && p.value.kind != want {
			k.error(p.value.at, "%s is a %s, and no %s", p.name, want, p.value.kind)
		}
		k.property(p, s)
		k.says(n.name, []*node{p})
	}
}
