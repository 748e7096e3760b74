package text

import (
	"strings"
	"unicode/utf8"
)

// MaxSequence bounds, in bytes, the search for the end of a terminal sequence, so that the time for
// a text full of beginnings stays linear in its length.
const MaxSequence = 256

// Sequence returns the length in bytes of the terminal sequence (ECMA-48) at the start of a text, 0
// if there is none. Of a sequence without an end only the introducer counts, so that it takes no
// text away.
func Sequence(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	var kind byte
	switch {
	case r == 0x1b && len(s) > 1:
		kind = s[1]
		size = 2
	case 0x80 <= r && r <= 0x9f && r != 0x85:
		kind = byte(r) - 0x40 // equivalent to ESC and this byte
	default:
		return 0
	}
	rest := s[size:min(len(s), size+MaxSequence)]
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
	for i := 1; i < min(len(s), MaxSequence); i++ {
		switch c := s[i]; {
		case 0x30 <= c && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x7e:
			return 1
		}
	}
	return 1
}
