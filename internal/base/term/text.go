package term

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-runewidth"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Printable returns a text as it may be shown on one line of a terminal, the same everywhere. It
// spells out in ‹› each character that does not show as itself, see [Glyphs]: control characters,
// which steer the terminal; bidirectional and other format characters, which make a text read as
// another; and bytes that are no UTF-8. No two texts therefore look alike. A text must go through
// here only once, since the quotes themselves are spelled out too. All text from messages or
// clients must go through here before a person sees it.
func Printable(foreign string) string {
	if plain(foreign) {
		return foreign
	}
	return JoinGlyphs(Glyphs(foreign))
}

// plain reports whether a text is ASCII that shows as itself.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// PrintableJSON is [Printable] for a JSON text. It stays the same JSON: escapes of JSON replace
// characters that do not show.
func PrintableJSON(value jsontext.Value) jsontext.Value {
	return text.AppendJSON(nil, string(value))
}

// Width returns the number of a terminal's cells that a printable text takes.
func Width(shown string) int { return cells().StringWidth(shown) }

// Cut shortens a printable text to a number of cells.
func Cut(shown string, width int) string {
	if width <= 0 {
		return ""
	}
	return cells().Truncate(shown, width, "…")
}

// Fold breaks a printable text into lines of at most that many cells, between words if possible. It
// leaves out blanks at a break, and runs of blanks become one. A text of blanks alone is one empty
// line.
func Fold(shown string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(shown) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			lines = lines[:len(lines)-1]
		case Width(*last)+1+Width(word) <= width:
			*last += " " + word
			continue
		}
		lines = append(lines, strings.Split(cells().Wrap(word, max(2, width)), "\n")...)
	}
	return lines
}

// FoldAtBlanks breaks a printable text into lines of at most that many cells, but only at blanks: a
// longer word gets a longer line. It leaves out only the blank at a break.
func FoldAtBlanks(text string, width int) []string {
	lines := []string{""}
	for i, word := range strings.Split(text, " ") {
		last := &lines[len(lines)-1]
		switch {
		case i == 0:
			*last = word
		case Width(*last)+1+Width(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// Line writes a printable text and a newline. It folds the text between words to the width of a
// terminal; a program gets one line.
func Line(w io.Writer, text string) error {
	if scr := ScreenOf(w, func(string) string { return "" }); scr.Terminal {
		text = strings.Join(FoldAtBlanks(text, scr.Width), "\n")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// cells measures like terminals that are not set up for East Asian text. It ignores the
// environment, so that output does not depend on it.
func cells() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// Palette colours text if colours are on.
type Palette struct{ On bool }

// Colour is an SGR parameter.
type Colour string

// The colours, as SGR parameters.
const (
	NoColour Colour = ""
	Bold     Colour = "1"
	Dim      Colour = "2"
	Reverse  Colour = "7"
	Red      Colour = "31"
	Green    Colour = "32"
	Yellow   Colour = "33"
)

// Paint colours a printable text.
func (p Palette) Paint(c Colour, shown string) string {
	if !p.On || c == NoColour || shown == "" {
		return shown
	}
	return "\x1b[" + string(c) + "m" + shown + "\x1b[0m"
}
