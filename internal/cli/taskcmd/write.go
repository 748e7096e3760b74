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
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func (t *command) newUpdate() *cobra.Command {
	var title, file string
	var priority int
	var labels, depends []string
	var c *cobra.Command
	c = t.about(&cobra.Command{
		Use:     "update TASK",
		Example: "  ocipd task update tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --priority 0 -f invoices.md",
		Short:   "change a task's title, labels, priority, dependencies or spec",
	}, func(ctx context.Context, id string) error {
		v, _, err := t.view(ctx, id)
		if err != nil {
			return err
		}
		p := taskapi.UpdateParams{Write: write(id), Expected: &v.Revision}
		flags := c.Flags()
		if flags.Changed("title") {
			p.Title = &title
		}
		if flags.Changed("priority") {
			p.Priority = &priority
		}
		if flags.Changed("label") {
			p.Labels = &labels
		}
		if flags.Changed("depends-on") {
			p.DependsOn = &depends
		}
		if file != "" {
			if p.SpecMarkdown, p.Spec, err = t.readSpec(ctx, file); err != nil {
				return err
			}
		}
		return t.do(ctx, "task.update", &p, func(v *taskapi.View) string {
			parts := []string{moved(v)}
			for _, m := range v.Missing {
				parts = append(parts, m.String())
			}
			return strings.Join(parts, "; ")
		})
	})
	flags := c.Flags()
	flags.StringVar(&title, "title", "", "the new `TITLE`")
	flags.IntVar(&priority, "priority", task.DefaultPriority, "the new priority, `N` from 0 (first) to 4")
	flags.StringSliceVar(&labels, "label", nil, "the task's `LABELS`, all of them")
	flags.StringSliceVar(&depends, "depends-on", nil, "the `TASKS` that must be completed before")
	flags.StringVarP(&file, "file", "f", "", "a `FILE` with the new spec, which is all that is taken of it")
	return c
}

// me returns the command's own name and role.
func (t *command) me(ctx context.Context) (name, role string, err error) {
	token, err := t.token()
	if err != nil {
		return "", "", err
	}
	if token == "" {
		return fmt.Sprintf("uid:%d", os.Getuid()), string(task.Operator), nil
	}
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	path, err := t.KernelSocket()
	if err != nil {
		return "", "", err
	}
	return t.attached(ctx, path, token)
}

func (t *command) newTransition() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "transition TASK PHASE",
		Example: "  ocipd task transition tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 spec_review --reason 'the spec is complete'",
		Short:   "move a task to another phase",
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return completePhase(cmd, args, begun)
			}
			return t.complete(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			v, _, err := t.view(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			name, role, err := t.me(cmd.Context())
			if err != nil {
				return err
			}
			p := taskapi.TransitionParams{Write: write(args[0]), FromPhase: v.Phase, ToPhase: task.Phase(args[1]), Said: taskapi.Said{Actor: name, ActorRole: role}, Reason: reason, Expected: &v.Revision}
			return t.do(cmd.Context(), "task.transition", &p, moved)
		},
	}
	c.Flags().StringVar(&reason, "reason", "by hand", "`TEXT` for the record")
	return c
}

func (t *command) newStartAttempt() *cobra.Command {
	p := taskapi.StartAttemptParams{Phase: task.Executing}
	c := t.about(&cobra.Command{
		Use:     "start-attempt TASK",
		Example: "  ocipd task start-attempt tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --worker builder",
		Short:   "start an attempt at a task",
	}, func(ctx context.Context, id string) (err error) {
		p.Write = write(id)
		if p.Actor, p.ActorRole, err = t.me(ctx); err != nil {
			return err
		}
		return answered(ctx, t, "task.start_attempt", &p, func(a *taskapi.AttemptStarted) error {
			_, err := fmt.Fprintf(t.Stdout, "attempt %d of %s: %s, fence %d\n", a.Ordinal, a.TaskID, a.AttemptID, a.Fence)
			return err
		})
	})
	flags := c.Flags()
	flags.StringVar(&p.Runtime, "runtime", "local", "where it runs, `WORD`: "+strings.Join(task.Runtimes(), ", "))
	flags.StringVar(&p.ExecutorKind, "kind", "builder", "what runs it, `WORD`: "+strings.Join(task.ExecutorKinds(), ", "))
	flags.StringVar(&p.WorkerRef, "worker", "", "the `ACTOR` that makes it (default whoever asks)")
	cli.Choices(c, "runtime", task.Runtimes())
	cli.Choices(c, "kind", task.ExecutorKinds())
	return c
}

