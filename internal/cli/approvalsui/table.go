package approvalsui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
)

// The orders of a list.
const (
	OrderLikelihood = "likelihood"
	OrderAge        = "age"
)

// Orders lists them, beginning with the default for pending requests.
func Orders() []string { return []string{OrderLikelihood, OrderAge} }

// before compares requests by an order; the older of two equal ones comes first.
func before(order string) func(a, b *api.ApprovalSummary) int {
	return func(a, b *api.ApprovalSummary) int {
		likelier := 0
		if order == OrderLikelihood {
			likelier = cmp.Compare(describe.Rank(a), describe.Rank(b))
		}
		return cmp.Or(likelier, cmp.Compare(a.AskedAt, b.AskedAt), strings.Compare(a.ApprovalID, b.ApprovalID))
	}
}

// group are similar held messages, of which a person needs to read only one, oldest first.
type group []*api.ApprovalSummary

func (l group) oldest() *api.ApprovalSummary { return l[0] }

func summaries(all []listed) []*api.ApprovalSummary {
	messages := make([]*api.ApprovalSummary, len(all))
	for i := range all {
		messages[i] = &all[i].ApprovalSummary
	}
	return messages
}

// alone makes a row of every message.
func alone(all []*api.ApprovalSummary) []group {
	rows := make([]group, len(all))
	for i := range all {
		rows[i] = all[i : i+1 : i+1]
	}
	return rows
}

// alike puts like messages into one row.
func alike(all []*api.ApprovalSummary) []group {
	return parted[group](all, describe.Like)
}

// count is how many messages the rows are.
func count(rows []group) (n int) {
	for _, row := range rows {
		n += len(row)
	}
	return n
}

// byAgent groups rows by agent, in the order of their first rows.
func byAgent(rows []group) [][]group {
	return parted[[]group](rows, func(row group) string { return row.oldest().Agent })
}

// parted groups a list by a key, in the order of first occurrence.
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

// inTurn orders rows so that the agents take turns: each agent comes once before any comes twice.
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

// more counts an agent's rows that are left out.
type more struct {
	agent    string
	messages int
}

// fair orders rows by agent, and drops so many that all agents fit into the room. Each
// agent needs at least one line, and another for the count of dropped rows. left is by the
// index of the row before it.
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

// need is the number of lines if no agent shows more than most rows.
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
	// states is set if some of them are decided.
	states bool
	// oneAgent is set if all belong to one agent, which the caller names elsewhere; the
	// column is omitted.
	oneAgent bool
	// brief omits the reason for a commitment's likelihood, which is on the page of the request.
	brief bool
	// alike are the columns with the same text in every message of the list. A narrow screen has
	// them above the texts, which then have their room.
	alike []int
	// tail is the shown length of the end of an id.
	tail int
	// widths are the minimum widths of the columns, as far as there is room.
	widths []int
}

// Bounds on the short form of an id, in bytes. The daemon's ids begin with the time and end
// with random bytes, so the end distinguishes them best. Decided requests must be
// distinguishable from all earlier ones.
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
	if len(all) > 1 {
		for at, text := range map[int]func(*api.ApprovalSummary) string{
			agentColumn:  func(a *api.ApprovalSummary) string { return a.AgentID },
			likelyColumn: func(a *api.ApprovalSummary) string { return string(a.Likelihood) },
			whyColumn:    describe.Why,
			lastColumn:   t.last,
		} {
			// What expires soon stays red in its row.
			urgent := at == lastColumn && !t.states && describe.Urgency(all[0].ExpiresAt, now) != term.NoColour
			if !urgent && !slices.ContainsFunc(all, func(a *api.ApprovalSummary) bool { return text(a) != text(all[0]) }) {
				t.alike = append(t.alike, at)
			}
		}
		slices.Sort(t.alike)
	}
	return t
}

// tellApart returns how many bytes at the end of the ids distinguish the messages, at least least.
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

