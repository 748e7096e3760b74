// Package acp runs an agent that speaks the Agent Client Protocol (ACP) for one attempt
// or one review of a task. It starts the agent's program, gives it the task, passes the
// agent's permission requests to the daemon, and reports progress and the outcome.
//
// The bridge is a client of the daemon's socket under the grant of the agent's actor,
// and decides nothing. It is not a sandbox: the program can do whatever it does without
// asking. The command in Wrap provides the sandbox.
//
// Set Alone only if the process runs nothing but this bridge, because the bridge then
// ends every process that becomes a child of this one.
package acp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/redact"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// Daemon is a connection that acts by the actor's grant.
type Daemon interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Agent says how to start an actor's agent.
type Agent struct {
	// Command is the program with its arguments. Wrap is a command line that starts it,
	// in which {workspace}, {socket} and {ocipd} stand for the task's folder, the
	// daemon's socket and this program. Env names the only variables that the agent gets.
	Command, Wrap, Env []string
	// Mode is the session's mode, if the agent has several.
	Mode string
	// Timeout bounds the whole run. Idle bounds the time without output from the agent.
	Timeout, Idle time.Duration
}

// Options are the inputs of [Run].
type Options struct {
	Daemon Daemon
	// Attached describes the grant. Token is the grant's token, for the agent's MCP server.
	Attached taskapi.Attached
	Token    string
	// TaskID is the task if the grant names none. Workspace is the task's folder if the
	// task gives only a name for it.
	TaskID, Workspace string
	Agent             Agent
	// Server is the command line of the MCP server for the agent, and Without are the tools of the
	// grant that it leaves out. Socket is the daemon's socket.
	Server  []string
	Without []string
	Socket  string
	// Lease is how long an attempt lives without a heartbeat.
	Lease   time.Duration
	Version string
	Lookup  func(variable string) (string, bool)
	// Say reports an event in one line.
	Say   func(format string, args ...any)
	Now   func() time.Time
	NewID func() string
	// Alone is set if every orphan that this process adopts belongs to the agent.
	Alone bool

	times *times
}

// times are the time limits of each step.
type times struct {
	// leave is how long an agent may take to end after its input is closed, cancel
	// after a request to cancel, and term after a SIGTERM.
	leave, cancel, term time.Duration
	// settle is how long the bridge waits for the last output of an ended agent. look
	// is the interval between checks for changes.
	settle, look time.Duration
	// begin is how long the bridge waits until the task is executing, and close how
	// long it waits for the daemon to accept the outcome.
	begin, close time.Duration
}

func usualTimes() *times {
	return &times{leave: 2 * time.Second, cancel: 10 * time.Second, term: 5 * time.Second, settle: 2 * time.Second, look: time.Second, begin: time.Minute, close: 90 * time.Second}
}

const (
	usualTimeout = 30 * time.Minute
	usualIdle    = 10 * time.Minute
	// beats is the number of heartbeats in a lease.
	beats = 3
)

// bridge is one run of an agent.
type bridge struct {
	o      *Options
	times  *times
	id     string
	agent  Agent
	view   *taskapi.View
	dir    string
	redact *redact.Redactor
	// attempt is the running attempt, nil for a reviewer.
	attempt *task.Attempt

	process *process
	conn    *sdk.Connection
	told    told
}

// Run runs the agent to its end and returns the outcome. An error means that nothing
// began, or that the bridge could not report to the daemon.
func Run(ctx context.Context, o *Options) (Result, error) {
	b := &bridge{o: o, times: o.times, id: cmp.Or(o.Attached.TaskID, o.TaskID), agent: o.Agent}
	if b.times == nil {
		b.times = usualTimes()
	}
	b.agent.Timeout, b.agent.Idle = cmp.Or(b.agent.Timeout, usualTimeout), cmp.Or(b.agent.Idle, usualIdle)
	if err := b.begin(ctx); err != nil {
		return Result{}, err
	}
	e := b.run(ctx)
	if !b.process.end(b.times) {
		b.o.Say("something that the agent has started does not end though it was killed")
	}
	e.summary = b.clean(e.summary)
	// The bridge reports the outcome even after an interrupt.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.times.close)
	defer cancel()
	if b.attempt == nil {
		return b.reviewed(last, e)
	}
	return b.finish(last, e)
}

