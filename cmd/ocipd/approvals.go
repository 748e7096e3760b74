package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

func newApprovals(s *shell) *cobra.Command {
	var key string
	c := group(&cobra.Command{
		Use:   "approvals",
		Short: "see the messages that wait for a person, and decide about them",
		Long: "See the messages that wait for a person, and decide about them. On a terminal and without a\n" +
			"command, what waits is shown as it changes, and keys decide; else it is listed.",
	})
	another := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return another(cmd, args)
		case s.Interactive():
			return s.watchApprovals(cmd.Context(), key)
		}
		return s.listApprovals(cmd.Context(), approvalsList{})
	}
	c.Flags().StringVar(&key, "key", "", keyUsage)
	c.AddCommand(
		newApprovalsList(s), newApprovalsShow(s), newDecision(s, api.DecideApprove), newDecision(s, api.DecideDeny),
		newDecision(s, api.DecideTakeover), newDecision(s, api.DecideResolve),
	)
	return c
}

// approvalsList is what a list of held messages is asked for.
type approvalsList struct {
	state, agent string
	flat, asJSON bool
}

func newApprovalsList(s *shell) *cobra.Command {
	var f approvalsList
	states := append(api.ApprovalStates(), "all")
	c := &cobra.Command{
		Use:   "list",
		Short: "list what waits for a person, by agent, the longest waiting first",
		Long: "List what waits for a person, by agent, the longest waiting first. Like requests share a row:\n" +
			"those of one agent to the same other one for the same reason with the same first line. Of an\n" +
			"agent that asks for more than there is room for, the rest is only counted, so that every agent\n" +
			"is seen; --agent and --flat show all. The other commands take the ids as they stand here.\n" +
			"--json prints every message as one line.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.state != "" && !slices.Contains(states, f.state) {
				return cli.Usagef("cannot list by --state %q: want one of %s", f.state, strings.Join(states, ", "))
			}
			return s.listApprovals(cmd.Context(), f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.state, "state", "", strings.Join(states, ", ")+" (default pending)")
	flags.StringVar(&f.agent, "agent", "", "messages of the agent with this `ID`")
	flags.BoolVar(&f.flat, "flat", false, "give every message a row of its own, the agents in turn")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, one message a line")
	// They fail for flags that do not exist, and these do.
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("agent", s.completeHeldAgent)
	return c
}

// listed is one held message in a list, with the JSON that it came as.
type listed struct {
	api.ApprovalSummary
	raw jsontext.Value
}

