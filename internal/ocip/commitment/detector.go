package commitment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Match selects the search for the thirteen keywords.
type Match string

const (
	// MatchWord finds whole words, inflected and disguised. It is the meaning of an empty Match.
	MatchWord Match = "word"
	// MatchSubstring works like the reference plugin: it finds the thirteen anywhere in the text in
	// any case, and nothing else: no inflections that change the stem, no disguises, no families.
	MatchSubstring Match = "substring"
)

// Mode is the treatment of a family of cues.
type Mode string

const (
	// Enforce makes a hit require a person.
	Enforce Mode = "enforce"
	// Shadow reports hits that require no person.
	Shadow Mode = "shadow"
	// Off disables the family.
	Off Mode = "off"
	// Weigh is for keywords, which are no family: a message that only they hold is held if it may
	// commit somebody, see [Reading.Keywords].
	Weigh Mode = "weigh"
)

// RuleKeyword is the rule of the thirteen keywords. They have no mode: every hit, in every zone,
// requires a person.
const RuleKeyword = "keyword"

// The families of cues, as rules and as keys of [Options].
const (
	// FirstPersonFuture is the sender's announcement of a deed: "I'll send it by Friday", "we are
	// going to deliver", "count me in".
	FirstPersonFuture = "first-person-future"
	// Acceptance is a yes to a proposal of the other side: "works for me", "deal", "consider it
	// done".
	Acceptance = "acceptance"
	// Money is a sum that the sender offers, grants or spends: "we'll pay $500",
	// "budget of 20k approved".
	Money = "money"
	// Prefixed is a keyword with a prefix: "rescheduled", "preapproved".
	Prefixed = "prefixed"
	// Derived is a noun for a keyword's deed that does not contain the keyword: "approval",
	// "reservation", "allocation".
	Derived = "derived"
	// Pledge is an explicit promise by the sender: "I vow", "we hereby order", "consider this our
	// contract".
	Pledge = "pledge"
	// Done is a completed deed that needed somebody's decision: "your order has been cancelled",
	// "I've paid it".
	Done = "done"
	// NextStep is the sender's next step, without an addressee, a time and a sum: "I'll search the
	// logs". Its default mode is shadow.
	NextStep = "next-step"
	// Evidence is a sentence in which no other rule finds anything, but which many weak signs
	// together make a commitment. Its default mode is off: it finds more, and asks more.
	Evidence = "evidence"
	// Unreadable is a stretch in a script that no list has words for, or of bytes that are no text.
	// Its default mode is shadow.
	Unreadable = "unreadable"
)

// Families lists the families of cues.
func Families() []string {
	return []string{
		FirstPersonFuture, Acceptance, Money, Prefixed, Derived, Pledge, Done, Evidence, NextStep, Unreadable,
		German, Spanish, French, Italian, Japanese, Dutch, Portuguese, Chinese,
	}
}

// DefaultMode is the mode of a family that the options do not name.
func DefaultMode(family string) Mode {
	switch family {
	case NextStep, Unreadable:
		return Shadow
	case Evidence:
		return Off
	}
	return Enforce
}

// Keywords lists the thirteen keywords, sorted.
func Keywords() []string {
	names := make([]string, len(keywords))
	for i, k := range keywords {
		names[i] = k.name
	}
	slices.Sort(names)
	return names
}

// Options configure a detector.
type Options struct {
	Match Match
	// Families gives modes to families. The others have their [DefaultMode]. With MatchSubstring
	// the modes are checked and have no effect.
	Families map[string]Mode
}

