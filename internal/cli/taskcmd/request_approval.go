package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newRequestApproval(t *command) *cobra.Command {
	r := &approvalRequest{command: t}
	c := &cobra.Command{
		Use: "request-approval [-- PROGRAM [ARGUMENT...]]",
		Example: "  ocipd task request-approval --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key deploy-staging --json\n" +
			"  ocipd task request-approval --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key notify --kind notification -- bin/notify ops",
		Short: "ask a person about an effect",
		Long: `Ask a person about an effect of a task that awaits approval: one that the
task plans, or a command that follows. A new command is planned first, and reviewed
before a person is asked (tasks.effects.late). If the key was asked about before, the
command prints the outcome. --undo asks whether to undo an effect that was run; it is
needed if too few people approved the undoing with the effect, or if they may no longer
sign.`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.ask(cmd.Context(), args) },
	}
	flags := c.Flags()
	flags.StringVar(&r.id, "task", "", "the task's `ID`")
	flags.StringVar(&r.key, "key", "", "the effect's idempotency `KEY`")
	flags.StringVar(&r.kind, "kind", "", "what the command does in the world, a `WORD` such as deployment or notification")
	flags.StringVar(&r.action, "action", "", "`TEXT` that says what is to be done (default the key)")
	flags.StringSliceVar(&r.inputs, "input", nil, "the command's `INPUTS`, artifacts by id or uri")
	flags.BoolVar(&r.undo, "undo", false, "ask whether the effect may be undone")
	cli.Required(c, "task", "key")
	return c
}

// approvalRequest asks about an effect.
type approvalRequest struct {
	*command
	id, key, kind, action string
	inputs                []string
	undo                  bool
	// planned is set if the task has an effect of the key, and in the phase of the task.
	planned bool
	phase   task.Phase
}

// plan plans the command of a request, if the task is in the phase in which it is asked about.
func (r *approvalRequest) plan(ctx context.Context, p *taskapi.RequestApprovalParams) error {
	if r.phase != task.AwaitingApproval {
		return nil
	}
	_, err := r.command.ask(ctx, "task.plan_effect", &taskapi.PlanEffectParams{Write: write(r.id), Planned: p.Planned})
	return err
}

func (r *approvalRequest) ask(ctx context.Context, argv []string) error {
	p, planned, err := r.params(ctx, argv)
	if err != nil {
		return err
	}
	if p.Command != nil && !r.planned {
		// Reviewers see an effect that is planned. Where it has to be reviewed first, the request is
		// refused, and the plan stays.
		if err := r.plan(ctx, p); err != nil {
			return err
		}
	}
	made, _, err := asked[taskapi.ApprovalRequested](ctx, r.command, "task.request_approval", p)
	if err != nil {
		return err
	}
	if !r.asJSON {
		_, err := fmt.Fprintf(r.Stdout, "approval %s is %s\n", made.ApprovalID, made.Status)
		return err
	}
	return r.PrintJSON(lobsterRequest{
		ApprovalRequested: *made, IdempotencyKey: r.key, ActionDigest: made.RequestDigest,
		RequiresApproval: lobsterPrompt{
			Prompt: "Approve: " + p.RequestedAction, Items: []lobsterItem{{made.ApprovalID, *planned}}, Preview: p.RequestedAction + " (" + p.Kind + ")",
		},
	})
}

// params returns the parameters of the call, and the planned action if it is known. For an
// effect in the task's plan, the key is enough.
func (r *approvalRequest) params(ctx context.Context, argv []string) (p *taskapi.RequestApprovalParams, planned *task.Planned, err error) {
	v, _, err := r.view(ctx, r.id)
	if err != nil {
		return nil, nil, err
	}
	name, _, err := r.me(ctx)
	if err != nil {
		return nil, nil, err
	}
	p = &taskapi.RequestApprovalParams{Write: write(r.id), RequestedBy: name}
	p.Key, p.Kind, p.RequestedAction, planned, p.Undo = r.key, r.kind, r.action, &p.Planned, r.undo
	switch {
	case r.undo && len(argv) > 0:
		return nil, nil, cli.Usagef("cannot undo an effect by a command of your own: it is undone by what was approved with it")
	case len(argv) > 0:
		p.Command = &task.Action{Argv: argv, Inputs: r.inputs}
	case len(r.inputs) > 0:
		return nil, nil, cli.Usagef("cannot give inputs to what is planned: --input is for a command behind --")
	}
	r.phase = v.Phase
	i := slices.IndexFunc(v.Effects, func(e task.Effect) bool { return e.Key == r.key })
	switch {
	case i >= 0:
		e := &v.Effects[i]
		r.planned = e.State != task.EffectCancelled
		p.Kind, p.RequestedAction = cmp.Or(p.Kind, e.Kind), cmp.Or(p.RequestedAction, e.RequestedAction)
		if p.Command == nil {
			planned = &e.Planned
		}
	case p.Command == nil:
		return nil, nil, fmt.Errorf("the task plans no effect %q; behind -- may stand a command", r.key)
	case p.Kind == "":
		return nil, nil, cli.Usagef("cannot ask about a command without what it does: --kind deployment, for example")
	}
	p.RequestedAction = cmp.Or(p.RequestedAction, r.key)
	return p, planned, nil
}

// lobsterRequest is a request in the form for a Lobster workflow.
type lobsterRequest struct {
	taskapi.ApprovalRequested
	IdempotencyKey   string        `json:"idempotency_key"`
	ActionDigest     string        `json:"action_digest"`
	RequiresApproval lobsterPrompt `json:"requiresApproval"`
}

type lobsterPrompt struct {
	Prompt  string        `json:"prompt"`
	Items   []lobsterItem `json:"items"`
	Preview string        `json:"preview"`
}

// lobsterItem is the subject of a gate, with its approval.
type lobsterItem struct {
	ApprovalID string `json:"approval_id"`
	task.Planned
}
