//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// variable names the built program, and patience bounds each command.
const (
	variable = "OCIPD"
	patience = 6 * time.Minute
)

const team = `
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme, max_rounds: 2}
  - {id: ben, instance_id: agent-ben-1, user_id: ben, org_unit: engineering, tenant_id: acme}
  - {id: cat, instance_id: agent-cat-1, user_id: cat, org_unit: engineering, tenant_id: acme}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
    - {name: gate, role: lobster, tenant_id: acme}
`

// trial is a running daemon of the built program.
type trial struct {
	t            *testing.T
	ocipd, dir   string
	socket, node string
	daemon       *exec.Cmd
}

func begin(t *testing.T) *trial {
	t.Helper()
	node, err := filepath.Abs("node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	return beginWith(t, team, node)
}

// beginWith starts a daemon with a configuration, beside the programs of a folder.
func beginWith(t *testing.T, config, node string) *trial {
	t.Helper()
	ocipd := os.Getenv(variable)
	if ocipd == "" {
		t.Fatalf("%s names no program: run make e2e", variable)
	}
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &trial{t: t, ocipd: ocipd, dir: dir, socket: filepath.Join(dir, "run", "kernel.sock"), node: node}
	r.write("ocipd.yaml", config)
	daemon := exec.Command(ocipd, "serve", "--config", r.at("ocipd.yaml"), "--socket", r.socket)
	daemon.Env = r.env()
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	r.daemon = daemon
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", log.String())
		}
	})
	r.operate("status", "--wait", "20s")
	return r
}

func (r *trial) at(name string) string { return filepath.Join(r.dir, name) }

func (r *trial) write(name, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.at(name)), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.at(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// env is the environment of every program: a home of its own, and no way out but to the
// loopback interface.
func (r *trial) env(more ...string) []string {
	return append([]string{"HOME=" + r.dir, "XDG_STATE_HOME=" + r.dir, "PATH=" + r.node + ":" + os.Getenv("PATH"), "TERM=dumb", "NO_COLOR=1"}, more...)
}

// run runs a program to its end and returns what it wrote.
func (r *trial) run(env []string, name string, args ...string) (string, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	program := name
	if !filepath.IsAbs(name) {
		program = filepath.Join(r.node, name)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = env, r.dir
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", name, err, out.String(), said.String())
	}
	return out.String(), nil
}

func (r *trial) must(env []string, name string, args ...string) string {
	r.t.Helper()
	out, err := r.run(env, name, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// operate runs ocipd as the operator.
func (r *trial) operate(args ...string) string {
	r.t.Helper()
	return r.must(r.env(), r.ocipd, append([]string{"--config", r.at("ocipd.yaml"), "--socket", r.socket}, args...)...)
}

// server is the command line of an MCP server with a fresh grant.
func (r *trial) server(name string, grant ...string) []string {
	r.t.Helper()
	file := r.at(name + ".token")
	r.operate(append([]string{"task", "grant", "--out", file}, grant...)...)
	return []string{r.ocipd, "mcp", "--token-file", file, "--socket", r.socket}
}

// tasks are the titles of the tasks that there are.
func (r *trial) tasks() (titles []string) {
	r.t.Helper()
	var list struct {
		Tasks []struct {
			Title string `json:"title"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal([]byte(r.operate("task", "list", "--json")), &list); err != nil {
		r.t.Fatal(err)
	}
	for _, one := range list.Tasks {
		titles = append(titles, one.Title)
	}
	return titles
}

// create is the call of a tool that the stand-ins' models make.
const create = `{"title":"%s","spec_markdown":"## Goal\nA file.","workspace":"main","initial_phase":"spec_draft"}`

// The inspector lists each role's tools, and calls some that read and some that write.
func TestInspector(t *testing.T) {
	r := begin(t)
	type config struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	servers := make(map[string]config)
	for _, actor := range []string{"lead", "builder", "checker", "critic", "gate"} {
		command := r.server(actor, actor)
		servers[actor] = config{command[0], command[1:], map[string]string{}}
	}
	for _, agent := range []string{"ann", "ben"} {
		command := r.server(agent, "--agent", agent)
		servers[agent] = config{command[0], command[1:], map[string]string{}}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	r.write("inspector.json", string(text))
	inspect := func(server string, args ...string) (answer struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		IsError    bool           `json:"isError"`
		Structured map[string]any `json:"structuredContent"`
	}) {
		t.Helper()
		out := r.must(r.env(), "mcp-inspector", append([]string{"--cli", "--config", r.at("inspector.json"), "--server", server, "--method"}, args...)...)
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return answer
	}
	for server, tool := range map[string]string{"lead": "task_create", "builder": "task_record_checkpoint", "checker": "task_append_review", "critic": "task_append_review", "gate": "task_run_effect", "ann": "message_send"} {
		tools := inspect(server, "tools/list").Tools
		if !slices.ContainsFunc(tools, func(t struct {
			Name string `json:"name"`
		}) bool {
			return t.Name == tool
		}) {
			t.Errorf("%s has the tools %v", server, tools)
		}
	}
	inspect("lead", "tools/call", "--tool-name", "task_create", "--tool-arg", "title=Inspected", "spec_markdown=## Goal", "workspace=main", "initial_phase=spec_draft")
	if got := r.tasks(); !slices.Contains(got, "Inspected") {
		t.Errorf("tasks %v", got)
	}
	if got := inspect("lead", "tools/call", "--tool-name", "task_get", "--tool-arg", "task_id=tsk_1"); !got.IsError || got.Structured["code"] != "INVALID_PARAMS" {
		t.Errorf("a wrong id: %v", got)
	}
	if got := inspect("ann", "tools/call", "--tool-name", "message_send", "--tool-arg", "to=ben", "text=Hello."); got.Structured["status"] != "waiting" {
		t.Errorf("sent %v", got)
	}
	if got := inspect("ben", "tools/call", "--tool-name", "messages_read"); len(got.Structured["messages"].([]any)) != 1 {
		t.Errorf("read %v", got)
	}
}

// step is one turn of a stand-in's model: a call of a tool.
type step struct{ tool, input string }

// standIn is a model API that has its model make some calls of tools, then end.
type standIn struct {
	*httptest.Server
	t     *testing.T
	steps []step
	// says is what its model ends with.
	says string

	mu      sync.Mutex
	done    int
	results []string
}

func newStandIn(t *testing.T, serve func(*standIn, http.ResponseWriter, map[string]any), steps ...step) *standIn {
	s := &standIn{t: t, steps: steps, says: "done"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var asked map[string]any
		if json.Unmarshal(body, &asked) != nil || q.Method != http.MethodPost {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"data":[],"models":[]}`)
			return
		}
		if strings.HasSuffix(q.URL.Path, "/count_tokens") {
			_, _ = io.WriteString(w, `{"input_tokens":1}`)
			return
		}
		serve(s, w, asked)
	}))
	t.Cleanup(s.Close)
	return s
}

