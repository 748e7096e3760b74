package approvalsui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// remark is the text of the status line, and its colour.
type remark struct {
	said string
	tone term.Colour
}

func (r *remark) say(c term.Colour, format string, args ...any) {
	r.said, r.tone = term.Printable(fmt.Sprintf(format, args...)), c
}

// The fixed parts of the screen: the title above; below, a rule, the status, and the keys.
const (
	titleLines  = 1
	footerLines = 2
	ruleLines   = 1
)

// listHeight is the number of visible rows of the list; 0 if the page has the whole screen.
func (d *model) listHeight() int {
	switch d.stage {
	case choosing, noting, filtering, fetching:
	default:
		return 0
	}
	return max(1, min(len(d.queue.rows), (d.height-titleLines-footerLines-ruleLines-1)*2/5))
}

// pageHeight is the number of visible lines of the page.
func (d *model) pageHeight() int {
	left := d.height - titleLines - footerLines - ruleLines
	if list := d.listHeight(); list > 0 {
		left -= list + 1
	}
	return max(0, left)
}

// View draws the screen.
func (d *model) View() tea.View {
	p := &term.Page{Screen: d.screen}
	if d.help.shown {
		for _, line := range d.help.lines(d.screen.Width, d.height) {
			p.Line(line)
		}
		view := tea.NewView(strings.Join(p.Lines, "\n"))
		view.AltScreen = true
		return view
	}
	p.Line(d.title())
	if height := d.listHeight(); height > 0 {
		d.queue.draw(p, height, d.now)
	}
	p.Line(d.rule())
	var cursor *tea.Cursor
	if d.stage == writing {
		cursor = d.writePage(p)
	} else {
		d.page.draw(p, d.pageHeight())
	}
	last := d.status()
	if d.stage == noting || d.stage == filtering {
		last, cursor = d.prompt(len(p.Lines))
	}
	p.Line(last)
	p.Line(p.Paint(term.Dim, term.KeyLine(d.keys(), d.screen.Width)))
	view := tea.NewView(strings.Join(p.Lines, "\n"))
	view.AltScreen, view.Cursor = true, cursor
	return view
}

func (d *model) title() string {
	text := "ocipd approvals: "
	switch {
	case len(d.queue.held) == 0:
		text += "nothing waits for a person"
	case d.queue.filter == "":
		text += fmt.Sprintf("%d waiting%s (%s)", len(d.queue.held), markedWords(d.queue.marked), strings.Join(d.queue.waiting, ", "))
	default:
		text += fmt.Sprintf("%d of %d waiting%s, those with %s", count(d.queue.rows), len(d.queue.held), markedWords(d.queue.marked), term.Printable(d.queue.filter))
	}
	state, c := "live", term.Green
	if !d.connected {
		state, c = "no daemon", term.Red
		if d.queue.fresh != nil {
			state, c = "connecting", term.Yellow
		}
	}
	room := d.screen.Width - len(state) - len(term.Gap)
	text = term.Cut(text, room)
	pad := strings.Repeat(" ", max(0, room-term.Width(text)))
	return d.screen.Colour.Paint(term.Bold, text) + pad + term.Gap + d.screen.Colour.Paint(c, state)
}

// markedWords counts the marked messages, those outside the filter too.
func markedWords(marked map[string]bool) string {
	if len(marked) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d marked", len(marked))
}

// rule separates the list from the page, and says how much of the page is visible.
func (d *model) rule() string {
	text := "──"
	if d.stage == confirming && d.course.total > 1 {
		text += fmt.Sprintf(" %d of %d marked ──", d.course.total-d.course.left(), d.course.total)
	}
	if below := d.page.below(d.pageHeight()); d.stage == writing {
		text += " your words in its place "
	} else if below > 0 {
		text += fmt.Sprintf(" %s below: space scrolls", term.Count(below, "more line"))
		if d.stage == choosing {
			text += ", enter reads"
		}
		text += " "
	}
	text = term.Cut(text, d.screen.Width)
	return d.screen.Colour.Paint(term.Dim, text+strings.Repeat("─", max(0, d.screen.Width-term.Width(text))))
}

// writePage shows the text that is being written.
func (d *model) writePage(p *term.Page) *tea.Cursor {
	height := d.pageHeight()
	lines, x, y := d.words.layOut(d.screen.Width - term.Width(term.Gutter))
	for i := range lines {
		lines[i] = p.Paint(term.Dim, term.Gutter) + lines[i]
	}
	written := page{lines: lines, top: max(0, y-height+1)}
	cursor := tea.NewCursor(x+term.Width(term.Gutter), len(p.Lines)+y-written.top)
	written.draw(p, height)
	return cursor
}

// prompt is the line that is being typed, scrolled to the cursor.
func (d *model) prompt(y int) (string, *tea.Cursor) {
	name := "note: "
	if d.stage == filtering {
		name = "filter: "
	}
	room := max(12, d.screen.Width-len(name)-1)
	lines, x, at := d.typed.layOut(room)
	return d.screen.Colour.Paint(term.Bold, name) + lines[at], tea.NewCursor(len(name)+x, y)
}

// status is the line below the page.
func (d *model) status() string {
	text, c := d.said, d.tone
	switch {
	case d.stage == confirming && text == "":
		text, c = question(d.shown, d.decision), term.Bold
		if n := len(d.course.together); n > 0 {
			text = fmt.Sprintf("Approve these %d, each as it is shown?", n)
		}
		if n := len(d.course.alike); n > 0 && d.course.total == 0 && !Sends(d.decision) {
			text += fmt.Sprintf(" There are %d more like it.", n)
		}
	case text == "" && d.note == "" && d.stage == choosing:
		text, c = d.week, term.Dim
	case text == "" && d.note != "":
		text, c = "note: "+term.Printable(d.note), term.Dim
	}
	return d.screen.Colour.Paint(c, term.Cut(text, d.screen.Width))
}

// keys describes the keys of a stage.
func (d *model) keys() string {
	switch d.stage {
	case noting, filtering:
		return "enter keep  esc leave"
	case writing:
		return "ctrl+d go on  esc leave"
	case confirming:
		switch {
		case len(d.course.marked) > 0 && Sends(d.decision):
			return "y yes  n not this one  esc leave  space read on  i metadata"
		case len(d.course.marked) > 0:
			return fmt.Sprintf("y yes  A yes, and the other %d marked  n not this one  esc leave", len(d.course.alike))
		case len(d.course.alike) > 0 && !Sends(d.decision):
			return fmt.Sprintf("y yes  A yes, and the %d like it  n no  space read on", len(d.course.alike))
		}
		if d.offers() {
			return "y yes  x yes, and its exchange within these bounds  n no  space read on"
		}
		return "y yes  n no  space read on"
	case fetching:
		return "esc leave"
	case deciding:
		return ""
	case reading:
		return d.decisionKeys() + "i metadata  esc back  ? help  q quit"
	case choosing:
	}
	return d.decisionKeys() + "m mark  / filter  enter read  ? help  q quit"
}

// decisionKeys describes the keys for decisions about the shown request.
func (d *model) decisionKeys() string {
	kind := api.ApprovalOfMessage
	if d.shown != nil {
		kind = d.shown.Kind
	}
	switch kind {
	case api.ApprovalOfEffect:
		return "a approve  d deny  c changes  "
	case api.ApprovalOfPermission:
		return "a approve  d deny  "
	case api.ApprovalOfEscalation:
		return "d deny  r resolve  "
	case api.ApprovalOfDelivery:
		return "a approve  d deny  r resolve  "
	}
	return "a approve  d deny  t take over  "
}
