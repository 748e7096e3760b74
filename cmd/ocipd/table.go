package main

import (
	"io"
	"slices"
	"strings"
)

// column is one column of a table.
type column struct {
	title string
	// least is how narrow it may get before others have to give way.
	least int
	// right puts numbers at the right.
	right bool
	// whole marks ids, which people copy: they are never cut.
	whole bool
	// below lets the column stand on a second line of each row, where the rows
	// have no room for it beside the others.
	below bool
}

// cell is one field of a row. Its text is printable already.
type cell struct {
	text   string
	colour colour
}

// show makes a cell of any text.
func show(text string) cell { return cell{text: printable(text)} }

func paint(text string, c colour) cell { return cell{text: printable(text), colour: c} }

// gap is what stands between two columns.
const gap = "  "

// belowIndent is where the second line of a row begins.
const belowIndent = "    "

// table fits rows into a width.
type table struct {
	columns []column
	rows    [][]cell
}

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

// write writes the table with its titles, or nothing where it has no rows.
func (t *table) write(w io.Writer, s screen) error {
	if len(t.rows) == 0 {
		return nil
	}
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{text: c.title, colour: dim}
	}
	rows := t.rows
	if slices.ContainsFunc(titles, func(c cell) bool { return c.text != "" }) {
		rows = append([][]cell{titles}, rows...)
	}
	upper, lower := t.parts(s.rowWidth())
	lower.indent = belowIndent
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(upper.line(row, s))
		if len(lower.columns) > 0 {
			b.WriteString(lower.line(row, s))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// part is what of a table's rows stands on one line.
type part struct {
	indent  string
	columns []column
	// at is where in a row the columns' cells are.
	at     []int
	widths []int
}

// line is one line of a row, "" where it would be empty.
func (p *part) line(row []cell, s screen) string {
	cells := make([]cell, len(p.at))
	for i, at := range p.at {
		cells[i] = row[at]
	}
	if p.indent != "" && !slices.ContainsFunc(cells, func(c cell) bool { return c.text != "" }) {
		return ""
	}
	return p.indent + rowLine(p.columns, p.widths, cells, s)
}

// parts says which columns stand on the first line of the rows, and which below,
// with their widths. As few stand below as the room allows, the last of them first.
func (t *table) parts(room int) (upper, lower part) {
	widths := t.widths()
	takes := func(i int) int {
		if c := t.columns[i]; !c.whole {
			return min(widths[i], c.least)
		}
		return widths[i]
	}
	need := -len(gap)
	for i := range t.columns {
		need += takes(i) + len(gap)
	}
	down := make([]bool, len(t.columns))
	for i, c := range slices.Backward(t.columns) {
		if down[i] = c.below && need > room; down[i] {
			need -= takes(i) + len(gap)
		}
	}
	for i, c := range t.columns {
		one := &upper
		if down[i] {
			one = &lower
		}
		one.columns, one.at, one.widths = append(one.columns, c), append(one.at, i), append(one.widths, widths[i])
	}
	fit(upper.columns, upper.widths, room)
	fit(lower.columns, lower.widths, room-len(belowIndent))
	return upper, lower
}

// widths are how wide the columns are with nothing cut.
func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = displayWidth(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], displayWidth(row[i].text))
		}
	}
	return widths
}

// fit narrows columns until all of them have room, the widest first and none
// below what it needs.
func fit(columns []column, widths []int, room int) {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for i, w := range widths {
			if w > columns[i].least && !columns[i].whole && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// rowLine is one line of a table, at most as wide as the screen but for what is
// never cut. Nothing is left behind the last text.
func rowLine(columns []column, widths []int, row []cell, s screen) string {
	var b strings.Builder
	left := s.rowWidth()
	for i, c := range row {
		if i > 0 {
			if left <= len(gap) && !columns[i].whole {
				break
			}
			b.WriteString(gap)
			left -= len(gap)
		}
		width := min(widths[i], left)
		if columns[i].whole {
			width = max(widths[i], displayWidth(c.text))
		}
		left -= width
		text := cutTo(c.text, width)
		pad := strings.Repeat(" ", max(0, width-displayWidth(text)))
		text = s.colour.paint(c.colour, text)
		if columns[i].right {
			b.WriteString(pad + text)
		} else {
			b.WriteString(text + pad)
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
