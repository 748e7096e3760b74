package commitment

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
	"golang.org/x/text/unicode/norm"
)

// glyph is the appearance of a rune to a reader, with respect to words.
type glyph uint8

// A glyph is one of these, or a letter (1 for a to 26 for z), or carries a
// letter under one of the marks below.
const (
	other   glyph = 0  // punctuation, symbols, scripts without spaces: a boundary that can stand inside a disguised word
	blank   glyph = 27 // white space
	unseen  glyph = 28 // invisible: zero-width characters, accents, controls
	foreign glyph = 29 // a letter of a similar alphabet that looks like no Latin letter
	figure  glyph = 30 // a digit that looks like no letter
	seam    glyph = 31 // a terminal sequence except its last letter: invisible, and an end of words
)

const (
	markDigit    glyph = 0x40 // a digit that can stand for a letter: 0 for o
	markSign     glyph = 0x80 // punctuation that can stand for a letter: @ for a
	markLigature glyph = 0xc0 // more than one letter: an index into ligatures
	marks        glyph = 0xc0
	letterBits   glyph = 0x1f
)

// opening marks an ASCII character that may be the first of several that read as one character.
const opening = markSign

func letterOf(b byte) glyph { return glyph(b-'a') + 1 }

func (g glyph) isLetter() bool { return g-1 < 26 }

// wordly reports whether g continues a word: there is no word boundary beside it.
func (g glyph) wordly() bool { return g.isLetter() || g == foreign || g&marks == markLigature }

// ligatures are the runes that are read as several letters. Text copied from a PDF often contains
// them: "conﬁrm".
var ligatures = [...]struct {
	r       rune
	letters string
}{
	{'ﬀ', "ff"}, {'ﬁ', "fi"}, {'ﬂ', "fl"}, {'ﬃ', "ffi"}, {'ﬄ', "ffl"}, {'ﬅ', "st"}, {'ﬆ', "st"},
	{'æ', "ae"}, {'Æ', "ae"}, {'œ', "oe"}, {'Œ', "oe"}, {'ꜳ', "aa"}, {'ꝏ', "oo"}, {'Ꝏ', "oo"},
	{'ǆ', "dz"}, {'ĳ', "ij"}, {'ǉ', "lj"}, {'ǌ', "nj"}, {'ǳ', "dz"}, {'ʪ', "ls"}, {'ʣ', "dz"}, {'ʦ', "ts"},
}

// leet lists the digits and signs that stand for letters.
var leet = [...]struct {
	runes  string
	letter byte
	mark   glyph
}{
	{"0", 'o', markDigit}, {"1", 'i', markDigit}, {"3", 'e', markDigit}, {"4", 'a', markDigit},
	{"5", 's', markDigit}, {"7", 't', markDigit}, {"9", 'g', markDigit},
	{"@", 'a', markSign}, {"$", 's', markSign}, {"!¡|", 'i', markSign}, {"€", 'e', markSign}, {"£", 'l', markSign},
	{"○◯⭕°", 'o', markSign},
}

// atlas gives the appearance of a rune, by table.
type atlas struct {
	ascii [utf8.RuneSelf]glyph
	// near are the pages of runes with at most two bytes, and far the others. A page is computed
	// when a text first has a rune of it, since most processes need few of them.
	near    [8][256]glyph
	far     [atlasEnd >> 8]atomic.Pointer[[256]glyph]
	special map[rune]glyph
}

// atlasEnd is the end of the table: only ideographs and the tags, which are invisible, come after
// it.
const atlasEnd = 0x20000

// sharedAtlas is made once a process, and is the same for every detector.
var sharedAtlas = sync.OnceValue(func() *atlas {
	special := make(map[rune]glyph, 2048)
	for r, letter := range text.Letters() {
		special[r] = letterOf(letter)
	}
	for _, row := range leet {
		for _, r := range row.runes {
			special[r] = row.mark | letterOf(row.letter)
		}
	}
	for i, row := range ligatures {
		special[row.r] = markLigature | glyph(i)
	}
	a := &atlas{special: special}
	for page := range a.near {
		a.near[page] = *a.draw(page)
	}
	copy(a.ascii[:], a.near[0][:])
	a.ascii['&'], a.ascii['\\'], a.ascii['%'], a.ascii[esc] = opening, opening, opening, opening
	return a
})

// draw computes a page.
func (a *atlas) draw(page int) *[256]glyph {
	drawn := new([256]glyph)
	for i := range drawn {
		drawn[i] = look(rune(page<<8|i), a.special)
	}
	return drawn
}

// drawn returns the glyph of a rune below atlasEnd.
func (a *atlas) drawn(r rune) glyph {
	page := a.far[r>>8].Load()
	if page == nil {
		page = a.draw(int(r >> 8))
		a.far[r>>8].Store(page)
	}
	return page[r&0xff]
}

