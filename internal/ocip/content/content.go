package content

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/base/text"
)

// The levels of the protocol, lowest first. Public is the level of a text
// without findings; no rule asks for it.
const (
	Public       = "public"
	Internal     = "internal"
	Confidential = "confidential"
	Restricted   = "restricted"
)

// What an operator may ask for. The limits keep one message from costing more
// than the rest of the way through the daemon.
const (
	MaxPatterns      = 64
	MaxPatternLength = 1024
	maxPatternName   = 64
)

// MaxPerRule limits the findings of one rule in one text. More of them would
// say nothing new, and would let a sender write records as long as the message.
// The limit is for each rule, so that a flood of lesser findings cannot push
// out a graver one.
const MaxPerRule = 32

// Finding is one place in a text that a rule spoke up about.
type Finding struct {
	// Rule names what was found, as in "credential.github-token".
	Rule string
	// Level is what the text has to be at least: internal, confidential or
	// restricted.
	Level string
	// Start and End are byte offsets into the text as it was given. They
	// enclose the secret itself where the rule can tell it from its
	// surroundings: the value of an assignment, the password of a URL.
	Start, End int
	// Member is the string of the message, empty for its content.
	Member string
	// Shadow is what is written down and raises nothing. Its level is Public.
	Shadow bool
}

// Pattern is a rule of the operator's own.
type Pattern struct {
	// Name is reported as "operator.NAME".
	Name string
	// Regexp is in RE2 syntax. Matches of no length count for nothing.
	Regexp string
	// Level is what a match raises the text to.
	Level string
}

// Options are what a Detector can be told.
type Options struct {
	Patterns []Pattern
	// Personal is what becomes of personal data, by the names of [Personal]: one of
	// [PersonalModes]. What is not named is in shadow.
	Personal map[string]string
}

// Detector holds the rules, prepared. It never changes once built.
type Detector struct {
	words    *index
	checks   []check
	lists    lists
	patterns []pattern
	// personal is what becomes of each kind of personal data.
	personal map[string]string
	// passes are looks that are over, to be used again.
	passes sync.Pool
}

type pattern struct {
	rule, level string
	re          *regexp.Regexp
}

// New prepares a Detector. Every pattern that cannot be used is named in the
// error.
func New(o Options) (*Detector, error) {
	if len(o.Patterns) > MaxPatterns {
		return nil, fmt.Errorf("cannot use %d content patterns: at most %d are allowed", len(o.Patterns), MaxPatterns)
	}
	d := &Detector{}
	var faults []error
	seen := map[string]bool{}
	for _, p := range o.Patterns {
		re, err := p.compile()
		if err == nil && seen[p.Name] {
			err = errors.New("the name is taken by another pattern")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("cannot use content pattern %.*q: %w", maxPatternName, p.Name, err))
			continue
		}
		seen[p.Name] = true
		d.patterns = append(d.patterns, pattern{"operator." + p.Name, p.Level, re})
	}
	modes, err := personalModes(o.Personal)
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	d.personal = modes
	anchors := builtin()
	words := make([]string, len(anchors))
	for i, a := range anchors {
		words[i] = a.text
		d.checks = append(d.checks, a.check)
	}
	d.words = newIndex(words)
	d.lists = lists{standIns: newAutomaton(standIns()), harmless: newAutomaton(harmless()), uuids: newAutomaton(uuids())}
	return d, nil
}

func (p *Pattern) compile() (*regexp.Regexp, error) {
	if p.Name == "" || len(p.Name) > maxPatternName {
		return nil, fmt.Errorf("want a name of 1 to %d letters", maxPatternName)
	}
	for i := range len(p.Name) {
		if !kindOf(p.Name[i]).in(alnum | under | dash | dot) {
			return nil, errors.New("want a name of letters, digits, '.', '_' and '-'")
		}
	}
	if rank(p.Level) == 0 {
		return nil, fmt.Errorf("unknown level %q, want one of %s, %s, %s", p.Level, Internal, Confidential, Restricted)
	}
	if p.Regexp == "" || len(p.Regexp) > MaxPatternLength {
		return nil, fmt.Errorf("want an expression of 1 to %d bytes", MaxPatternLength)
	}
	re, err := regexp.Compile(p.Regexp)
	if err != nil {
		return nil, err
	}
	if re.MatchString("") {
		return nil, errors.New("the expression matches the empty text, and so everything")
	}
	return re, nil
}

// Detect returns what the rules found in one text, sorted by Start.
func (d *Detector) Detect(s string) []Finding {
	return d.Scan([]text.Passage{{Text: s}})
}

// Scan returns what the rules found in the strings of one message, in their
// order and in each sorted by Start. Nothing is found across the border of two
// strings. Each is looked at as it is written, where a character that does not
// show ends a word, and as the receiver is shown it, without such characters and
// after the renderings, and once more in disguise (see disguise.go) and behind its encodings (see decode.go); the
// spans are those of the string as written. The limit of
// [MaxPerRule] holds for all strings together.
func (d *Detector) Scan(passages []text.Passage, as ...text.Rendering) []Finding {
	p := d.pass()
	defer d.release(p)
	var room [4]text.Rendering // so that nothing is allocated for the usual one
	as = append(append(room[:0], as...), text.RenderPlain)
	var found []Finding
	for i := range passages {
		one := &passages[i]
		first := len(found)
		has := traitsOf(one.Text)
		v := look(one.Text, has)
		found = p.look(found, &v)
		if v.unshown || len(as) > 1 {
			found = p.rendered(found, first, one.Text, as)
		}
		found = p.disguised(found, first, one.Text, has)
		found = p.decoded(found, first, one.Text, has)
		for k := range found[first:] {
			found[first+k].Member = one.Member
		}
	}
	return found
}

