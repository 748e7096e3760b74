package acp

import (
	"bufio"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/test/buildtest"
)

// TestMain lets the test's program also act as an agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		agent(os.Args[2])
		return
	}
	os.Exit(buildtest.Isolated(m).Run())
}

const (
	taskID    = "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	attemptID = "att_01a1fe46-d68f-77d6-9611-d5a7674802c7"
)

// agent is a scripted agent on this process's standard input and output.
func agent(script string) {
	var conn *sdk.Connection
	cancelled := make(chan struct{})
	ready := make(chan struct{})
	handle := func(_ context.Context, method string, params stdjson.RawMessage) (any, *sdk.RequestError) {
		<-ready
		switch method {
		case sdk.AgentMethodInitialize:
			if err := os.WriteFile("initialize", params, 0o600); err != nil {
				panic(err)
			}
			version := sdk.ProtocolVersionNumber
			if script == "version" {
				version = 2
			}
			return sdk.InitializeResponse{ProtocolVersion: sdk.ProtocolVersion(version)}, nil
		case sdk.AgentMethodSessionNew:
			if script == "signed out" {
				return nil, sdk.NewAuthRequired(nil)
			}
			if err := os.WriteFile("session", params, 0o600); err != nil {
				panic(err)
			}
			said := sdk.NewSessionResponse{SessionId: "session-1"}
			if script == "yolo" {
				said.Modes = &sdk.SessionModeState{CurrentModeId: "yolo", AvailableModes: []sdk.SessionMode{{Id: "yolo", Name: "yolo"}, {Id: "ask", Name: "ask"}}}
			}
			return said, nil
		case sdk.AgentMethodSessionSetMode:
			if script == "mode" {
				return nil, sdk.NewInvalidParams(nil)
			}
			return sdk.SetSessionModeResponse{}, nil
		case sdk.AgentMethodSessionCancel:
			close(cancelled)
			return nil, nil
		case sdk.AgentMethodSessionPrompt:
			var p sdk.PromptRequest
			if err := stdjson.Unmarshal(params, &p); err != nil {
				panic(err)
			}
			if err := os.WriteFile("prompt", []byte(p.Prompt[0].Text.Text), 0o600); err != nil {
				panic(err)
			}
			stop, err := turn(conn, script, cancelled)
			if err != nil {
				return nil, err
			}
			return sdk.PromptResponse{StopReason: stop}, nil
		}
		return nil, sdk.NewMethodNotFound(method)
	}
	conn = sdk.NewConnection(handle, os.Stdout, os.Stdin)
	close(ready)
	<-conn.Done()
	if script == "stubborn" || script == "silent" || script == "moves" {
		select {}
	}
}

// say sends a notification of the session.
func say(conn *sdk.Connection, update sdk.SessionUpdate) {
	if err := conn.SendNotification(context.Background(), sdk.ClientMethodSessionUpdate, sdk.SessionNotification{SessionId: "session-1", Update: update}); err != nil {
		panic(err)
	}
}