// look computes an entry of the table.
func look(r rune, special map[rune]glyph) glyph {
	switch {
	case r >= 'a' && r <= 'z':
		return letterOf(byte(r))
	case r >= 'A' && r <= 'Z':
		return letterOf(byte(r) + 'a' - 'A')
	case r >= 0x3400 && r <= 0xa48f, r >= 0xac00 && r <= 0xd7a3, r >= 0x17000 && r <= 0x1bc9f:
		// Ideographs and syllables have nothing to decompose.
		return other
	case r >= 0xd800 && r <= 0xdfff:
		return unseen
	case r >= 0x1f1e6 && r <= 0x1f1ff: // the letters flags are made of
		return glyph(r-0x1f1e6) + 1
	case r >= 0x1f150 && r <= 0x1f169: // white on black, round
		return glyph(r-0x1f150) + 1
	case r >= 0x1f170 && r <= 0x1f189: // white on black, square
		return glyph(r-0x1f170) + 1
	case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0: // fillers, letters by category only: some readers see a blank
		return other
	case r == 0x2800: // Braille with no dot
		return blank
	}
	if g, ok := special[r]; ok {
		return g
	}
	if unicode.IsSpace(r) {
		return blank
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Cc, unicode.Other_Default_Ignorable_Code_Point) {
		return unseen
	}
	if !text.Shows(r) {
		return other // a box, an unusual blank
	}
	if r >= utf8.RuneSelf {
		if g, ok := decomposed(r, special); ok {
			return g
		}
	}
	switch {
	case unicode.IsDigit(r):
		return figure
	case unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Armenian) && unicode.IsLetter(r):
		return foreign
	}
	return other
}

// decomposed checks the parts of a rune: the letter under an accent, in a circle, in full width or
// in a mathematical alphabet; the value of a digit.
func decomposed(r rune, special map[rune]glyph) (glyph, bool) {
	found, letters := other, 0
	for _, part := range norm.NFKD.String(string(r)) {
		if part == r {
			break
		}
		if g := look(part, special); g != unseen && g != other && g != blank {
			found = g
			letters++
		}
	}
	if letters == 1 {
		return found, true
	}
	if unicode.IsDigit(r) {
		// Digits of every script are in rows of ten that begin with zero.
		value := r
		for value > 0 && unicode.IsDigit(value-1) && r-value < 9 {
			value--
		}
		if r-value < 10 && r < 0x1d7ce {
			return look('0'+(r-value), special), true
		}
	}
	return other, false
}

// at reads the glyph at pos: its appearance, the rune, and its length in the text in bytes. It
// reads a character reference (&#115; or &shy;) and an escape by number (\u0073, %73) as the rune,
// since many receivers see the rune.
func (a *atlas) at(s string, pos int) (g glyph, r rune, width int) {
	c := s[pos]
	if c < utf8.RuneSelf {
		switch c {
		case '&':
			if r, width := reference(s[pos:]); width > 0 {
				return a.of(r), r, width
			}
		case '%':
			if r, width := percent(s[pos:]); width > 0 && r != esc {
				return a.of(r), r, width
			}
		case '\\', esc:
			if r, width := escape(s[pos:]); width > 0 {
				if r == esc {
					return seam, r, width + parameters(s[pos+width:])
				}
				return a.of(r), r, width
			}
		}
		return a.near[0][c], rune(c), 1
	}
	if c >= 0xc2 && c < 0xe0 && pos+1 < len(s) && s[pos+1]&0xc0 == 0x80 {
		r = rune(c&31)<<6 | rune(s[pos+1]&63)
		return a.near[r>>8&7][r&0xff], r, 2
	}
	if c > 0xe0 && c < 0xf0 && c != 0xed && pos+2 < len(s) && (s[pos+1]^0x80|s[pos+2]^0x80) < 0x40 {
		r = rune(c&15)<<12 | rune(s[pos+1]&63)<<6 | rune(s[pos+2]&63)
		return a.drawn(r), r, 3
	}
	r, width = utf8.DecodeRuneInString(s[pos:])
	return a.of(r), r, width
}

func (a *atlas) of(r rune) glyph {
	switch {
	case r < 0:
		return other
	case r < atlasEnd:
		return a.drawn(r)
	case r >= 0xe0000 && r <= 0xe0fff:
		return unseen
	}
	return other
}

const esc = 0x1b

// percent reads a URL escape at the beginning of a text: %NN, several of them for a character
// beyond ASCII, %25NN, escaped twice, or %uNNNN.
func percent(s string) (r rune, width int) {
	if len(s) > 1 && s[1] == 'u' {
		return number16(s, 2, 4)
	}
	r, width = bytesOf(s, "%")
	if r == '%' {
		if twice, end := number16(s, width, 2); end > 0 && twice < utf8.RuneSelf {
			return twice, end
		}
	}
	return r, width
}

// bytesOf reads the character whose bytes begin a text, each as a sign and two hexadecimal digits.
func bytesOf(s, sign string) (r rune, width int) {
	var encoded [utf8.UTFMax]byte
	for n := range encoded {
		if !strings.HasPrefix(s[width:], sign) {
			break
		}
		b, end := number16(s, width+len(sign), 2)
		if end == 0 {
			break
		}
		encoded[n], width = byte(b), end
		if utf8.FullRune(encoded[:n+1]) {
			if r, _ = utf8.DecodeRune(encoded[:n+1]); r == utf8.RuneError {
				break // they encode no character
			}
			return r, width
		}
	}
	return 0, 0
}

