package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
)

// listed is a task's line of the operator's list.
func (c *crew) listed(params m) m {
	c.h.t.Helper()
	for _, l := range c.h.taskOperator().must("task.list", params)["tasks"].([]any) {
		if line := l.(m); line["task_id"] == c.id {
			return line
		}
	}
	return nil
}

// asked is the only question that a person is asked about the task.
func (c *crew) asked() m {
	c.h.t.Helper()
	line := c.listed(m{"open": true})
	questions, _ := line["questions"].([]any)
	if len(questions) != 1 || line["person"] != true {
		c.h.t.Fatalf("listed as %v", line)
	}
	return questions[0].(m)
}

// What a person has to say about a task stands in the list, for as long as nobody has
// said it: an approval, an outcome that nobody knows, a circuit. A task that is closed
// stays in the list of open ones while it asks something.
func TestTaskQuestions(t *testing.T) {
	h := build(t, taskTeam)
	command := m{"argv": []any{"./ship.sh"}}
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": command, "compensation": command})
	if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if line := c.listed(m{"open": true}); line["questions"] != nil || line["person"] != nil {
		t.Errorf("nobody is asked, and it is listed as %v", line)
	}
	c.executing()
	c.deliver()
	c.move(task.SpecGate)
	c.review("spec", "approved")
	c.move(task.QualityGate)
	c.review("quality", "approved")
	c.move(task.AwaitingApproval)
	operator := h.taskOperator()
	approval := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
	if q := c.asked(); q["about"] != "approval" || q["approval_id"] != approval["approval_id"] {
		t.Errorf("asked %v", q)
	}
	shown := operator.must("approval.get", m{"approvalId": approval["approval_id"]})
	operator.must("task.resolve_approval", m{"task_id": c.id, "approval_id": approval["approval_id"], "resolution": "approved", "resolved_by": "me", "digest": shown["digest"]})
	c.move(task.ReadyToResume)
	runner := h.taskOperator()
	orders, err := runner.c.Stream(t.Context(), "runner.attach", m{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() {
		t.Helper()
		if _, err := orders.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next()
	run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": approval["request_digest"]}
	started := c.lead.must("task.run_effect", run)
	next()
	report := func(run any, state string) {
		t.Helper()
		operator.must("runner.report", m{"task_id": c.id, "effect_id": started["effect_id"], "run": run, "event": "finished", "state": state, "evidence": "the power went"})
	}
	report(started["run"], "outcome_unknown")
	if q := c.asked(); q["about"] != "outcome" || q["effect_id"] != started["effect_id"] || q["run"] != started["run"] || q["text"] != "ship: run 1" {
		t.Errorf("asked %v", q)
	}
	operator.must("task.settle_effect", m{"task_id": c.id, "effect_id": started["effect_id"], "outcome": "done", "note": "I looked"})
	if line := c.listed(m{"open": true}); line["questions"] != nil {
		t.Errorf("it is settled, and listed as %v", line)
	}
	c.move(task.Completed)
	if line := c.listed(m{"open": true}); line != nil {
		t.Errorf("it is completed, and listed as %v", line)
	}
	run["compensation"] = true
	undone := c.lead.must("task.run_effect", run)
	next()
	report(undone["run"], "outcome_unknown")
	if q := c.asked(); q["about"] != "outcome" || q["text"] != "ship: compensation, run 2" {
		t.Errorf("asked %v", q)
	}
	if line := c.listed(m{"phase": "completed", "newest": true, "limit": 1}); line == nil {
		t.Error("the newest completed task is not listed")
	}
	if line := c.listed(m{"open": true, "tenant_id": "globex-inc"}); line != nil {
		t.Errorf("another tenant's list has %v", line)
	}

	stopped := h.crew()
	stopped.lead.must("task.open_circuit", m{"task_id": stopped.id, "actor": "lead", "reason": "three times the same"})
	if q := stopped.asked(); q["about"] != "circuit" || q["text"] != "three times the same" {
		t.Errorf("asked %v", q)
	}
}
