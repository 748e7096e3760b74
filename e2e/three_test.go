//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// three are OpenClaw, Claude Code and Codex in one home, behind one daemon. All of them have
// the same chat.
type three struct {
	*gateway
	claude, codex string
	// model answers Codex, whose settings have one address for all of its runs.
	answers http.Handler
	turns   int
}

func beginThree(t *testing.T) *three {
	bin, err := filepath.Abs("node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r := &three{claude: filepath.Join(bin, "claude"), codex: filepath.Join(bin, "codex")}
	r.gateway = openGatewayWith(t, team, func(g *gateway) string {
		g.write(chatPath, chatServer)
		return fmt.Sprintf(`,
		"mcp": {"servers": {"chat": {"command": "node", "args": [%q, %q]}}}`, g.at(chatPath), g.at("chat.log"))
	})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.answers.ServeHTTP(w, q) }))
	t.Cleanup(api.Close)
	r.write(".claude.json", fmt.Sprintf("{\"mcpServers\": {\"chat\": {\"command\": \"node\", \"args\": [%q, %q]}}}\n", r.at(chatPath), r.at("chat.log")))
	r.write(".claude/settings.json", "{\"permissions\": {\"allow\": [\"mcp__chat\"]}}\n")
	r.write(".codex/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n[mcp_servers.chat]\ncommand = \"node\"\nargs = [%q, %q]\ndefault_tools_approval_mode = \"approve\"\n",
		api.URL, r.at(chatPath), r.at("chat.log")))
	return r
}