func made(name, text string) {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// turn plays the agent's turn.
func turn(conn *sdk.Connection, script string, cancelled <-chan struct{}) (sdk.StopReason, *sdk.RequestError) {
	script, more, _ := strings.Cut(script, ":")
	switch script {
	case "works", "mode", "version", "yolo":
		made("out.txt", "made")
	case "nothing":
	case "refuses":
		return sdk.StopReasonRefusal, nil
	case "tokens":
		return sdk.StopReasonMaxTokens, nil
	case "turns":
		return sdk.StopReasonMaxTurnRequests, nil
	case "gives up":
		return sdk.StopReasonCancelled, nil
	case "fails":
		return "", sdk.NewInternalError("the model is away")
	case "crashes":
		fmt.Fprintln(os.Stderr, "the key is "+os.Getenv("SECRET"))
		os.Exit(3)
	case "silent":
		select {}
	case "moves":
		// Leave its own group, so that signals to the group do not reach it.
		group, err := syscall.Getpgid(os.Getppid())
		if err == nil {
			err = syscall.Setpgid(0, group)
		}
		if err != nil {
			panic(err)
		}
		signal.Ignore(syscall.SIGTERM)
		made("pid", strconv.Itoa(os.Getpid()))
		select {}
	case "calls":
		for i := range 3 * maxReported {
			say(conn, sdk.StartToolCall(sdk.ToolCallId("call-"+strconv.Itoa(i)), "Read a file", sdk.WithStartKind(sdk.ToolKindRead)))
		}
		made("out.txt", "made")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		made("ready", "")
		select {}
	case "cancels":
		made("ready", "")
		<-cancelled
		return sdk.StopReasonCancelled, nil
	case "chats":
		fmt.Println("Welcome to the agent!")
		fmt.Println("  [not json]")
		fmt.Println("{half")
		made("out.txt", "made")
	case "leaves":
		made("out.txt", "made")
		fmt.Println(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
		os.Exit(0)
	case "long":
		// The frame around the text takes less than 200 bytes.
		say(conn, sdk.UpdateAgentMessageText(strings.Repeat("x", maxLine-200)))
		made("out.txt", "made")
	case "too long":
		say(conn, sdk.UpdateAgentMessageText(strings.Repeat("x", maxLine+1)))
		select {}
	case "floods":
		for i := range 5000 {
			say(conn, sdk.UpdateAgentMessageText(strconv.Itoa(i)))
		}
		made("out.txt", "made")
	case "forks":
		child := exec.Command("/bin/sleep", "1000")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		made("child", strconv.Itoa(child.Process.Pid))
		made("out.txt", "made")
	case "asks":
		asks(conn, more)
		made("out.txt", "made")
	case "says":
		say(conn, sdk.UpdateAgentMessageText("I looked at it.\n"))
		say(conn, sdk.UpdateAgentMessageText(more))
	default:
		panic("there is no script " + script)
	}
	return sdk.StopReasonEndTurn, nil
}

// asks asks for a permission, and writes the answer to a file.
func asks(conn *sdk.Connection, options string) {
	say(conn, sdk.StartToolCall("call-1", "Run the tests", sdk.WithStartKind(sdk.ToolKindExecute), sdk.WithStartStatus(sdk.ToolCallStatusPending), sdk.WithStartRawInput(map[string]any{"command": "go test"})))
	p := sdk.RequestPermissionRequest{SessionId: "session-1", ToolCall: sdk.ToolCallUpdate{ToolCallId: "call-1"}}
	for i, kind := range strings.Split(options, ",") {
		p.Options = append(p.Options, sdk.PermissionOption{Kind: sdk.PermissionOptionKind(kind), Name: kind, OptionId: sdk.PermissionOptionId(fmt.Sprintf("%d-%s", i, kind))})
	}
	answer, err := sdk.SendRequest[stdjson.RawMessage](conn, context.Background(), sdk.ClientMethodSessionRequestPermission, p)
	if err != nil {
		panic(err)
	}
	made("answer", string(answer))
}

// fake is a daemon that records its calls.
type fake struct {
	t    *testing.T
	view taskapi.View

	mu    sync.Mutex
	calls []call
	// answer answers a call; if it is nil or does not take the call, the usual answer applies.
	answer func(ctx context.Context, method string, params any) (result any, err error, taken bool)
}

type call struct {
	method string
	params any
}

func (f *fake) Call(ctx context.Context, method string, params, result any) error {
	f.mu.Lock()
	f.calls = append(f.calls, call{method, params})
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		if said, err, taken := answer(ctx, method, params); taken {
			return f.give(said, result, err)
		}
	}
	switch method {
	case "task.get":
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.give(&f.view, result, nil)
	case "task.ask_permission":
		return f.give(taskapi.Permission{Decision: "allow"}, result, nil)
	}
	return f.give(map[string]any{"task_id": taskID}, result, nil)
}

func (f *fake) give(said, result any, err error) error {
	if err != nil || result == nil {
		return err
	}
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// last is the last call of a method, or nil.
func (f *fake) last(method string) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range slices.Backward(f.calls) {
		if f.calls[i].method == method {
			return f.calls[i].params
		}
	}
	return nil
}

// trial is an agent's run against a fake daemon.
type trial struct {
	*fake
	o   *Options
	dir string
	mu  sync.Mutex
	log []string
}

func begin(t *testing.T, script string) *trial {
	t.Helper()
	dir := t.TempDir()
	r := &trial{fake: &fake{t: t}, dir: dir}
	r.view.ID, r.view.Title, r.view.Workspace, r.view.Phase = taskID, "Export", dir, task.Executing
	r.view.CurrentAttempt = attemptID
	r.view.Spec = task.Spec{Version: 1, Fields: task.Fields{Goal: "Invoices as CSV.", Outputs: []string{"out.txt"}, AcceptanceCriteria: []string{"`go test` exits with 0"}}}
	r.view.Attempts = []task.Attempt{{ID: attemptID, Ordinal: 1, Actor: "builder", Status: task.AttemptRunning, Fence: 7}}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.o = &Options{
		Daemon: r.fake, Token: "ocg_token", Server: []string{"/usr/bin/ocipd", "mcp"}, Lease: time.Minute, Version: "1",
		Attached: taskapi.Attached{Actor: "builder", Role: task.Executor, TaskID: taskID, AttemptID: attemptID, Fence: 7, Tools: []string{"task_get"}},
		Agent:    Agent{Command: []string{program, "agent", script}, Env: []string{"SECRET", "GORACE", "ABSENT"}, Timeout: time.Minute, Idle: time.Minute},
		Lookup:   Lookup([]string{"SECRET=hush-hush-hush", "OTHER=1", "GORACE=atexit_sleep_ms=0"}), Now: time.Now, NewID: uuid.NewString,
		Say: func(format string, args ...any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log = append(r.log, fmt.Sprintf(format, args...))
		},
		times: &times{leave: 5 * time.Second, cancel: 5 * time.Second, term: 5 * time.Second, settle: 2 * time.Second, look: 20 * time.Millisecond, begin: 5 * time.Second, close: 5 * time.Second},
	}
	return r
}

func (r *trial) run(ctx context.Context) Result {
	r.t.Helper()
	result, err := Run(ctx, r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *trial) read(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// If an agent has a mode that asks and begins in another one, the bridge warns the person
// who started it, and records the warning. It also records the mode that the actor names.
func TestModeIsTold(t *testing.T) {
	t.Parallel()
	for set, warns := range map[string]bool{"": true, "ask": false} {
		r := begin(t, "yolo")
		r.o.Agent.Mode = set
		r.run(t.Context())
		r.mu.Lock()
		said := strings.Join(r.log, "\n")
		r.mu.Unlock()
		if strings.Contains(said, "mode: ask of its actor has it ask") != warns {
			t.Errorf("with the mode %q, it is said: %s", set, said)
		}
		told := ""
		r.fake.mu.Lock()
		for _, c := range r.calls {
			if p, ok := c.params.(*taskapi.CheckpointParams); ok && p.Type == task.CheckpointSession {
				told += string(p.Payload)
			}
		}
		r.fake.mu.Unlock()
		if strings.Contains(told, `"warning":"the agent begins in the mode \"yolo\"`) != warns || strings.Contains(told, `"mode":"ask"`) != (set == "ask") || told == "" {
			t.Errorf("with the mode %q, on record is %s", set, told)
		}
	}
}

// Each stop reason and each failure of an agent ends the attempt with its outcome.
func TestEnds(t *testing.T) {
	tests := []struct {
		script, outcome, failure, summary string
		change                            func(*trial)
	}{
		{script: "works", outcome: task.AttemptSucceeded},
		{script: "nothing", outcome: task.AttemptFailed, failure: "invalid_output", summary: "out.txt"},
		{script: "refuses", outcome: task.AttemptFailed, failure: "refused"},
		{script: "tokens", outcome: task.AttemptFailed, failure: "max_tokens"},
		{script: "turns", outcome: task.AttemptFailed, failure: "max_turns"},
		{script: "gives up", outcome: task.AttemptAborted},
		{script: "fails", outcome: task.AttemptFailed, failure: "agent_error", summary: "the model is away"},
		{script: "crashes", outcome: task.AttemptFailed, failure: "crashed", summary: "exit status 3\nthe key is [SECRET]"},
		{script: "signed out", outcome: task.AttemptFailed, failure: "environment", summary: "not signed in"},
		{script: "version", outcome: task.AttemptFailed, failure: "environment", summary: "version 2"},
		{script: "mode", outcome: task.AttemptFailed, failure: "environment", summary: "read-only", change: func(r *trial) { r.o.Agent.Mode = "read-only" }},
		{script: "works", outcome: task.AttemptSucceeded, change: func(r *trial) { r.o.Agent.Mode = "read-only" }},
		{script: "chats", outcome: task.AttemptSucceeded},
		{script: "leaves", outcome: task.AttemptSucceeded},
		{script: "long", outcome: task.AttemptSucceeded},
		{script: "too long", outcome: task.AttemptFailed, failure: "agent_error", summary: "10 MiB", change: func(r *trial) { r.o.times.cancel, r.o.times.leave = time.Millisecond, time.Millisecond }},
		{script: "floods", outcome: task.AttemptSucceeded},
		{script: "silent", outcome: task.AttemptFailed, failure: "timeout", summary: "nothing was heard", change: func(r *trial) {
			r.o.Agent.Idle, r.o.times.cancel, r.o.times.leave = 100*time.Millisecond, time.Millisecond, time.Millisecond
		}},
		{script: "silent", outcome: task.AttemptFailed, failure: "timeout", summary: "not ended within", change: func(r *trial) {
			r.o.Agent.Timeout, r.o.times.cancel, r.o.times.leave = 300*time.Millisecond, time.Millisecond, time.Millisecond
		}},
		{script: "moves", outcome: task.AttemptFailed, failure: "timeout", summary: "not ended within", change: func(r *trial) {
			r.o.Agent.Timeout, r.o.times.cancel, r.o.times.leave, r.o.times.term = 500*time.Millisecond, time.Millisecond, time.Millisecond, 100*time.Millisecond
		}},
		{script: "none", outcome: task.AttemptFailed, failure: "crashed", summary: "panic"},
		{script: "works", outcome: task.AttemptFailed, failure: "environment", summary: "cannot be started", change: func(r *trial) {
			r.o.Agent.Command = []string{"/etc/passwd"}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.script+" "+tt.failure, func(t *testing.T) {
			t.Parallel()
			r := begin(t, tt.script)
			if tt.change != nil {
				tt.change(r)
			}
			got := r.run(t.Context())
			if got.Outcome != tt.outcome || got.Failure != tt.failure || !strings.Contains(got.Summary, tt.summary) || strings.Contains(got.Summary, "hush") {
				t.Errorf("got %+v\n%q", got, r.log)
			}
			finished, _ := r.last("task.finish_attempt").(*taskapi.FinishAttemptParams)
			if finished == nil || finished.Outcome != tt.outcome || finished.FailureCode != tt.failure || *finished.Fence != 7 || finished.RequestKey == "" || len(members.Check(finished)) > 0 {
				t.Errorf("the daemon was told %+v", finished)
			}
			artifact, _ := r.last("task.record_artifact").(*taskapi.ArtifactParams)
			if (artifact != nil) != (tt.outcome == task.AttemptSucceeded) || artifact != nil && (artifact.URI != "out.txt" || len(members.Check(artifact)) > 0) {
				t.Errorf("recorded %+v", artifact)
			}
		})
	}
}

// The agent gets the workspace, only the listed variables, its MCP server with the token,
// and the task; it gets no access to files and terminals through the client.
func TestGiven(t *testing.T) {
	t.Parallel()
	r := begin(t, "works")
	r.o.Attached.Tools, r.o.Without = []string{"task_get", "task_finish_attempt"}, []string{"task_finish_attempt"}
	r.view.Reviews = []taskapi.Review{{Review: task.Review{Type: task.ReviewQuality, Actor: "critic", Verdict: task.VerdictChanges, Subject: task.Subject{Spec: 1, Artifact: 1, Gate: true},
		Findings: []task.Finding{{Severity: "major", Message: "quotes are lost", File: "csv.go", Line: 12}}}}}
	r.run(t.Context())
	var hello struct {
		Capabilities struct {
			FS struct {
				Read  bool `json:"readTextFile"`
				Write bool `json:"writeTextFile"`
			} `json:"fs"`
			Terminal bool `json:"terminal"`
		} `json:"clientCapabilities"`
		Version int `json:"protocolVersion"`
	}
	if err := json.Unmarshal([]byte(r.read("initialize")), &hello); err != nil || hello.Version != 1 || hello.Capabilities.FS.Read || hello.Capabilities.FS.Write || hello.Capabilities.Terminal {
		t.Errorf("initialize: %+v, %v", hello, err)
	}
	var session struct {
		Cwd     string `json:"cwd"`
		Servers []struct {
			Name, Command string
			Args          []string
			Env           []struct{ Name, Value string }
		} `json:"mcpServers"`
		Meta struct {
			OCIPD struct {
				Task         string   `json:"task_id"`
				Attempt      string   `json:"attempt_id"`
				Workspace    string   `json:"workspace"`
				Capabilities []string `json:"capabilities"`
			} `json:"ocipd"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(r.read("session")), &session, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	s, m := session.Servers[0], session.Meta.OCIPD
	if session.Cwd != r.dir || len(session.Servers) != 1 || s.Name != "ocipd" || s.Command != "/usr/bin/ocipd" || !slices.Equal(s.Args, []string{"mcp", "--without", "task_finish_attempt"}) || s.Env[0].Name != "OCIPD_TOKEN" || s.Env[0].Value != "ocg_token" {
		t.Errorf("session/new: %+v", session)
	}
	if m.Task != taskID || m.Attempt != attemptID || m.Workspace != r.dir || !slices.Equal(m.Capabilities, []string{"task_get"}) {
		t.Errorf("_meta: %+v", m)
	}
	for _, want := range []string{taskID, "Invoices as CSV.", "`go test` exits with 0", "quotes are lost csv.go:12"} {
		if !strings.Contains(r.read("prompt"), want) {
			t.Errorf("the prompt lacks %q:\n%s", want, r.read("prompt"))
		}
	}
	b := &bridge{o: r.o, agent: r.o.Agent}
	b.agent.Mode = "auto"
	if got := b.environment(); !slices.Equal(got, []string{"SECRET=hush-hush-hush", "GORACE=atexit_sleep_ms=0", "INITIAL_AGENT_MODE=auto"}) {
		t.Errorf("environment %q", got)
	}
	if c, _ := r.last("task.record_checkpoint").(*taskapi.CheckpointParams); c == nil || c.Type != task.CheckpointSession || !strings.Contains(string(c.Payload), "session-1") {
		t.Errorf("checkpoint %+v", c)
	}
}

// An attempt of kind research is told to read and report, and its files are recorded as reports.
func TestResearch(t *testing.T) {
	t.Parallel()
	r := begin(t, "works")
	r.view.Attempts[0].Executor = "research"
	if got := r.run(t.Context()); !got.Good() {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(r.read("prompt"), "A person is asked before you edit a file.") || strings.Contains(r.read("prompt"), "task_plan_effect") {
		t.Errorf("the prompt is %s", r.read("prompt"))
	}
	// Its agent is put into a mode that asks before it edits, whatever mode its actor has.
	for _, tt := range []struct{ actors, offered, set, warning string }{
		{"workspace-write", "workspace-write read-only", "read-only", ""},
		{"", "default acceptEdits", "default", ""},
		{"ask", "ask yolo", "ask", ""},
		{"yolo", "yolo", "yolo", "no mode in which it asks"},
	} {
		offered := &sdk.SessionModeState{}
		for id := range strings.FieldsSeq(tt.offered) {
			offered.AvailableModes = append(offered.AvailableModes, sdk.SessionMode{Id: sdk.SessionModeId(id)})
		}
		if set, warning := readMode(tt.actors, offered); set != tt.set || !strings.Contains(warning, tt.warning) || (warning == "") != (tt.warning == "") {
			t.Errorf("%+v: set is %q, with %q", tt, set, warning)
		}
	}
	if a, _ := r.last("task.record_artifact").(*taskapi.ArtifactParams); a == nil || a.URI != "out.txt" || a.Kind != task.OtherArtifact {
		t.Errorf("recorded is %+v", a)
	}
}

// A reviewer's agent is told which artifacts the specification does not declare.
func TestUndeclaredIsTold(t *testing.T) {
	t.Parallel()
	r := begin(t, "works")
	b := &bridge{o: r.o, view: &r.view, id: taskID, dir: r.dir}
	b.o.Attached.Role = task.SpecReviewer
	b.view.Phase = task.SpecGate
	b.view.Artifacts = []task.Artifact{{URI: "out.txt", Kind: task.PrimaryOutput, Current: true}, {URI: "x.sh", Kind: task.PrimaryOutput, Current: true, Undeclared: true, Digest: "sha256:00"}}
	if said := b.prompt(); !strings.Contains(said, "x.sh (primary_output, by , sha256:00, NOT AN OUTPUT THAT THE SPECIFICATION DECLARES)") || strings.Count(said, "DECLARES") != 1 {
		t.Errorf("the prompt is %s", said)
	}
}

// Only the daemon grants a permission. The bridge selects an option by its kind: once, and
// for nothing else.
func TestPermissions(t *testing.T) {
	all := "allow_always,allow_once,reject_always,reject_once"
	tests := []struct {
		name, options, decision string
		err                     error
		want                    string
	}{
		{"allowed", all, "allow", nil, `"1-allow_once"`},
		{"denied", all, "deny", nil, `"3-reject_once"`},
		{"refused", all, "", api.Errorf(api.InvalidParams, "too long"), `"3-reject_once"`},
		{"no option to allow", "allow_always,reject_once", "allow", nil, `"cancelled"`},
		{"no option to deny", "allow_once,reject_always", "deny", nil, `"cancelled"`},
		{"ended", all, "", api.Errorf(api.Unauthorized, "the grant has ended"), `"cancelled"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "asks:"+tt.options)
			r.answer = func(_ context.Context, method string, _ any) (any, error, bool) {
				return taskapi.Permission{Decision: tt.decision}, tt.err, method == "task.ask_permission"
			}
			r.run(t.Context())
			if got := r.read("answer"); !strings.Contains(got, tt.want) {
				t.Errorf("answered %s, want %s", got, tt.want)
			}
			p := r.last("task.ask_permission").(*taskapi.AskPermissionParams)
			// The start of the call gave the title, the kind and the input.
			if c := p.ToolCall; c.Title != "Run the tests" || c.Kind != "execute" || string(c.Input) != `{"command":"go test"}` || c.InWorkspace || p.AttemptID != attemptID || len(members.Check(p)) > 0 {
				t.Errorf("asked %+v", p)
			}
			if c, _ := r.last("task.record_checkpoint").(*taskapi.CheckpointParams); c == nil || c.Type != "tool_calls" || !strings.Contains(string(c.Payload), task.Digest([]byte(`{"command":"go test"}`))) || strings.Contains(string(c.Payload), "go test") {
				t.Errorf("checkpoint %+v", c)
			}
		})
	}
}

// An agent that waits for a person does not count as silent, and keeps its lease.
func TestWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := begin(t, "asks:allow_once,reject_once")
	// The agent's start counts as idle time, and takes long on a busy machine.
	r.o.Agent.Idle, r.o.Lease = 3*time.Second, 600*time.Millisecond
	r.answer = func(ctx context.Context, method string, _ any) (any, error, bool) {
		if method == "task.ask_permission" {
			wait, cancel := context.WithTimeout(ctx, r.o.Agent.Idle+200*time.Millisecond)
			defer cancel()
			<-wait.Done()
		}
		return taskapi.Permission{Decision: "allow"}, nil, method == "task.ask_permission"
	}
	if got := r.run(t.Context()); !got.Good() {
		t.Errorf("got %+v", got)
	}
	beats := 0
	for _, c := range r.calls {
		if p, ok := c.params.(*taskapi.CheckpointParams); ok && p.Type == task.CheckpointHeartbeat {
			beats++
		}
	}
	// The bridge sends one every third of the lease, fewer on a busy machine.
	if beats < 3 || beats > 30 {
		t.Errorf("%d heartbeats were sent", beats)
	}
}

// The agent's turn is cancelled if the bridge is interrupted or somebody else ends the attempt.
func TestCancelled(t *testing.T) {
	lost := &api.Error{Code: api.Conflict, Message: "attempt 1 is failed", Details: taskapi.Details{Task: taskapi.Error{Code: task.LeaseLost}}}
	tests := []struct {
		name, script, outcome string
		said                  taskapi.Checkpointed
		err                   error
	}{
		{"aborted", "cancels", Ended, taskapi.Checkpointed{Cancel: true}, nil},
		{"lease lost", "cancels", Ended, taskapi.Checkpointed{}, lost},
		{"grant ended", "cancels", Ended, taskapi.Checkpointed{}, api.Errorf(api.Unauthorized, "it has ended")},
		{"interrupted", "cancels", task.AttemptAborted, taskapi.Checkpointed{}, nil},
		{"does not hear", "stubborn", task.AttemptAborted, taskapi.Checkpointed{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, tt.script)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.o.Lease = 60 * time.Millisecond
			if tt.script == "stubborn" {
				r.o.times.cancel, r.o.times.leave, r.o.times.term = 10*time.Millisecond, 10*time.Millisecond, 100*time.Millisecond
			}
			started := func() bool { _, err := os.Stat(filepath.Join(r.dir, "ready")); return err == nil }
			r.answer = func(_ context.Context, method string, params any) (any, error, bool) {
				p, ok := params.(*taskapi.CheckpointParams)
				if !ok || p.Type != task.CheckpointHeartbeat || !started() {
					return nil, nil, false
				}
				if tt.outcome == task.AttemptAborted {
					cancel()
				}
				return &tt.said, tt.err, true
			}
			if got := r.run(ctx); got.Outcome != tt.outcome {
				t.Errorf("got %+v", got)
			}
			if finished := r.last("task.finish_attempt") != nil; finished != (tt.outcome == task.AttemptAborted) {
				t.Errorf("the attempt was finished: %v", finished)
			}
		})
	}
}

