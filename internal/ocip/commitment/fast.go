package commitment

import "strings"

// What stands here says no quickly: it looks at plain bytes, at the beginning of
// each word and at its letters, so that most words of most texts go no further.

// beginnings are the first three symbols of words, two bits each: whether a word
// begins so, and whether a cue does.
type beginnings [1 << 15 / 32]uint64

const (
	wordBegins = 1
	cueBegins  = 2
)

// The symbols are the letters as [upright] takes them, and one for all else.
const symElse = 0

var symbolOf = func() (table [256]uint8) {
	for c := range table {
		if b := byte(c) | 0x20; b >= 'a' && b <= 'z' && c < 0x80 {
			table[c] = uint8(upright(letterOf(b)))
		}
	}
	return table
}()

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
	d.words.begin(&d.beginnings, wordBegins, 0, 0, 0)
	d.cues.begin(&d.beginnings, cueBegins, 0, 0, 0)
}

// begin marks how the words of a trie begin that go on from a node. What is no
// letter may be anything: a sign for a letter, a gap, the end.
func (t *trie) begin(bits *beginnings, mark uint64, node uint16, depth, index uint) {
	shift := 5 * (3 - depth)
	if depth == 3 {
		bits[index>>5] |= mark << (index & 31 * 2)
		return
	}
	for rest := range uint(1) << (shift - 5) {
		i := index<<shift | symElse<<(shift-5) | rest
		bits[i>>5] |= mark << (i & 31 * 2)
	}
	for sym, next := range t.nodes[node].next[:27] {
		if next != 0 {
			t.begin(bits, mark, next, depth+1, index<<5|uint(upright(glyph(sym))))
		}
	}
}

// begin reports what can begin with three bytes, the first of which is a plain
// letter.
func (b *beginnings) begin(one, two, three byte) uint64 {
	index := uint(symbolOf[one])<<10 | uint(symbolOf[two])<<5 | uint(symbolOf[three])
	return b[index>>5&(1<<10-1)] >> (index & 31 * 2) & (wordBegins | cueBegins)
}

// beginsAs is begin for any other glyph, and for the end of the text.
func (d *Detector) beginsAs(g glyph) (what uint64) {
	if g&marks == markLigature || d.words.nodes[0].next[upright(g&letterBits)] != 0 {
		what = wordBegins
	}
	if g.isLetter() && d.cues.nodes[0].next[g] != 0 {
		what |= cueBegins
	}
	return what
}

// literal is one of the thirteen as the reference plugin looks for it, or a form
// of one that does not hold its literal, and where in it the two letters are
// that it is looked for by.
type literal struct {
	letters string
	keyword string
	anchor  int
}

// literals are found anywhere in a run of letters that is no other word.
var literals = [...]literal{
	{"schedule", "schedule", 4}, {"schedulin", "schedule", 4}, {"meeting", "meeting", 1}, {"agree", "agree", 3}, {"approve", "approve", 1}, {"approvin", "approve", 1},
	{"allocate", "allocate", 3}, {"allocatin", "allocate", 3}, {"assign", "assign", 4}, {"reserve", "reserve", 4}, {"reservin", "reserve", 4},
	{"commit", "commit", 2}, {"confirm", "confirm", 2}, {"book", "book", 1}, {"deadline", "deadline", 3},
	{"promise", "promise", 3}, {"promisin", "promise", 3}, {"guarantee", "guarantee", 1},
}

// anchors says of two letters which of the literals are looked for by them, a bit
// each.
var anchors = func() (table [1 << 10]uint32) {
	for i, l := range literals {
		table[uint(l.letters[l.anchor]&31)<<5|uint(l.letters[l.anchor+1]&31)] |= 1 << i
	}
	return table
}()

// gluedAmong looks for the literals that have the letter at pos for the second of
// their anchor: glued to other letters, they are as good as alone, where the
// whole is no word.
func gluedAmong(text string, pos int, among uint32, into *gathering) {
	for i := range literals {
		if among>>i&1 == 0 {
			continue
		}
		l := literals[i]
		start := pos - 1 - l.anchor
		if start < 0 || text[start]|0x20 != l.letters[0] {
			continue
		}
		if end := start + len(l.letters); end <= len(text) && strings.EqualFold(text[start:end], l.letters) && ascii(text[start:end]) {
			into.add(Hit{Rule: RuleKeyword, Keyword: l.keyword, Start: start, End: end})
		}
	}
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
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