// Detector finds commitments. Make one with [New]. It never changes afterwards and serves any
// number of goroutines.
type Detector struct {
	match Match
	modes map[string]Mode
	// usual is set if each family has its default mode.
	usual bool
	atlas *atlas
	// words holds the keywords, words that resemble them, and the prefixed family; cues holds the
	// openers of the other families; terms has the words whose meaning near a sum counts.
	words, cues, terms trie
	entries            []entry
	phrases            []phrase
	// meanings are the meanings of the words of terms.
	meanings []term
	// uncut lists the beginnings of keywords that are words before a blank.
	uncut    [5]uint16
	openings openings
	// seconds are the second letters of the thirteen, one bit each, by their first letter.
	seconds [symbols]uint32
	// verbs gives the meaning of a verb after "I will".
	verbs map[string]verb
	// things are the words that make a deed of a verb.
	things map[string][]string
	money  bool
	// unreadable is set if the family Unreadable is on.
	unreadable bool
	lingo      *lingo
}

// New makes a detector. It refuses an unknown match, family or mode: a misspelt one would open a
// hole.
func New(o Options) (*Detector, error) {
	d := &Detector{match: o.Match, modes: defaultModes(), atlas: sharedAtlas()}
	switch o.Match {
	case "":
		d.match = MatchWord
	case MatchWord, MatchSubstring:
	default:
		return nil, fmt.Errorf("cannot match commitments by %q, want %s or %s", o.Match, MatchWord, MatchSubstring)
	}
	for _, family := range slices.Sorted(maps.Keys(o.Families)) {
		mode := o.Families[family]
		if _, known := d.modes[family]; !known {
			return nil, fmt.Errorf("unknown family of commitment cues %q, want one of %s", family, strings.Join(Families(), ", "))
		}
		switch mode {
		case Enforce, Shadow, Off:
			d.modes[family] = mode
		default:
			return nil, fmt.Errorf("unknown mode %q for commitment cues %s, want %s, %s or %s", mode, family, Enforce, Shadow, Off)
		}
	}
	if d.match == MatchWord && maps.Equal(d.modes, defaultModes()) {
		return standard(), nil
	}
	d.learn()
	return d, nil
}

func defaultModes() map[string]Mode {
	modes := make(map[string]Mode)
	for _, family := range Families() {
		modes[family] = DefaultMode(family)
	}
	return modes
}

// standard is the detector for the usual options. It is made once, since a start and every reload
// of a configuration need one.
var standard = sync.OnceValue(func() *Detector {
	d := &Detector{match: MatchWord, modes: defaultModes(), usual: true, atlas: sharedAtlas()}
	d.learn()
	return d
})

// learn fills the tables of words.
func (d *Detector) learn() {
	d.learnWords()
	d.learnCues()
	d.learnLanguages()
	d.unreadable = !d.off(Unreadable)
	d.words.pack()
	d.cues.pack()
	d.uncut = [...]uint16{d.words.steps(spell("as")), d.words.steps(spell("re")), d.words.steps(spell("boo")), d.words.steps(spell("dead")), d.words.steps(spell("a"))}
	d.learnOpenings()
}

// The zones of a text. The body has the empty name.
const (
	ZoneBody      = ""
	ZoneQuote     = "quote"     // lines that begin with >, and the text after "On … wrote:"
	ZoneCode      = "code"      // between fences or backticks
	ZoneSignature = "signature" // below a line of two dashes, "Sent from my …"
)

// Hit is one sign of a commitment in a text.
type Hit struct {
	// Rule is RuleKeyword or a family.
	Rule string `json:"rule"`
	// Keyword is the keyword that was found, or from which the word is derived; empty for a cue.
	Keyword string `json:"keyword,omitzero"`
	// Start and End are byte offsets into the original text, on rune boundaries. They include
	// disguises.
	Start int    `json:"start"`
	End   int    `json:"end"`
	Zone  string `json:"zone,omitzero"`
	// Shadow marks a hit that requires no person: its family is in shadow, or it is a cue outside
	// the body, which is somebody else's word or no word of the message. The thirteen keywords are
	// never in shadow.
	Shadow bool `json:"shadow,omitzero"`
	// Member is the string of the message, empty for its content.
	Member string `json:"member,omitzero"`
}

