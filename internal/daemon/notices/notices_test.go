package notices_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/notices"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

// begin puts a configuration of notices in force.
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

// A notice names the agent and the receiver of its message, of any kind, and a request of
// another kind does not read like a message.
func TestTitles(t *testing.T) {
	n := notices.New(os.Getenv, zap.NewNop())
	c, path := pipe(t)
	begin(t, n, c)
	for i, test := range []struct {
		about api.ApprovalSummary
		want  string
	}{
		{api.ApprovalSummary{Kind: api.ApprovalOfMessage, Counterparty: "agent-dave-1"}, "alice wants to send to agent-dave-1"},
		{api.ApprovalSummary{Kind: api.ApprovalOfMessage, SessionKey: "telegram:4711"}, "alice wants to send to somebody on telegram"},
		{api.ApprovalSummary{Kind: api.ApprovalOfEscalation, Counterparty: "agent-dave-1"}, "alice and agent-dave-1 need you"},
		{api.ApprovalSummary{Kind: api.ApprovalOfEffect, TaskID: "tsk_1"}, "alice asks to do something for task tsk_1"},
		{api.ApprovalSummary{Kind: api.ApprovalOfPermission}, "alice asks to use a tool"},
		{api.ApprovalSummary{Kind: api.ApprovalOfDelivery, SessionKey: "telegram:4711"}, "Was the message of alice to somebody on telegram sent?"},
	} {
		test.about.ApprovalID, test.about.AgentID = fmt.Sprint(i), "alice"
		n.Held(&api.Approval{ApprovalSummary: test.about})
		told, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(told), `"title":"`+test.want+`"`) || !strings.Contains(string(told), `"kind":"`+test.about.Kind+`"`) {
			t.Errorf("told is %s, %v, want %q", told, err, test.want)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	n.Held(&api.Approval{ApprovalSummary: api.ApprovalSummary{ApprovalID: "after"}}) // and nobody waits for it
}

// A notice names the part of the message with a finding, in none of the sender's words.
func TestFound(t *testing.T) {
	n := notices.New(os.Getenv, zap.NewNop())
	c, path := pipe(t)
	begin(t, n, c)
	n.Held(&api.Approval{
		ApprovalSummary: api.ApprovalSummary{ApprovalID: "1", AgentID: "alice", Reason: "commitment keywords: promise"},
		Media:           []api.MediaItem{{Member: "metadata.mediaUrl", Path: "/out/harness.txt", SHA256: "1"}, {Member: "metadata.harness", URL: "data:…", SHA256: "2"}},
		Detections: []audit.Detection{
			{Rule: "commitment.promise", End: 3}, {Rule: "commitment.promise", Start: 5, End: 8}, {Rule: "commitment.money", Member: "file metadata.mediaUrl"},
			{Rule: "commitment.date", Member: "file metadata.harness"}, {Rule: "commitment.date", Member: "metadata.blue harness"},
			{Rule: "pii.name", Member: "accountId"}, {Rule: "chain.hops", Shadow: true},
		},
	})
	told, err := os.ReadFile(path)
	want := "commitment.promise in the text, commitment.money in a file, commitment.date in an inline part, commitment.date in the metadata, pii.name in the address"
	if err != nil || !strings.Contains(string(told), `promise\nfound: `+want+`\nocipd approvals show 1"`) || !strings.Contains(string(told), `"found":"`+want+`"`) {
		t.Errorf("told is %s, %v, want %s", told, err, want)
	}
	n.Held(&api.Approval{ApprovalSummary: api.ApprovalSummary{ApprovalID: "2", Code: "FIRST_CONTACT", Reason: "nobody has written", Reasons: []ocip.Ground{
		{Code: ocip.CommitmentRequiresHuman, Reason: "commitment keywords: promise"}, {Code: ocip.FirstContactHeld, Reason: "nobody has written"},
	}}})
	if both, err := os.ReadFile(path); err != nil || !strings.Contains(string(both), `"body":"commitment keywords: promise\nnobody has written\nocipd`) || !strings.Contains(string(both), `"codes":"COMMITMENT_REQUIRES_HUMAN FIRST_CONTACT"`) {
		t.Errorf("of two reasons told is %s, %v", both, err)
	}
	if strings.Contains(string(told), "harness") {
		t.Errorf("told is the sender's own word: %s", told)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// Another configuration applies from its adoption on; an unusable one changes nothing.
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
	n.Held(&api.Approval{ApprovalSummary: api.ApprovalSummary{ApprovalID: "before"}})
	if told, err := os.ReadFile(firstPath); err != nil || !strings.Contains(string(told), "before") {
		t.Errorf("before the adoption the first command is told %s, %v", told, err)
	}
	adopt()
	n.Held(&api.Approval{ApprovalSummary: api.ApprovalSummary{ApprovalID: "since"}})
	if told, err := os.ReadFile(secondPath); err != nil || !strings.Contains(string(told), "since") {
		t.Errorf("after the adoption the second command is told %s, %v", told, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
