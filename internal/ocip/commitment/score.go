package commitment

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// The score estimates whether a message commits somebody, by a sum of small integers: one for each
// clue of the rules, and one for each word and each two words in a row. They are in weights.tsv,
// which `go run ./bench/detection -train` learns from texts that people have judged. The score
// orders the messages that wait. It decides about a keyword only if the reasons of [Reading.Keywords]
// leave that open, and it is the family [Evidence].

//go:embed weights.tsv
var weightsFile string

// EvidenceBound is the number of points from which a message that no rule holds is held by the
// family Evidence: even odds.
const EvidenceBound = 0

const (
	// openBound is the number of points below which a keyword commits nobody if no reason speaks for
	// it and none against it: odds of one to twenty.
	openBound = -300
	// mediumPoints are the least of a medium likelihood, odds of one to seven.
	mediumPoints = -200
	// maxScored bounds the bytes of a text whose words are weighed, and maxSigns the keywords whose
	// reasons are.
	maxScored = 8 << 10
	maxSigns  = 16
)

// Likelihood estimates whether a message that is held for its words binds somebody.
type Likelihood string

// The likelihoods. docs/reference/detection.md gives the share of commitments for each, among the
// messages of the benchmark that people have not used to tune the rules.
const (
	High   Likelihood = "high"
	Medium Likelihood = "medium"
	Low    Likelihood = "low"
)

// Likelihoods lists them, the highest first.
func Likelihoods() []Likelihood { return []Likelihood{High, Medium, Low} }

// Score is an estimate whether a message commits somebody. It holds and releases nothing by itself.
type Score struct {
	// Points are hundredths of the natural logarithm of the odds.
	Points int
	// Reasons are the reasons that weighed most for the likelihood, at most [MaxReasons], the
	// heaviest first. They quote keywords and nothing else of the text.
	Reasons []string
	// Words are the words, alone or two in a row, that weighed most for it, at most [MaxWords].
	Words []string
}

// reasonMark parts the reasons in one text: a reason can have a comma.
const reasonMark = "; "

// JoinReasons and SplitReasons turn reasons into one text, and back.
func JoinReasons(reasons []string) string { return strings.Join(reasons, reasonMark) }

// SplitReasons is the inverse of [JoinReasons].
func SplitReasons(text string) []string { return strings.Split(text, reasonMark) }

// MaxWords bounds the words of a [Score].
const MaxWords = 5

// Likelihood is the likelihood by the points.
func (s *Score) Likelihood() Likelihood {
	switch {
	case s.Points >= EvidenceBound:
		return High
	case s.Points >= mediumPoints:
		return Medium
	}
	return Low
}

// Chance is the estimate in percent, from 1 to 99.
func (s *Score) Chance() int {
	return min(99, max(1, int(math.Round(100/(1+math.Exp(-float64(s.Points)/100))))))
}

// Weights gives the weight of each clue, in hundredths.
var Weights = sync.OnceValue(func() map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(weightsFile) {
		weight, clue, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		if n, err := strconv.Atoi(weight); ok && err == nil {
			all[clue] = n
		}
	}
	return all
})

// clue is something that rules say of a message. Its name is in parentheses, which no word has; why
// is the clue in words for people, empty for one that says nothing by itself.
type clue struct{ name, why string }

// Clues returns the names of the clues that the rules give about the message.
func (r *Reading) Clues() (names []string) {
	for _, c := range r.clues() {
		names = append(names, c.name)
	}
	return names
}

func (r *Reading) clues() (all []clue) {
	seen := map[string]bool{}
	add := func(name, why string) {
		if name = "(" + name + ")"; !seen[name] {
			seen[name] = true
			all = append(all, clue{name, why})
		}
	}
	add("any", "")
	add("length "+strconv.Itoa(bits.Len(uint(len(r.content)))), "")
	if r.asked {
		add("asked", askedReason)
	}
	signs := 0
	for i := range r.hits {
		h := &r.hits[i]
		switch {
		case h.Rule == Evidence:
			continue
		case h.Shadow:
			add("noted "+h.Rule, "")
			continue
		}
		add("held by "+h.Rule, h.Rule)
		if h.Rule == RuleKeyword {
			add("keyword "+h.Keyword, "")
		}
		if h.Keyword == "" || h.Member != "" || signs == maxSigns {
			continue
		}
		signs++
		_, found := r.reasons(i)
		for _, s := range found {
			why := s.String()
			if s.weight == 1 {
				why = ""
			}
			add(s.why, why)
		}
	}
	if signs == 0 && looksLikeOutput(r.content) {
		add(outputReason, outputReason)
	}
	return all
}

// part is one contribution to a score.
type part struct {
	weight int
	why    string
}

// scored is a score with the tally of the words that it counts.
type scored struct {
	Score
	words tally
}

func (r *Reading) score() *scored {
	if r.scored != nil {
		return r.scored
	}
	weights, s := Weights(), &scored{}
	var reasons []part
	for _, c := range r.clues() {
		weight := weights[c.name]
		s.Points += weight
		if c.why != "" {
			reasons = append(reasons, part{weight, c.why})
		}
	}
	s.words.count(r.content, weights)
	words := s.words.points(s.words.sum)
	s.Points += words
	reasons = append(reasons, part{words, "its words"})
	s.Reasons = namesOf(reasons, s.Likelihood(), MaxReasons)
	s.Words = namesOf(s.words.parts, s.Likelihood(), MaxWords)
	r.scored = s
	return s
}

