package content

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/text"
)

// view is a text as the rules see it: forms that show as ASCII are ASCII. All
// other characters stay as
// they are; rules take their bytes for punctuation, because scripts that are
// written without spaces stand directly beside a token.
type view struct {
	text     string
	original string
	// segments map offsets in text to offsets in original, in both orders
	// ascending. Between two of them the offsets run in step. Nil means that
	// nothing was changed.
	segments []segment
	// has are the traits of text.
	has traits
}

type segment struct{ at, original int }

// look makes the view of a text with these traits. Plain ASCII, the usual case, is
// not copied.
func look(s string, has traits) view {
	v := view{text: s, original: s, has: has}
	if has&traitOdd == 0 {
		return v
	}
	i := odd(s)
	var b strings.Builder
	copied := 0
	mark := func(original int) {
		if n := len(v.segments); n > 0 && v.segments[n-1].at == b.Len() {
			v.segments[n-1].original = original
			return
		}
		if n := len(v.segments); n == cap(v.segments) {
			// Twice as many each time: append would copy a text that hides
			// something behind every letter five times over.
			v.segments = slices.Grow(v.segments, max(n, 8))
		}
		v.segments = append(v.segments, segment{b.Len(), original})
	}
	for i < len(s) {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		if n := text.Usual(s, i); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		shown, other := fold(r)
		if !other {
			i += size
			continue
		}
		if v.segments == nil {
			b.Grow(len(s))
			mark(0)
		}
		b.WriteString(s[copied:i])
		mark(i)
		b.WriteByte(shown)
		i += size
		copied = i
		mark(i)
	}
	if v.segments != nil {
		b.WriteString(s[copied:])
		v.text = b.String()
		v.has = traitsOf(v.text)
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
		last := v.offset(f.End - 1)
		size := 1
		if v.text[f.End-1] < utf8.RuneSelf {
			_, size = utf8.DecodeRuneInString(v.original[last:])
		}
		f.Start, f.End = v.offset(f.Start), last+size
	}
}

func (v *view) offset(at int) int {
	i, exact := slices.BinarySearchFunc(v.segments, at, func(s segment, at int) int { return cmp.Compare(s.at, at) })
	if !exact {
		i--
	}
	return v.segments[i].original + at - v.segments[i].at
}

// fold says which ASCII character a character beyond ASCII shows as, if one.
// Only what costs an author nothing to type is looked through; look-alikes from
// other alphabets are not, since a credential with one of them in it no longer
// works.
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
	case r < 0x1D400: // most of what people write, whether it is drawn or not
	case !text.Shows(r): // nothing is drawn there
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
