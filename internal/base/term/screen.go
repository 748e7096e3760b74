package term

import (
	"io"
	"os"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"
)

// defaultWidth is the width of tables if no terminal gives another.
const defaultWidth = 80

// Screen describes the output at stdout.
type Screen struct {
	// Terminal is set if a person reads the output, not a program.
	Terminal bool
	Width    int
	Colour   Palette
}

// ScreenOf describes an output, given the variables of the environment.
func ScreenOf(stdout io.Writer, getenv func(string) string) Screen {
	out := Screen{Width: defaultWidth}
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		out.Terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			out.Width = w
		}
		out.Colour.On = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	}
	if w, err := strconv.Atoi(getenv("COLUMNS")); err == nil && w > 0 {
		out.Width = w
	}
	return out
}

// AnyWidth is the room of rows that are never cut.
const AnyWidth = 1 << 16

// RowWidth is the maximal width of tables' rows. A program gets whole rows.
func (s Screen) RowWidth() int {
	if s.Terminal {
		return s.Width
	}
	return AnyWidth
}

// JSONLine returns a JSON value as one line for stdout. Escapes replace characters that do not
// show, so the JSON means the same to a program, and the program's output deceives nobody.
func (s Screen) JSONLine(value jsontext.Value) []byte {
	return append(PrintableJSON(value), '\n')
}

// RecordLine returns the line of a record. A program gets its exact bytes, since the record's hash
// is over them. A terminal gets it like any other line.
func (s Screen) RecordLine(line jsontext.Value) []byte {
	if s.Terminal {
		return s.JSONLine(line)
	}
	return append(line.Clone(), '\n')
}

// DefaultHeight is the number of visible lines if no terminal gives another.
const DefaultHeight = 24

// HeightOf returns the number of visible lines of an output.
func HeightOf(stdout io.Writer, getenv func(string) string) int {
	if lines, err := strconv.Atoi(getenv("LINES")); err == nil && lines > 0 {
		return lines
	}
	if f, ok := stdout.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return DefaultHeight
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ReadPassword reads a line from a terminal and does not show it.
func ReadPassword(terminal *os.File) ([]byte, error) { return term.ReadPassword(int(terminal.Fd())) }
