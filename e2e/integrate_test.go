//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/codexprobe"
)

// toolTeam is a team whose tool calls go by the example of ocipd policy new.
const toolTeam = team + `
tools: enforce
policy: {path: POLICY}
`

// beginTools starts a daemon with that policy.
func beginTools(t *testing.T) *trial {
	t.Helper()
	dir := t.TempDir()
	r := begin(t)
	r.must(r.env(), r.ocipd, "policy", "new", dir+"/policy")
	r.write("ocipd.yaml", strings.Replace(toolTeam, "POLICY", dir+"/policy", 1))
	r.operate("policy", "reload")
	return r
}

// claudeEnv is the environment of a Claude Code of its own.
func (r *trial) claudeEnv(name string, api *standIn) []string {
	url := ""
	if api != nil {
		url = api.URL
	}
	return r.env("CLAUDE_CONFIG_DIR="+r.at(name), "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY=none", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false")
}

func shell(command string) step {
	input, _ := json.Marshal(object{"command": command, "description": "x"})
	return step{"Bash", string(input)}
}

// chatPath is where its package would be: a server that only calls itself Slack is asked about.
const chatPath = "node_modules/@modelcontextprotocol/server-slack/chat.js"

// chatServer is an MCP server that a map is for, with a tool that sends, as a script: it keeps what it is
// called with.
const chatServer = `#!/usr/bin/env node
const fs = require("fs"), rl = require("readline").createInterface({input: process.stdin});
const say = (id, result) => process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, result}) + "\n");
rl.on("line", (line) => {
  const m = JSON.parse(line);
  if (m.method === "initialize") say(m.id, {protocolVersion: "2025-06-18", capabilities: {tools: {}}, serverInfo: {name: "Slack MCP Server", version: "1"}});
  else if (m.method === "tools/list") say(m.id, {tools: [{name: "slack_post_message", description: "Send.", inputSchema: {type: "object", properties: {channel_id: {type: "string"}, text: {type: "string"}}, required: ["channel_id", "text"]}}]});
  else if (m.method === "tools/call") { fs.appendFileSync(process.argv[2], JSON.stringify(m.params.arguments) + "\n"); say(m.id, {content: [{type: "text", text: "sent"}]}); }
  else if (m.id !== undefined) process.stdout.write(JSON.stringify({jsonrpc: "2.0", id: m.id, error: {code: -32601, message: "no"}}) + "\n");
});
`

// said is what the chat server was called with.
func (r *trial) said() string {
	text, _ := os.ReadFile(r.at("chat.log"))
	return string(text)
}

// message is a call of the chat server's tool.
func message(text string) step {
	input, _ := json.Marshal(object{"channel_id": "C1", "text": text})
	return step{"slack_post_message", string(input)}
}

// integrate runs ocipd integrate in an environment.
func (r *trial) integrate(env []string, args ...string) string {
	r.t.Helper()
	return r.must(wide(env), r.ocipd, append([]string{"--config", r.at("ocipd.yaml"), "--socket", r.socket, "integrate"}, args...)...)
}

// wide is an environment in which tables fold no cell.
func wide(env []string) []string { return append(slices.Clone(env), "COLUMNS=1000") }

// approveOne approves the one request that waits.
func (r *trial) approveOne() {
	r.t.Helper()
	var asked struct {
		ID string `json:"approvalId"`
	}
	line, _, _ := strings.Cut(r.operate("approvals", "list", "--json"), "\n")
	if err := json.Unmarshal([]byte(line), &asked); err != nil {
		r.t.Fatalf("nothing waits: %q %v", line, err)
	}
	r.decide("approve", asked.ID)
}

func (r *trial) decide(what, id string) {
	r.t.Helper()
	var shown struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(r.operate("approvals", "show", id, "--json")), &shown); err != nil {
		r.t.Fatal(err)
	}
	args := []string{"approvals", what, id, "--yes"}
	if what == "approve" {
		args = append(args, "--digest", shown.Digest)
	}
	r.operate(args...)
}

