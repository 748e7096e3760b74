package approvalsui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
)

// queue is the list of the requests that wait for a person.
type queue struct {
	held map[string]*api.ApprovalSummary
	// fresh holds the requests since the list began anew; nil if the list is complete.
	fresh map[string]bool
	// marked are messages to decide about in turn.
	marked map[string]bool
	// rows are the rows of the list. top is the first visible one.
	rows    []group
	waiting []string // how many of which agent, in the order of rows
	table   *table
	flat    bool
	orders  []string // the first is that of the list
	filter  string
	top     int
	chosen  string // the id of a message of the chosen row
}

func newQueue() queue {
	return queue{held: make(map[string]*api.ApprovalSummary), fresh: make(map[string]bool), marked: make(map[string]bool), table: &table{tail: shortID}, orders: Orders()}
}

// mark marks all messages of rows, or unmarks them if all are marked.
func (q *queue) mark(rows ...group) {
	all := !slices.ContainsFunc(rows, func(row group) bool { return !q.isMarked(row) })
	for _, row := range rows {
		for _, a := range row {
			if delete(q.marked, a.ApprovalID); !all {
				q.marked[a.ApprovalID] = true
			}
		}
	}
}

func (q *queue) forget(id string) {
	delete(q.held, id)
	delete(q.marked, id)
}

// sort computes the rows anew. The chosen message stays chosen.
func (q *queue) sort(now time.Time) {
	messages := make([]*api.ApprovalSummary, 0, len(q.held))
	wanted := strings.ToLower(strings.TrimSpace(q.filter))
	for id := range q.marked {
		if q.held[id] == nil {
			delete(q.marked, id)
		}
	}
	for _, a := range q.held {
		if matches(a, wanted) {
			messages = append(messages, a)
		}
	}
	slices.SortFunc(messages, before(q.orders[0]))
	widths, was := q.table.widths, q.at()
	q.table = newTable(messages, "", now)
	q.table.widths = widths
	group := alike
	if q.flat {
		group = alone
	}
	q.rows, q.waiting = inTurn(group(messages)), nil
	for _, part := range byAgent(q.rows) {
		n := 0
		for _, row := range part {
			n += len(row)
		}
		q.waiting = append(q.waiting, fmt.Sprintf("%s %d", term.Printable(part[0].oldest().AgentID), n))
	}
	q.table.oneAgent = len(q.waiting) == 1 && len(messages) == len(q.held) // the title names it
	if q.at() < 0 {
		q.choose(was)
	}
}

// matches reports whether a message contains a text.
func matches(a *api.ApprovalSummary, wanted string) bool {
	return strings.Contains(strings.ToLower(strings.Join([]string{
		a.ApprovalID, a.AgentID, a.Agent, a.UserID, a.Counterparty, a.CounterpartyUserID, a.AppID, a.SessionKey, a.TaskID, describe.Codes(a), describe.Why(a), string(a.Likelihood), a.LikelyBecause, a.Summary,
	}, "\n")), wanted)
}

// at is the index of the chosen row, or -1.
func (q *queue) at() int { return q.rowOf(q.chosen) }

func (q *queue) rowOf(id string) int {
	return slices.IndexFunc(q.rows, func(row group) bool {
		return slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return a.ApprovalID == id })
	})
}

// choose goes to a row, or the nearest one.
func (q *queue) choose(at int) {
	q.chosen = ""
	if len(q.rows) > 0 {
		q.chosen = q.rows[max(0, min(at, len(q.rows)-1))].oldest().ApprovalID
	}
}

func (q *queue) isMarked(row group) bool {
	return !slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return !q.marked[a.ApprovalID] })
}

// draw draws the rows around the chosen one.
func (q *queue) draw(p *term.Page, height int, now time.Time) {
	at := q.at()
	if at >= 0 {
		q.top = max(min(q.top, at), at-height+1)
	}
	q.top = max(0, min(q.top, len(q.rows)-height))
	q.table.rows, q.table.now = q.rows[q.top:min(len(q.rows), q.top+height)], now
	scr := p.Screen
	scr.Width = max(1, scr.Width-2)
	lines := q.table.lines(scr)
	p.Line("  ", lines[0])
	for i, line := range lines[1:] {
		mark := " "
		if q.isMarked(q.rows[q.top+i]) {
			mark = "*"
		}
		if q.top+i != at {
			p.Line(" ", p.Paint(term.Bold, mark), line)
			continue
		}
		plain := scr
		plain.Colour.On = false
		q.table.rows = q.rows[at : at+1]
		line = q.table.lines(plain)[1]
		line += strings.Repeat(" ", max(0, scr.Width-term.Width(line)))
		p.Line(p.Paint(term.Reversed, "›"+mark+line))
	}
	for range height - len(lines) + 1 {
		p.Line()
	}
}
