package taskcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/lobster"
	"github.com/openclawos/ocipd/internal/bridge/orchestrator"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskclient"
	"github.com/spf13/cobra"
)

// NewLobster returns the commands about workflows in Lobster.
func NewLobster(p *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "lobster", Short: "run an effect of a task through a workflow in Lobster"})
	c.AddCommand(newLobsterRun(p))
	return c
}

func newLobsterRun(p *cli.Process) *cobra.Command {
	l := &lobsterRun{command: &command{Process: p}}
	c := &cobra.Command{
		Use:     "run FILE",
		Example: "  ocipd lobster run ocip.lobster --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --key deploy-staging --token-file gate.token",
		Short:   "run a workflow that asks for an effect and runs it once",
		Long: `Run a workflow in Lobster (@clawdbot/lobster) for an effect of a task: the workflow
asks for approval and pauses; once a person has approved and the task is in
ready_to_resume it is resumed, and runs the effect. ocipd task files writes such a
workflow; it is given task_id and key.

Lobster decides nothing: the daemon says whether the effect is approved and done, and
runs it once. If anything is killed on the way, run the same command again: for an
effect that is done it prints the first result. Never resume with an old token.

It takes the token of an actor with the role lobster, or an orchestrator's. The exit
code is 0 if the effect was done, else 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args[0]) },
	}
	flags := c.Flags()
	flags.StringVar(&l.tokenFile, "token-file", "", "act by the grant whose token stands in `FILE`")
	flags.StringVar(&l.id, "task", "", "the task's `ID`")
	flags.StringVar(&l.key, "key", "", "the effect's idempotency `KEY`")
	flags.StringVar(&l.program, "program", "lobster", "the `PROGRAM` that is Lobster")
	flags.BoolVar(&l.asJSON, "json", false, "print the result as JSON")
	cli.Required(c, "task", "key")
	l.completes(c)
	return c
}

type lobsterRun struct {
	*command
	id, key, program string
}

func (l *lobsterRun) run(ctx context.Context, file string) error {
	token, err := l.token()
	if err != nil {
		return err
	}
	if token == "" {
		return cli.Usagef("cannot run a workflow as the operator, who is to approve it: make a token with ocipd task grant, and name its file with --token-file")
	}
	w, err := l.workflow(file, l.program)
	if err != nil {
		return err
	}
	r, err := w.run(ctx, token, l.id, l.key, func(format string, args ...any) {
		fmt.Fprintln(l.Stderr, term.OneLine(fmt.Sprintf(format, args...)))
	})
	if err != nil {
		return l.said(err)
	}
	line := r.State
	if r.Why != "" {
		line += ": " + r.Why
	}
	if err := l.Report(l.asJSON, &r, "%s\n", term.OneLine(l.key+": "+line)); err != nil {
		return err
	}
	if !r.Done() {
		return cli.ErrSaid
	}
	return nil
}

// workflow is a Lobster workflow that runs effects.
type workflow struct {
	*command
	file, socket, own, lobster string
}

func (t *command) workflow(file, program string) (*workflow, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("cannot read the workflow: %w", err)
	}
	socket, err := t.KernelSocket()
	if err != nil {
		return nil, err
	}
	if program, err = lobster.Find(program); err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	return &workflow{command: t, file: cli.Absolute(file), socket: cli.Absolute(socket), own: own, lobster: program}, nil
}

// run runs the workflow for an effect, under a grant.
func (w *workflow) run(ctx context.Context, token, id, key string, say func(format string, args ...any)) (r lobster.Result, err error) {
	daemon := taskclient.New(func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, w.socket, client.WithDropEvents())
	}, token)
	defer daemon.Close()
	at, err := daemon.Attached(ctx)
	if err != nil {
		return r, err
	}
	if at.Role != task.Lobster && at.Role != task.Orchestrator {
		return r, fmt.Errorf("workflows are run by an actor whose role is lobster or by an orchestrator, and %s is %s", at.Actor, at.Role)
	}
	return lobster.Run(ctx, &lobster.Options{
		Daemon: daemon, Lobster: lobster.Program(w.lobster), File: w.file, Env: lobster.Environment(w.Env, token, w.socket, w.own),
		TaskID: id, Key: key, Every: lookEvery, Say: say, Now: time.Now,
	})
}

// effect runs the workflow for an effect of a task in a task run.
func (w *workflow) effect(ctx context.Context, e orchestrator.Work, key string, say func(format string, args ...any)) error {
	r, err := w.run(ctx, e.Token, e.TaskID, key, say)
	if err == nil && !r.Done() {
		err = errors.New(strings.TrimSuffix(r.State+": "+r.Why, ": "))
	}
	return err
}
