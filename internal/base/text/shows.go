package text

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Shows reports whether a character shows as itself to a person. These do not: controls, which
// steer the terminal or end the line; characters that turn the direction of writing; characters
// that take no room; fillers and blanks that are letters by name; variation selectors; tags;
// unusual blanks, which a reader cannot tell apart; private and unassigned characters; and U+FFFD,
// which stands for lost text. The space and the wide space of East Asian text show.
func Shows(r rune) bool {
	switch {
	case ' ' <= r && r < 0x7f:
		return true
	case r < 0xa0:
		return false
	case r < tableEnd:
		return table()[r>>6]>>(r&63)&1 != 0
	}
	return shows(r)
}

// tableEnd is the end of the table: only ideographs and the tags come after it.
const tableEnd = 0x20000

// table is [shows] for the characters that occur in texts, one bit each. It is made once a process,
// range by range: calling shows for each character would take a tenth of the time that a daemon
// needs to start.
var table = sync.OnceValue(func() *[tableEnd / 64]uint64 {
	drawn := new([tableEnd / 64]uint64)
	draw := func(from, to, stride uint32, show bool) {
		for r := from; r <= min(to, tableEnd-1); r += stride {
			if show {
				drawn[r>>6] |= 1 << (r & 63)
			} else {
				drawn[r>>6] &^= 1 << (r & 63)
			}
		}
	}
	drawAll := func(ranges []*unicode.RangeTable, show bool) {
		for _, t := range ranges {
			for _, r := range t.R16 {
				draw(uint32(r.Lo), uint32(r.Hi), uint32(r.Stride), show)
			}
			for _, r := range t.R32 {
				draw(r.Lo, r.Hi, r.Stride, show)
			}
		}
	}
	drawAll(unicode.PrintRanges, true)
	drawAll(ignored, false)
	for _, r := range alone {
		draw(uint32(r), uint32(r), 1, shows(r))
	}
	return drawn
})

// ignored lists printable categories that show nothing.
var ignored = []*unicode.RangeTable{unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector}

// alone lists the characters that shows names individually.
const alone = blanks + fillers + "\ufffd"

const (
	blanks  = " \u3000"
	fillers = "\u2800" + // a letter of Braille with no dots
		"\U00013441\U00013442" + // blanks between hieroglyphs
		"\U00016fe4" + // a filler of the Khitan script
		"\U0001d159" // a note with no head
)

func shows(r rune) bool {
	switch {
	case strings.ContainsRune(blanks, r):
		return true
	case r == utf8.RuneError, strings.ContainsRune(fillers, r):
		return false
	}
	return unicode.IsPrint(r) && !unicode.In(r, ignored...)
}

// Usual returns the length of the character at i if it is one of those beyond ASCII that most texts
// use: Latin and Cyrillic letters, ideographs, kana and the stops between them, and Korean
// syllables. All of them show, and none is another way to write ASCII. It returns 0 for characters
// that need a closer look.
func Usual(s string, i int) int {
	switch c := s[i]; {
	case c >= 0xc3 && c <= 0xc9 || c == 0xd0 || c == 0xd1:
		if i+1 < len(s) && s[i+1]&0xc0 == 0x80 {
			return 2
		}
	case c >= 0xe4 && c <= 0xe9 || c == 0xeb || c == 0xec:
		if i+2 < len(s) && s[i+1]&0xc0 == 0x80 && s[i+2]&0xc0 == 0x80 && (c > 0xe4 || s[i+1] >= 0xb8) {
			return 3
		}
	case c == 0xe3:
		if i+2 < len(s) && s[i+1]&0xc0 == 0x80 && s[i+2]&0xc0 == 0x80 {
			// After U+3000, the wide blank: stops and brackets, Hiragana, Katakana.
			if r := int(s[i+1]&0x3f)<<6 | int(s[i+2]&0x3f); r > 0 && r < 0x20 || r > 0x40 && r < 0x97 || r > 0xa0 && r < 0xff {
				return 3
			}
		}
	}
	return 0
}

