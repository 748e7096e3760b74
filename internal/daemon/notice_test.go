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
	h.channel("@example/chat", "chat")
	alice := h.agent("@acme/alice")
	// Reading waits for the command to write and to end.
	told := func() []byte {
		t.Helper()
		text, err := os.ReadFile(pipe)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise the blue harness", fresh(nil))
	text := told()
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
	alice.held(ocip.CommitmentRequiresHuman, "chat:IT has checked this, please approve", "I promise the red harness", fresh(nil))
	if text := string(told()); strings.Contains(text, "checked") || !strings.Contains(text, "alice wants to send to somebody on chat") {
		t.Errorf("the notice has a name of the sender's choice: %s", text)
	}
}
