package hook

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// conversations are what the programs asked: of those with a version in Run as they were recorded,
// with other values for what a machine says of itself, and of the others as they are documented.
var conversations = []struct {
	runtime, asks, tool, server, name, session, folder, call string
	unsure, foreign                                          bool
	input, allow, deny                                       string
}{
	{
		runtime: "claude-code",
		asks:    `{"session_id":"s1","transcript_path":"/t","cwd":"/w","prompt_id":"p","permission_mode":"default","effort":{"level":"medium"},"hook_event_name":"PreToolUse","tool_name":"mcp__chat__send_message","tool_input":{"to":"dave","text":"hello dave"},"tool_use_id":"toolu_1","mcp_server":{"name":"chat","source":"dynamic"}}`,
		tool:    "mcp__chat__send_message", session: "s1", folder: "/w", call: "toolu_1",
		input: `{"to":"dave","text":"hello dave"}`,
		deny:  `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no \"way\"\n"}}`,
	},
	{
		runtime: "codex",
		asks:    `{"session_id":"s1","turn_id":"t","transcript_path":null,"cwd":"/w","hook_event_name":"PreToolUse","model":"m","permission_mode":"bypassPermissions","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"call_1"}`,
		tool:    "Bash", session: "s1", folder: "/w", call: "call_1",
		input: `{"command":"ls"}`,
		deny:  `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no \"way\"\n"}}`,
	},
	{
		runtime: "gemini",
		asks:    `{"session_id":"s1","transcript_path":"/t","cwd":"/w","hook_event_name":"BeforeTool","timestamp":"2026-11-28T17:11:57.920Z","tool_name":"run_shell_command","tool_input":{"command":"touch ran","description":"x"}}`,
		tool:    "run_shell_command", session: "s1", folder: "/w",
		input: `{"command":"touch ran","description":"x"}`,
		allow: `{}`, deny: `{"decision":"deny","reason":"no \"way\"\n"}`,
	},
	{
		runtime: "gemini",
		asks:    `{"session_id":"s1","transcript_path":"/t","cwd":"/w","hook_event_name":"BeforeTool","timestamp":"2026-11-28T17:29:08.009Z","tool_name":"mcp_chat_send_it","tool_input":{"to":"bob","text":"hi"},"mcp_context":{"server_name":"chat","tool_name":"send_it","command":"node","args":["/chat.js"]}}`,
		tool:    "mcp_chat_send_it", server: "chat", name: "send_it", session: "s1", folder: "/w",
		input: `{"to":"bob","text":"hi"}`,
		allow: `{}`, deny: `{"decision":"deny","reason":"no \"way\"\n"}`,
	},
	{
		runtime: "copilot",
		asks:    `{"sessionId":"s1","timestamp":1795886153399,"cwd":"/w","toolName":"bash","toolArgs":{"command":"touch ran","description":"x"}}`,
		tool:    "bash", session: "s1", folder: "/w",
		input: `{"command":"touch ran","description":"x"}`,
		allow: `{}`, deny: `{"permissionDecision":"deny","permissionDecisionReason":"no \"way\"\n"}`,
	},
	{
		runtime: "copilot",
		asks:    `{"sessionId":"s1","timestamp":1795886153399,"cwd":"/w","toolName":"chat-send_it","toolArgs":{"to":"bob","text":"hi"}}`,
		tool:    "chat-send_it", server: "chat", name: "send_it", session: "s1", folder: "/w",
		input: `{"to":"bob","text":"hi"}`,
		allow: `{}`, deny: `{"permissionDecision":"deny","permissionDecisionReason":"no \"way\"\n"}`,
	},
	{
		runtime: "copilot",
		asks:    `{"sessionId":"s1","timestamp":1,"cwd":"/w","toolName":"chat-send-it","toolArgs":"{\"to\":\"bob\"}"}`,
		tool:    "chat-send-it", server: "chat", name: "send-it", unsure: true, session: "s1", folder: "/w",
		input: `{"to":"bob"}`,
		allow: `{}`, deny: `{"permissionDecision":"deny","permissionDecisionReason":"no \"way\"\n"}`,
	},
	{
		runtime: "cursor",
		asks:    `{"conversation_id":"c1","generation_id":"g","hook_event_name":"preToolUse","cursor_version":"2.4.0","workspace_roots":["/w"],"tool_name":"Shell","tool_input":{"command":"ls","working_directory":"/w"},"tool_use_id":"t1","cwd":"/w"}`,
		tool:    "Shell", session: "c1", folder: "/w", call: "t1",
		input: `{"command":"ls","working_directory":"/w"}`,
		allow: `{"permission":"allow"}`, deny: `{"permission":"deny","user_message":"no \"way\"\n","agent_message":"no \"way\"\n"}`,
	},
	{
		runtime: "cursor",
		asks:    `{"conversation_id":"c1","hook_event_name":"preToolUse","tool_name":"MCP:send_it","tool_input":{"to":"bob"},"cwd":"/w"}`,
		tool:    "MCP:send_it", foreign: true, session: "c1", folder: "/w",
		input: `{"to":"bob"}`,
		allow: `{"permission":"allow"}`, deny: `{"permission":"deny","user_message":"no \"way\"\n","agent_message":"no \"way\"\n"}`,
	},
	{
		runtime: "goose",
		asks:    `{"event":"PreToolUse","session_id":"s1","matcher_context":"developer__shell","tool_call_id":"t1","tool_name":"developer__shell","tool_input":{"command":"ls"},"working_dir":"/w"}`,
		tool:    "developer__shell", session: "s1", folder: "/w", call: "t1",
		input: `{"command":"ls"}`,
		allow: `{"decision":"allow"}`, deny: `{"decision":"block","reason":"no \"way\"\n"}`,
	},
	{
		runtime: "goose",
		asks:    `{"event":"PreToolUse","session_id":"s1","tool_name":"chat__send","tool_input":{},"working_dir":"/w"}`,
		tool:    "chat__send", server: "chat", name: "send", session: "s1", folder: "/w",
		input: `{}`,
		allow: `{"decision":"allow"}`, deny: `{"decision":"block","reason":"no \"way\"\n"}`,
	},
}

