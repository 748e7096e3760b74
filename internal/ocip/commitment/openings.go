package commitment

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// openings tells for an ordinary word whether anything that the detector looks for can begin with
// it. An ordinary word has small letters except the first, and a blank or the end of a clause after
// it. The key is the whole word; for cues also the word after it. It is asked once a word, without
// a look at single letters, and may say yes although nothing begins.
type openings struct {
	// words has four bits for each hash of a word, pairs one for each pair of words, and paths one
	// for each beginning of a word or a cue.
	words [1 << 15 / 16]uint64
	pairs [1 << 15 / 64]uint64
	paths [1 << 16 / 64]uint64
}

const (
	// opensWord: one of the words, or a part at which a blank can cut a keyword.
	opensWord = 1 << iota
	// opensCue: a cue of one word, with any text after it.
	opensCue
	// opensCueBefore: a cue that only some words can follow.
	opensCueBefore
	// opensPair: a cue of several words.
	opensPair
)

// inEach is a byte repeated in each of eight, and highBits the highest bits of them.
const (
	inEach   = 0x0101010101010101
	highBits = 0x80 * inEach
)

// eightFrom returns the eight bytes from pos on, with zeros after the end.
func eightFrom(s string, pos int) uint64 {
	if pos+8 <= len(s) {
		return text.Eight(s[pos:])
	}
	if over := pos + 8 - len(s); len(s) >= 8 {
		return text.Eight(s[len(s)-8:]) >> (8 * over)
	}
	var w uint64
	for i := len(s) - 1; i >= pos; i-- {
		w = w<<8 | uint64(s[i])
	}
	return w
}

// run reads the letters at the beginning of eight bytes: their number, the letters in lower case,
// and whether one of them except the first is a capital.
func run(w uint64) (letters int, small uint64, capitals bool) {
	small = w | 0x20*inEach
	low := small &^ highBits
	is := (low + (0x80-'a')*inEach) &^ (low + (0x7f-'z')*inEach) &^ w & highBits
	letters = bits.TrailingZeros64(is^highBits) / 8
	mask := ^(^uint64(0) << (8 * letters))
	return letters, small & mask, ^w&(0x20*inEach)&mask>>8 != 0
}

// folded replaces each l by i, like [upright].
func folded(word uint64) uint64 {
	l := word ^ 'l'*inEach
	return word - ^((l&^highBits+0x7f*inEach)|l|0x7f*inEach)>>7*('l'-'i')
}

const spread = 0x9e3779b97f4a7c15

func (o *openings) of(word uint64) uint64 {
	hash := word * spread >> 49
	return o.words[hash>>4] >> (hash & 15 * 4) & 15
}

func (o *openings) add(word, what uint64) {
	hash := word * spread >> 49
	o.words[hash>>4] |= what << (hash & 15 * 4)
}

// leads reports whether a word or a cue can begin with these letters, with any text after them. For
// their complement, it reports whether they are a word.
func (o *openings) leads(word uint64) bool {
	hash := word * spread >> 48
	return o.paths[hash>>6]>>(hash&63)&1 != 0
}

func (o *openings) addPath(word uint64) {
	hash := word * spread >> 48
	o.paths[hash>>6] |= 1 << (hash & 63)
}

func ofPair(first, second uint64) uint64 {
	return (bits.RotateLeft64(first*spread, 32) ^ second) * spread >> 49
}

func (o *openings) pair(first, second uint64) bool {
	hash := ofPair(first, second)
	return o.pairs[hash>>6]>>(hash&63)&1 != 0
}

func (o *openings) addPair(first, second uint64) {
	hash := ofPair(first, second)
	o.pairs[hash>>6] |= 1 << (hash & 63)
}

// keyOf returns the key of a word of letters in lower case.
func keyOf(word string) uint64 {
	_, small, _ := run(eightFrom(word, 0))
	return folded(small)
}

