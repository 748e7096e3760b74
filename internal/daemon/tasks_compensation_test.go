package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/evidence/backup"
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
	operator.runs(c.id, started, "failed")

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

// A denial takes the permission to undo an effect back, and so does a restoration: the effect may
// have been undone since the copy was made.
func TestPermissionToUndoIsTakenBack(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(h *harness, id string){
		"denial": func(h *harness, id string) {
			saw := h.shown(id)
			h.operates().must("approval.resolve", decision(api.DecideDeny, &saw), nil)
		},
		"restoration": func(h *harness, _ string) {
			h.stop()
			saved := filepath.Join(h.dir, "saved")
			places := backup.Places{Database: h.path("state/ocipd.db"), Checkpoints: h.path("state/audit-checkpoints.jsonl"), Keys: h.path("state/keys"), Mirror: h.path("state/audit.jsonl")}
			_, err := backup.Make(t.Context(), places, saved, backup.Without{})
			if err == nil {
				_, err = backup.Restore(t.Context(), places, saved, false, time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
			h.start()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, taskTeam)
			command := m{"argv": []any{"./ship.sh"}}
			c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": command, "compensation": command})
			if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			c.executing()
			c.toApproval()
			asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
			id := str(asked, "approval_id")
			h.decides(api.DecideApprove, id)
			c.move(task.ReadyToResume)
			operator := h.taskOperator()
			operator.attaches()
			run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]}
			started := c.lead.must("task.run_effect", run)
			operator.runs(c.id, started, "done")
			c.move(task.Completed)
			take(h, id)
			if now := h.shown(id); now.State != api.ApprovalRevoked {
				t.Errorf("it is shown as %s", now.State)
			}
			operator = h.taskOperator()
			run["compensation"] = true
			e := operator.refuse(api.Conflict, task.GuardFailed, "task.run_effect", run)
			contains(t, e.Message, "was taken back", "--undo")
			h.restart()
			if got := h.altered(); len(got) != 0 {
				t.Errorf("altered rows on record: %v", got)
			}
		})
	}
}