// begin reads the task and determines the work to do.
func (b *bridge) begin(ctx context.Context) (err error) {
	if b.id == "" {
		return errors.New("the grant is for no task: say which one")
	}
	if b.redact, err = redact.New(redact.Options{}); err != nil {
		return err
	}
	if err := b.awaitPhase(ctx); err != nil {
		return err
	}
	role := b.o.Attached.Role
	switch {
	case role == task.Executor:
		b.attempt = running(b.view, b.o.Attached)
		if b.attempt == nil {
			return fmt.Errorf("no attempt of %s runs at the task, which is in %s", b.o.Attached.Actor, b.view.Phase)
		}
	case role == task.SpecReviewer && (b.view.Phase == task.SpecReview || b.view.Phase == task.SpecGate):
	case role == task.QualityReviewer && b.view.Phase == task.QualityGate:
	case role == task.SpecReviewer || role == task.QualityReviewer:
		return fmt.Errorf("there is nothing for a %s to review in %s", role, b.view.Phase)
	default:
		return fmt.Errorf("an agent is run for an executor or a reviewer, and %s is %s", b.o.Attached.Actor, role)
	}
	b.dir = cmp.Or(b.o.Workspace, b.view.Workspace)
	if !filepath.IsAbs(b.dir) {
		return fmt.Errorf("the task's workspace %q is a name and no folder: say where it is", b.dir)
	}
	if b.dir, err = filepath.EvalSymlinks(b.dir); err != nil {
		return fmt.Errorf("cannot use the task's workspace: %w", err)
	}
	return b.checkProgram()
}

// running returns the attempt that runs under a grant, or nil.
func running(v *taskapi.View, at taskapi.Attached) *task.Attempt {
	for i := range v.Attempts {
		a := &v.Attempts[i]
		if a.Status == task.AttemptRunning && a.Actor == at.Actor && (at.AttemptID == "" || at.AttemptID == a.ID) {
			return a
		}
	}
	return nil
}

// awaitPhase reads the task. If an attempt runs and the task is not yet executing, it waits.
func (b *bridge) awaitPhase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.times.begin)
	defer cancel()
	tick := time.NewTicker(b.times.look / 4)
	defer tick.Stop()
	for {
		v, err := b.get(ctx)
		if err != nil {
			return err
		}
		b.view = v
		if b.o.Attached.Role != task.Executor || v.Phase != task.ExecutionReady || running(v, b.o.Attached) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the attempt runs, and the task stays in %s", v.Phase)
		}
	}
}

func (b *bridge) get(ctx context.Context) (*taskapi.View, error) {
	v, none := new(taskapi.View), 0
	err := b.o.Daemon.Call(ctx, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: b.id}, Events: &none}, v)
	return v, err
}

func (b *bridge) write() taskapi.Write {
	return taskapi.Write{Ref: taskapi.Ref{TaskID: b.id}, Keyed: taskapi.Keyed{RequestKey: "acp-" + b.o.NewID()}}
}