// Name is the name of the hit in reports: its keyword or its family.
func (h Hit) Name() string {
	if h.Rule == RuleKeyword {
		return h.Keyword
	}
	return h.Rule
}

func (d *Detector) off(family string) bool { return d.mode(family) == Off }

// mode returns the mode of a family if the options are not the usual ones.
func (d *Detector) mode(family string) Mode {
	if d.usual {
		return DefaultMode(family)
	}
	return d.modes[family]
}

// MaxPerKind limits the hits of one name in one zone of a text. More of them would say nothing new,
// and a text can consist of them.
const MaxPerKind = 64

// Detect finds the hits in one text, in the order of the text: the first [MaxPerKind] of each name
// and zone.
func (d *Detector) Detect(s string) []Hit {
	return d.Scan([]text.Passage{{Text: s, Prose: true}})
}

// Scan finds the hits in those strings of one message that are prose, in their order. No hit
// crosses the border of two strings. With renderings, Scan also checks each string as the receiver
// sees it; the offsets refer to the string as written. The limit of [MaxPerKind] applies to all
// strings together.
func (d *Detector) Scan(passages []text.Passage, as ...text.Rendering) []Hit {
	return d.ScanAfter(Before{}, passages, as...)
}

// Before is the part of the earlier conversation that the meaning of a message depends on.
type Before struct {
	// Asked is set if the message answers a question: then a yes binds.
	Asked bool
	// Tail is the end of the sender's last message to the receiver, from [Tail]: a commitment can
	// be split over two messages.
	Tail string
}

// ScanAfter is [Detector.Scan] for a message whose content answers or continues another.
func (d *Detector) ScanAfter(before Before, passages []text.Passage, as ...text.Rendering) []Hit {
	g := gathering{d: d}
	for i := range passages {
		one := &passages[i]
		if !one.Prose {
			continue
		}
		first := len(g.kept)
		g.answers, g.encoded = before.Asked && one.Member == "", -1
		g.look(one.Text, text.View{Text: one.Text})
		shown := text.View{Text: one.Text}
		if len(as) > 0 {
			if shown = text.See(one.Text, as...); shown.Changed() {
				g.again(first, one.Text, shown)
			}
		}
		if len(g.concealed) > 0 {
			g.again(first, one.Text, d.plainly(shown, g.concealed))
		}
		if d.match != MatchSubstring {
			written := len(g.kept)
			if g.encoded >= 0 {
				g.unpack(one.Text, g.encoded)
			}
			if one.Member == "" {
				g.goOn(before.Tail, one.Text)
				if !d.off(Evidence) && !slices.ContainsFunc(g.kept, func(h Hit) bool { return !h.Shadow }) {
					g.weigh(one.Text, before.Asked)
				}
			}
			if len(g.kept) > written {
				slices.SortStableFunc(g.kept[first:], byPlace)
			}
		}
		for k := range g.kept[first:] {
			g.kept[first+k].Member = one.Member
		}
	}
	return g.kept
}

// look gathers the hits of a text as it is shown.
func (g *gathering) look(written string, shown text.View) {
	g.zones, g.shown = zoner{text: written}, shown
	g.settled, g.concealed = len(g.kept), nil
	g.spokenAt, g.kanaAt, g.unreadCount, g.unreadEnd, g.ideographs, g.peeked = -1, -1, 0, -gapUnread-1, 0, 0
	if g.d.match == MatchSubstring {
		substrings(shown.Text, g)
	} else {
		g.d.scan(shown.Text, g)
	}
	g.settle(len(shown.Text))
}

// again gathers the hits of a text as it is shown that are not among those from first on.
func (g *gathering) again(first int, written string, shown text.View) {
	known := len(g.kept)
	g.look(written, shown)
	g.kept = g.kept[:first+len(merge(g.kept[first:], known-first))]
}

