package text

import (
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Rendering is a change that a receiver's program makes to a text before it shows it.
type Rendering string

const (
	// RenderNone shows a text as it is written.
	RenderNone Rendering = ""
	// RenderIRC writes out the escapes \r \n \t \0 \xNN \uNNNN and drops control
	// characters, as the IRC app does.
	RenderIRC Rendering = "irc"
	// RenderHTML drops tags and comments and writes out character references.
	RenderHTML Rendering = "html"
	// RenderMarkdown drops the signs of emphasis, of code and of links, and backslashes before
	// signs.
	RenderMarkdown Rendering = "markdown"
	// RenderPlain drops text that does not show: terminal sequences for colour, control characters
	// except the ends of lines, and other invisible characters that separate no words. No channel
	// has it. Detectors of text that such characters hide use it.
	RenderPlain Rendering = "plain"
	// RenderReading replaces characters that look like others of ASCII by those, see [Reads], and
	// leaves out accents. No channel has it either.
	RenderReading Rendering = "reading"
)

// Renderings lists the renderings that a channel can have.
func Renderings() []Rendering { return []Rendering{RenderIRC, RenderHTML, RenderMarkdown} }

// Render returns the text that the receiver sees, after the renderings in their order.
func Render(s string, r ...Rendering) string { return See(s, r...).Text }

// View is a text as a receiver sees it, with the positions from which it comes.
type View struct {
	Text   string
	stages []stage
}

// stage is one change of a whole text, as parts in ascending order.
type stage []part

// part begins at at, in the changed text. It was written from start to end, byte by byte
// if same is set.
type part struct {
	at, start, end int
	same           bool
}

// See renders a text and keeps the original positions. It takes time and memory linear in the text.
func See(s string, r ...Rendering) View {
	v := View{Text: s}
	for _, one := range r {
		switch one {
		case RenderIRC:
			// The steps run one after the other, as in the app: a step may read the output of the
			// one before.
			if strings.IndexByte(v.Text, '\\') >= 0 {
				e := edit{src: v.Text}
				escapes(&e)
				v.take(&e)
				e = edit{src: v.Text}
				unicodeEscapes(&e)
				v.take(&e)
			}
			e := edit{src: v.Text}
			controls(&e)
			v.take(&e)
		case RenderHTML:
			e := edit{src: v.Text}
			markup(&e)
			v.take(&e)
		case RenderMarkdown:
			e := edit{src: v.Text}
			emphasis(&e)
			v.take(&e)
		case RenderPlain:
			e := edit{src: v.Text}
			unshown(&e)
			v.take(&e)
		case RenderReading:
			e := edit{src: v.Text}
			reading(&e)
			v.take(&e)
		case RenderNone:
		}
	}
	return v
}

// Rewrite returns a view with some of the visible text replaced. For each position, next returns
// the number of bytes to read, and the text to replace them with, unless they stay.
func (v View) Rewrite(next func(s string, at int) (width int, with string, stays bool)) View {
	e := edit{src: v.Text}
	for at := 0; at < len(e.src); {
		width, with, stays := next(e.src, at)
		if !stays {
			e.replace(at, at+width, with)
		}
		at += width
	}
	v.stages = slices.Clip(v.stages)
	v.take(&e)
	return v
}

// Changed reports whether the receiver sees another text than the sender wrote.
func (v *View) Changed() bool { return len(v.stages) > 0 }

// Span returns the part of the original text from which the bytes from start to end come, including
// everything that was read to produce them. The span must not be empty.
func (v *View) Span(start, end int) (from, to int) {
	for _, s := range slices.Backward(v.stages) {
		start, end = s.span(start, end)
	}
	return start, end
}

func (s stage) span(start, end int) (from, to int) {
	first, last := s.part(start), s.part(end-1)
	from, to = first.start, last.end
	if first.same {
		from += start - first.at
	}
	if last.same {
		to = last.start + end - last.at
	}
	return from, to
}

// part finds the part that holds the byte at.
func (s stage) part(at int) part {
	i, found := slices.BinarySearchFunc(s, at, func(p part, at int) int { return p.at - at })
	if !found {
		i--
	}
	return s[i]
}

// take adds the stage of an edit, if the edit changed the text.
func (v *View) take(e *edit) {
	if e.parts == nil {
		return
	}
	e.copy(len(e.src))
	v.Text, v.stages = e.out.String(), append(v.stages, e.parts)
}

// edit makes a changed copy of a text from left to right.
type edit struct {
	src    string
	out    strings.Builder
	copied int
	parts  stage
}

func (e *edit) copy(until int) {
	if until > e.copied {
		e.parts = append(e.parts, part{at: e.out.Len(), start: e.copied, end: until, same: true})
		e.out.WriteString(e.src[e.copied:until])
	}
}

// replace replaces a stretch of the text.
func (e *edit) replace(start, end int, with string) {
	if e.parts == nil {
		e.out.Grow(len(e.src))
		e.parts = stage{}
	}
	e.copy(start)
	if with != "" {
		e.parts = append(e.parts, part{at: e.out.Len(), start: start, end: end})
		e.out.WriteString(with)
	}
	e.copied = end
}

// each calls found for every occurrence of one of the bytes; found returns the position from which
// to continue.
func (e *edit) each(signs string, found func(at int) int) {
	for at := 0; ; {
		i := strings.IndexAny(e.src[at:], signs)
		if i < 0 {
			return
		}
		at = max(at+i+1, found(at+i))
	}
}

// escapes writes out the escapes of one byte.
func escapes(e *edit) {
	e.each(`\`, func(at int) int {
		if at+1 == len(e.src) {
			return 0
		}
		end := at + 2
		switch e.src[at+1] {
		case 'r':
			e.replace(at, end, "\r")
		case 'n':
			e.replace(at, end, "\n")
		case 't':
			e.replace(at, end, "\t")
		case '0':
			e.replace(at, end, "\x00")
		case 'x':
			r, ok := hexDigits(e.src, end, 2)
			if !ok {
				return 0
			}
			end += 2
			e.replace(at, end, string(r))
		default:
			return 0
		}
		return end
	})
}

// unicodeEscapes writes out \uNNNN, and two of them if they encode one character.
func unicodeEscapes(e *edit) {
	unit := func(at int) (rune, bool) {
		if !strings.HasPrefix(e.src[at:], `\u`) {
			return 0, false
		}
		return hexDigits(e.src, at+2, 4)
	}
	const size = len(`\u0000`)
	e.each(`\`, func(at int) int {
		r, ok := unit(at)
		if !ok {
			return 0
		}
		end := at + size
		if utf16.IsSurrogate(r) {
			low, _ := unit(end)
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				end += size
			}
		}
		e.replace(at, end, string(r))
		return end
	})
}

// hexDigits reads n digits.
func hexDigits(s string, at, n int) (r rune, ok bool) {
	if at+n > len(s) {
		return 0, false
	}
	for _, c := range []byte(s[at : at+n]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// controls drops control characters. The end of a line becomes a blank.
func controls(e *edit) {
	for at := 0; at < len(e.src); at++ {
		switch c := e.src[at]; {
		case c == '\r' && strings.HasPrefix(e.src[at:], "\r\n"):
			e.replace(at, at+2, " ")
			at++
		case c == '\n':
			e.replace(at, at+1, " ")
		case c < ' ', c == 0x7f:
			e.replace(at, at+1, "")
		}
	}
}

// unshown drops characters that do not show.
func unshown(e *edit) {
	shown := table()
	for at := 0; at < len(e.src); {
		if printable8(e.src[at:]) {
			at += 8
			continue
		}
		c := e.src[at]
		if c < utf8.RuneSelf {
			switch {
			case ' ' <= c && c < 0x7f, c == '\n', c == '\r', c == '\t':
				at++
			default:
				end := at + max(1, colour(e.src[at:]))
				e.replace(at, end, "")
				at = end
			}
			continue
		}
		if n := Usual(e.src, at); n > 0 {
			at += n
			continue
		}
		r, size := utf8.DecodeRuneInString(e.src[at:])
		if r < tableEnd && shown[r>>6]>>(r&63)&1 == 0 || r >= tableEnd && !shows(r) {
			switch {
			case r == 0x85, unicode.In(r, unicode.Z), r == '\u2800': // separates words
			case r == utf8.RuneError, unicode.Is(unicode.Co, r): // a box
			default:
				e.replace(at, at+size, "")
			}
		}
		at += size
	}
}

// printable8 reports whether the next eight bytes are ASCII that shows. It is the fast path for
// most texts.
func printable8(s string) bool {
	if len(s) < 8 {
		return false
	}
	const each = 0x0101010101010101
	word := Eight(s)
	del := word ^ 0x7f*each
	return (word|(word-' '*each)|(del-each)&^del)&(0x80*each) == 0
}

// Eight returns the first eight bytes of a text, which must have as many, with the first one
// lowest. Scans for rare bytes check eight bytes at a time with it.
func Eight(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// colour returns the length of the terminal sequence at the start of a text, if the sequence sets a
// colour: ESC [ 1 ; 31 m.
func colour(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	end := 2
	for end < min(len(s), MaxSequence) && ('0' <= s[end] && s[end] <= '9' || s[end] == ';' || s[end] == ':') {
		end++
	}
	if end == len(s) || s[end] != 'm' {
		return 0
	}
	return end + 1
}

// markup drops tags and comments and writes out character references.
func markup(e *edit) {
	last := strings.LastIndexByte(e.src, '>')
	quoted, comments := true, true // quotes of tags and comments have ends, until a search fails
	e.each("<&", func(at int) int {
		if e.src[at] == '&' {
			return reference(e, at)
		}
		if at+1 >= len(e.src) || at > last {
			return 0
		}
		if comments && strings.HasPrefix(e.src[at:], "<!--") {
			if i := strings.Index(e.src[at+4:], "-->"); i >= 0 {
				end := at + 4 + i + 3
				e.replace(at, end, "")
				return end
			}
			comments = false
		}
		name := at + 1
		switch c := e.src[name]; {
		case c == '/':
			name++
		case c == '!', c == '?', 'a' <= c|0x20 && c|0x20 <= 'z':
		default:
			return 0
		}
		end := 0
		if quoted {
			end = tagEnd(e.src, name)
			quoted = end > 0
		}
		if end == 0 {
			end = name + strings.IndexByte(e.src[name:], '>') + 1
		}
		shows := tagShows(e.src[name:end])
		if rest := strings.TrimPrefix(e.src[end:], "\r"); shows == "\n" && strings.HasPrefix(rest, "\n") {
			end = len(e.src) - len(rest) + 1 // a single end of a line
		}
		e.replace(at, end, shows)
		return end
	})
}

// tagEnd returns the end of a tag whose name begins at at, 0 if there is none.
func tagEnd(s string, at int) int {
	for at < len(s) {
		i := strings.IndexAny(s[at:], `>"'`)
		if i < 0 {
			return 0
		}
		at += i + 1
		quote := s[at-1]
		if quote == '>' {
			return at
		}
		if i = strings.IndexByte(s[at:], quote); i < 0 {
			return 0
		}
		at += i + 1
	}
	return 0
}

// tagShows returns the text that replaces a tag: some end a line.
func tagShows(tag string) string {
	end := 0
	for end < len(tag) && ('a' <= tag[end]|0x20 && tag[end]|0x20 <= 'z' || '0' <= tag[end] && tag[end] <= '9') {
		end++
	}
	switch strings.ToLower(tag[:min(end, len("blockquote"))]) {
	case "br", "p", "div", "li", "ul", "ol", "tr", "table", "hr", "pre", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6":
		return "\n"
	case "td", "th":
		return " "
	}
	return ""
}

// maxReference bounds a character reference without its ampersand.
const maxReference = 33

// reference writes out the character reference at at and returns its end.
func reference(e *edit, at int) int {
	rest := e.src[at+1 : min(len(e.src), at+1+maxReference)]
	size := 0
	if strings.HasPrefix(rest, "#") {
		// The number may have any number of leading zeros.
		rest = e.src[at+1:]
		size = 1
		digits := func(c byte) bool { return '0' <= c && c <= '9' }
		if size < len(rest) && rest[size]|0x20 == 'x' {
			size++
			digits = func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }
		}
		for size < len(rest) && digits(rest[size]) {
			size++
		}
	} else {
		for size < len(rest) && ('a' <= rest[size]|0x20 && rest[size]|0x20 <= 'z' || '0' <= rest[size] && rest[size] <= '9') {
			size++
		}
	}
	if size < len(rest) && rest[size] == ';' {
		size++
	}
	end := at + 1 + size
	written := e.src[at:end]
	if shown := html.UnescapeString(written); shown != written {
		e.replace(at, end, shown)
		return end
	}
	return 0
}

