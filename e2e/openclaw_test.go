//go:build e2e

package e2e

import (
	"bytes"
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
	"strings"
	"syscall"
	"testing"
	"time"
)

const gatewayTeam = `
agents:
  - {id: alice, app: "@openclaw/gateway", instance_id: agent-alice, user_id: alice, org_unit: o, tenant_id: home}
  - {id: bob, app: "@openclaw/gateway", instance_id: agent-bob, user_id: bob, org_unit: o, tenant_id: home}
`

// gateway is a running Gateway of OpenClaw with two agents and a model that answers "ok".
type gateway struct {
	*trial
	url string
}

func openGateway(t *testing.T) *gateway {
	node, err := filepath.Abs("openclaw/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{trial: beginWith(t, gatewayTeam, node)}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Stream bool `json:"stream"`
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &asked)
		if !asked.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null}]}`+"\n\n"+
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	g.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	g.write("openclaw/openclaw.json", fmt.Sprintf(`{
		"gateway": {"mode": "local", "port": %d, "bind": "loopback", "auth": {"mode": "token", "token": "tok"}, "tools": {"allow": ["sessions_send"]}},
		"agents": {"ownership": "explicit", "defaults": {"model": {"primary": "fake/m"}}, "entries": {"alice": {"workspace": %q}, "bob": {"workspace": %q}}},
		"models": {"mode": "replace", "providers": {"fake": {"baseUrl": %q, "apiKey": "none", "api": "openai-completions",
			"models": [{"id": "m", "name": "M", "reasoning": false, "input": ["text"], "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 128000, "maxTokens": 4096}]}}},
		"tools": {"profile": "full"}}`, port, g.at("alice"), g.at("bob"), model.URL+"/v1"))
	plugin, err := filepath.Abs("../integrations/openclaw")
	if err != nil {
		t.Fatal(err)
	}
	g.must(g.vars(), "openclaw", "plugins", "install", plugin, "--force", "--accept-capabilities")
	g.write("grant.json5", fmt.Sprintf(`{plugins: {entries: {ocip: {enabled: true, hooks: {allowConversationAccess: true}, config: {socket: %q}}}}}`, g.socket))
	g.must(g.vars(), "openclaw", "config", "patch", "--file", g.at("grant.json5"))
	g.start()
	return g
}

func (g *gateway) vars() []string { return g.env("OPENCLAW_STATE_DIR=" + g.at("openclaw")) }

// start starts the Gateway. Its processes end with the test.
func (g *gateway) start() {
	g.t.Helper()
	cmd := exec.Command(filepath.Join(g.node, "openclaw"), "gateway", "run")
	cmd.Env, cmd.Dir = g.vars(), g.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(g.at("gateway.log"))
	if err != nil {
		g.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = log.Close()
		if g.t.Failed() {
			g.t.Logf("the Gateway's log:\n%s", g.log())
		}
	})
	// It answers before it takes messages.
	g.eventually("the Gateway", func() bool { return strings.Contains(g.log(), "[gateway] ready") })
}

func (g *gateway) log() string {
	text, _ := os.ReadFile(g.at("gateway.log"))
	return string(text)
}

// eventually waits for what comes from other processes.
func (g *gateway) eventually(what string, is func() bool) {
	g.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			g.t.Fatalf("it never came: %s\n%s", what, g.operate("audit", "tail", "-n", "30"))
		}
	}
}

// send has alice send bob a message, and returns what the tool says.
func (g *gateway) send(text string) string {
	g.t.Helper()
	body, err := json.Marshal(map[string]any{"tool": "sessions_send", "agentId": "alice", "args": map[string]any{"agentId": "bob", "message": text, "timeoutSeconds": 60}})
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

// A real Gateway: a message and the turns that answer it are decided until the rounds are
// used up, a secret is refused, a promise leaves once when a person has approved it, and
// nothing leaves without the daemon.
func TestOpenClaw(t *testing.T) {
	g := openGateway(t)
	if said := g.send("Which colour has the report?"); !strings.Contains(said, `"ok":true`) {
		t.Fatalf("a message: %s", said)
	}
	g.eventually("the round limit", func() bool { return g.count(`"code":"EXCHANGE_ROUND_LIMIT"`, `"policyResult":"require_approval"`) > 0 })
	for side, want := range map[string]int{"sender": 3, "receiver": 3} {
		if n := g.count(`"side":"`+side+`"`, `"policyResult":"allow"`); n != want {
			t.Errorf("%d records of a %s, want %d", n, side, want)
		}
	}
	if n := g.count(`"disclosure":"annotation"`, `"policyResult":"allow"`); n != 2 {
		t.Errorf("%d replies say where their label stands, want 2", n)
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
	for _, id := range waiting() {
		g.operate("approvals", "deny", id)
	}

	secret := "sk-ant-api03-" + strings.Repeat("aB3", 31) + "AA"
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
		return g.count(`"event":"delivered"`, approval) == 1 && g.count(`"side":"receiver"`, `"policyResult":"allow"`) == 4
	})

	g.stopDaemon()
	if said := g.send("anybody?"); !strings.Contains(said, "tool_call_blocked") {
		t.Errorf("without the daemon: %s", said)
	}
}

// stopDaemon ends the daemon before the test does.
func (r *trial) stopDaemon() {
	r.t.Helper()
	if err := r.daemon.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatal(err)
	}
	_ = r.daemon.Wait()
}
