package mcpserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// everything is a grant with all tools.
func everything() *taskapi.Attached {
	at := &taskapi.Attached{GrantID: "grt_1", Actor: "lead", Role: task.Orchestrator, Agent: "ann"}
	for _, t := range tools() {
		at.Tools = append(at.Tools, t.name)
	}
	return at
}

// Every member of every tool is explained, has one type, and is for the model to set.
func TestSchemas(t *testing.T) {
	at := everything()
	if len(toolsOf(at)) != len(tools()) || len(tools()) < 20 {
		t.Fatalf("%d tools", len(tools()))
	}
	for _, tool := range toolsOf(at) {
		described, err := tool.describe(at)
		if err != nil {
			t.Fatal(err)
		}
		s := described.InputSchema.(*jsonschema.Schema)
		if s.Type != "object" || s.AdditionalProperties == nil {
			t.Errorf("%s takes anything", tool.name)
		}
		look(t, tool.name, s)
		for _, member := range append(tool.said, tool.hidden...) {
			if s.Properties[member] != nil {
				t.Errorf("%s shows %s", tool.name, member)
			}
		}
		for _, member := range s.Required {
			if s.Properties[member] == nil {
				t.Errorf("%s wants %s, which it does not have", tool.name, member)
			}
		}
		if tool.about == "" || tool.title == "" || !strings.HasSuffix(tool.about, ".") {
			t.Errorf("%s is not explained", tool.name)
		}
	}
}

func look(t *testing.T, at string, s *jsonschema.Schema) {
	for name, member := range s.Properties {
		path := at + "." + name
		if member.Description == "" {
			t.Errorf("%s is not explained", path)
		}
		if len(member.Types) > 0 || member.Type == "" {
			t.Errorf("%s has the types %v %q", path, member.Types, member.Type)
		}
		if len(member.Extra) > 0 || toolNames().Replace(member.Description) != member.Description {
			t.Errorf("%s is not for clients of MCP: %q, %v", path, member.Description, member.Extra)
		}
		look(t, path, member)
		if member.Items != nil {
			look(t, path+"[]", member.Items)
		}
	}
}

// The schemas have the bounds that the daemon checks.
func TestSchemasHaveBounds(t *testing.T) {
	schemas := map[string]*jsonschema.Schema{}
	for _, tool := range tools() {
		described, err := tool.describe(everything())
		if err != nil {
			t.Fatal(err)
		}
		schemas[tool.name] = described.InputSchema.(*jsonschema.Schema)
	}
	of := func(name string) *jsonschema.Schema {
		at, member, _ := strings.Cut(name, ".")
		s := schemas[at]
		for step := range strings.SplitSeq(member, ".") {
			if s = s.Properties[step]; s == nil {
				t.Fatalf("%s is not there", name)
			}
			if s.Items != nil {
				s = s.Items
			}
		}
		return s
	}
	for name, words := range map[string]int{
		"task_create.initial_phase": 2, "task_create.classification": 4, "task_transition.to_phase": 11, "task_append_review.findings.severity": 3, "task_finish_effect.outcome": 2, "message_send.reply_policy": 3,
	} {
		if got := len(of(name).Enum); got != words {
			t.Errorf("%s has %d words, want %d", name, got, words)
		}
	}
	for name, most := range map[string]float64{"task_create.priority": 4, "messages_read.limit": 100, "task_run_effect.wait_s": 20, "task_plan_effect.command.timeout_s": 86400} {
		if got := of(name).Maximum; got == nil || *got != most {
			t.Errorf("%s is at most %v, want %v", name, got, most)
		}
	}
	if got := of("task_create.depends_on").Pattern; !strings.HasPrefix(got, "^tsk_") {
		t.Errorf("an id of a task is %q", got)
	}
	if got := schemas["task_create"].Required; !slices.Equal(got, []string{"title", "workspace", "initial_phase"}) {
		t.Errorf("task_create wants %q", got)
	}
}

// A server under an attempt's grant asks for no ids that the grant already has.
func TestGrantFillsIn(t *testing.T) {
	at := &taskapi.Attached{Actor: "builder", Role: task.Executor, TaskID: "tsk_1", AttemptID: "att_1", Fence: 3, Tools: []string{"task_record_artifact", "task_transition", "task_get", "message_send"}}
	for _, tool := range toolsOf(at) {
		args := api.Object{}
		tool.fill(args, at)
		want := map[string]string{
			"task_record_artifact": `{"attempt_id":"att_1","fence":3,"produced_by":"builder","task_id":"tsk_1"}`,
			"task_transition":      `{"actor":"builder","actor_role":"executor","attempt_id":"att_1","task_id":"tsk_1"}`,
			"task_get":             `{"task_id":"tsk_1"}`,
			"message_send":         `{"attempt_id":"att_1","task_id":"tsk_1"}`,
		}[tool.name]
		if got := string(args.Append(nil)); got != want {
			t.Errorf("%s: %s, want %s", tool.name, got, want)
		}
		described, err := tool.describe(at)
		if err != nil {
			t.Fatal(err)
		}
		if s := described.InputSchema.(*jsonschema.Schema); strings.Contains(strings.Join(s.Required, " "), "_id") {
			t.Errorf("%s wants %v", tool.name, s.Required)
		}
	}
	given := api.Object{"task_id": api.String("tsk_2"), "produced_by": api.String("somebody")}
	tool := toolsOf(&taskapi.Attached{Tools: []string{"task_record_artifact"}})[0]
	tool.fill(given, at)
	if got := string(given.Append(nil)); got != `{"attempt_id":"att_1","fence":3,"produced_by":"builder","task_id":"tsk_2"}` {
		t.Errorf("what is given stays, but who calls: %s", got)
	}
}

