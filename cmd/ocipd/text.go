package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-runewidth"
	"github.com/openclawos/ocipd/internal/text"
)

// printable returns a text as it may be shown on a terminal. Whatever does not
// show as itself is written as an escape: control characters, which steer the
// terminal; bidirectional and other format characters, which make a text read
// as another; and bytes that are no UTF-8. Everything that came from messages
// or clients goes through here before a person sees it.
func printable(s string) string {
	if text.Showable(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case text.Shows(r):
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

// printableJSON is [printable] for a JSON text, which stays the same JSON.
func printableJSON(value jsontext.Value) jsontext.Value {
	return text.AppendJSON(nil, string(value))
}

// displayWidth is how many cells of a terminal a printable text takes.
func displayWidth(shown string) int { return cells().StringWidth(shown) }

// cutTo shortens a printable text to a number of cells.
func cutTo(shown string, width int) string {
	if width <= 0 {
		return ""
	}
	return cells().Truncate(shown, width, "…")
}

// fold breaks a printable text into lines of at most so many cells, between
// words where that is possible. Blanks at a break are left out, and runs of them
// become one; a text of nothing else is one empty line.
func fold(shown string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(shown) {
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

func (p palette) paint(c colour, shown string) string {
	if !p.on || c == plain || shown == "" {
		return shown
	}
	return "\x1b[" + string(c) + "m" + shown + "\x1b[0m"
}
