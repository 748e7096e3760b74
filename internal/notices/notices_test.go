package notices_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/notices"
	"go.uber.org/zap"
)

// begin has notices of a configuration told from here on.
func begin(t *testing.T, n *notices.Notices, c config.Notify) {
	t.Helper()
	adopt, err := n.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	adopt()
}

// pipe returns a configuration whose command writes each notice into a pipe.
func pipe(t *testing.T) (c config.Notify, path string) {
	path = filepath.Join(t.TempDir(), "notices")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Notify{Command: []string{"/bin/sh", "-c", `cat >"$0"`, path}}, path
}

// A notice names the agent and whom its message is for, whoever that is, and an
// escalation does not read like a message.
func TestTitles(t *testing.T) {
	n := notices.New(os.Getenv, zap.NewNop())
	c, path := pipe(t)
	begin(t, n, c)
	for i, test := range []struct {
		about api.ApprovalSummary
		want  string
	}{
		{api.ApprovalSummary{Kind: api.ApprovalOfMessage, Counterparty: "agent-dave-1"}, "alice wants to send to agent-dave-1"},
		{api.ApprovalSummary{Kind: api.ApprovalOfMessage, SessionKey: "telegram:4711"}, "alice wants to send to telegram:4711"},
		{api.ApprovalSummary{Kind: api.ApprovalOfEscalation, Counterparty: "agent-dave-1"}, "alice and agent-dave-1 need you"},
	} {
		test.about.ApprovalID, test.about.AgentID = fmt.Sprint(i), "alice"
		n.Held(test.about)
		told, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(told), test.want) {
			t.Errorf("told is %s, %v, want %q", told, err, test.want)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	n.Held(api.ApprovalSummary{ApprovalID: "after"}) // and nobody waits for it
}

// Another configuration is told from its adoption on; one that cannot be used changes
// nothing.
func TestPrepare(t *testing.T) {
	n := notices.New(os.Getenv, zap.NewNop())
	first, firstPath := pipe(t)
	begin(t, n, first)
	if _, err := n.Prepare(config.Notify{Command: []string{"relative"}}); err == nil || !strings.Contains(err.Error(), "approvals.notify.command") {
		t.Errorf("a command without its path: %v", err)
	}
	second, secondPath := pipe(t)
	adopt, err := n.Prepare(second)
	if err != nil {
		t.Fatal(err)
	}
	n.Held(api.ApprovalSummary{ApprovalID: "before"})
	if told, err := os.ReadFile(firstPath); err != nil || !strings.Contains(string(told), "before") {
		t.Errorf("before the adoption the first command is told %s, %v", told, err)
	}
	adopt()
	n.Held(api.ApprovalSummary{ApprovalID: "since"})
	if told, err := os.ReadFile(secondPath); err != nil || !strings.Contains(string(told), "since") {
		t.Errorf("after the adoption the second command is told %s, %v", told, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
