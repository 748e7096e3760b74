package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/test/buildtest"
)

// A process that has attached cannot operate the daemon any more, also after a restart of the daemon.
func TestActorsDoNotOperate(t *testing.T) {
	h := plot(t, taskTeam)
	h.strict = true
	h.start()
	t.Cleanup(h.stop)
	operator := h.taskOperator()
	granted := operator.must("task.grant", m{"actor": "lead"})
	a := h.taskDial("run/kernel.sock", "lead")
	a.must("task.attach", m{"token": granted["token"]})
	operator.refuse(api.Forbidden, "", "task.list", m{})
	h.stop()
	h.start()
	h.taskOperator().refuse(api.Forbidden, "", "task.list", m{})
}

// attachVariable makes a process of the tests attach, and act according to its environment.
const attachVariable = "TEST_ATTACHES_TO"

// TestAttachesElsewhere is another process that attaches with a token, and reviews.
func TestAttachesElsewhere(t *testing.T) {
	dir := os.Getenv(attachVariable)
	if dir == "" {
		t.Skip("is started by other tests")
	}
	h := &harness{t: t, dir: dir}
	a := h.taskDial("run/kernel.sock", "another process")
	if _, err := a.call("task.attach", m{"token": os.Getenv("TEST_TOKEN")}); err != nil {
		t.Log(err)
		return
	}
	t.Log("it is attached")
	if id := os.Getenv("TEST_TASK"); id != "" {
		if _, err := a.call("task.append_review", m{"task_id": id, "review_type": "spec", "reviewer_ref": "checker", "verdict": "approved", "findings": []any{}}); err != nil {
			t.Log(err)
			return
		}
		t.Log("it is reviewed")
	}
}

