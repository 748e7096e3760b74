package content

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// view is a text in the form for the rules: characters that show as ASCII are ASCII. All other
// characters stay. Rules take their bytes for punctuation, because scripts that are written without
// spaces stand directly beside a token.
type view struct {
	text     string
	original string
	segments segments
	// has are the traits of text, and possibly some more.
	has traits
	// unshown is set if some character of the text is invisible.
	unshown bool
}

// segments map offsets in a text to offsets in its original, both in ascending order. Between two
// of them the offsets run in step. Nil means that nothing was changed.
type segments []segment

type segment struct{ at, original int }

// mark maps offset at to that of the original from here on.
func (s *segments) mark(at, original int) {
	if n := len(*s); n > 0 && (*s)[n-1].at == at {
		(*s)[n-1].original = original
		return
	}
	if n := len(*s); n == cap(*s) {
		// The capacity doubles each time: append would copy a text that hides something after every
		// letter five times over.
		*s = slices.Grow(*s, max(n, 8))
	}
	*s = append(*s, segment{at, original})
}

// of returns the original position of the byte at an offset.
func (s segments) of(at int) int {
	i, exact := slices.BinarySearchFunc(s, at, func(s segment, at int) int { return cmp.Compare(s.at, at) })
	if !exact {
		i--
	}
	return s[i].original + at - s[i].at
}

// look makes the view of a text with these traits. It does not copy plain ASCII, the usual case.
func look(s string, has traits) view {
	v := view{text: s, original: s, has: has}
	if has&traitOdd == 0 {
		return v
	}
	var b strings.Builder
	copied := 0
	for i := odd(s); i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if traitsOfByte[c]&traitOdd != 0 { // a control character
				v.unshown = true
				i++
			}
			i += odd(s[i:])
			continue
		}
		if n := text.Usual(s, i); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		shown, other := fold(r)
		if !other {
			v.unshown = v.unshown || !text.Shows(r)
			i += size
			continue
		}
		if v.segments == nil {
			b.Grow(len(s))
			v.segments.mark(0, 0)
		}
		b.WriteString(s[copied:i])
		v.segments.mark(b.Len(), i)
		b.WriteByte(shown)
		v.has |= traitsOfByte[shown]
		i += size
		copied = i
		v.segments.mark(b.Len(), i)
	}
	if v.segments != nil {
		b.WriteString(s[copied:])
		v.text = b.String()
	}
	return v
}

// restore turns spans of the view into spans of the original.
func (v *view) restore(found []Finding) {
	if v.segments == nil {
		return
	}
	for i := range found {
		f := &found[i]
		f.Start, f.End = v.segments.of(f.Start), v.segments.of(f.End)
	}
}

// fold returns the ASCII character as which a character beyond ASCII shows, if any. It knows only
// characters that are easy to type. It does not know look-alikes from other alphabets, since a
// credential with one of them no longer works.
func fold(r rune) (shown byte, other bool) {
	switch {
	case r < 0x2000:
		switch r {
		case 0x85:
			return '\n', true
		case 0xA0, 0x1680:
			return ' ', true
		}
	case r <= 0x206F:
		switch {
		case r <= 0x200A, r == 0x202F, r == 0x205F:
			return ' ', true
		case r >= 0x2010 && r <= 0x2015:
			return '-', true
		case r == 0x2018, r == 0x2019, r == 0x201B, r == 0x2032:
			return '\'', true
		case r >= 0x201C && r <= 0x201F, r == 0x2033:
			return '"', true
		case r == 0x2028, r == 0x2029:
			return '\n', true
		}
	case r == 0x2212:
		return '-', true
	case r == 0x3000:
		return ' ', true
	case r >= 0xFF01 && r <= 0xFF5E: // full-width forms
		return byte(r - 0xFF01 + '!'), true
	case r < 0x1D400: // most characters in texts, visible or not
	case !text.Shows(r): // nothing shows there
	case r >= 0x1D400 && r <= 0x1D6A3: // letters in mathematical styles
		n := byte((r - 0x1D400) % 52)
		if n < 26 {
			return 'A' + n, true
		}
		return 'a' + n - 26, true
	case r >= 0x1D7CE && r <= 0x1D7FF: // and digits
		return '0' + byte((r-0x1D7CE)%10), true
	}
	return 0, false
}
