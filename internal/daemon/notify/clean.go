package notify

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// clean returns a text as it may be shown on a screen, in a mail or on a
// terminal, in at most limit characters. Terminal sequences, control
// characters, bidirectional controls and all else that does not show are
// removed, bytes that are no UTF-8 replaced. Runs of spaces become one. Line
// ends are kept where lines is true, two in a row at most, and become spaces
// otherwise. What is cut off is shown as "…".
func clean(s string, limit int, lines bool) string {
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
	for i := 0; i < len(s) && length <= limit; {
		if n := text.Sequence(s[i:]); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\r' && strings.HasPrefix(s[i:], "\n"):
		case lineEnd(r) && lines:
			ends++
		case lineEnd(r), r == '\t', unicode.Is(unicode.Zs, r):
			space = true
		case r != utf8.RuneError && !text.Shows(r): // U+FFFD is the sign for what was lost
		default:
			if text.IsMark(r) {
				if marks++; marks > text.MaxMarks {
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