func (t *command) newFinishAttempt() *cobra.Command {
	var p taskapi.FinishAttemptParams
	c := t.about(&cobra.Command{
		Use:     "finish-attempt TASK",
		Example: "  ocipd task finish-attempt tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --outcome aborted",
		Short:   "end the running attempt of a task",
	}, func(ctx context.Context, id string) error {
		p.Write = write(id)
		if p.AttemptID == "" {
			v, _, err := t.view(ctx, id)
			if err != nil {
				return err
			}
			p.AttemptID = v.CurrentAttempt
		}
		return t.do(ctx, "task.finish_attempt", &p, moved)
	})
	flags := c.Flags()
	flags.StringVar(&p.Outcome, "outcome", task.AttemptSucceeded, "how it ended, `WORD`: "+strings.Join(task.Outcomes(), ", "))
	flags.StringVar(&p.FailureCode, "failure", "", "why it failed, `CODE`: "+strings.Join(task.Failures(), ", "))
	flags.StringVar(&p.ErrorSummary, "error", "", "`TEXT` of what went wrong")
	flags.StringVar(&p.AttemptID, "attempt", "", "the attempt's `ID` (default the last one)")
	cli.Choices(c, "outcome", task.Outcomes())
	cli.Choices(c, "failure", task.Failures())
	return c
}

// underway is the attempt in question: the named one, or the last.
func (t *command) underway(ctx context.Context, id, attempt string) (string, error) {
	if attempt != "" {
		return attempt, nil
	}
	v, _, err := t.view(ctx, id)
	if err != nil {
		return "", err
	}
	return v.CurrentAttempt, nil
}

