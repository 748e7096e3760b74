package term

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Colours of text that a person must not miss.
const (
	marked   Colour = "1;33"
	Reversed Colour = "7"
)

// Glyph is the form in which one character of a foreign text is shown: itself, or its name in ‹› if
// it does not show as itself.
type Glyph struct {
	text  string
	Width int
	// At is the character's position in the text, in bytes.
	At int
	// named is set if the name stands for the character.
	named bool
}

// Glyphs returns the form of every character of a line, so that no two texts look alike because of
// invisible characters. It names characters that steer the terminal or change the order of others,
// that take no room, that are unusual blanks, that pile up, and bytes that are no UTF-8. It also
// names the quotes that it uses for names.
func Glyphs(line string) []Glyph {
	shown, measure := make([]Glyph, 0, len(line)), cells()
	marks := text.MaxMarks // a mark at the start has no character to stand on
	for at := 0; at < len(line); {
		r, size := utf8.DecodeRuneInString(line[at:])
		g := Glyph{text: line[at : at+size], Width: measure.RuneWidth(r), At: at}
		switch {
		case !text.Shows(r), r == '‹', r == '›':
			g.named = true
		case g.Width == 0, text.IsMark(r):
			marks++
			g.named = marks > text.MaxMarks
		default:
			marks = 0
		}
		if g.named {
			marks = text.MaxMarks
			g.text = text.Name(g.text)
			g.Width = measure.StringWidth(g.text)
		}
		shown = append(shown, g)
		at += size
	}
	return shown
}

// Address is [Printable] for texts that identify messages, such as session keys. It also names
// characters that read as other characters of ASCII, see [text.Posing].
func Address(foreign string) string {
	if plain(foreign) {
		return foreign
	}
	posing, shown := text.Posing(foreign), Glyphs(foreign)
	for i := range shown {
		if g := &shown[i]; !g.named && slices.Contains(posing, g.At) {
			g.text = text.Name(g.text)
		}
	}
	return JoinGlyphs(shown)
}

// Misleading lists the properties of a text that could mislead its reader.
func Misleading(foreign string) []string {
	var warnings []string
	unshown, backwards := 0, false
	for line := range strings.SplitSeq(foreign, "\n") {
		for _, g := range Glyphs(line) {
			if g.named {
				unshown++
			}
		}
	}
	for _, r := range foreign {
		backwards = backwards || unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko)
	}
	switch {
	case unshown == 1:
		warnings = append(warnings, "1 character of it does not show as what it is: it is named in ‹›")
	case unshown > 1:
		warnings = append(warnings, fmt.Sprintf("%d characters of it do not show as what they are: they are named in ‹›", unshown))
	}
	if backwards {
		warnings = append(warnings, "it has letters that are written from right to left: some terminals show such lines in another order")
	}
	return warnings
}

// Page is text for a terminal, line by line. Text from others stands behind a gutter or behind the
// name of a fact, on every one of its lines, so that it cannot pass for the program's text.
type Page struct {
	Screen Screen
	Lines  []string
}

// Line writes a line of printable parts.
func (p *Page) Line(parts ...string) { p.Lines = append(p.Lines, strings.Join(parts, "")) }

// Paint colours a printable text.
func (p *Page) Paint(c Colour, words string) string { return p.Screen.Colour.Paint(c, words) }

// Heading begins a section.
func (p *Page) Heading(text string) {
	p.Line()
	p.Say("", Bold, text)
}

// Title writes a title of the page, which may be foreign.
func (p *Page) Title(text string) { p.Hang("", "    ", Bold, text) }

// Item names the subject of the next lines, which may be foreign.
func (p *Page) Item(text string) { p.Hang("  ", "      ", Yellow, text) }

// Code writes a name and a long value on a line of their own, so that a person can copy the value.
func (p *Page) Code(name, value string) {
	p.Hang(p.Paint(Dim, name+" "), strings.Repeat(" ", len(name)+1), NoColour, value)
}

// Say writes the program's own words, behind an indent.
func (p *Page) Say(indent string, c Colour, text string) {
	for _, line := range Fold(text, p.Screen.Width-len(indent)) {
		p.Line(indent, p.Paint(c, line))
	}
}

// Fact writes a name and its value, which may be foreign.
func (p *Page) Fact(name, value string) { p.Tinted(name, NoColour, value) }

// Tinted is Fact in a colour.
func (p *Page) Tinted(name string, c Colour, value string) {
	p.Hang(FactName(p.Screen.Colour, name), strings.Repeat(" ", FactWidth), c, value)
}

