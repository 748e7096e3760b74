package media

import (
	"bytes"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InText finds the references in a text for people that some client opens, and adds them to a list:
//
//   - the text after MEDIA:, as OpenClaw reads its agents' answers: a path, in quotes if it
//     has blanks. If the word begins a line, also a relative name or a web address. It counts
//     in a quote and in code as well, since some versions of OpenClaw look there;
//   - file: URLs;
//   - local paths in a link, an image or a link definition of Markdown, or in an attribute
//     of HTML by which clients load something;
//   - data: URLs, whose bytes are in the text.
//
// A path that is only mentioned does not count. InText stops at one more than [MaxReferences].
func InText(list []Reference, member, s string) ([]Reference, error) {
	if list = inText(list, member, s); len(list) > MaxReferences {
		return nil, refused("the message names more than %d files and addresses", MaxReferences)
	}
	return list, nil
}

func inText(list []Reference, member, s string) []Reference {
	t := reading{list: list, member: member}
	comma, mark := ahead{of: ", \t\r\n"}, ahead{of: "/;"}
	for i := 0; i < len(s) && len(t.list) <= MaxReferences; {
		at := strings.IndexByte(s[i:], ':')
		if at < 0 {
			break
		}
		at += i
		i = at + 1
		switch word, rest := s[:at], s[i:]; {
		case endsFold(word, "file"):
			if strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, `\`) {
				end := at + 1 + urlLength(rest)
				from := at - len("file")
				t.add(s[from:end], other, !standsAlone(s[:from], s[end:]))
				i = end
			}
		case endsFold(word, "data"):
			if end := comma.from(s, i); end < len(s) && s[end] == ',' && (end == i || mark.from(s, i) < end) {
				from := at - len("data")
				// Programs end it at different signs, so every byte counts.
				for i = end; i < len(s) && s[i] > ' '; {
					i++
				}
				t.add(s[from:i], other, false)
			}
		case strings.HasSuffix(word, "]"):
			t.definition(word, rest)
		case endsFold(word, "media"):
			t.token(word[:len(word)-len("media")], word[len(word)-len("media"):], rest)
		}
	}
	for i := 0; len(t.list) <= MaxReferences; {
		at := strings.IndexByte(s[i:], '=')
		if at < 0 {
			break
		}
		t.attribute(s[:i+at], s[i+at+1:])
		i += at + 1
	}
	for i := 0; len(t.list) <= MaxReferences; {
		at := strings.Index(s[i:], "](")
		if at < 0 {
			break
		}
		i += at + len("](")
		t.link(s[i:])
	}
	return t.list
}

// reading is a text and its references so far.
type reading struct {
	list   []Reference
	member string
}

// add adds a value from the text if it is a reference. Unsure is set if the text around it leaves
// its end open, or if the text writes it in another form.
func (t *reading) add(value string, k kind, unsure bool) bool {
	r, ok := whole(value, k)
	if !ok || len(t.list) > MaxReferences {
		return false
	}
	if unsure && r.Path != "" {
		r.Refused = unclear
	}
	r.Member, r.Value = t.member, value
	for _, known := range t.list {
		if known.Member == r.Member && (known.Value == r.Value || r.Path != "" && known.Path == r.Path || r.Inline != nil && bytes.Equal(known.Inline, r.Inline)) && known.Refused == r.Refused {
			return true
		}
	}
	t.list = append(t.list, r)
	return true
}

// standsAlone reports whether every program ends an address between two texts at the same place: at
// a blank, or at the sign that closes an enclosing one.
func standsAlone(before, after string) bool {
	if after == "" || after[0] == ' ' || '\t' <= after[0] && after[0] <= '\r' {
		return true
	}
	for _, around := range [...]string{"<>", "``", `""`} {
		if strings.HasSuffix(before, around[:1]) && strings.HasPrefix(after, around[1:]) {
			return true
		}
	}
	return strings.HasSuffix(before, "](") && strings.HasPrefix(after, ")")
}

// endsFold reports whether a text ends in a whole word, in any case.
func endsFold(s, word string) bool {
	from := len(s) - len(word)
	if from < 0 || !strings.EqualFold(s[from:], word) {
		return false
	}
	return from == 0 || !isWord(s[from-1])
}

func isWord(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' || c == '_' }

// urlLength returns the length of a URL in a text.
func urlLength(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`<>()", r) })
	if end < 0 {
		end = len(s)
	}
	return len(strings.TrimRight(s[:end], ".,;:!?"))
}

// ahead finds the next of some signs from ascending positions.
type ahead struct {
	of   string
	at   int
	seen bool
}

func (a *ahead) from(s string, i int) int {
	if !a.seen || a.at < i {
		a.at, a.seen = len(s), true
		if n := strings.IndexAny(s[i:], a.of); n >= 0 {
			a.at = i + n
		}
	}
	return a.at
}

// definition adds the local path of a Markdown link definition: it follows a name in brackets and a
// colon, alone on its line except for a title.
func (t *reading) definition(name, rest string) {
	name = name[:len(name)-1]
	from := strings.LastIndexAny(name, "[]")
	if from < 0 || name[from] != '[' {
		return
	}
	// A line in a quote or a list can be one too.
	if line := strings.TrimRight(name[:from], " \t>*+-.)0123456789"); line != "" && line[len(line)-1] != '\n' {
		return
	}
	s := strings.TrimLeft(rest[:min(len(rest), longestPath)], " \t\r\n")
	if s == "" {
		return
	}
	var value, after string
	if s[0] == '<' {
		var ok bool
		if value, after, ok = strings.Cut(s[1:], ">"); !ok {
			return
		}
	} else {
		end := strings.IndexAny(s, " \t\r\n")
		if end < 0 {
			end = len(s)
		}
		value, after = s[:end], s[end:]
	}
	line, _, _ := strings.Cut(after, "\n")
	if line = strings.Trim(line, " \t\r"); line != "" && strings.IndexByte("\"'(", line[0]) < 0 {
		return
	}
	written := html.UnescapeString(value)
	for _, path := range [...]string{unescaped(written), written} {
		if t.add(path, other, line != "" || strings.ContainsAny(value, `&%?#\()<>`)) {
			return
		}
	}
}

// attribute adds the value of an HTML attribute by which a client loads something. One text ends
// with the name, and the other begins with the value.
func (t *reading) attribute(before, after string) {
	before = strings.TrimRight(before, " \t\r\n")
	if !slices.ContainsFunc(loading[:], func(name string) bool {
		// In a query of a web address it is no attribute.
		from := len(before) - len(name)
		return from > 0 && endsFold(before, name) && (before[from-1] <= ' ' || strings.IndexByte("\"'/:-", before[from-1]) >= 0)
	}) {
		return
	}
	s := strings.TrimLeft(after, " \t\r\n")
	var end int
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		quote := s[0]
		s = s[1:]
		end = strings.IndexByte(s, quote)
	} else {
		end = strings.IndexAny(s[:min(len(s), longestPath)], " \t\r\n>")
	}
	if end < 0 {
		end = min(len(s), longestPath)
	}
	t.add(html.UnescapeString(s[:end]), other, strings.ContainsAny(s[:end], `&%?#\`))
}

// loading are the HTML attributes by which clients load something.
var loading = [...]string{"src", "href", "srcset", "poster", "data", "background", "action", "cite"}

// longestPath bounds a path or an address that a client opens.
const longestPath = 4096

// token adds the reference after a word, MEDIA in any case, and its colon.
func (t *reading) token(before, word, rest string) {
	part := other
	if line := strings.TrimRight(before, " \t\r\v\f\u00a0\u3000\ufeff"); word == "MEDIA" && (line == "" || strings.HasSuffix(line, "\n")) {
		part = loose
	}
	behind := strings.TrimLeftFunc(rest, unicode.IsSpace)
	payload := behind
	payload = payload[:payloadLength(payload)]
	// Not every program treats a blank of another script as a blank.
	unsure := strings.ContainsFunc(rest[:len(rest)-len(behind)+len(payload)], func(r rune) bool { return r >= utf8.RuneSelf && unicode.IsSpace(r) })
	payload = strings.TrimSpace(payload)
	if n := len(payload); n >= 2 && payload[0] == payload[n-1] && strings.IndexByte("`\"'", payload[0]) >= 0 && strings.Count(payload, payload[:1]) == 2 {
		t.add(clean(payload), part, unsure)
		return
	}
	var found []string
	parts := strings.Fields(payload)
	for _, written := range parts {
		value := clean(written)
		if _, ok := whole(value, part); ok && strings.ContainsAny(value, `/\`) && len(value) <= longestPath && len(found) <= MaxReferences {
			found = append(found, value)
		}
	}
	// A path with blanks goes to the end of the line, unless the line has another one.
	all := clean(payload)
	switch {
	case len(found) == 1 && len(parts) > 1 && isPath(found[0]) && found[0] == clean(parts[0]):
		found[0] = all
	case len(found) == 0 && part == loose && hasEnding(all):
		found = append(found, all)
	}
	for _, value := range found {
		t.add(value, part, unsure || value != payload || len(parts) > 1)
	}
}

// payloadLength returns the length of the text that belongs to one MEDIA token: up to the next
// token or the end of the line.
func payloadLength(s string) int {
	for i := 0; ; i++ {
		at := strings.IndexByte(s[i:], ':')
		if at < 0 {
			at = len(s) - i
		}
		if end := strings.IndexByte(s[i:i+at], '\n'); end >= 0 {
			return i + end
		}
		switch i += at; {
		case i == len(s):
			return i
		case endsFold(s[:i], "media"):
			return i - len("media")
		}
	}
}

// clean removes quotes and brackets around a path, and the text after a quote.
func clean(s string) string {
	s = strings.TrimLeft(s, "`\"'[{(")
	s, _, _ = strings.Cut(s, `"`)
	return strings.TrimRight(s, "`'\\})],")
}

// link adds the target of a Markdown link if it is a local path. The text begins after the opening
// parenthesis.
func (t *reading) link(s string) {
	blank := s != "" && s[0] <= ' '
	s = strings.TrimLeft(s, " \t\n")
	s = s[:min(len(s), longestPath)]
	if s == "" {
		return
	}
	// Only few links can be paths. A character can be written by its number.
	head := s[:min(len(s), 16)]
	if strings.HasPrefix(head, "&") {
		head = html.UnescapeString(head)
	}
	if head = strings.TrimLeft(head, `<\`); head != "" && strings.IndexByte(`/~.&`, head[0]) < 0 && !isLetter(head[0]) || isWebAddress(head) {
		return
	}
	end, closing := linkLength(s), ")"
	if s[0] == '<' {
		s, closing = s[1:], ">)"
		if end = strings.IndexByte(s, '>'); end < 0 {
			return
		}
	}
	// Renderers differ in decoding escapes, and in the end of a link that contains a title or
	// brackets.
	sure := !blank && !strings.ContainsAny(s[:end], `&%?#\()<>`) && strings.HasPrefix(s[end:], closing)
	written := html.UnescapeString(s[:end])
	for _, value := range [...]string{unescaped(written), written} {
		if t.add(value, other, !sure) {
			return
		}
	}
}

// linkLength returns the length of a link between parentheses, at most to the next one.
func linkLength(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if s[i] <= ' ' || depth < 0 || strings.HasPrefix(s[i:], "](") {
			return i
		}
	}
	return len(s)
}

func isWebAddress(s string) bool {
	_, ok := cutFold(s, "http")
	return ok
}

// unescaped removes the backslashes before signs from a text of Markdown.
func unescaped(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && s[i+1] > ' ' && s[i+1] < 0x7f && !isWord(s[i+1]) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