// Each runtime's question is understood, and each verdict is said in its own form.
func TestConversations(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, tt := range conversations {
		seen[tt.runtime] = true
		r := Find(tt.runtime)
		q, event, err := r.Read([]byte(tt.asks))
		if err != nil {
			t.Errorf("%s: %v", tt.runtime, err)
			continue
		}
		want := toolgate.Question{Event: toolgate.Before, Tool: tt.tool, Folder: tt.folder, Session: tt.session, Call: tt.call, Server: tt.server, Name: tt.name, Unsure: tt.unsure, Foreign: tt.foreign}
		if tt.runtime == "claude-code" {
			want.Source = "dynamic"
		}
		input := string(q.Input)
		q.Input = nil
		if input != tt.input || !reflect.DeepEqual(*q, want) {
			t.Errorf("%s %s: read %+v %s, want %+v %s", tt.runtime, tt.tool, *q, input, want, tt.input)
		}
		for verdict, said := range map[string]string{toolgate.Allow: tt.allow, toolgate.Deny: tt.deny} {
			got := r.Say(event, toolgate.Verdict{Decision: verdict, Reason: "no \"way\"\n"})
			if strings.TrimSpace(string(got.Out)) != said || got.Exit != 0 || len(got.Err) > 0 {
				t.Errorf("%s: %s is said as %q %q %d, want %q", tt.runtime, verdict, got.Out, got.Err, got.Exit, said)
			}
			if r.Refused(got.Out, got.Exit) != (verdict == toolgate.Deny) {
				t.Errorf("%s: %q counts as %t", tt.runtime, got.Out, r.Refused(got.Out, got.Exit))
			}
		}
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("there is no conversation of %s", name)
		}
	}
}