// unpack gathers the hits of text in base64 or hexadecimal digits, from an offset on. Each hit
// covers the whole encoded stretch.
func (g *gathering) unpack(written string, from int) {
	g.zones, g.shown, g.settled = zoner{text: written}, text.View{Text: written}, len(g.kept)
	for _, e := range text.Decode(written[from:]) {
		inside := gathering{d: g.d}
		inside.look(e.Text, text.View{Text: e.Text})
		seen := []string{}
		for _, h := range inside.kept {
			if n := len(seen); h.Rule == RuleKeyword || h.Zone == ZoneBody {
				if seen = insert(seen, h.Name()); len(seen) > n {
					g.add(Hit{Rule: h.Rule, Keyword: h.Keyword, Start: from + e.Start, End: from + e.End})
				}
			}
		}
	}
	g.settle(len(written))
}

// merge removes hits in a text as it is shown, from written on, if the same was found in the text
// as written. Both are in order.
func merge(hits []Hit, written int) []Hit {
	known := map[string][]Hit{}
	for _, h := range hits[:written] {
		known[h.Name()] = append(known[h.Name()], h)
	}
	kept := hits[:written]
	for _, h := range hits[written:] {
		if !slices.ContainsFunc(known[h.Name()], func(w Hit) bool { return w.Start < h.End && h.Start < w.End }) {
			kept = append(kept, h)
		}
	}
	slices.SortStableFunc(kept, byPlace)
	return kept
}

func byPlace(a, b Hit) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) }

// gathering orders the hits of a scan and determines their zones.
type gathering struct {
	d *Detector
	// zones are those of the text as written, and shown is the current text.
	zones zoner
	shown text.View
	// kept are the hits. Only a number of them are settled: another hit may still come before the
	// others, since a sum begins at the words that reveal it.
	kept    []Hit
	settled int
	// answers is set if the message answers a question.
	answers bool
	// spoken counts the common words of each language in the block spokenAt;
	// isKana says of the block kanaAt whether it has Japanese letters.
	spoken           [len(languages) + 1]uint16
	spokenAt, kanaAt int
	isKana           bool
	// unreadStart and unreadEnd bound the run of letters that no list has words for, and
	// unreadCount is their number.
	unreadStart, unreadEnd, unreadCount int
	// ideographs counts the hits in Chinese and Japanese characters.
	ideographs int
	// encoded is the start of a possible encoding in the text, -1 if there is none yet. peeked is
	// the position up to which it was searched.
	encoded int
	peeked  int
	// concealed lists places of the text with unusual spellings.
	concealed []stretch
	// counts are the kept hits of each kind, nil as long as there cannot be too many of any.
	counts map[kind]int
}

// kind groups the hits of a text for limits.
type kind struct {
	name, zone string
	shadow     bool
}

func (h *Hit) kind() kind { return kind{h.Name(), h.Zone, h.Shadow} }

const (
	// maxOpen is the number of hits that are gathered before they are put in order.
	maxOpen = 256
	// maxReach bounds the distance from the start of a hit to the place of its discovery.
	maxReach = maxSentence + maxCurrency
)

func (g *gathering) add(h Hit) {
	if len(g.kept)-g.settled >= maxOpen {
		g.settle(h.Start - maxReach)
	}
	if g.kept == nil {
		g.kept = make([]Hit, 0, 2) // most messages with a hit have at most two
	}
	g.kept = append(g.kept, h)
}

// settle settles the hits that begin before an offset. No later hit may begin before it.
func (g *gathering) settle(before int) {
	open := g.kept[g.settled:]
	if len(open) > 1 && !slices.IsSortedFunc(open, byPlace) {
		slices.SortStableFunc(open, byPlace)
	}
	looked := 0
	for ; looked < len(open) && open[looked].Start < before; looked++ {
		h := &open[looked]
		if g.shown.Changed() {
			h.Start, h.End = g.shown.Span(h.Start, h.End)
		}
		h.Zone = g.zones.at(h.Start)
		if h.Rule != RuleKeyword {
			h.Shadow = h.Zone != ZoneBody || g.d.mode(h.Rule) == Shadow
		}
		if g.few(h) {
			if at := &g.kept[g.settled]; at != h {
				*at = *h
			}
			g.settled++
		}
	}
	g.kept = g.kept[:g.settled+copy(g.kept[g.settled:], open[looked:])]
}