// says has the agent of a runtime send somebody a message, and returns what its model is
// told of it.
func (r *three) says(runtime, to, text string) string {
	r.t.Helper()
	if runtime == "openclaw" {
		text = strings.ReplaceAll(text, secret, key) // it hides a secret from its model
	}
	input, _ := json.Marshal(object{"channel_id": to, "text": text})
	call := step{"slack_post_message", string(input)}
	switch runtime {
	case "claude-code":
		told, _ := r.tool(claudeModel, func(api *standIn) (string, error) {
			return r.run(r.env("ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=none", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false"), r.claude, "-p", "go on")
		}, call)
		return told
	case "codex":
		told, _ := r.tool(codexModel, func(api *standIn) (string, error) {
			r.answers = api.Config.Handler
			return r.run(r.env("STANDIN=none"), r.codex, "exec", "--sandbox", "read-only", "--skip-git-repo-check", "go on")
		}, call)
		return told
	}
	r.named = "chat__slack_post_message"
	r.mu.Lock()
	r.told = ""
	r.mu.Unlock()
	r.turns++ // each has a session of its own
	out := r.must(r.vars(), "openclaw", "agent", "--agent", "alice", "--session-key", fmt.Sprintf("agent:alice:chat%d", r.turns), "--json", "--message", "Call it "+asksForCall[:len(asksForCall)-1]+string(input))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == "" {
		r.t.Fatalf("OpenClaw's model was told nothing: %s", out)
	}
	return r.told
}

// Three commands put OpenClaw, Claude Code and Codex of one home behind one daemon. An agent
// in each writes to one in another, a promise waits for a person, a secret is refused, the
// log has it all, with the daemon stopped each refuses, and each is taken out again.
func TestThreeRuntimesBehindOneDaemon(t *testing.T) {
	r := beginThree(t)
	names := []string{".claude/settings.json", ".codex/config.toml", "ocipd.yaml"}
	before := strings.Split(r.files(names...), "\x00")
	for _, command := range [][]string{{"openclaw", "--user", "ann", "--tenant", "acme"}, {"claude-code", "--agent", "ann"}, {"codex", "--agent", "ben"}} {
		if said := r.trial.integrate(r.vars(), command...); !strings.Contains(said, "ok: it was refused, see record") {
			t.Fatalf("the canary of %s:\n%s", command[0], said)
		}
	}
	// The chat's tool is one that sends; OpenClaw takes settings of a plugin once it is there.
	r.write("send.json", `{"plugins": {"entries": {"ocip": {"config": {"sendTools": {"chat__slack_post_message": {"texts": ["text"], "recipient": "channel_id", "channel": "slack"}}}}}}}`)
	r.must(r.vars(), "openclaw", "config", "patch", "--file", r.at("send.json"))
	r.must(r.vars(), "openclaw", "plugins", "reload", "ocip")
	if list := r.trial.integrate(r.vars()); !strings.Contains(list, "decided by the plugin in its Gateway") || strings.Count(list, "decided by the daemon before each call") != 2 {
		t.Errorf("listed as\n%s", list)
	}
	ring := []struct{ runtime, agent, to string }{{"claude-code", "agent-ann-1", "CBEN"}, {"codex", "agent-ben-1", "CALICE"}, {"openclaw", "agent-alice-1", "CANN"}}
	for _, one := range ring {
		question := "Is the build of " + one.to + " green?"
		if told := r.says(one.runtime, one.to, question); !strings.Contains(r.said(), question) {
			t.Errorf("a message from %s to %s: %s\nthe chat has %s", one.runtime, one.to, told, r.said())
		}
		if n := r.count(`"agentId":"`+one.agent+`"`, `"sessionKey":"slack:`+one.to+`"`, `"policyResult":"allow"`); n != 1 {
			t.Errorf("%d records let the message of %s go, want 1", n, one.agent)
		}
		if told := r.says(one.runtime, one.to, "The key is "+secret); strings.Contains(r.said(), secret) || !strings.Contains(told, "ocipd") {
			t.Errorf("a secret from %s: %s\nthe chat has %s", one.runtime, told, r.said())
		}
		// OpenClaw's plugin asks about the call of the tool first, and that is refused already.
		if n := r.count(`"agentId":"`+one.agent+`"`, `"code":"CLASSIFICATION_VIOLATION"`); n == 0 {
			t.Errorf("the log has no refusal of the secret of %s", one.agent)
		}
	}
	done := make(chan string, 1)
	go func() { done <- r.says("claude-code", "CBEN", "I promise to deliver the report on Monday.") }()
	r.eventually("the promise's request", func() bool {
		return strings.Contains(r.operate("approvals", "list", "--json"), "COMMITMENT_REQUIRES_HUMAN")
	})
	if strings.Contains(r.said(), "I promise") {
		t.Error("a promise did not wait")
	}
	r.approveOne()
	if told := <-done; strings.Count(r.said(), "I promise") != 1 {
		t.Errorf("approved: %s\nthe chat has %s", told, r.said())
	}
	r.operate("audit", "verify")
	r.stopDaemon()
	said := r.said()
	for _, one := range ring {
		if told := r.says(one.runtime, one.to, "Anybody?"); r.said() != said || !strings.Contains(told, "ocipd") {
			t.Errorf("without the daemon %s is told %s\nthe chat has %s", one.runtime, told, r.said())
		}
	}
	for _, name := range []string{"openclaw", "claude-code", "codex"} {
		r.trial.integrate(r.vars(), name, "--remove")
	}
	for i, text := range strings.Split(r.files(names...), "\x00") {
		if text != before[i] {
			t.Errorf("%s is\n%s\nand was\n%s", names[i], text, before[i])
		}
	}
	// OpenClaw's settings were changed since, and Claude Code writes into its own file: our own
	// entries alone are gone.
	if text := r.read("openclaw/openclaw.json"); strings.Contains(text, "ocip\"") || strings.Contains(text, "sendTools") || !strings.Contains(text, "chat.js") {
		t.Errorf("OpenClaw's settings are\n%s", text)
	}
	if text := r.files(".claude.json"); strings.Contains(text, "ocipd-gate") || strings.Contains(text, "mcp-proxy") || !strings.Contains(text, "chat.js") {
		t.Errorf(".claude.json is\n%s", text)
	}
}
