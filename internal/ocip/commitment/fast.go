package commitment

import (
	"math/bits"
	"slices"

	"github.com/openclawos/ocipd/internal/text"
)

// What stands here says no quickly: it looks at plain bytes, at the beginning of
// each word and at its letters, so that most words of most texts go no further.

// beginnings are the first symbols of words and of cues: whether one begins so.
type beginnings struct {
	// three is by three symbols, two bits each. four is by four of which each is a
	// letter or a blank, put together into fewer bits: two more bits say that nothing
	// is known of the next two. Else six is by six of them, none a capital.
	three [1 << 15 / 32]uint64
	four  [1 << 15 / 16]uint64
	six   [1 << 16 / 32]uint64
}

const (
	wordBegins = 1
	cueBegins  = 2
	early      = 2 // how far to shift either where nothing is known of the next symbols
)

// The symbols are the letters as [upright] takes them, [symGap] for a space, and
// one for all else.
const symElse = 0

var symbolOf = func() (table [256]uint8) {
	for c := range table {
		if b := byte(c) | 0x20; b >= 'a' && b <= 'z' && c < 0x80 {
			table[c] = uint8(upright(letterOf(b)))
		}
	}
	table[' '] = symGap
	return table
}()

// symbolAs is symbolOf with what else has to be known of a byte: that it is no
// symbol, or a capital.
var symbolAs = func() (table [256]uint8) {
	for c, sym := range symbolOf {
		table[c] = sym
		switch {
		case sym == symElse:
			table[c] = asElse
		case capital(byte(c)):
			table[c] |= asCapital
		}
	}
	return table
}()

const (
	asCapital = 0x40
	asElse    = 0x80
	asSymbol  = symbols - 1 // the bits of the symbol itself
)

// plainLetter is the glyph of a plain letter, and 0 for any other byte.
var plainLetter = func() (table [256]glyph) {
	for c := range table {
		if b := byte(c) | 0x20; b-'a' < 26 && c < 0x80 {
			table[c] = letterOf(b)
		}
	}
	return table
}()

func (d *Detector) learnBeginnings() {
	for first := glyph(1); first.isLetter(); first++ {
		if next := d.words.step(0, first); next != 0 {
			d.words.begin(&d.beginnings, next, []uint8{uint8(upright(first))})
		}
		if next := d.cues.step(0, first); next != 0 {
			d.cues.beginCue(&d.beginnings, next, []uint8{uint8(upright(first))})
		}
	}
}

// mark notes that a word or a cue can begin with some symbols and any others.
func (b *beginnings) mark(what uint64, so []uint8) {
	if len(so) < 4 {
		for sym := range uint8(symbols) {
			if sym <= 26 || sym == symGap {
				b.mark(what, append(slices.Clip(so), sym))
			}
		}
		return
	}
	b.markFour(what|what<<early, so)
}

func (b *beginnings) markFour(what uint64, so []uint8) {
	three := uint(so[0])<<10 | uint(so[1])<<5 | uint(so[2])
	b.three[three>>5] |= what & (wordBegins | cueBegins) << (three & 31 * 2)
	if so[1] != symElse && so[2] != symElse && so[3] != symElse {
		four := ofFour(three<<5 | uint(so[3]))
		b.four[four>>4] |= what << (four & 15 * 4)
	}
}

// markSix notes that one can begin with six symbols, the last of which may be missing.
func (b *beginnings) markSix(what uint64, so []uint8) {
	if len(so) < 6 {
		for sym := range uint8(symbols) {
			if sym > 0 && sym <= 26 || sym == symGap {
				b.markSix(what, append(slices.Clip(so), sym))
			}
		}
		return
	}
	four := uint(so[0])<<15 | uint(so[1])<<10 | uint(so[2])<<5 | uint(so[3])
	six := ofSix(four, uint(so[4])<<5|uint(so[5]))
	b.six[six>>5] |= what << (six & 31 * 2)
}

// ofFour and ofSix put symbols together into fewer bits.
func ofFour(four uint) uint      { return uint(uint32(four)*0x9e3779b1) >> 17 }
func ofSix(four, more uint) uint { return uint(uint32(four<<10|more)*0x85ebca6b) >> 16 }

