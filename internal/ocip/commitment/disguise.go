package commitment

import (
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Disguised text is scanned once more, as a reader reads it. The first scan finds single words in
// disguise, but not cues next to a disguise, and not letters that are glued to others.

// vicinity bounds the text around a disguise that is scanned, and mostPlaces the number of separate
// places.
const (
	vicinity   = maxSentence
	mostPlaces = 32
)

// stretch is a part of a text.
type stretch struct{ start, end int }

// conceal notes a disguise at pos.
func (g *gathering) conceal(pos int) {
	if n := len(g.concealed); n == mostPlaces || n > 0 && pos-vicinity <= g.concealed[n-1].end {
		g.concealed[n-1].end = pos + vicinity
		return
	}
	g.concealed = append(g.concealed, stretch{pos - vicinity, pos + vicinity})
}

// plainly returns the text around the disguised places, with letters, blanks and signs in the usual
// spelling.
func (d *Detector) plainly(v text.View, places []stretch) text.View {
	const leftOut = " \u2026 " // it neither opens a sentence nor closes one
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
				return 1, " ", false // in a form
			}
			return 1, "", d.atlas.ascii[c] != unseen
		}
		g, r, width := d.atlas.at(s, at)
		switch {
		case g == seam && at+width < len(s) && s[at+width] < utf8.RuneSelf:
			return width + 1, "", false // including its last letter
		case g == unseen || g == seam:
			return width, "", false
		case c == '\\' && width == 1:
			return unescaped(s, at)
		case g == blank && r != '\n':
			return width, " ", r == ' ' && width == 1
		case r < utf8.RuneSelf:
			return width, string(r), width == 1
		case r < firstFar:
			return width, "", true // the lists of languages read it unchanged
		}
		if c, ok := text.Reads(r); ok && c != 0 {
			return width, string(rune(c)), false
		}
		return width, "", true
	})
}

// firstFar is the first character that is not an accented Latin letter.
const firstFar = 0x250

// unescaped reads backslashes that escape the end of a line, a blank or a quote.
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

// conceals reports whether a character at pos hides the text around it. The character has that many
// bytes, is not ASCII or is written as an escape. Letters in a word of others hide it, and
// characters that show as something else.
func conceals(s string, pos, width int, g glyph, r rune) bool {
	written := s[pos] < utf8.RuneSelf // as an escape
	switch {
	case g == blank:
		// Cues continue after any escape. Sums do not.
		return r != '\n' && pos+width < len(s) && (s[pos+width] == '$' || s[pos+width]-'0' < 10)
	case written && r < utf8.RuneSelf:
		// Backslashes, quotes and brackets are escaped where necessary.
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
	wideDollar = 0xff04 // Chinese and Japanese use other full-width signs
)

// form reports whether the sign at pos stands for a blank, as in a submitted form, and not in a
// query or a sum.
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
