package daemon_test

import (
	"testing"
	"time"
)

// The list for people says how a running attempt goes: its checkpoints, when it was last heard of, and
// the end of its lease, which heartbeats renew in memory.
func TestProgressIsListed(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	operator := h.taskOperator()
	listed := func() (progress m, heard, until time.Time) {
		t.Helper()
		progress, _ = operator.must("task.list", m{"open": true})["tasks"].([]any)[0].(m)["progress"].(m)
		for name, at := range map[string]*time.Time{"heard_at": &heard, "lease_expires_at": &until} {
			var err error
			if *at, err = time.Parse(time.RFC3339Nano, str(progress, name)); err != nil {
				t.Fatalf("progress is %v: %v", progress, err)
			}
		}
		return progress, heard, until
	}
	c.builder.must("task.record_checkpoint", m{"task_id": c.id, "attempt_id": c.attempt, "checkpoint_type": "progress", "payload": m{"done": 1}})
	first, heard, until := listed()
	if first["checkpoints"] != 1.0 || first["attempt"] != 1.0 || first["actor"] != "builder" || !until.After(heard) {
		t.Errorf("after a checkpoint it is %v", first)
	}
	c.builder.must("task.record_checkpoint", m{"task_id": c.id, "attempt_id": c.attempt, "checkpoint_type": "heartbeat", "payload": m{}})
	again, later, renewed := listed()
	if again["checkpoints"] != 1.0 || !later.After(heard) || !renewed.After(until) {
		t.Errorf("after a heartbeat it is %v, and was %v", again, first)
	}
	c.deliver()
	if line := operator.must("task.list", m{"open": true})["tasks"].([]any)[0].(m); line["progress"] != nil {
		t.Errorf("without an attempt it is %v", line)
	}
}
