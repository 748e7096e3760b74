package openprose

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// scanner reads the names, signs, texts and lines of a script. It works on bytes, because conditions are free text
// and not tokens.
type scanner struct {
	src string
	pos int
	// found takes an error at a byte position.
	found func(at int, format string, args ...any)
}

// at reports whether a byte is next.
func (s *scanner) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

// fault is a parse error, which ends its statement.
type fault struct {
	at   int
	text string
}

func (f *fault) Error() string { return f.text }

func fail(at int, format string, args ...any) error {
	return &fault{at: at, text: fmt.Sprintf(format, args...)}
}

// indent returns the indentation of a line; the parser is at its start. A tab, already
// reported, counts as a blank.
func (s *scanner) indent() int {
	n := 0
	for s.pos+n < len(s.src) && (s.src[s.pos+n] == ' ' || s.src[s.pos+n] == '\t') {
		n++
	}
	return n
}

// lines skips empty lines and comments. The parser is at the start of a line before and after.
func (s *scanner) lines() {
	for s.pos < len(s.src) {
		line, _, _ := strings.Cut(s.src[s.pos:], "\n")
		body := strings.TrimSpace(line)
		if body != "" && body[0] != '#' {
			if i := strings.IndexByte(line[:len(line)-len(strings.TrimLeft(line, " \t"))], '\t'); i >= 0 {
				s.found(s.pos+i, "a tab indents the line: blocks are indented by spaces")
			}
			return
		}
		s.pos += min(len(line)+1, len(s.src)-s.pos)
	}
}

// over skips the rest of a faulty statement: all lines with more indentation.
func (s *scanner) over(indent int) {
	for s.pos < len(s.src) {
		i := strings.IndexByte(s.src[s.pos:], '\n')
		if i < 0 {
			s.pos = len(s.src)
			return
		}
		s.pos += i + 1
		s.lines()
		if s.indent() <= indent {
			return
		}
	}
}

// blanks skips blanks within a line.
func (s *scanner) blanks() {
	for s.pos < len(s.src) && (s.src[s.pos] == ' ' || s.src[s.pos] == '\t' || s.src[s.pos] == '\r') {
		s.pos++
	}
}

// white skips blanks, line ends and comments within brackets.
func (s *scanner) white() {
	for {
		s.blanks()
		switch {
		case s.at('\n'):
			s.pos++
		case s.at('#'):
			i := strings.IndexByte(s.src[s.pos:], '\n')
			if i < 0 {
				i = len(s.src) - s.pos
			}
			s.pos += i
		default:
			return
		}
	}
}

// ends reports whether only a comment follows on the line.
func (s *scanner) ends() bool {
	s.blanks()
	return s.pos >= len(s.src) || s.src[s.pos] == '\n' || s.src[s.pos] == '#'
}

// endLine expects the end of the line, and goes to the start of the next line with content.
func (s *scanner) endLine(after string) error {
	if !s.ends() {
		return fail(s.pos, "%s follows %s: want the end of the line", s.shown(), after)
	}
	if i := strings.IndexByte(s.src[s.pos:], '\n'); i >= 0 {
		s.pos += i + 1
		s.lines()
		return nil
	}
	s.pos = len(s.src)
	return nil
}

// shown is the text at this position, for an error message.
func (s *scanner) shown() string {
	if s.pos >= len(s.src) {
		return "the end of the script"
	}
	if s.src[s.pos] == '\n' {
		return "the end of the line"
	}
	if w := s.peekWord(); w != "" {
		return quote(w)
	}
	r, _ := utf8.DecodeRuneInString(s.src[s.pos:])
	return quote(string(r))
}

func quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return "“" + strings.ToValidUTF8(s, "�") + "”"
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// wordAt is the identifier at the start of a text, or "".
func wordAt(s string) string {
	n := 0
	for n < len(s) && (letter(s[n]) || n > 0 && (digit(s[n]) || s[n] == '-')) {
		n++
	}
	return s[:n]
}

func (s *scanner) peekWord() string { return wordAt(s.src[s.pos:]) }

// word reads a keyword, if it is next.
func (s *scanner) word(w string) bool {
	if s.peekWord() != w {
		return false
	}
	s.pos += len(w)
	return true
}

// sign reads a sign, if it is next after blanks.
func (s *scanner) sign(sign string) bool {
	s.blanks()
	if !strings.HasPrefix(s.src[s.pos:], sign) {
		return false
	}
	s.pos += len(sign)
	return true
}

func (s *scanner) want(sign, where string) error {
	if s.sign(sign) {
		return nil
	}
	return fail(s.pos, "%s stands where %s belongs, in %s", s.shown(), quote(sign), where)
}

