package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-runewidth"
)

// printable returns text as it may be shown on a terminal. Whatever does not
// show as itself is written as an escape: control characters, which steer the
// terminal; bidirectional and other format characters, which make a text read
// as another; and bytes that are no UTF-8. Everything that came from messages
// or clients goes through here before a person sees it.
func printable(text string) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !hidden(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

// printableJSON is [printable] for a JSON text, which stays the same JSON: what
// could steer a terminal stands inside strings only, as JSON escapes.
func printableJSON(text jsontext.Value) jsontext.Value {
	var out jsontext.Value
	for i, r := range string(text) {
		if r < utf8.RuneSelf && r != 0x7f || !hidden(r) {
			if out != nil {
				out = utf8.AppendRune(out, r)
			}
			continue
		}
		if out == nil {
			out = append(make(jsontext.Value, 0, len(text)+16), text[:i]...)
		}
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	if out == nil {
		return text
	}
	return out
}

// hidden reports whether a character does not show as itself.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r)
}

// displayWidth is how many cells of a terminal a printable text takes.
func displayWidth(text string) int { return cells().StringWidth(text) }

// cutTo shortens a printable text to a number of cells.
func cutTo(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return cells().Truncate(text, width, "…")
}

// fold breaks a printable text into lines of at most so many cells, between
// words where that is possible. Blanks at a break are left out, and runs of them
// become one; a text of nothing else is one empty line.
func fold(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			lines = lines[:len(lines)-1]
		case displayWidth(*last)+1+displayWidth(word) <= width:
			*last += " " + word
			continue
		}
		lines = append(lines, strings.Split(cells().Wrap(word, max(2, width)), "\n")...)
	}
	return lines
}

// cells measures like terminals do that are not set up for East Asian text,
// whatever the environment says, so that output does not depend on it.
func cells() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// palette colours text where colours are wanted.
type palette struct{ on bool }

// colour is an SGR parameter.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

func (p palette) paint(c colour, text string) string {
	if !p.on || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
