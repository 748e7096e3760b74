package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
)

// If decisions must be signed, each command with a key is refused without one, with advice,
// and signs with it; its effect happens, and the signature is recorded. Commands that stop
// something need no key. A recorded signature cannot be used again.
func TestSignedCommands(t *testing.T) {
	t.Parallel()
	p := newOperators(t, map[string]string{"signers": ""}, `approvals: {allowed_signers: "DIR/signers", notify: {desktop: false}}
tasks: {actors: [{name: lead, role: orchestrator, tenant_id: acme-corp}, {name: checker, role: spec_reviewer, tenant_id: acme-corp}]}`)
	carol, public, file := p.key("carol", "")
	_, _, other := p.key("mallory", "")
	p.write("signers", fmt.Sprintf("carol@acme.com %s", ssh.MarshalAuthorizedKey(public)))
	says := func(want int, said string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"--socket", p.socket}, args...), strings.NewReader(""), &out, &out, p.env); code != want || !strings.Contains(out.String(), said) {
			t.Errorf("%q exits %d, want %d and %q: %s", args, code, want, said, out.String())
		}
		return out.String()
	}
	signatures := func() (found []map[string]any) {
		t.Helper()
		for line := range strings.Lines(says(0, "", "audit", "query", "--json", "--limit", "1000")) {
			var record struct {
				Details map[string]any `json:"details"`
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if record.Details["signature"] != nil {
				found = append(found, record.Details)
			}
		}
		return found
	}
	const nobody, task = "eff_01a1fe46-d68f-77d6-9611-d5a7674802c7", "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	held, denied, settled := p.hold("I promise the harbour by Friday"), p.hold("I promise the bridge by Friday"), p.exchange()
	takenOver, resolved := p.hold("I promise the road by Friday"), p.hold("I promise the wall by Friday")
	old := filepath.Join(p.dir, "old")
	if err := os.MkdirAll(filepath.Join(old, ".beads"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.write("old/.beads/issues.jsonl", `{"id":"bd-1","title":"Set up CI","status":"open"}`)
	digest, taken := p.digest(held), p.digest(takenOver)
	says(0, "paused agent alice", "pause", "--agent", "alice")
	type call struct {
		exit int
		done string
		args []string
	}
	calls := []call{
		{0, "agent alice goes on", []string{"resume", "--agent", "alice"}},
		{0, "", []string{"contacts", "forget", "telegram:zed"}},
		{0, "", []string{"send", "--agent", "alice", "agent:bob:main", "How far is it?"}},
		{1, "cannot drop none", []string{"queue", "drop", "none"}},
		{0, "resolved", []string{"exchanges", "resolve", settled}},
		{0, "approved", []string{"approvals", "approve", held, "--yes", "--digest", digest}},
		{0, "denied", []string{"approvals", "deny", denied}},
		{0, "taken over", []string{"approvals", "takeover", takenOver, "--yes", "--digest", taken}},
		{0, "", []string{"approvals", "resolve", resolved}},
		{0, "in force", []string{"preapprovals", "add", "--from", "alice", "--to", "agent-bob-1", "--words", "promise", "--uses", "3", "--for", "2h", "--yes"}},
		{0, "", []string{"task", "grant", "lead"}},
		{1, "NOT_FOUND", []string{"task", "circuit", "close", task, "--to", "spec_draft", "--reason", "so"}},
		{1, "NOT_FOUND", []string{"call", "--operator", "task.settle_effect", `{"task_id":"` + task + `","effect_id":"` + nobody + `","outcome":"done","note":"I looked"}`}},
		{0, "1 task imported", []string{"task", "import", old, "--apply"}},
		{0, "", []string{"call", "--operator", "sending.resume", `{"agent":"alice"}`}},
		{0, "", []string{"audit", "key", "rotate"}},
		{0, "", []string{"audit", "retire", "--before", "90d", "--yes"}},
		{0, "", []string{"audit", "forget", "--tenant", "acme-corp", "--yes"}},
	}
	// The author of a command that signs adds it here.
	var untried []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		flag := c.Flags().Lookup("key")
		if flag != nil && strings.HasPrefix(flag.Usage, "sign with") && !slices.ContainsFunc(calls, func(call call) bool { return slices.Equal(call.args[:min(len(path), len(call.args))], path) }) {
			untried = append(untried, strings.Join(path, " "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&shell{Process: cli.Process{}}))
	// These sign like others, and need an effect with a request, one with an unknown
	// outcome, a runtime's files, or a task under review. The script fleet signs a roster.
	if want := []string{"approvals request-changes", "fleet add", "fleet init", "fleet leave", "integrate", "task effect settle", "task review"}; !slices.Equal(untried, want) {
		t.Errorf("%q are not tried, want %q", untried, want)
	}
	for _, tt := range calls {
		before := len(signatures())
		says(1, "cannot sign: no ssh-agent is running (SSH_AUTH_SOCK is not set); --key names the file of a key", tt.args...)
		says(1, "unknown signer: no line lists key", append(slices.Clone(tt.args), "--key", other)...)
		if n := len(signatures()) - before; n != 0 {
			t.Errorf("%q: %d signatures are on record without one that counts", tt.args, n)
		}
		says(tt.exit, tt.done, append(slices.Clone(tt.args), "--key", file)...)
		if n := len(signatures()) - before; n < 1 {
			t.Errorf("%q: %d signatures are on record", tt.args, n)
		}
	}
	p.serveAgent(carol)
	says(0, "all sending is not paused", "resume")

	// A settlement from the log settles nothing, and is not recorded.
	for _, found := range signatures() {
		text, ok := found["signedText"].(string)
		if !ok || !strings.HasPrefix(text, "ocipd settlement") {
			continue
		}
		again, err := json.Marshal(map[string]any{"exchangeId": settled, "outcome": "resolved", "state": strings.Split(text, "\"")[5], "signature": found["signature"]})
		if err != nil {
			t.Fatal(err)
		}
		before := len(signatures())
		says(1, "CONFLICT", "call", "--operator", "exchange.resolve", string(again))
		if n := len(signatures()) - before; n != 0 {
			t.Errorf("a settlement that was made before is on record %d times more", n)
		}
		p.end()
		return
	}
	t.Error("no settlement is on record")
}
