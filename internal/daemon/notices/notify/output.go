package notify

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tail is a writer that keeps the end of the text, in bounded memory.
type tail struct {
	limit int
	kept  []byte // at most twice limit
	total int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.total += int64(len(p))
	written := len(p)
	p = p[max(0, len(p)-t.limit):]
	if len(t.kept)+len(p) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	t.kept = append(t.kept, p...)
	return written, nil
}

// text returns the last limit bytes, without a cut word or character at the start.
func (t *tail) text() string {
	kept := t.kept[max(0, len(t.kept)-t.limit):]
	if int64(len(kept)) == t.total {
		return string(kept)
	}
	for len(kept) > 0 && !utf8.RuneStart(kept[0]) {
		kept = kept[1:]
	}
	return string(bytes.TrimLeftFunc(kept, isWordRune))
}

// mask makes a program's output safe to log: cleaned like a notice, and with each word of
// three characters or more that is in the notice, in any case, replaced by "***".
func mask(output string, n Notice) string {
	words := make(map[string]bool)
	collect := func(text string) {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !isWordRune(r) }) {
			words[strings.ToLower(word)] = true
		}
	}
	collect(n.Title)
	collect(n.Body)
	// In JSON and shells, the n of \n joins the next word.
	collect(strings.ReplaceAll(n.Body, "\n", " n"))
	for _, value := range n.Fields {
		collect(value)
	}
	output = clean(output, maxOutput, true)
	var b strings.Builder
	for len(output) > 0 {
		rest := strings.TrimLeftFunc(output, isWordRune)
		word := output[:len(output)-len(rest)]
		if utf8.RuneCountInString(word) >= 3 && words[strings.ToLower(word)] {
			word = "***"
		}
		between := strings.TrimLeftFunc(rest, func(r rune) bool { return !isWordRune(r) })
		b.WriteString(word)
		b.WriteString(rest[:len(rest)-len(between)])
		output = between
	}
	return b.String()
}

// isWordRune reports whether a character is part of a word or a number.
func isWordRune(r rune) bool { return unicode.In(r, unicode.L, unicode.M, unicode.N) }
