package commitment

import (
	_ "embed"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Evidence weighs the words of a sentence together if nothing else holds a message. Each word, and
// each pair of neighbours, counts a little for or against a commitment, according to its frequency
// in texts that people have judged. The weights are in weights.tsv, which `go run ./bench/detection
// -train` writes. Only text that a person may read is weighed. A hit only gives the position of the
// sentence.

//go:embed weights.tsv
var weightsFile string

// EvidenceBound is the weight from which a sentence counts as a commitment, in hundredths of the
// natural logarithm of its odds: even odds.
const EvidenceBound = 0

// Sentence is a sentence of a text and its clues.
type Sentence struct {
	Start, End int
	Clues      []string
}

const (
	minTokens   = 3   // of a sentence: fewer are no evidence together, such as "Fine." and "Done"
	maxEvidence = 200 // bytes of a text: among many sentences, one weighs enough by chance
	maxTokens   = 48  // further tokens are not weighed
	tokenFrom   = "^"
	tokenTo     = "$"
)

// The clues other than words.
const (
	clueAny = iota
	clueStop
	clueBang
	clueLine
	clueEnd
	clueFive
	clueTwelve
	clueMore
	clueFirst
	clueAsked
	clueAskedFive
	clueAskedTwelve
	clueAskedMore
	manyClues
	clueAsks // a question, which is not weighed
)

var clueNames = [manyClues]string{
	clueAny: "(any)", clueStop: "(ends .)", clueBang: "(ends !)", clueLine: "(ends line)", clueEnd: "(ends text)",
	clueFive: "(to 5 words)", clueTwelve: "(to 12 words)", clueMore: "(many words)", clueFirst: "(first)",
	clueAsked: "(asked)", clueAskedFive: "(asked, to 5 words)", clueAskedTwelve: "(asked, to 12 words)", clueAskedMore: "(asked, many words)",
}

const askedFirst = "(asked) "

// The kinds of a token.
const (
	asItself = iota
	asFigure
	asTime
	asDay
	asMoney
)

var asNames = [...]string{asFigure: "#", asTime: "#time", asDay: "#day", asMoney: "#money"}

const dayNames = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun january february march april june july august september october november december"

var isDay = sync.OnceValue(func() map[string]bool {
	days := map[string]bool{}
	for day := range strings.FieldsSeq(dayNames) {
		days[day] = true
	}
	return days
})

// endsSentence returns the clue for the sign that ends a sentence at pos, clueAsks, or -1, and the
// position at which the text continues.
func endsSentence(s string, pos int) (clue, next int) {
	c := s[pos]
	pos++
	if c == '\n' {
		if pos < len(s) && s[pos] == '\n' {
			return clueLine, pos
		}
		return -1, pos
	}
	if pos < len(s) && s[pos] > ' ' && s[pos] != '"' && s[pos] != ')' {
		return -1, pos
	}
	switch c {
	case '?':
		return clueAsks, pos
	case '!':
		return clueBang, pos
	}
	return clueStop, pos
}

// wordEnd returns the end of the word that begins at pos. Signs between two letters belong to the
// word.
func wordEnd(s string, pos int) int {
	for pos++; pos < len(s); pos++ {
		if tokenKind[s[pos]] != kindWord && (s[pos] != '\'' || pos+1 == len(s) || plainLetter[s[pos+1]] == 0) {
			break
		}
	}
	return pos
}

// figureEnd returns the end of a number with the letters after it, and its kind.
func figureEnd(s string, from int) (end int, as uint8) {
	pos, clock := from, false
	for pos < len(s) && (s[pos]-'0' < 10 || (s[pos] == '.' || s[pos] == ',' || s[pos] == ':') && pos+1 < len(s) && s[pos+1]-'0' < 10) {
		clock = clock || s[pos] == ':'
		pos++
	}
	end = pos
	for end < len(s) && plainLetter[s[end]] != 0 {
		end++
	}
	switch suffix := s[pos:end]; {
	case clock, oneOf(suffix, "am", "pm"):
		return end, asTime
	case oneOf(suffix, "th", "st", "nd", "rd"):
		return end, asDay
	case oneOf(suffix, "k"), from > 0 && s[from-1] == '$', strings.HasSuffix(s[:from], "€"), strings.HasPrefix(s[pos:], " €"):
		return end, asMoney
	}
	return end, asFigure
}

const (
	kindNone = iota
	kindWord
	kindFigure
	kindSign
	kindStop // also the end of a line
)

var tokenKind = func() (table [256]uint8) {
	for c := range table {
		switch b := byte(c); {
		case b >= 0x80 || b|0x20-'a' < 26:
			table[c] = kindWord
		case b-'0' < 10:
			table[c] = kindFigure
		case strings.IndexByte(",:;(\"`{=", b) >= 0:
			table[c] = kindSign
		case b == '.' || b == '!' || b == '?' || b == '\n':
			table[c] = kindStop
		}
	}
	return table
}()

// normal returns a word in lower case, with a plain apostrophe.
func normal(word string) string { return strings.ToLower(strings.ReplaceAll(word, "\u2019", "'")) }

// shapeOf returns the clues of a sentence other than its words.
func shapeOf(words, mark int, first, asked bool) (clues [6]int, n int) {
	long := 2
	switch {
	case words <= 5:
		long = 0
	case words <= 12:
		long = 1
	}
	clues[0], clues[1], clues[2], n = clueAny, mark, clueFive+long, 3
	if first {
		clues[n] = clueFirst
		n++
	}
	if asked {
		clues[n], clues[n+1] = clueAsked, clueAskedFive+long
		n += 2
	}
	return clues, n
}

// Sentences returns the sentences of a text that are weighed, with their clues. It leaves out
// questions, and text that does not look written by a person.
func Sentences(text string, asked bool) (all []Sentence) {
	if len(text) > maxEvidence || looksLikeOutput(text) {
		return nil
	}
	var one Sentence
	var words []string
	first := true
	add := func(start, end int, word string) {
		if len(words) == 0 {
			one.Start = start
		}
		if len(words) < maxTokens {
			words, one.End = append(words, word), end
		}
	}
	finish := func(mark int) {
		if len(words) == 0 {
			return
		}
		if mark != clueAsks && len(words) >= minTokens {
			shape, n := shapeOf(len(words), mark, first, asked)
			for _, clue := range shape[:n] {
				one.Clues = append(one.Clues, clueNames[clue])
			}
			if asked && first {
				one.Clues = append(one.Clues, askedFirst+words[0])
			}
			before := tokenFrom
			for _, word := range words {
				one.Clues = append(one.Clues, word, before+" "+word)
				before = word
			}
			one.Clues = append(one.Clues, before+" "+tokenTo)
			all = append(all, one)
		}
		one, words, first = Sentence{}, nil, false
	}
	for pos := 0; pos < len(text); {
		from := pos
		switch tokenKind[text[pos]] {
		case kindWord:
			pos = wordEnd(text, pos)
			word := normal(text[from:pos])
			if isDay()[word] {
				word = asNames[asDay]
			}
			add(from, pos, word)
		case kindFigure:
			var as uint8
			pos, as = figureEnd(text, pos)
			add(from, pos, asNames[as])
		case kindSign:
			pos++
			add(from, pos, text[from:pos])
		case kindStop:
			var mark int
			if mark, pos = endsSentence(text, pos); mark >= 0 {
				finish(mark)
			}
		default:
			pos++
		}
	}
	finish(clueEnd)
	return all
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

// weighing has Weights in a form for fast look-up.
type weighing struct {
	shape [manyClues]int32
	// some has a bit for the hash of each clue with a weight. slots has the weights, at the lower
	// 16 bits of the hash or the first free place after it.
	some  [1 << 16 / 64]uint64
	slots [1 << 13]uint32
	days  [1 << 10 / 64]uint64
	isDay map[uint64]bool
	// from, to and askedFirst are the hashes of the clues' own marks. as has the hashes of the
	// kinds of numbers, and sign those of signs.
	from, to, askedFirst uint64
	as                   [len(asNames)]uint64
	sign                 [utf8.RuneSelf]uint64
}

var sharedWeighing = sync.OnceValue(func() *weighing {
	w := &weighing{isDay: map[uint64]bool{}, from: tokenHash(tokenFrom), to: tokenHash(tokenTo), askedFirst: tokenHash("asked")}
	for as, name := range asNames {
		w.as[as] = tokenHash(name)
	}
	for c := range w.sign {
		w.sign[c] = tokenHash(string(rune(c)))
	}
	for clue, weight := range Weights() {
		if i := slices.Index(clueNames[:], clue); i >= 0 {
			w.shape[i] = int32(weight)
			continue
		}
		hash := uint64(0)
		if rest, ok := strings.CutPrefix(clue, askedFirst); ok {
			hash = pairHash(w.askedFirst, tokenHash(rest))
		} else if first, second, ok := strings.Cut(clue, " "); ok {
			hash = pairHash(tokenHash(first), tokenHash(second))
		} else {
			hash = tokenHash(clue)
		}
		w.some[hash>>48>>6] |= 1 << (hash >> 48 & 63)
		at := hash >> 51
		for w.slots[at] != 0 {
			at = (at + 1) % uint64(len(w.slots))
		}
		w.slots[at] = uint32(hash>>16)<<16 | uint32(uint16(int16(max(math.MinInt16, min(math.MaxInt16, weight)))))
	}
	for day := range isDay() {
		hash := tokenHash(day)
		w.isDay[hash] = true
		w.days[hash>>54>>6] |= 1 << (hash >> 54 & 63)
	}
	return w
})

// tokenHash returns the hash of a word, in any case.
func tokenHash(word string) uint64 { return hashIn(word, 0, len(word)) }

// hashIn returns the hash of a word in a text.
func hashIn(text string, start, end int) (hash uint64) {
	for at := start; at < end; at += 8 {
		w := eightFrom(text, at)
		if left := end - at; left < 8 {
			w &= 1<<(8*left) - 1
		}
		if w&highBits != 0 && strings.Contains(text[start:end], "\u2019") {
			return tokenHash(normal(text[start:end]))
		}
		hash = mixed(hash, w)
	}
	return hash
}

func mixed(hash, eight uint64) uint64 {
	hash = (hash ^ (eight | 0x20*inEach)) * spread
	return hash ^ hash>>29
}

func pairHash(first, second uint64) uint64 {
	return (bits.RotateLeft64(first, 27) ^ second) * spread
}

func (w *weighing) of(hash uint64) int32 {
	if w.some[hash>>48>>6]>>(hash>>48&63)&1 == 0 {
		return 0
	}
	return w.slot(hash)
}

func (w *weighing) slot(hash uint64) int32 {
	for at := hash >> 51; ; at = (at + 1) % uint64(len(w.slots)) {
		switch slot := w.slots[at]; {
		case slot == 0:
			return 0
		case slot>>16 == uint32(hash>>16)&0xffff:
			return int32(int16(slot))
		}
	}
}

// scale is the state while a sentence is weighed.
type scale struct {
	*weighing
	asked, first bool
	n            int
	before       uint64
	weight       int32
}

func (s *scale) add(hash uint64) {
	if s.n++; s.n > maxTokens {
		return
	}
	s.weight += s.of(hash) + s.of(pairHash(s.before, hash))
	if s.n == 1 && s.asked && s.first {
		s.weight += s.of(pairHash(s.askedFirst, hash))
	}
	s.before = hash
}

// weigh adds the first sentence of the body that weighs enough.
func (g *gathering) weigh(text string, asked bool) {
	if len(text) > maxEvidence || looksLikeOutput(text) {
		return
	}
	s := scale{weighing: sharedWeighing(), asked: asked, first: true}
	s.before = s.from
	from, to, pos := 0, 0, 0
	for {
		ends := -1
		for ends < 0 && pos < len(text) {
			kind := tokenKind[text[pos]]
			if kind == kindNone {
				pos++
				continue
			}
			if kind <= kindSign && s.n == 0 {
				from = pos
			}
			switch kind {
			case kindWord:
				letters, small, _ := run(eightFrom(text, pos))
				end := pos + letters
				var hash uint64
				if letters < 8 && (end == len(text) || tokenKind[text[end]] != kindWord && text[end] != '\'') {
					hash = mixed(0, small)
				} else {
					end = wordEnd(text, pos)
					hash = hashIn(text, pos, end)
				}
				if day := hash >> 54; s.days[day>>6]>>(day&63)&1 != 0 && s.isDay[hash] {
					hash = s.as[asDay]
				}
				pos = end
				s.add(hash)
				if s.n <= maxTokens {
					to = pos
				}
			case kindFigure:
				end, as := figureEnd(text, pos)
				pos = end
				s.add(s.as[as])
				if s.n <= maxTokens {
					to = pos
				}
			case kindSign:
				s.add(s.sign[text[pos]])
				pos++
				if s.n <= maxTokens {
					to = pos
				}
			default:
				ends, pos = endsSentence(text, pos)
				if s.n == 0 {
					ends = -1
				}
			}
		}
		if s.n == 0 {
			return
		}
		if ends < 0 {
			ends = clueEnd
		}
		if ends != clueAsks && s.n >= minTokens {
			shape, n := shapeOf(min(s.n, maxTokens), ends, s.first, asked)
			weight := s.weight + s.of(pairHash(s.before, s.to))
			for _, clue := range shape[:n] {
				weight += s.shape[clue]
			}
			if weight >= EvidenceBound && (&zoner{text: text}).at(from) == ZoneBody {
				g.kept = append(g.kept, Hit{Rule: Evidence, Start: from, End: to, Shadow: g.d.mode(Evidence) == Shadow})
				return
			}
		}
		s.first, s.n, s.before, s.weight = false, 0, s.from, 0
	}
}
