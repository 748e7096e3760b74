package kernelcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// busy is the status of a daemon with much to show.
func busy(now time.Time) *api.Status {
	s := &api.Status{
		Version: "1.2.3", PID: 4242, StartedAt: now.Add(-49 * time.Hour), Connections: 14, Sessions: 31, Held: 3, OldestHeld: now.Add(-90 * time.Minute),
		Exchanges: map[string]int{"in_progress": 12, "resolved": 340, "escalated": 2, "denied": 7, "expired": 90},
		Policy:    api.PolicyStatus{Revision: "sha256:0123456789ab"},
		Audit:     api.AuditStatus{Seq: 123456, Signed: 123400, Mirrored: 123456, Indexed: 123450, Time: now},
		Store:     api.StoreStatus{Disk: "ok", FreeBytes: 61 << 30, Reserve: true},
		Latency:   api.LatencyStatus{Decisions: 4711, DecisionP50: 6, DecisionP99: 61, CommitP50: 412, CommitP99: 2300},
		Sinks:     []api.SinkStatus{{Name: "siem", Type: "ocsf", Lag: 0}, {Name: "collector", Type: "otlp", Lag: 812, Error: "connection refused", FailingSince: now.Add(-time.Minute)}},
		Queues:    []api.QueueStatus{{Name: "agent:bob", Waiting: 3}},
	}
	for i := range 4 {
		s.Apps = append(s.Apps, api.AppStatus{ID: fmt.Sprintf("@acme/an-app-with-a-name-%d", i), Health: "healthy", Ready: true, LastSeenAt: now.Add(-2 * time.Second)})
	}
	return s
}