// run starts the agent and watches it until its work ends.
func (b *bridge) run(ctx context.Context) ending {
	var err error
	if b.process, err = start(b); err != nil {
		return failed("environment", "the agent cannot be started: %v", err)
	}
	live, stop := context.WithCancel(context.WithoutCancel(ctx))
	// The heartbeats stop before the bridge reports the outcome.
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer stop()
	b.told.init(b.o.Now())
	b.conn = sdk.NewConnection(b.answer(live), b.process.in, b.process.lines)
	b.conn.SetLogger(slog.New(slog.DiscardHandler))
	broken := make(chan error, 1)
	go func() { broken <- b.hear() }()
	turn := make(chan ending, 1)
	go func() { turn <- b.converse(live) }()
	lost := make(chan ending, 1)
	keeping.Go(func() { b.keep(live, lost) })

	timeout := time.NewTimer(b.agent.Timeout)
	defer timeout.Stop()
	look := time.NewTicker(b.times.look)
	defer look.Stop()
	for {
		var e ending
		select {
		case e = <-turn:
			return e
		case err := <-broken:
			if broken = nil; err == nil {
				continue // its output has ended, and it may still do so
			}
			e = failed("agent_error", "%v", err)
		case <-b.process.exited:
			return b.lastWords(turn)
		case e = <-lost:
		case <-ctx.Done():
			e = ending{outcome: task.AttemptAborted, summary: "the bridge was interrupted"}
		case <-timeout.C:
			e = failed("timeout", "the agent has not ended within %s", b.agent.Timeout)
		case <-look.C:
			if silent := b.told.silent(b.o.Now()); silent <= b.agent.Idle {
				continue
			}
			e = failed("timeout", "nothing was heard of the agent for %s", b.agent.Idle)
		}
		b.cancel(stop, turn)
		return e
	}
}

// lastWords returns the ending of an agent whose process has exited; its turn may have
// ended before that.
func (b *bridge) lastWords(turn <-chan ending) ending {
	timer := time.NewTimer(b.times.settle)
	defer timer.Stop()
	select {
	case e := <-turn:
		return e
	case <-timer.C:
	}
	said := b.clean(b.process.errors.String())
	return failed("crashed", "the agent ended in the middle of its turn: %v\n%s", b.process.state(), strings.ToValidUTF8(said[max(0, len(said)-keptErrors):], ""))
}

// cancel asks the agent to cancel its turn, and cancels its open permission requests.
// It returns when the turn has ended or the time is up.
func (b *bridge) cancel(stop func(), turn <-chan ending) {
	stop()
	if session := b.told.session(); session != "" {
		// This call blocks if the agent does not read.
		go b.conn.SendNotification(context.Background(), sdk.AgentMethodSessionCancel, sdk.CancelNotification{SessionId: sdk.SessionId(session)}) //nolint:errcheck // it may have ended
	} else {
		return
	}
	timer := time.NewTimer(b.times.cancel)
	defer timer.Stop()
	select {
	case <-turn:
	case <-b.process.exited:
	case <-timer.C:
	}
}

// converse has the agent do its work, and returns how its turn ended. If the bridge
// gives up a call, converse still waits until the agent answers or ends.
func (b *bridge) converse(live context.Context) ending {
	ctx := context.WithoutCancel(live)
	hello, err := sdk.SendRequest[sdk.InitializeResponse](b.conn, ctx, sdk.AgentMethodInitialize, sdk.InitializeRequest{
		ProtocolVersion: sdk.ProtocolVersionNumber, ClientInfo: &sdk.Implementation{Name: "ocipd", Version: cmp.Or(b.o.Version, "dev")},
	})
	if err != nil {
		return b.refused("initialize", err)
	}
	if hello.ProtocolVersion != sdk.ProtocolVersionNumber {
		return failed("environment", "the agent speaks version %d of the Agent Client Protocol, and version %d is needed", hello.ProtocolVersion, sdk.ProtocolVersionNumber)
	}
	var env []sdk.EnvVariable
	env = append(env, sdk.EnvVariable{Name: "OCIPD_TOKEN", Value: b.o.Token})
	args, tools := slices.Clone(b.o.Server[1:]), b.o.Attached.Tools
	if len(b.o.Without) > 0 {
		args = append(args, "--without", strings.Join(b.o.Without, ","))
		tools = slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return slices.Contains(b.o.Without, name) })
	}
	opened, err := sdk.SendRequest[sdk.NewSessionResponse](b.conn, ctx, sdk.AgentMethodSessionNew, sdk.NewSessionRequest{
		Cwd: b.dir, McpServers: []sdk.McpServer{{Stdio: &sdk.McpServerStdio{Name: serverName, Command: b.o.Server[0], Args: args, Env: env}}},
		Meta: map[string]any{"ocipd": map[string]any{"task_id": b.id, "attempt_id": b.attemptID(), "workspace": b.dir, "capabilities": tools}},
	})
	if err != nil {
		return b.refused("session/new", err)
	}
	session := string(opened.SessionId)
	set, warning := b.agent.Mode, ""
	switch {
	case b.attempt != nil && b.attempt.Research():
		set, warning = readMode(set, opened.Modes)
	case set == "":
		set, warning = mode(hello.AgentInfo, opened.Modes)
	}
	b.told.opened(session, set, warning)
	b.o.Say("session %s", session)
	if warning != "" {
		b.o.Say("%s", warning)
	}
	if set != "" {
		if _, err := sdk.SendRequest[sdk.SetSessionModeResponse](b.conn, ctx, sdk.AgentMethodSessionSetMode, sdk.SetSessionModeRequest{SessionId: opened.SessionId, ModeId: sdk.SessionModeId(set)}); err != nil {
			return failed("environment", "the agent does not take the mode %s: %v", set, err)
		}
	}
	said, err := sdk.SendRequest[sdk.PromptResponse](b.conn, ctx, sdk.AgentMethodSessionPrompt, sdk.PromptRequest{
		SessionId: opened.SessionId, Prompt: []sdk.ContentBlock{sdk.TextBlock(b.prompt())},
	})
	if err != nil {
		return b.refused("session/prompt", err)
	}
	return stopped(said.StopReason)
}