// begin marks how the words of a trie begin that go on from a node. What is no
// letter may be anything: a sign for a letter, a gap, the end. A space ends a word,
// unless it stands between single letters or cuts a keyword in two.
func (t *trie) begin(b *beginnings, node uint16, so []uint8) {
	n := &t.nodes[node]
	switch {
	case n.end != 0 && len(so) < 4:
		b.mark(wordBegins, so)
		return
	case len(so) == 6:
		b.markSix(wordBegins, so)
		return
	case len(so) >= 4:
		if len(so) == 4 {
			b.markFour(wordBegins, so)
		}
		if n.end != 0 || n.keyword() {
			b.markSix(wordBegins, append(slices.Clip(so), symGap))
		}
	default:
		if len(so) >= 2 && n.keyword() {
			b.mark(wordBegins, append(slices.Clip(so), symGap))
		}
		b.mark(wordBegins, append(slices.Clip(so), symElse))
	}
	for g := glyph(1); g.isLetter(); g++ {
		next := t.step(node, g)
		if next == 0 {
			continue
		}
		letter := uint8(upright(g))
		t.begin(b, next, append(slices.Clip(so), letter))
		if len(so) == 1 {
			for _, behind := range []uint8{symGap, symElse} {
				b.mark(wordBegins, []uint8{so[0], symGap, letter, behind})
			}
			if t.nodes[next].end != 0 || n.keyword() && t.nodes[next].keyword() {
				b.mark(wordBegins, []uint8{so[0], symGap, letter})
			}
		}
	}
	if len(so) == 1 { // "s  c", "s 0"
		b.mark(wordBegins, []uint8{so[0], symGap, symGap})
		b.mark(wordBegins, []uint8{so[0], symGap, symElse})
	}
}

// beginCue is begin for cues, in which a space parts words.
func (t *trie) beginCue(b *beginnings, node uint16, so []uint8) {
	n := &t.nodes[node]
	switch {
	case len(so) == 4:
		b.markFour(cueBegins, so)
	case len(so) == 6:
		b.markSix(cueBegins, so)
		return
	}
	gap := append(slices.Clip(so), symGap)
	switch {
	case len(so) < 4:
		b.mark(cueBegins, append(slices.Clip(so), symElse))
		if n.end != 0 {
			b.mark(cueBegins, gap)
		} else if t.step(node, symGap) != 0 && len(gap) < 4 {
			b.mark(cueBegins, append(gap, symElse))
			b.mark(cueBegins, append(gap, symGap))
		}
	case n.end != 0, t.step(node, symGap) != 0 && len(so) == 5, so[len(so)-1] == symGap:
		b.markSix(cueBegins, gap) // or one more of them
	}
	for g := glyph(1); g <= symGap; g++ {
		if next := t.step(node, g); next != 0 && g != symApostrophe {
			t.beginCue(b, next, append(slices.Clip(so), uint8(upright(g))))
		}
	}
}

// begin reports what can begin with six bytes, the first of which is a plain letter.
func (b *beginnings) begin(text string) uint64 {
	two, three, four := symbolAs[text[1]], symbolAs[text[2]], symbolAs[text[3]]
	index := uint(symbolAs[text[0]]&asSymbol)<<10 | uint(two&asSymbol)<<5 | uint(three&asSymbol)
	if (two|three|four)&asElse != 0 {
		return b.three[index>>5&(1<<10-1)] >> (index & 31 * 2) & (wordBegins | cueBegins)
	}
	index = index<<5 | uint(four&asSymbol)
	at := ofFour(index)
	what := b.four[at>>4&(1<<11-1)] >> (at & 15 * 4)
	if what&(wordBegins|cueBegins) == 0 {
		return 0
	}
	five, six := symbolAs[text[4]], symbolAs[text[5]]
	if (two|three|four|five|six)&(asElse|asCapital) != 0 {
		return what & (wordBegins | cueBegins)
	}
	at = ofSix(index, uint(five)<<5|uint(six))
	return what & (what>>early | b.six[at>>5&(1<<11-1)]>>(at&31*2)) & (wordBegins | cueBegins)
}

// lowers is where the small letters end that stand from pos on.
func lowers(s string, pos int) int {
	const (
		each  = 0x0101010101010101
		highs = 0x80 * each
	)
	for ; pos+8 <= len(s); pos += 8 {
		w := text.Eight(s[pos:])
		low := w &^ highs
		letters := (low + (0x80-'a')*each) &^ (low + (0x7f-'z')*each) &^ w & highs
		if letters != highs {
			return pos + bits.TrailingZeros64(letters^highs)/8
		}
	}
	for pos < len(s) && s[pos]-'a' < 26 {
		pos++
	}
	return pos
}

