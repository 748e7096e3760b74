package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// A task that has ended is checked against the log as long as one of its effects can be
// undone: an attacker who restores an older row of an effect, with its own seal, cannot
// make its compensation run twice, neither by a start nor while the daemon runs.
func TestCompensationRunsOnceWhateverTheRowSays(t *testing.T) {
	h := build(t, taskTeam)
	command := m{"argv": []any{"./ship.sh"}}
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": command, "compensation": command})
	if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.executing()
	c.toApproval()
	operator := h.taskOperator()
	request := m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"}
	first := c.lead.must("task.request_approval", request)
	shown := operator.must("approval.get", m{"approvalId": first["approval_id"]})
	operator.must("task.resolve_approval", m{"task_id": c.id, "approval_id": first["approval_id"], "resolution": "approved", "resolved_by": "me", "digest": shown["digest"]})
	c.move(task.ReadyToResume)
	// next is the runner's next message: first the state, and then each order.
	runner := func() (next func() (told taskapi.RunnerChunk)) {
		t.Helper()
		orders, err := operator.c.Stream(t.Context(), "runner.attach", m{})
		if err != nil {
			t.Fatal(err)
		}
		next = func() (told taskapi.RunnerChunk) {
			t.Helper()
			line, err := nextOf(t, orders)
			if err == nil {
				err = json.Unmarshal(line, &told)
			}
			if err != nil {
				t.Fatal(err)
			}
			return told
		}
		next()
		return next
	}
	next := runner()
	run := m{"task_id": c.id, "idempotency_key": "ship", "request_digest": first["request_digest"]}
	finish := func(started m) {
		t.Helper()
		next()
		operator.runs(c.id, started, "done")
	}
	finish(c.lead.must("task.run_effect", run))
	c.move(task.Completed)
	run["compensation"] = true

	// The older row is restored while the daemon runs and the task is not in memory.
	h.stop()
	kept := h.rowsOf("effects")
	h.start()
	operator = h.taskOperator()
	next = runner()
	lead := h.actor("lead", "")
	finish(lead.must("task.run_effect", run))
	if again := lead.must("task.run_effect", run); again["replayed"] != true {
		t.Errorf("asked again: %v", again)
	}
	h.stop()
	h.start()
	operator = h.taskOperator()
	next = runner()
	lead = h.actor("lead", "")
	newer := h.rowsOf("effects")
	h.putRows("effects", kept)
	if got, err := lead.call("task.run_effect", run); err == nil {
		t.Errorf("the compensation was started by an older row: %v", got)
	}
	h.stop()

	// It is there at a start.
	err := h.tryStart()
	if fault, ok := errors.AsType[*audit.Fault](err); !ok || !strings.Contains(fault.Problem, "task "+c.id+": the row says") {
		t.Errorf("the start says %v", err)
	}
	h.putRows("effects", newer)
	h.start()
	if got := h.altered(); !slices.Contains(got, "tasks") {
		t.Errorf("altered rows on record: %v", got)
	}
	compensations := 0
	for _, r := range h.records(audit.Filter{Like: audit.Record{TaskID: c.id}}) {
		if r.Event == "effect.started" && r.Details["compensation"] == true {
			compensations++
		}
	}
	if compensations != 1 {
		t.Errorf("%d compensations were started", compensations)
	}
}

// rowsOf returns the rows of a table, with their seals, as SQL values.
func (h *harness) rowsOf(table string) (rows []string) {
	h.t.Helper()
	conn, err := sqlite.OpenConn(h.path("state/ocipd.db"), sqlite.OpenReadWrite)
	if err != nil {
		h.t.Fatal(err)
	}
	var columns []string
	into := func(list *[]string) *sqlitex.ExecOptions {
		return &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error { *list = append(*list, stmt.ColumnText(0)); return nil }}
	}
	err = sqlitex.ExecuteTransient(conn, `SELECT 'quote(' || name || ')' FROM pragma_table_info('`+table+`')`, into(&columns))
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, `SELECT `+strings.Join(columns, ` || ', ' || `)+` FROM `+table, into(&rows))
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		h.t.Fatal(err)
	}
	return rows
}

// putRows replaces all rows of a table.
func (h *harness) putRows(table string, rows []string) {
	h.t.Helper()
	script := `DELETE FROM ` + table
	for _, row := range rows {
		script += `; INSERT INTO ` + table + ` VALUES (` + row + `)`
	}
	h.editRows(script)
}
