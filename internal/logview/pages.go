package logview

import (
	"fmt"
	"io"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/term"
)

// Pages prints records page by page.
type Pages struct {
	W      io.Writer
	Screen term.Screen
	// JSON prints records as they were sealed.
	JSON bool
	// titled is set once the columns' titles were printed.
	titled bool
}

// reasonIndent is where a reason begins that stands below its record.
const reasonIndent = 4

// Print prints a page.
func (p *Pages) Print(lines [][]byte) error {
	if len(lines) == 0 {
		return nil
	}
	if p.JSON {
		for _, line := range lines {
			if _, err := p.W.Write(p.Screen.RecordLine(line)); err != nil {
				return err
			}
		}
		return nil
	}
	narrow := p.Screen.RowWidth() < narrowScreen
	t := &term.Table{Columns: recordColumns(narrow)}
	for _, line := range lines {
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("cannot show a record: %w", err)
		}
		t.Add(recordRow(&e, narrow)...)
	}
	var b strings.Builder
	p.rows(&b, t)
	_, err := io.WriteString(p.W, b.String())
	return err
}

// rows writes a table whose last column is cut from it where it has no room, and
// put below each row.
func (p *Pages) rows(b *strings.Builder, t *term.Table) {
	last := len(t.Columns) - 1
	widths := t.Widths()
	room := p.Screen.RowWidth() - len(term.Gap)*last
	for _, w := range widths {
		room -= w
	}
	columns, below := t.Columns, room < 0
	if below {
		columns, widths = columns[:last], widths[:last]
		term.Fit(columns, widths, p.Screen.RowWidth())
	}
	if !p.titled {
		p.titled = true
		titles := make([]term.Cell, len(columns))
		for i, c := range columns {
			titles[i] = term.Cell{Text: c.Title, Colour: term.Dim}
		}
		b.WriteString(term.RowLine(columns, widths, titles, p.Screen))
	}
	for _, row := range t.Rows {
		b.WriteString(term.RowLine(columns, widths, row[:len(columns)], p.Screen))
		if below {
			_ = writeBelow(b, row[last].Text, p.Screen) // a builder takes everything
		}
	}
}

// writeBelow writes what has no room in a row below it.
func writeBelow(w io.Writer, text string, screen term.Screen) error {
	if text == "" {
		return nil
	}
	for _, line := range term.Fold(text, screen.Width-reasonIndent) {
		if _, err := fmt.Fprintf(w, "%*s%s\n", reasonIndent, "", line); err != nil {
			return err
		}
	}
	return nil
}
