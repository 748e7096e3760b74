package taskcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/orchestrator"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskclient"
	"github.com/spf13/cobra"
)

// runEvery is the interval of checks while a run waits.
const runEvery = time.Second

func newRun(t *command) *cobra.Command {
	r := &taskRun{command: t}
	c := &cobra.Command{
		Use: "run [TASK…]",
		Example: "  ocipd task run tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --token-file lead.token --tokens tokens\n" +
			"  ocipd task run --ready --jobs 4 --token-file lead.token --tokens tokens",
		Short: "take tasks through their phases with agents, without a model of its own",
		Long: `Take tasks through their phases: the agents of tasks.run make attempts and reviews,
failed attempts are made again, the last one by the escalation, people are asked for
approvals, and what they approve is run. It goes as far as it can without a person's
hand, and says why it stops. It needs an orchestrator's token, so that the agents it
starts cannot operate the daemon.

Everything is stored: one that is interrupted or killed is started again, and goes on.
The exit code is 0 if all tasks are completed, else 1.`,
		ValidArgsFunction: t.completeTask,
		RunE:              func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	flags := c.Flags()
	flags.BoolVar(&r.ready, "ready", false, "all tasks that have something to do, until there is none")
	flags.StringSliceVar(&r.labels, "label", nil, "with --ready, those alone that have these `LABELS`")
	flags.IntVar(&r.jobs, "jobs", 1, "work on `N` tasks at once")
	flags.StringVar(&r.lobster, "lobster", "", "run effects through this workflow `FILE`, as the actor tasks.run.lobster")
	flags.StringVar(&r.lobsterProgram, "lobster-program", "lobster", "the `PROGRAM` that is Lobster")
	flags.StringVar(&r.tokens, "tokens", "", "the `FOLDER` with tokens of reviewers and of Lobster, each in NAME.token, that a person has given (default: the orchestrator gives them grants)")
	return c
}

// taskRun is one run of tasks.
type taskRun struct {
	*command
	ready                   bool
	labels                  []string
	jobs                    int
	tokens                  string
	lobster, lobsterProgram string

	mu     sync.Mutex
	titles map[string]string
}

func (r *taskRun) run(ctx context.Context, ids []string) error {
	if r.ready == (len(ids) > 0) {
		return cli.Usagef("cannot tell which tasks to run: name them, or say --ready")
	}
	if r.jobs < 1 {
		return cli.Usagef("cannot work on %d tasks at once", r.jobs)
	}
	token, err := r.token()
	if err != nil {
		return err
	}
	if token == "" {
		return cli.Usagef("cannot run tasks as the operator: make an orchestrator's token with ocipd task grant, and name its file with --token-file")
	}
	o, daemon, err := r.options(ctx, token)
	if err != nil {
		return err
	}
	defer daemon.Close()
	r.titles = make(map[string]string)
	var results []orchestrator.Result
	if r.ready {
		results, err = orchestrator.Ready(ctx, o, r.labels, r.jobs)
	} else {
		results = orchestrator.Run(ctx, o, ids, r.jobs)
	}
	if err != nil {
		return r.said(err)
	}
	for _, result := range results {
		if result.Phase != task.Completed {
			return cli.ErrSaid
		}
	}
	return nil
}

func (r *taskRun) options(ctx context.Context, token string) (*orchestrator.Options, *taskclient.Conn, error) {
	cfg, err := r.Load(nil)
	if err != nil {
		return nil, nil, err
	}
	socket, err := r.KernelSocket()
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	daemon := taskclient.New(func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, socket, client.WithDropEvents())
	}, token)
	at, err := daemon.Attached(ctx)
	if err == nil && at.Role != task.Orchestrator {
		err = fmt.Errorf("tasks are run by an orchestrator, and %s is %s", at.Actor, at.Role)
	}
	if err != nil {
		return nil, nil, errors.Join(r.said(err), daemon.Close())
	}
	bridges := &orchestrator.Bridges{Program: program, Args: []string{"--socket", cli.Absolute(socket)}, Env: r.Env, Say: func(w orchestrator.Work, line string) {
		r.tell(orchestrator.Event{Time: time.Now().UTC(), TaskID: w.TaskID, What: orchestrator.AgentSays, Actor: w.Actor, Text: strings.TrimPrefix(line, w.Actor+": ")})
	}}
	if r.ConfigFile != "" {
		bridges.Args = append(bridges.Args, "--config", cli.Absolute(r.ConfigFile))
	}
	actors := cfg.Tasks.Run
	o := &orchestrator.Options{
		Daemon: daemon, Me: at.Actor, Token: r.givenToken, Bridge: bridges.Run, Every: runEvery, Tell: r.tell, Now: time.Now, NewID: uuid.NewString,
		Actors: orchestrator.Actors{Executor: actors.Executor, Escalation: actors.Escalation, SpecReviewer: actors.SpecReviewer, QualityReviewer: actors.QualityReviewer, Lobster: actors.Lobster},
	}
	if r.lobster != "" {
		w, err := r.workflow(r.lobster, r.lobsterProgram)
		if err == nil && actors.Lobster == "" {
			err = errors.New("the configuration does not say who runs effects through Lobster: set tasks.run.lobster")
		}
		if err != nil {
			return nil, nil, errors.Join(err, daemon.Close())
		}
		o.Effects = func(ctx context.Context, e orchestrator.Work, key string) error {
			return w.effect(ctx, e, key, func(format string, args ...any) {
				r.tell(orchestrator.Event{Time: time.Now().UTC(), TaskID: e.TaskID, What: orchestrator.AgentSays, Actor: e.Actor, Text: fmt.Sprintf(format, args...)})
			})
		}
	}
	return o, daemon, nil
}

// givenToken is the token that a person gave an actor.
func (r *taskRun) givenToken(actor string) (string, error) {
	if r.tokens == "" {
		return "", nil
	}
	text, err := cli.ReadFile(filepath.Join(r.tokens, actor+".token"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the token of %s: %w", actor, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// tell prints an event, as a line of JSON or for a person.
func (r *taskRun) tell(e orchestrator.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Title != "" {
		r.titles[e.TaskID] = e.Title
	}
	if r.asJSON {
		_ = r.PrintJSON(&e) // the reader may be gone
		return
	}
	text := map[string]string{
		orchestrator.NewPhase: string(e.Phase), orchestrator.NewAttempt: e.Text + " by " + e.Actor, orchestrator.AgentSays: "  " + e.Actor + ": " + e.Text, orchestrator.Reviewing: e.Actor + " reviews",
		orchestrator.Waits: "waits for " + e.Text, orchestrator.Asks: "asks: " + e.Text, orchestrator.Runs: "runs " + e.Text, orchestrator.Stopped: "ends in " + string(e.Phase),
	}[e.What]
	if e.What == orchestrator.Stopped && e.Text != "" {
		text += ": " + e.Text
	}
	name := r.titles[e.TaskID]
	if name == "" {
		name = e.TaskID
	}
	fmt.Fprintf(r.Stdout, "%s %s: %s\n", e.Time.Local().Format(time.TimeOnly), term.OneLine(name), term.OneLine(text))
}
