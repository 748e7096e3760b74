// Package taskcmd has the commands about tasks.
package taskcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
	"github.com/spf13/cobra"
)

// command is the common part of the commands about tasks: the caller, and the output.
type command struct {
	*cli.Process
	tokenFile string
	// key names the key that signs the operator's calls.
	key    string
	asJSON bool
}

// New returns the commands about tasks.
func New(p *cli.Process) *cobra.Command {
	t := &command{Process: p}
	c := cli.Group(&cobra.Command{
		Use: "task", Short: "create, show, move and review tasks",
		Long: `Work with tasks of several agents: what is to be done, who does it, who reviews it,
and what a person has to approve.

Without a token, commands act as the operator. With --token-file,
OCIPD_TOKEN_FILE or OCIPD_TOKEN they act as the actor of that grant. A refusal
begins with its code, such as GUARD_FAILED.`,
	})
	c.PersistentFlags().StringVar(&t.tokenFile, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.PersistentFlags().BoolVar(&t.asJSON, "json", false, "print the answer as JSON")
	circuit := cli.Group(&cobra.Command{Use: "circuit", Short: "open or close a task's circuit"})
	circuit.AddCommand(newCircuitOpen(t), newCircuitClose(t))
	effect := cli.Group(&cobra.Command{Use: "effect", Short: "plan, list, run, finish, settle, cancel and end a task's effects"})
	effect.AddCommand(newEffectPlan(t), newEffectList(t), newEffectRun(t), newEffectFinish(t), newEffectSettle(t), newEffectCancel(t), newEffectKill(t))
	c.AddCommand(
		newCreate(t), newList(t), newShow(t), newTimeline(t), newBoard(t), newUpdate(t), newTransition(t), newStartAttempt(t), newFinishAttempt(t), newArtifact(t), newCheckpoint(t), newReview(t),
		newRequestApproval(t), newRun(t), newWait(t), newReady(t), newClaim(t), newGrant(t), newGrants(t), newRevokeGrant(t), newImport(t), newFiles(t), circuit, effect,
	)
	t.completes(c)
	return c
}

// token is the token of the command's grant, or "" for the operator.
func (t *command) token() (string, error) { return t.Token(t.tokenFile) }

// dial connects as the operator or under the grant.
func (t *command) dial(ctx context.Context) (*client.Client, error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return t.DialOperator(ctx)
	}
	return t.attach(ctx, token)
}

func (t *command) attach(ctx context.Context, token string) (*client.Client, error) {
	path, err := t.KernelSocket()
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := c.Call(ctx, "task.attach", &taskapi.AttachParams{Token: token}, nil); err != nil {
		c.Close() //nolint:errcheck // it is of no use
		return nil, t.said(err)
	}
	return c, nil
}

// ask makes one call.
func (t *command) ask(ctx context.Context, method string, params any) (raw jsontext.Value, err error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return raw, t.said(t.OperateSigned(ctx, t.key, method, params, &raw))
	}
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	c, err := t.attach(ctx, token)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return raw, t.said(c.Call(ctx, method, params, &raw))
}

// do makes one call, and prints its answer: raw, or in a line.
func (t *command) do(ctx context.Context, method string, params any, line func(*taskapi.View) string) error {
	// All answers to writers have the members that make up a line.
	return answered(ctx, t, method, params, func(said *taskapi.View) error {
		_, err := fmt.Fprintln(t.Stdout, term.Printable(line(said)))
		return err
	})
}

// answered makes one call, and prints its answer: raw with --json, or through show.
func answered[T any](ctx context.Context, t *command, method string, params any, show func(*T) error) error {
	raw, err := t.ask(ctx, method, params)
	if err != nil {
		return err
	}
	if t.asJSON {
		_, err := t.Stdout.Write(t.Screen().JSONLine(raw))
		return err
	}
	said, err := decoded[T](raw)
	if err != nil {
		return err
	}
	return show(said)
}

// asked makes one call, and returns its answer, also raw.
func asked[T any](ctx context.Context, t *command, method string, params any) (said *T, raw jsontext.Value, err error) {
	if raw, err = t.ask(ctx, method, params); err != nil {
		return nil, nil, err
	}
	said, err = decoded[T](raw)
	return said, raw, err
}

func decoded[T any](raw jsontext.Value) (*T, error) {
	said := new(T)
	if err := json.Unmarshal(raw, said); err != nil {
		return nil, fmt.Errorf("cannot read the daemon's answer: %w", err)
	}
	return said, nil
}

