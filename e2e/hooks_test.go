//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// hookedRuntime is a runtime that runs ocipd hook before each call of a tool.
type hookedRuntime struct {
	name, shell, chat string
	// settings are its files, by name in its home; list is the one with MCP servers.
	settings map[string]string
	model    func(*standIn, http.ResponseWriter, map[string]any)
	env      func(url string) []string
	args     []string
	// off is an edit of a file with which it runs no hook, and says is how that is named.
	file, off, says string
	// project is a file of a project's with which it runs no hook there.
	project, projects string
}

const chatEntry = `{"mcpServers": {"chat": {"command": "node", "args": ["CHAT", "LOG"]TOOLS}}`

var hookedRuntimes = []hookedRuntime{
	{
		name: "gemini", shell: "run_shell_command", chat: "slack_post_message",
		settings: map[string]string{".gemini/settings.json": chatEntry + `, "security": {"auth": {"selectedType": "gemini-api-key"}}}` + "\n"},
		model:    geminiModel,
		env: func(url string) []string {
			return []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_CLI_TRUST_WORKSPACE=true"}
		},
		args: []string{"-m", "gemini-2.5-flash", "--yolo", "-p", "go on"},
		file: ".gemini/settings.json", off: `{"hooksConfig": {"enabled": false}, `, says: "hooksConfig.enabled is false, so that the hook does not run",
		project: ".gemini/settings.json", projects: `{"hooks": null}`,
	},
	{
		name: "copilot", shell: "bash", chat: "slack_post_message",
		settings: map[string]string{".copilot/mcp-config.json": strings.Replace(chatEntry, "TOOLS", `, "tools": ["*"]`, 1) + "}\n", ".copilot/settings.json": "{\"theme\": \"dark\"}\n"},
		model:    completionsModel,
		env: func(url string) []string {
			return []string{"COPILOT_PROVIDER_BASE_URL=" + url + "/v1", "COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false", "COPILOT_MODEL=gpt-4.1"}
		},
		args: []string{"--allow-all-tools", "-p", "go on"},
		file: ".copilot/hooks/ocipd.json", off: `{"disableAllHooks": true, `, says: "disableAllHooks is true, so that the hook does not run",
		project: ".github/copilot/settings.json", projects: `{"disableAllHooks": true}`,
	},
}

// A runtime with command hooks is put behind the daemon by one command. Each call of a tool is
// decided once, a denial reaches the model with its reason, and what a person has to approve waits.
// With the daemon stopped or frozen, or the program gone, nothing is called. Taken out again, its files
// are as before.
func TestHookedRuntimes(t *testing.T) {
	for i := range hookedRuntimes {
		h := &hookedRuntimes[i]
		t.Run(h.name, func(t *testing.T) { h.try(t) })
	}
}

