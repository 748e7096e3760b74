package term

import (
	"io"
	"os"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"
)

// defaultWidth is how wide tables are where no terminal says otherwise.
const defaultWidth = 80

// Screen is how stdout shows things.
type Screen struct {
	// Terminal is set where a person reads, and not a program.
	Terminal bool
	Width    int
	Colour   Palette
}

// ScreenOf is how an output shows things, given the variables of the environment.
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

// RowWidth is how wide the rows of tables may be. A program is given all of them.
func (s Screen) RowWidth() int {
	if s.Terminal {
		return s.Width
	}
	return AnyWidth
}

// JSONLine returns a JSON value as one line for stdout, with escapes in place of
// what does not show, which is the same JSON: a program reads no other, and what
// it prints of it deceives nobody.
func (s Screen) JSONLine(value jsontext.Value) []byte {
	return append(PrintableJSON(value), '\n')
}

// RecordLine returns the line of a record, whose hash is that of its bytes: as it is
// for a program, and like any other for a terminal.
func (s Screen) RecordLine(line jsontext.Value) []byte {
	if s.Terminal {
		return s.JSONLine(line)
	}
	return append(line.Clone(), '\n')
}

// DefaultHeight is how many lines are seen at once where no terminal says
// otherwise.
const DefaultHeight = 24

// HeightOf is how many lines of an output are seen at once.
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