// The agent continues while the daemon is away.
func TestDaemonAway(t *testing.T) {
	t.Parallel()
	r := begin(t, "asks:allow_once")
	r.o.Lease = 30 * time.Millisecond
	beats := 0
	r.answer = func(ctx context.Context, method string, params any) (any, error, bool) {
		if method == "task.ask_permission" {
			wait, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			<-wait.Done()
		}
		p, ok := params.(*taskapi.CheckpointParams)
		if !ok || p.Type != task.CheckpointHeartbeat {
			return nil, nil, false
		}
		beats++
		return nil, api.Errorf(api.ConnectionClosed, "away"), true
	}
	if got := r.run(t.Context()); !got.Good() || beats == 0 {
		t.Errorf("got %+v after %d heartbeats", got, beats)
	}
}

// Processes that the agent has started end with it.
func TestGroupEnds(t *testing.T) {
	t.Parallel()
	r := begin(t, "forks")
	if got := r.run(t.Context()); !got.Good() {
		t.Fatalf("got %+v", got)
	}
	pid, err := strconv.Atoi(r.read("child"))
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(text), ") Z ") {
			return
		}
		<-tick.C
	}
	t.Errorf("process %d, which the agent has started, is still there", pid)
}

// Everything that the agent did is recorded, however much it was, even if the daemon did
// not accept it at first.
func TestAllIsTold(t *testing.T) {
	t.Parallel()
	r := begin(t, "calls")
	r.o.times.look = time.Hour
	known, refusals := make(map[string]bool), 2
	r.answer = func(_ context.Context, _ string, params any) (any, error, bool) {
		p, ok := params.(*taskapi.CheckpointParams)
		if !ok {
			return nil, nil, false
		}
		var said struct {
			Calls []report `json:"calls"`
		}
		if err := json.Unmarshal(p.Payload, &said); err != nil {
			t.Error(err)
		}
		for _, c := range said.Calls {
			known[c.ID] = true
		}
		return &taskapi.Checkpointed{}, nil, true
	}
	b := &bridge{o: r.o, attempt: &r.view.Attempts[0]}
	b.told.init(time.Now())
	b.told.opened("session-1", "", "")
	b.told.call(&toolCall{ID: "before"})
	taken := r.answer
	r.answer = func(ctx context.Context, method string, params any) (any, error, bool) {
		if refusals--; refusals >= 0 {
			return nil, api.Errorf(api.InternalError, "the disk is full"), true
		}
		return taken(ctx, method, params)
	}
	for range 4 {
		_, _, _ = b.news(t.Context())
	}
	if b.told.session() != "session-1" || !b.told.reported || !known["before"] {
		t.Errorf("after two errors the daemon knows %v", known)
	}
	if got := r.run(t.Context()); !got.Good() || len(known) != 3*maxReported+1 {
		t.Errorf("got %+v, and the daemon knows %d calls", got, len(known))
	}
}

