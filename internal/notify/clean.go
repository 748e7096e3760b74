package notify

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxMarks bounds the marks on one letter: more of them paint over the
	// lines above and below. Scripts in use need fewer.
	maxMarks = 4
	// maxSequence bounds, in bytes, how far the end of a terminal sequence is
	// looked for, so that text full of beginnings costs no more than its length.
	maxSequence = 256
)

// clean returns text as it may be shown on a screen, in a mail or on a
// terminal, in at most limit characters. Terminal sequences, control
// characters, bidirectional controls and all else that does not show are
// removed, bytes that are no UTF-8 replaced. Runs of spaces become one. Line
// ends are kept where lines is true, two in a row at most, and become spaces
// otherwise. What is cut off is shown as "…".
func clean(text string, limit int, lines bool) string {
	var b strings.Builder
	var ends, marks, length int // length and ends of b, in characters
	var space bool
	cut := 0 // how much of b stays, in bytes, where the text is too long
	put := func(r rune) {
		if length++; length == limit {
			cut = b.Len()
		}
		b.WriteRune(r)
	}
	for i := 0; i < len(text) && length <= limit; {
		if n := sequence(text[i:]); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case r == '\r' && strings.HasPrefix(text[i:], "\n"):
		case lineEnd(r) && lines:
			ends++
		case lineEnd(r), r == '\t', unicode.Is(unicode.Zs, r):
			space = true
		case hidden(r):
		default:
			if unicode.Is(unicode.M, r) {
				if marks++; marks > maxMarks {
					continue
				}
			} else {
				marks = 0
			}
			switch {
			case b.Len() == 0: // nothing to keep apart
			case ends > 0:
				for range min(ends, 2) {
					put('\n')
				}
			case space:
				put(' ')
			}
			ends, space = 0, false
			put(r)
		}
	}
	if length <= limit {
		return b.String()
	}
	return strings.TrimRight(b.String()[:cut], " \n") + "…"
}

// lineEnd reports whether a character ends a line somewhere.
func lineEnd(r rune) bool {
	switch r {
	case '\n', '\v', '\f', '\r', '\u0085', '\u2028', '\u2029':
		return true
	}
	return false
}

// hidden reports whether a character does not show as itself: controls,
// bidirectional and other format characters, private and unassigned ones, and
// letters that are blank. The two selectors that choose between the forms of
// an emoji show.
func hidden(r rune) bool {
	if r == '\ufe0e' || r == '\ufe0f' {
		return false
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// sequence returns the length in bytes of the terminal sequence (ECMA-48) that
// text begins with, 0 if it begins with none. Of a sequence that has no end
// only the introducer counts, so that it takes no text away.
func sequence(text string) int {
	r, size := utf8.DecodeRuneInString(text)
	var kind byte
	switch {
	case r == 0x1b && len(text) > 1:
		kind = text[1]
		size = 2
	case 0x80 <= r && r <= 0x9f && !lineEnd(r):
		kind = byte(r) - 0x40 // the same as ESC and this byte
	default:
		return 0
	}
	rest := text[size:min(len(text), size+maxSequence)]
	switch kind {
	case '[': // CSI: parameters, then one final byte
		for i := range len(rest) {
			switch c := rest[i]; {
			case 0x40 <= c && c <= 0x7e:
				return size + i + 1
			case c < 0x20 || c > 0x7e:
				return size
			}
		}
		return size
	case ']', 'P', 'X', '^', '_': // a string, up to BEL or ST
		for i := 0; i < len(rest); i++ {
			switch {
			case rest[i] == '\a':
				return size + i + 1
			case strings.HasPrefix(rest[i:], "\x1b\\"), strings.HasPrefix(rest[i:], "\u009c"):
				return size + i + 2
			case rest[i] == '\n' || rest[i] == '\r':
				return size
			}
		}
		return size
	}
	if r != 0x1b {
		return size // a control of its own
	}
	for i := 1; i < min(len(text), maxSequence); i++ {
		switch c := text[i]; {
		case 0x30 <= c && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x7e:
			return 1
		}
	}
	return 1
}
