package runtimecmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/acp"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/task/taskclient"
	"github.com/spf13/cobra"
)

// NewACP returns the commands that run agents by the Agent Client Protocol.
func NewACP(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.Group(&cobra.Command{Use: "acp", Short: "run agents that speak the Agent Client Protocol"})
	c.AddCommand(newACPRun(s))
	return c
}

func newACPRun(s *command) *cobra.Command {
	var file, id, workspace string
	var asJSON bool
	c := &cobra.Command{
		Use: "run",
		Example: "  ocipd acp run --token-file builder.token\n" +
			"  ocipd acp run --token-file checker.token --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short: "run an actor's agent on an attempt or a review",
		Long: `Run the agent of an actor (tasks.actors[].acp) on its attempt at a task,
or on its review of one, by the token of a grant. The agent gets the task and the task's
MCP server, and nothing else of the daemon. If it asks for permission, the policy or a
person (ocipd approvals) decides. The daemon records the agent's progress and its end.

This is no sandbox: it does not stop what the agent's program does without asking. For a
sandbox, set acp.wrap of the actor.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// If the reader of the output goes away, the agent's work continues.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			o, daemon, err := s.bridge(cmd.Context(), file, id, workspace)
			if err != nil {
				return err
			}
			defer daemon.Close()
			if err := acp.Adopt(); err != nil {
				return err
			}
			o.Alone = true
			r, err := acp.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := s.Report(asJSON, &r, "%s\n", term.OneLine(saidOf(&r))); err != nil {
				return err
			}
			if !r.Good() {
				return cli.ErrSaid
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&file, "token-file", "", "act by the grant whose token stands in `FILE`")
	flags.StringVar(&id, "task", "", "the task's `ID`, where the grant is for none")
	flags.StringVar(&workspace, "workspace", "", "the `FOLDER` that is the task's workspace, where the task says a name")
	flags.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

// saidOf describes a result in a line.
func saidOf(r *acp.Result) string {
	parts := slices.DeleteFunc([]string{r.TaskID, r.Outcome, r.Failure, r.Verdict, r.Summary}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// bridge returns the options to run the agent of a token's actor.
func (s *command) bridge(ctx context.Context, file, id, workspace string) (*acp.Options, *taskclient.Conn, error) {
	token, err := s.Token(file)
	if err != nil {
		return nil, nil, err
	}
	if token == "" {
		return nil, nil, cli.Usagef("cannot run an agent without a grant: make a token with ocipd task grant, and name its file with --token-file")
	}
	cfg, err := s.Load(nil)
	if err != nil {
		return nil, nil, err
	}
	socket, err := s.KernelSocket()
	if err != nil {
		return nil, nil, err
	}
	program, err := acp.Itself()
	if err != nil {
		return nil, nil, err
	}
	daemon := taskclient.New(func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, socket, client.WithDropEvents())
	}, token)
	at, err := daemon.Attached(ctx)
	if err != nil {
		return nil, nil, err
	}
	o := &acp.Options{
		Daemon: daemon, Attached: at, Token: token, TaskID: id, Workspace: cli.Absolute(workspace), Lease: cfg.Tasks.Lease, Version: s.Version,
		// The bridge finishes an attempt, after it has recorded the outputs.
		Server:  []string{program, "mcp", "--socket", cli.Absolute(socket)},
		Without: []string{"task_finish_attempt"},
		Socket:  cli.Absolute(socket), Lookup: acp.Lookup(s.Env), Now: time.Now, NewID: uuid.NewString,
		Say: func(format string, args ...any) {
			fmt.Fprintf(s.Stderr, "%s: %s\n", at.Actor, term.OneLine(fmt.Sprintf(format, args...)))
		},
	}
	i := slices.IndexFunc(cfg.Tasks.Actors, func(a config.TaskActor) bool { return a.Name == at.Actor })
	if i < 0 || cfg.Tasks.Actors[i].ACP == nil {
		_ = daemon.Close() // nothing was asked of it
		return nil, nil, fmt.Errorf("the configuration does not say how the agent of %s is started: set acp.command of it in tasks.actors", at.Actor)
	}
	a := cfg.Tasks.Actors[i].ACP
	o.Agent = acp.Agent{Command: a.Command, Wrap: a.Wrap, Env: a.Env, Mode: a.Mode, Timeout: a.Timeout, Idle: a.Idle}
	return o, daemon, nil
}