func (t *command) newArtifact() *cobra.Command {
	var p taskapi.ArtifactParams
	c := &cobra.Command{
		Use:               "artifact TASK URI",
		Example:           "  ocipd task artifact tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 internal/evidence/export/csv.go --summary 'the endpoint'",
		Short:             "record what an attempt has made",
		Long:              "Record what an attempt has made: a file of the workspace, which the daemon hashes, or\nanything else with its digest.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: t.complete,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Write, p.URI = write(args[0]), args[1]
			if p.AttemptID, err = t.underway(cmd.Context(), args[0], p.AttemptID); err != nil {
				return err
			}
			if p.ProducedBy, _, err = t.me(cmd.Context()); err != nil {
				return err
			}
			return t.do(cmd.Context(), "task.record_artifact", &p, func(v *taskapi.View) string {
				return fmt.Sprintf("%s is recorded, artifacts are at revision %d", args[1], v.ArtifactRevision)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&p.Kind, "kind", task.ArtifactKinds()[0], "what it is, `WORD`: "+strings.Join(task.ArtifactKinds(), ", "))
	flags.StringVar(&p.Summary, "summary", "", "`TEXT` that says what it is")
	flags.StringVar(&p.Digest, "digest", "", "its `DIGEST`, sha256: and 64 digits, where it is no file of the workspace")
	flags.StringVar(&p.AttemptID, "attempt", "", "the attempt's `ID` (default the last one)")
	return c
}

func (t *command) newCheckpoint() *cobra.Command {
	p := taskapi.CheckpointParams{}
	var payload string
	c := t.about(&cobra.Command{
		Use:     "checkpoint TASK",
		Example: "  ocipd task checkpoint tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --type progress --payload '{\"done\": 3}'",
		Short:   "say how an attempt goes, and renew its lease",
	}, func(ctx context.Context, id string) (err error) {
		p.Write = write(id)
		if p.Payload, err = given("payload", payload); err != nil {
			return err
		}
		if p.AttemptID, err = t.underway(ctx, id, p.AttemptID); err != nil {
			return err
		}
		return t.do(ctx, "task.record_checkpoint", &p, moved)
	})
	flags := c.Flags()
	flags.StringVar(&p.Type, "type", task.CheckpointHeartbeat, "what it is, a `WORD`; a heartbeat renews the lease")
	flags.StringVar(&payload, "payload", "{}", "a JSON `OBJECT` that says more")
	flags.StringVar(&p.AttemptID, "attempt", "", "the attempt's `ID` (default the last one)")
	return c
}

// given parses the JSON of a flag; nil if it is empty.
func given(flag, text string) (jsontext.Value, error) {
	v := jsontext.Value(text)
	if text == "" {
		return nil, nil
	}
	if !v.IsValid() {
		return nil, cli.Usagef("cannot read --%s: it is no JSON", flag)
	}
	return v, nil
}

func (t *command) newWait() *cobra.Command {
	var phases []string
	var approval string
	var timeout time.Duration
	c := t.about(&cobra.Command{
		Use: "wait TASK",
		Example: "  ocipd task wait tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --phase completed,failed\n" +
			"  ocipd task wait tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --approval apr_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short: "wait until a task is in a phase, or an approval is decided",
		Long: `Wait until a task is in one of the phases, or an approval request of it is
decided. If that has not happened at the timeout, the command exits with 1.`,
	}, func(ctx context.Context, id string) error { return t.wait(ctx, id, phases, approval, timeout) })
	flags := c.Flags()
	flags.StringSliceVar(&phases, "phase", nil, "the `PHASES`, one of which is waited for (default completed,failed)")
	flags.StringVar(&approval, "approval", "", "wait for the decision about the approval of this `ID`")
	flags.DurationVar(&timeout, "timeout", 15*time.Second, "wait for this `DURATION` at most")
	return c
}

// lookEvery is the interval of checks while a command waits.
const lookEvery = 300 * time.Millisecond

func (t *command) wait(ctx context.Context, id string, phases []string, approval string, timeout time.Duration) error {
	if len(phases) == 0 {
		phases = []string{string(task.Completed), string(task.Failed)}
	}
	for _, p := range phases {
		if !slices.Contains(task.Phases(), task.Phase(p)) {
			return cli.Usagef("cannot wait for the phase %q, which no task comes to", p)
		}
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		v, _, err := t.view(ctx, id)
		if err != nil {
			return err
		}
		state, came := string(v.Phase), slices.Contains(phases, string(v.Phase))
		if approval != "" {
			i := slices.IndexFunc(v.Approvals, func(a task.Approval) bool { return a.ID == approval })
			if i < 0 {
				return fmt.Errorf("the task has no approval %s", approval)
			}
			state = v.Approvals[i].Status
			came = state != task.ApprovalPending
		}
		if came {
			return t.waited(v, state)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			if err := t.waited(v, state); err != nil {
				return err
			}
			return cli.ErrSaid
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *command) waited(v *taskapi.View, state string) error {
	if t.asJSON {
		return t.PrintJSON(map[string]any{"task_id": v.ID, "phase": v.Phase, "revision": v.Revision, "state": state})
	}
	_, err := fmt.Fprintf(t.Stdout, "%s: %s\n", v.ID, state)
	return err
}

func (t *command) newCircuitOpen() *cobra.Command {
	var reason string
	c := t.about(&cobra.Command{
		Use:     "open TASK",
		Example: "  ocipd task circuit open tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --reason 'the same fault three times'",
		Short:   "open a task's circuit: nothing runs until a person closes it",
	}, func(ctx context.Context, id string) error {
		name, _, err := t.me(ctx)
		if err != nil {
			return err
		}
		return t.do(ctx, "task.open_circuit", &taskapi.OpenCircuitParams{Write: write(id), Said: taskapi.Said{Actor: name}, Reason: reason}, moved)
	})
	c.Flags().StringVar(&reason, "reason", "by hand", "`TEXT` for the record")
	return c
}

func (t *command) newCircuitClose() *cobra.Command {
	var reason, to string
	c := t.about(&cobra.Command{
		Use:     "close TASK",
		Example: "  ocipd task circuit close tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --to spec_draft --reason 'the spec was wrong'",
		Short:   "close a task's circuit and reset its attempts",
	}, func(ctx context.Context, id string) error {
		return t.do(ctx, "task.close_circuit", &taskapi.CloseCircuitParams{Write: write(id), ToPhase: task.Phase(to), Reason: reason}, moved)
	})
	cli.KeyFlag(c, &t.key)
	c.Flags().StringVar(&to, "to", string(task.SpecDraft), "the `PHASE` that it goes on from: spec_draft or execution_ready")
	c.Flags().StringVar(&reason, "reason", "by hand", "`TEXT` for the record")
	return c
}

func (t *command) newEffectList() *cobra.Command {
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

func (t *command) newEffectRun() *cobra.Command {
	var id, key, digest, file string
	var compensation bool
	var wait int
	c := &cobra.Command{
		Use: "run",
		Example: "  ocipd task effect run --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key deploy-staging --json\n" +
			"  ocipd task effect run --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key call-the-client --out run.token",
		Short: "run an approved effect once; a repetition gets the first result",
		Long: `Run an approved effect once. A repetition gets what came of the first run. One that is
no command is the caller's to do now: the token is shown once, or written to a file that
nobody else can read, and ` + "`ocipd task effect finish`" + ` says within 10 minutes how it
went. The exit code is 0 if it was done, or is the caller's to do now, else 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if digest == "" {
				v, _, err := t.view(cmd.Context(), id)
				if err != nil {
					return err
				}
				for i := range v.Effects {
					if v.Effects[i].Key == key {
						digest = v.Effects[i].Digest
					}
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
	flags.StringVar(&digest, "digest", "", "the `DIGEST` of the request that was approved, as task show --json has it for the effect (default the one asked for last)")
	flags.BoolVar(&compensation, "compensation", false, "undo it instead, once")
	flags.IntVar(&wait, "wait", 15, "wait for its end for `SECONDS` at most, up to 20")
	flags.StringVar(&file, "out", "", "write the token of what is the caller's to do to this `FILE`")
	cli.Required(c, "task", "key")
	return c
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
	raw, err := t.ask(ctx, "task.run_effect", p)
	if err != nil {
		return err
	}
	r, err := decoded[taskapi.EffectRun](raw)
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

func (t *command) newEffectFinish() *cobra.Command {
	var p taskapi.FinishEffectParams
	var id, file, receipt string
	c := &cobra.Command{
		Use: "finish EFFECT",
		Example: "  ocipd task effect finish eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --run-token-file run.token\n" +
			"  ocipd task effect finish eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --run-token-file - --outcome failed --receipt '{\"said\": \"nobody answers\"}' < run.token",
		Short: "say how an effect went that was yours to do",
		Long: `Say how an effect went that is no command: whoever ran it by ` + "`ocipd task effect run`" + `
was told to do it, and has the token of that run. Where nobody says so within 10 minutes, its
outcome is unknown, and a person settles it.`,
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

func (t *command) newEffectSettle() *cobra.Command {
	var p taskapi.SettleEffectParams
	var id string
	c := &cobra.Command{
		Use: "settle [EFFECT]",
		Example: "  ocipd task effect settle --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7\n" +
			"  ocipd task effect settle eff_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --outcome done --note 'it is deployed'",
		Short: "settle a run whose outcome is unknown",
		Long: `Say how a run ended of which nobody knows: what is known of it is shown first. Look
in the world whether it was done. Without --outcome, at a terminal, it is asked for,
and without EFFECT for each such run of the task.`,
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
	type unknown struct {
		effect *task.Effect
		run    *task.Run
	}
	var found []unknown
	for i := range v.Effects {
		e := &v.Effects[i]
		for n := range e.Runs {
			if r := &e.Runs[n]; r.State == task.EffectUncertain && (p.EffectID == "" || e.ID == p.EffectID) && (p.Run == 0 || p.Run == r.Number) {
				found = append(found, unknown{e, r})
			}
		}
	}
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
			fmt.Fprint(t.Stderr, unknownRun(u.effect, u.run))
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

// unknownRun describes a run with an unknown outcome.
func unknownRun(e *task.Effect, r *task.Run) string {
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

func (t *command) newEffectKill() *cobra.Command {
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

func (t *command) newEffectCancel() *cobra.Command {
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