// escape reads an escape by number at the beginning of a text: \uNNNN, two of them for one
// character, \UNNNNNNNN, \xNN, several of them for one character, \u{N}, \x{N} or \NNN. It also
// reads the escapes of the character that begins terminal sequences.
func escape(s string) (r rune, width int) {
	if s[0] == esc {
		return esc, 1
	}
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case 'u', 'x':
		if len(s) > 2 && s[2] == '{' {
			return braced(s)
		}
	case 'U':
		return number16(s, 2, 8)
	case '1':
		return octal(s)
	}
	switch s[1] {
	case 'u':
		if r, width = number16(s, 2, 4); width == 0 || !utf16.IsSurrogate(r) {
			return r, width
		}
		if rest := s[width:]; strings.HasPrefix(rest, `\u`) {
			if low, more := number16(rest, 2, 4); more > 0 {
				if whole := utf16.DecodeRune(r, low); whole != unicode.ReplacementChar {
					return whole, width + more
				}
			}
		}
		return unicode.ReplacementChar, width
	case 'x':
		if r, width = bytesOf(s, `\x`); width > 0 {
			return r, width
		}
		return number16(s, 2, 2)
	case '0':
		if strings.HasPrefix(s, `\033`) {
			return esc, 4
		}
	case 'e':
		if strings.HasPrefix(s, `\e[`) {
			return esc, 2
		}
	}
	return 0, 0
}

// braced reads \u{N} and \x{N}.
func braced(s string) (r rune, width int) {
	end := strings.IndexByte(s[:min(len(s), len(`\u{10ffff}`))], '}')
	if end <= len(`\u{`) {
		return 0, 0
	}
	if r, width = number16(s, 3, end-3); width > 0 {
		width++
	}
	return r, width
}

// octal reads \NNN for a letter.
func octal(s string) (r rune, width int) {
	if len(s) < 4 || s[2]-'0' > 7 || s[3]-'0' > 7 {
		return 0, 0
	}
	if r = rune(s[1]-'0')<<6 | rune(s[2]-'0')<<3 | rune(s[3]-'0'); r|0x20 < 'a' || r|0x20 > 'z' {
		return 0, 0
	}
	return r, 4
}

// number16 reads n hexadecimal digits from at on, and returns their end.
func number16(s string, at, n int) (r rune, end int) {
	if len(s) < at+n {
		return 0, 0
	}
	for _, c := range []byte(s[at : at+n]) {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, 0
		}
	}
	return r, at + n
}

// maxLink bounds the target of a link in a terminal sequence.
const maxLink = 256

// maxParameters bounds the parameters of a terminal sequence.
const maxParameters = 32

// parameters returns the length of the text between the first character of a terminal sequence and
// its last letter, as in [1;31m.
func parameters(s string) int {
	if strings.HasPrefix(s, "]") { // of a link, up to the bell
		return max(0, strings.IndexByte(s[:min(len(s), maxLink)], '\a'))
	}
	if s == "" || s[0] != '[' {
		return 0
	}
	end := 1
	for end < min(len(s), maxParameters) && (s[end] >= '0' && s[end] <= '9' || s[end] == ';' || s[end] == '?') {
		end++
	}
	return end
}

// maxReference bounds a character reference, including its ampersand and semicolon.
const maxReference = 18

// reference reads a character reference at the beginning of a text, if there is one.
func reference(s string) (rune, int) {
	end := strings.IndexByte(s[:min(len(s), maxReference)], ';')
	if end < 3 {
		return 0, 0
	}
	name := s[1:end]
	if name[0] != '#' {
		if r := namedReference(name); r != 0 {
			return r, end + 1
		}
		return 0, 0
	}
	digits, base := name[1:], rune(10)
	if digits[0] == 'x' || digits[0] == 'X' {
		digits, base = digits[1:], 16
	}
	if digits == "" {
		return 0, 0
	}
	var r rune
	for i := range len(digits) {
		value := rune(-1)
		switch c := digits[i]; {
		case c >= '0' && c <= '9':
			value = rune(c - '0')
		case base == 16 && c|0x20 >= 'a' && c|0x20 <= 'f':
			value = rune(c|0x20-'a') + 10
		}
		if value < 0 {
			return 0, 0
		}
		if r = r*base + value; r > unicode.MaxRune {
			return 0, 0
		}
	}
	return r, end + 1
}

// namedReference knows the names that can cut a word or space it.
func namedReference(name string) rune {
	switch name {
	case "shy":
		return 0xad
	case "zwnj", "zwj", "lrm", "rlm", "NoBreak", "ZeroWidthSpace", "NegativeThinSpace":
		return 0x200b
	case "nbsp", "ensp", "emsp", "thinsp", "hairsp", "NonBreakingSpace":
		return ' '
	case "apos":
		return '\''
	case "quot":
		return '"'
	case "amp":
		return '&'
	case "gt":
		return '>'
	case "hyphen", "dash":
		return '-'
	}
	return 0
}
