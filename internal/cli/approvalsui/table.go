package approvalsui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
)

// The orders of a list.
const (
	OrderLikelihood = "likelihood"
	OrderAge        = "age"
)

// Orders lists them, the one of what waits first.
func Orders() []string { return []string{OrderLikelihood, OrderAge} }

// rank is where a request stands by its likelihood: first what no guess holds, then
// the likeliest.
func rank(a *api.ApprovalSummary) int { return slices.Index(ocip.Likelihoods(), a.Likelihood) }

// before compares requests by an order. The older of two that are alike comes first.
func before(order string) func(a, b *api.ApprovalSummary) int {
	return func(a, b *api.ApprovalSummary) int {
		likelier := 0
		if order == OrderLikelihood {
			likelier = cmp.Compare(rank(a), rank(b))
		}
		return cmp.Or(likelier, cmp.Compare(a.AskedAt, b.AskedAt), strings.Compare(a.ApprovalID, b.ApprovalID))
	}
}

// group are held messages that a person need read only once, oldest first.
type group []*api.ApprovalSummary

func (l group) oldest() *api.ApprovalSummary { return l[0] }

func summaries(all []listed) []*api.ApprovalSummary {
	messages := make([]*api.ApprovalSummary, len(all))
	for i := range all {
		messages[i] = &all[i].ApprovalSummary
	}
	return messages
}

// alone makes every message a row.
func alone(all []*api.ApprovalSummary) []group {
	rows := make([]group, len(all))
	for i := range all {
		rows[i] = all[i : i+1 : i+1]
	}
	return rows
}

// alike makes those messages one row that have the same agent, counterparty,
// reason, likelihood, first line and state.
func alike(all []*api.ApprovalSummary) []group {
	type kind struct {
		agent, to, code, summary, state string
		likelihood                      ocip.Likelihood
	}
	return parted[group](all, func(a *api.ApprovalSummary) kind {
		return kind{a.Agent, a.To(), a.Code, a.Summary, a.State, a.Likelihood}
	})
}

// byAgent parts rows by their agent, in the order of their first.
func byAgent(rows []group) [][]group {
	return parted[[]group](rows, func(row group) string { return row.oldest().Agent })
}

// parted parts a list by a key, the groups in the order of their first.
func parted[G ~[]V, V any, K comparable](all []V, key func(V) K) (parts []G) {
	at := make(map[K]int)
	for _, one := range all {
		k := key(one)
		part, known := at[k]
		if !known {
			part = len(parts)
			at[k] = part
			parts = append(parts, nil)
		}
		parts[part] = append(parts[part], one)
	}
	return parts
}

// inTurn orders rows so that the agents take turns: no agent comes a second time
// before every one has come once.
func inTurn(rows []group) []group {
	parts := byAgent(rows)
	ordered := make([]group, 0, len(rows))
	for turn := 0; len(ordered) < len(rows); turn++ {
		for _, part := range parts {
			if turn < len(part) {
				ordered = append(ordered, part[turn])
			}
		}
	}
	return ordered
}

// more counts what of an agent is left out behind a row.
type more struct {
	agent    string
	messages int
}

// fair orders rows by agent and leaves so many of them out that all agents fit
// into the room, as far as one line for each and one for the count of what is
// left out do. More is by the index of the row that it comes behind.
func fair(rows []group, room int) (shown []group, left map[int]more) {
	parts := byAgent(rows)
	most := 1
	for need(parts, most+1) <= room && most < len(rows) {
		most++
	}
	left = make(map[int]more)
	for _, part := range parts {
		shown = append(shown, part[:min(most, len(part))]...)
		m := more{agent: part[0].oldest().AgentID}
		for _, row := range part[min(most, len(part)):] {
			m.messages += len(row)
		}
		if m.messages > 0 {
			left[len(shown)-1] = m
		}
	}
	return shown, left
}

// need is how many lines there are where no agent has more rows than most.
func need(parts [][]group, most int) (lines int) {
	for _, part := range parts {
		lines += min(len(part), most)
		if len(part) > most {
			lines++
		}
	}
	return lines
}

// table shows held messages.
type table struct {
	rows []group
	more map[int]more
	now  time.Time
	// states is set where not all of them wait.
	states bool
	// oneAgent is set where all are of one agent, which the caller names: it has no
	// column then.
	oneAgent bool
	// brief leaves out what makes a commitment likely, for want of room: the page of a
	// request says it.
	brief bool
	// tail is how much of the end of an id is shown.
	tail int
	// widths are how wide the columns are at least, as far as there is room.
	widths []int
}

// Bounds on the short form of an id, in bytes. The ids of this daemon begin with
// the time and end with chance, so it is the end that tells them apart soonest.
// What is decided is told apart from all there ever was.
const (
	shortID    = 8
	decidedID  = 12
	leastTyped = 4
)

func newTable(all []*api.ApprovalSummary, state string, now time.Time) *table {
	t := &table{now: now, tail: shortID, states: state != "" && state != api.ApprovalPending}
	if t.states {
		t.tail = decidedID
	}
	t.tail = tellApart(all, t.tail)
	return t
}

// tellApart returns how many bytes of the ends of their ids tell messages apart,
// at least so many.
func tellApart(all []*api.ApprovalSummary, least int) int {
	for n := least; ; n++ {
		seen, longer := make(map[string]bool, len(all)), false
		for _, a := range all {
			longer = longer || len(a.ApprovalID) > n
			seen[endOf(a.ApprovalID, n)] = true
		}
		if len(seen) == len(all) || !longer {
			return n
		}
	}
}

