package daemon_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// With a full disk nothing is held or decided halfway: an action that cannot be recorded
// does not happen, and works again when there is space.
func TestFullDiskWhileHolding(t *testing.T) { withDisk(t, onSmallDisk) }

func onSmallDisk(t *testing.T) {
	// One message may wait, so that a place that was not returned is noticed. This disk is
	// full at once, without a warning before.
	h := onDisk(t, acme+"approvals: {max_open: 1}\nstore: {warn_free_bytes: 0, min_free_bytes: 0, reserve_bytes: 0}\n", "4m")
	h.start()
	t.Cleanup(h.stop)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")

	const promise = "I promise to do it by Friday"
	// One member each, so that the bytes are always the same.
	anew := map[string]any{"exchange": map[string]any{"new": true}}
	ask := map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": anew}
	recorded := h.fillDisk()
	for range 3 {
		unrecorded(t, alice.refuse(api.InternalError, "message.dispatch", ask))
	}
	wantWaiting(t, h, 0)
	if now := h.logEnd(); now != recorded {
		t.Errorf("records %d to %d were written on a full disk", recorded+1, now)
	}
	h.freeDisk()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, anew)
	wantWaiting(t, h, 1)

	shown := h.shown(held.ApprovalID)
	recorded = h.fillDisk()
	person := h.operates()
	for _, decision := range api.DecisionsOf(api.ApprovalOfMessage) {
		unrecorded(t, person.refuse(api.InternalError, "approval.resolve",
			map[string]any{"approvalId": held.ApprovalID, "decision": decision, "digest": shown.Digest}))
		now := h.shown(held.ApprovalID)
		if now.State != api.ApprovalPending || now.Digest != shown.Digest || now.Given != 0 || now.Decision != nil {
			t.Errorf("after %s was refused, the approval is %+v", decision, now)
		}
	}
	// The pending request is known, but the repeated request cannot be recorded.
	unrecorded(t, alice.refuse(api.InternalError, "message.dispatch", ask))
	if now := h.logEnd(); now != recorded {
		t.Errorf("records %d to %d were written on a full disk", recorded+1, now)
	}
	h.freeDisk()
	if again := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, anew); again.ApprovalID != held.ApprovalID {
		t.Errorf("asked again, it waits as %s, want %s", again.ApprovalID, held.ApprovalID)
	}

	var result api.ApprovalResolveResult
	person.must("approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideApprove, "digest": shown.Digest}, &result)
	if result.State != api.ApprovalApproved || result.DispatchID != held.DispatchID {
		t.Errorf("got %+v", result)
	}
	// A later message marks the end of everything that could have been sent before.
	marker := alice.dispatch("telegram:dave", "Hello", fresh(nil)).DispatchID
	if got := telegram.message("hook:message_sending"); got.DispatchID != held.DispatchID {
		t.Errorf("%s is delivered first, want the approved message %s", got.DispatchID, held.DispatchID)
	}
	if got := telegram.message("hook:message_sending"); got.DispatchID != marker {
		t.Errorf("%s is delivered next, want %s: nothing goes twice", got.DispatchID, marker)
	}
	var outcome api.ApprovalOutcome
	alice.decode(alice.next(api.ApprovalEvent).Payload, &outcome)
	if outcome.ApprovalID != held.ApprovalID || outcome.Resolution != api.ApprovalApproved {
		t.Errorf("alice is told %+v", outcome)
	}
	// The decision returned the place.
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, anew)

	decided := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, DispatchID: held.DispatchID}})
	allowed := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, DispatchID: held.DispatchID, PolicyResult: "allow"}})
	if len(decided) != 2 || decided[0].Event != "asked_again" || decided[1].Event != api.ApprovalApproved || len(allowed) != 1 {
		t.Errorf("the approval's records are %+v, the message's %+v", decided, allowed)
	}
	h.stop()
	h.verify()
	h.start()
	wantWaiting(t, h, 1)
}

// unrecorded checks that an error says that nothing was done for want of a record.
func unrecorded(t *testing.T, e *api.Error) {
	t.Helper()
	if code := ocipCode(t, e); code != string(ocip.AuditWriteFailed) || !strings.Contains(e.Message, "the disk is full") {
		t.Errorf("got %s: %s", code, e.Message)
	}
}

func wantWaiting(t *testing.T, h *harness, pending int) {
	t.Helper()
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{}, &list)
	if list.Total != pending || len(list.Approvals) != pending {
		t.Errorf("%d messages wait, want %d: %s", list.Total, pending, list.Approvals)
	}
}

// shown returns the full request of one held message.
func (h *harness) shown(id string) api.Approval {
	h.t.Helper()
	var a api.Approval
	h.operator("approval.get", map[string]any{"approvalId": id}, &a)
	return a
}

// operates connects to the operator socket.
func (h *harness) operates() *app {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return &app{Client: c, t: h.t, id: "a person", said: h.said}
}

// logEnd returns the number of the last record.
func (h *harness) logEnd() uint64 {
	h.t.Helper()
	var status api.Status
	h.operator("kernel.status", map[string]any{}, &status)
	return status.Audit.Seq
}

// fillDisk takes all space of the small disk and returns the last record that was written.
func (h *harness) fillDisk() uint64 {
	h.t.Helper()
	// The mirror has written its lines, so that it takes no more space.
	var status api.Status
	for status.Audit.Seq == 0 || status.Audit.Mirrored != status.Audit.Seq {
		h.operator("kernel.status", map[string]any{}, &status)
	}
	f, err := os.Create(h.path("state/ballast"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		h.t.Fatal(err)
	}
	return status.Audit.Seq
}

// freeDisk gives the space back.
func (h *harness) freeDisk() {
	h.t.Helper()
	if err := os.Remove(h.path("state/ballast")); err != nil {
		h.t.Fatal(err)
	}
}
