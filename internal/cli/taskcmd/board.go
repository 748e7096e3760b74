package taskcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/base/panes"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newBoard(t *command) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:     "board",
		Example: "  ocipd task board\n  ocipd task board --watch 2s",
		Short:   "show open tasks by phase, those that need a person first",
		Long: `Show open tasks: first those that wait for a person, with the command
that answers, then the others by phase, and at the end the tasks that were completed
last. --watch repeats it, on a terminal in place. With an orchestrator's token it shows
only the tasks that are ready for that orchestrator.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return t.board(cmd.Context())
			}
			return t.watchBoard(cmd.Context(), every)
		},
	}
	c.Flags().DurationVar(&every, "watch", 0, "show it again each `DURATION`")
	return c
}

// watchBoard shows the board repeatedly.
func (t *command) watchBoard(ctx context.Context, every time.Duration) error {
	if scr := t.Screen(); scr.Terminal && !t.asJSON {
		return panes.Run(ctx, panes.Options{
			Stdin: t.Stdin, Stdout: t.Stdout, Env: t.Env, Screen: scr, Every: every,
			Panes: []panes.Pane{{Title: "tasks", Lines: func(ctx context.Context, scr term.Screen, _ int) ([]string, error) {
				list, err := t.boardTasks(ctx)
				if err != nil {
					return nil, err
				}
				return boardLines(list, scr, time.Now())
			}}},
		})
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := t.board(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // an interrupt is how it ends
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !t.asJSON {
			fmt.Fprintln(t.Stdout)
		}
	}
}

// doneShown is the number of the newest closed tasks on the board.
const doneShown = 10

// boardTasks returns the tasks of the board: all open ones and the newest others.
func (t *command) boardTasks(ctx context.Context) (*taskapi.List, error) {
	list, err := t.tasks(ctx, &taskapi.ListParams{Open: true})
	if err != nil {
		return nil, err
	}
	token, err := t.token()
	if err != nil || token != "" {
		return list, err // an orchestrator sees only ready tasks
	}
	limit := doneShown
	for _, phase := range []task.Phase{task.Completed, task.Failed} {
		closed, err := t.tasks(ctx, &taskapi.ListParams{Phase: phase, Newest: true, Limit: &limit})
		if err != nil {
			return nil, err
		}
		for i := range closed.Tasks {
			if len(closed.Tasks[i].Questions) == 0 {
				list.Tasks = append(list.Tasks, closed.Tasks[i])
			}
		}
	}
	return list, nil
}

func (t *command) board(ctx context.Context) error {
	list, err := t.boardTasks(ctx)
	if err != nil {
		return err
	}
	if t.asJSON {
		return t.PrintJSON(list)
	}
	if len(list.Tasks) == 0 {
		fmt.Fprintln(t.Stderr, "there is no task")
	}
	return drawBoard(t.Stdout, list, t.Screen(), time.Now())
}

func boardLines(list *taskapi.List, scr term.Screen, now time.Time) ([]string, error) {
	if len(list.Tasks) == 0 {
		return []string{"there is no task"}, nil
	}
	var b bytes.Buffer
	err := drawBoard(&b, list, scr, now)
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), err
}

// boardColumns are the columns of the board, with their phases.
func boardColumns() []struct {
	title  string
	phases []task.Phase
} {
	return []struct {
		title  string
		phases []task.Phase
	}{
		{"SPEC", []task.Phase{task.SpecDraft, task.SpecReview}}, {"READY", []task.Phase{task.ExecutionReady}}, {"RUNNING", []task.Phase{task.Executing}},
		{"GATES", []task.Phase{task.SpecGate, task.QualityGate}}, {"APPROVAL", []task.Phase{task.AwaitingApproval, task.ReadyToResume}},
		{"CIRCUIT", []task.Phase{task.CircuitOpen}}, {"DONE", []task.Phase{task.Completed, task.Failed}},
	}
}

// boardColumn returns the position and title of a phase's column. A phase that this program
// does not know, from a newer daemon, comes last.
func boardColumn(p task.Phase) (at int, title string) {
	columns := boardColumns()
	for i, c := range columns {
		if slices.Contains(c.phases, p) {
			return i, c.title
		}
	}
	return len(columns), strings.ToUpper(string(p))
}

// drawBoard draws one row per task: first those that wait for a person, then by phase.
func drawBoard(w io.Writer, list *taskapi.List, scr term.Screen, now time.Time) error {
	rows := slices.Clone(list.Tasks)
	slices.SortStableFunc(rows, func(a, b taskapi.Line) int {
		if a.Person != b.Person {
			return person(b.Person) - person(a.Person)
		}
		if a.Phase.Final() && b.Phase.Final() && !a.Person {
			return b.Since.Compare(a.Since)
		}
		atA, _ := boardColumn(a.Phase)
		atB, _ := boardColumn(b.Phase)
		if atA != atB && !a.Person {
			return atA - atB
		}
		return cmp.Or(a.Priority-b.Priority, a.Since.Compare(b.Since))
	})
	table := &term.Table{Columns: []term.Column{{Title: "WHERE", Whole: true}, {Title: "TASK", Whole: true}, {Title: "TITLE", Least: 14}, {Title: "WAITS FOR", Least: 24, Below: true, Fold: true}}}
	done := 0
	for i := range rows {
		l := &rows[i]
		if l.Phase.Final() && !l.Person {
			if done++; done > doneShown {
				continue
			}
		}
		waits := waiting(l, now)
		if l.Phase.Final() && !l.Person {
			waits = term.Plain(string(l.Phase) + ", " + term.Age(now.Sub(l.Since)) + " ago")
		}
		_, where := boardColumn(l.Phase)
		table.Add(term.Tinted(where, phaseColour(l.Phase)), term.Plain(l.ID), term.Plain(l.Title), waits)
		for _, q := range l.Questions {
			ask(table, l, &q, scr)
		}
	}
	return table.Write(w, scr)
}

// ask shows a question to a person below its task's row, with the command that answers it.
func ask(table *term.Table, l *taskapi.Line, q *taskapi.Question, scr term.Screen) {
	command := "ocipd task circuit close " + l.ID
	switch q.About {
	case taskapi.AskApproval:
		command = "ocipd approvals approve " + q.ApprovalID
	case taskapi.AskOutcome:
		command = "ocipd task effect settle --task " + l.ID
	}
	if q.Text != "" {
		table.Note(term.Cell{Text: term.Cut(term.Printable(q.Text), scr.RowWidth()-noteIndent)})
	}
	for _, line := range q.Details {
		table.Note(term.Cell{Text: term.Cut(term.Printable(line), scr.RowWidth()-noteIndent)})
	}
	table.Note(term.Tinted(command, term.Bold))
}

// noteIndent is the indentation of the lines below a row.
const noteIndent = 4

func person(b bool) int {
	if b {
		return 1
	}
	return 0
}

func newTimeline(t *command) *cobra.Command {
	return t.about(&cobra.Command{
		Use:     "timeline TASK",
		Aliases: []string{"log"},
		Example: "  ocipd task timeline tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short:   "show every record of a task, with its messages and approvals",
		Long: `Show every record of a task, oldest first: its events by their number, and between