// pass returns a look that has seen nothing yet.
func (d *Detector) pass() *pass {
	p, used := d.passes.Get().(*pass)
	if !used {
		p = &pass{d: d}
		p.hit = func(anchor, end int) { d.checks[anchor](&p.scan, end) }
	}
	return p
}

// release keeps a look for the next message, and nothing of this one.
func (d *Detector) release(p *pass) {
	p.scan.text = ""
	clear(p.counts)
	d.passes.Put(p)
}

// rendered adds what the rules find in a text as it is shown and did not find in
// it as it is written, which is what is found from first on.
func (p *pass) rendered(found []Finding, first int, s string, as []text.Rendering) []Finding {
	shown := text.See(s, as...)
	if !shown.Changed() {
		return found
	}
	written := len(found)
	v := look(shown.Text, traitsOf(shown.Text))
	found = p.look(found, &v)
	for k := range found[written:] {
		f := &found[written+k]
		f.Start, f.End = shown.Span(f.Start, f.End)
	}
	return p.merge(found, first, written)
}

// pass is one look at a message.
type pass struct {
	d *Detector
	// scan is that of the text looked at, hit what it does at an anchor.
	scan scan
	hit  func(anchor, end int)
	// written is where a part of the text is put together with its escapes written out.
	written window
	// groups is where the groups of a number in them are put together.
	groups [mostGroups]group
	// counts is how many findings each rule has.
	counts map[string]int
}

// full reports whether a rule has enough findings.
func (p *pass) full(rule string) bool { return p.counts[rule] >= MaxPerRule }

func (p *pass) count(rule string) {
	if p.counts == nil {
		p.counts = map[string]int{}
	}
	p.counts[rule]++
}

// uncount takes a finding off the count of its rule.
func (p *pass) uncount(rule string) { p.counts[rule]-- }

// keep leaves out of the findings from first on those that are not to be kept, so that
// they count for nothing.
func (p *pass) keep(found []Finding, first int, kept func(f *Finding) bool) []Finding {
	n := first
	for i := range found[first:] {
		f := found[first+i]
		if !kept(&f) {
			p.uncount(f.Rule)
			continue
		}
		found[n] = f
		n++
	}
	return found[:n]
}

// look adds what the rules find in a view, sorted.
func (p *pass) look(found []Finding, v *view) []Finding {
	first := len(found)
	found = p.rules(found, v)
	for i := range p.d.patterns {
		found = p.find(found, &p.d.patterns[i], v)
	}
	if len(found)-first < 2 {
		return found
	}
	return found[:first+len(inOrder(found[first:]))]
}

// builtin adds what the built-in rules find in a text.
func (p *pass) builtin(found []Finding, s string) []Finding {
	v := look(s, traitsOf(s))
	return p.rules(found, &v)
}

// rules adds what the built-in rules find in a view.
func (p *pass) rules(found []Finding, v *view) []Finding {
	p.scan = scan{text: v.text, found: p.scan.found[:0], lists: &p.d.lists, pass: p, pem: -1, putty: -1}
	p.d.words.each(v.text, p.hit)
	if v.has&traitPerson != 0 {
		p.scan.people()
	}
	if v.has&traitDigit != 0 {
		p.scan.numbers()
	}
	first := len(found)
	for _, f := range p.scan.found {
		if f.Rule != "" {
			found = append(found, f)
		}
	}
	v.restore(found[first:])
	return found
}

// find adds the places an operator's pattern matches: in the text as it was
// given, and in the text as the other rules see it, for what was hidden.
func (p *pass) find(found []Finding, by *pattern, v *view) []Finding {
	match := func(s string) {
		if p.full(by.rule) {
			return
		}
		for _, m := range by.re.FindAllStringIndex(s, MaxPerRule-p.counts[by.rule]) {
			if m[0] < m[1] {
				p.count(by.rule)
				found = append(found, Finding{Rule: by.rule, Level: by.level, Start: m[0], End: m[1]})
			}
		}
	}
	match(v.original)
	if v.segments == nil {
		return found
	}
	first := len(found)
	match(v.text)
	v.restore(found[first:])
	return found
}

// inOrder sorts findings and leaves out what is said twice.
func inOrder(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(found)
}

// merge leaves out what was found in a text as it is rendered or decoded, the findings
// from the written-th on, where the same rule found it as written, which is what is found
// from first on.
func (p *pass) merge(found []Finding, first, written int) []Finding {
	known := map[string][]Finding{}
	for _, f := range found[first:written] {
		known[f.Rule] = append(known[f.Rule], f)
	}
	found = p.keep(found, written, func(f *Finding) bool {
		return !slices.ContainsFunc(known[f.Rule], func(w Finding) bool { return w.Start < f.End && f.Start < w.End })
	})
	return found[:first+len(inOrder(found[first:]))]
}

// Highest is the highest level among the findings, and Public where there are
// none.
func Highest(found []Finding) string {
	highest := Public
	for i := range found {
		if rank(found[i].Level) > rank(highest) {
			highest = found[i].Level
		}
	}
	return highest
}

// rank orders the levels. What is not a level ranks as Public: only rules of
// this package and checked patterns make findings.
func rank(level string) int {
	return slices.Index([]string{Internal, Confidential, Restricted}, level) + 1
}