// namesOf names the heaviest parts that speak for a likelihood.
func namesOf(parts []part, l Likelihood, most int) (names []string) {
	size := func(p part) int {
		switch l {
		case High:
			return p.weight
		case Low:
			return -p.weight
		case Medium:
		}
		return max(p.weight, -p.weight)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(size(b), size(a)) })
	for _, p := range parts {
		if size(p) > 0 && len(names) < most && !slices.Contains(names, p.why) {
			names = append(names, p.why)
		}
	}
	return names
}

// tally adds up the weights of a text's words.
type tally struct {
	sum, n int
	parts  []part
	// best is the sum of the sentence that weighs most, from start to end. It is no question, and
	// stands in no quote, code or signature.
	best, start, end int
}

// points are those of a sum of weights: long texts have no more of them than short ones.
func (t *tally) points(sum int) int {
	if t.n == 0 {
		return 0
	}
	return sum * 256 / int(math.Sqrt(float64(t.n)*65536))
}

func (t *tally) count(content string, weights map[string]int) {
	sentence, from, to := 0, -1, 0
	zones := zoner{text: content}
	Words(content, func(gram string, start, end int) {
		t.n++
		weight := weights[gram]
		t.sum += weight
		if weight != 0 {
			t.parts = append(t.parts, part{weight, gram})
		}
		if from >= 0 && end > start && (ends(content, to) || strings.IndexByte(content[to:max(to, start)], '\n') >= 0) {
			t.close(&zones, sentence, from, to)
			sentence, from = 0, -1
		}
		if from < 0 && end > start {
			from = start
		}
		sentence, to = sentence+weight, end
	})
	t.close(&zones, sentence, from, to)
}

func (t *tally) close(zones *zoner, sum, from, to int) {
	if from >= 0 && zones.text[to-1] != '?' && zones.at(from) == ZoneBody && (t.end == 0 || sum > t.best) {
		t.best, t.start, t.end = sum, from, to
	}
}

// ends reports whether a sentence ends before an offset.
func ends(content string, at int) bool {
	return at > 0 && strings.IndexByte(".!?", content[at-1]) >= 0 && (at == len(content) || content[at] <= ' ')
}

const dayNames = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun january february march april june july august september october november december"

var isDay = sync.OnceValue(func() map[string]bool {
	days := map[string]bool{}
	for day := range strings.FieldsSeq(dayNames) {
		days[day] = true
	}
	return days
})

// The marks of a text's beginning and end, of a number, and of a day's name.
const (
	wordFrom   = "<from>"
	wordTo     = "<to>"
	wordFigure = '#'
	wordDay    = "#day"
)

// Words calls each for the words of a text in their order, and for each two in a row, in lower case:
// numbers are alike, as are the names of days. start and end are the place of the word, and of the second one of two.
func Words(text string, each func(gram string, start, end int)) {
	text = text[:min(len(text), maxScored)]
	before := wordFrom
	say := func(word string, start, end int) {
		each(word, start, end)
		each(before+" "+word, start, end)
		before = word
	}
	for pos := 0; pos < len(text); {
		start := pos
		switch c := text[pos]; {
		case c <= ' ':
			pos++
			continue
		case !wordLike(c):
			pos++
			say(text[start:pos], start, pos)
			continue
		}
		for pos < len(text) && wordLike(text[pos]) {
			pos++
		}
		say(plainWord(text[start:pos]), start, pos)
	}
	say(wordTo, len(text), len(text))
}

func wordLike(c byte) bool {
	return c|0x20-'a' < 26 || c-'0' < 10 || c == '\'' || c >= utf8.RuneSelf
}

// plainWord is a word as it has a weight.
func plainWord(word string) string {
	plain := make([]byte, 0, 32)
	for _, r := range word {
		switch {
		case r-'0' < 10 && r >= '0':
			if n := len(plain); n == 0 || plain[n-1] != wordFigure {
				plain = append(plain, wordFigure)
			}
		case r == '\u2019':
			plain = append(plain, '\'')
		default:
			plain = utf8.AppendRune(plain, unicode.ToLower(r))
		}
	}
	if isDay()[string(plain)] {
		return wordDay
	}
	return string(plain)
}

// weigh adds a hit of the family Evidence if the words of a text that nothing holds commit somebody.
// The hit is the sentence that weighs most.
func (g *gathering) weigh(content string, asked bool) {
	if looksLikeOutput(content) {
		return
	}
	s := g.d.Read(g.kept, []text.Passage{{Text: content, Prose: true}}, Before{Asked: asked}).score()
	if s.Points >= EvidenceBound && s.words.end > 0 {
		g.kept = append(g.kept, Hit{Rule: Evidence, Start: s.words.start, End: s.words.end, Shadow: g.d.mode(Evidence) == Shadow})
	}
}

// maxWritten bounds the length of a message that people write to each other.
const maxWritten = 4000

const (
	outputReason = "it looks like the output of a tool"
	askedReason  = "it answers a question that asks for a yes"
)

// looksLikeOutput reports whether a text is more likely the output of a tool, a
// page or a file than written for its reader.
func looksLikeOutput(content string) bool {
	content = strings.TrimSpace(content)
	for _, begin := range [...]string{"{", "[", "<", "```", "exitcode", "Traceback", "diff --git", "$ ", "#!"} {
		if strings.HasPrefix(content, begin) {
			return true
		}
	}
	return len(content) > maxWritten || strings.Contains(content, "Traceback (most recent call last)") || strings.Count(content, "```") >= 4
}

// String is the reason in words.
func (r *reason) String() string {
	if strings.Contains(r.why, "%q") {
		return fmt.Sprintf(r.why, r.keyword)
	}
	return r.why
}
