package content

import (
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Most texts contain none of these bytes, so texts are checked eight bytes at a time.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// traits are properties that some byte of a text has. A rule is skipped if no byte has the property
// that it needs.
type traits uint8

const (
	traitOdd    traits = 1 << iota // no ASCII that shows or ends a line
	traitDigit                     // a digit
	traitPerson                    // a character of an address or a phone number
	traitEscape                    // one of [escapeSigns]
	traitMark                      // one of [disguiseSigns]
)

var traitsOfByte = func() (table [256]traits) {
	for c := range table {
		switch {
		case (c < ' ' || c >= 0x7f) && c != '\n' && c != '\r' && c != '\t':
			table[c] = traitOdd
		case kindOf(byte(c)).in(digit):
			table[c] = traitDigit
		case c == '@' || c == '+':
			table[c] = traitPerson
		case strings.IndexByte(escapeSigns, byte(c)) >= 0:
			table[c] = traitEscape
		}
		if strings.IndexByte(disguiseSigns, byte(c)) >= 0 {
			table[c] |= traitMark
		}
	}
	return table
}()

func traitsOf(s string) (t traits) {
	for ; len(s) >= 8; s = s[8:] {
		t |= traitsOfByte[s[0]] | traitsOfByte[s[1]] | traitsOfByte[s[2]] | traitsOfByte[s[3]] |
			traitsOfByte[s[4]] | traitsOfByte[s[5]] | traitsOfByte[s[6]] | traitsOfByte[s[7]]
	}
	for i := range len(s) {
		t |= traitsOfByte[s[i]]
	}
	return t
}

// equal sets the highest bit of each byte that is c.
func equal(w uint64, c byte) uint64 {
	t := w ^ uint64(c)*ones
	return ^((t&^highs + 0x7f*ones) | t) & highs
}

// odd returns the position of the first byte that is not ASCII that shows or ends a line, or the
// length of the text.
func odd(s string) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := text.Eight(s[i:])
		del := w ^ 0x7f*ones
		if (w|(w-' '*ones)|(del-ones)&^del)&highs == 0 {
			continue
		}
		low := ^(w&^highs + 0x60*ones) & highs // below the blank
		if w&highs|equal(w, 0x7f)|low&^(equal(w, '\n')|equal(w, '\r')|equal(w, '\t')) != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; (c < ' ' || c >= 0x7f) && c != '\n' && c != '\r' && c != '\t' {
			break
		}
	}
	return i
}

// nextDigit returns the position of the next digit, or the length of the text.
func nextDigit(s string, i int) int {
	for i < len(s) {
		if i+8 <= len(s) {
			if w := text.Eight(s[i:]) ^ '0'*ones; (w-10*ones)&^w&highs == 0 {
				i += 8
				continue
			}
		}
		for end := min(i+8, len(s)); i < end; i++ {
			if c := s[i]; '0' <= c && c <= '9' {
				return i
			}
		}
	}
	return i
}
