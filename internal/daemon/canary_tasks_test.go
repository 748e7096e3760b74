package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
)

// Participants in a task can do only what their role allows: only its orchestrators move
// it, no effect happens without a person's approval, and other tenants learn nothing of it.
func TestCanaryOfTasks(t *testing.T) {
	const label = "billing"
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}})
	c.executing()

	// The executor tries to move the task, and an actor of another tenant tries everything.
	for _, to := range []task.Phase{task.SpecGate, task.Failed} {
		_, _ = c.builder.call("task.transition", m{"task_id": c.id, "from_phase": "executing", "to_phase": to, "actor": "builder", "actor_role": "executor", "reason": "so"})
	}
	foreign := h.actor("foreign", "")
	for method, params := range taskParams(c.id) {
		got, err := foreign.call(method, params)
		if err == nil && strings.Contains(fmt.Sprint(got), label) {
			t.Errorf("noticed: %s by an actor of another tenant is answered with the task: %.300v", method, got)
		}
	}
	_, _ = foreign.call("task.open_circuit", m{"task_id": c.id, "actor": "foreign", "reason": "so"})

	// Nobody has approved the effect.
	if phase := c.lead.must("task.get", m{"task_id": c.id})["phase"]; phase == "executing" {
		c.toApproval()
		lobster := h.actor("gate", c.id)
		asked := lobster.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification", "requested_by": "gate"})
		_, _ = c.lead.call("task.transition", m{"task_id": c.id, "from_phase": "awaiting_approval", "to_phase": "ready_to_resume", "actor": "lead", "actor_role": "orchestrator", "reason": "so"})
		_, _ = lobster.call("task.run_effect", m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"]})
	}

	moved := 0
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionTask, TaskID: c.id}}) {
		switch r.Event {
		case "task.transitioned", "circuit.opened":
			if moved++; r.Actor != "lead" {
				t.Errorf("noticed: the task is moved by %s, which does not lead it: %+v", r.Actor, r)
			}
		case "effect.started":
			t.Errorf("noticed: an effect is started that no person has approved: %+v", r)
		}
	}
	if moved == 0 {
		t.Error("nothing on record moves the task: the test sees nothing")
	}
}