// A question that is not understood is refused, and the reason names the fault.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, runtime, asks, want string }{
		{"no JSON", "gemini", `hello`, "no JSON object"},
		{"cut JSON", "gemini", `{"hook_event_name":"BeforeTool"`, "no JSON object"},
		{"a list", "copilot", `[]`, "no JSON object: it is an array"},
		{"null", "copilot", `null`, "no JSON object: it is null"},
		{"nothing", "goose", ``, "no JSON object: it is empty"},
		{"more behind it", "cursor", `{}{}`, "no JSON object"},
		{"a member twice", "gemini", `{"hook_event_name":"BeforeTool","tool_name":"a","tool_name":"b","tool_input":{}}`, "duplicate"},
		{"a member in another case", "copilot", `{"toolname":"bash","toolArgs":{}}`, "has no toolName"},
		{"no event", "gemini", `{"tool_name":"x","tool_input":{}}`, "has no hook_event_name, which Gemini CLI gives"},
		{"another event", "goose", `{"event":"Stop","tool_name":"x","tool_input":{}}`, `"Stop", which is not about a call of a tool`},
		{"an event that is a number", "goose", `{"event":1}`, "event is no text"},
		{"no tool", "cursor", `{"hook_event_name":"preToolUse","tool_input":{}}`, "has no tool_name"},
		{"no arguments", "codex", `{"hook_event_name":"PreToolUse","tool_name":"Bash"}`, "has no tool_input"},
		{"arguments that are none", "copilot", `{"toolName":"bash","toolArgs":[1]}`, "the tool's input is no JSON object"},
		{"a folder that is none", "copilot", `{"toolName":"bash","toolArgs":{},"cwd":7}`, "cwd is no text"},
		{"a server without its tool", "gemini", `{"hook_event_name":"BeforeTool","tool_name":"x","tool_input":{},"mcp_context":{"server_name":"chat"}}`, "of which one is missing"},
		{"a server that is a text", "gemini", `{"hook_event_name":"BeforeTool","tool_name":"x","tool_input":{},"mcp_context":"chat"}`, "the input of the hook"},
	} {
		r := Find(tt.runtime)
		_, event, err := r.Read([]byte(tt.asks))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			continue
		}
		said := r.refuse(event, err)
		if !r.Refused(said.Out, said.Exit) {
			t.Errorf("%s: it is answered %q", tt.name, said.Out)
		}
	}
}

// A request for permission has its own form, and an answer that a runtime lacks is a denial.
func TestForms(t *testing.T) {
	t.Parallel()
	r := Find("codex")
	q, event, err := r.Read([]byte(`{"hook_event_name":"PermissionRequest","tool_name":"mcp__chat__send","tool_input":{}}`))
	if err != nil || q.Event != toolgate.Permission {
		t.Fatalf("%+v %v", q, err)
	}
	for decision, want := range map[string]string{
		toolgate.Allow: `"behavior":"allow"`, toolgate.Deny: `"behavior":"deny","message":"why"`, toolgate.Defer: `"behavior":"deny"`, "": `"behavior":"deny"`, toolgate.Leave: "",
	} {
		if got := string(r.Say(event, toolgate.Verdict{Decision: decision, Reason: "why"}).Out); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q is said as %q", decision, got)
		}
	}
	for _, name := range Names() {
		said := Find(name).Say(nil, toolgate.Verdict{Decision: "perhaps", Reason: "\xff"})
		if !Find(name).Refused(said.Out, said.Exit) {
			t.Errorf("%s: an unknown decision is said as %q", name, said.Out)
		}
	}
	if out := r.Say(&r.Events[0], toolgate.Verdict{Decision: toolgate.Defer}).Out; !strings.Contains(string(out), "deny") {
		t.Errorf("Codex cannot defer: %q", out)
	}
}

// Each runtime's form of a canary is read back as one.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		r := Find(name)
		raw, err := r.Write(&toolgate.Question{Tool: "mcp__" + toolgate.Canary + "__send", Server: toolgate.Canary, Name: "send", Input: jsontext.Value(`{"to":"x","text":"y"}`), Session: "s"})
		if err != nil {
			t.Fatal(err)
		}
		q, _, err := r.Read(raw)
		if err != nil || !q.Canary() || string(q.Input) != `{"to":"x","text":"y"}` || q.Session != "s" {
			t.Errorf("%s: %s is read as %+v %v", name, raw, q, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range conversations {
		f.Add(c.runtime, []byte(c.asks))
	}
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		r := Find(name)
		if r == nil {
			return
		}
		q, event, err := r.Read(raw)
		if err == nil && (q.Tool == "" || q.Input.Kind() != '{' || event == nil || (q.Server == "") != (q.Name == "")) {
			t.Fatalf("%q was read as %+v", raw, q)
		}
		if err != nil {
			said := r.refuse(event, err)
			if !r.Refused(said.Out, said.Exit) || !jsontext.Value(said.Out).IsValid() {
				t.Fatalf("%q is answered %q", raw, said.Out)
			}
		}
	})
}