func TestCompactStatusFits(t *testing.T) {
	now := time.Now()
	lines := draw(busy(now), term.Screen{Terminal: true, Width: 80}, now, true)
	if len(lines) > 23 {
		t.Errorf("%d lines", len(lines))
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"ocipd 1.2.3, pid 4242, up 2d1h, 14 connections", "sessions   31", "policy     sha256:0123456789ab",
		"decisions  4711, p50 6µs, p99 61µs; commits p50 412µs, p99 2.3ms", "denied 7, escalated 2, expired 90, in_progress 12, resolved 340",
		"3 requests for a person, the oldest for 1h30m: ocipd approvals", "record 123456, signed 123400, mirrored 123456, indexed 123450",
		"61 GiB free", "@acme/an-app-with-a-name-3  healthy  yes", "agent:bob        3", "collector     812  failing for 1m0s: connection refused",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, line := range lines {
		if term.Width(line) > 80 {
			t.Errorf("too wide: %q", line)
		}
	}
	s := busy(now)
	s.Audit.Fault, s.Policy.Refusal, s.Audit.Mirror.Problems, s.Held = "the disk\x1b is gone", strings.Repeat("wrong ", 40), []string{"it was cut"}, 0
	lines = draw(s, term.Screen{Terminal: true, Width: 60}, now, true)
	if !strings.HasPrefix(lines[1], `fault      the disk‹U+001B› is gone`) || !strings.HasPrefix(lines[2], "refused ") || !strings.HasPrefix(lines[3], "mirror     it was cut") {
		t.Errorf("what is wrong does not come first: %q", lines[:4])
	}
	for _, line := range lines {
		if term.Width(line) > 60 {
			t.Errorf("too wide: %q", line)
		}
	}
}

// Each fault of a refused file has its own line, with its position.
func TestStatusListsFaults(t *testing.T) {
	now := time.Now()
	s := busy(now)
	s.Config = api.ConfigStatus{
		RefusedAt: now, Refusal: `cannot use the configuration: ocipd.yaml:1:7: unknown key "polcy"; ocipd.yaml:9:1: no`,
		Faults: []api.PolicyFault{{File: "ocipd.yaml", Line: 1, Message: `unknown key "polcy"`}, {File: "OCIPD_X", Message: "no\nnever"}},
	}
	text := strings.Join(draw(s, term.Screen{Width: 80, Terminal: true}, now, false), "\n")
	for _, want := range []string{" cannot use the configuration: 2 faults\n", "\n             ocipd.yaml:1: unknown key \"polcy\"\n", "\n             OCIPD_X: no; never\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestStatusSaysWhatIsWrong checks that both forms of the status report the same problems.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	now := time.Now()
	s := busy(now)
	s.Policy.RefusedAt, s.Policy.Refusal = now, "a.rego:3: no\nb.rego:4: neither"
	s.Config.RefusedAt, s.Config.Refusal = now, `ocipd.yaml:1:7: unknown key "polcy"`
	s.PendingRestart = []string{"log.format", "store.url"}
	s.Audit.Fault, s.Audit.Mirror.Problems = "the database is gone", []string{"it was cut"}
	for _, brief := range []bool{true, false} {
		text := strings.Join(draw(s, term.Screen{Terminal: true, Width: 120}, now, brief), "\n")
		for _, want := range []string{
			"a.rego:3: no; b.rego:4: neither", `ocipd.yaml:1:7: unknown key "polcy"`, "takes effect at the next start: log.format, store.url",
			"the database is gone", "it was cut",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("brief %v: %q is missing in\n%s", brief, want, text)
			}
		}
	}
}

// TestStatusFits checks that a status fits 80 columns, except for paths, with long numbers
// and an unhealthy app.
func TestStatusFits(t *testing.T) {
	now := time.Now()
	s := busy(now)
	s.Socket, s.Database = "/run/user/1000/openclawos/kernel.sock", "/home/carol/"+strings.Repeat("long/", 20)+"ocipd.db"
	s.Apps[0] = api.AppStatus{
		ID: "@acme/an-app-with-a-long-name", Version: "10.11.12-rc1", Type: "extension", Health: "unhealthy", PID: 4194304, LastSeenAt: now.Add(-26 * time.Hour),
		Capabilities: []string{"channel:telegram", "tool:calendar"}, Hooks: []string{"message_sending"},
	}
	s.Audit = api.AuditStatus{Seq: 1234567890, Signed: 1234567890, Mirrored: 1234567890, Indexed: 1234567890, Time: now, Hash: strings.Repeat("ab", 32)}
	s.Config.RefusedAt, s.Config.Refusal = now, strings.Repeat("wrong ", 40)
	for _, scr := range []term.Screen{{Width: 80}, {Width: 80, Terminal: true}} {
		text := strings.Join(draw(s, scr, now, false), "\n")
		if !strings.Contains(text, s.Database+"\n") || !strings.Contains(text, "unhealthy") || !strings.Contains(text, "record 1234567890, signed 1234567890, mirrored 1234567890, indexed\n             1234567890\n") {
			t.Errorf("got\n%s", text)
		}
		for line := range strings.SplitSeq(text, "\n") {
			// A program gets whole lines.
			if term.Width(line) > 80 && !strings.Contains(line, s.Database) && scr.Terminal {
				t.Errorf("too wide: %q", line)
			}
		}
	}
}

// A queue for an absent receiver names it.
func TestStatusNamesTheAbsent(t *testing.T) {
	now := time.Now()
	s := busy(now)
	s.Agents = []api.AgentStatus{{ID: "bob", InstanceID: "agent-bob-1", App: "@acme/bob"}, {ID: "eve", App: "@acme/eve", Connected: true}}
	s.Queues = []api.QueueStatus{{Name: "agent:bob", Waiting: 3}, {Name: "agent:eve", Waiting: 1}, {Name: "channel:irc", Waiting: 2}, {Name: "channel:telegram", Waiting: 4}}
	s.Apps[0].Capabilities = []string{"channel:telegram"}
	for _, brief := range []bool{true, false} {
		text := strings.Join(draw(s, term.Screen{Terminal: true, Width: 80}, now, brief), "\n")
		for _, want := range []string{
			"agent:bob               3  bob's program @acme/bob connects\n", "agent:eve               1\n",
			"channel:irc             2  a program registers the channel\n", "channel:telegram        4\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
	}
}