// stopped stops the daemon.
func (r *trial) stopped() {
	r.t.Helper()
	_ = r.daemon.Process.Signal(os.Interrupt)
	_ = r.daemon.Wait()
}

// count is how many records there are of an event.
func (r *trial) count(event string) int {
	r.t.Helper()
	return strings.Count(r.operate("audit", "query", "--json", "--event", event), "\n")
}

// tool has a runtime's model make one call, and returns what the model is told, and the
// output.
func (r *trial) tool(model func(*standIn, http.ResponseWriter, map[string]any), run func(*standIn) (string, error), s step) (told, out string) {
	r.t.Helper()
	api := newStandIn(r.t, model, s)
	out, err := run(api)
	results, calls := api.outcome()
	if calls != 1 {
		r.t.Fatalf("the model made %d calls: %s %v", calls, out, err)
	}
	return strings.Join(results, "\n"), out
}

// Claude Code is put behind the daemon by one command: what its agent sends goes by the
// proxy, and each other call of a tool is decided once, before it is made. With the daemon
// stopped nothing is called. Taken out again, its files are what they were.
func TestClaudeCodeIntegrated(t *testing.T) {
	r := beginTools(t)
	r.write(chatPath, chatServer)
	r.write("c/.claude.json", "{\"mcpServers\": {\"chat\": {\"command\": \"node\", \"args\": [\""+r.at(chatPath)+"\", \""+r.at("chat.log")+"\"]}}}\n")
	r.write("c/settings.json", "{\"permissions\": {\"allow\": [\"Bash\", \"mcp__chat\"]}}\n")
	before := r.files("c/.claude.json", "c/settings.json")
	env := r.claudeEnv("c", nil)
	if plan := r.integrate(env, "claude-code", "--agent", "ann", "--dry-run"); !strings.Contains(plan, "onFailure") || !strings.Contains(plan, "mcp-proxy") || r.files("c/.claude.json", "c/settings.json") != before {
		t.Fatalf("a dry run says\n%s", plan)
	}
	r.integrate(env, "claude-code", "--agent", "ann")
	if again := r.integrate(env, "claude-code", "--agent", "ann"); !strings.Contains(again, "nothing to change") {
		t.Errorf("a second time:\n%s", again)
	}
	if list := r.integrate(env); !strings.Contains(list, "decided by the daemon before each call") {
		t.Errorf("listed as\n%s", list)
	}
	run := func(args ...string) func(*standIn) (string, error) {
		return func(api *standIn) (string, error) {
			return r.run(r.claudeEnv("c", api), "claude", append([]string{"-p", "--output-format", "json"}, args...)...)
		}
	}
	told, _ := r.tool(claudeModel, run("go on"), shell("git status"))
	if !strings.Contains(told, "not a git repository") || r.count("tool_executing") != 1 {
		t.Errorf("a quiet command: %s, %d records", told, r.count("tool_executing"))
	}
	if told, _ := r.tool(claudeModel, run("go on"), shell("curl https://example.com")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("a denied command: %s", told)
	}
	told, out := r.tool(claudeModel, run("go on"), shell("touch "+r.at("done")))
	var ended struct {
		Stop    string `json:"stop_reason"`
		Session string `json:"session_id"`
	}
	if err := json.Unmarshal([]byte(out), &ended); err != nil || ended.Stop != "tool_deferred" || told != "" {
		t.Fatalf("held: %s %s %v", told, out, err)
	}
	r.approveOne()
	api := newStandIn(t, claudeModel)
	if out, err := r.run(r.claudeEnv("c", api), "claude", "-p", "", "--resume", ended.Session, "--output-format", "json"); err != nil {
		t.Errorf("resumed: %s %v", out, err)
	}
	if _, err := os.Stat(r.at("done")); err != nil {
		t.Error("what a person approved was not done")
	}
	decided := r.count("tool_executing")
	told, _ = r.tool(claudeModel, run("go on"), message("Is the build green?"))
	if !strings.Contains(told, "sent") || !strings.Contains(r.said(), "Is the build green?") || r.count("tool_executing") != decided {
		t.Errorf("a message: %s, the server got %s; %d calls of tools were decided", told, r.said(), r.count("tool_executing")-decided)
	}
	if told, _ = r.tool(claudeModel, run("go on"), message("The key is ghp_16C7e42F292c6912E7710c838347Ae178B4a.")); strings.Contains(r.said(), "ghp_") {
		t.Errorf("a secret was sent: %s", told)
	}
	// Edits after which Claude Code itself asks nobody: each is named, and mended.
	const off = `{"disableAllHooks": true, `
	for _, edit := range []struct{ name, was, now, says string }{
		{"another matcher", `"matcher":"*"`, `"matcher":"Nothing"`, `matcher is "Nothing"`},
		{"a condition", `"type":"mcp_tool"`, `"if":"Bash(nothing)","type":"mcp_tool"`, "if was not entered"},
		{"hooks are off", "{", off, "disableAllHooks is true"},
	} {
		name, file := edit.name, "c/settings.json"
		r.write(file, strings.Replace(r.files(file), edit.was, edit.now, 1))
		if told, _ := r.tool(claudeModel, run("go on"), shell("curl --version")); strings.Contains(told, "ocipd") {
			t.Errorf("%s: Claude Code has asked all the same: %s", name, told)
		}
		if list := r.integrate(env, "--json"); !strings.Contains(list, edit.says[:5]) || strings.Contains(list, `"why":"decided by the daemon before each call"`) {
			t.Errorf("%s: listed as\n%s", name, list)
		}
		if out, err := r.run(env, r.ocipd, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "doctor"); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), edit.says) {
			t.Errorf("%s: doctor says %v\n%s", name, err, out)
		}
		if name == "hooks are off" {
			r.alarm(env, edit.says)
		}
		r.integrate(env, "claude-code", "--agent", "ann")
		if told, _ := r.tool(claudeModel, run("go on"), shell("curl --version")); !strings.Contains(told, "a shell command names curl") {
			t.Errorf("%s: entered again, a denied command: %s", name, told)
		}
	}
	r.stopped()
	if told, _ := r.tool(claudeModel, run("go on"), shell("git status")); strings.Contains(told, "not a git repository") || !strings.Contains(told, "could not be decided") {
		t.Errorf("without a daemon: %s", told)
	}
	said := r.said()
	if told, _ := r.tool(claudeModel, run("go on"), message("Hello?")); r.said() != said {
		t.Errorf("without a daemon it sent: %s", told)
	}
	// Claude Code writes into its own file meanwhile; what it did not touch is as before. That hooks are off was the
	// user's edit, and is given back with the rest.
	r.integrate(env, "claude-code", "--remove")
	if got := r.files("c/settings.json"); got != strings.Replace(strings.Split(before, "\x00")[1], "{", off, 1) {
		t.Errorf("settings.json is\n%s", got)
	}
	if got := r.files("c/.claude.json"); strings.Contains(got, "ocipd-gate") || strings.Contains(got, "mcp-proxy") || !strings.Contains(got, "chat.js") {
		t.Errorf(".claude.json is\n%s", got)
	}
}

