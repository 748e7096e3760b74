package commitment

import (
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// What is disguised is looked at once more, as a reader reads it. Single words are found
// in disguise as they are; what stands around a cue, and letters that are glued to
// others, are not.

// vicinity is how far what is concealed is looked at with what stands about it, and
// mostPlaces how many places are told apart.
const (
	vicinity   = maxSentence
	mostPlaces = 32
)

// stretch is a part of a text.
type stretch struct{ start, end int }

// conceal notes that something is concealed at pos.
func (g *gathering) conceal(pos int) {
	if n := len(g.concealed); n == mostPlaces || n > 0 && pos-vicinity <= g.concealed[n-1].end {
		g.concealed[n-1].end = pos + vicinity
		return
	}
	g.concealed = append(g.concealed, stretch{pos - vicinity, pos + vicinity})
}

// plainly is what stands about the places of a text where something is concealed, with
// the letters, blanks and signs that are written in other ways as people write them.
func (d *Detector) plainly(v text.View, places []stretch) text.View {
	const leftOut = " \u2026 " // which neither opens a sentence nor closes one
	return v.Rewrite(func(s string, at int) (width int, with string, stays bool) {
		for len(places) > 0 && at >= places[0].end && s[at] <= ' ' {
			places = places[1:]
		}
		if len(places) == 0 {
			return len(s) - at, leftOut, false
		}
		if skip := places[0].start - at; skip > 0 && s[at] <= ' ' {
			// Up to a blank, so that no word is cut.
			if next := strings.IndexAny(s[at+skip:], " \n"); next >= 0 && next < vicinity {
				skip += next
			}
			return skip, leftOut, false
		}
		c := s[at]
		if c < utf8.RuneSelf && d.atlas.ascii[c] != opening {
			if c == '+' && at > 0 && at+1 < len(s) && (wordByte(s[at-1]) || closing(s[at-1])) && (wordByte(s[at+1]) || s[at+1] == '%') {
				return 1, " ", false // of a form
			}
			return 1, "", d.atlas.ascii[c] != unseen
		}
		g, r, width := d.atlas.at(s, at)
		switch {
		case g == seam && at+width < len(s) && s[at+width] < utf8.RuneSelf:
			return width + 1, "", false // with its last letter
		case g == unseen || g == seam:
			return width, "", false
		case c == '\\' && width == 1:
			return unescaped(s, at)
		case g == blank && r != '\n':
			return width, " ", r == ' ' && width == 1
		case r < utf8.RuneSelf:
			return width, string(r), width == 1
		case r < firstFar:
			return width, "", true // as it is read by the lists of languages
		}
		if c, ok := text.Reads(r); ok && c != 0 {
			return width, string(rune(c)), false
		}
		return width, "", true
	})
}

// firstFar is the first character that is no letter of ours with an accent.
const firstFar = 0x250

// unescaped reads what a stroke is before: strokes and the end of a line.
func unescaped(s string, at int) (width int, with string, stays bool) {
	end := at + len(s[at:]) - len(strings.TrimLeft(s[at:], `\`))
	if end < len(s) {
		switch s[end] {
		case 'n':
			return end + 1 - at, "\n", false
		case 'r', 't':
			return end + 1 - at, " ", false
		case '"', '\'':
			return end - at, "", false
		}
	}
	return end - at, "", true
}

// conceals reports whether a character that is not of ASCII, or is written as an
// escape, hides what stands about it, at pos in so many bytes: letters in a word of
// others, and whatever shows as something else.
func conceals(s string, pos, width int, g glyph, r rune) bool {
	written := s[pos] < utf8.RuneSelf // as an escape
	switch {
	case g == blank:
		// Cues go on behind any. Sums do not.
		return r != '\n' && pos+width < len(s) && (s[pos+width] == '$' || s[pos+width]-'0' < 10)
	case written && r < utf8.RuneSelf:
		// Strokes, quotes and brackets are escaped where they must be.
		return g.isLetter() || r-'0' < 10 || r == '$' || r == '\'' && s[pos] == '%' || g == unseen
	case g == unseen:
		return r != joiner && r != asPicture
	case r < firstUnread:
		return false
	case r < farLetters: // of other alphabets
		return g.isLetter() && (written || pos > 0 && plainLetter[s[pos-1]] != 0 || pos+width < len(s) && plainLetter[s[pos+width]] != 0)
	case g.isLetter(), g == figure, g&marks == markDigit:
		return true
	}
	return r == wideDollar
}

const (
	joiner     = 0x200d
	asPicture  = 0xfe0f
	farLetters = 0x1c80
	wideDollar = 0xff04 // other signs of full width are what Chinese and Japanese have
)

// form reports whether the sign at pos stands for a blank, as in a form that was sent:
// not in what is asked of a page, nor in a sum of two.
func form(s string, pos int) bool {
	if pos == 0 || pos+1 == len(s) || plainLetter[s[pos-1]] == 0 || plainLetter[s[pos+1]] == 0 {
		return false
	}
	from := pos
	for from > 0 && pos-from < maxSentence && s[from-1] > ' ' {
		from--
		if strings.IndexByte("=&?/", s[from]) >= 0 {
			return false
		}
	}
	return true
}