func (b *bridge) attemptID() string {
	if b.attempt == nil {
		return ""
	}
	return b.attempt.ID
}

// keep sends heartbeats and the agent's progress to the daemon. If the daemon says to
// stop, keep reports that on lost.
func (b *bridge) keep(ctx context.Context, lost chan<- ending) {
	if b.attempt == nil {
		return
	}
	beat := time.NewTicker(max(b.o.Lease/beats, time.Millisecond))
	defer beat.Stop()
	look := time.NewTicker(b.times.look)
	defer look.Stop()
	for {
		var err error
		var stop bool
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			stop, err = b.checkpoint(ctx, task.CheckpointHeartbeat, jsontext.Value("{}"))
		case <-look.C:
			_, stop, err = b.news(ctx)
		}
		switch {
		case stop:
			lost <- ending{outcome: Ended, summary: "the attempt was aborted"}
			return
		case over(err):
			lost <- ending{outcome: Ended, summary: "the attempt is at its end: " + err.Error()}
			return
		case err != nil && ctx.Err() == nil:
			b.o.Say("the daemon did not take a checkpoint: %v", err)
		}
	}
}

// over reports whether an error means that the attempt or the grant has ended.
func over(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && (e.Code == api.Unauthorized || taskclient.Code(err) == task.LeaseLost)
}

// invalid reports whether the daemon would refuse the same call again at any time.
func invalid(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.InvalidParams
}

// news sends the session id and the tool calls since the last checkpoint to the daemon,
// in one checkpoint. It reports whether there was anything to send.
func (b *bridge) news(ctx context.Context) (told, stop bool, err error) {
	n := b.told.news()
	if n == nil {
		return false, false, nil
	}
	stop, err = b.checkpoint(ctx, n.kind, n.payload)
	switch {
	case err == nil:
		b.told.taken(n)
	case invalid(err):
		// The daemon would refuse it again, and it would block everything after it.
		b.told.refused(n)
	}
	return true, stop, err
}

func (b *bridge) checkpoint(ctx context.Context, kind string, payload jsontext.Value) (stop bool, err error) {
	var said taskapi.Checkpointed
	err = b.o.Daemon.Call(ctx, "task.record_checkpoint", &taskapi.CheckpointParams{Write: b.write(), AttemptID: b.attempt.ID, Type: kind, Payload: payload, Fence: &b.attempt.Fence}, &said)
	return said.Cancel, err
}