func (s *shell) listApprovals(ctx context.Context, f approvalsList) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := approvalsIn(ctx, c, f.state, f.agent)
	if err != nil {
		return fmt.Errorf("cannot list held messages: %w", err)
	}
	scr := s.Screen()
	w := bufio.NewWriter(s.Stdout)
	if f.asJSON {
		for i := range all {
			if _, err := w.Write(scr.JSONLine(all[i].raw)); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	if len(all) == 0 {
		fmt.Fprintln(s.Stderr, emptyList(f))
		return nil
	}
	messages := summaries(all)
	t := newHeldTable(messages, f.state, time.Now())
	switch {
	case f.flat:
		t.rows = inTurn(alone(messages))
	case f.agent != "":
		t.rows = inTurn(alike(messages))
	default:
		t.rows, t.more = fair(alike(messages), s.RowsShown()-listFrame)
	}
	for _, line := range t.lines(scr) {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if waiting := slices.IndexFunc(all, func(l listed) bool { return l.State == api.ApprovalPending }); waiting >= 0 {
		fmt.Fprintf(s.Stderr, "To read one and to decide: ocipd approvals show %s\n", argument(t.short(all[waiting].ApprovalID)))
	}
	return nil
}

// listFrame is how many lines of a screen a list does not have for itself: its
// titles, the advice, and the shell's lines before and after it.
const listFrame = 4

func emptyList(f approvalsList) string {
	switch {
	case f.state == "" && f.agent == "", f.state == api.ApprovalPending && f.agent == "":
		return "nothing waits for a person"
	case f.agent == "":
		return "no held messages in this state"
	}
	return "no such messages of agent " + term.Visible(f.agent)
}

// listPage is how many held messages are asked for at a time: few enough that
// the daemon finds the next ones while these are read.
const listPage = 1000

// approvalsIn returns all held messages in a state, oldest first: those that
// wait where it is empty, and those of one agent unless that is empty.
func approvalsIn(ctx context.Context, c *client.Client, state, agent string) (all []listed, err error) {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	type page struct {
		api.ApprovalListResult
		err error
	}
	ask := func(after string) <-chan page {
		answer, size := make(chan page, 1), listPage
		params := api.ApprovalListParams{State: state, Agent: agent, Limit: &size, After: after}
		go func() {
			var p page
			p.err = c.Call(ctx, "approval.list", params, &p.ApprovalListResult)
			answer <- p
		}()
		return answer
	}
	for next := ask(""); next != nil; {
		p := <-next
		if p.err != nil {
			return nil, p.err
		}
		next = nil
		if n := len(p.Approvals); n == listPage {
			last, err := read(p.Approvals[n-1])
			if err != nil {
				return nil, err
			}
			next = ask(last.ApprovalID)
		}
		for _, raw := range p.Approvals {
			l, err := read(raw)
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
	}
	return all, nil
}

func read(raw jsontext.Value) (l listed, err error) {
	l.raw = raw
	if err = json.Unmarshal(raw, &l.ApprovalSummary); err != nil {
		err = fmt.Errorf("cannot read a held message of the daemon: %w", err)
	}
	return l, err
}

// likes are held messages that a person need read only once, oldest first.
type likes []*api.ApprovalSummary

func (l likes) oldest() *api.ApprovalSummary { return l[0] }

func summaries(all []listed) []*api.ApprovalSummary {
	messages := make([]*api.ApprovalSummary, len(all))
	for i := range all {
		messages[i] = &all[i].ApprovalSummary
	}
	return messages
}

// alone makes every message a row.
func alone(all []*api.ApprovalSummary) []likes {
	rows := make([]likes, len(all))
	for i := range all {
		rows[i] = all[i : i+1 : i+1]
	}
	return rows
}

// alike makes those messages one row that have the same agent, counterparty,
// reason, first line and state.
func alike(all []*api.ApprovalSummary) []likes {
	type kind struct{ agent, to, code, summary, state string }
	return groups[likes](all, func(a *api.ApprovalSummary) kind {
		return kind{a.Agent, a.To(), a.Code, a.Summary, a.State}
	})
}

// byAgent parts rows by their agent, in the order of their first.
func byAgent(rows []likes) [][]likes {
	return groups[[]likes](rows, func(row likes) string { return row.oldest().Agent })
}

// groups parts a list by a key, the groups in the order of their first.
func groups[G ~[]V, V any, K comparable](all []V, key func(V) K) (parts []G) {
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
func inTurn(rows []likes) []likes {
	parts := byAgent(rows)
	ordered := make([]likes, 0, len(rows))
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
func fair(rows []likes, room int) (shown []likes, left map[int]more) {
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
func need(parts [][]likes, most int) (lines int) {
	for _, part := range parts {
		lines += min(len(part), most)
		if len(part) > most {
			lines++
		}
	}
	return lines
}

// heldTable shows held messages.
type heldTable struct {
	rows []likes
	more map[int]more
	now  time.Time
	// states is set where not all of them wait.
	states bool
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

func newHeldTable(all []*api.ApprovalSummary, state string, now time.Time) *heldTable {
	t := &heldTable{now: now, tail: shortID, states: state != "" && state != api.ApprovalPending}
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

func (t *heldTable) short(id string) string { return endOf(id, t.tail) }

// The columns of the table that are not in every one of them.
const (
	timesColumn = 1
	lastColumn  = 7
)

func (t *heldTable) columns() []term.Column {
	columns := []term.Column{
		{Title: "ID", Least: t.tail}, {Title: "×", Right: true}, {Title: "AGENT", Least: 8}, {Title: "TO", Least: 11},
		{Title: "WHY", Least: 10}, {Title: "SAYS", Least: 10}, {Title: "AGE", Least: 3, Right: true}, {Title: "LEFT", Least: 4, Right: true},
	}
	if t.states {
		columns[lastColumn] = term.Column{Title: "STATE", Least: 8}
	}
	return columns
}

// row shows messages that are alike by the oldest of them.
func (t *heldTable) row(row likes) []term.Cell {
	a := row.oldest()
	times := ""
	if len(row) > 1 {
		times = strconv.Itoa(len(row))
	}
	last := term.Cell{Text: term.ShortAge(time.UnixMilli(a.ExpiresAt).Sub(t.now)), Colour: urgency(a.ExpiresAt, t.now)}
	if t.states {
		last = term.Cell{Text: term.Visible(stateWords(a.State)), Colour: stateColour(a.State)}
	}
	return []term.Cell{
		{Text: term.Visible(t.short(a.ApprovalID)), Colour: term.Bold}, {Text: times, Colour: term.Yellow}, {Text: term.Visible(a.AgentID)}, {Text: term.Visible(a.To())},
		{Text: term.Visible(whyOf(a)), Colour: term.Yellow}, {Text: term.Visible(cmp.Or(a.Summary, "(forgotten)"))}, {Text: term.ShortAge(t.now.Sub(time.UnixMilli(a.AskedAt)))}, last,
	}
}

// lines is the table, at most as wide as the screen: its titles, and the rows.
func (t *heldTable) lines(scr term.Screen) []string {
	columns := t.columns()
	titles := make([]term.Cell, len(columns))
	for i, c := range columns {
		titles[i] = term.Cell{Text: c.Title, Colour: term.Dim}
	}
	rows := [][]term.Cell{titles}
	for _, row := range t.rows {
		rows = append(rows, t.row(row))
	}
	t.measure(rows)
	widths := slices.Clone(t.widths)
	if widths[timesColumn] == 0 {
		columns, widths = slices.Delete(columns, timesColumn, timesColumn+1), slices.Delete(widths, timesColumn, timesColumn+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], timesColumn, timesColumn+1)
		}
	} else {
		columns[timesColumn].Least = widths[timesColumn]
	}
	term.Fit(columns, widths, scr.RowWidth())
	lines := make([]string, 0, len(rows)+len(t.more))
	for i, row := range rows {
		lines = append(lines, strings.TrimSuffix(term.RowLine(columns, widths, row, scr), "\n"))
		if m, ok := t.more[i-1]; ok {
			lines = append(lines, scr.Colour.Paint(term.Dim, term.Cut(fmt.Sprintf("… %d more of agent %s: ocipd approvals list --agent %s",
				m.messages, term.Visible(m.agent), argument(m.agent)), scr.Width)))
		}
	}
	return lines
}

// measure widens the columns to what is in them.
func (t *heldTable) measure(rows [][]term.Cell) {
	if t.widths == nil {
		t.widths = make([]int, len(rows[0]))
	}
	for n, row := range rows {
		for i := range row {
			// A column without any text but its title is left out.
			if n > 0 || i != timesColumn {
				t.widths[i] = max(t.widths[i], term.Width(row[i].Text))
			}
		}
	}
}

// whyOf is why something waits, in a word or two: an escalation waits for nothing
// but a person to see to it.
func whyOf(a *api.ApprovalSummary) string {
	if a.Kind == api.ApprovalOfEscalation {
		return "yours to answer"
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

// found is one held message, with the JSON that it came as.
type found struct {
	api.Approval
	raw jsontext.Value
}

// findApproval returns the held message that a person named by its id, or by
// the beginning or the end of its id. Those that wait are looked through first.
func findApproval(ctx context.Context, c *client.Client, name string) (*found, error) {
	a, err := getApproval(ctx, c, name)
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Code != api.NotFound {
		return a, err
	}
	part := strings.Trim(name, "…")
	unknown := fmt.Errorf("there is no approval %q; ocipd approvals list shows what waits", name)
	if len(part) < leastTyped {
		return nil, unknown
	}
	for _, state := range []string{api.ApprovalPending, "all"} {
		all, err := approvalsIn(ctx, c, state, "")
		if err != nil {
			return nil, err
		}
		var ids []string
		for i := range all {
			if id := all[i].ApprovalID; strings.HasPrefix(id, part) || strings.HasSuffix(id, part) {
				ids = append(ids, id)
			}
		}
		switch len(ids) {
		case 0:
			continue
		case 1:
			return getApproval(ctx, c, ids[0])
		}
		return nil, fmt.Errorf("%q is the beginning or the end of %d, such as %s and %s", name, len(ids), ids[0], ids[1])
	}
	return nil, unknown
}

func getApproval(ctx context.Context, c *client.Client, id string) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	a := new(found)
	if err := c.Call(ctx, "approval.get", api.ApprovalParams{ApprovalID: id}, &a.raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.raw, &a.Approval); err != nil {
		return nil, fmt.Errorf("cannot read a held message of the daemon: %w", err)
	}
	return a, nil
}

// heldNow asks a daemon that may not be there, for a completion.
func (s *shell) heldNow(ctx context.Context, state string) []listed {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil
	}
	defer c.Close()
	all, err := approvalsIn(ctx, c, state, "")
	if err != nil {
		return nil
	}
	return all
}

// completeApproval completes the id of a held message in a state: its end, as it
// is listed, and the whole of it once it is begun.
func (s *shell) completeApproval(state string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := summaries(s.heldNow(cmd.Context(), state))
		t := newHeldTable(all, state, time.Now())
		var offered []cobra.Completion
		for _, row := range inTurn(alone(all)) {
			a := row.oldest()
			id := t.short(a.ApprovalID)
			if begun != "" && strings.HasPrefix(a.ApprovalID, begun) {
				id = a.ApprovalID
			}
			if plainWord(id) {
				offered = append(offered, cobra.CompletionWithDesc(id, term.Visible(a.Agent+" → "+a.To()+": "+cmp.Or(a.Summary, stateWords(a.State)))))
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeHeldAgent completes the agents that have messages waiting.
func (s *shell) completeHeldAgent(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var offered []cobra.Completion
	for _, part := range byAgent(alone(summaries(s.heldNow(cmd.Context(), "")))) {
		a := part[0].oldest()
		for _, id := range []string{a.AgentID, a.Agent} {
			if plainWord(id) && !slices.Contains(offered, id) {
				offered = append(offered, id)
			}
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}
