package daemon_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ocip"
)

// The configured command gets a notice of a pending request, without a word of the message.
func TestNoticeOfAHeldMessage(t *testing.T) {
	h := build(t, acme)
	h.stop()
	pipe := h.path("notices")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	h.configure(acme + `approvals: {notify: {command: ["/bin/sh", "-c", "cat >\"$0\"", "` + pipe + `"]}}` + "\n")
	h.start()
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise the blue harness", fresh(nil))

	// Reading waits for the command to write and to end.
	text, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	var notice struct {
		ID     string            `json:"id"`
		Title  string            `json:"title"`
		Body   string            `json:"body"`
		Fields map[string]string `json:"fields"`
	}
	if err := json.Unmarshal(text, &notice); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if notice.ID != held.ApprovalID || notice.Fields["approval"] != held.ApprovalID || notice.Fields["code"] != string(ocip.CommitmentRequiresHuman) {
		t.Errorf("the notice is %s", text)
	}
	contains(t, notice.Title, "alice", "agent-dave-1")
	contains(t, notice.Body, "promise", "found: commitment.promise in the text", "ocipd approvals show "+held.ApprovalID)
	if strings.Contains(string(text), "blue harness") {
		t.Errorf("the notice tells the message: %s", text)
	}
}