// The optional columns of the table, and the one of texts.
const (
	timesColumn  = 1
	agentColumn  = 2
	likelyColumn = 4
	whyColumn    = 5
	saysColumn   = 6
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

// row shows similar messages by the oldest of them.
func (t *table) row(row group) []term.Cell {
	a := row.oldest()
	times := ""
	if len(row) > 1 {
		times = strconv.Itoa(len(row))
	}
	last := term.Cell{Text: t.last(a), Colour: describe.Urgency(a.ExpiresAt, t.now)}
	if t.states {
		last.Colour = describe.StateColour(a.State)
	}
	likely := string(a.Likelihood)
	if !t.brief {
		likely = describe.ChanceOf(a)
	}
	return []term.Cell{
		{Text: term.Printable(t.short(a.ApprovalID)), Colour: term.Bold}, {Text: times, Colour: term.Yellow}, {Text: term.Printable(a.AgentID)}, {Text: term.Address(cmp.Or(a.To(), describe.TaskOf(a)))},
		{Text: term.Printable(likely)}, {Text: term.Printable(describe.Why(a)), Colour: term.Yellow}, {Text: term.Printable(saysOf(row))}, {Text: term.ShortAge(t.now.Sub(time.UnixMilli(a.AskedAt)))}, last,
	}
}

// last is the text of the last column: the state of a request, or the time that is left to decide.
func (t *table) last(a *api.ApprovalSummary) string {
	if !t.states {
		return term.ShortAge(time.UnixMilli(a.ExpiresAt).Sub(t.now))
	}
	state := describe.State(a.State)
	if a.State == api.ApprovalApproved && a.Blocked != "" {
		state += ": " + a.Blocked
	}
	return term.Printable(state)
}

// saysOf is the text of the oldest message of a row, after the number of different ones.
func saysOf(row group) string {
	texts := map[string]bool{}
	for _, a := range row {
		texts[a.Summary] = true
	}
	says := cmp.Or(row.oldest().Summary, "(forgotten)")
	if len(texts) > 1 {
		says = strconv.Itoa(len(texts)) + " texts: " + says
	}
	return says
}

// briefWidth is the width below which the table omits long texts.
const briefWidth = 120

// lines draws the table with its titles, at most as wide as the screen.
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
	omitted := t.omitted(rows)
	t.measure(rows)
	widths := slices.Clone(t.widths)
	columns[timesColumn].Least = widths[timesColumn]
	if widths[likelyColumn] > 0 {
		widths[likelyColumn] = max(widths[likelyColumn], len(columns[likelyColumn].Title))
	}
	// From the right, so that the positions on the left stay valid.
	for _, at := range [...]int{lastColumn, whyColumn, likelyColumn, agentColumn, timesColumn} {
		empty := (at == likelyColumn || at == timesColumn) && widths[at] == 0
		if !empty && !slices.Contains(omitted, at) {
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

// omitted are the columns that a reader has elsewhere: in the caller's title, or in the title of
// the texts, where it puts them.
func (t *table) omitted(rows [][]term.Cell) (columns []int) {
	if t.oneAgent {
		columns = append(columns, agentColumn)
	}
	var words []string
	for _, at := range t.alike {
		if !t.brief || len(rows) < 2 || slices.Contains(columns, at) {
			continue
		}
		columns = append(columns, at)
		if text := rows[1][at].Text; text != "" && at == lastColumn && !t.states {
			words = append(words, text+" left")
		} else if text != "" {
			words = append(words, text)
		}
	}
	if len(words) > 0 {
		rows[0][saysColumn].Text += " (all: " + strings.Join(words, ", ") + ")"
	}
	return columns
}

// measure widens the columns to their content.
func (t *table) measure(rows [][]term.Cell) {
	if t.widths == nil {
		t.widths = make([]int, len(rows[0]))
	}
	for n, row := range rows {
		for i := range row {
			// A column without content is omitted.
			if n > 0 || i != timesColumn && i != likelyColumn {
				t.widths[i] = max(t.widths[i], term.Width(row[i].Text))
			}
		}
	}
}
