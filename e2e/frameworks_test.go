//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// guarded is the configuration of the examples on frameworks: the rules are those of `ocipd policy new`,
// of which one denies the tool WebFetch.
const guarded = `
tools: enforce
policy: {path: %s, timeout: 20s}
agents:
  - {id: bot, app: "@example/bot", instance_id: agent-bot-1, user_id: me, org_unit: home, tenant_id: home}
`

// called is the first answer of the stand-in for the model: a call that is denied, and one that is not.
const called = `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[
{"id":"call_1","type":"function","function":{"name":"WebFetch","arguments":"{\"url\":\"%s\"}"}},
{"id":"call_2","type":"function","function":{"name":"Clock","arguments":"{\"zone\":\"Europe/Oslo\"}"}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// answered is its second and last answer.
const answered = `{"id":"c2","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"The page is not for me."}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// Agents on the frameworks ask about each tool call: the model sees the refusal of the denied one and
// the result of the other, and nothing was fetched.
func TestFrameworks(t *testing.T) {
	for _, name := range []string{"openai-agents", "langgraph"} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.Abs("../examples/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
				t.Skipf("the npm packages of examples/%s are not installed", name)
			}
			policy := filepath.Join(t.TempDir(), "policy")
			if out, err := exec.CommandContext(t.Context(), os.Getenv(variable), "policy", "new", policy).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r := beginWith(t, fmt.Sprintf(guarded, policy), "")
			var fetched atomic.Int32
			page := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) }))
			defer page.Close()
			results := map[string]string{}
			asked := 0
			model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				var request struct {
					Messages []struct {
						Role    string          `json:"role"`
						ID      string          `json:"tool_call_id"`
						Content json.RawMessage `json:"content"`
					} `json:"messages"`
				}
				if err := json.NewDecoder(q.Body).Decode(&request); err != nil || q.URL.Path != "/v1/chat/completions" {
					t.Errorf("%s: %v", q.URL, err)
				}
				for _, m := range request.Messages {
					if m.Role == "tool" {
						results[m.ID] = string(m.Content)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				if asked++; asked == 1 {
					fmt.Fprintf(w, called, page.URL)
				} else {
					fmt.Fprint(w, answered)
				}
			}))
			defer model.Close()
			env := r.env("OPENCLAWOS_KERNEL_SOCKET="+r.socket, "OPENAI_BASE_URL="+model.URL+"/v1", "OPENAI_API_KEY=none")
			said := r.must(env, "/usr/bin/env", "node", filepath.Join(dir, "agent.mjs"), "Fetch the page.")
			if strings.TrimSpace(said) != "The page is not for me." {
				t.Errorf("it says %q", said)
			}
			if got := results["call_1"]; !strings.Contains(got, "refused: POLICY_DENIED: an agent does not fetch pages") || fetched.Load() != 0 {
				t.Errorf("the model saw %s, and the page was fetched %d times", got, fetched.Load())
			}
			if got := results["call_2"]; got == "" || strings.Contains(got, "refused") || asked != 2 {
				t.Errorf("the model saw %q after %d requests", got, asked)
			}
		})
	}
}