// few counts a hit and reports whether its kind is still within the limit.
func (g *gathering) few(h *Hit) bool {
	if g.settled < MaxPerKind {
		return true
	}
	if g.counts == nil {
		g.counts = map[kind]int{}
		for i := range g.settled {
			g.counts[g.kept[i].kind()]++
		}
	}
	k := h.kind()
	g.counts[k]++
	return g.counts[k] <= MaxPerKind
}

// Digest keeps at most n hits for a record: the first of each name, zone and shadow, then the
// earliest others, in the order of the text. For n of 64 and more, [Judge] gives the same result
// for the digest as for all hits.
func Digest(hits []Hit, n int) []Hit {
	if len(hits) <= n {
		return hits
	}
	kept := make([]bool, len(hits))
	seen := map[kind]bool{}
	for _, deciding := range [...]bool{true, false} {
		for i, h := range hits {
			k := h.kind()
			if len(seen) < n && h.Shadow != deciding && !seen[k] {
				seen[k], kept[i] = true, true
			}
		}
	}
	free := n - len(seen)
	digest := make([]Hit, 0, n)
	for i, h := range hits {
		if !kept[i] {
			if free == 0 {
				continue
			}
			free--
		}
		digest = append(digest, h)
	}
	return digest
}

// CommitmentDetectionResult is the result that the OCIP reference specifies. The name is the
// reference's.
type CommitmentDetectionResult struct {
	RequiresHuman bool `json:"requiresHuman"`
	// Reason is absent, not empty, if no person is required.
	Reason *string `json:"reason"`
	// DetectedKeywords are sorted, each once; an empty list, never absent.
	DetectedKeywords []string `json:"detectedKeywords"`
}

// Judge summarizes hits. The reason names keywords and families and quotes nothing of the text, so
// that it may be shown where the text may not.
func Judge(hits []Hit) CommitmentDetectionResult {
	found, cues := []string{}, []string{}
	for _, h := range hits {
		switch {
		case h.Shadow:
		case h.Keyword != "":
			found = insert(found, h.Keyword)
		default:
			cues = insert(cues, h.Rule)
		}
	}
	result := CommitmentDetectionResult{DetectedKeywords: found}
	var parts []string
	if len(found) > 0 {
		parts = append(parts, "commitment keywords: "+strings.Join(found, ", "))
	}
	if len(cues) > 0 {
		parts = append(parts, "commitment cues: "+strings.Join(cues, ", "))
	}
	if len(parts) > 0 {
		reason := strings.Join(parts, "; ")
		result.RequiresHuman, result.Reason = true, &reason
	}
	return result
}

// insert adds a name to a sorted list unless it is there.
func insert(sorted []string, name string) []string {
	at, found := slices.BinarySearch(sorted, name)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, name)
}

// substrings works like the reference plugin: it searches the text in lower case for each keyword.
// One rune outside ASCII has an ASCII letter for its lower case, the Kelvin sign.
func substrings(s string, g *gathering) {
	const kelvin = "\u212a"
	for pos := 0; pos < len(s); pos++ {
	next:
		for i := range keywords {
			name := keywords[i].name
			if s[pos]|0x20 != name[0] {
				continue
			}
			end := pos
			for j := range len(name) {
				switch {
				case end < len(s) && s[end]|0x20 == name[j]:
					end++
				case name[j] == 'k' && strings.HasPrefix(s[end:], kelvin):
					end += len(kelvin)
				default:
					continue next
				}
			}
			g.add(Hit{Rule: RuleKeyword, Keyword: name, Start: pos, End: end})
		}
	}
}
