package logview

import (
	"fmt"
	"io"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Pages prints records page by page.
type Pages struct {
	W      io.Writer
	Screen term.Screen
	// JSON prints records as they were sealed.
	JSON bool
	// Only is the instance id of the only agent, or "".
	Only string
	// titled is set after the titles of the columns were printed.
	titled bool
}

// reasonIndent is the indentation of a reason below its record.
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
	var b strings.Builder
	narrow := Folds(p.Screen)
	columns := recordColumns(narrow)
	t := &term.Table{Columns: columns}
	for _, line := range lines {
		e, err := audit.Parse(line)
		switch {
		case err != nil:
			return fmt.Errorf("cannot show a record: %w", err)
		case !narrow:
			t.Add(recordRow(&e)...)
			continue
		case !p.titled:
			p.titled = true
			_ = writeTitles(&b, p.Screen, columns, append(narrowWidths(), 0)) // a builder takes everything
		}
		_ = writeNarrow(&b, p.Screen, &e, p.Only) // a builder takes everything
	}
	if !narrow {
		p.rows(&b, t)
	}
	_, err := io.WriteString(p.W, b.String())
	return err
}

// rows writes a table. If the last column does not fit beside a row, it goes below.
func (p *Pages) rows(b *strings.Builder, t *term.Table) {
	last := len(t.Columns) - 1
	columns, widths := t.Columns, t.Widths()
	room := p.Screen.RowWidth() - len(term.Gap)*last
	for _, w := range widths {
		room -= w
	}
	below := room < 0
	if below {
		columns, widths = columns[:last], widths[:last]
	}
	if !p.titled {
		p.titled = true
		_ = writeTitles(b, p.Screen, columns, widths) // a builder takes everything
	}
	for _, row := range t.Rows {
		b.WriteString(term.RowLine(columns, widths, row[:len(columns)], p.Screen))
		if below {
			_ = writeBelow(b, row[last].Text, p.Screen)
		}
	}
}

// writeBelow writes the part of a row that does not fit below it.
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
