//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// everything is what a client asks of the protocol's everything server, in order.
var everything = []string{
	`"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{},"elicitation":{},"roots":{"listChanged":true}},"clientInfo":{"name":"t","version":"1"}}`,
	`"method":"ping"`, `"method":"server/discover","params":{}`, `"method":"tools/list"`, `"method":"prompts/list"`, `"method":"resources/list"`, `"method":"resources/templates/list"`,
	`"method":"tools/call","params":{"name":"echo","arguments":{"message":"I promise \u00e9"}}`,
	`"method":"tools/call","params":{"name":"get-sum","arguments":{"a":1.50,"b":2}}`,
	`"method":"tools/call","params":{"name":"get-tiny-image","arguments":{}}`,
	`"method":"tools/call","params":{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}`,
	`"method":"tools/call","params":{"name":"get-structured-content","arguments":{"location":"New York"}}`,
	`"method":"tools/call","params":{"name":"get-resource-links","arguments":{"count":3}}`,
	`"method":"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":2},"_meta":{"progressToken":"p"}}`,
	`"method":"tools/call","params":{"name":"trigger-sampling-request","arguments":{"prompt":"x","maxTokens":5}}`,
	`"method":"tools/call","params":{"name":"trigger-elicitation-request","arguments":{}}`,
	`"method":"tools/call","params":{"name":"none","arguments":{}}`, `"method":"tools/call","params":{"name":"echo"}`, `"method":"no/such"`,
}

// answers are what that client answers the server.
var answers = map[string]string{
	"roots/list": `{"roots":[]}`, "elicitation/create": `{"action":"decline"}`,
	"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"whole \u263a"}}`,
}

// ask starts a server, has a client ask all of the requests, each once the one before is answered, and answers what
// the server asks meanwhile. For each request it returns the server's lines up to the answer, which is the last of
// them, but for what the server logs.
func ask(t *testing.T, cmd *exec.Cmd, requests ...string) (lines [][]string) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	r := bufio.NewReader(out)
	say := func(line string) {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	for id, request := range requests {
		say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, request))
		var said []string
		for answered := false; !answered; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("no answer to %s: %v", request, err)
			}
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if answer := answers[m.Method]; answer != "" {
				say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer))
			}
			if m.Method != "notifications/message" && !strings.HasSuffix(m.Method, "list_changed") && m.Method != "roots/list" {
				said = append(said, line)
			}
			answered = m.Method == "" && string(m.ID) == fmt.Sprint(id)
		}
		lines = append(lines, said)
		if id == 0 {
			say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
	}
	in.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return lines
}

// converse has a client ask everything of a server, and returns all that the server says.
func converse(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	return slices.Concat(ask(t, cmd, everything...)...)
}

// calls has a client that answers a server nothing begin with one and call tools of it, and returns what it is answered.
func calls(t *testing.T, cmd *exec.Cmd, requests ...string) (answers []string) {
	t.Helper()
	begins := []string{`"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`, `"method":"tools/list"`}
	for _, said := range ask(t, cmd, append(begins, requests...)...)[len(begins):] {
		answers = append(answers, said[len(said)-1])
	}
	return answers
}

// same holds what is said one way against what is said another way.
func same(t *testing.T, got []string, way string, want []string, otherwise string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("answer %d is %.1500q %s, and %.1500q %s", i, got[min(i, len(got)):min(i+1, len(got))], way, want[min(i, len(want)):min(i+1, len(want))], otherwise)
		}
	}
}

// A server says the same through the proxy as without it, byte for byte.
func TestEverythingThroughTheProxy(t *testing.T) {
	r := begin(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	server := filepath.Join(r.node, "mcp-server-everything")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env, cmd.Dir = r.env(), r.dir
		return cmd
	}
	want := converse(t, command(server))
	got := converse(t, command(r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--", server))
	same(t, got, "through the proxy", want, "without")
	if len(want) < len(everything) {
		t.Errorf("%d lines were compared", len(want))
	}
	if shown := r.must(r.env(), r.ocipd, "mcp-proxy", "explain", "--", server); !strings.Contains(shown, "# echo ") || strings.Contains(shown, "as a message") {
		t.Errorf("explained as\n%s", shown)
	}
}
