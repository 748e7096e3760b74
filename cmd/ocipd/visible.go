package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/text"
)

// Colours of what a person must not miss.
const (
	marked   colour = "1;33"
	reversed colour = "7"
)

// glyph is one character of a foreign text as it is shown: itself, or its name
// in ‹› where it does not show as itself.
type glyph struct {
	text  string
	width int
	// at is where the character is in the text, in bytes.
	at int
	// named is set where the name stands for the character.
	named bool
}

// glyphs shows every character of a line so that no two texts look alike for
// what does not show: characters that steer the terminal or change the order of
// others, that take no room, that are blanks of another kind, that pile up, and
// bytes that are no UTF-8. The quotes that name them are named themselves.
func glyphs(line string) []glyph {
	shown, measure := make([]glyph, 0, len(line)), cells()
	marks := text.MaxMarks // nothing to stand on
	for at := 0; at < len(line); {
		r, size := utf8.DecodeRuneInString(line[at:])
		g := glyph{text: line[at : at+size], width: measure.RuneWidth(r), at: at}
		switch {
		case !text.Shows(r), r == '‹', r == '›':
			g.named = true
		case g.width == 0, text.IsMark(r):
			marks++
			g.named = marks > text.MaxMarks
		default:
			marks = 0
		}
		if g.named {
			marks = text.MaxMarks
			g.text = text.Name(g.text)
			g.width = measure.StringWidth(g.text)
		}
		shown = append(shown, g)
		at += size
	}
	return shown
}

// visible shows a foreign text on one line.
func visible(foreign string) string {
	var b strings.Builder
	for _, g := range glyphs(foreign) {
		b.WriteString(g.text)
	}
	return b.String()
}

// beware says what in a text could mislead who reads it.
func beware(foreign string) []string {
	var warnings []string
	unshown, backwards := 0, false
	for line := range strings.SplitSeq(foreign, "\n") {
		for _, g := range glyphs(line) {
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

// page is text for a terminal, line by line. What comes from others stands
// behind a gutter or behind the name of a fact, on every line it takes, so that
// it cannot pass for what the program says.
type page struct {
	screen screen
	lines  []string
}

func (p *page) line(parts ...string) { p.lines = append(p.lines, strings.Join(parts, "")) }

func (p *page) paint(c colour, words string) string { return p.screen.colour.paint(c, words) }

// heading begins a section.
func (p *page) heading(text string) {
	p.line()
	p.say("", bold, text)
}

// say writes words of the program, behind an indent.
func (p *page) say(indent string, c colour, text string) {
	for _, line := range fold(text, p.screen.width-len(indent)) {
		p.line(indent, p.paint(c, line))
	}
}

// fact writes a name and its value, which may be foreign.
func (p *page) fact(name, value string) { p.tinted(name, plain, value) }

// tinted is fact in a colour.
func (p *page) tinted(name string, c colour, value string) {
	name = cutTo(visible(name), factWidth-2-len(gap))
	pad := strings.Repeat(" ", factWidth-2-displayWidth(name))
	p.hang("  "+p.paint(dim, name)+pad, strings.Repeat(" ", factWidth), c, value)
}

// hang writes a foreign text on one line, or on more that are set off.
func (p *page) hang(first, next string, c colour, value string) {
	for _, line := range breakLine(glyphs(value), p.screen.width-len(next)) {
		p.line(first, p.paint(c, strings.TrimRight(joined(line), " ")))
		first = next
	}
}

// What stands before the lines of a foreign text: before each of them, where
// one goes on that is too long for the terminal, and where the program points
// into the one above.
const (
	gutter   = "    │ "
	gutterOn = "    ┊ "
	gutterAt = "      "
)

// span is a part of a text, in bytes, with what was found there.
type span struct {
	start, end int
	label      string
}

// quote writes a foreign text, with its own lines kept, and points at the
// spans.
func (p *page) quote(content string, spans ...span) {
	at := 0
	for line := range strings.SplitSeq(content, "\n") {
		first := gutter
		for _, piece := range breakLine(glyphs(line), p.screen.width-displayWidth(gutter)) {
			p.quoteLine(first, piece, at, spans)
			first = gutterOn
		}
		at += len(line) + 1
	}
}

// quoteLine writes what fits on one line. From is where the line that the
// glyphs count from begins in the text.
func (p *page) quoteLine(before string, piece []glyph, from int, spans []span) {
	var shown, below strings.Builder
	var labels []string
	inside := func(g glyph) (found bool) {
		for _, s := range spans {
			if from+g.at < s.start || from+g.at >= s.end {
				continue
			}
			found = true
			if !slices.Contains(labels, s.label) {
				labels = append(labels, s.label)
			}
		}
		return found
	}
	run, c := "", plain
	for _, g := range piece {
		tint, pointer := plain, " "
		switch {
		case inside(g):
			tint, pointer = marked, "^"
		case g.named:
			tint = red
		}
		below.WriteString(strings.Repeat(pointer, g.width))
		if tint != c {
			shown.WriteString(p.paint(c, run))
			run, c = "", tint
		}
		run += g.text
	}
	shown.WriteString(p.paint(c, run))
	p.line(p.paint(dim, before), shown.String())
	pointer := strings.TrimRight(below.String(), " ")
	if pointer == "" {
		return
	}
	room := p.screen.width - displayWidth(gutterAt) - len(pointer) - 1
	p.line(gutterAt, p.paint(yellow, strings.TrimRight(pointer+" "+cutTo(visible(strings.Join(labels, ", ")), room), " ")))
}

// leastLine is the width of the widest glyph: ‹U+10FFFF›.
const leastLine = 10

// breakLine breaks glyphs into lines of at most so many cells, behind a blank
// where there is one not too far back. Nothing is left out; no glyphs are one
// empty line.
func breakLine(shown []glyph, width int) (lines [][]glyph) {
	width = max(width, leastLine)
	for {
		room, fits, blank := width, 0, 0
		for fits < len(shown) && shown[fits].width <= room {
			room -= shown[fits].width
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

func joined(shown []glyph) string {
	var b strings.Builder
	for _, g := range shown {
		b.WriteString(g.text)
	}
	return b.String()
}
