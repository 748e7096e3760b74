//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// twiceServer is an MCP server that answers each call of a tool twice, and writes down by which account
// it was called.
const twiceServer = `const fs = require("fs");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.id === undefined) return;
  const say = (result) => console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, result }));
  if (m.method === "initialize") return say({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "twice", version: "1" } });
  if (m.method === "tools/list") return say({ tools: [] });
  if (m.method !== "tools/call") return say({});
  fs.appendFileSync(process.argv[2], process.env.CHAT_TOKEN + " " + JSON.stringify(m.params.arguments) + "\n");
  say({ content: [{ type: "text", text: "first" }] });
  say({ content: [{ type: "text", text: "second" }] });
});
`

// What a server says a second time of a call does not come to the client while the first is decided
// about, and what a person approved for one account of a server is not sent by another one.
func TestServersCrossNothing(t *testing.T) {
	r := begin(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	r.write("twice.js", twiceServer)
	r.write("twice.log", "")
	r.write("chat.yaml", "channel: chat\ntools:\n  send: {text: [text], to: [\"{to}\"]}\nreads:\n  history: {from: [\"{to}\"]}\n")
	proxied := func(account string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--map", r.at("chat.yaml"), "--name", "chat", "--hold", "1ms", "--", "node", r.at("twice.js"), r.at("twice.log"))
		cmd.Env, cmd.Dir = r.env("CHAT_TOKEN="+account), r.dir
		return cmd
	}
	const history = `"method":"tools/call","params":{"name":"history","arguments":{"to":"C1"}}`
	for _, line := range calls(t, proxied("one"), history, `"method":"ping"`, history, `"method":"ping"`) {
		if strings.Contains(line, "second") {
			t.Errorf("a second answer came: %s", line)
		}
	}
	held := calls(t, proxied("one"), `"method":"tools/call","params":{"name":"send","arguments":{"to":"C1","text":"I promise to bring the cake."}}`)
	if !strings.Contains(held[0], "HELD") {
		t.Fatalf("a promise: %s", held[0])
	}
	wait := func(account string) {
		t.Helper()
		cmd := proxied(account)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.WriteString(in, fmt.Sprintf(`{"jsonrpc":"2.0","id":0,%s}`, everything[0])+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	wait("two")
	var waits struct{ ApprovalID, Digest string }
	if err := json.Unmarshal([]byte(r.operate("approvals", "list", "--json")), &waits); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.operate("approvals", "show", waits.ApprovalID, "--json")), &waits); err != nil {
		t.Fatal(err)
	}
	r.operate("approvals", "approve", waits.ApprovalID, "--yes", "--digest", waits.Digest)
	wait("one")
	sent := func() string {
		text, err := os.ReadFile(r.at("twice.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	r.eventually("the promise, by its account", func() bool { return strings.Contains(sent(), "I promise") })
	if got := sent(); strings.Contains(got, "two ") || strings.Count(got, "I promise") != 1 {
		t.Errorf("the server was called so:\n%s", got)
	}
}
