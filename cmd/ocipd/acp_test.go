package main

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// agentWord makes the test binary a scripted agent.
const agentWord = "acp-agent"

// scriptedAgent is an agent on standard input and output. Each run takes the first line of
// its plan, which says what to do in its turn.
func scriptedAgent(plan string) {
	var conn *sdk.Connection
	var session sdk.NewSessionRequest
	ready := make(chan struct{})
	handle := func(_ context.Context, method string, params stdjson.RawMessage) (any, *sdk.RequestError) {
		<-ready
		switch method {
		case sdk.AgentMethodInitialize:
			return sdk.InitializeResponse{ProtocolVersion: sdk.ProtocolVersionNumber}, nil
		case sdk.AgentMethodSessionNew:
			if err := stdjson.Unmarshal(params, &session); err != nil {
				panic(err)
			}
			return sdk.NewSessionResponse{SessionId: sdk.SessionId(fmt.Sprintf("session-%d", os.Getpid()))}, nil
		case sdk.AgentMethodSessionPrompt:
			stop, err := agentTurn(conn, &session, nextStep(plan))
			if err != nil {
				return nil, sdk.NewInternalError(err.Error())
			}
			return sdk.PromptResponse{StopReason: stop}, nil
		case sdk.AgentMethodSessionCancel:
			os.Exit(0)
		}
		return nil, sdk.NewMethodNotFound(method)
	}
	conn = sdk.NewConnection(handle, os.Stdout, os.Stdin)
	close(ready)
	<-conn.Done()
}

// nextStep takes the first line of a plan. Without one, executors make the expected output
// and reviewers approve.
func nextStep(plan string) string {
	text, err := os.ReadFile(plan)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	if line == "" {
		if name := filepath.Base(plan); name == "checker.plan" || name == "critic.plan" {
			return "approve"
		}
		return "make"
	}
	if err := os.WriteFile(plan, []byte(rest), 0o600); err != nil {
		panic(err)
	}
	return line
}

func agentTurn(conn *sdk.Connection, session *sdk.NewSessionRequest, step string) (sdk.StopReason, error) {
	word, more, _ := strings.Cut(step, " ")
	says := func(text string) error {
		return conn.SendNotification(context.Background(), sdk.ClientMethodSessionUpdate, sdk.SessionNotification{SessionId: "s", Update: sdk.UpdateAgentMessageText(text)})
	}
	switch word {
	case "make":
		return sdk.StopReasonEndTurn, os.WriteFile("out.txt", fmt.Appendf(nil, "made %s by %d", more, os.Getpid()), 0o600)
	case "approve":
		return sdk.StopReasonEndTurn, says(`{"verdict":"approved","summary":"good","findings":[]}`)
	case "changes":
		return sdk.StopReasonEndTurn, says(`{"verdict":"changes_requested","summary":"not yet","findings":[{"severity":"major","message":"` + more + `"}]}`)
	case "refuse":
		return sdk.StopReasonRefusal, nil
	case "crash":
		os.Exit(3)
	case "hang":
		if err := os.WriteFile("hangs", nil, 0o600); err != nil {
			return "", err
		}
		select {}
	case "ask":
		return sdk.StopReasonEndTurn, asksAPerson(conn, session, more)
	}
	return "", errors.New("there is no step " + step)
}

// asksAPerson uses its MCP server, then asks to run a command, which leaves its process group.
func asksAPerson(conn *sdk.Connection, session *sdk.NewSessionRequest, title string) error {
	server := session.McpServers[0].Stdio
	cmd := exec.Command(server.Command, server.Args...) //nolint:noctx // it ends with the session
	cmd.Env = os.Environ()
	for _, v := range server.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := s.ListTools(context.Background(), nil)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	got, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "task_get", Arguments: map[string]any{}})
	if err != nil || got.IsError {
		return fmt.Errorf("task_get: %v, %w", got, err)
	}
	answer, err := sdk.SendRequest[sdk.RequestPermissionResponse](conn, context.Background(), sdk.ClientMethodSessionRequestPermission, sdk.RequestPermissionRequest{
		SessionId: "s", ToolCall: sdk.ToolCallUpdate{ToolCallId: "1", Title: &title, Kind: sdk.Ptr(sdk.ToolKindExecute), RawInput: map[string]any{"command": "make all"}},
		Options: []sdk.PermissionOption{{Kind: sdk.PermissionOptionKindAllowAlways, OptionId: "always"}, {Kind: sdk.PermissionOptionKindAllowOnce, OptionId: "once"}, {Kind: sdk.PermissionOptionKindRejectOnce, OptionId: "no"}},
	})
	if err != nil {
		return err
	}
	// The visible part of its workspace's neighbours.
	var seen []byte
	for _, name := range []string{"secret", "openclawos/ocipd.db", "run/operator.sock"} {
		if _, err := os.Stat(filepath.Join(session.Cwd, "..", name)); err == nil {
			seen = append(seen, name+" "...)
		}
	}
	if err := os.WriteFile("seen", seen, 0o600); err != nil {
		return err
	}
	option := "cancelled"
	if answer.Outcome.Selected != nil {
		option = string(answer.Outcome.Selected.OptionId)
	}
	left := exec.Command("/bin/sleep", "1000") //nolint:noctx // it is to be ended by others
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		return err
	}
	return os.WriteFile("out.txt", []byte(strings.Join([]string{option, strconv.Itoa(left.Process.Pid), strings.Join(names, ",")}, "\n")), 0o600)
}

