package commitment

import "strings"

// maxGap bounds the white space and markup between two words of a cue.
const maxGap = 8

// reader reads text as the symbols of the cue trie.
type reader struct {
	a    *atlas
	text string
	pos  int
}

// symbol reads one symbol: a letter, an apostrophe inside a word, the gap between words, or 0 for
// anything else and the end.
func (r *reader) symbol() glyph {
	// Most text is plain letters, and single spaces.
	if r.pos+1 < len(r.text) {
		c := r.text[r.pos]
		if g := plainLetter[c]; g != 0 {
			r.pos++
			return g
		}
		if c == ' ' && plainLetter[r.text[r.pos+1]] != 0 {
			r.pos++
			return symGap
		}
	}
	var gap, blanks, lines int
	for r.pos < len(r.text) {
		g, c, width := r.a.at(r.text, r.pos)
		switch {
		case g == unseen, g == seam:
		case g == blank:
			if c == '\n' {
				// No cue continues in the next paragraph.
				if lines++; lines > 1 {
					return 0
				}
			}
			blanks++
			gap++
		case isMarkup(c), pictured(c):
			gap++
		case gap > 0:
			if blanks > 0 {
				return symGap
			}
			// Markup with no space beside it, as in "I'**ll**".
			gap = 0
			continue
		case g.isLetter():
			r.pos += width
			return g
		case strings.ContainsRune("'\u2019\u02bc\uff07`\u00b4\u2018\u201b\u2032", c):
			r.pos += width
			return symApostrophe
		default:
			return 0
		}
		if gap > maxGap {
			return 0
		}
		r.pos += width
	}
	return 0
}

// pictured reports an emoji, which is no word of a cue.
func pictured(c rune) bool { return c >= 0x2600 && c < 0x2800 || c >= 0x1f300 && c < 0x1fb00 }

func isMarkup(c rune) bool { return c == '*' || c == '_' || c == '~' || c == '"' }

// maxWord bounds the length of a word in a cue. Longer words are in no list.
const maxWord = 20

// word is a word of the text in plain lower case, without apostrophes.
type word struct {
	letters [maxWord]byte
	n       int
}

func (w *word) is(s string) bool { return string(w.letters[:w.n]) == s }

func (w *word) endsIn(s string) bool { return w.n > len(s) && string(w.letters[w.n-len(s):w.n]) == s }

// word reads the next word, across one gap. Its length is 0 if something other than a word comes
// next.
func (r *reader) word() (w word) {
	for {
		before := r.pos
		switch sym := r.symbol(); {
		case sym == symGap && w.n == 0:
		case sym == symApostrophe:
		case sym == 0 || sym == symGap:
			r.pos = before
			return w
		default:
			if w.n < maxWord {
				w.letters[w.n] = byte(sym) - 1 + 'a'
			}
			w.n = min(w.n+1, maxWord)
		}
	}
}
