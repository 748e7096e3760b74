package logview

import (
	"bufio"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/term"
)

// Tail prints records one by one. Its columns are fixed from the
// beginning, since nobody knows what will come.
type Tail struct {
	// Printed, where it is set, is told the last record that was given out.
	Printed func(line []byte) error

	w       *bufio.Writer
	screen  term.Screen
	asJSON  bool
	narrow  bool
	columns []term.Column
	widths  []int
	// seq is the last record that was printed, and line, where somebody is told of
	// it, what it says.
	seq  uint64
	line []byte
}

// Flush gives out what was printed.
func (p *Tail) Flush() error {
	if err := p.w.Flush(); err != nil || p.Printed == nil || p.line == nil {
		return err
	}
	line := p.line
	p.line = nil
	return p.Printed(line)
}

// NewTail makes a printer.
func NewTail(scr term.Screen, w io.Writer, asJSON bool) *Tail {
	p := &Tail{w: bufio.NewWriter(w), screen: scr, asJSON: asJSON}
	room := scr.RowWidth()
	p.narrow = room < narrowScreen
	p.columns = recordColumns(p.narrow)
	p.widths = []int{19, 6, 20, 22, 24, 12, 5, 6, room}
	if p.narrow {
		// What happened stands below, where it has room.
		p.widths = []int{14, 5, 14, 16, 12, 5, 6}
		p.columns = p.columns[:len(p.widths)]
	}
	term.Fit(p.columns, p.widths, room)
	return p
}

// Last is the number of the last record that was printed.
func (p *Tail) Last() uint64 { return p.seq }

// Print prints a record.
func (p *Tail) Print(line jsontext.Value) error {
	e, err := audit.Parse(line)
	if err != nil {
		return fmt.Errorf("cannot show a record: %w", err)
	}
	p.seq = e.Seq
	if p.Printed != nil {
		p.line = append(p.line[:0], line...)
	}
	if p.asJSON {
		_, err = p.w.Write(p.screen.RecordLine(line))
		return err
	}
	row := recordRow(&e, p.narrow)
	if _, err = p.w.WriteString(term.RowLine(p.columns, p.widths, row[:len(p.columns)], p.screen)); err != nil {
		return err
	}
	for _, cell := range row[len(p.columns):] {
		if err := writeBelow(p.w, cell.Text, p.screen); err != nil {
			return err
		}
	}
	return nil
}