// taskBases are calls of a method of tasks with all its members. The canary's apps are no
// actors, so each is refused.
func taskBases(method string) []object {
	const uuid = "01890000-0000-7000-8000-000000000000"
	digest := "sha256:" + strings.Repeat("0", 64)
	at := "2099-03-14T10:00:00Z"
	of := func(more object) []object {
		return []object{plus(object{"task_id": "tsk_" + uuid, "request_key": free("key")}, more)}
	}
	command := object{
		"argv": list{"true", free("argument")}, "cwd": free("folder"), "env": object{"NAME": free("value"), "≠name": free("value")},
		"env_from": list{free("HOME")}, "inputs": list{free("plan.md")}, "stdin": free("text"), "timeout_s": 1,
	}
	planned := object{
		"idempotency_key": free("send"), "side_effect_kind": free("mail"), "requested_action": free("send it"),
		"command": command, "compensation": command,
	}
	external := plus(planned, object{"params": anything()})
	delete(external, "command")
	texts := func(what string) list { return list{free(what), free("another")} }
	spec := object{
		"goal": free("goal"), "scope_in": texts("in"), "scope_out": texts("out"), "inputs": texts("input"), "outputs": texts("output"),
		"acceptance_criteria": texts("criterion"), "risks": texts("risk"),
	}
	switch method {
	case "task.attach":
		return []object{{"token": free("ocg_")}}
	case "task.create":
		base := object{
			"title": free("title"), "spec": spec, "workspace": "main", "initial_phase": "spec_draft", "labels": texts("label"), "depends_on": list{"tsk_" + uuid},
			"effects": list{planned, external}, "tenant_id": "acme-corp", "classification": "internal", "not_before": at, "request_key": free("key"),
		}
		return []object{
			plus(base, object{"spec_markdown": free("# Goal\n")}),
			plus(base, object{brief: true, "spec_ref": object{"uri": free("spec.md"), "digest": digest}}),
			{"title": free("title"), "spec_ref": object{"uri": "spec.md", "digest": digest}, "workspace": "main", "initial_phase": "spec_review"},
		}
	case "task.get":
		return []object{{"task_id": "tsk_" + uuid, "part": "events", "after": free("1"), "include_events_limit": 10}}
	case "task.transition":
		return of(object{
			"from_phase": "spec_draft", "to_phase": "spec_review", "actor": "o", "actor_role": "orchestrator", "reason": free("done"),
			"attempt_id": "att_" + uuid, "expected_revision": 1,
		})
	case "task.start_attempt":
		return of(object{
			"phase": "executing", "actor": "o", "actor_role": "orchestrator", "runtime": "local", "executor_kind": "builder",
			"worker_ref": free("worker"), "external_session_ref": free("session"), "expected_revision": 1,
		})
	case "task.record_checkpoint":
		return of(object{"attempt_id": "att_" + uuid, "checkpoint_type": free("progress"), "payload": anything(), "fence": 1})
	case "task.record_artifact":
		return of(object{
			"attempt_id": "att_" + uuid, "kind": "diff", "uri": free("a.patch"), "produced_by": free("e"), "summary": free("summary"), "digest": digest, "fence": 1,
		})
	case "task.append_review":
		return of(object{
			"attempt_id": "att_" + uuid, "review_type": "spec", "reviewer_ref": free("s"), "verdict": "approved", "summary": free("summary"), "subject_revision": 1,
			"findings": list{object{"severity": "minor", "message": free("message"), "file": free("file"), "artifact_uri": free("a.patch"), "line": 1}},
		})
	case "task.request_approval":
		more := object{"attempt_id": "att_" + uuid, "requested_by": free("o"), "status": free("pending")}
		return append(of(plus(planned, more)), of(plus(external, more))...)
	case "task.resolve_approval":
		return of(object{
			"approval_id": "apr_" + uuid, "resolution": "approved", "resolved_by": free("alice"), "note": free("note"), "digest": digest, "signature": free("signature"),
		})
	case "task.open_circuit":
		return of(object{"actor": "o", "actor_role": "orchestrator", "reason": free("stuck"), "latest_attempt_id": "att_" + uuid})
	case "task.close_circuit":
		return of(object{"to_phase": "spec_draft", "reason": free("again")})
	case "task.list_ready":
		return []object{{"labels": texts("label"), "limit": 10}}
	case "task.list":
		return []object{{"tenant_id": "acme-corp", "phase": "spec_draft", "after": "tsk_" + uuid, "limit": 10}}
	case "task.grants":
		return []object{{"task_id": "tsk_" + uuid, "actor": free("builder"), "after": "grt_" + uuid, "limit": 10}}
	case "task.import":
		return []object{{
			"origin": free("v1:x"), "title": free("title"), "phase": "completed", "workspace": "main", "spec": spec, "spec_markdown": free("# Goal\n"), "labels": texts("label"),
			"depends_on": list{"tsk_" + uuid}, "artifacts": list{object{"uri": free("a.md"), "digest": digest}}, "tenant_id": "acme-corp", "classification": "internal",
			"status": free("open"), "retries": 1, "last_error": free("error"),
		}}
	case "task.claim":
		return of(object{"lease_s": 60})
	case "task.update":
		return of(object{
			"title": free("title"), "labels": texts("label"), "depends_on": list{"tsk_" + uuid}, "not_before": at, "spec": spec,
			"spec_markdown": free("# Goal\n"), "expected_revision": 1,
		})
	case "task.finish_attempt":
		return of(object{"attempt_id": "att_" + uuid, "outcome": "failed", "failure_code": "timeout", "error_summary": free("error"), "fence": 1})
	case "task.plan_effect":
		return append(of(planned), of(external)...)
	case "task.run_effect":
		call := object{"task_id": "tsk_" + uuid, "request_digest": digest}
		return []object{plus(call, object{"effect_id": "eff_" + uuid}), plus(call, object{"idempotency_key": free("send")})}
	case "task.finish_effect":
		return of(object{"effect_id": "eff_" + uuid, "run": 1, "run_token": free("token"), "outcome": "done", "receipt": anything()})
	case "task.settle_effect":
		return of(object{"effect_id": "eff_" + uuid, "run": 1, "outcome": "done", "note": free("note")})
	case "task.kill_effect":
		return of(object{"effect_id": "eff_" + uuid, "run": 1, "reason": free("reason")})
	case "task.cancel_effect":
		return of(object{"effect_id": "eff_" + uuid})
	case "task.ask_permission":
		return []object{{
			"task_id": "tsk_" + uuid, "attempt_id": "att_" + uuid, "options": anything(),
			"tool_call": object{"id": free("id"), "kind": free("edit"), "title": free("title"), "mcp_server": free("server"), "input": anything()},
		}}
	case "task.grant":
		return of(object{"actor": free("e"), "agent": free("a"), "attempt_id": "att_" + uuid, "tools": texts("task_get"), "expires_s": 60, "bind": free("program")})
	case "task.revoke_grant":
		return of(object{"grant_id": "grt_" + uuid})
	}
	return nil
}
