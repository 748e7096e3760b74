package term

import (
	"io"
	"slices"
	"strings"
)

// Column is one column of a table.
type Column struct {
	Title string
	// Least is the column's width below which others have to give way.
	Least int
	// Right aligns numbers at the right.
	Right bool
	// Whole marks ids, which people copy: they are never cut.
	Whole bool
	// Below allows the column on a second line of each row if the first line has no room for it.
	Below bool
	// Fold breaks a text that is wider than the column into lines, instead of cutting it.
	Fold bool
}

// Cell is one field of a row. Its text is printable already.
type Cell struct {
	Text   string
	Colour Colour
}

// Plain makes a cell of any text, without a colour.
func Plain(text string) Cell { return Cell{Text: Printable(text)} }

// AddressOf makes a cell of an address, as [Address] shows it.
func AddressOf(text string) Cell { return Cell{Text: Address(text)} }

// Tinted makes a cell of any text, in a colour.
func Tinted(text string, c Colour) Cell { return Cell{Text: Printable(text), Colour: c} }

// Gap separates two columns.
const Gap = "  "

// belowIndent is the indent of a row's second line.
const belowIndent = "    "

// Table fits rows into a width.
type Table struct {
	Columns []Column
	Rows    [][]Cell
	// notes are lines below a row, which are never cut: commands that people copy.
	notes map[int][]Cell
}

// Add adds a row.
func (t *Table) Add(row ...Cell) { t.Rows = append(t.Rows, row) }

// Note puts a line below the row that was added last.
func (t *Table) Note(line Cell) {
	if t.notes == nil {
		t.notes = make(map[int][]Cell)
	}
	t.notes[len(t.Rows)-1] = append(t.notes[len(t.Rows)-1], line)
}

// Write writes the table with its titles, or nothing if it has no rows.
func (t *Table) Write(w io.Writer, s Screen) error {
	if len(t.Rows) == 0 {
		return nil
	}
	titles := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = Cell{Text: c.Title, Colour: Dim}
	}
	upper, lower := t.parts(s.RowWidth())
	lower.indent = belowIndent
	var b strings.Builder
	write := func(row []Cell) {
		b.WriteString(upper.lines(row, s))
		if len(lower.columns) > 0 {
			b.WriteString(lower.lines(row, s))
		}
	}
	if slices.ContainsFunc(titles, func(c Cell) bool { return c.Text != "" }) {
		write(titles)
	}
	for i, row := range t.Rows {
		write(row)
		for _, note := range t.notes[i] {
			b.WriteString(belowIndent + s.Colour.Paint(note.Colour, note.Text) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// part is the part of a table's rows that one line shows.
type part struct {
	indent  string
	columns []Column
	// at is the index of each column's cell in a row.
	at     []int
	widths []int
}

// lines returns the part's lines of a row, "" if they would be empty: one, or as many as the folded
// columns need.
func (p *part) lines(row []Cell, s Screen) string {
	folded, height := make([][]string, len(p.at)), 1
	for i, at := range p.at {
		folded[i] = []string{row[at].Text}
		if p.columns[i].Fold && Width(row[at].Text) > p.widths[i] {
			folded[i] = Fold(row[at].Text, p.widths[i])
		}
		height = max(height, len(folded[i]))
	}
	if p.indent != "" && !slices.ContainsFunc(p.at, func(at int) bool { return row[at].Text != "" }) {
		return ""
	}
	var b strings.Builder
	cells := make([]Cell, len(p.at))
	for n := range height {
		for i, at := range p.at {
			if cells[i] = (Cell{}); n < len(folded[i]) {
				cells[i] = Cell{Text: folded[i][n], Colour: row[at].Colour}
			}
		}
		b.WriteString(p.indent + RowLine(p.columns, p.widths, cells, s))
	}
	return b.String()
}

// parts divides the columns between the first line of the rows and the second, and sets their
// widths. It moves as few as possible to the second line, the last columns first.
func (t *Table) parts(room int) (upper, lower part) {
	widths := t.Widths()
	takes := func(i int) int {
		if c := t.Columns[i]; !c.Whole {
			return min(widths[i], c.Least)
		}
		return widths[i]
	}
	need := -len(Gap)
	for i := range t.Columns {
		need += takes(i) + len(Gap)
	}
	down := make([]bool, len(t.Columns))
	for i, c := range slices.Backward(t.Columns) {
		if down[i] = c.Below && need > room; down[i] {
			need -= takes(i) + len(Gap)
		}
	}
	for i, c := range t.Columns {
		one := &upper
		if down[i] {
			one = &lower
		}
		one.columns, one.at, one.widths = append(one.columns, c), append(one.at, i), append(one.widths, widths[i])
	}
	Fit(upper.columns, upper.widths, room)
	Fit(lower.columns, lower.widths, room-len(belowIndent))
	return upper, lower
}

// Widths returns the widths of the columns without cuts.
func (t *Table) Widths() []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = Width(c.Title)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], Width(row[i].Text))
		}
	}
	return widths
}

// Fit narrows columns until all of them have room. It takes the widest first, and none below its
// least width.
func Fit(columns []Column, widths []int, room int) {
	total := len(Gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for i, w := range widths {
			if w > columns[i].Least && !columns[i].Whole && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// RowLine returns one line of a table. It is at most as wide as the screen, except for cells that
// are never cut. Nothing follows the last text.
func RowLine(columns []Column, widths []int, row []Cell, s Screen) string {
	var b strings.Builder
	left := s.RowWidth()
	for i, c := range row {
		if i > 0 {
			if left <= len(Gap) && !columns[i].Whole {
				break
			}
			b.WriteString(Gap)
			left -= len(Gap)
		}
		width := min(widths[i], left)
		if columns[i].Whole {
			width = max(widths[i], Width(c.Text))
		}
		left -= width
		text := Cut(c.Text, width)
		pad := strings.Repeat(" ", max(0, width-Width(text)))
		text = s.Colour.Paint(c.Colour, text)
		if columns[i].Right {
			b.WriteString(pad + text)
		} else {
			b.WriteString(text + pad)
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
