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
	widths := t.widths()
	fit(t.columns, widths, s.width)
	var b strings.Builder
	if slices.ContainsFunc(titles, func(c cell) bool { return c.text != "" }) {
		b.WriteString(rowLine(t.columns, widths, titles, s))
	}
	for _, row := range t.rows {
		b.WriteString(rowLine(t.columns, widths, row, s))
	}
	_, err := io.WriteString(w, b.String())
	return err
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
			if w > columns[i].least && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// rowLine is one line of a table, at most as wide as the screen. Nothing is
// left behind the last text.
func rowLine(columns []column, widths []int, row []cell, s screen) string {
	var b strings.Builder
	left := s.width
	for i, c := range row {
		if i > 0 {
			if left <= len(gap) {
				break
			}
			b.WriteString(gap)
			left -= len(gap)
		}
		width := min(widths[i], left)
		left -= width
		text := cutTo(c.text, width)
		pad := strings.Repeat(" ", width-displayWidth(text))
		text = s.colour.paint(c.colour, text)
		if columns[i].right {
			b.WriteString(pad + text)
		} else {
			b.WriteString(text + pad)
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
