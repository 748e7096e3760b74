//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gateway is a running Gateway of OpenClaw with two agents and a model of the test.
type gateway struct {
	*trial
	url string
	*model
}

// model answers as an OpenAI-compatible API does: it makes the call that an operator asks
// it for, tells its secret where it is asked for one, and else says ok.
type model struct {
	mu     sync.Mutex
	bodies []string
	// named are the tools that it calls where it is asked for a call, with blanks between them:
	// sessions_send unless said. told is what the tools of the last call have answered.
	named, told string
	// skips has it answer what is no question with the host's word for saying nothing.
	skips bool
}

const asksForCall, asksForSecret = "with these arguments: {", "Tell me the key."

// key stands for the secret in what the model is asked for.
const key = "THE-KEY"

var secret = "sk-ant-api03-" + strings.Repeat("aB3", 31) + "AA"

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream   bool `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &asked)
	m.mu.Lock()
	m.bodies = append(m.bodies, string(body))
	for i, said := range asked.Messages {
		switch before := i > 0 && asked.Messages[i-1].Role == "tool"; {
		case said.Role == "tool" && before:
			m.told += "\n" + textOf(said.Content)
		case said.Role == "tool":
			m.told = textOf(said.Content)
		}
	}
	m.mu.Unlock()
	// The turn is what stands behind the last answer.
	turn := ""
	for _, said := range slices.Backward(asked.Messages) {
		if said.Role != "user" {
			break
		}
		turn = textOf(said.Content) + turn
	}
	answer := map[string]any{"role": "assistant", "content": "ok"}
	finish := "stop"
	m.mu.Lock()
	skips, named := m.skips, cmp.Or(m.named, "sessions_send")
	m.mu.Unlock()
	switch {
	case strings.Contains(turn, asksForSecret):
		answer["content"] = "It is " + secret
	case skips && turn != "" && !strings.Contains(turn, "Question"):
		answer["content"] = "REPLY_SKIP"
	case skips && turn != "":
		answer["content"] = "It is blue."
	}
	if _, rest, ok := strings.Cut(turn, asksForCall); ok {
		// OpenClaw may write more behind them.
		var given json.RawMessage
		_ = json.NewDecoder(strings.NewReader("{" + strings.ReplaceAll(rest, key, secret))).Decode(&given)
		var calls []any
		for i, name := range strings.Fields(named) {
			args, _ := json.Marshal(map[string]any{"id": name, "args": given})
			calls = append(calls, map[string]any{"index": i, "id": fmt.Sprintf("call_%d", i+1), "type": "function", "function": map[string]any{"name": "tool_call", "arguments": string(args)}})
		}
		answer["content"], answer["tool_calls"], finish = nil, calls, "tool_calls"
	}
	choice := map[string]any{"index": 0, "finish_reason": finish, "message": answer}
	whole := map[string]any{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []any{choice}, "usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	whole["object"] = "chat.completion.chunk"
	delete(choice, "message")
	for _, part := range []struct{ delta, finish any }{{answer, nil}, {map[string]any{}, finish}} {
		choice["delta"], choice["finish_reason"] = part.delta, part.finish
		text, _ := json.Marshal(whole)
		fmt.Fprintf(w, "data: %s\n\n", text)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// textOf is the text of a message, which is a string or a list of parts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts)
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// saw counts what the model was shown as an agent with a text in it.
func (m *model) saw(agent, text string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, body := range m.bodies {
		if strings.Contains(body, "agent="+agent+" |") && strings.Contains(body, text) {
			n++
		}
	}
	return n
}

func openGateway(t *testing.T) *gateway {
	return openGatewayWith(t, "# mine\nlog: {level: info}\n", func(*gateway) string { return "" })
}

// openGatewayWith starts a daemon with a configuration, and a Gateway with more settings.
func openGatewayWith(t *testing.T, config string, more func(*gateway) string) *gateway {
	return openGatewayOf(t, []string{"alice", "bob"}, config, more)
}

// openGatewayOf starts a daemon and a Gateway with these agents.
func openGatewayOf(t *testing.T, agents []string, config string, more func(*gateway) string) *gateway {
	node, err := filepath.Abs("openclaw/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{trial: beginWith(t, config, node), model: new(model)}
	api := httptest.NewServer(g.model)
	t.Cleanup(api.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	g.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	var entries []string
	for _, id := range agents {
		entries = append(entries, fmt.Sprintf("%q: {\"workspace\": %q}", id, g.at(id)))
	}
	g.write("openclaw/openclaw.json", fmt.Sprintf(`{
		"gateway": {"mode": "local", "port": %d, "bind": "loopback", "auth": {"mode": "token", "token": "tok"}, "tools": {"allow": ["sessions_send"]}},
		"agents": {"ownership": "explicit", "defaults": {"model": {"primary": "fake/m"}}, "entries": {%s}},
		"models": {"mode": "replace", "providers": {"fake": {"baseUrl": %q, "apiKey": "none", "api": "openai-completions",
			"models": [{"id": "m", "name": "M", "reasoning": false, "input": ["text"], "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 128000, "maxTokens": 4096}]}}},
		"tools": {"profile": "full"}%s}`, port, strings.Join(entries, ", "), api.URL+"/v1", more(g)))
	g.start()
	return g
}

// read is a file as it is.
func (g *gateway) read(path string) string {
	g.t.Helper()
	text, err := os.ReadFile(g.at(path))
	if err != nil {
		g.t.Fatal(err)
	}
	return string(text)
}

// integrate runs ocipd integrate openclaw.
func (g *gateway) integrate(args ...string) string {
	g.t.Helper()
	return g.must(g.vars(), g.ocipd, append([]string{"--config", g.at("ocipd.yaml"), "--socket", g.socket, "integrate", "openclaw"}, args...)...)
}

func (g *gateway) vars() []string { return g.env("OPENCLAW_STATE_DIR=" + g.at("openclaw")) }

// starts is how often a Gateway is started that is not ready.
const starts = 5

// start starts the Gateway, and again with a new database where it gives up on it, as it does within seconds on a busy
// machine. Its processes end with the test.
func (g *gateway) start() {
	g.t.Helper()
	log, err := os.Create(g.at("gateway.log"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("the Gateway's log:\n%s", g.log())
		}
		_ = log.Close()
	})
	run := func() (stop func()) {
		cmd := exec.Command(filepath.Join(g.node, "openclaw"), "gateway", "run")
		cmd.Env, cmd.Dir = g.vars(), g.dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			g.t.Fatal(err)
		}
		stop = sync.OnceFunc(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		g.t.Cleanup(stop)
		return stop
	}
	stop, started := run(), 1
	// It answers before it takes messages.
	g.eventually("the Gateway", func() bool {
		if strings.Count(g.log(), "refusing to report the gateway ready") == started && started < starts {
			stop()
			if err := os.RemoveAll(g.at("openclaw/state")); err != nil {
				g.t.Fatal(err)
			}
			stop = run()
			started++
		}
		return strings.Contains(g.log(), "[gateway] ready")
	})
}

func (g *gateway) log() string {
	text, _ := os.ReadFile(g.at("gateway.log"))
	return string(text)
}

// eventually waits for what comes from other processes.
func (r *trial) eventually(what string, is func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			last, err := r.run(r.env(), r.ocipd, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "audit", "tail", "-n", "30")
			r.t.Fatalf("it never came: %s\n%s %v", what, last, err)
		}
	}
}

// send has alice send bob a message, and returns what the tool says.
func (g *gateway) send(text string) string { return g.sendAs("alice", "bob", text) }

func (g *gateway) sendAs(from, to, text string) string {
	g.t.Helper()
	body, err := json.Marshal(map[string]any{"tool": "sessions_send", "agentId": from, "args": map[string]any{"agentId": to, "message": text, "timeoutSeconds": 60}})
	if err != nil {
		g.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url+"/tools/invoke", bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer tok")
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(said)
}

// count counts records by what their JSON holds.
func (g *gateway) count(parts ...string) (n int) {
	g.t.Helper()
	for line := range strings.Lines(g.operate("audit", "query", "--limit", "1000", "--json")) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			n++
		}
	}
	return n
}

// A real Gateway, behind the daemon by one command: a message and the turns that answer
// it are decided until the rounds are used up, a secret is refused, in a reply too, a
// promise leaves once when a person has approved it, nothing leaves without the daemon,
// and the machine becomes what it was.
func TestOpenClaw(t *testing.T) {
	g := openGateway(t)
	settings, config := g.read("openclaw/openclaw.json"), g.read("ocipd.yaml")
	if said := g.integrate("--user", "ann", "--tenant", "home", "--dry-run"); !strings.Contains(said, "nothing was changed") || g.read("ocipd.yaml") != config || g.read("openclaw/openclaw.json") != settings {
		t.Fatalf("a dry run has changed something: %s", said)
	}
	if said := g.integrate("--user", "ann", "--tenant", "home"); !strings.Contains(said, "ok: it was refused, see record") {
		t.Fatalf("the canary: %s", said)
	}
	if said := g.integrate(); !strings.Contains(said, "nothing to change") || !strings.Contains(said, "ok: it was refused") {
		t.Errorf("once more: %s", said)
	}
	if said := g.send("Which colour has the report?"); !strings.Contains(said, `"ok":true`) {
		t.Fatalf("a message: %s", said)
	}
	// The host has the two answer each other five times after the answer, and sends the last
	// reply to nobody.
	const turns = 7
	g.eventually("the turns that answer it", func() bool { return g.count(`"side":"sender"`, `"policyResult":"allow"`) == turns })
	g.eventually("what arrived of them", func() bool { return g.count(`"side":"receiver"`, `"policyResult":"allow"`) == turns-1 })
	if n := g.count(`"disclosure":"annotation"`, `"policyResult":"allow"`); n != turns-1 {
		t.Errorf("%d replies say where their label stands, want %d", n, turns-1)
	}
	if n := g.count(`"code":"EXCHANGE_ROUND_LIMIT"`); n != 0 {
		t.Errorf("%d messages came to the round limit", n)
	}
	waiting := func() (ids []string) {
		t.Helper()
		for line := range strings.Lines(g.operate("approvals", "list", "--json")) {
			var a struct{ ApprovalID string }
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.ApprovalID)
		}
		return ids
	}
	if said := g.send(asksForSecret); !strings.Contains(said, `"ok":true`) || strings.Contains(said, secret) {
		t.Errorf("asked for a secret: %s", said)
	}
	g.eventually("the refusal of a reply with a secret", func() bool {
		return g.count(`"agentId":"agent-bob-1"`, `"code":"CLASSIFICATION_VIOLATION"`, `"policyResult":"deny"`) == 1
	})
	if said := g.send("The key is " + secret); !strings.Contains(said, "tool_call_blocked") || strings.Contains(said, secret) {
		t.Errorf("a secret: %s", said)
	}
	if said := g.send("I promise to deliver the report on Monday."); !strings.Contains(said, "HELD") {
		t.Errorf("a promise: %s", said)
	}
	held := waiting()
	if len(held) != 1 {
		t.Fatalf("%d requests wait, want 1", len(held))
	}
	approval := held[0]
	var shown struct{ Digest string }
	if err := json.Unmarshal([]byte(g.operate("approvals", "show", approval, "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	g.operate("approvals", "approve", approval, "--yes", "--digest", shown.Digest)
	g.eventually("the promise at its receiver", func() bool {
		return g.count(`"event":"delivered"`, approval) == 1 && g.model.saw("bob", "I promise to deliver the report") > 0
	})

	g.talk()
	g.stopDaemon()
	if said := g.send("anybody?"); !strings.Contains(said, "tool_call_blocked") {
		t.Errorf("without the daemon: %s", said)
	}
	if n := g.saw("alice", secret); n != 0 {
		t.Errorf("the secret in a reply has reached its receiver's model %d times", n)
	}
	g.integrate("--remove")
	if now := g.read("openclaw/openclaw.json"); now != settings {
		t.Errorf("OpenClaw's settings are\n%s\nand were\n%s", now, settings)
	}
	if now := g.read("ocipd.yaml"); now != config {
		t.Errorf("the configuration is\n%s", now)
	}
	if _, err := os.Stat(g.at("openclaw/extensions/ocip")); err == nil {
		t.Error("the plugin is there still")
	}
	if said := g.integrate("--remove"); !strings.Contains(said, "nothing to change") {
		t.Errorf("removed once more: %s", said)
	}
}

// turn has alice's model call a tool in a turn of alice's own, which a person begins.
func (g *gateway) turn(tool string, args map[string]any) { g.turnOf("alice", tool, args) }

// turnOf has an agent's model call a tool, and returns what the model is told of it.
func (g *gateway) turnOf(agent, tool string, args map[string]any) string {
	g.t.Helper()
	input, err := json.Marshal(args)
	if err != nil {
		g.t.Fatal(err)
	}
	g.model.mu.Lock()
	g.named, g.told = tool, ""
	g.model.mu.Unlock()
	g.must(g.vars(), "openclaw", "agent", "--agent", agent, "--json", "--message", "Call it "+asksForCall[:len(asksForCall)-1]+string(input))
	g.model.mu.Lock()
	defer g.model.mu.Unlock()
	return g.told
}

// questions is how many bob is asked: more than one causal chain has room for, of returns and of rounds.
const questions = 5

// talk has agents talk in the default configuration as they do: each question of a person's turn is
// answered, however many there were; the host's word for saying nothing is on no record; a denial does
// not cost the next message; and a message that the host refuses is on record as not taken.
func (g *gateway) talk() {
	t := g.t
	g.model.mu.Lock()
	g.skips = true
	g.model.mu.Unlock()
	allowed := func() int { return g.count(`"side":"sender"`, `"policyResult":"allow"`) }
	for n := 1; n <= questions; n++ {
		question, before := fmt.Sprintf("Question %d: which colour has part %d?", n, n), allowed()
		g.turn("sessions_send", map[string]any{"agentId": "bob", "message": question, "timeoutSeconds": 0})
		g.eventually("the question at bob's model: "+question, func() bool { return g.saw("bob", question) > 0 })
		// The question and its answer: alice says nothing to the answer.
		g.eventually("the answer to it", func() bool { return allowed() >= before+2 })
	}
	g.eventually("alice's word that there is nothing to say", func() bool { return g.saw("alice", "[Inter-session message]") > 0 })
	if n := g.count("REPLY_SKIP"); n != 0 {
		t.Errorf("the host's own word is on record %d times", n)
	}

	if said := g.sendAs("bob", "alice", "I promise to bring the cake."); !strings.Contains(said, "HELD") {
		t.Errorf("bob's promise: %s", said)
	}
	for line := range strings.Lines(g.operate("approvals", "list", "--json")) {
		var a struct{ ApprovalID string }
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		g.operate("approvals", "deny", a.ApprovalID)
	}
	g.eventually("the notice to bob", func() bool {
		text, err := os.ReadFile(g.at("openclaw/ocipd/told"))
		return err == nil && strings.Contains(string(text), `"bob"`)
	})
	untaken := g.count(`"event":"not_taken"`)
	if said := g.send("Question after a denial?"); !strings.Contains(said, `"ok":true`) {
		t.Errorf("after a denial: %s", said)
	}
	g.eventually("the message after a denial, and the notice", func() bool {
		return g.saw("bob", "Question after a denial?") > 0 && g.saw("bob", "was not sent: it is denied") > 0
	})
	if n := g.count(`"event":"not_taken"`); n != untaken {
		t.Errorf("%d messages were not taken, and %d before", n, untaken)
	}

	g.turn("sessions_spawn", map[string]any{"agentId": "bob", "task": "Count the files."})
	g.eventually("the record that the host refused it", func() bool { return g.count(`"event":"not_taken"`) == untaken+1 })
}

// stopDaemon ends the daemon before the test does.
func (r *trial) stopDaemon() {
	r.t.Helper()
	if err := r.daemon.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatal(err)
	}
	_ = r.daemon.Wait()
}