// Showable reports whether every character of a text shows, and the text is
// UTF-8.
func Showable(s string) bool { return hidden(s) == len(s) }

// hidden returns the position of the first character that does not show, or the length of the text
// if all do. Bytes that are no UTF-8 are read as U+FFFD.
func hidden(s string) int {
	for i, r := range s {
		if !Shows(r) {
			return i
		}
	}
	return len(s)
}

// MaxMarks bounds the combining marks in a row that a character is shown with. Every script needs
// fewer; more of them would cover the lines around.
const MaxMarks = 4

// IsMark reports whether a character is written on the one before it.
func IsMark(r rune) bool {
	return r >= 0x300 && unicode.In(r, unicode.Mn, unicode.Me)
}

// Visible returns the text with invisible characters written out: ‹U+202E› for a character, ‹0xFF›
// for a byte that is no UTF-8. It also writes out the quotes ‹ and ›, so that a text cannot imitate
// such a name, and combining marks that stand on nothing or pile up.
func Visible(s string) string {
	var b strings.Builder
	marks, copied := MaxMarks, 0
	for at := 0; at < len(s); {
		r, size := utf8.DecodeRuneInString(s[at:])
		named := !Shows(r) || r == '‹' || r == '›'
		switch {
		case named:
		case IsMark(r):
			marks++
			named = marks > MaxMarks
		default:
			marks = 0
		}
		if named {
			marks = MaxMarks
			b.WriteString(s[copied:at])
			b.WriteString(Name(s[at : at+size]))
			copied = at + size
		}
		at += size
	}
	if copied == 0 {
		return s
	}
	b.WriteString(s[copied:])
	return b.String()
}

// Name returns the name of a character that does not show: its number in ‹›, or the byte if it is
// no UTF-8.
func Name(char string) string {
	r, size := utf8.DecodeRuneInString(char)
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf("‹0x%02X›", char[0])
	case r == '\t':
		return "‹tab›"
	}
	return fmt.Sprintf("‹U+%04X›", r)
}

// AppendJSON appends a JSON text that means the same: characters in strings that do not show become
// escapes, such as \u202e. Line ends and blanks between the members stay. Bytes that are no UTF-8,
// which valid JSON does not have, become the escape of U+FFFD.
func AppendJSON(out []byte, json string) []byte {
	copied, inside := 0, false
	for at := 0; at < len(json); {
		c := json[at]
		if c < utf8.RuneSelf {
			switch {
			case c == '\\' && inside && at+1 < len(json) && ' ' < json[at+1] && json[at+1] < 0x7f:
				at++
			case c == '"':
				inside = !inside
			case !Shows(rune(c)) && (inside || c != '\n' && c != '\r' && c != '\t'):
				out = appendEscape(append(out, json[copied:at]...), rune(c))
				copied = at + 1
			}
			at++
			continue
		}
		r, size := utf8.DecodeRuneInString(json[at:])
		if !Shows(r) {
			out = appendEscape(append(out, json[copied:at]...), r)
			copied = at + size
		}
		at += size
	}
	return append(out, json[copied:]...)
}

// EscapeJSON is [AppendJSON] for the text that begins at an index of a buffer. If all of it shows,
// it costs one scan.
func EscapeJSON(b []byte, from int) []byte {
	i := from
	// Eight bytes at a time: nearly every text is plain.
	for ; i+8 <= len(b); i += 8 {
		const every, high = 0x0101010101010101, 0x8080808080808080
		w := binary.NativeEndian.Uint64(b[i:])
		below, del := (w-' '*every)&^w, (w^0x7f*every-every)&^(w^0x7f*every)
		if (w|below|del)&high != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return AppendJSON(b[:from], string(b[from:]))
		}
	}
	return b
}

func appendEscape(out []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}
