package logview

import (
	"bufio"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Tail prints records one by one, after the columns' titles. The widths of the columns are
// fixed, because future records are unknown.
type Tail struct {
	// Printed, if set, receives the last flushed record.
	Printed func(line []byte) error
	// Only is the instance id of the only agent, or "".
	Only string

	w      *bufio.Writer
	screen term.Screen
	asJSON bool
	narrow bool
	titled bool
	// seq is the last printed record, and line its text if Printed is set.
	seq  uint64
	line []byte
}

// Flush writes the printed records.
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
	return &Tail{w: bufio.NewWriter(w), screen: scr, asJSON: asJSON, narrow: Folds(scr)}
}

// tailWidths are the widths of the columns on a wide screen. Longer content shifts the rest
// of its row.
func tailWidths() []int { return []int{19, 6, 8, 24, 16, 18, 12, 5, 0} }

// Last is the number of the last printed record.
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
	columns, widths := recordColumns(p.narrow), tailWidths()
	if p.narrow {
		widths = append(narrowWidths(), 0)
	}
	if !p.titled {
		p.titled = true
		if err := writeTitles(p.w, p.screen, columns, widths); err != nil {
			return err
		}
	}
	if p.narrow {
		return writeNarrow(p.w, p.screen, &e, p.Only)
	}
	row, below := recordRow(&e), ""
	if last := len(row) - 1; lineWidth(columns, widths, row) > p.screen.RowWidth() {
		below, row = row[last].Text, row[:last]
	}
	if _, err := p.w.WriteString(term.RowLine(columns[:len(row)], widths, row, p.screen)); err != nil {
		return err
	}
	return writeBelow(p.w, below, p.screen)
}