// next is the model's next call, among the tools that it was offered, if it has one.
func (s *standIn) next(results []string, offered []string) (call step, name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results[:0], results...)
	if len(results) >= len(s.steps) {
		return call, "", false
	}
	call = s.steps[len(results)]
	for _, name := range offered {
		if strings.HasSuffix(name, call.tool) {
			s.done = len(results) + 1
			return call, name, true
		}
	}
	return call, "", false
}

// outcome is what the tools answered.
func (s *standIn) outcome() (results []string, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.results), s.done
}

// event writes a server-sent event.
func event(w io.Writer, name string, data any) {
	text, _ := json.Marshal(data)
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, text)
}

type object = map[string]any

// claudeModel answers as the Messages API does.
func claudeModel(s *standIn, w http.ResponseWriter, asked map[string]any) {
	var results, offered []string
	messages, _ := asked["messages"].([]any)
	for _, one := range messages {
		message, _ := one.(object)
		parts, _ := message["content"].([]any)
		for _, part := range parts {
			if part, _ := part.(object); part["type"] == "tool_result" {
				text, _ := json.Marshal(part["content"])
				results = append(results, string(text))
			}
		}
	}
	tools, _ := asked["tools"].([]any)
	for _, one := range tools {
		tool, _ := one.(object)
		name, _ := tool["name"].(string)
		offered = append(offered, name)
	}
	block, stop := object{"type": "text", "text": ""}, "end_turn"
	delta := object{"type": "text_delta", "text": "done"}
	if call, name, ok := s.next(results, offered); ok {
		block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", len(results)+1), "name": name, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": call.input}, "tool_use"
	}
	if asked["stream"] != true {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": []any{object{"type": "text", "text": "done"}}, "stop_reason": "end_turn", "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event(w, "message_start", object{"type": "message_start", "message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1}}})
	event(w, "content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, "content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, "content_block_stop", object{"type": "content_block_stop", "index": 0})
	event(w, "message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	event(w, "message_stop", object{"type": "message_stop"})
}

// codexModel answers as the Responses API does.
func codexModel(s *standIn, w http.ResponseWriter, asked map[string]any) {
	var results, offered []string
	input, _ := asked["input"].([]any)
	for _, one := range input {
		if item, _ := one.(object); item["type"] == "function_call_output" {
			text, _ := json.Marshal(item["output"])
			results = append(results, string(text))
		}
	}
	// A tool of a server is one of a name space, or has the server in its name.
	spaces := make(map[string]string)
	tools, _ := asked["tools"].([]any)
	for _, one := range tools {
		tool, _ := one.(object)
		name, _ := tool["name"].(string)
		if inner, ok := tool["tools"].([]any); ok {
			for _, one := range inner {
				member, _ := one.(object)
				short, _ := member["name"].(string)
				spaces[short] = name
				offered = append(offered, short)
			}
			continue
		}
		offered = append(offered, name)
	}
	item := object{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{object{"type": "output_text", "text": s.says}}}
	if call, name, ok := s.next(results, offered); ok {
		item = object{"type": "function_call", "id": fmt.Sprintf("fc_%d", len(results)+1), "call_id": fmt.Sprintf("call_%d", len(results)+1), "name": name, "arguments": call.input}
		if space := spaces[name]; space != "" {
			item["namespace"] = space
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event(w, "response.created", object{"type": "response.created", "response": object{"id": "resp_1"}})
	event(w, "response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, "response.completed", object{"type": "response.completed", "response": object{"id": "resp_1", "usage": object{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
}

// claude adds a server to a Claude Code of its own and has its model make calls.
func (r *trial) claude(name string, server []string, steps ...step) []string {
	r.t.Helper()
	api := newStandIn(r.t, claudeModel, steps...)
	env := r.env("CLAUDE_CONFIG_DIR="+r.at(name), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=none", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false")
	r.must(env, "claude", append([]string{"mcp", "add", "--scope", "user", "ocipd", "--"}, server...)...)
	out := r.must(env, "claude", "-p", "go on", "--allowedTools", "mcp__ocipd")
	return r.answered(api, out, steps)
}

// codex adds a server to a Codex of its own and has its model make calls.
func (r *trial) codex(name string, server []string, steps ...step) []string {
	r.t.Helper()
	api := newStandIn(r.t, codexModel, steps...)
	r.write(name+"/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n", api.URL))
	env := r.env("CODEX_HOME="+r.at(name), "STANDIN=none")
	r.must(env, "codex", append([]string{"mcp", "add", "ocipd", "--"}, server...)...)
	out := r.must(env, "codex", "exec", "--skip-git-repo-check", "go on")
	return r.answered(api, out, steps)
}

// answered are the answers of the tools.
func (r *trial) answered(api *standIn, out string, steps []step) []string {
	r.t.Helper()
	results, calls := api.outcome()
	if calls != len(steps) || len(results) != len(steps) {
		r.t.Fatalf("%d calls of %d were made, and %d answered: %v\n%s", calls, len(steps), len(results), results, out)
	}
	return results
}

// Claude Code and Codex take the server by their own commands, and their models' calls
// change tasks.
func TestClientsChangeTasks(t *testing.T) {
	r := begin(t)
	for name, client := range map[string]func(string, []string, ...step) []string{"claude": r.claude, "codex": r.codex} {
		if _, err := os.Stat(filepath.Join(r.node, name)); errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s is not installed: run make e2e", name)
		}
		results := client(name, r.server(name, "lead"), step{"task_create", fmt.Sprintf(create, "By "+name)}, step{"task_list_ready", "{}"})
		if !strings.Contains(results[0], "tsk_") || !strings.Contains(results[1], "By "+name) {
			t.Errorf("%s is answered %v", name, results)
		}
		if got := r.tasks(); !slices.Contains(got, "By "+name) {
			t.Errorf("after %s the tasks are %v", name, got)
		}
	}
}

// An agent in Claude Code writes to one in Codex; the third round stops, a promise waits
// for a person, and all of it is in one log.
func TestClientsWriteToEachOther(t *testing.T) {
	r := begin(t)
	ann, ben := r.server("ann", "--agent", "ann"), r.server("ben", "--agent", "ben")
	send := func(to, text string) step {
		input, _ := json.Marshal(object{"to": to, "text": text})
		return step{"message_send", string(input)}
	}
	first := r.claude("claude1", ann, send("ben", "Is the build green?"))
	if !strings.Contains(first[0], "waiting") {
		t.Fatalf("sent: %v", first)
	}
	second := r.codex("codex1", ben, step{"messages_read", "{}"}, send("ann", "It is."))
	if !strings.Contains(second[0], "Is the build green?") || !strings.Contains(second[1], "waiting") {
		t.Fatalf("read and answered: %v", second)
	}
	third := r.claude("claude2", ann, step{"messages_read", "{}"}, send("ben", "And the tests?"))
	if !strings.Contains(third[0], "It is.") || !strings.Contains(third[1], "EXCHANGE_ROUND_LIMIT") {
		t.Fatalf("the third round: %v", third)
	}
	promise := r.codex("codex2", ben, send("cat", "I promise to approve the contract."))
	if !strings.Contains(promise[0], "COMMITMENT_REQUIRES_HUMAN") {
		t.Errorf("a promise: %v", promise)
	}
	held := r.operate("approvals", "list", "--json")
	for _, code := range []string{"EXCHANGE_ROUND_LIMIT", "COMMITMENT_REQUIRES_HUMAN"} {
		if !strings.Contains(held, code) {
			t.Errorf("%s does not wait for a person: %s", code, held)
		}
	}
	r.operate("audit", "verify")
	log := r.operate("audit", "query", "--json", "--dispatch", field(first[0], "dispatch_id"))
	for _, part := range []string{`"side":"sender"`, `"side":"receiver"`, "agent-ann-1", "agent-ben-1"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log does not have %s: %s", part, log)
		}
	}
}

// field reads a member of an answer that is a JSON text within JSON.
func field(answer, name string) string {
	plain := strings.ReplaceAll(answer, `\`, "")
	_, rest, _ := strings.Cut(plain, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