// moved describes a task's new state in a line.
func moved(v *taskapi.View) string {
	return fmt.Sprintf("%s is in %s, at revision %d", v.ID, v.Phase, v.Revision)
}

// said puts the code of a refusal in front.
func (t *command) said(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	var details taskapi.Details
	if text, encodeErr := json.Marshal(e.Details); encodeErr != nil || json.Unmarshal(text, &details) != nil || details.Task.Code == "" {
		return err
	}
	if t.asJSON {
		return t.Refused(err)
	}
	fmt.Fprintf(t.Stderr, "%s: %s\n", details.Task.Code, term.OneLine(e.Message))
	for _, m := range details.Task.Missing {
		fmt.Fprintf(t.Stderr, "  %s\n", term.OneLine(m.String()))
	}
	for _, line := range next(&details.Task) {
		fmt.Fprintf(t.Stderr, "  next: %s\n", line)
	}
	return cli.ErrSaid
}

// maxCompleted bounds the tasks offered to a shell.
const maxCompleted = 200

// complete completes ids of tasks, with their titles.
func (t *command) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return t.completeTask(cmd, nil, begun)
}

// completeTask completes the id of a task: open ones, the newest first.
func (t *command) completeTask(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var list taskapi.List
	limit := maxCompleted
	if err := t.Operate(cmd.Context(), "task.list", &taskapi.ListParams{Open: true, Newest: true, Limit: &limit}, &list); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for i := range list.Tasks {
		if l := &list.Tasks[i]; strings.HasPrefix(l.ID, begun) {
			ids = append(ids, l.ID+"\t"+term.OneLine(l.Title)+" ("+string(l.Phase)+")")
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completePhase completes a phase, as a flag's value or after a task.
func completePhase(_ *cobra.Command, _ []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	for _, p := range task.Phases() {
		if strings.HasPrefix(string(p), begun) {
			names = append(names, string(p))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeEffect completes an effect of the task in --task, with its key.
func (t *command) completeEffect(cmd *cobra.Command, args []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
	id, err := cmd.Flags().GetString("task")
	if len(args) > 0 || err != nil || id == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	v, _, err := t.view(cmd.Context(), id)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for i := range v.Effects {
		if e := &v.Effects[i]; strings.HasPrefix(e.ID, begun) {
			ids = append(ids, e.ID+"\t"+term.OneLine(e.Key)+" ("+e.State+")")
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completes adds completion to the flags that take a task or a phase.
func (t *command) completes(c *cobra.Command) {
	for _, sub := range c.Commands() {
		t.completes(sub)
	}
	for name, complete := range map[string]cobra.CompletionFunc{"task": t.completeTask, "depends-on": t.completeTask, "phase": completePhase, "to": completePhase} {
		if c.LocalNonPersistentFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // the flag is there, and has no other
		}
	}
}

// about makes a command about one task.
func (t *command) about(c *cobra.Command, run func(ctx context.Context, id string) error) *cobra.Command {
	c.Args, c.ValidArgsFunction = cobra.ExactArgs(1), t.complete
	c.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0]) }
	return c
}

// view reads a task.
func (t *command) view(ctx context.Context, id string) (*taskapi.View, jsontext.Value, error) {
	v, raw, err := asked[taskapi.View](ctx, t, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: id}})
	if err != nil {
		return nil, nil, err
	}
	// A command may need effects and approvals that the answer omits.
	return v, raw, taskclient.Whole(ctx, func(ctx context.Context, method string, params, result any) error {
		raw, err := t.ask(ctx, method, params)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, result)
	}, v)
}

func write(id string) taskapi.Write { return taskapi.Write{Ref: taskapi.Ref{TaskID: id}} }

func newCreate(t *command) *cobra.Command {
	var file, key string
	c := &cobra.Command{
		Use: "create -f FILE",
		Example: "  ocipd task create -f invoices.md\n" +
			"  ocipd task create -f - --json < invoices.json",
		Short: "create a task from a spec file",
		Long: `Create a task from a file: Markdown under front matter in YAML, or JSON with the
members of task.create.

  ---
  title: Invoices get a CSV export
  workspace: /home/me/billing
  priority: 1
  ---
  ## Goal
  Accountants download a month of invoices as CSV.
  ## Scope
  - the endpoint GET /invoices.csv

The front matter may also have initial_phase (spec_draft or spec_review), labels,
depends_on, effects, not_before, classification and tenant_id. The spec consists of the
texts under the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria,
Risks, or under their names in eight other languages, such as 目标 范围 非目标 输入 输出 验收标准 风险;
what it lacks is listed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usagef("cannot make a task of nothing: name its file with -f")
			}
			params, err := t.readTask(cmd.Context(), file)
			if err != nil {
				return err
			}
			params.RequestKey = cmp.Or(key, params.RequestKey)
			return answered(cmd.Context(), t, "task.create", params, func(made *taskapi.Created) error {
				fmt.Fprintf(t.Stdout, "%s is in %s\n", made.TaskID, made.Phase)
				for _, m := range made.Missing {
					fmt.Fprintf(t.Stderr, "to mend: %s\n", term.OneLine(m.String()))
				}
				return nil
			})
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the spec `FILE`, - for standard input")
	c.Flags().StringVar(&key, "request-key", "", "make the task once, however often this `KEY` is used")
	return c
}

func newList(t *command) *cobra.Command {
	var p taskapi.ListParams
	var phase string
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Example: "  ocipd task list\n  ocipd task list --all --phase completed --json",
		Short:   "list tasks",
		Long: `List open tasks, oldest first, with what each waits for since when. With an
orchestrator's token, those that are ready for it, in the order to take them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if token, err := t.token(); err != nil {
				return err
			} else if token != "" && (phase != "" || p.TenantID != "" || all) {
				return cli.Usagef("cannot choose tasks with a token, which shows what is ready for its orchestrator: leave out --phase, --tenant and --all")
			}
			p.Phase, p.Open = task.Phase(phase), !all
			if phase != "" && p.Phase.Final() {
				p.Open = false // a named phase includes closed tasks
			}
			list, err := t.tasks(cmd.Context(), &p)
			if err != nil {
				return err
			}
			if t.asJSON {
				return t.PrintJSON(list)
			}
			return t.printList(list)
		},
	}
	c.Flags().StringVar(&phase, "phase", "", "tasks in this `PHASE`")
	c.Flags().StringVar(&p.TenantID, "tenant", "", "tasks of this `TENANT`")
	c.Flags().BoolVar(&all, "all", false, "completed and failed tasks too")
	return c
}

