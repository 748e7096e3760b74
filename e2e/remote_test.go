//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// webToken is what a server over HTTP wants to be shown. It is no part of an id, which has digits and letters up to f.
const webToken = "welcome"

// A server over HTTP that wants no login is started by a command behind the proxy: what is
// sent through it is decided as a message, nothing is without the daemon, and it has its
// address again afterwards.
func TestServersOverHTTPIntegrated(t *testing.T) {
	r := begin(t)
	web := newWebServer(t, "Bearer "+webToken)
	var model http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { model.ServeHTTP(w, q) }))
	t.Cleanup(api.Close)
	r.write("c/.claude.json", fmt.Sprintf("{\"mcpServers\": {\"web\": {\"type\": \"http\", \"url\": %q, \"headers\": {\"Authorization\": \"Bearer %s\"}}}}\n", web.URL, webToken))
	r.write("c/settings.json", "{\"permissions\": {\"allow\": [\"mcp__web\"]}}\n")
	r.write("x/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n[mcp_servers.web]\nurl = \"%s\"\nbearer_token_env_var = \"TOKEN\"\ndefault_tools_approval_mode = \"approve\"\n", api.URL, web.URL))
	names := []string{"c/.claude.json", "x/config.toml"}
	before := strings.Split(r.files(names...), "\x00")
	codex := r.env("CODEX_HOME="+r.at("x"), "STANDIN=none", "TOKEN="+webToken)
	for runtime, env := range map[string][]string{"claude-code": r.claudeEnv("c", nil), "codex": codex} {
		if said := r.integrate(env, runtime, "--agent", "ann"); !strings.Contains(said, "ok: it was refused") || strings.Contains(said, "open: web") || strings.Contains(said, webToken) {
			t.Errorf("%s is integrated as\n%s", runtime, said)
		}
		if again := r.integrate(env, runtime, "--agent", "ann"); !strings.Contains(again, "nothing to change") {
			t.Errorf("a second time:\n%s", again)
		}
	}
	send := func(text string) step {
		input, _ := json.Marshal(object{"to": "general", "text": text})
		return step{"send_message", string(input)}
	}
	says := map[string]func(text string) string{
		"claude-code": func(text string) string {
			told, _ := r.tool(claudeModel, func(api *standIn) (string, error) { return r.run(r.claudeEnv("c", api), "claude", "-p", "go on") }, send(text))
			return told
		},
		"codex": func(text string) string {
			told, _ := r.tool(codexModel, func(of *standIn) (string, error) {
				model = of.Config.Handler
				return r.run(codex, "codex", "exec", "--sandbox", "read-only", "--skip-git-repo-check", "go on")
			}, send(text))
			return told
		},
	}
	sent := func() string { return web.sent.Load().(string) }
	for runtime, say := range says {
		question := "Is the build of " + runtime + " green?"
		if told := say(question); !strings.Contains(told, "found") || !strings.Contains(sent(), question) {
			t.Errorf("a message by %s: %s; the server got %s", runtime, told, sent())
		}
		if told := say("The key is " + secret); !strings.Contains(told, "ocipd") || strings.Contains(sent(), secret) {
			t.Errorf("a secret by %s: %s; the server got %s", runtime, told, sent())
		}
	}
	if log := r.operate("audit", "query", "--json", "--limit", "1000"); strings.Count(log, `"sessionKey":"mcp-web:general"`) < 4 || strings.Contains(log, "tool_executing") {
		t.Errorf("the log:\n%s", log)
	}
	r.stopped()
	was := sent()
	for runtime, say := range says {
		if told := say("Hello?"); !strings.Contains(told, "ocipd") || sent() != was {
			t.Errorf("without a daemon %s is told %s; the server got %s", runtime, told, sent())
		}
	}
	r.integrate(r.claudeEnv("c", nil), "claude-code", "--remove")
	r.integrate(codex, "codex", "--remove")
	after := strings.Split(r.files(names...), "\x00")
	if after[1] != before[1] {
		t.Errorf("config.toml is\n%s", after[1])
	}
	// Claude Code writes into its own file, in its own way.
	if text := after[0]; strings.Contains(text, "ocipd") || !strings.Contains(text, web.URL) || !strings.Contains(text, "Bearer "+webToken) || !strings.Contains(text, `"http"`) {
		t.Errorf(".claude.json is\n%s", text)
	}
}

// The everything server says the same over HTTP, by way of the proxy and a command, as over
// pipes.
func TestEverythingConnected(t *testing.T) {
	r := begin(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	server := filepath.Join(r.node, "mcp-server-everything")
	url := r.served("/mcp", func(port string) (env, args []string) {
		return r.env("PORT=" + port), []string{server, "streamableHttp"}
	})
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env, cmd.Dir = r.env(), r.dir
		return cmd
	}
	want := converse(t, command(server))
	got := converse(t, command(r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--", r.ocipd, "mcp-connect", "--url", url, "everything"))
	same(t, got, "over HTTP", want, "over pipes")
}
