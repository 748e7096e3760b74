package commitment

import "strings"

// zoner names the zones of positions in ascending order. It goes through the text once, line by
// line, and only as far as necessary.
type zoner struct {
	text string
	// line and next bound the current line; zone is its zone, or that of the rest of the text if
	// rest is set.
	line, next int
	zone       string
	rest       bool
	fence      string // the end of the current fenced code
	started    bool
	// code and codeEnd bound a code span of the current line. missing holds the lengths of backtick
	// runs that have no partner further on, so that none is searched twice.
	code, codeEnd int
	missing       uint8
	// last is the start of the last lines that could be a signature, once they are counted.
	last    int
	counted bool
}

// at returns the zone of an offset, which must not be below the last one.
func (z *zoner) at(pos int) string {
	for !z.started || pos >= z.next && z.next < len(z.text) {
		z.started = true
		z.advance()
	}
	if z.zone != ZoneBody {
		return z.zone
	}
	return z.inline(pos)
}

// advance goes to the next line.
func (z *zoner) advance() {
	z.line = z.next
	z.next = len(z.text)
	if i := strings.IndexByte(z.text[z.line:], '\n'); i >= 0 {
		z.next = z.line + i + 1
	}
	z.code, z.codeEnd, z.missing = z.line, z.line, 0
	line := z.text[z.line:z.next]
	if z.fence == "" && !z.rest && (line == "" || strings.IndexByte(" >`~O-BSG", line[0]) < 0) {
		z.zone = ZoneBody // the usual case
		return
	}
	for line != "" && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	indented := strings.TrimLeft(line, " ")
	if len(line)-len(indented) > 3 {
		indented = line
	}
	switch {
	case z.fence != "":
		z.zone = ZoneCode
		if closes := strings.TrimRight(indented, " \t"); strings.HasPrefix(closes, z.fence) && strings.Trim(closes, z.fence[:1]) == "" {
			z.fence = ""
		}
	case strings.HasPrefix(indented, ">"):
		z.zone, z.rest = ZoneQuote, z.rest && z.zone == ZoneQuote
	case z.rest:
	case strings.HasPrefix(indented, "```"), strings.HasPrefix(indented, "~~~"):
		length := len(indented) - len(strings.TrimLeft(indented, indented[:1]))
		if indented[0] == '`' && strings.Contains(indented[length:], "`") {
			// A code span at the beginning of a line.
			z.zone = ZoneBody
			return
		}
		z.zone, z.fence = ZoneCode, indented[:length]
	case z.quoteHeader(line):
		z.zone = ZoneQuote
		// If the quoted lines are marked, only they are the quote.
		z.rest = !z.marked()
	case (line == "-- " || line == "--") && z.signs(), strings.HasPrefix(line, "Sent from my "), strings.HasPrefix(line, "Get Outlook for "):
		z.zone = ZoneSignature
		z.rest = strings.HasPrefix(line, "--")
	default:
		z.zone = ZoneBody
	}
}

// maxHeader bounds the header of a quote, which mailers wrap.
const maxHeader = 300

// quoteHeader reports whether a mailer's header of a quote begins here.
func (z *zoner) quoteHeader(line string) bool {
	if strings.HasPrefix(line, "-----Original Message-----") ||
		strings.HasPrefix(line, "---------- Forwarded message") || strings.HasPrefix(line, "Begin forwarded message:") {
		return true
	}
	if !strings.HasPrefix(line, "On ") {
		return false
	}
	head := z.text[z.line:min(len(z.text), z.line+maxHeader)]
	for range 3 {
		i := strings.IndexByte(head, '\n')
		first := head
		if i >= 0 {
			first = head[:i]
		}
		first = strings.TrimRight(first, " \r")
		if strings.HasSuffix(first, "wrote:") {
			return true
		}
		if i < 0 || first == "" {
			return false
		}
		head = head[i+1:]
	}
	return false
}

// marked reports whether the first line with text after a quote's header begins with >.
func (z *zoner) marked() bool {
	head := z.text[z.line:min(len(z.text), z.line+maxHeader)]
	_, head, _ = strings.Cut(head, "wrote:")
	return strings.HasPrefix(strings.TrimLeft(head, " \r\n\t"), ">")
}

// maxSignature bounds the lines with text in a signature. More lines are a letter with a rule
// across it.
const maxSignature = 12

// signs reports whether few enough lines follow for a signature. The last lines are counted once,
// from the end, however many rules the text has.
func (z *zoner) signs() bool {
	if !z.counted {
		z.counted, z.last = true, len(z.text)
		for end, lines := len(z.text), 0; z.last > 0; end = z.last - 1 {
			start := strings.LastIndexByte(z.text[:end], '\n') + 1
			if strings.TrimSpace(z.text[start:end]) != "" {
				lines++
			}
			if lines > maxSignature {
				break
			}
			z.last = start
		}
	}
	return z.next >= z.last
}

// inline reports whether a position of the line is in a code span: between two runs of equally many
// backticks.
func (z *zoner) inline(pos int) string {
	for z.codeEnd <= pos {
		i := strings.IndexByte(z.text[z.codeEnd:z.next], '`')
		if i < 0 {
			z.code, z.codeEnd = z.next, z.next
			return ZoneBody
		}
		z.code = z.codeEnd + i
		length := ticks(z.text[z.code:z.next])
		z.codeEnd = z.code + length
		if length >= 8 || z.missing&(1<<length) != 0 {
			z.code = z.codeEnd
			continue
		}
		if end := z.partner(length); end > 0 {
			z.codeEnd = end
		} else {
			// There is none further on either.
			z.missing |= 1 << length
			z.code = z.codeEnd
		}
	}
	if pos >= z.code && pos < z.codeEnd {
		return ZoneCode
	}
	return ZoneBody
}

// partner finds the end of the run of backticks that closes a code span.
func (z *zoner) partner(length int) int {
	for at := z.codeEnd; ; {
		i := strings.IndexByte(z.text[at:z.next], '`')
		if i < 0 {
			return 0
		}
		n := ticks(z.text[at+i : z.next])
		at += i + n
		if n == length {
			return at
		}
	}
}

func ticks(s string) int { return len(s) - len(strings.TrimLeft(s, "`")) }
