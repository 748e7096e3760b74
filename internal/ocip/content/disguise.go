package content

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// A reader recognizes a token even if signs of Markdown, tags, accents or letters of other
// alphabets cut it in pieces. Words in such a form are scanned once more as they read, with the
// same reading as for commitments ([text.Reads]).

const (
	// disguiseSigns are the characters with which Markdown and tags begin and end.
	disguiseSigns = "*`~<"
	// shortestDisguised is the least number of letters, digits and dashes in a token, and
	// longestDisguised bounds the length that is scanned.
	shortestDisguised = 20
	longestDisguised  = 512
)

// disguised adds the findings in disguised words that are not among those in the text itself, which
// begin at first.
func (p *pass) disguised(found []Finding, first int, s string, has traits) []Finding {
	if has&traitDigit == 0 || has&(traitOdd|traitMark) == 0 {
		return found // every token has a digit
	}
	written := len(found)
	if has&traitMark != 0 {
		for _, sign := range [...]string{"*", "`", "~~", "<"} {
			for at := strings.Index(s, sign); at >= 0; {
				end := at + len(sign)
				if parts(s, at) {
					found, end = p.word(found, s, at)
				}
				next := strings.Index(s[end:], sign)
				if next < 0 {
					break
				}
				at = end + next
			}
		}
	}
	if has&traitOdd != 0 {
		for at, done := odd(s), 0; at < len(s); at += odd(s[at:]) {
			end := beyond(s, at)
			if end > done && end-at <= utf8.UTFMax*4 && (at > 0 && kindOf(s[at-1]).in(base64URL) || end < len(s) && kindOf(s[end]).in(base64URL)) {
				found, done = p.word(found, s, at)
			}
			at = end
		}
	}
	if len(found) == written {
		return found
	}
	return p.merge(found, first, written)
}

// parts reports whether a sign at a position splits one word.
func parts(s string, at int) bool {
	if at == 0 || !kindOf(s[at-1]).in(base64URL) {
		return false
	}
	end := at + 1
	for end < len(s) && strings.IndexByte(disguiseSigns, s[end]) >= 0 {
		end++
	}
	switch {
	case end == len(s):
		return false
	case s[at] == '<':
		return s[end] == '/' || s[end] == '!' || kindOf(s[end]).in(letter)
	}
	return kindOf(s[end]).in(base64URL)
}

// beyond returns the end of a run of bytes beyond ASCII that begins at a position.
func beyond(s string, at int) int {
	for at++; at < len(s); {
		if at+8 <= len(s) && text.Eight(s[at:])&highs == highs {
			at += 8
			continue
		}
		if s[at] < utf8.RuneSelf {
			break
		}
		at++
	}
	return at
}

// word scans the word around a position as it reads, with the text before it, and returns its end.
func (p *pass) word(found []Finding, s string, at int) ([]Finding, int) {
	const blanks = space | newline
	from, end, plain, digits := at, at, 0, 0
	for from > max(0, at-longestDisguised) && !kindOf(s[from-1]).in(blanks) {
		from--
	}
	for end < min(len(s), at+longestDisguised) && !kindOf(s[end]).in(blanks) {
		end++
	}
	for i := from; i < end; i++ {
		switch k := kindOf(s[i]); {
		case k.in(digit):
			digits++
			plain++
		case k.in(base64URL):
			plain++
		}
	}
	if digits == 0 || plain < shortestDisguised {
		return found, end
	}
	shown := text.See(s[from:end], text.RenderHTML, text.RenderMarkdown, text.RenderReading, text.RenderPlain)
	if !shown.Changed() || shown.Text == "" {
		return found, end
	}
	cut := from > 0 && !kindOf(s[from-1]).in(blanks)
	more := end < len(s) && !kindOf(s[end]).in(blanks)
	first := len(found)
	found = p.builtin(found, shown.Text)
	return p.keep(found, first, func(f *Finding) bool {
		if !strings.HasPrefix(f.Rule, "credential.") || cut && f.Start == 0 || more && f.End == len(shown.Text) {
			return false
		}
		start, last := shown.Span(f.Start, f.End)
		f.Start, f.End = from+start, from+last
		return true
	}), end
}

// turns reports whether a run begins as a token in rot13, or ends as one written backwards.
func turns(s string, start, end int) bool {
	return end-start <= longestDisguised && (turnedHeads[1].holds(s[start], s[start+1], s[start+2]) || turnedHeads[0].holds(s[end-1], s[end-2], s[end-3]))
}

// turned adds the tokens in a run after the reversal, see [turns].
func (p *pass) turned(found []Finding, s string, start, end int) []Finding {
	b := make([]byte, 0, end-start)
	for _, c := range []byte(s[start:end]) {
		b = append(b, thirteen(c))
	}
	first := len(found)
	found = p.builtin(found, string(b))
	b = b[:0]
	for i := end; i > start; i-- {
		b = append(b, s[i-1])
	}
	found = p.builtin(found, string(b))
	return p.keep(found, first, func(f *Finding) bool {
		f.Start, f.End = start, end
		return slices.ContainsFunc(tokens, func(t issued) bool { return t.id == f.Rule })
	})
}

func thirteen(c byte) byte {
	if k := kindOf(c); k.in(letter) {
		first := c&0x20 | 'A'
		return first + (c-first+13)%26
	}
	return c
}

// heads are the first three bytes of tokens, with a bit for the hash of each.
type heads [1 << 15 / 64]uint64

func headOf(a, b, c byte) uint { return (uint(a)<<10 ^ uint(b)<<5 ^ uint(c)) % (1 << 15) }

func (h *heads) add(a, b, c byte) {
	at := headOf(a, b, c)
	h[at>>6] |= 1 << (at & 63)
}

func (h *heads) holds(a, b, c byte) bool {
	at := headOf(a, b, c)
	return h[at>>6]>>(at&63)&1 != 0
}

// turnedHeads are the beginnings of tokens, unchanged and in rot13.
var turnedHeads = func() (table [2]heads) {
	for _, t := range tokens {
		for _, one := range t.shapes {
			if x := one.prefix; len(x) > 2 {
				table[0].add(x[0], x[1], x[2])
				table[1].add(thirteen(x[0]), thirteen(x[1]), thirteen(x[2]))
			}
		}
	}
	return table
}()
