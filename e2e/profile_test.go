//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A profile of Codex that replaces a server behind the proxy is listed, and after another
// `integrate` the hook asks about its calls.
func TestCodexProfileReplacesAServer(t *testing.T) {
	r := beginTools(t)
	r.write(chatPath, chatServer)
	var model http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { model.ServeHTTP(w, q) }))
	t.Cleanup(api.Close)
	server := fmt.Sprintf("[mcp_servers.chat]\ncommand = \"node\"\nargs = [\"%s\", \"%s\"]\n", r.at(chatPath), r.at("chat.log"))
	r.write("x/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n", api.URL)+server+"default_tools_approval_mode = \"approve\"\n")
	env := r.env("CODEX_HOME="+r.at("x"), "STANDIN=none")
	r.integrate(env, "codex", "--agent", "ann")
	r.write("x/p.config.toml", server)
	if list := strings.Join(strings.Fields(r.integrate(env)), " "); !strings.Contains(list, "server chat is not behind the proxy") {
		t.Errorf("listed as\n%s", list)
	}
	r.integrate(env, "codex", "--agent", "ann")
	done := make(chan string, 1)
	go func() {
		told, out := r.tool(codexModel, func(of *standIn) (string, error) {
			model = of.Config.Handler
			return r.run(env, "codex", "exec", "--profile", "p", "--sandbox", "read-only", "--skip-git-repo-check", "go on")
		}, message("Is the build green?"))
		done <- told + out
	}()
	for tick := time.NewTicker(200 * time.Millisecond); len(done) == 0 && !strings.Contains(r.operate("approvals", "list", "--json"), `"permission"`); {
		<-tick.C
	}
	if len(done) > 0 || strings.Contains(r.said(), "green") {
		t.Fatalf("nobody was asked about a call of the profile's server: %s", <-done)
	}
	r.approveOne()
	if told := <-done; !strings.Contains(r.said(), "green") {
		t.Errorf("approved: %s", told)
	}
}