// tasks returns the tasks of all pages. An orchestrator sees only tasks that are ready for
// it.
func (t *command) tasks(ctx context.Context, p *taskapi.ListParams) (*taskapi.List, error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if token != "" {
		list, limit := new(taskapi.List), api.MaxPage
		return list, t.said(t.AskPage(ctx, c.Call, "task.list_ready", &taskapi.ListReadyParams{Limit: &limit}, list))
	}
	all := &taskapi.List{Tasks: []taskapi.Line{}}
	for {
		var page taskapi.List
		if err := t.said(t.AskPage(ctx, c.Call, "task.list", p, &page)); err != nil {
			return nil, err
		}
		all.Tasks = append(all.Tasks, page.Tasks...)
		if p.After = page.Next; p.After == "" || p.Limit != nil {
			return all, nil
		}
	}
}

func (t *command) printList(list *taskapi.List) error {
	if len(list.Tasks) == 0 {
		fmt.Fprintln(t.Stderr, "there is no task")
		return nil
	}
	now := time.Now()
	table := &term.Table{Columns: []term.Column{{Title: "TASK", Whole: true}, {Title: "PHASE", Whole: true}, {Title: "PRI", Least: 3, Right: true}, {Title: "TITLE", Least: 16}, {Title: "WAITS FOR", Least: 12, Below: true}}}
	for i := range list.Tasks {
		l := &list.Tasks[i]
		table.Add(term.Plain(l.ID), term.Tinted(string(l.Phase), phaseColour(l.Phase)), term.Plain(strconv.Itoa(l.Priority)), term.Plain(l.Title), waiting(l, now))
	}
	return table.Write(t.Stdout, t.Screen())
}

func waiting(l *taskapi.Line, now time.Time) term.Cell {
	if l.Waits == "" {
		return term.Plain("")
	}
	text := l.Waits + ", " + term.Age(now.Sub(l.Since))
	if l.Progress != nil {
		text = l.Progress.Actor + ", " + going(l.Progress, now)
	}
	if l.ReadyAt != nil && l.ReadyAt.After(now) {
		text = "until " + l.ReadyAt.Local().Format("15:04:05")
	}
	if l.Person {
		return term.Tinted(text, term.Yellow)
	}
	return term.Plain(text)
}

func phaseColour(p task.Phase) term.Colour {
	switch p {
	case task.Completed:
		return term.Green
	case task.Failed, task.CircuitOpen:
		return term.Red
	case task.AwaitingApproval:
		return term.Yellow
	default:
		return term.NoColour
	}
}