func (h *hookedRuntime) try(t *testing.T) {
	node, err := filepath.Abs("hooks/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := beginWith(t, team, node)
	r.must(r.env(), r.ocipd, "policy", "new", dir+"/policy")
	r.write("ocipd.yaml", strings.Replace(toolTeam, "POLICY", dir+"/policy", 1))
	r.operate("policy", "reload")
	r.write(chatPath, chatServer)
	var names []string
	for name, text := range h.settings {
		r.write(name, strings.NewReplacer("CHAT", r.at(chatPath), "LOG", r.at("chat.log"), "TOOLS", "").Replace(text))
		names = append(names, name)
	}
	before := r.files(names...)
	env := r.env("XDG_RUNTIME_DIR=" + r.at("run"))
	// A copy of the program, which can be taken away.
	program := r.at("bin/ocipd")
	text, err := os.ReadFile(r.ocipd)
	if err != nil {
		t.Fatal(err)
	}
	r.write("bin/ocipd", string(text))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	ocipd := func(args ...string) string {
		return r.must(env, program, append([]string{"--config", r.at("ocipd.yaml"), "--socket", r.socket}, args...)...)
	}
	if plan := ocipd("integrate", h.name, "--agent", "ann", "--dry-run"); !strings.Contains(plan, "hook "+h.name) && !strings.Contains(plan, `"hook","`+h.name) || !strings.Contains(plan, "mcp-proxy") || r.files(names...) != before {
		t.Fatalf("a dry run says\n%s", plan)
	}
	if said := ocipd("integrate", h.name, "--agent", "ann"); !strings.Contains(said, "ok: it was refused") {
		t.Errorf("the canary:\n%s", said)
	}
	if again := ocipd("integrate", h.name, "--agent", "ann"); !strings.Contains(again, "nothing to change") {
		t.Errorf("a second time:\n%s", again)
	}
	run := func(s step) (told, out string) {
		return r.tool(h.model, func(api *standIn) (string, error) {
			return r.run(append(env, h.env(api.URL)...), h.name, h.args...)
		}, s)
	}
	command := func(line string) step {
		input, _ := json.Marshal(object{"command": line, "description": "x"})
		return step{h.shell, string(input)}
	}
	if told, out := run(command("git status")); !strings.Contains(told, "not a git repository") || r.count("tool_executing") != 1 {
		t.Errorf("a quiet command: %s, %d records\n%s", told, r.count("tool_executing"), out)
	}
	if told, out := run(command("curl https://example.com")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("a denied command: %s\n%s", told, out)
	}
	decided := r.count("tool_executing")
	if told, out := run(message("Is the build green?")); !strings.Contains(told, "sent") || !strings.Contains(r.said(), "Is the build green?") || r.count("tool_executing") != decided {
		t.Errorf("a message: %s, the server got %s; %d calls of tools were decided\n%s", told, r.said(), r.count("tool_executing")-decided, out)
	}
	if told, _ := run(message("The key is ghp_16C7e42F292c6912E7710c838347Ae178B4a.")); strings.Contains(r.said(), "ghp_") {
		t.Errorf("a secret was sent: %s", told)
	}
	done := make(chan string, 1)
	go func() {
		told, _ := run(command("touch " + r.at("done")))
		done <- told
	}()
	for !strings.Contains(r.operate("approvals", "list", "--json"), `"permission"`) {
		if len(done) > 0 {
			t.Fatalf("nobody was asked: %s", <-done)
		}
	}
	if _, err := os.Stat(r.at("done")); err == nil {
		t.Error("it was done before a person had approved it")
	}
	r.approveOne()
	if told := <-done; strings.Contains(told, "ocipd:") {
		t.Errorf("approved: %s", told)
	}
	if _, err := os.Stat(r.at("done")); err != nil {
		t.Error("what a person approved was not done")
	}
	// A setting with which no hook runs is named, and mended.
	kept := r.files(h.file)
	r.write(h.file, strings.Replace(kept, "{", h.off, 1))
	if told, _ := run(command("curl --version")); strings.Contains(told, "ocipd") {
		t.Errorf("with hooks off it has asked all the same: %s", told)
	}
	if out, err := r.run(env, program, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "doctor"); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), h.says) {
		t.Errorf("with hooks off, doctor says %v\n%s", err, out)
	}
	ocipd("integrate", h.name, "--agent", "ann")
	if told, out := run(command("curl --version")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("entered again, a denied command: %s\n%s", told, out)
	}
	// A project's setting of that kind is named in the project.
	r.write("project/"+h.project, h.projects)
	within := func(words ...string) []string {
		return append([]string{"-c", `cd "$0" && exec "$@"`, r.at("project")}, words...)
	}
	told, _ := r.tool(h.model, func(api *standIn) (string, error) {
		return r.run(append(append(env, "COPILOT_ALLOW_ALL=true"), h.env(api.URL)...), "/bin/sh", within(append([]string{h.name}, h.args...)...)...)
	}, command("curl --version"))
	if strings.Contains(told, "ocipd") {
		t.Errorf("with hooks off in a project it has asked all the same: %s", told)
	}
	if out, err := r.run(env, "/bin/sh", within(program, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "doctor")...); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "project/"+h.project+": ") {
		t.Errorf("with hooks off in a project, doctor says %v\n%s", err, out)
	}
	if err := os.RemoveAll(r.at("project")); err != nil {
		t.Fatal(err)
	}
	// Nobody answers.
	closed := func(how string) {
		t.Helper()
		said := r.said()
		for _, s := range []step{command("touch " + r.at("never")), message("Hello?")} {
			told, out := run(s)
			if _, err := os.Stat(r.at("never")); err == nil || r.said() != said {
				t.Errorf("%s, it was called: %s\n%s", how, told, out)
			}
		}
	}
	if err := r.daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closed("with the daemon frozen")
	if err := r.daemon.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.stopped()
	closed("without a daemon")
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	if told, out := run(command("touch " + r.at("never"))); told == "" {
		t.Errorf("without the program the model is told nothing\n%s", out)
	} else if _, err := os.Stat(r.at("never")); err == nil {
		t.Errorf("without the program it was called: %s\n%s", told, out)
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	ocipd("integrate", h.name, "--remove")
	// The edit was the user's, and is given back with the rest.
	for i, got := range strings.Split(r.files(names...), "\x00") {
		want := strings.Split(before, "\x00")[i]
		if names[i] == h.file {
			want = strings.Replace(want, "{", h.off, 1)
		}
		if got != want {
			t.Errorf("%s is\n%s\nwant\n%s", names[i], got, want)
		}
	}
	if text, err := os.ReadFile(r.at(h.file)); err == nil && strings.Contains(string(text), "hook "+h.name) {
		t.Errorf("%s still has the hook: %s", h.file, text)
	}
}

