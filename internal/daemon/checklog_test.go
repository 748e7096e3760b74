package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// notices sends notices through a command to a pipe, and returns a function that reads the next one.
func notices(t *testing.T, h *harness, yaml string) (read func() (title, body string)) {
	t.Helper()
	pipe := h.path("notices")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	h.configure(yaml + `approvals: {notify: {command: ["/bin/sh", "-c", "cat >\"$0\"", "` + pipe + `"]}}` + "\n")
	return func() (title, body string) {
		t.Helper()
		// Reading waits for the command to write and to end.
		text, err := os.ReadFile(pipe)
		var n struct{ Title, Body string }
		if err == nil {
			err = json.Unmarshal(text, &n, json.MatchCaseInsensitiveNames(true))
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return n.Title, n.Body
	}
}

// refusedStart returns the notice about a failed start, and its error.
func (h *harness) refusedStart(next func() (title, body string)) (title, body string, err error) {
	h.t.Helper()
	failed := make(chan error, 1)
	go func() {
		err := h.tryStart()
		if err == nil {
			// A successful start sends no notice, and the reader waits.
			err = errors.Join(os.WriteFile(h.path("notices"), []byte("{}"), 0o600), h.daemon.Stop(), errors.New("it starts"))
			h.daemon = nil
		}
		failed <- err
	}()
	title, body = next()
	return title, body, <-failed
}

// A record that was edited while the daemon was stopped, before the part that a start
// checks, later pauses all sending: with a record and a notice, until a person resumes it.
// The next start refuses that log.
func TestOldRecordEditedStopsSending(t *testing.T) {
	h := plot(t, acme)
	next := notices(t, h, acme)
	h.start()
	t.Cleanup(h.stop)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for i := range 330 {
		alice.dispatch("telegram:dave", fmt.Sprint("Where do we stand with item ", i), fresh(nil))
	}
	// audit.query reads records that are not in the index yet, and would be the first to meet the edited one.
	waitFor(t, "the index", func() bool {
		var status api.Status
		h.operator("kernel.status", nil, &status)
		return status.Audit.Indexed > 30
	})
	h.stop()
	h.editRows(`UPDATE records SET line = replace(line, '"policyResult":"allow"', '"policyResult":"above"') WHERE seq = 30`)
	h.start()
	var found []audit.Entry
	waitFor(t, "the check of the log", func() bool {
		found = h.records(audit.Filter{Like: audit.Record{Event: "log_damaged"}})
		return len(found) > 0
	})
	if e := found[0]; e.Details["record"] != float64(30) || !strings.Contains(e.PolicyReason, "audit record 30") {
		t.Errorf("on record is %+v", e)
	}
	if title, body := next(); title != "The audit log was changed" || !strings.Contains(body, "audit record 30") {
		t.Errorf("people are told %q, %q", title, body)
	}
	var status api.Status
	h.operator("kernel.status", nil, &status)
	if !strings.HasPrefix(status.Audit.Damaged, "audit record 30") {
		t.Errorf("the status says %+v", status.Audit)
	}
	if len(status.Paused) != 1 || status.Paused[0].Scope != api.PausedAll || status.Paused[0].By != "check of the log" {
		t.Errorf("paused is %+v", status.Paused)
	}
	alice = h.agent("@acme/alice")
	if e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "anybody?"}); ocipCode(t, e) != string(ocip.Paused) {
		t.Errorf("it is refused with %v", e)
	}
	h.stop()
	title, body, err := h.refusedStart(next)
	contains(t, err.Error(), "cannot start on a damaged audit log: audit record 30")
	if !strings.HasPrefix(title, "ocipd did not start") || !strings.Contains(body, "audit record 30") {
		t.Errorf("people are told %q, %q", title, body)
	}
}
