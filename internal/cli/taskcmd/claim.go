package taskcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newReady(t *command) *cobra.Command {
	var p taskapi.ListReadyParams
	var limit int
	c := &cobra.Command{
		Use:     "ready",
		Example: "  ocipd task ready --token-file lead.token\n  ocipd task ready --label billing --limit 1 --json",
		Short:   "list the tasks that wait for an orchestrator, in the order to take them",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Limit = &limit
			return answered(cmd.Context(), t, "task.list_ready", &p, t.printList)
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 50, "`N` tasks at most, up to 1000")
	c.Flags().StringSliceVar(&p.Labels, "label", nil, "tasks with all these `LABELS`")
	return c
}

func newClaim(t *command) *cobra.Command {
	var lease time.Duration
	var release bool
	c := t.about(&cobra.Command{
		Use: "claim TASK",
		Example: "  ocipd task claim tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --for 5m --token-file lead.token\n" +
			"  ocipd task claim tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --release --token-file lead.token",
		Short: "keep a task for yourself among several orchestrators",
		Long: `Keep a task for yourself among several orchestrators, for a while that each of your
writes renews. Until then the writes of other orchestrators are refused (CLAIMED).`,
	}, func(ctx context.Context, id string) error {
		s := int(lease / time.Second)
		if release {
			s = 0
		} else if s < 1 {
			return cli.Usagef("cannot claim a task for %s: the shortest time is a second, and --release gives it back", lease)
		}
		return answered(ctx, t, "task.claim", &taskapi.ClaimParams{Write: write(id), LeaseS: &s}, func(r *taskapi.Claimed) error {
			said := id + " is given back"
			if !r.ClaimedUntil.IsZero() {
				said = id + " is yours until " + r.ClaimedUntil.Local().Format(time.TimeOnly)
			}
			_, err := fmt.Fprintln(t.Stdout, said)
			return err
		})
	})
	c.Flags().DurationVar(&lease, "for", time.Minute, "for this `DURATION`, up to an hour")
	c.Flags().BoolVar(&release, "release", false, "give it back")
	c.MarkFlagsMutuallyExclusive("for", "release")
	return c
}

func newEffectPlan(t *command) *cobra.Command {
	var id, params string
	var p taskapi.PlanEffectParams
	var inputs, undo []string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "plan [-- PROGRAM [ARGUMENT...]]",
		Example: "  ocipd task effect plan --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key deploy-staging --kind deployment --input build/billing.tar -- bin/deploy staging\n" +
			"  ocipd task effect plan --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key tell-ops --kind notification --params '{\"to\": \"ops\"}'",
		Short: "plan an effect ahead, so that reviewers see it",
		Long: `Plan an effect: a command after --, or, with --params, an act that no
command does, such as a call to a client. It happens only after a person has approved
it. --undo names the command that undoes it, which is approved with it.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Write = write(id)
			if p.Params, err = given("params", params); err != nil {
				return err
			}
			if (len(args) > 0) == (params != "") {
				return cli.Usagef("cannot plan it: want either a command behind -- or --params")
			}
			if len(args) > 0 {
				p.Command = &task.Action{Argv: args, Inputs: inputs, TimeoutS: int(timeout / time.Second)}
			} else if len(inputs) > 0 || timeout != 0 {
				return cli.Usagef("cannot plan it: --input and --timeout are for a command behind --")
			}
			if len(undo) > 0 {
				p.Compensation = &task.Action{Argv: undo, Inputs: inputs, TimeoutS: int(timeout / time.Second)}
			}
			return answered(cmd.Context(), t, "task.plan_effect", &p, func(e *taskapi.EffectPlanned) error {
				_, err := fmt.Fprintf(t.Stdout, "%s is %s\n", e.EffectID, e.State)
				return err
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "task", "", "the task's `ID`")
	flags.StringVar(&p.Key, "key", "", "the effect's idempotency `KEY`")
	flags.StringVar(&p.Kind, "kind", "", "what it does in the world, a `WORD` such as deployment or notification")
	flags.StringVar(&p.RequestedAction, "action", "", "`TEXT` that says what is to be done, for the person who decides")
	flags.StringVar(&params, "params", "", "a JSON `OBJECT` for whoever does it, if it is no command")
	flags.StringSliceVar(&inputs, "input", nil, "the command's `INPUTS`, artifacts by id or uri")
	flags.StringArrayVar(&undo, "undo", nil, "the program that undoes it, and its arguments, one `WORD` for each --undo")
	flags.DurationVar(&timeout, "timeout", 0, "the command is ended after this `DURATION` (default the runner's limit)")
	cli.Required(c, "task", "key", "kind")
	return c
}