// elsewhere attaches from another process, through a program, and returns the output.
func elsewhere(t *testing.T, h *harness, program, token, id string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^TestAttachesElsewhere$")
	cmd.Env = append(os.Environ(), attachVariable+"="+h.dir, "TEST_TOKEN="+token, "TEST_TASK="+id, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return string(out)
}

// A token belongs to the first that attaches with it: the same program of the same user, or
// only that process, or anybody, as its grant says.
func TestTokensAreBound(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	h := build(t, taskTeam)
	copied := filepath.Join(h.dir, "copied")
	text, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	buildtest.Executable(t, copied, text)
	for bind, want := range map[string][2]bool{"": {true, false}, "program": {true, false}, "process": {false, false}, "none": {true, true}} {
		params := m{"actor": "lead"}
		if bind != "" {
			params["bind"] = bind
		}
		token := str(h.taskOperator().must("task.grant", params), "token")
		h.taskDial("run/kernel.sock", "first").must("task.attach", m{"token": token})
		h.stop()
		h.start()
		h.taskDial("run/kernel.sock", "again").must("task.attach", m{"token": token})
		for i, program := range []string{self(t), copied} {
			if out := elsewhere(t, h, program, token, ""); strings.Contains(out, "it is attached") != want[i] || !want[i] && !strings.Contains(out, "UNAUTHORIZED") {
				t.Errorf("bound to %q, program %d: %s", bind, i, out)
			}
		}
	}
	if refused := h.records(audit.Filter{Like: audit.Record{Event: "task_refused"}}); len(refused) != 4 {
		t.Errorf("%d refusals are on record", len(refused))
	}
	h.taskOperator().refuse(api.InvalidParams, "", "task.grant", m{"actor": "lead", "bind": "all"})
}

// An orchestrator cannot review its own work under another name: neither from its own
// process, nor from another one through a grant that it has issued.
func TestOrchestratorDoesNotReviewItself(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	h := build(t, strings.Replace(taskTeam, "self_review: true", "self_review: false", 1))
	c := h.crew()
	review := m{"task_id": c.id, "review_type": "spec", "reviewer_ref": "checker", "verdict": "approved", "findings": []any{}}
	given := c.lead.must("task.grant", m{"task_id": c.id, "actor": "checker", "bind": "none"})
	own := h.taskDial("run/kernel.sock", "checker")
	own.must("task.attach", m{"token": given["token"]})
	own.must("task.get", m{"task_id": c.id})
	own.refuse(api.Forbidden, task.SameActor, "task.append_review", review)
	// A separate process does not help, because the grant belongs to the author of the spec.
	if out := elsewhere(t, h, self(t), str(given, "token"), c.id); !strings.Contains(out, "lead gave it its grant") {
		t.Errorf("reviewed by the author's grant: %s", out)
	}
	// A person's grant, in a process that the author has started.
	token := str(h.taskOperator().must("task.grant", m{"task_id": c.id, "actor": "checker"}), "token")
	if out := elsewhere(t, h, self(t), token, c.id); !strings.Contains(out, "one started the other") {
		t.Errorf("reviewed from a process of the author's: %s", out)
	}
}

// Any text in a task can raise its level, and then excludes actors below that level.
func TestTextsRaiseTheTask(t *testing.T) {
	const secret = "the key is ghp_0123456789abcdefghijABCDEFGHIJ012345"
	effect := m{"idempotency_key": "k", "side_effect_kind": "notification", "requested_action": "Tell", "params": m{"to": "ops"}}
	for name, write := range map[string]func(c *crew){
		"the payload of a checkpoint": func(c *crew) {
			c.builder.must("task.record_checkpoint", m{"task_id": c.id, "attempt_id": c.attempt, "checkpoint_type": "progress", "payload": m{"said": []any{m{"deep": secret}}}})
		},
		"a name in a payload": func(c *crew) {
			c.builder.must("task.record_checkpoint", m{"task_id": c.id, "attempt_id": c.attempt, "checkpoint_type": "progress", "payload": m{secret: 1}})
		},
		"an artifact's summary": func(c *crew) {
			c.builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "other", "uri": "x", "produced_by": "builder", "summary": secret, "digest": "sha256:" + strings.Repeat("0", 64)})
		},
		"an artifact's name": func(c *crew) {
			c.builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "other", "uri": "https://x/?t=" + secret, "produced_by": "builder", "digest": "sha256:" + strings.Repeat("0", 64)})
		},
		"an effect's parameters": func(c *crew) {
			c.builder.must("task.plan_effect", m{"task_id": c.id, "idempotency_key": "j", "side_effect_kind": "notification", "params": m{"to": secret}})
		},
		"an effect's environment": func(c *crew) {
			c.builder.must("task.plan_effect", m{"task_id": c.id, "idempotency_key": "j", "side_effect_kind": "notification", "command": m{"argv": []any{"true"}, "env": m{"TOKEN": secret}}})
		},
		"an error": func(c *crew) {
			c.builder.must("task.finish_attempt", m{"task_id": c.id, "attempt_id": c.attempt, "outcome": "failed", "failure_code": "crashed", "error_summary": secret})
		},
		"a reason": func(c *crew) {
			c.lead.must("task.open_circuit", m{"task_id": c.id, "actor": "lead", "reason": secret})
		},
		"a title": func(c *crew) {
			c.lead.must("task.update", m{"task_id": c.id, "expected_revision": c.lead.must("task.get", m{"task_id": c.id})["revision"], "title": secret})
		},
		"a label": func(c *crew) {
			c.lead.must("task.update", m{"task_id": c.id, "expected_revision": c.lead.must("task.get", m{"task_id": c.id})["revision"], "labels": []any{secret}})
		},
		"a finding": func(c *crew) {
			c.deliver()
			c.move(task.SpecGate)
			c.h.actor("checker", c.id).must("task.append_review", m{"task_id": c.id, "attempt_id": c.attempt, "review_type": "spec", "reviewer_ref": "checker", "verdict": "blocked", "findings": []any{m{"severity": "major", "message": "x", "file": secret}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, taskTeam)
			c := h.crew(effect)
			c.executing()
			before := h.taskOperator().must("task.get", m{"task_id": c.id})
			write(c)
			after := h.taskOperator().must("task.get", m{"task_id": c.id})
			if before["classification"] != "internal" && before["classification"] != "public" || after["classification"] != "restricted" {
				t.Errorf("the task was %v and is %v", before["classification"], after["classification"])
			}
			c.lead.refuse(api.Forbidden, task.Classified, "task.get", m{"task_id": c.id})
			for _, r := range h.records(audit.Filter{Like: audit.Record{TaskID: c.id}}) {
				if text, _ := audit.Encode(&r.Record); strings.Contains(string(text), "ghp_0123") {
					t.Errorf("it is in the log: %s", text)
				}
			}
		})
	}
}