// agentTeam are actors whose agents are scripted: their plans are in a folder.
func agentTeam(dir, more string) string {
	agent := func(name, role string) string {
		return fmt.Sprintf("    - {name: %s, role: %s, tenant_id: acme, acp: {command: [%q, %s, %q], env: [%s, XDG_STATE_HOME, GORACE]}}\n", name, role, os.Args[0], agentWord, filepath.Join(dir, name+".plan"), asProgram)
	}
	return "approvals: {notify: {desktop: false}}\ntasks:\n" + more + "  actors:\n    - {name: lead, role: orchestrator, tenant_id: acme}\n" +
		agent("builder", "executor") + agent("expert", "executor") + agent("checker", "spec_reviewer") + agent("critic", "quality_reviewer")
}

// newAgentTrial is a daemon whose actors are scripted agents.
func newAgentTrial(t *testing.T, more string) *mcpTrial {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &mcpTrial{killTest: &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}, t: t}
	if err := os.WriteFile(filepath.Join(dir, "ocipd.yaml"), []byte("ipc: {apps_may_operate: true}\n"+agentTeam(dir, more)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.daemon = m.start(t)
	return m
}

// program is the program with a configuration and a socket.
func (m *mcpTrial) program(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), os.Args[0], append(args, "--socket", m.socket, "--config", filepath.Join(m.dir, "ocipd.yaml"))...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+m.dir, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// plan sets the steps of an actor's agent, one for each run.
func (m *mcpTrial) plan(actor string, steps ...string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, actor+".plan"), []byte(strings.Join(steps, "\n")), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// grant writes an actor's token into a file, and returns its name.
func (m *mcpTrial) grant(actor string, params map[string]any) string {
	m.t.Helper()
	p := map[string]any{"actor": actor}
	maps.Copy(p, params)
	var granted taskapi.Granted
	m.operator("task.grant", p, &granted)
	file := filepath.Join(m.dir, "tokens", actor+".token")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(granted.Token+"\n"), 0o600)); err != nil {
		m.t.Fatal(err)
	}
	return file
}

func (m *mcpTrial) view(id string) (v taskapi.View) {
	m.t.Helper()
	m.operator("task.get", map[string]any{"task_id": id}, &v)
	return v
}

// decide approves or denies the next approval request, and returns it.
func (m *mcpTrial) decide(decision string) api.Approval {
	m.t.Helper()
	shown := m.pending()
	m.operator("approval.resolve", map[string]any{"approvalId": shown.ApprovalID, "decision": decision, "digest": shown.Digest}, nil)
	return shown
}

// pending waits for a pending approval request.
func (m *mcpTrial) pending() (shown api.Approval) {
	m.t.Helper()
	id := m.waiting(nil)
	if id == "" {
		m.t.Fatal("no approval is asked for")
	}
	m.operator("approval.get", map[string]any{"approvalId": id}, &shown)
	return shown
}

// waiting returns the id of a request that waits for a person, once there is one. It gives
// up after a minute, or when a program has ended, and leaves its end in the channel.
func (m *mcpTrial) waiting(ended chan error) string {
	m.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 1200 {
		var list struct {
			Approvals []api.ApprovalSummary `json:"approvals"`
		}
		m.operator("approval.list", map[string]any{}, &list)
		if i := slices.IndexFunc(list.Approvals, func(a api.ApprovalSummary) bool { return a.State == api.ApprovalPending }); i >= 0 {
			return list.Approvals[i].ApprovalID
		}
		select {
		case err := <-ended:
			ended <- err
			return ""
		case <-tick.C:
		}
	}
	return ""
}

const agentSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

// An agent works under its grant: it uses its MCP server, a person permits its request, its
// output is recorded, and nothing of it remains.
func TestACPRun(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, "  self_review: true\n")
	var made taskapi.Created
	m.operator("task.create", map[string]any{"title": "Export", "spec_markdown": agentSpec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_review", "tenant_id": "acme"}, &made)
	id := made.TaskID

	m.plan("checker", "approve")
	if out, err := m.program("acp", "run", "--token-file", m.grant("checker", args{"task_id": id})).CombinedOutput(); err != nil {
		t.Fatalf("the reviewer: %v\n%s", err, out)
	}
	if v := m.view(id); !slices.Equal(v.Gates.Spec.Approved, []string{"checker"}) || v.Reviews[0].Summary != "via: text\ngood" {
		t.Fatalf("reviews %+v", v.Reviews)
	}
	move := func(from, to task.Phase) {
		t.Helper()
		m.operator("task.transition", map[string]any{"task_id": id, "from_phase": from, "to_phase": to, "actor": "me", "actor_role": "operator", "reason": "next"}, nil)
	}
	move(task.SpecReview, task.ExecutionReady)
	var attempt taskapi.AttemptStarted
	m.operator("task.start_attempt", map[string]any{"task_id": id, "phase": "executing", "actor": "me", "runtime": "acp", "executor_kind": "external_coder", "worker_ref": "builder"}, &attempt)
	m.plan("builder", "ask Build everything")
	run := m.program("acp", "run", "--json", "--token-file", m.grant("builder", args{"task_id": id}))
	var out, said strings.Builder
	run.Stdout, run.Stderr = &out, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	// It waits for the phase too.
	move(task.ExecutionReady, task.Executing)
	shown := m.decide("approve")
	if shown.Kind != api.ApprovalOfPermission || !strings.Contains(shown.Content, "Build everything") || !strings.Contains(shown.Content, `{"command":"make all"}`) || !strings.Contains(shown.Reason, "execute") {
		t.Errorf("a person was shown %+v", shown)
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), said.String())
	}
	v := m.view(id)
	if a := v.Attempts[0]; a.Status != task.AttemptSucceeded || !strings.HasPrefix(a.SessionRef, "session-") || len(v.Artifacts) != 1 || v.Artifacts[0].URI != "out.txt" || !v.Artifacts[0].Verified {
		t.Errorf("attempt %+v, artifacts %+v", a, v.Artifacts)
	}
	if !strings.Contains(out.String(), `"outcome":"succeeded"`) {
		t.Errorf("said %s", out.String())
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "work", "out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if lines[0] != "once" || !strings.Contains(lines[2], "task_record_artifact") || strings.Contains(lines[2], "finish_attempt") || strings.Contains(lines[2], "transition") {
		t.Errorf("the agent: %q", lines)
	}
	if stat, err := os.ReadFile("/proc/" + lines[1] + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("what the agent has started is still there: %s", stat)
	}
}

// An interrupt aborts the agent's attempt. Nothing runs without a grant, or for an actor
// without an agent.
func TestACPRunEnds(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, "  self_review: true\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"acp", "run"}, "without a grant"},
		{[]string{"acp", "run", "--token-file", m.grant("lead", nil)}, "does not say how the agent of lead is started"},
		{[]string{"acp", "run", "--token-file", m.grant("checker", nil)}, "the grant is for no task"},
	} {
		if out, err := m.program(tt.args...).CombinedOutput(); err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v: %v, %s", tt.args, err, out)
		}
	}
	id := m.executing(t)
	m.plan("builder", "hang")
	run := m.program("acp", "run", "--token-file", m.grant("builder", args{"task_id": id}))
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	m.appears(filepath.Join(m.dir, "work", "hangs"))
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err == nil {
		t.Error("an interrupted run is good")
	}
	if a := m.view(id).Attempts[0]; a.Status != task.AttemptAborted {
		t.Errorf("attempt %+v", a)
	}
}