func endOf(id string, n int) string { return id[max(0, len(id)-n):] }

func (t *table) short(id string) string { return endOf(id, t.tail) }

// The columns of the table that are not in every one of them.
const (
	timesColumn  = 1
	agentColumn  = 2
	likelyColumn = 4
	lastColumn   = 8
)

func (t *table) columns() []term.Column {
	columns := []term.Column{
		{Title: "ID", Least: t.tail}, {Title: "×", Right: true}, {Title: "AGENT", Least: 8}, {Title: "TO", Least: 11},
		{Title: "LIKELY", Least: 6}, {Title: "WHY", Least: 10}, {Title: "SAYS", Least: 10}, {Title: "AGE", Least: 3, Right: true}, {Title: "LEFT", Least: 4, Right: true},
	}
	if t.states {
		columns[lastColumn] = term.Column{Title: "STATE", Least: 8}
	}
	return columns
}

// row shows messages that are alike by the oldest of them.
func (t *table) row(row group) []term.Cell {
	a := row.oldest()
	times := ""
	if len(row) > 1 {
		times = strconv.Itoa(len(row))
	}
	last := term.Cell{Text: term.ShortAge(time.UnixMilli(a.ExpiresAt).Sub(t.now)), Colour: urgency(a.ExpiresAt, t.now)}
	if t.states {
		last = term.Cell{Text: term.Printable(stateWords(a.State)), Colour: stateColour(a.State)}
	}
	likely := string(a.Likelihood)
	if !t.brief {
		likely = strings.TrimSuffix(likely+": "+a.LikelyBecause, ": ")
	}
	return []term.Cell{
		{Text: term.Printable(t.short(a.ApprovalID)), Colour: term.Bold}, {Text: times, Colour: term.Yellow}, {Text: term.Printable(a.AgentID)}, {Text: term.Address(cmp.Or(a.To(), a.TaskID))},
		{Text: term.Printable(likely)}, {Text: term.Printable(whyOf(a)), Colour: term.Yellow}, {Text: term.Printable(cmp.Or(a.Summary, "(forgotten)"))}, {Text: term.ShortAge(t.now.Sub(time.UnixMilli(a.AskedAt)))}, last,
	}
}

// briefWidth is the width below which the table says nothing that takes long.
const briefWidth = 120

// lines is the table, at most as wide as the screen: its titles, and the rows.
func (t *table) lines(scr term.Screen) []string {
	columns := t.columns()
	titles := make([]term.Cell, len(columns))
	for i, c := range columns {
		titles[i] = term.Cell{Text: c.Title, Colour: term.Dim}
	}
	t.brief = scr.RowWidth() < briefWidth
	rows := [][]term.Cell{titles}
	for _, row := range t.rows {
		rows = append(rows, t.row(row))
	}
	t.measure(rows)
	widths := slices.Clone(t.widths)
	columns[timesColumn].Least = widths[timesColumn]
	if widths[likelyColumn] > 0 {
		widths[likelyColumn] = max(widths[likelyColumn], len(columns[likelyColumn].Title))
	}
	// From the right, so that those on the left stay where they are.
	for _, at := range [...]int{likelyColumn, agentColumn, timesColumn} {
		if at == agentColumn && !t.oneAgent || at != agentColumn && widths[at] > 0 {
			continue
		}
		columns, widths = slices.Delete(columns, at, at+1), slices.Delete(widths, at, at+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
	term.Fit(columns, widths, scr.RowWidth())
	lines := make([]string, 0, len(rows)+len(t.more))
	for i, row := range rows {
		lines = append(lines, strings.TrimSuffix(term.RowLine(columns, widths, row, scr), "\n"))
		if m, ok := t.more[i-1]; ok {
			lines = append(lines, scr.Colour.Paint(term.Dim, term.Cut(fmt.Sprintf("… %d more of agent %s: ocipd approvals list --agent %s",
				m.messages, term.Printable(m.agent), cli.Argument(m.agent)), scr.Width)))
		}
	}
	return lines
}

// measure widens the columns to what is in them.
func (t *table) measure(rows [][]term.Cell) {
	if t.widths == nil {
		t.widths = make([]int, len(rows[0]))
	}
	for n, row := range rows {
		for i := range row {
			// A column without any text but its title is left out.
			if n > 0 || i != timesColumn && i != likelyColumn {
				t.widths[i] = max(t.widths[i], term.Width(row[i].Text))
			}
		}
	}
}

// whyOf is why something waits, in a word or two: an escalation waits for nothing
// but a person to see to it, and a delivery for one to say whether it was sent.
func whyOf(a *api.ApprovalSummary) string {
	switch a.Kind {
	case api.ApprovalOfEscalation:
		return "yours to answer"
	case api.ApprovalOfDelivery:
		return "sent or not?"
	}
	return why(a.Code)
}

// why is a code in a word.
func why(code string) string {
	switch ocip.Code(code) {
	case ocip.CommitmentRequiresHuman:
		return "commitment"
	case ocip.RoundLimit:
		return "round limit"
	case ocip.ChainLimit:
		return "chain limit"
	case ocip.PolicyRequiresApproval:
		return "policy"
	default:
		return strings.ReplaceAll(strings.ToLower(code), "_", " ")
	}
}
