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

// The levels of the protocol, lowest first. Public is the level of a text without findings; no rule
// raises to it.
const (
	Public       = "public"
	Internal     = "internal"
	Confidential = "confidential"
	Restricted   = "restricted"
)

// Limits for an operator's patterns. They keep one message from costing more than the rest of its
// way through the daemon.
const (
	MaxPatterns      = 64
	MaxPatternLength = 1024
	maxPatternName   = 64
)

// MaxPerRule limits the findings of one rule in one text. More of them would say nothing new, and
// would let a sender make records as long as the message. The limit is for each rule, so that many
// minor findings cannot displace a more serious one.
const MaxPerRule = 32

// Finding is one place in a text at which a rule matched.
type Finding struct {
	// Rule names the rule, for example "credential.github-token".
	Rule string
	// Level is the least level of the text: internal, confidential or restricted.
	Level string
	// Start and End are byte offsets into the original text. If the rule can tell the secret from
	// its surroundings, they enclose only the secret: the value of an assignment, the password of a
	// URL.
	Start, End int
	// Member is the string of the message, empty for its content.
	Member string
	// Shadow marks a finding that is recorded and raises nothing. Its level is Public.
	Shadow bool
}

// Pattern is a rule of the operator's own.
type Pattern struct {
	// Name is reported as "operator.NAME".
	Name string
	// Regexp is in RE2 syntax. Empty matches do not count.
	Regexp string
	// Level is the level to which a match raises the text.
	Level string
}

// Options configure a Detector.
type Options struct {
	Patterns []Pattern
	// Personal selects the treatment of personal data, by the names of [Personal]: one of
	// [PersonalModes]. Names that it leaves out are in shadow.
	Personal map[string]string
}

// Detector holds the rules, prepared. It never changes once built.
type Detector struct {
	words    *index
	checks   []check
	lists    lists
	patterns []pattern
	// personal is the treatment of each kind of personal data.
	personal map[string]string
	// passes are finished passes, for reuse.
	passes sync.Pool
}

type pattern struct {
	rule, level string
	re          *regexp.Regexp
}

// New prepares a Detector. The error names every unusable pattern.
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
	d.lists = lists{standIns: newAutomaton(standIns()), harmless: newAutomaton(harmless()), uuids: newAutomaton(uuids()), namedKeys: newAutomaton(namedKeys())}
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

// Detect returns the findings in one text, sorted by Start.
func (d *Detector) Detect(s string) []Finding {
	return d.Scan([]text.Passage{{Text: s}})
}

// Scan returns the findings in the strings of one message, in the order of the strings and then by
// Start; tokens that are cut between lines or strings (see joined.go) come last. Scan
// checks each string in four forms: as written, in which an invisible character ends a word; as the
// receiver sees it, without such characters and after the renderings; in disguise (see disguise.go);
// and behind its encodings (see decode.go). The spans refer to the string as written. The limit of
// [MaxPerRule] applies to all strings together.
func (d *Detector) Scan(passages []text.Passage, as ...text.Rendering) []Finding {
	p := d.pass()
	defer d.release(p)
	var room [4]text.Rendering // so that the usual case allocates nothing
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
	return p.joined(found, passages)
}

// pass returns an unused pass.
func (d *Detector) pass() *pass {
	p, used := d.passes.Get().(*pass)
	if !used {
		p = &pass{d: d}
		p.hit = func(anchor, end int) { d.checks[anchor](&p.scan, end) }
	}
	return p
}

// release keeps a pass for the next message, without anything from this one.
func (d *Detector) release(p *pass) {
	p.scan.text = ""
	clear(p.counts)
	d.passes.Put(p)
}

// rendered adds the findings in a text as it is shown that are not among those as it is written,
// which begin at first.
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

// pass is the check of one message.
type pass struct {
	d *Detector
	// scan is the scan of the current text, and hit handles an anchor.
	scan scan
	hit  func(anchor, end int)
	// written is the buffer for a part of the text with its escapes written out.
	written window
	// groups is the buffer for the groups of a number.
	groups [mostGroups]group
	// counts is the number of findings of each rule.
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

// uncount removes a finding from the count of its rule.
func (p *pass) uncount(rule string) { p.counts[rule]-- }

// keep removes findings from first on that are not to be kept, also from the counts.
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

// look adds the findings in a view, sorted.
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

// builtin adds the findings of the built-in rules in a text.
func (p *pass) builtin(found []Finding, s string) []Finding {
	v := look(s, traitsOf(s))
	return p.rules(found, &v)
}

// rules adds the findings of the built-in rules in a view.
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

// find adds the matches of an operator's pattern: in the original text, and in the view of the
// other rules, which shows hidden text.
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

// inOrder sorts findings and removes duplicates.
func inOrder(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(found)
}

// merge removes findings in a rendered or decoded text if the same rule already made them in the
// text as written. The former begin at written, the latter at first.
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

// Highest returns the highest level among the findings, or Public if there are none.
func Highest(found []Finding) string {
	highest := Public
	for i := range found {
		if rank(found[i].Level) > rank(highest) {
			highest = found[i].Level
		}
	}
	return highest
}

// rank orders the levels. Anything that is no level ranks as Public: only rules of this package and
// checked patterns make findings.
func rank(level string) int {
	return slices.Index([]string{Internal, Confidential, Restricted}, level) + 1
}
