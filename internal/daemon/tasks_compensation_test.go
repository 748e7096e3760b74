package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// A compensation is the one that was approved with the run to be undone, and never one that
// a later request names, whatever became of that request.
func TestCompensationIsWhatWasApproved(t *testing.T) {
	h := build(t, taskTeam)
	command := m{"argv": []any{"./ship.sh"}}
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": command, "compensation": command})
	script := filepath.Join(h.dir, "work/ship.sh")
	writes := func(text string) (sum string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256([]byte(text))
		return hex.EncodeToString(digest[:])
	}
	approved := writes("#!/bin/sh\n")
	c.executing()
	c.toApproval()
	operator := h.taskOperator()
	request := m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"}
	decide := func(approval m, resolution string) {
		t.Helper()
		shown := operator.must("approval.get", m{"approvalId": approval["approval_id"]})
		operator.must("task.resolve_approval", m{"task_id": c.id, "approval_id": approval["approval_id"], "resolution": resolution, "resolved_by": "me", "digest": shown["digest"]})
	}
	first := c.lead.must("task.request_approval", request)
	decide(first, "approved")
	c.move(task.ReadyToResume)
	orders := operator.attaches()
	run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": first["request_digest"]}
	started := c.lead.must("task.run_effect", run)
	line, err := nextOf(t, orders)
	if err != nil {
		t.Fatal(err)
	}
	var told taskapi.RunnerChunk
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatal(err)
	}
	if got := told.Run.Bound.Exe.SHA256; got != approved {
		t.Errorf("the runner is told to run %s, and %s was approved", got, approved)
	}
	operator.must("runner.report", m{"task_id": c.id, "effect_id": started["effect_id"], "run": started["run"], "event": "finished", "state": "failed"})

	c.move(task.AwaitingApproval)
	writes("#!/bin/sh\necho another\n")
	second := c.lead.must("task.request_approval", request)
	if second["approval_id"] == first["approval_id"] || second["request_digest"] == first["request_digest"] {
		t.Fatalf("asked for again: %v", second)
	}
	decide(second, "rejected")
	run["compensation"] = true
	for _, digest := range []any{second["request_digest"], first["request_digest"]} {
		run["request_digest"] = digest
		c.lead.refuse("CONFLICT", task.IdempotencyConflict, "task.run_effect", run)
	}
}