func (d *Detector) learnOpenings() {
	for _, k := range keywords {
		d.seconds[letterOf(k.name[0])] |= 1 << (k.name[1] & 31)
	}
	d.words.each(func(word string, whole, keyword bool) {
		d.openings.addPath(keyOf(word))
		if whole {
			d.openings.addPath(^keyOf(word))
		}
		if whole || keyword && len(word) > 1 {
			d.openings.add(keyOf(word), opensWord)
		}
	})
	d.cues.each(func(cue string, whole, _ bool) {
		d.openings.addPath(keyOf(cue))
		if !whole {
			return
		}
		first, rest, more := strings.Cut(cue, " ")
		switch {
		case strings.Contains(first, "'"):
			// A word before an apostrophe is not looked up.
		case more:
			d.openings.add(keyOf(first), opensPair)
			d.openings.addPair(keyOf(first), keyOf(rest))
		default:
			d.learnFollowers(first)
		}
	})
}

// learnFollowers learns the words that can follow a cue of one word.
func (d *Detector) learnFollowers(first string) {
	symbols := make([]glyph, len(first))
	for i := range symbols {
		symbols[i] = letterOf(first[i])
	}
	what, after := uint64(opensCueBefore), ""
	end := d.cues.nodes[d.cues.steps(symbols)].end
	switch d.phrases[end-1].then {
	case aPresent:
		after = lists[presents] + fillers
	case aDeedUnsaid:
		after = lists[unsaid] + " " + lists[presents] + " " + lists[comings] + " be" + fillers
		if first == "ill" {
			after += " work " + strings.Join(slices.Collect(maps.Keys(d.verbs)), " ")
		}
	case aDoneNow:
		after = "been already" + fillers
		for _, row := range termLists {
			if row.term&(settled|finished) != 0 {
				after += " " + row.words
			}
		}
	case anOrder:
		after = "my our"
	case aTimeBefore:
		after = lists[fitting]
	case aSealing:
		after = lists[sealing] + " " + lists[auxiliary] + " " + amidSealing
	case aDoneAlone, aYesBare, aYesAlone, aChoice:
		// They end their clause.
	default:
		what = opensCue
	}
	d.openings.add(keyOf(first), what)
	for word := range strings.FieldsSeq(after) {
		d.openings.addPair(keyOf(first), keyOf(word))
	}
}

// each visits the contents of a trie: every beginning, whether it is whole, and whether a keyword
// begins with it.
func (t *trie) each(yes func(word string, whole, keyword bool)) {
	var from func(node uint16, word []byte)
	from = func(node uint16, word []byte) {
		n := &t.nodes[node]
		if len(word) > 0 {
			yes(string(word), n.end != 0, n.keyword())
		}
		for sym := glyph(1); sym <= symGap; sym++ {
			if next := t.step(node, sym); next != 0 {
				from(next, append(word, symbolSpelled[sym]))
			}
		}
	}
	from(0, nil)
}

const symbolSpelled = "\x00abcdefghijklmnopqrstuvwxyz' "

// closes are the signs that end a clause, one bit each.
const closes uint64 = 1<<'.' | 1<<',' | 1<<'?' | 1<<'!' | 1<<':' | 1<<';' | 1<<')'

func closing(c byte) bool { return c < 64 && (closes|1<<' '|1<<'\n')>>c&1 != 0 }

