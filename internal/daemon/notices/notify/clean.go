package notify

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// clean makes a text safe for a screen, a mail or a terminal, in at most limit characters. It
// removes terminal sequences, control characters, bidirectional controls and all other invisible
// characters, and replaces bytes that are not UTF-8. Runs of spaces become one. Line ends become
// spaces, unless lines is true, which keeps up to two in a row. A cut is shown as "…".
func clean(s string, limit int, lines bool) string {
	var b strings.Builder
	var ends, marks, length int // length and ends of b, in characters
	var space bool
	cut := 0 // how many bytes of b remain if the text is too long
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
		case r != utf8.RuneError && !text.Shows(r): // U+FFFD stands for lost bytes
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

// lineEnd reports whether some program ends a line at a character.
func lineEnd(r rune) bool {
	switch r {
	case '\n', '\v', '\f', '\r', '\u0085', '\u2028', '\u2029':
		return true
	}
	return false
}