// An agent survives a restart of the daemon: its question is asked again, and its attempt continues.
// If its bridge is killed, it runs once more. However often the two are killed, and whether the
// person decides before or after, its question is one question, and the decision answers it.
func TestACPRunOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, "  self_review: true\n")
	id := m.executing(t)
	m.plan("builder", "ask Build everything", "ask Build everything")
	file := m.grant("builder", args{"task_id": id})
	start := func(said *strings.Builder) *exec.Cmd {
		run := m.program("acp", "run", "--token-file", file)
		run.Stdout, run.Stderr = said, said
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		return run
	}
	var said strings.Builder
	first := start(new(strings.Builder))
	m.pending()
	m.kill()
	m.pending()
	if err := errors.Join(first.Process.Kill(), first.Wait()); err == nil {
		t.Fatal("the bridge ended before a person has decided")
	}
	m.decide("approve")
	m.kill()
	if err := start(&said).Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if a := m.view(id).Attempts; len(a) != 1 || a[0].Status != task.AttemptSucceeded {
		t.Errorf("attempts %+v", a)
	}
	var list api.ApprovalListResult
	if m.operator("approval.list", map[string]any{"state": "all"}, &list); list.Total != 1 {
		t.Errorf("people were asked %d times: %s", list.Total, list.Approvals)
	}
}

// executing makes a task whose first attempt, the builder's, is running.
func (m *mcpTrial) executing(t *testing.T) string {
	t.Helper()
	var made taskapi.Created
	m.operator("task.create", map[string]any{"title": "Export", "spec_markdown": agentSpec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_review", "tenant_id": "acme"}, &made)
	m.plan("checker", "approve")
	if out, err := m.program("acp", "run", "--token-file", m.grant("checker", args{"task_id": made.TaskID})).CombinedOutput(); err != nil {
		t.Fatalf("the reviewer: %v\n%s", err, out)
	}
	move := map[string]any{"task_id": made.TaskID, "from_phase": "spec_review", "to_phase": "execution_ready", "actor": "me", "actor_role": "operator", "reason": "next"}
	m.operator("task.transition", move, nil)
	m.operator("task.start_attempt", map[string]any{"task_id": made.TaskID, "phase": "executing", "actor": "me", "runtime": "acp", "executor_kind": "external_coder", "worker_ref": "builder"}, nil)
	move["from_phase"], move["to_phase"] = "execution_ready", "executing"
	m.operator("task.transition", move, nil)
	return made.TaskID
}

// appears waits for a file.
func (m *mcpTrial) appears(name string) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if _, err := os.Stat(name); err == nil {
			return
		}
		<-tick.C
	}
	m.t.Fatalf("%s does not appear", name)
}

// The sandbox in docs/guides/task-agents.md keeps an agent in its workspace, and lets it
// use its MCP server.
func TestACPRunInASandbox(t *testing.T) {
	t.Parallel()
	if err := exec.Command("/usr/bin/bwrap", "--unshare-pid", "--ro-bind", "/", "/", "/bin/true").Run(); err != nil { //nolint:noctx // it ends at once
		t.Skipf("bubblewrap cannot be used here: %v", err)
	}
	page, err := os.ReadFile("../../docs/guides/task-agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, wrap, ok := strings.Cut(string(page), "```yaml\nwrap: [")
	wrap, _, closed := strings.Cut(wrap, "]\n```")
	if !ok || !closed {
		t.Fatal("docs/guides/task-agents.md shows no sandbox")
	}
	m := newAgentTrial(t, "  self_review: true\n")
	id := m.executing(t)
	// Its plan is outside, like all of the person's files.
	plans := filepath.Join(m.dir, "plans")
	if err := os.Mkdir(plans, 0o700); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(agentTeam(m.dir, "  self_review: true\n"), fmt.Sprintf("command: [%q, %s, %q]", os.Args[0], agentWord, filepath.Join(m.dir, "builder.plan")),
		fmt.Sprintf("command: [%q, %s, %q], wrap: [%s, --bind, %q, %q]", os.Args[0], agentWord, filepath.Join(plans, "builder.plan"), wrap, plans, plans), 1)
	if err := errors.Join(os.WriteFile(filepath.Join(m.dir, "ocipd.yaml"), []byte("ipc: {apps_may_operate: true}\n"+config), 0o600),
		os.WriteFile(filepath.Join(plans, "builder.plan"), []byte("ask Look around"), 0o600), os.WriteFile(filepath.Join(m.dir, "secret"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	run := m.program("acp", "run", "--token-file", m.grant("builder", args{"task_id": id}))
	var said strings.Builder
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	m.decide("approve")
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if a := m.view(id).Attempts[0]; a.Status != task.AttemptSucceeded {
		t.Errorf("attempt %+v", a)
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "work", "out.txt"))
	if err != nil || !strings.HasPrefix(string(text), "once\n") {
		t.Errorf("the agent: %q, %v", text, err)
	}
	if seen, err := os.ReadFile(filepath.Join(m.dir, "work", "seen")); err != nil || string(seen) != "" {
		t.Errorf("the agent has seen %q, %v", seen, err)
	}
}