// emphasis drops the signs of Markdown.
func emphasis(e *edit) {
	links := findLinks(e.src)
	at := func(i int) byte {
		if i < 0 || i >= len(e.src) {
			return ' '
		}
		return e.src[i]
	}
	e.each("*_~`|\\[]", func(i int) int {
		c := e.src[i]
		if c == '\\' {
			if i+1 < len(e.src) && strings.IndexByte(markdownSigns, e.src[i+1]) >= 0 {
				e.replace(i, i+1, "")
				return i + 2
			}
			return 0
		}
		if c == '[' || c == ']' {
			if end := links[i]; end > 0 {
				e.replace(i, end, "")
				return end
			}
			return 0
		}
		end := i + 1
		for at(end) == c {
			end++
		}
		switch before, after := at(i-1), at(end); {
		case c == '|' && end-i != 2, c == '~' && end-i > 2: // a table, a fence
		case before <= ' ' && after <= ' ': // "5 * 3"
		case c == '_' && joins(e.src, i, end): // snake_case
		default:
			e.replace(i, end, "")
		}
		return end
	})
}

// joins reports whether the text from start to end is within a word, apart from signs of Markdown
// around it.
func joins(s string, start, end int) bool {
	const signs = "*~`\\"
	for start > 0 && strings.IndexByte(signs, s[start-1]) >= 0 {
		start--
	}
	for end < len(s) && strings.IndexByte(signs, s[end]) >= 0 {
		end++
	}
	return start > 0 && end < len(s) && wordByte(s[start-1]) && wordByte(s[end])
}

// markdownSigns are the characters that a backslash before them escapes.
const markdownSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

func wordByte(c byte) bool {
	return c >= utf8.RuneSelf || 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_'
}

// findLinks finds the parts of [text](address) that do not show. It maps the beginning of each to
// its end.
func findLinks(s string) map[int]int {
	if !strings.Contains(s, "](") {
		return nil
	}
	var links map[int]int
	var open []int
	for at := 0; at < len(s); {
		i := strings.IndexAny(s[at:], `[]\`)
		if i < 0 {
			break
		}
		at += i
		switch s[at] {
		case '\\':
			at++
		case '[':
			open = append(open, at)
		case ']':
			if len(open) == 0 {
				break
			}
			from := open[len(open)-1]
			open = open[:len(open)-1]
			if !strings.HasPrefix(s[at:], "](") {
				break
			}
			i := strings.IndexByte(s[at:], ')')
			if i < 0 {
				return links // there is none further on either
			}
			if links == nil {
				links = map[int]int{}
			}
			links[from], links[at] = from+1, at+i+1
			at += i
		}
		at++
	}
	return links
}
