package taskcmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newUpdate(t *command) *cobra.Command {
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

func newTransition(t *command) *cobra.Command {
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

func newStartAttempt(t *command) *cobra.Command {
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

func newFinishAttempt(t *command) *cobra.Command {
	var p taskapi.FinishAttemptParams
	c := t.about(&cobra.Command{
		Use:     "finish-attempt TASK",
		Example: "  ocipd task finish-attempt tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --outcome aborted",
		Short:   "end the running attempt of a task",
	}, func(ctx context.Context, id string) error {
		if p.Outcome == task.AttemptFailed && p.FailureCode == "" {
			return cli.Usagef("cannot end an attempt as failed without a reason: name it with --failure, one of %s", strings.Join(task.Failures(), ", "))
		}
		p.Write = write(id)
		if p.AttemptID == "" {
			v, _, err := t.view(ctx, id)
			if err != nil {
				return err
			}
			p.AttemptID = v.CurrentAttempt
		}
		return answered(ctx, t, "task.finish_attempt", &p, func(a *taskapi.AttemptFinished) error {
			if a.Warning != "" {
				fmt.Fprintf(t.Stderr, "warning: %s\n", term.OneLine(a.Warning))
			}
			_, err := fmt.Fprintf(t.Stdout, "%s is in %s, at revision %d (attempt: %s)\n", a.TaskID, a.Phase, a.Revision, a.Status)
			return err
		})
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

func newArtifact(t *command) *cobra.Command {
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

func newCheckpoint(t *command) *cobra.Command {
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
		return answered(ctx, t, "task.record_checkpoint", &p, func(c *taskapi.Checkpointed) error {
			said := fmt.Sprintf("%s is in %s, at revision %d", c.TaskID, c.Phase, c.Revision)
			switch {
			case c.Cancel:
				said += ": the attempt was aborted, stop"
			case !c.LeaseExpiresAt.IsZero():
				said += ": the lease runs until " + c.LeaseExpiresAt.Local().Format(time.TimeOnly)
			}
			_, err := fmt.Fprintln(t.Stdout, said)
			return err
		})
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

func newWait(t *command) *cobra.Command {
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

func newCircuitOpen(t *command) *cobra.Command {
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

func newCircuitClose(t *command) *cobra.Command {
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
