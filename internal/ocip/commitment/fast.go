package commitment

import (
	"math/bits"

	"github.com/openclawos/ocipd/internal/base/text"
)

// The code in this file excludes most text quickly. It checks plain bytes, the beginning of each
// word, and its letters, so that most words of most texts need no further check.

// The kinds of text that can begin at a position, one bit each.
const (
	wordBegins = 1 << iota
	cueBegins
)

// plainLetter gives the glyph of a plain letter, and 0 for any other byte.
var plainLetter = func() (table [256]glyph) {
	for c := range table {
		if b := byte(c) | 0x20; b-'a' < 26 && c < 0x80 {
			table[c] = letterOf(b)
		}
	}
	return table
}()

// lowers returns the end of the small letters that begin at pos.
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

// beginsAs returns the kinds of text that can begin with a glyph.
func (d *Detector) beginsAs(g glyph) (what uint64) {
	if g&marks == markLigature || d.words.step(0, upright(g&letterBits)) != 0 {
		what = wordBegins
	}
	if g.isLetter() && d.cues.step(0, g) != 0 {
		what |= cueBegins
	}
	return what
}

// literal is a keyword in the reference plugin's spelling, or an inflected form that does not
// contain that spelling. Its anchor is the position of three of its letters. The search knows the
// first two of them and the last two, so it needs to check only every other letter of a text.
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

// shortestLiteral is the length of the shortest literal. A longer run has a letter glued to it.
const shortestLiteral = len("book")

// anchors gives, for two letters, the literals that the search finds by them, one bit each.
var anchors = func() (table [1 << 10]uint32) {
	for i, l := range literals {
		for _, at := range []int{l.anchor, l.anchor + 1} {
			table[uint(l.letters[at]&31)<<5|uint(l.letters[at+1]&31)] |= 1 << i
		}
	}
	return table
}()

// glued looks for the literals in a run of letters. A literal glued to other letters counts as if
// it were alone, unless the whole is a word.
func glued(text string, from, to int, into *gathering) {
	before := max(from, 1) - 1
	letters := text[before:max(to, before)]
	for i := 1; i < len(letters); i += 2 {
		if among := anchors[(uint(letters[i-1]&31)<<5|uint(letters[i]&31))%(1<<10)]; among != 0 {
			gluedAmong(text, before+i, among, into)
		}
	}
}

// gluedAmong looks for those literals whose anchor has the letter at pos after another.
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

// reads reports whether letters occur at pos, in any case.
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

// longestLiteral bounds the distance from an invisible character to the start of a glued keyword
// that contains it.
const longestLiteral = len("guarantee")

// gluedAround looks for the literals that contain the character at pos: an invisible one, or a
// letter in an unusual spelling, which can also begin them.
func (d *Detector) gluedAround(text string, pos, width int, letter bool, into *gathering) {
	from := pos
	for from > 0 && pos-from < longestLiteral && plainLetter[text[from-1]] != 0 {
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

// through reads a literal from pos on, past invisible characters, and returns its end, or 0.
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
