package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// mcpTeam are actors and two agents without an app.
const mcpTeam = `
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme, max_classification_shared: internal, max_rounds: 2}
  - {id: ben, instance_id: agent-ben-1, user_id: ben, org_unit: engineering, tenant_id: acme, max_classification_shared: internal}
ocip: {chain: {enforcement: "off"}}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
    - {name: gate, role: lobster, tenant_id: acme}
`

// mcpTrial is a daemon, and MCP clients that start the program.
type mcpTrial struct {
	*killTest
	t      *testing.T
	daemon *exec.Cmd
}

func newMCPTrial(t *testing.T, yaml string) *mcpTrial {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &mcpTrial{killTest: &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}, t: t}
	if err := os.WriteFile(filepath.Join(dir, "ocipd.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.daemon = m.start(t)
	return m
}

// kill ends the daemon like a power failure, and starts it again.
func (m *mcpTrial) kill() {
	m.t.Helper()
	if err := m.daemon.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_ = m.daemon.Wait()
	m.daemon = m.start(m.t)
}

// operator makes a call on the operator socket.
func (m *mcpTrial) operator(method string, params, result any) {
	m.t.Helper()
	c, err := client.Dial(m.t.Context(), filepath.Join(filepath.Dir(m.socket), "operator.sock"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(m.t.Context(), method, params, result); err != nil {
		m.t.Fatalf("%s: %v", method, err)
	}
}

// command is the program with a fresh grant's token.
func (m *mcpTrial) command(grant map[string]any, args ...string) (*exec.Cmd, taskapi.Granted) {
	m.t.Helper()
	var granted taskapi.Granted
	m.operator("task.grant", grant, &granted)
	file := filepath.Join(m.dir, granted.GrantID)
	if err := os.WriteFile(file, []byte(granted.Token+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), os.Args[0], append([]string{"mcp", "--token-file", file, "--socket", m.socket, "--config", filepath.Join(m.dir, "ocipd.yaml")}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+m.dir, "GORACE=atexit_sleep_ms=0")
	return cmd, granted
}

// mcpSession is one MCP client with a grant.
type mcpSession struct {
	*mcp.ClientSession
	t    *testing.T
	name string
}

func (m *mcpTrial) session(name string, grant map[string]any) *mcpSession {
	m.t.Helper()
	cmd, _ := m.command(grant)
	var said bytes.Buffer
	cmd.Stderr = &said
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		m.t.Fatalf("%s cannot connect: %v\n%s", name, err, said.String())
	}
	m.t.Cleanup(func() { _ = s.Close() })
	return &mcpSession{ClientSession: s, t: m.t, name: name}
}

// call calls a tool, and returns its answer and whether that is an error.
func (s *mcpSession) call(tool string, args map[string]any) (map[string]any, bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		s.t.Fatalf("%s by %s: %v", tool, s.name, err)
	}
	var answer map[string]any
	text := result.Content[0].(*mcp.TextContent).Text
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		s.t.Fatalf("%s by %s: %s: %v", tool, s.name, text, err)
	}
	if structured, err := json.Marshal(result.StructuredContent); err != nil || !sameJSON(structured, []byte(text)) {
		s.t.Errorf("%s by %s: the text is %s, and what is structured %s", tool, s.name, text, structured)
	}
	return answer, result.IsError
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

func (s *mcpSession) must(tool string, args map[string]any) map[string]any {
	s.t.Helper()
	answer, failed := s.call(tool, args)
	if failed {
		s.t.Fatalf("%s by %s is refused: %v", tool, s.name, answer)
	}
	return answer
}

// refuse checks for an error with a code, which gives the next step.
func (s *mcpSession) refuse(tool string, args map[string]any, code string) map[string]any {
	s.t.Helper()
	answer, failed := s.call(tool, args)
	if !failed || answer["code"] != code && answer["task_code"] != code && answer["ocip_code"] != code || answer["next"] == "" || answer["message"] == "" {
		s.t.Fatalf("%s by %s: %v, want %s", tool, s.name, answer, code)
	}
	return answer
}

type args = map[string]any

// Three MCP sessions with three grants and nothing else take a task from its
// specification to its end.
func TestMCPSessionsCompleteATask(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	lead, checker, critic := m.session("lead", args{"actor": "lead"}), m.session("checker", args{"actor": "checker"}), m.session("critic", args{"actor": "critic"})
	spec := "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"
	made := lead.must("task_create", args{"title": "Export", "spec_markdown": spec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_review"})
	id := made["task_id"]
	if again := lead.must("task_list_ready", args{}); len(again["tasks"].([]any)) != 1 {
		t.Errorf("ready: %v", again)
	}
	move := func(from, to string) {
		t.Helper()
		lead.must("task_transition", args{"task_id": id, "from_phase": from, "to_phase": to, "reason": "because"})
	}
	review := func(by *mcpSession, kind string, attempt any) {
		t.Helper()
		p := args{"task_id": id, "review_type": kind, "verdict": "approved", "findings": []any{}}
		if attempt != nil {
			p["attempt_id"] = attempt
		}
		by.refuse("task_append_review", p, string(task.ReadFirst))
		by.must("task_get", args{"task_id": id})
		by.must("task_append_review", p)
	}
	lead.refuse("task_transition", args{"task_id": id, "from_phase": "spec_review", "to_phase": "execution_ready", "reason": "early"}, string(task.GuardFailed))
	review(checker, "spec", nil)
	move("spec_review", "execution_ready")
	attempt := lead.must("task_start_attempt", args{"task_id": id, "phase": "executing", "runtime": "local", "executor_kind": "builder"})["attempt_id"]
	move("execution_ready", "executing")
	lead.must("task_record_checkpoint", args{"task_id": id, "attempt_id": attempt, "checkpoint_type": "heartbeat", "payload": args{}})
	if err := os.WriteFile(filepath.Join(m.dir, "work", "out.txt"), []byte("made"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := lead.must("task_record_artifact", args{"task_id": id, "attempt_id": attempt, "kind": "primary_output", "uri": "out.txt"}); got["verified"] != true {
		t.Errorf("artifact %v", got)
	}
	// In the middle of it the daemon is killed.
	m.kill()
	lead.must("task_finish_attempt", args{"task_id": id, "attempt_id": attempt, "outcome": "succeeded"})
	move("executing", "spec_gate")
	review(checker, "spec", attempt)
	move("spec_gate", "quality_gate")
	review(critic, "quality", attempt)
	move("quality_gate", "completed")
	if got := critic.must("task_get", args{"task_id": id}); got["phase"] != "completed" {
		t.Errorf("the task is %v", got["phase"])
	}
}

// An executor's server knows its task, attempt and fence, and accepts no others.
func TestMCPServerOfAnAttempt(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	lead, checker := m.session("lead", args{"actor": "lead"}), m.session("checker", args{"actor": "checker"})
	spec := "## Goal\nA file.\n## Scope\n- out.txt\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- out.txt has 4 bytes\n## Risks\n- none\n"
	create := args{"title": "File", "spec_markdown": spec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_review", "request_key": "one"}
	id := lead.must("task_create", create)["task_id"]
	if again := lead.must("task_create", create); again["task_id"] != id || again["replayed"] != true {
		t.Errorf("created again: %v", again)
	}
	checker.must("task_get", args{"task_id": id})
	checker.must("task_append_review", args{"task_id": id, "review_type": "spec", "verdict": "approved", "findings": []any{}})
	lead.must("task_transition", args{"task_id": id, "from_phase": "spec_review", "to_phase": "execution_ready", "reason": "reviewed"})
	lead.must("task_start_attempt", args{"task_id": id, "phase": "executing", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"})
	lead.must("task_transition", args{"task_id": id, "from_phase": "execution_ready", "to_phase": "executing", "reason": "begun"})
	builder := m.session("builder", args{"actor": "builder", "task_id": id})
	for tool, err := range builder.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		required, _ := tool.InputSchema.(map[string]any)["required"].([]any)
		if slices.Contains(required, any("task_id")) || slices.Contains(required, any("attempt_id")) {
			t.Errorf("%s wants %v", tool.Name, required)
		}
	}
	builder.must("task_record_checkpoint", args{"checkpoint_type": "heartbeat", "payload": args{}})
	if err := os.WriteFile(filepath.Join(m.dir, "work", "out.txt"), []byte("made"), 0o600); err != nil {
		t.Fatal(err)
	}
	builder.must("task_record_artifact", args{"kind": "primary_output", "uri": "out.txt"})
	other := lead.must("task_create", args{"title": "Other", "spec_markdown": spec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_draft"})
	builder.refuse("task_get", args{"task_id": other["task_id"]}, string(task.NotPermitted))
	builder.must("task_finish_attempt", args{"outcome": "succeeded"})
	builder.refuse("task_record_checkpoint", args{"checkpoint_type": "progress", "payload": args{}}, string(api.Unauthorized))
}

// An agent in one session writes to one in another: the third round stops, a promise waits
// for a person, and all of it is in one log.
func TestMCPAgentsWriteToEachOther(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	ann, ben := m.session("ann", args{"agent": "ann"}), m.session("ben", args{"agent": "ben", "actor": "lead"})
	if got := ann.must("contacts_list", args{}); len(got["contacts"].([]any)) != 1 {
		t.Errorf("contacts %v", got)
	}
	first := ann.must("message_send", args{"to": "ben", "text": "Is the build green?"})
	page := ben.must("messages_read", args{"wait_s": 10})
	got := page["messages"].([]any)
	if len(got) != 1 || !strings.Contains(got[0].(args)["text"].(string), "Is the build green?") {
		t.Fatalf("read %v", page)
	}
	ben.must("message_send", args{"to": got[0].(args)["reply_to"], "text": "It is."})
	if page = ben.must("messages_read", args{"cursor": page["cursor"]}); len(page["messages"].([]any)) != 0 {
		t.Errorf("left: %v", page)
	}
	third := ann.must("message_send", args{"to": "ben", "text": "And the tests?"})
	if third["status"] != "held" || third["code"] != "EXCHANGE_ROUND_LIMIT" || !strings.Contains(third["next"].(string), "Do not send it again") {
		t.Fatalf("the third round: %v", third)
	}
	if x := ann.must("exchange_get", args{"exchange_id": first["exchange_id"]}); len(x["exchanges"].([]any)) != 1 {
		t.Errorf("exchange %v", x)
	}
	// Messages that she has not read by the end of their exchange would be withdrawn.
	page = ann.must("messages_read", args{})
	if n := len(page["messages"].([]any)); n != 1 {
		t.Errorf("ann has %d messages: %v", n, page)
	}
	m.operator("exchange.resolve", args{"exchangeId": first["exchange_id"], "outcome": "resolved"}, nil)
	promise := ben.must("message_send", args{"to": "ann", "text": "I promise to approve the contract.", "new_exchange": true})
	if promise["status"] != "held" || promise["code"] != "COMMITMENT_REQUIRES_HUMAN" {
		t.Fatalf("the promise: %v", promise)
	}
	if state := ben.must("approval_status", args{"approval_id": promise["approval_id"]}); state["status"] != api.ApprovalPending {
		t.Errorf("%v", state)
	}
	var shown api.Approval
	m.operator("approval.get", args{"approvalId": promise["approval_id"]}, &shown)
	m.operator("approval.resolve", args{"approvalId": promise["approval_id"], "decision": "approve", "digest": shown.Digest}, nil)
	if state := ben.must("approval_status", args{"approval_id": promise["approval_id"]}); state["status"] != api.ApprovalApproved {
		t.Errorf("%v", state)
	}
	page = ann.must("messages_read", args{"cursor": page["cursor"]})
	if n := len(page["messages"].([]any)); n != 1 {
		t.Errorf("ann has %d messages: %v", n, page)
	}
	ann.refuse("message_send", args{"to": "ben", "text": "The key is AKIAIOSFODNN7SAMPLED, the secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYSAMPLEDKEY", "new_exchange": true}, "CLASSIFICATION_VIOLATION")
	ann.refuse("message_send", args{"text": "To whom?"}, string(api.InvalidParams))
	// Only one process reads for an agent.
	m.session("another ben", args{"agent": "ben"}).refuse("messages_read", args{}, string(api.Conflict))
	var page2 api.AuditQueryResult
	m.operator("audit.query", args{"limit": 1000, "filter": audit.Filter{Like: audit.Record{AgentID: "agent-ann-1", ActionType: audit.ActionExchange}}}, &page2)
	sides := make(map[string]int)
	for _, line := range page2.Records {
		r, err := audit.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		sides[r.Side+" "+r.PolicyResult]++
	}
	if sides["sender allow"] != 1 || sides["sender require_approval"] != 1 || sides["sender deny"] != 1 || sides["receiver allow"] != 2 {
		t.Errorf("ann's records: %v", sides)
	}
}

// The daemon is killed again and again while one agent writes and another reads: each
// message is read once, in order.
func TestMCPMessagesOverKills(t *testing.T) {
	t.Parallel()
	const messages, kills = 40, 4
	m := newMCPTrial(t, mcpTeam)
	ann, ben := m.session("ann", args{"agent": "ann"}), m.session("ben", args{"agent": "ben"})
	sent := make(chan int)
	go func() {
		defer close(sent)
		for i := range messages {
			ann.must("message_send", args{"to": "ben", "text": fmt.Sprintf("message %03d", i), "new_exchange": true})
			sent <- i
		}
	}()
	var got []string
	seen := make(map[string]bool)
	cursor := ""
	for i := range sent {
		p := args{"limit": 3}
		if cursor != "" {
			p["cursor"] = cursor
		}
		page := ben.must("messages_read", p)
		if i%(messages/kills) == messages/kills/2 {
			// The cursor has not passed the read messages yet: they come again, unchanged.
			m.kill()
			again := ben.must("messages_read", p)
			if first, second := page["messages"].([]any), again["messages"].([]any); len(first) > len(second) || len(first) > 0 && first[0].(args)["dispatch_id"] != second[0].(args)["dispatch_id"] {
				t.Errorf("before the kill %d messages, after it %d", len(first), len(second))
			}
			page = again
		}
		got, cursor = collect(t, page, got, seen)
	}
	for {
		page := ben.must("messages_read", args{"cursor": cursor})
		if len(page["messages"].([]any)) == 0 {
			break
		}
		got, cursor = collect(t, page, got, seen)
	}
	if len(got) != messages || !slices.IsSorted(got) {
		t.Errorf("read %d messages of %d: %v", len(got), messages, got)
	}
}

// collect takes a page, each message of which is new.
func collect(t *testing.T, page map[string]any, got []string, seen map[string]bool) ([]string, string) {
	t.Helper()
	cursor, _ := page["cursor"].(string)
	for _, one := range page["messages"].([]any) {
		one := one.(args)
		id := one["dispatch_id"].(string)
		if seen[id] {
			t.Errorf("message %s came again", id)
		}
		seen[id] = true
		text, _, _ := strings.Cut(one["text"].(string), "\n")
		got = append(got, text)
	}
	return got, cursor
}

// Each role has its own tools and no others, with hints, and schemas without null.
func TestMCPToolsOfRoles(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	agents := slices.Sorted(func(yield func(string) bool) {
		for _, tool := range taskservice.AgentTools() {
			// Delivering by itself is for a program, not for a model.
			if tool != "message_carry" && !yield(tool) {
				return
			}
		}
	})
	for _, c := range []struct {
		name  string
		grant map[string]any
		want  []string
	}{
		{"orchestrator", args{"actor": "lead"}, taskservice.ToolsOf(task.Orchestrator)},
		{"executor", args{"actor": "builder"}, taskservice.ToolsOf(task.Executor)},
		{"spec reviewer", args{"actor": "checker"}, taskservice.ToolsOf(task.SpecReviewer)},
		{"quality reviewer", args{"actor": "critic"}, taskservice.ToolsOf(task.QualityReviewer)},
		{"lobster", args{"actor": "gate"}, taskservice.ToolsOf(task.Lobster)},
		{"agent", args{"agent": "ann"}, agents},
		{"both", args{"agent": "ann", "actor": "builder"}, append(taskservice.ToolsOf(task.Executor), agents...)},
		{"some", args{"actor": "lead", "tools": []string{"task_get"}}, []string{"task_get"}},
	} {
		s := m.session(c.name, c.grant)
		var got []string
		for tool, err := range s.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, tool.Name)
			if a := tool.Annotations; a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil || a.Title == "" || tool.Description == "" {
				t.Errorf("%s: hints %+v", tool.Name, a)
			}
			schema, err := json.Marshal(tool.InputSchema)
			if err != nil || strings.Contains(string(schema), `"null"`) {
				t.Errorf("%s: schema %s, %v", tool.Name, schema, err)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s has %v, want %v", c.name, got, c.want)
		}
		if !strings.Contains(s.InitializeResult().Instructions, "next") {
			t.Errorf("%s: instructions %q", c.name, s.InitializeResult().Instructions)
		}
		_ = s.Close()
	}
}

// A script pipes its calls and closes the input: each call is answered, also one that waits.
func TestMCPAnswersAfterTheInputEnds(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	cmd, _ := m.command(args{"agent": "ben"})
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"contacts_list","arguments":{}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"messages_read","arguments":{"wait_s":20}}}
`)); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	m.session("ann", args{"agent": "ann"}).must("message_send", args{"to": "ben", "text": "Is the build green?"})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	for _, want := range []string{`"id":1,`, `"id":2,`, `"id":3,`, "Is the build green?"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s\n%s", want, out.String(), said.String())
		}
	}
}

// A server that cannot serve says why, and reports wrong usage.
func TestMCPDoesNotStart(t *testing.T) {
	m := newMCPTrial(t, mcpTeam)
	other, _ := m.command(args{"actor": "lead"}, "--role", "executor")
	wrong, _ := m.command(args{"actor": "lead"}, "--role", "boss")
	revoked, granted := m.command(args{"actor": "lead"})
	m.operator("task.revoke_grant", args{"grant_id": granted.GrantID}, nil)
	none := exec.CommandContext(t.Context(), os.Args[0], "mcp", "--socket", m.socket)
	none.Env = append(os.Environ(), asProgram+"=1", "HOME="+m.dir)
	for _, c := range []struct {
		name string
		cmd  *exec.Cmd
		code int
		says string
	}{
		{"another role", other, cli.ExitFailed, "the token is for lead, a orchestrator"},
		{"no role", wrong, cli.ExitUsage, `there is no role "boss"`},
		{"revoked", revoked, cli.ExitFailed, "UNAUTHORIZED"},
		{"no token", none, cli.ExitUsage, "ocipd task grant"},
	} {
		var out bytes.Buffer
		c.cmd.Stderr, c.cmd.Stdin = &out, strings.NewReader("")
		_ = c.cmd.Run()
		if c.cmd.ProcessState.ExitCode() != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit %d, %s", c.name, c.cmd.ProcessState.ExitCode(), out.String())
		}
	}
}

// A script calls for an agent without an app with the agent's token.
func TestCallByGrant(t *testing.T) {
	p := newProxyTrial(t)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"call", "--socket", p.socket, "--config", filepath.Join(p.dir, "ocipd.yaml")}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+p.dir, "GORACE=atexit_sleep_ms=0")
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	const emit = `{"hookName":"tool_executing","data":{"toolName":"look","params":{}}}`
	if said, err := run("--token-file", p.token, "agent.emit", emit); err != nil || !strings.Contains(said, `"allowed":true`) {
		t.Errorf("with the token: %s, %v", said, err)
	}
	if said, err := run("agent.emit", emit); err == nil {
		t.Errorf("without it: %s", said)
	}
	if said, err := run("--token-file", p.token, "--operator", "approval.list"); err == nil || !strings.Contains(said, "cannot use --token-file") {
		t.Errorf("as the operator: %s, %v", said, err)
	}
}