// beginsAs is begin for any other glyph, and for the end of the text.
func (d *Detector) beginsAs(g glyph) (what uint64) {
	if g&marks == markLigature || d.words.step(0, upright(g&letterBits)) != 0 {
		what = wordBegins
	}
	if g.isLetter() && d.cues.step(0, g) != 0 {
		what |= cueBegins
	}
	return what
}

// literal is one of the thirteen as the reference plugin looks for it, or a form
// of one that does not hold its literal, and where in it the three letters are
// that it is looked for by: two of them, wherever one begins to look at every
// other letter.
type literal struct {
	letters string
	keyword string
	anchor  int
}

// literals are found anywhere in a run of letters that is no other word.
var literals = [...]literal{
	{"schedule", "schedule", 4}, {"schedulin", "schedule", 4}, {"meeting", "meeting", 1}, {"agree", "agree", 0}, {"approve", "approve", 0}, {"approvin", "approve", 0},
	{"allocate", "allocate", 2}, {"allocatin", "allocate", 2}, {"assign", "assign", 3}, {"reserve", "reserve", 4}, {"reservin", "reserve", 4},
	{"commit", "commit", 1}, {"confirm", "confirm", 4}, {"book", "book", 1}, {"deadline", "deadline", 2},
	{"promise", "promise", 2}, {"promisin", "promise", 2}, {"guarantee", "guarantee", 0},
}

// shortestLiteral is how long a word is that is none with a letter glued to it.
const shortestLiteral = len("book")

// anchors says of two letters which of the literals are looked for by them, a bit
// each.
var anchors = func() (table [1 << 10]uint32) {
	for i, l := range literals {
		for _, at := range []int{l.anchor, l.anchor + 1} {
			table[uint(l.letters[at]&31)<<5|uint(l.letters[at+1]&31)] |= 1 << i
		}
	}
	return table
}()

// glued looks for the literals in a run of letters: glued to other letters, they are
// as good as alone, where the whole is no word.
func glued(text string, from, to int, into *gathering) {
	before := max(from, 1) - 1
	letters := text[before:max(to, before)]
	for i := 1; i < len(letters); i += 2 {
		if among := anchors[(uint(letters[i-1]&31)<<5|uint(letters[i]&31))%(1<<10)]; among != 0 {
			gluedAmong(text, before+i, among, into)
		}
	}
}

// gluedAmong looks for those that have the letter at pos in their anchor, behind
// another.
func gluedAmong(text string, pos int, among uint32, into *gathering) {
	for ; among != 0; among &= among - 1 {
		l := literals[bits.TrailingZeros32(among)]
		for start := max(0, pos-2-l.anchor); start <= pos-1-l.anchor; start++ {
			if end := start + len(l.letters); reads(text, start, l.letters) {
				h := Hit{Rule: RuleKeyword, Keyword: l.keyword, Start: start, End: end}
				if n := len(into.kept); n == into.settled || into.kept[n-1] != h {
					into.add(h)
				}
			}
		}
	}
}

// reads reports whether letters stand at pos, whatever their case.
func reads(text string, pos int, letters string) bool {
	if len(text)-pos < len(letters) {
		return false
	}
	for i := range len(letters) {
		if text[pos+i]|0x20 != letters[i] {
			return false
		}
	}
	return true
}

// longestLiteral is how far before a character that does not show a glued
// keyword can begin that has it inside.
const longestLiteral = len("guarantee")

// gluedAround looks for the literals that have what stands at pos inside: a
// character that does not show, or a letter that is written in another way, with
// which they can begin.
func (d *Detector) gluedAround(text string, pos, width int, letter bool, into *gathering) {
	from := pos
	for from > 0 && pos-from < longestLiteral && symbolOf[text[from-1]] != symElse {
		from--
	}
	last := pos - 1
	if letter {
		last = pos
	}
	for ; from <= last; from++ {
		for i := range literals {
			l := literals[i]
			if from < pos && l.letters[0] != text[from]|0x20 {
				continue
			}
			if end := d.through(text, from, l.letters); end >= pos+width {
				into.add(Hit{Rule: RuleKeyword, Keyword: l.keyword, Start: from, End: end})
			}
		}
	}
}

// through reads a literal from pos on, past what does not show, and returns
// where it ends, or 0.
func (d *Detector) through(text string, pos int, letters string) int {
	for at := 0; at < len(letters); {
		if pos >= len(text) {
			return 0
		}
		g, r, width := d.atlas.at(text, pos)
		switch {
		case g == unseen:
		case r >= 0x80 || g != letterOf(letters[at]):
			return 0
		default:
			at++
		}
		pos += width
	}
	return pos
}