// Reviewers give their verdict through a tool or in a text.
func TestReviews(t *testing.T) {
	word := `{"verdict":"changes_requested","summary":"not yet","findings":[{"severity":"minor","message":"no test"},"and {more}"]}`
	good := `Here it is: {"verdict":"changes_requested","summary":"not yet","findings":[{"severity":"minor","message":"no test","line":3}]} Done.`
	tests := []struct {
		name, script     string
		role             task.Role
		phase            task.Phase
		outcome, verdict string
		byTool           bool
	}{
		{"in words", "says:" + good, task.QualityReviewer, task.QualityGate, task.AttemptSucceeded, "changes_requested", false},
		{"of a spec", "says:" + good, task.SpecReviewer, task.SpecReview, task.AttemptSucceeded, "changes_requested", false},
		{"no verdict", "says:fine", task.SpecReviewer, task.SpecGate, task.AttemptFailed, "", false},
		{"no list of findings", "says:" + word, task.SpecReviewer, task.SpecGate, task.AttemptFailed, "", false},
		{"by the tool", "says:done", task.SpecReviewer, task.SpecGate, task.AttemptSucceeded, "approved", true},
		{"crashed", "crashes", task.SpecReviewer, task.SpecGate, task.AttemptFailed, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, tt.script)
			r.view.Phase, r.view.ArtifactRevision, r.view.Spec.Version = tt.phase, 4, 2
			r.o.Attached = taskapi.Attached{Actor: "checker", Role: tt.role, Tools: []string{"task_append_review"}}
			r.o.TaskID = taskID
			gets := 0
			r.answer = func(_ context.Context, method string, _ any) (any, error, bool) {
				if method != "task.get" || !tt.byTool {
					return nil, nil, false
				}
				v := r.view
				if gets++; gets > 1 {
					v.Reviews = []taskapi.Review{{Review: task.Review{ID: "rev_1", Actor: "checker", Verdict: "approved"}}}
				}
				return &v, nil, true
			}
			if got := r.run(t.Context()); got.Outcome != tt.outcome || got.Verdict != tt.verdict {
				t.Errorf("got %+v", got)
			}
			p, _ := r.last("task.append_review").(*taskapi.ReviewParams)
			if (p != nil) != (tt.verdict != "" && !tt.byTool) {
				t.Fatalf("review %+v", p)
			}
			if p == nil {
				return
			}
			want := 4
			if tt.phase == task.SpecReview {
				want = 2
			}
			if *p.Subject != want || p.Verdict != tt.verdict || !strings.HasPrefix(p.Summary, "via: text\n") || p.Findings[0].Line != 3 || (p.AttemptID == "") != (tt.phase == task.SpecReview) || len(members.Check(p)) > 0 {
				t.Errorf("review %+v", p)
			}
		})
	}
}

