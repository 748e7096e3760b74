package daemon_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
)

// While sending is paused, actors add no texts to tasks that others read, and nothing
// starts; running attempts send heartbeats, and a person can continue.
func TestPauseStopsTextsOfTasks(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	builder := c.builder
	alice := h.taskDial("run/kernel.sock", "bot")
	if _, err := alice.c.Register(t.Context(), manifest("@acme/alice", api.Capabilities{})); err != nil {
		t.Fatal(err)
	}
	of := m{"task_id": c.id, "attempt_id": c.attempt}
	with := func(more m) m {
		all := m{}
		for _, from := range []m{of, more} {
			maps.Copy(all, from)
		}
		return all
	}
	newTask := m{"title": "Export", "spec_markdown": goodTaskSpec, "workspace": "elsewhere", "initial_phase": "spec_draft", "labels": []any{}}
	h.pause("pause", nil)
	for _, call := range []struct {
		by     *taskCaller
		method string
		params m
	}{
		{c.lead, "task.create", newTask},
		{alice, "task.create", newTask},
		{c.lead, "task.update", m{"task_id": c.id, "expected_revision": 1, "title": "A text"}},
		{c.lead, "task.transition", m{"task_id": c.id, "from_phase": "executing", "to_phase": "failed", "actor": "lead", "actor_role": "orchestrator", "reason": "A text"}},
		{c.lead, "task.open_circuit", m{"task_id": c.id, "actor": "lead", "reason": "A text"}},
		{builder, "task.record_checkpoint", with(m{"checkpoint_type": "note", "payload": m{"text": "A text"}})},
		{builder, "task.record_checkpoint", with(m{"checkpoint_type": "heartbeat", "payload": m{"text": "A text"}})},
		{builder, "task.record_artifact", with(m{"kind": "other", "uri": "memo:A text", "digest": "sha256:" + strings.Repeat("0", 64), "produced_by": "builder", "summary": "A text"})},
		{builder, "task.finish_attempt", with(m{"outcome": "failed", "failure_code": "crashed", "error_summary": "A text"})},
		{builder, "task.plan_effect", m{"task_id": c.id, "idempotency_key": "k", "side_effect_kind": "notification", "requested_action": "A text", "params": m{}}},
		{builder, "task.ask_permission", with(m{"tool_call": m{"id": "1", "kind": "execute", "title": "A text", "input": m{}}, "options": []any{}})},
	} {
		call.by.refuse(api.Forbidden, task.Paused, call.method, call.params)
	}
	builder.must("task.record_checkpoint", with(m{"checkpoint_type": "heartbeat", "payload": m{}}))
	c.lead.must("task.get", m{"task_id": c.id})
	if r := h.records(audit.Filter{Like: audit.Record{Event: "task_refused", Code: string(task.Paused)}}); len(r) != 11 {
		t.Errorf("%d refusals are on record", len(r))
	}
	operator := h.taskOperator()
	now := operator.must("task.get", m{"task_id": c.id})
	operator.must("task.update", m{"task_id": c.id, "expected_revision": now["revision"], "title": "A person's"})
	h.pause("resume", nil)
	builder.must("task.record_checkpoint", with(m{"checkpoint_type": "note", "payload": m{"text": "A text"}}))
	// If one agent is paused, only its app's actor is.
	h.pause("pause", m{"agent": "alice"})
	alice.refuse(api.Forbidden, task.Paused, "task.create", newTask)
	c.lead.must("task.create", newTask)
}

// A pause that begins during the decision about a permission comes after it or stops it: no
// permission is recorded between a pause and its end.
func TestPauseWhileAPermissionIsDecided(t *testing.T) {
	slow := judge(`"allow": slow, "require_approval": false, "constraints": {}, "reason": "slowly"`)
	slow["task.rego"] += "\nslow if input.action != \"task_permission\"\n\nslow if count([y | numbers.range(1, 100)[_]; y := numbers.range(1, 200)[_]]) > 0\n"
	h := ruled(t, taskTeam, slow)
	c := h.crew()
	c.executing()
	for n := range 6 {
		answered := make(chan error, 1)
		go func() {
			_, err := c.builder.call("task.ask_permission", m{"task_id": c.id, "attempt_id": c.attempt, "options": []any{},
				"tool_call": m{"id": fmt.Sprint(n), "kind": "execute", "title": "make", "input": m{}}})
			answered <- err
		}()
		h.pause("pause", nil)
		err := <-answered
		paused, decided := h.last("sending_paused").Seq, uint64(0)
		if err == nil {
			decided = h.last("task_permission").Seq
		}
		if decided > paused {
			t.Errorf("a permission is decided by record %d, after the pause of record %d", decided, paused)
		}
		h.pause("resume", nil)
	}
}
