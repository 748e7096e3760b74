package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// Inputs are looked at when an approval is asked for, when it is given, and before a start uses it:
// nothing is approved, and no approval is used up, for a command that cannot start.
func TestInputsAreLookedAt(t *testing.T) {
	t.Parallel()
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": m{"argv": []any{"/bin/cat", "out.txt"}, "inputs": []any{"out.txt"}}})
	c.executing()
	c.toApproval()
	out := filepath.Join(h.dir, "work/out.txt")
	writes := func(text string) {
		t.Helper()
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const is = "another"
	request := m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"}

	writes(is)
	e := c.lead.refuse(api.Conflict, task.GuardFailed, "task.request_approval", request)
	contains(t, e.Message, `the input "out.txt" is not what was recorded`, task.Digest([]byte("made")), task.Digest([]byte(is)), "put it back")
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	contains(t, c.lead.refuse(api.Conflict, task.GuardFailed, "task.request_approval", request).Message, `"out.txt" is no file of the workspace`)

	writes("made")
	asked := c.lead.must("task.request_approval", request)
	id := str(asked, "approval_id")
	saw := h.shown(id)
	writes(is)
	person := h.operates()
	if err := person.call("approval.resolve", decision(api.DecideApprove, &saw), nil); err == nil || !strings.Contains(err.Error(), `the input "out.txt" is not what was recorded`) {
		t.Errorf("with a changed input it is approved: %v", err)
	}
	saw = h.shown(id)
	contains(t, saw.Blocked, task.Digest([]byte("made")), task.Digest([]byte(is)))
	writes("made")
	// The person looks again once the file is back, and approves.
	if err := person.call("approval.resolve", decision(api.DecideApprove, &saw), nil); err == nil {
		t.Error("what changed since is approved unseen")
	}
	saw = h.shown(id)
	person.must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	if got := h.shown(id).Delivery; got != "ready" {
		t.Errorf("an approval that was not used is %q", got)
	}

	operator := h.taskOperator()
	operator.attaches()
	run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]}
	writes(is)
	contains(t, c.lead.refuse(api.Conflict, task.GuardFailed, "task.run_effect", run).Message, `the input "out.txt"`, "Approval "+id+" is not used")
	writes("made")
	c.lead.must("task.run_effect", run)
	uses := func(want string) {
		t.Helper()
		if got := h.shown(id); got.State != api.ApprovalApproved || got.Delivery != want {
			t.Errorf("it is %s and %q, want %q", got.State, got.Delivery, want)
		}
		var list api.ApprovalListResult
		h.operator("approval.list", m{"state": "all"}, &list)
		var a api.ApprovalSummary
		if err := json.Unmarshal(list.Approvals[0], &a); err != nil || a.Approvable || !strings.Contains(a.Blocked, "a start has used it") {
			t.Errorf("listed as %s (%v)", list.Approvals[0], err)
		}
	}
	uses("sent")
	h.restart()
	uses("sent")
}
