package daemon_test

import (
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// An executor of kind research has no tool to plan effects, and asks a person before its runtime
// edits a file. A reviewer sees which artifacts the specification does not declare.
func TestResearchAsks(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.review("spec", "approved")
	c.move(task.ExecutionReady)
	c.attempt = str(c.lead.must("task.start_attempt", m{"task_id": c.id, "phase": "executing", "actor": "lead", "runtime": "acp", "executor_kind": "research", "worker_ref": "builder"}), "attempt_id")
	c.lead.refuse(api.InvalidParams, "", "task.grant", m{"task_id": c.id, "actor": "builder", "tools": []any{"task_get", "task_plan_effect"}})
	granted := c.lead.must("task.grant", m{"task_id": c.id, "actor": "builder"})
	tools := []any{"task_finish_attempt", "task_get", "task_record_artifact", "task_record_checkpoint"}
	if got := granted["tools"].([]any); !slices.Equal(got, tools) {
		t.Errorf("the grant has %v", got)
	}
	builder := h.taskDial("run/kernel.sock", "builder")
	builder.must("task.attach", m{"token": granted["token"]})
	c.move(task.Executing)
	builder.refuse(api.Forbidden, task.NotPermitted, "task.plan_effect", m{"task_id": c.id, "idempotency_key": "k", "side_effect_kind": "deployment", "params": m{"to": "x"}})

	call := func(kind string) m {
		return m{"task_id": c.id, "attempt_id": c.attempt, "tool_call": m{"id": kind, "kind": kind, "in_workspace": true}, "options": []any{}}
	}
	if got := builder.must("task.ask_permission", call("read")); got["decision"] != "allow" {
		t.Errorf("reading is answered with %v", got)
	}
	asked := make(chan m, 1)
	go func() {
		said, _ := builder.call("task.ask_permission", call("edit"))
		asked <- said
	}()
	waiting := c.waiting(1, 1)[0]
	c.says(api.DecideDeny, waiting)
	if got := <-asked; got["decision"] != "deny" || got["approval_id"] != waiting.ApprovalID {
		t.Errorf("editing is answered with %v", got)
	}

	zero := "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "other", "uri": "undeclared.sh", "produced_by": "builder", "digest": zero})
	builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "other", "uri": "out.txt", "produced_by": "builder", "digest": zero})
	builder.must("task.finish_attempt", m{"task_id": c.id, "attempt_id": c.attempt, "outcome": "succeeded"})
	c.move(task.SpecGate)
	for _, entry := range h.actor("checker", c.id).must("task.get", m{"task_id": c.id})["artifacts"].([]any) {
		if a := entry.(m); (a["undeclared"] == true) != (a["uri"] == "undeclared.sh") {
			t.Errorf("the reviewer sees %v", a)
		}
	}
}