// identifier reads a name.
func (s *scanner) identifier(what string) (*node, error) {
	s.blanks()
	w := s.peekWord()
	if w == "" {
		return nil, fail(s.pos, "%s stands where %s belongs: a letter or _, then letters, digits, _ or -", s.shown(), what)
	}
	n := &node{kind: kindName, at: s.pos, name: w, nameAt: s.pos}
	s.pos += len(w)
	return n, nil
}

// named reads the name of a node.
func (s *scanner) named(n *node, what string) error {
	name, err := s.identifier(what)
	if err == nil {
		n.name, n.nameAt = name.name, name.at
	}
	return err
}

// names reads names up to a closing sign.
func (s *scanner) names(closing string) (list []*node, err error) {
	for {
		name, err := s.identifier("a name")
		if err != nil {
			return nil, err
		}
		list = append(list, name)
		if s.sign(closing) {
			return list, nil
		}
		if err := s.want(",", "the names"); err != nil {
			return nil, err
		}
	}
}

func (s *scanner) reference() (*node, error) {
	name, err := s.identifier("a name")
	if err != nil {
		return nil, err
	}
	name.kind = kindRef
	for s.pos+1 < len(s.src) && s.src[s.pos] == '.' && letter(s.src[s.pos+1]) {
		s.pos++
		w := s.peekWord()
		name.text += "." + w
		s.pos += len(w)
	}
	return name, nil
}

func (s *scanner) number() (*node, error) {
	at := s.pos
	s.sign("-")
	from := s.pos
	for s.pos < len(s.src) && digit(s.src[s.pos]) {
		s.pos++
	}
	if s.pos == from {
		return nil, fail(at, "“-” begins no number")
	}
	if s.pos+1 < len(s.src) && s.src[s.pos] == '.' && digit(s.src[s.pos+1]) {
		for s.pos++; s.pos < len(s.src) && digit(s.src[s.pos]); s.pos++ {
		}
	}
	return &node{kind: kindNumber, at: at, text: s.src[at:s.pos]}, nil
}

// string reads a quoted text. The names in it are checked later.
func (s *scanner) string() (*node, error) {
	at := s.pos
	if !strings.HasPrefix(s.src[s.pos:], `"`) {
		return nil, fail(s.pos, "%s stands where a text in double quotes belongs", s.shown())
	}
	mark := `"`
	if strings.HasPrefix(s.src[s.pos:], `"""`) {
		mark = `"""`
	}
	s.pos += len(mark)
	n := &node{kind: kindString, at: at, nameAt: s.pos}
	for s.pos < len(s.src) {
		switch rest := s.src[s.pos:]; {
		case strings.HasPrefix(rest, mark):
			n.text = s.src[n.nameAt:s.pos]
			s.pos += len(mark)
			return n, nil
		case rest[0] == '\\':
			if len(rest) < 2 || !strings.ContainsRune(`\"nt{}`, rune(rest[1])) {
				return nil, fail(s.pos, `there is no such escape: a text has \\, \", \n, \t, \{ and \}`)
			}
			s.pos += 2
		case rest[0] == '\n' && mark == `"`:
			return nil, fail(at, "the text does not end on its line: one of several lines stands between \"\"\" and \"\"\"")
		default:
			s.pos++
		}
	}
	return nil, fail(at, "the text does not end")
}

// condition reads text for the model that runs the script, up to the “:” of its statement:
// bare, or between ** or ***. The text of a loop also ends before (max: …).
func (s *scanner) condition(of string, loop bool) (string, error) {
	s.blanks()
	at := s.pos
	for _, mark := range []string{"***", "**"} {
		if !strings.HasPrefix(s.src[s.pos:], mark) {
			continue
		}
		rest := s.src[s.pos+len(mark):]
		i := strings.Index(rest, mark)
		if line, _, more := strings.Cut(rest, "\n"); mark == "**" && more && i > len(line) {
			i = -1
		}
		if i < 0 {
			return "", fail(at, "the condition that begins with %s does not end with it", mark)
		}
		s.pos += len(mark) + i + len(mark)
		if strings.TrimSpace(rest[:i]) == "" {
			s.found(at, "the condition of the %s is empty", of)
		}
		return strings.TrimSpace(rest[:i]), nil
	}
	line, _, _ := strings.Cut(s.src[s.pos:], "\n")
	end := strings.IndexByte(line, ':')
	if end < 0 {
		return "", fail(at, "the line of the %s has no “:” at its end", of)
	}
	if i := strings.LastIndex(line[:end], "("); loop && i >= 0 && strings.TrimSpace(line[i+1:end]) == "max" {
		end = i
	} else if i := strings.LastIndex(line[:end], " as "); loop && i >= 0 && wordAt(strings.TrimSpace(line[i+4:end])) == strings.TrimSpace(line[i+4:end]) {
		end = i
	}
	said := strings.TrimSpace(line[:end])
	if said == "" {
		s.found(at, "the condition of the %s is empty", of)
	}
	s.pos += end
	return said, nil
}