// Three commands lead a new user of Gemini CLI to the first denied calls: a message with a secret through a server of theirs,
// and a command with one. They are those of docs/guides/agent-runtimes.md.
func TestGeminiFirstUse(t *testing.T) {
	node, err := filepath.Abs("hooks/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	h := &hookedRuntimes[0]
	r := beginWith(t, team, node) // for its folder; its daemon is another one
	env := r.env("USER=dana", "XDG_STATE_HOME="+r.at("state"), "XDG_RUNTIME_DIR="+r.at("runtime"))
	r.write("runtime/x", "")
	r.write(chatPath, chatServer)
	for name, text := range h.settings {
		r.write(name, strings.NewReplacer("CHAT", r.at(chatPath), "LOG", r.at("chat.log"), "TOOLS", "").Replace(text))
	}
	t.Log(r.must(env, r.ocipd, "config", "init", "--app", "gemini", "--yes"))
	daemon := exec.Command(r.ocipd, "serve")
	daemon.Env, daemon.Stderr = env, t.Output()
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	})
	r.must(env, r.ocipd, "status", "--wait", "20s")
	said := r.must(env, r.ocipd, "integrate", "gemini")
	t.Log(said)
	if !strings.Contains(said, "ok: it was refused, see record") {
		t.Fatalf("integrated:\n%s", said)
	}
	run := func(s step) string {
		told, out := r.tool(h.model, func(api *standIn) (string, error) {
			return r.run(append(env, h.env(api.URL)...), h.name, h.args...)
		}, s)
		t.Logf("the model is told: %s\nthe user sees: %s", told, out)
		return told
	}
	if told := run(message("The key is " + secret)); !strings.Contains(told, "ocipd: refused (CLASSIFICATION_VIOLATION)") || r.said() != "" {
		t.Errorf("the first message: %s; the server got %s", told, r.said())
	}
	line, err := json.Marshal(object{"command": "echo " + secret + " >" + r.at("leaked"), "description": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if told := run(step{h.shell, string(line)}); !strings.Contains(told, "has a secret in it") {
		t.Errorf("the first command: %s", told)
	}
	if _, err := os.Stat(r.at("leaked")); err == nil {
		t.Error("the command with the secret was run")
	}
}

// geminiModel answers as the Gemini API does.
func geminiModel(s *standIn, w http.ResponseWriter, asked map[string]any) {
	var results, offered []string
	contents, _ := asked["contents"].([]any)
	for _, one := range contents {
		content, _ := one.(object)
		parts, _ := content["parts"].([]any)
		for _, part := range parts {
			if part, _ := part.(object); part["functionResponse"] != nil {
				text, _ := json.Marshal(part["functionResponse"])
				results = append(results, string(text))
			}
		}
	}
	tools, _ := asked["tools"].([]any)
	for _, one := range tools {
		tool, _ := one.(object)
		list, _ := tool["functionDeclarations"].([]any)
		for _, f := range list {
			name, _ := f.(object)["name"].(string)
			offered = append(offered, name)
		}
	}
	part := object{"text": s.says}
	if call, name, ok := s.next(results, offered); ok {
		part = object{"functionCall": object{"name": name, "args": json.RawMessage(call.input)}}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	text, _ := json.Marshal(object{
		"candidates":    []any{object{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	})
	fmt.Fprintf(w, "data: %s\n\n", text)
}

// completionsModel answers as the Chat Completions API does.
func completionsModel(s *standIn, w http.ResponseWriter, asked map[string]any) {
	var results, offered []string
	messages, _ := asked["messages"].([]any)
	for _, one := range messages {
		if message, _ := one.(object); message["role"] == "tool" {
			text, _ := json.Marshal(message["content"])
			results = append(results, string(text))
		}
	}
	tools, _ := asked["tools"].([]any)
	for _, one := range tools {
		tool, _ := one.(object)
		f, _ := tool["function"].(object)
		name, _ := f["name"].(string)
		offered = append(offered, name)
	}
	delta, reason := object{"role": "assistant", "content": s.says}, "stop"
	if call, name, ok := s.next(results, offered); ok {
		delta, reason = object{"role": "assistant", "tool_calls": []any{object{"index": 0, "id": "c1", "type": "function", "function": object{"name": name, "arguments": call.input}}}}, "tool_calls"
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, choice := range []object{{"index": 0, "delta": delta}, {"index": 0, "delta": object{}, "finish_reason": reason}} {
		event(w, "message", object{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": []any{choice}, "usage": object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}