// A run without work is refused before anything starts.
func TestRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*trial)
		want   string
	}{
		{"no attempt", func(r *trial) { r.view.Attempts[0].Status = task.AttemptFailed }, "no attempt of builder runs"},
		{"somebody else's", func(r *trial) { r.view.Attempts[0].Actor = "other" }, "no attempt of builder runs"},
		{"not yet", func(r *trial) { r.view.Phase, r.o.times.begin = task.ExecutionReady, 50*time.Millisecond }, "stays in execution_ready"},
		{"nothing to review", func(r *trial) { r.o.Attached.Role = task.SpecReviewer }, "nothing for a spec_reviewer to review"},
		{"an orchestrator", func(r *trial) { r.o.Attached.Role = task.Orchestrator }, "is run for an executor or a reviewer"},
		{"no folder", func(r *trial) { r.view.Workspace = "billing" }, "is a name and no folder"},
		{"no such folder", func(r *trial) { r.o.Workspace = "/nowhere" }, "cannot use the task's workspace"},
		{"no program", func(r *trial) { r.o.Agent.Command = nil }, "acp.command"},
		{"no path", func(r *trial) { r.o.Agent.Command = []string{"agent"} }, "no absolute path"},
		{"no wrapper", func(r *trial) { r.o.Agent.Wrap = []string{"/nowhere/bwrap"} }, "cannot look at the agent's program"},
		{"others can write it", func(r *trial) {
			name := filepath.Join(r.dir, "agent")
			made(name, "")
			if err := os.Chmod(name, 0o777); err != nil {
				panic(err)
			}
			r.o.Agent.Command = []string{name}
		}, "others can replace the agent's program"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "works")
			tt.change(r)
			if _, err := Run(t.Context(), r.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A wrapper starts the agent.
func TestWrapped(t *testing.T) {
	t.Parallel()
	r := begin(t, "works")
	r.o.Socket = "/run/kernel.sock"
	r.o.Agent.Wrap = []string{"/bin/sh", "-c", `echo "$1 $2 $3" >places; shift 3; exec "$@"`, "sh", "{workspace}", "{socket}", "{ocipd}"}
	if got := r.run(t.Context()); !got.Good() {
		t.Errorf("got %+v", got)
	}
	if got, want := r.read("places"), r.dir+" /run/kernel.sock /usr/bin/ocipd\n"; got != want {
		t.Errorf("placed %q, want %q", got, want)
	}
}

func TestReadLine(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("a\r\n\nb"), 16)
	for _, want := range []string{"a", "", "b"} {
		if got, _ := readLine(r); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
