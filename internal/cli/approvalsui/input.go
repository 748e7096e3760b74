package approvalsui

import (
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/base/term"
)

// input is a text field.
type input struct {
	text []rune
	// at is the index of the character after the cursor.
	at int
	// lines permits more than one line.
	lines bool
	// limit bounds the text, in bytes.
	limit int
}

// draft is the text in place of a message. of is the id of that message, or "".
type draft struct {
	input
	of string
}

func newInput(text string, lines bool, limit int) input {
	runes := []rune(text)
	return input{text: runes, at: len(runes), lines: lines, limit: limit}
}

func (in *input) String() string { return string(in.text) }

// insert inserts a text at the cursor, as far as there is room.
func (in *input) insert(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if !in.lines {
		text = strings.ReplaceAll(text, "\n", " ")
	}
	room := in.limit - len(in.String())
	var fits []rune
	for _, r := range text {
		if room -= utf8.RuneLen(r); room < 0 {
			break
		}
		fits = append(fits, r)
	}
	in.text = slices.Insert(in.text, in.at, fits...)
	in.at += len(fits)
}

// key handles a key press.
func (in *input) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "left", "ctrl+b":
		in.at = max(0, in.at-1)
	case "right", "ctrl+f":
		in.at = min(len(in.text), in.at+1)
	case "home", "ctrl+a":
		in.at = in.start()
	case "end", "ctrl+e":
		in.at = in.end()
	case "up":
		column := in.at - in.start()
		if in.start() > 0 {
			in.at = in.start() - 1
			in.at = min(in.start()+column, in.end())
		}
	case "down":
		column := in.at - in.start()
		if in.end() < len(in.text) {
			in.at = in.end() + 1
			in.at = min(in.start()+column, in.end())
		}
	case "backspace", "ctrl+h":
		if in.at > 0 {
			in.at--
			in.text = slices.Delete(in.text, in.at, in.at+1)
		}
	case "delete":
		if in.at < len(in.text) {
			in.text = slices.Delete(in.text, in.at, in.at+1)
		}
	case "ctrl+u":
		in.text, in.at = slices.Delete(in.text, in.start(), in.at), in.start()
	case "enter":
		if in.lines {
			in.insert("\n")
		}
	default:
		in.insert(k.Text)
	}
}

// start and end are the bounds of the cursor's line.
func (in *input) start() int {
	start := in.at
	for start > 0 && in.text[start-1] != '\n' {
		start--
	}
	return start
}

func (in *input) end() int {
	end := in.at
	for end < len(in.text) && in.text[end] != '\n' {
		end++
	}
	return end
}

// layOut breaks the text into lines of a width, and returns the cursor's position in them.
func (in *input) layOut(width int) (lines []string, x, y int) {
	at := len(string(in.text[:in.at]))
	begin := 0
	for line := range strings.SplitSeq(in.String(), "\n") {
		for _, piece := range term.BreakLine(term.Glyphs(line), width) {
			from, column := begin, 0
			if len(piece) > 0 {
				from += piece[0].At
			}
			if from <= at {
				for _, g := range piece {
					if begin+g.At < at {
						column += g.Width
					}
				}
				x, y = column, len(lines)
			}
			lines = append(lines, term.JoinGlyphs(piece))
		}
		begin += len(line) + 1
	}
	return lines, x, y
}
