package daemon_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
)

// listed is a task's line in the operator's list.
func (c *crew) listed(params m) m {
	c.h.t.Helper()
	for _, l := range c.h.taskOperator().must("task.list", params)["tasks"].([]any) {
		if line := l.(m); line["task_id"] == c.id {
			return line
		}
	}
	return nil
}

// asked is the only question to a person about the task.
func (c *crew) asked() m {
	c.h.t.Helper()
	line := c.listed(m{"open": true})
	questions, _ := line["questions"].([]any)
	if len(questions) != 1 || line["person"] != true {
		c.h.t.Fatalf("listed as %v", line)
	}
	return questions[0].(m)
}

// A task's open questions to a person are in the list until they are answered: an approval, an
// unknown outcome, a circuit. A closed task stays in the list of open ones while it has a question.
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
	c.toApproval()
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
		if _, err := nextOf(t, orders); err != nil {
			t.Fatal(err)
		}
	}
	next()
	run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": approval["request_digest"]}
	started := c.lead.must("task.run_effect", run)
	next()
	report := func(run any, state string) {
		t.Helper()
		runner.must("runner.report", m{"task_id": c.id, "effect_id": started["effect_id"], "run": run, "event": "finished", "state": state, "evidence": "the power went"})
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

// Only the operator can import tasks from elsewhere, each once, in one commit, over
// restarts of the daemon; a task that was closed there is the only one that may be
// completed without the gates.
func TestTaskImport(t *testing.T) {
	h := build(t, taskTeam)
	operator := h.taskOperator()
	work := filepath.Join(h.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "report.md"), []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := m{"origin": "v1:bd-1", "title": "Set up CI", "phase": "completed", "workspace": work, "status": "closed", "tenant_id": "acme-corp"}
	h.actor("lead", "").refuse(api.Forbidden, task.NotPermitted, "task.import", closed)
	first := operator.must("task.import", closed)
	if first["phase"] != "completed" || first["revision"] != 1.0 {
		t.Errorf("imported %v", first)
	}
	stopped := m{
		"origin": "v1:bd-2", "title": "Export", "phase": "circuit_open", "workspace": work, "spec_markdown": "# Goal\nInvoices.\n", "depends_on": []any{first["task_id"]}, "tenant_id": "acme-corp",
		"artifacts": []any{m{"uri": "report.md"}, m{"uri": "https://example.com/x", "digest": "sha256:" + strings.Repeat("0", 64)}}, "retries": 2, "last_error": "the tests fail", "priority": 0,
	}
	second := operator.must("task.import", stopped)
	view := operator.must("task.get", m{"task_id": second["task_id"]})
	made := view["artifacts"].([]any)
	if view["phase"] != "circuit_open" || view["circuit_status"] != "open" || view["circuit_reason"] != "the tests fail" || view["origin"] != "v1:bd-2" || view["artifact_revision"] != 0.0 ||
		len(made) != 2 || made[0].(m)["verified"] != true || made[1].(m)["verified"] != false || made[0].(m)["kind"] != "other" || view["open_dependencies"] != nil {
		t.Errorf("view %v", view)
	}
	for _, wrong := range []m{
		{"phase": "execution_ready"}, {"phase": "failed"}, {"origin": ""}, {"artifacts": []any{m{"uri": "none.md"}}}, {"artifacts": []any{m{"uri": "../ocipd.yaml"}}},
		{"artifacts": []any{m{"uri": "report.md", "digest": "sha256:" + strings.Repeat("0", 64)}}}, {"depends_on": []any{"tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"}},
		{"tenant_id": "nobody"}, {"retries": -1}, {"effects": []any{}}, {"spec_markdown": strings.Repeat("x", task.MaxSpecBytes+1)},
	} {
		params := m{"origin": "v1:bd-3", "title": "x", "phase": "spec_draft", "workspace": work, "tenant_id": "acme-corp"}
		maps.Copy(params, wrong)
		if got, err := operator.call("task.import", params); err == nil {
			t.Errorf("%v is imported: %v", wrong, got)
		}
	}
	h.stop()
	h.start()
	operator = h.taskOperator()
	stopped["title"], stopped["phase"] = "Another", "completed"
	if again := operator.must("task.import", stopped); again["task_id"] != second["task_id"] || again["replayed"] != true || again["phase"] != "circuit_open" {
		t.Errorf("imported again: %v", again)
	}
	// Another tenant's origins are separate.
	if other := operator.must("task.import", m{"origin": "v1:bd-1", "title": "x", "phase": "spec_draft", "workspace": work, "tenant_id": "globex-inc"}); other["task_id"] == first["task_id"] {
		t.Error("a tenant got another one's task")
	}
	records := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionTask, TaskID: str(second, "task_id")}})
	if len(records) != 3 {
		t.Fatalf("%d records", len(records))
	}
	for _, r := range records {
		if r.Event == "task.imported" && (r.Role != "operator" || r.Details["origin"] != "v1:bd-2" || r.Details["retries"] != 2.0 || r.Details["reason"] != "the tests fail") {
			t.Errorf("on record: %+v", r)
		}
	}
	h.verify()
}