them the messages that were about it, what people decided, and what was refused.`,
	}, t.timeline)
}

func (t *command) timeline(ctx context.Context, id string) error {
	if token, err := t.token(); err != nil {
		return err
	} else if token != "" {
		return cli.Usagef("cannot show a timeline by a token: the log is the operator's to read")
	}
	c, err := t.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if !ids.Is(ids.Task, id) {
		return fmt.Errorf("%q is no task's id, which is %s and a UUID", id, ids.Task)
	}
	var lines []jsontext.Value
	limit := api.MaxPage
	p := api.AuditQueryParams{Limit: &limit}
	p.Filter.Like.TaskID = id
	for {
		var page api.AuditQueryResult
		if err := t.AskPage(ctx, c.Call, "audit.query", &p, &page); err != nil {
			return err
		}
		lines = append(lines, page.Records...)
		if p.Before = page.NextBefore; p.Before == 0 {
			break
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("there is no record of task %s", id)
	}
	slices.Reverse(lines)
	if !t.asJSON {
		return drawsTimeline(ctx, t, c, id, lines)
	}
	for _, line := range lines {
		if _, err := t.Stdout.Write(t.Screen().JSONLine(line)); err != nil {
			return err
		}
	}
	return nil
}

// drawsTimeline draws the records of a task, and below them the state of an open circuit.
func drawsTimeline(ctx context.Context, t *command, c *client.Client, id string, lines []jsontext.Value) error {
	if err := drawTimeline(t.Stdout, lines, t.Screen()); err != nil {
		return err
	}
	var v taskapi.View
	if err := t.AskPage(ctx, c.Call, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: id}}, &v); err != nil && api.AsError(err).Code != api.NotFound { // the log may have a task that a restored database has not
		return t.said(err)
	}
	var b strings.Builder
	circuitRows(&v, rows(&b))
	_, err := fmt.Fprint(t.Stdout, b.String())
	return err
}

// drawTimeline draws records, oldest first.
func drawTimeline(w io.Writer, lines []jsontext.Value, scr term.Screen) error {
	entries := make([]audit.Entry, len(lines))
	days := make(map[string]struct{})
	for i, line := range lines {
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("cannot read a record of the daemon: %w", err)
		}
		entries[i] = e
		days[e.Time.Local().Format(time.DateOnly)] = struct{}{}
	}
	clock := time.TimeOnly
	if len(days) > 1 {
		clock = "01-02 15:04:05"
	}
	table := &term.Table{Columns: []term.Column{
		{Title: "N", Whole: true, Right: true}, {Title: "TIME", Whole: true}, {Title: "ACTOR", Least: 8}, {Title: "ROLE", Least: 8},
		{Title: "CHANGE", Least: 32, Fold: true}, {Title: "REASON", Least: 32, Below: true, Fold: true},
	}}
	for i := range entries {
		table.Add(timelineRow(&entries[i], clock)...)
	}
	return table.Write(w, scr)
}

// timelineRow is a record of a task as the timeline shows it.
func timelineRow(r *audit.Entry, clock string) []term.Cell {
	n := ""
	if r.TaskSeq > 0 {
		n = fmt.Sprint(r.TaskSeq)
	}
	reason, _ := r.Details["reason"].(string)
	reason = cmp.Or(reason, r.PolicyReason)
	colour := term.NoColour
	switch r.PolicyResult {
	case audit.ResultDeny:
		colour = term.Red
	case audit.ResultApproval:
		colour = term.Yellow
	}
	return []term.Cell{
		term.Plain(n), term.Plain(r.Time.Local().Format(clock)), term.Plain(cmp.Or(r.Actor, r.AgentID)), term.Plain(r.Role), term.Tinted(change(r), colour), term.Plain(reason),
	}
}

// change describes the subject of a record.
func change(r *audit.Entry) string {
	switch r.ActionType {
	case audit.ActionTask:
		return taskChange(r)
	case audit.ActionExchange:
		way := "message to "
		if r.Side == audit.SideReceiver {
			way = "message from "
		}
		said := way + cmp.Or(r.Counterparty.InstanceID, r.Counterparty.UserID, strings.TrimSpace(r.Address.Channel+" "+r.Address.Target), "somebody")
		if r.Round > 0 {
			said += fmt.Sprintf(", round %d of %d", r.Round, r.MaxRounds)
		}
		if r.PolicyResult != audit.ResultAllow && r.PolicyResult != "" {
			said += ": " + r.PolicyResult
		}
		if r.Code != "" {
			said += ", " + r.Code
		}
		return said
	default:
		said := strings.ReplaceAll(strings.TrimSpace(r.ActionType+" "+r.Event), "_", " ")
		if r.Code != "" {
			said += ", " + r.Code
		}
		return said
	}
}

// taskChange describes an event of a task with its changes.
func taskChange(r *audit.Entry) string {
	was, _ := r.Details["was"].(map[string]any)
	now, _ := r.Details["now"].(map[string]any)
	var parts []string
	for name, value := range now {
		if strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "digest") || name == "revision" {
			continue
		}
		before, changed := was[name]
		switch {
		case name == "phase" && changed:
			parts = append(parts, fmt.Sprintf("%v → %v", before, value))
		case changed:
			parts = append(parts, fmt.Sprintf("%s %v → %v", strings.ReplaceAll(name, "_", " "), before, value))
		default:
			parts = append(parts, fmt.Sprintf("%s %v", strings.ReplaceAll(name, "_", " "), value))
		}
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return r.Event
	}
	return r.Event + ": " + strings.Join(parts, ", ")
}