// alarm has Claude Code run until the daemon has seen that its gate is loose.
func (r *trial) alarm(env []string, why string) {
	r.t.Helper()
	held := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-held:
		case <-q.Context().Done():
		}
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer api.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.run(append(env, "ANTHROPIC_BASE_URL="+api.URL), "claude", "-p", "go on") // it is told no answer
	}()
	said := ""
	for until, tick := time.Now().Add(patience), time.NewTicker(time.Second); time.Now().Before(until) && !strings.Contains(said, why); {
		<-tick.C
		said = r.operate("status", "--json")
	}
	if !strings.Contains(said, why) || r.count("gateway_ungated") == 0 {
		r.t.Errorf("while it runs there is no alarm: %s", said)
	}
	close(held)
	<-done
}

// Codex is put behind the daemon by one command: its hooks are trusted, a server that no
// proxy can stand before is called only where the daemon lets it, and with the daemon
// stopped nothing is sent or called through servers.
func TestCodexIntegrated(t *testing.T) {
	r := beginTools(t)
	r.write(chatPath, chatServer)
	web := newWebServer(t, "")
	config := func(url string) string {
		return fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n[mcp_servers.chat]\ncommand = \"node\"\nargs = [\"%s\", \"%s\"]\ndefault_tools_approval_mode = \"approve\"\n[mcp_servers.web]\nurl = \"%s\"\n",
			url, r.at(chatPath), r.at("chat.log"), web.URL)
	}
	env := r.env("CODEX_HOME="+r.at("x"), "STANDIN=none")
	// The model's address is in the file, so one stands before all of them.
	var model http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { model.ServeHTTP(w, q) }))
	t.Cleanup(api.Close)
	r.write("x/config.toml", config(api.URL))
	before := r.files("x/config.toml")
	// The daemon is found by a variable that Codex gives to nothing that it starts.
	if err := os.MkdirAll(r.at("session"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.at("run"), r.at("session/openclawos")); err != nil {
		t.Fatal(err)
	}
	if said := r.must(append(env, "XDG_RUNTIME_DIR="+r.at("session")), r.ocipd, "--config", r.at("ocipd.yaml"), "integrate", "codex", "--agent", "ann"); !strings.Contains(said, "ok: it was refused") {
		t.Errorf("the canary:\n%s", said)
	}
	env = append(env, "XDG_RUNTIME_DIR="+r.at("session"))
	if again := r.must(env, r.ocipd, "--config", r.at("ocipd.yaml"), "integrate", "codex", "--agent", "ann"); !strings.Contains(again, "nothing to change") {
		t.Errorf("a second time:\n%s", again)
	}
	// What this Codex asks about is known, and listed.
	for says, way := range map[string]codexprobe.Way{"typed into a shell that is open": codexprobe.Typing, "scripts of Code Mode": codexprobe.Scripting} {
		asks, err := codexprobe.Asked(t.Context(), filepath.Join(r.node, "codex"), way)
		if list := r.integrate(env); err != nil || strings.Contains(list, says) == asks {
			t.Errorf("%s: it asks: %t, %v, and is listed as\n%s", says, asks, err, list)
		}
	}
	open := false
	run := func(s step) (string, string) {
		return r.tool(codexModel, func(of *standIn) (string, error) {
			model = of.Config.Handler
			// The shell's own sandbox does not work in a folder for temporary files.
			sandbox := "read-only"
			if s.tool == "exec_command" || open {
				sandbox = "danger-full-access"
			}
			return r.run(env, "codex", "exec", "--sandbox", sandbox, "--skip-git-repo-check", "go on")
		}, s)
	}
	if told, out := run(shellOfCodex("git status")); r.count("tool_executing") != 1 {
		t.Errorf("a quiet command: %s, %d records\n%s", told, r.count("tool_executing"), out)
	}
	if told, out := run(shellOfCodex("curl https://example.com")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("a denied command: %s\n%s", told, out)
	}
	decided := r.count("tool_executing")
	if told, out := run(message("Is the build green?")); !strings.Contains(told, "sent") || !strings.Contains(r.said(), "Is the build green?") || r.count("tool_executing") != decided {
		t.Errorf("a message: %s, the server got %s; %d calls of tools were decided\n%s", told, r.said(), r.count("tool_executing")-decided, out)
	}
	if told, out := run(step{"look", `{"word":"x"}`}); !strings.Contains(told, "found") || r.count("tool_executing") != decided+1 {
		t.Errorf("a server over HTTP: %s, %d records\n%s", told, r.count("tool_executing")-decided, out)
	}
	open = true
	if told, out := run(step{"look", `{"word":"x"}`}); !strings.Contains(told, "found") || r.count("tool_executing") != decided+2 {
		t.Errorf("a server over HTTP, without a sandbox: %s, %d records\n%s", told, r.count("tool_executing")-decided, out)
	}
	open = false
	// A person decides while the call waits.
	done := make(chan string, 1)
	go func() {
		told, _ := run(shellOfCodex("touch " + r.at("done")))
		done <- told
	}()
	for tick := time.NewTicker(200 * time.Millisecond); len(done) == 0 && !strings.Contains(r.operate("approvals", "list", "--json"), `"permission"`); {
		<-tick.C
	}
	r.approveOne()
	if told := <-done; strings.Contains(told, "ocipd:") {
		t.Errorf("approved: %s", told)
	}
	// An edit after which Codex asks nobody is named, and mended.
	const off = "features.hooks = false\n"
	r.write("x/config.toml", off+r.files("x/config.toml"))
	if told, _ := run(shellOfCodex("curl --version")); strings.Contains(told, "ocipd") {
		t.Errorf("with hooks off, Codex has asked all the same: %s", told)
	}
	if out, err := r.run(env, r.ocipd, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "doctor"); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "features.hooks") {
		t.Errorf("with hooks off, doctor says %v\n%s", err, out)
	}
	r.integrate(env, "codex", "--agent", "ann")
	if told, out := run(shellOfCodex("curl --version")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("entered again, a denied command: %s\n%s", told, out)
	}
	r.stopped()
	looked, said := web.calls.Load(), r.said()
	for _, s := range []step{message("Hello?"), {"look", `{"word":"y"}`}, shellOfCodex("git status")} {
		if told, out := run(s); !strings.Contains(told, "ocipd") {
			t.Errorf("without a daemon %s: %s\n%s", s.tool, told, out)
		}
	}
	if r.said() != said || web.calls.Load() != looked {
		t.Error("without a daemon a server was called")
	}
	r.integrate(env, "codex", "--remove")
	// The edit was the user's, and is given back with the rest.
	if got := r.files("x/config.toml"); got != off+before {
		t.Errorf("config.toml is\n%s\nwant\n%s", got, off+before)
	}
	if _, err := os.Stat(r.at("x/hooks.json")); err == nil {
		t.Error("hooks.json is still there")
	}
}

