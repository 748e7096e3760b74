package taskcmd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newEffectList(t *command) *cobra.Command {
	return t.about(&cobra.Command{
		Use:     "list TASK",
		Example: "  ocipd task effect list tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short:   "list the effects of a task, with their runs",
	}, func(ctx context.Context, id string) error {
		v, _, err := t.view(ctx, id)
		if err != nil {
			return err
		}
		if t.asJSON {
			return t.PrintJSON(v.Effects)
		}
		table := &term.Table{Columns: []term.Column{{Title: "EFFECT", Whole: true}, {Title: "KEY", Least: 8}, {Title: "KIND", Least: 8}, {Title: "STATE", Whole: true}, {Title: "RUNS", Least: 4, Right: true}}}
		for i := range v.Effects {
			e := &v.Effects[i]
			table.Add(term.Plain(e.ID), term.Plain(e.Key), term.Plain(e.Kind), term.Plain(e.State), term.Plain(fmt.Sprint(len(e.Runs))))
		}
		return table.Write(t.Stdout, t.Screen())
	})
}

func newEffectRun(t *command) *cobra.Command {
	var id, key, digest, file string
	var compensation bool
	var wait int
	c := &cobra.Command{
		Use: "run",
		Example: "  ocipd task effect run --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key deploy-staging --json\n" +
			"  ocipd task effect run --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key call-the-client --out run.token",
		Short: "run an approved effect once; a repetition gets the first result",
		Long: `Run an approved effect once; a repetition prints the first result. If the effect is no
command, the caller does it now: the command shows a token once, or writes it to a file
that nobody else can read, and the caller reports the outcome within 10 minutes by
` + "`ocipd task effect finish`" + `. The exit code is 0 if the effect was done or the caller has
to do it now, else 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if digest == "" {
				var err error
				if digest, err = requested(cmd.Context(), t, id, key); err != nil {
					return err
				}
			}
			p := taskapi.RunEffectParams{Ref: taskapi.Ref{TaskID: id}, IdempotencyKey: key, RequestDigest: digest, Compensation: compensation, WaitS: wait}
			if err := takesToken(file); err != nil {
				return err
			}
			return t.runs(cmd.Context(), &p, file)
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "task", "", "the task's `ID`")
	flags.StringVar(&key, "key", "", "the effect's idempotency `KEY`")
	flags.StringVar(&digest, "digest", "", "the `DIGEST` of the request that was approved, as task show and approvals show have it under request (default the one asked for last)")
	flags.BoolVar(&compensation, "compensation", false, "undo it instead, once")
	flags.IntVar(&wait, "wait", 15, "wait for its end for `SECONDS` at most, up to 20")
	flags.StringVar(&file, "out", "", "write the token of what is the caller's to do to this `FILE`")
	cli.Required(c, "task", "key")
	return c
}

// requested is the digest of the request about an effect that was made last.
func requested(ctx context.Context, t *command, id, key string) (string, error) {
	v, _, err := t.view(ctx, id)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(v.Effects, func(e task.Effect) bool { return e.Key == key })
	switch {
	case i < 0:
		return "", fmt.Errorf("the task has no effect %q: ocipd task effect list %s shows them", key, id)
	case v.Effects[i].Digest == "":
		return "", fmt.Errorf("nobody has asked for an approval of effect %q: ocipd task request-approval --task %s --key %s", key, id, key)
	}
	return v.Effects[i].Digest, nil
}

// takesToken checks the place for a token before the daemon issues it, because it does so
// only once. It never replaces an existing file, which may hold the token of an earlier
// call.
func takesToken(file string) error {
	if file == "" {
		return nil
	}
	err := durable.Create(file+tokenPart, 0o600, nil)
	if err == nil {
		err = os.Remove(file + tokenPart)
	}
	if info, statErr := os.Lstat(file); err == nil && statErr == nil && info.IsDir() {
		err = &os.PathError{Op: "replace", Path: file, Err: syscall.EISDIR}
	}
	if err != nil {
		return fmt.Errorf("cannot write the token: %w", err)
	}
	return nil
}

// tokenPart ends the name of a token's file while it is being written.
const tokenPart = ".part"

// writeToken writes a file that nobody else can read. It replaces a file or link of that
// name instead of writing into it.
func writeToken(file, text string) error {
	if err := durable.Replace(file, tokenPart, 0o600, []byte(text)); err != nil {
		return fmt.Errorf("cannot write the token: %w", err)
	}
	return nil
}

// runs starts an effect and prints its state. If the caller has to do the effect, it prints
// the token or writes it to the file.
func (t *command) runs(ctx context.Context, p *taskapi.RunEffectParams, file string) error {
	r, raw, err := asked[taskapi.EffectRun](ctx, t, "task.run_effect", p)
	if err != nil {
		return err
	}
	token := r.RunToken
	if token != "" && file != "" {
		if err := writeToken(file, token+"\n"); err != nil {
			return err
		}
		token, r.RunToken = "the token is in "+file, ""
		if raw, err = json.Marshal(r); err != nil {
			return err
		}
	}
	if token != "" {
		return t.Report(t.asJSON, raw, "run %d of %s is yours to do\n%s\n", r.Run, r.EffectID, term.Printable(token))
	}
	if err = t.Report(t.asJSON, raw, "run %d of %s is %s\n", r.Run, r.EffectID, r.State); err == nil && r.State != task.EffectDone {
		err = cli.ErrSaid
	}
	return err
}

func newEffectFinish(t *command) *cobra.Command {
	var p taskapi.FinishEffectParams
	var id, file, receipt string
	c := &cobra.Command{
		Use: "finish EFFECT",
		Example: "  ocipd task effect finish eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --run-token-file run.token\n" +
			"  ocipd task effect finish eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --run-token-file - --outcome failed --receipt '{\"said\": \"nobody answers\"}' < run.token",
		Short: "say how an effect went that was yours to do",
		Long: `Report the outcome of an effect that is no command, with the token that
` + "`ocipd task effect run`" + ` gave for it. Without a report within 10 minutes the outcome is
unknown, and a person settles it.`,
		ValidArgsFunction: t.completeEffect,
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Write, p.EffectID = write(id), args[0]
			if p.Receipt, err = given("receipt", receipt); err != nil {
				return err
			}
			token, err := t.source(cmd.Context(), file, "token of the run")
			if err != nil {
				return err
			}
			p.RunToken = strings.TrimSpace(string(token))
			if p.Run == 0 {
				if p.Run, err = t.lastRun(cmd.Context(), id, args[0]); err != nil {
					return err
				}
			}
			return t.do(cmd.Context(), "task.finish_effect", &p, func(*taskapi.View) string { return fmt.Sprintf("run %d of %s is %s", p.Run, args[0], p.Outcome) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "task", "", "the task's `ID`")
	flags.StringVar(&file, "run-token-file", "", "the `FILE` with the token of the run, - for standard input")
	flags.IntVar(&p.Run, "run", 0, "the run's `NUMBER` (default the last one)")
	flags.StringVar(&p.Outcome, "outcome", task.EffectDone, "how it went, `WORD`: done or failed")
	flags.StringVar(&receipt, "receipt", "", "a JSON `VALUE` that says more, such as where it can be seen")
	cli.Required(c, "task", "run-token-file")
	cli.Choices(c, "outcome", []string{task.EffectDone, task.EffectFailed})
	return c
}

// lastRun is the number of an effect's last run.
func (t *command) lastRun(ctx context.Context, id, effect string) (int, error) {
	v, _, err := t.view(ctx, id)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(v.Effects, func(e task.Effect) bool { return e.ID == effect })
	if i < 0 || len(v.Effects[i].Runs) == 0 {
		return 0, fmt.Errorf("the task has no run of an effect %s", effect)
	}
	return len(v.Effects[i].Runs), nil
}

func newEffectSettle(t *command) *cobra.Command {
	var p taskapi.SettleEffectParams
	var id string
	c := &cobra.Command{
		Use: "settle [EFFECT]",
		Example: "  ocipd task effect settle --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7\n" +
			"  ocipd task effect settle eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --outcome done --note 'it is deployed'",
		Short: "settle a run whose outcome is unknown",
		Long: `Settle a run whose outcome is unknown. First find out whether the effect happened; the
command shows what the daemon knows of the run. Without --outcome a terminal asks for it,
and without EFFECT it asks about each such run of the task.`,
		ValidArgsFunction: t.completeEffect,
		Args:              cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Write = write(id)
			if len(args) > 0 {
				p.EffectID = args[0]
			}
			return t.settle(cmd.Context(), &p)
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "task", "", "the task's `ID`")
	flags.IntVar(&p.Run, "run", 0, "the run's `NUMBER` (default the one that is not known)")
	flags.StringVar(&p.Outcome, "outcome", "", "how it ended, `WORD`: done or failed")
	flags.StringVar(&p.Note, "note", "", "`TEXT` that says how you know")
	cli.KeyFlag(c, &t.key)
	cli.Required(c, "task")
	cli.Choices(c, "outcome", []string{task.EffectDone, task.EffectFailed})
	return c
}

// settle shows a person the known facts about runs with an unknown outcome, and asks for
// the outcome of each.
func (t *command) settle(ctx context.Context, p *taskapi.SettleEffectParams) error {
	v, _, err := t.view(ctx, p.TaskID)
	if err != nil {
		return err
	}
	if p.EffectID != "" && !slices.ContainsFunc(v.Effects, func(e task.Effect) bool { return e.ID == p.EffectID }) {
		return fmt.Errorf("the task has no effect %s", p.EffectID)
	}
	found := unknownRuns(v, p)
	switch {
	case len(found) == 0 && p.EffectID == "":
		return fmt.Errorf("nothing of task %s is unknown", p.TaskID)
	case len(found) == 0:
		// The daemon explains its state.
		return t.settles(ctx, *p)
	case len(found) > 1 && (p.Outcome != "" || !t.Asks()):
		return cli.Usagef("%d runs of the task are unknown: name the effect, and its run with --run", len(found))
	}
	in := bufio.NewReader(t.Stdin)
	for _, u := range found {
		one := *p
		one.EffectID, one.Run = u.effect.ID, u.run.Number
		asks := one.Outcome == "" && t.Asks()
		if !t.asJSON || asks {
			fmt.Fprint(t.Stderr, u)
		}
		if asks {
			if one.Outcome, err = t.Question(in, "was it done? (done or failed)", ""); err != nil {
				return err
			}
			if one.Note == "" {
				if one.Note, err = t.Question(in, "how do you know", ""); err != nil {
					return err
				}
			}
		}
		if err := t.settles(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (t *command) settles(ctx context.Context, p taskapi.SettleEffectParams) error {
	return t.do(ctx, "task.settle_effect", &p, func(*taskapi.View) string { return p.EffectID + " is settled as " + p.Outcome })
}

// unknownRun is a run whose outcome is unknown.
type unknownRun struct {
	effect *task.Effect
	run    *task.Run
}

// unknownRuns are the runs with an unknown outcome that are to be settled.
func unknownRuns(v *taskapi.View, p *taskapi.SettleEffectParams) (found []unknownRun) {
	for i := range v.Effects {
		e := &v.Effects[i]
		for n := range e.Runs {
			if r := &e.Runs[n]; r.State == task.EffectUncertain && (p.EffectID == "" || e.ID == p.EffectID) && (p.Run == 0 || p.Run == r.Number) {
				found = append(found, unknownRun{e, r})
			}
		}
	}
	return found
}

func (u unknownRun) String() string {
	e, r := u.effect, u.run
	var b strings.Builder
	what := e.RequestedAction
	action := e.Command
	if r.Compensation {
		what, action = "to undo: "+what, e.Compensation
	}
	fmt.Fprintf(&b, "%s\nrun %d, started %s by %s\n", term.Printable(fmt.Sprintf("%s (%s, key %s)", what, e.Kind, e.Key)), r.Number, r.StartedAt.Local().Format(time.DateTime), term.Printable(r.Actor))
	if action != nil {
		fmt.Fprintf(&b, "command: %s\n", term.Printable(fmt.Sprintf("%q", action.Argv)))
	}
	for line := range strings.SplitSeq(r.Evidence, "\n") {
		b.WriteString("  " + term.Printable(line) + "\n")
	}
	return b.String()
}

func newEffectKill(t *command) *cobra.Command {
	var p taskapi.KillEffectParams
	var id string
	c := &cobra.Command{
		Use:               "kill EFFECT",
		Example:           "  ocipd task effect kill eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --reason 'it hangs'",
		Short:             "end a command that runs",
		ValidArgsFunction: t.completeEffect,
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Write, p.EffectID = write(id), args[0]
			return t.do(cmd.Context(), "task.kill_effect", &p, func(*taskapi.View) string { return args[0] + " is being ended" })
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "task", "", "the task's `ID`")
	flags.IntVar(&p.Run, "run", 0, "the run's `NUMBER` (default the one that runs)")
	flags.StringVar(&p.Reason, "reason", "by hand", "`TEXT` for the record")
	cli.Required(c, "task")
	return c
}

func newEffectCancel(t *command) *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:               "cancel EFFECT",
		Example:           "  ocipd task effect cancel eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short:             "cancel an effect that is planned or has failed",
		ValidArgsFunction: t.completeEffect,
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.do(cmd.Context(), "task.cancel_effect", &taskapi.CancelEffectParams{Write: write(id), EffectID: args[0]}, func(*taskapi.View) string { return args[0] + " is cancelled" })
		},
	}
	c.Flags().StringVar(&id, "task", "", "the task's `ID`")
	cli.Required(c, "task")
	return c
}
