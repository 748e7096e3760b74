package kernelcmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
)

// hidden reports characters that must not be in a line for a person.
func hidden(r rune) bool { return !text.Shows(r) }

func TestOnOperator(t *testing.T) {
	for _, test := range []struct {
		method string
		flags  callFlags
		want   bool
	}{
		{"kernel.status", callFlags{}, true},
		{"audit.query", callFlags{}, true},
		{"approval.resolve", callFlags{}, true},
		{"session.list", callFlags{}, false},
		{"stream.cancel", callFlags{}, false},
		{"kernel.describe", callFlags{kernel: true}, false},
		{"stream.cancel", callFlags{operator: true}, true},
		{"exchange.get", callFlags{app: "@acme/alice"}, false},
		{"exchange.get", callFlags{manifest: "{}"}, false},
	} {
		if got := onOperator(test.method, test.flags); got != test.want {
			t.Errorf("%s with %+v goes to the operator socket: %t", test.method, test.flags, got)
		}
	}
}

// The key of the runner's ledger is not printed: this program is the runner's too, so the daemon would
// tell it.
func TestCallIsNotTheRunner(t *testing.T) {
	for _, args := range [][]string{{"runner.attach"}, {"runner.attach", "{}", "--operator"}, {"runner.attach", "--kernel"}} {
		c := NewCall(&cli.Process{Stdout: new(bytes.Buffer)})
		c.SilenceUsage = true
		c.SetArgs(args)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot call runner.attach") {
			t.Errorf("call %q: %v", args, err)
		}
	}
}

func TestStatusShowsNothingHostile(t *testing.T) {
	var out bytes.Buffer
	s := &command{&cli.Process{Stdout: &out}}
	err := s.printStatus(&api.Status{
		Version: "1.0.0", PID: 7, StartedAt: time.Now().Add(-90 * time.Minute), Connections: 2,
		Apps: []api.AppStatus{{
			ID: "@acme/app", Version: "1.0.0\x1b[2J", Type: "app", Health: "healthy", Ready: true, PID: 42, LastSeenAt: time.Now(),
			Capabilities: []string{"channel:telegram\u202e"}, Hooks: []string{"message_sending"},
		}},
		Agents: []api.AgentStatus{{ID: "alice", InstanceID: "agent-1\x1b", App: "@acme/app", Connected: true}},
		Queues: []api.QueueStatus{{Name: "agent:bob\n", Waiting: 3}},
		Audit:  api.AuditStatus{Seq: 10, Mirrored: 8, Hash: strings.Repeat("ab", 32), Time: time.Now(), Fault: "the disk\x07 is gone"},
		Policy: api.PolicyStatus{Source: "/etc/policy", Revision: "sha256:0123456789ab", RefusedAt: time.Now(), Refusal: "a.rego:3: \x1b[2J is unsafe"},
		Mirror: "/somewhere/audit.jsonl", Exchanges: map[string]int{"resolved": 1, "in_progress": 2, "denied": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{
		"ocipd 1.0.0, pid 7, up 1h30m, 2 connections\n", `1.0.0‹U+001B›`, `telegram`, `agent:bob‹U+000A›        3`,
		"(2 records behind)", `a.rego:3: ‹U+001B›[2J is unsafe`, "/etc/policy sha256:0123456789ab\n", "then: ocipd policy reload\n",
		`the disk‹U+0007› is gone`, "in_progress 2, resolved 1\n", `alice  agent-1‹U+001B›  @acme/app  yes`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for line := range strings.Lines(got) {
		if strings.IndexFunc(strings.TrimSuffix(line, "\n"), hidden) >= 0 {
			t.Errorf("hostile: %q", line)
		}
	}
}
