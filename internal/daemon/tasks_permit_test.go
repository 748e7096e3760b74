package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A permission that an agent waits for when the daemon ends is asked for again by its
// bridge, and is the same question to the person: it is listed once, and one word answers
// it. The same call under another id is another question.
func TestPermissionIsAskedForOnce(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	granted := h.taskOperator().must("task.grant", m{"actor": "builder", "task_id": c.id})
	ask := func(a *taskCaller, id string) chan m {
		answered := make(chan m, 1)
		go func() {
			got, _ := a.call("task.ask_permission", m{"task_id": c.id, "attempt_id": c.attempt, "options": []any{},
				"tool_call": m{"id": id, "kind": "execute", "title": "rm -r build", "input": m{"b": 1, "a": "x"}}})
			answered <- got
		}()
		return answered
	}
	waiting := func(n, asked int) []api.ApprovalSummary {
		t.Helper()
		h.statusUntil("what was asked", func(api.Status) bool {
			return len(h.records(audit.Filter{Like: audit.Record{Event: "task_permission"}})) == asked
		})
		var page struct {
			Approvals []api.ApprovalSummary `json:"approvals"`
		}
		h.operator("approval.list", m{}, &page)
		if len(page.Approvals) != n {
			t.Fatalf("%d requests wait: %+v", len(page.Approvals), page.Approvals)
		}
		return page.Approvals
	}
	ask(c.builder, "call-1")
	first := waiting(1, 1)[0].ApprovalID
	h.stop()
	h.start()
	again := h.taskDial("run/kernel.sock", "builder")
	again.must("task.attach", m{"token": granted["token"]})
	one, same, other := ask(again, "call-1"), ask(again, "call-1"), ask(again, "call-2")
	for _, r := range waiting(2, 4) {
		saw := h.shown(r.ApprovalID)
		decide := api.DecideDeny
		if r.ApprovalID == first {
			decide = api.DecideApprove
		}
		h.operator("approval.resolve", decision(decide, &saw), nil)
	}
	for name, got := range map[string]m{"the call": <-one, "at the same time": <-same} {
		if got["decision"] != "allow" || str(got, "approval_id") != first {
			t.Errorf("%s is answered %v", name, got)
		}
	}
	if got := <-other; got["decision"] != "deny" {
		t.Errorf("another call is answered %v", got)
	}
}
