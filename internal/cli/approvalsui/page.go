package approvalsui

import "github.com/openclawos/ocipd/internal/base/term"

// page is a text of which a part is visible. top is the first visible line.
type page struct {
	lines []string
	top   int
}

// below is the number of lines below the visible ones.
func (g *page) below(height int) int { return len(g.lines) - g.top - height }

// draw draws the visible lines.
func (g *page) draw(p *term.Page, height int) {
	top := max(0, min(g.top, len(g.lines)-height))
	for i := range height {
		if top+i < len(g.lines) {
			p.Line(g.lines[top+i])
		} else {
			p.Line()
		}
	}
}