// shellOfCodex is a call of Codex's shell.
func shellOfCodex(command string) step {
	input, _ := json.Marshal(object{"cmd": command, "command": command})
	return step{"exec_command", string(input)}
}

// webServer is an MCP server over HTTP with a tool that looks, which wants its clients to log
// in; or with one that sends, which wants the header that is named.
type webServer struct {
	*httptest.Server
	calls atomic.Int32
	sent  atomic.Value
}

func newWebServer(t *testing.T, header string) *webServer {
	w := new(webServer)
	w.sent.Store("")
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments json.RawMessage }
		}
		if header == "" && strings.HasPrefix(q.URL.Path, "/.well-known/oauth-protected-resource") {
			fmt.Fprintf(rw, `{"resource":"http://%s","authorization_servers":["http://%s"]}`, q.Host, q.Host)
			return
		}
		if header != "" && q.Header.Get("Authorization") != header {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		if q.Method != http.MethodPost || json.NewDecoder(q.Body).Decode(&m) != nil {
			rw.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := ""
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"look","description":"Look.","inputSchema":{"type":"object","properties":{"word":{"type":"string"}}}}]}`
			if header != "" {
				result = `{"tools":[{"name":"send_message","description":"Send.","inputSchema":{"type":"object","properties":{"to":{"type":"string"},"text":{"type":"string"}}}}]}`
			}
		case "tools/call":
			w.calls.Add(1)
			w.sent.Store(w.sent.Load().(string) + string(m.Params.Arguments) + "\n")
			result = `{"content":[{"type":"text","text":"found"}]}`
		}
		rw.Header().Set("Content-Type", "application/json")
		switch {
		case m.ID == nil:
			rw.WriteHeader(http.StatusAccepted)
		case result == "":
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		default:
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// files are the texts of some files.
func (r *trial) files(names ...string) string {
	r.t.Helper()
	var list []string
	for _, name := range names {
		text, err := os.ReadFile(r.at(name))
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, string(text))
	}
	return strings.Join(list, "\x00")
}
