package content

import (
	"encoding/hex"
	"html"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Secrets occur in encodings: in a query, a page, a string of a program, a configuration. The
// decoded text is scanned once, and is not decoded again.

// decoded adds the findings behind the encodings of a text that are not among those in the text
// itself, which begin at first. The decoded text is never longer than the text, which has these
// traits.
func (p *pass) decoded(found []Finding, first int, s string, has traits) []Finding {
	written := len(found)
	if has&traitEscape != 0 {
		found = p.escaped(found, s)
	}
	found = p.encoded(found, s)
	if len(found) == written {
		return found
	}
	return p.merge(found, first, written)
}

// hides reports whether a rule also applies behind encodings. Markings do not: people must read
// them.
func hides(rule string) bool { return !strings.HasPrefix(rule, "marking.") }

// escaped scans the text around escapes, with the escapes written out.
func (p *pass) escaped(found []Finding, s string) []Finding {
	var next [len(escapeSigns)]int // the next position of each sign
	for i := range next {
		next[i] = find(s, escapeSigns[i], 0)
	}
	// before is the length of the text before a value that a rule may need, its name, or after one.
	// around bounds the length of a word.
	const before, around = 48, 512
	w := &p.written
	for at, done := 0, 0; ; {
		sign := 0
		for i := range next {
			if next[i] < at {
				next[i] = find(s, escapeSigns[i], at)
			}
			if next[i] < next[sign] {
				sign = i
			}
		}
		i := next[sign]
		if i == len(s) {
			return found
		}
		if _, size := escape(s[i:]); size == 0 {
			at = i + 1
			continue
		}
		// A window begins and ends at a blank. It continues if another escape is near its end.
		from := i
		for from > max(done, i-around) && !kindOf(s[from-1]).in(space|newline) {
			from--
		}
		from = wordStart(s, max(done, from-before), from)
		w.begin(from)
		end := i
		for last := i; end < len(s) && (end-last < before || end-last < around && !kindOf(s[end]).in(space|newline)); {
			if traitsOfByte[s[end]]&traitEscape == 0 {
				end++
				continue
			}
			r, size := escape(s[end:])
			if size == 0 {
				end++
				continue
			}
			w.copy(s, end)
			w.rune(r, end+size)
			end += size
			last = end
		}
		w.copy(s, end)
		w.cut = from > 0 && !kindOf(s[from-1]).in(space|newline)
		w.more = end < len(s) && !kindOf(s[end]).in(space|newline)
		found = p.window(found, w)
		at, done = end, end
	}
}

const escapeSigns = "%&\\"

// find returns the position of a byte at or after at, or the length of the text.
func find(s string, c byte, at int) int {
	if at > len(s) {
		return len(s)
	}
	if i := strings.IndexByte(s[at:], c); i >= 0 {
		return at + i
	}
	return len(s)
}

// wordStart returns the start of the first word between from and to.
func wordStart(s string, from, to int) int {
	if from == 0 {
		return 0
	}
	for i := from; i < to; i++ {
		if kindOf(s[i-1]).in(space | newline) {
			return i
		}
	}
	return to
}

// window is a part of a text with its escapes written out, and the original positions. It is cut if
// it begins inside a word, and there is more if it ends in one.
type window struct {
	text      []byte
	segments  segments
	copied    int
	cut, more bool
}

// begin empties a window, for the part of a text from a position on.
func (w *window) begin(from int) {
	*w = window{text: w.text[:0], segments: w.segments[:0], copied: from}
	w.segments.mark(0, from)
}

// copy adds the unchanged text up to a position.
func (w *window) copy(s string, until int) {
	w.text = append(w.text, s[w.copied:until]...)
	w.copied = until
}

// rune adds the character of an escape, which ends at a position.
func (w *window) rune(r rune, until int) {
	if text.Shows(r) || r == '\n' || r == '\t' { // other characters would hide the text around them
		w.segments.mark(len(w.text), w.copied)
		w.text = utf8.AppendRune(w.text, r)
	}
	w.copied = until
	w.segments.mark(len(w.text), until)
}

// window scans a part with its escapes written out.
func (p *pass) window(found []Finding, w *window) []Finding {
	first := len(found)
	found = p.builtin(found, string(w.text))
	return p.keep(found, first, func(f *Finding) bool {
		if f.Start == 0 && w.cut || f.End == len(w.text) && w.more {
			return false // it is part of something longer
		}
		size := f.End - f.Start
		f.Start, f.End = w.segments.of(f.Start), w.segments.of(f.End)
		// The surroundings of a number may be outside the window.
		return hides(f.Rule) && f.Start < f.End && (f.End-f.Start > size || strings.HasPrefix(f.Rule, "credential."))
	})
}

// escape reads an escape at the beginning of a text, and returns its character and length.
func escape(s string) (r rune, size int) {
	switch {
	case len(s) < 2:
		return 0, 0
	case s[0] == '%': // in a URI; beyond ASCII it is part of a character, and no part of a secret
		if r = charNumber(s, 1, 3, 16); r > 0 && r < utf8.RuneSelf {
			return r, 3
		}
	case s[0] == '\\' && s[1] == '/':
		return '/', 2
	case s[0] == '\\' && (s[1] == '_' || s[1] == '-'): // in Markdown
		return rune(s[1]), 2
	case s[0] == '\\' && len(s) > 2 && s[2] == '{' && (s[1] == 'u' || s[1] == 'x'):
		if end := strings.IndexByte(s[:min(len(s), len(`\u{10ffff}`))], '}'); end > 3 {
			if r = charNumber(s, 3, end, 16); r > 0 {
				return r, end + 1
			}
		}
	case s[0] == '\\' && s[1] == 'U':
		if r = charNumber(s, 2, 10, 16); r > 0 {
			return r, 10
		}
	case s[0] == '\\' && s[1]-'0' < 2: // in octal digits
		if r = charNumber(s, 1, 4, 8); r >= ' ' && r < utf8.RuneSelf {
			return r, 4
		}
	case s[0] == '\\' && s[1] == 'x':
		if r = charNumber(s, 2, 4, 16); r > 0 && r < utf8.RuneSelf {
			return r, 4
		}
	case s[0] == '\\' && s[1] == 'u':
		if r = charNumber(s, 2, 6, 16); r > 0 && (r < 0xd800 || r > 0xdfff) {
			return r, 6
		}
	case s[0] == '&' && (s[1] == '#' || kindOf(s[1]).in(letter)):
		const longest = 12
		end := strings.IndexByte(s[:min(len(s), longest)], ';')
		if end < 0 {
			return 0, 0
		}
		shown := html.UnescapeString(s[:end+1])
		if r, n := utf8.DecodeRuneInString(shown); n == len(shown) && r != utf8.RuneError {
			return r, end + 1
		}
	}
	return 0, 0
}

// charNumber reads the number of a character, or -1.
func charNumber(s string, from, to int, base rune) rune {
	if to > len(s) {
		return -1
	}
	n := rune(0)
	for _, c := range []byte(s[from:to]) {
		d := base
		switch k := kindOf(c); {
		case k.in(digit):
			d = rune(c - '0')
		case k.in(hexLower | hexUpper):
			d = rune(lower(c)-'a') + 10
		}
		if n = n*base + d; d >= base || n > utf8.MaxRune {
			return -1
		}
	}
	return n
}

// encoded scans runs of base64 and of hexadecimal digits that contain text.
func (p *pass) encoded(found []Finding, s string) []Finding {
	const shortest, set = 24, base64URL | slash
	for i := shortest - 1; i < len(s); {
		// Since the byte is not in the set, no run begins before it.
		start := i + 1
		for start > i-shortest+1 && kindOf(s[start-1]).in(set) {
			start--
		}
		if start > i-shortest+1 {
			i = start + shortest - 1
			continue
		}
		end := run(s, i, set, len(s))
		if turns(s, start, end) {
			found = p.turned(found, s, start, end)
		}
		if texts(s[start:end]) {
			found, end = p.inside(found, s, start, end)
		}
		i = end + shortest
	}
	return found
}

// sixBits is the value of a digit of base64, in either alphabet.
var sixBits = func() (bits [256]byte) {
	for i := range 62 {
		bits["ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[i]] = byte(i)
	}
	bits['+'], bits['-'], bits['/'], bits['_'] = 62, 62, 63, 63
	return bits
}()

// texts reports whether the beginning of a run decodes to text. Words and names fail here, mostly
// at their first letters.
func texts(s string) bool {
	const glance = 16
	var plain [glance / 4 * 3]byte
	for i := 0; i < glance; i += 4 {
		a, b, c, d := sixBits[s[i]], sixBits[s[i+1]], sixBits[s[i+2]], sixBits[s[i+3]]
		at := i / 4 * 3
		plain[at], plain[at+1], plain[at+2] = a<<2|b>>4, b<<4|c>>2, c<<6|d
		if !readable(plain[at:at+1]) && plain[at] < 0x80 || i == 0 && plain[0] >= 0x80 && plain[0] < 0xc2 {
			return digits(s[:glance])
		}
	}
	return readable(whole(plain[:])) || digits(s[:glance])
}

// digits reports whether a run consists of hexadecimal digits that encode ASCII.
func digits(s string) bool {
	for i := range len(s) {
		if k := kindOf(s[i]); !k.in(hexAny) || i%2 == 0 && (s[i] < '2' || s[i] > '7') && s[i] != '0' {
			return false
		}
	}
	return true
}

// inside scans one such run, and the lines below it if it is a block. It returns the end of the
// text that it has read.
func (p *pass) inside(found []Finding, s string, start, end int) ([]Finding, int) {
	const line = 40
	block := s[start:end]
	if end-start >= line && end < len(s) && kindOf(s[end]).in(newline) {
		var b strings.Builder
		b.WriteString(block)
		for at := end; ; {
			next := run(s, at, newline|space, at+16)
			last := run(s, next, base64URL|slash, len(s))
			if at == len(s) || !kindOf(s[at]).in(newline) || last == next {
				break
			}
			b.WriteString(s[next:last])
			at, end = last, last
			if last-next < line {
				break
			}
		}
		block = b.String()
	}
	plain := decode(block)
	if !readable(plain) {
		return found, end
	}
	first := len(found)
	found = p.builtin(found, string(plain))
	return p.keep(found, first, func(f *Finding) bool {
		f.Start, f.End = start, end
		return hides(f.Rule)
	}), end
}

// decode reads hexadecimal digits, or base64 of either alphabet without its last incomplete group.
func decode(s string) []byte {
	if len(s)%2 == 0 && digits(s) {
		plain, _ := hex.DecodeString(s)
		return plain
	}
	if len(s)%4 == 1 { // no complete group has this length
		s = s[:len(s)-1]
	}
	plain := make([]byte, 0, len(s)/4*3+3)
	for i := 0; i+1 < len(s); i += 4 {
		a, b := sixBits[s[i]], sixBits[s[i+1]]
		plain = append(plain, a<<2|b>>4)
		if i+2 < len(s) {
			c := sixBits[s[i+2]]
			plain = append(plain, b<<4|c>>2)
			if i+3 < len(s) {
				plain = append(plain, c<<6|sixBits[s[i+3]])
			}
		}
	}
	return plain
}

// whole removes a character that is cut off at the end.
func whole(plain []byte) []byte {
	for i := 1; i <= min(len(plain), utf8.UTFMax-1); i++ {
		if rest := plain[len(plain)-i:]; utf8.RuneStart(rest[0]) {
			if !utf8.FullRune(rest) {
				return plain[:len(plain)-i]
			}
			break
		}
	}
	return plain
}

// readable reports whether the decoded bytes are a text.
func readable(plain []byte) bool {
	for _, c := range plain {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return len(plain) > 0 && utf8.Valid(plain)
}