// Every error has advice.
func TestEveryCodeHasAdvice(t *testing.T) {
	for _, code := range api.Codes() {
		if codeAdvice()[code] == "" {
			t.Errorf("%s has no advice", code)
		}
		result := failed(api.Errorf(code, "so"), "")
		if text := result.Content[0].(*mcp.TextContent).Text; !result.IsError || !strings.Contains(text, string(code)) || strings.Contains(text, `"next":""`) {
			t.Errorf("%s: %s", code, text)
		}
	}
	for _, code := range []task.Code{
		task.NotPermitted, task.RoleMismatch, task.SameActor, task.SelfApproval, task.NeedsPerson, task.Classified, task.PolicyDenied, task.Paused, task.RevisionMismatch, task.PhaseMismatch,
		task.GuardFailed, task.NotBefore, task.RetriesExhausted, task.IdempotencyConflict, task.Limit, task.RunnerAbsent, task.LeaseLost, task.Claimed, task.ReadFirst,
		task.RequestKeyReused, task.EffectInFlight, task.EffectUnknown, task.ToolDenied,
	} {
		e := &api.Error{Code: api.Conflict, Message: "so", Details: taskapi.Details{Task: taskapi.Error{Code: code}}}
		if text := failed(e, "").Content[0].(*mcp.TextContent).Text; taskAdvice()[code] == "" || !strings.Contains(text, `"task_code":"`+string(code)+`"`) {
			t.Errorf("%s: %s", code, text)
		}
	}
	if text := failed(client.ErrNotRunning, "").Content[0].(*mcp.TextContent).Text; !strings.Contains(text, "CONNECTION_CLOSED") {
		t.Error(text)
	}
}

// A repeated call of a client has the same key, and every other call a different one.
func TestKeys(t *testing.T) {
	n := 0
	s := &server{o: &Options{NewID: func() string { n++; return strings.Repeat("x", n) }}, nonce: "a"}
	create, grant := tools()[0], tools()[1]
	of := func(t *tool, id, args string) string {
		p := &mcp.CallToolParamsRaw{Arguments: []byte(args)}
		if id != "" {
			p.Meta = mcp.Meta{toolUse: id}
		}
		return s.key(t, p)
	}
	first := of(&create, "toolu_1", "{}")
	if of(&create, "toolu_1", "{}") != first {
		t.Error("the same call has another key")
	}
	for what, other := range map[string]string{
		"other arguments": of(&create, "toolu_1", `{"a":1}`), "another call": of(&create, "toolu_2", "{}"), "another tool": of(&grant, "toolu_1", "{}"), "no name": of(&create, "", "{}"),
	} {
		if other == first {
			t.Errorf("%s: the same key", what)
		}
	}
	if one, again := of(&create, "", "{}"), of(&create, "", "{}"); one == again {
		t.Error("two calls without a name have the same key")
	}
}

// If the advice is to repeat a call with its key and the call may have been done, the
// answer contains the key. An empty member that a model fills in is no key.
func TestKeyIsTold(t *testing.T) {
	for code, told := range map[api.Code]bool{api.Timeout: true, api.ConnectionClosed: true, api.UnknownError: true, api.InvalidParams: false, api.Conflict: false} {
		if text := failed(api.Errorf(code, "so"), "mcp-7").Content[0].(*mcp.TextContent).Text; strings.Contains(text, `"request_key":"mcp-7"`) != told {
			t.Errorf("%s: %s", code, text)
		}
	}
	for raw, want := range map[string]bool{"": true, "null": true, `""`: true, `"k"`: false, "7": false} {
		if got := unsaid([]byte(raw)); got != want {
			t.Errorf("%q says nothing: %t", raw, got)
		}
	}
}

// A client's arguments are an object without duplicate members, or are refused.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{"", "null", " null\n", "{}", `{"a":1,"a":2}`, "[]", `{"A":1,"a":2}`, `{"a":`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := arguments(raw)
		if err == nil && args == nil {
			t.Errorf("%q is nothing", raw)
		}
	})
}