// pass goes from the word at pos, which follows no letter, to the first word that is not ordinary,
// or with which something begins. It returns the position, the kinds of text that may begin there,
// and whether they are known. Text other than a word stops it too: nothing begins there, and it is
// not known.
func (d *Detector) pass(s string, pos int, into *gathering) (at int, what uint64, known bool) {
	for pos < len(s) && plainLetter[s[pos]] != 0 {
		letters, small, capitals := run(eightFrom(s, pos))
		if capitals {
			return pos, wordBegins | cueBegins, false
		}
		end := pos + letters
		if letters == 8 {
			end = lowers(s, end)
		}
		var behind, then byte = ' ', ' '
		if end+1 < len(s) {
			behind, then = s[end], s[end+1]
		} else if end < len(s) {
			behind = s[end]
		}
		word := folded(small)
		opens := d.openings.of(word)
		next := end + 1
		switch {
		case behind == ' ':
			if opens&(opensCue|opensCueBefore|opensPair) != 0 && (opens&opensCue != 0 || d.openings.goesOn(s, next, word, opens)) {
				what = cueBegins
			}
			if letters == 1 && (then-'a' >= 26 || end+2 >= len(s) || s[end+2]-'a' >= 26 || d.seconds[plainLetter[s[pos]]%symbols]>>(then&31)&1 != 0 && (s[pos]|0x20 != 'a' || then == s[end+2])) {
				return pos, wordBegins | cueBegins, false // letter by letter, or a piece of one
			}
		case behind >= utf8.RuneSelf && !d.openings.leads(d.atlas.lettersOf(s, pos)):
			return pos, 0, true
		case letters == 1:
			return pos, wordBegins | cueBegins, false
		case behind == '\n':
			if opens&(opensCue|opensCueBefore|opensPair) != 0 {
				what = cueBegins
			}
		case behind < 64 && closes>>behind&1 != 0 && (then == ' ' || then == '\n'):
			next++
			if opens&(opensCue|opensCueBefore) != 0 {
				what = cueBegins
			}
		case d.openings.leads(word):
			return pos, wordBegins | cueBegins, false
		case behind == '+' || d.atlas.ascii[behind&0x7f] != other && d.atlas.ascii[behind&0x7f] != blank || behind >= utf8.RuneSelf:
			return pos, 0, true
		default:
			opens, next = 0, end+1
		}
		if opens&opensWord != 0 && (letters == 8 || then|0x20-'a' >= 26 || behind != ' ' || d.openings.leads(^word) || d.openings.leads(folded(small|uint64(then|0x20)<<(8*letters)))) {
			what |= wordBegins
		}
		if what != 0 {
			return pos, what, true
		}
		if letters > shortestLiteral {
			among := uint32(0)
			for w := small; w != 0; w >>= 16 {
				among |= anchors[w<<5&(31<<5)|w>>8&31]
			}
			if among != 0 {
				glued(s, pos, end, into)
			} else if letters == 8 {
				glued(s, pos+7, end, into)
			}
		}
		pos = next
	}
	return min(pos, len(s)), 0, false
}

// lettersOf returns the first letters at pos, at most eight, without their accents.
func (a *atlas) lettersOf(s string, pos int) (word uint64) {
	for n := 0; n < 8 && pos < len(s); n++ {
		g, width := plainLetter[s[pos]], 1
		if g == 0 {
			if g, _, width = a.at(s, pos); !g.isLetter() {
				break
			}
		} else if n > 0 && capital(s[pos]) {
			break // another word can begin here
		}
		word |= uint64('a'-1+g) << (8 * n)
		pos += width
	}
	return folded(word)
}

// goesOn reports whether a cue may continue after its first word with the text at pos, which
// follows a blank.
func (o *openings) goesOn(s string, pos int, first, opens uint64) bool {
	if pos >= len(s) {
		return true
	}
	if c := s[pos]; plainLetter[c] == 0 {
		return opens&opensCueBefore != 0 || c-'0' >= 10 && c != '(' && c != '-'
	}
	letters, small, _ := run(eightFrom(s, pos))
	end := pos + letters
	if opens&opensCueBefore != 0 {
		// Adverbs are skipped.
		if letters == 8 {
			end = lowers(s, end)
		}
		if s[end-1]|0x20 == 'y' && s[end-2]|0x20 == 'l' || end < len(s) && !closing(s[end]) {
			return true
		}
	} else if letters < 8 && end < len(s) && !closing(s[end]) {
		return true
	}
	return o.pair(first, folded(small))
}