// Hang writes a foreign text on one line, or on more that are set off.
func (p *Page) Hang(first, next string, c Colour, value string) {
	for _, line := range BreakLine(Glyphs(value), p.Screen.Width-len(next)) {
		p.Line(first, p.Paint(c, strings.TrimRight(JoinGlyphs(line), " ")))
		first = next
	}
}

// Marks before the lines of a foreign text: before each line, before the continuation of a line
// that is too long for the terminal, and before a line with which the program points into the one
// above.
const (
	Gutter   = "    │ "
	gutterOn = "    ┊ "
	gutterAt = "      "
)

// Span is a part of a text, in bytes, and the finding there.
type Span struct {
	Start, End int
	Label      string
}

// Quote writes a foreign text with its own lines, and points at the spans.
func (p *Page) Quote(content string, spans ...Span) {
	at := 0
	for line := range strings.SplitSeq(content, "\n") {
		first := Gutter
		for _, piece := range BreakLine(Glyphs(line), p.Screen.Width-Width(Gutter)) {
			p.quoteLine(first, piece, at, spans)
			first = gutterOn
		}
		at += len(line) + 1
	}
}

// quoteLine writes one line of glyphs. From is the offset in the text of the line that the glyphs
// count from.
func (p *Page) quoteLine(before string, piece []Glyph, from int, spans []Span) {
	var shown, below strings.Builder
	var labels []string
	inside := func(g Glyph) (found bool) {
		for _, s := range spans {
			if from+g.At < s.Start || from+g.At >= s.End {
				continue
			}
			found = true
			if !slices.Contains(labels, s.Label) {
				labels = append(labels, s.Label)
			}
		}
		return found
	}
	run, c := "", NoColour
	for _, g := range piece {
		tint, pointer := NoColour, " "
		switch {
		case inside(g):
			tint, pointer = marked, "^"
		case g.named:
			tint = Red
		}
		below.WriteString(strings.Repeat(pointer, g.Width))
		if tint != c {
			shown.WriteString(p.Paint(c, run))
			run, c = "", tint
		}
		run += g.text
	}
	shown.WriteString(p.Paint(c, run))
	p.Line(p.Paint(Dim, before), shown.String())
	pointer := strings.TrimRight(below.String(), " ")
	if pointer == "" {
		return
	}
	room := p.Screen.Width - Width(gutterAt) - len(pointer) - 1
	p.Line(gutterAt, p.Paint(Yellow, strings.TrimRight(pointer+" "+Cut(Printable(strings.Join(labels, ", ")), room), " ")))
}

// leastLine is the width of the widest glyph: ‹U+10FFFF›.
const leastLine = 10

// BreakLine breaks glyphs into lines of at most that many cells, behind a blank if one is near
// enough. It leaves nothing out; no glyphs give one empty line.
func BreakLine(shown []Glyph, width int) (lines [][]Glyph) {
	width = max(width, leastLine)
	for {
		room, fits, blank := width, 0, 0
		for fits < len(shown) && shown[fits].Width <= room {
			room -= shown[fits].Width
			if fits++; shown[fits-1].text == " " {
				blank = fits
			}
		}
		if fits == len(shown) {
			return append(lines, shown)
		}
		if blank > fits/2 {
			fits = blank
		}
		lines = append(lines, shown[:fits])
		shown = shown[fits:]
	}
}

// JoinGlyphs returns glyphs as one text.
func JoinGlyphs(shown []Glyph) string {
	var b strings.Builder
	for _, g := range shown {
		b.WriteString(g.text)
	}
	return b.String()
}

// FactWidth is the width of the names of facts, with indent and gap.
const FactWidth = 2 + len("conversation") + len(Gap)

// FactName returns the name of a fact, padded to FactWidth.
func FactName(p Palette, name string) string {
	name = Cut(Printable(name), FactWidth-2-len(Gap))
	return "  " + p.Paint(Dim, name) + strings.Repeat(" ", FactWidth-2-Width(name))
}

// Prose writes a text in as many lines as it needs. The first line begins with first, and each
// further one with next, which has the same width.
func Prose(w io.Writer, scr Screen, first, next, text string) {
	begin := first
	for _, line := range Fold(Printable(text), scr.Width-Width(next)) {
		fmt.Fprintln(w, begin+line)
		begin = next
	}
}

// Quote writes an agent's text. It marks each line, so that it cannot pass for one of the
// program's.
func Quote(w io.Writer, scr Screen, text string) {
	mark := "    " + scr.Colour.Paint(Dim, "│") + " "
	for _, line := range Fold(Printable(text), scr.Width-len("    | ")) {
		fmt.Fprintln(w, mark+line)
	}
}
