package daemon_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// judge is a policy that answers about tasks with the members of a decision, and allows
// everything else. It allows the samples on which it is tried.
func judge(members string) map[string]string {
	files := rego(true, "")
	files["task.rego"] = "package ocip.task\n\ndecision := {\"allow\": true, \"require_approval\": false, \"reason\": \"\", \"constraints\": {}} if input.task.tenant_id == \"sample\"\n\n" +
		"else := {" + members + "}\n"
	return files
}

const (
	says     = `"reason": json.marshal(input)`
	freely   = `"allow": true, "require_approval": false, "constraints": {}, ` + says
	denies   = `"allow": false, "require_approval": false, "constraints": {}, "reason": "not today"`
	asks     = `"allow": true, "require_approval": true, "constraints": {}, "reason": "somebody should look"`
	asksMany = `"allow": true, "require_approval": true, "constraints": {"approvers": %d}, "reason": "many should look"`
)

// last is the newest record of an event.
func (h *harness) last(event string) audit.Entry {
	h.t.Helper()
	found := h.records(audit.Filter{Like: audit.Record{Event: event}})
	if len(found) == 0 {
		h.t.Fatalf("there is no record of %s", event)
	}
	newest := found[0]
	for i := range found {
		if found[i].Seq > newest.Seq {
			newest = found[i]
		}
	}
	return newest
}

// judged checks that the policy in force allowed an event, with its input.
func (h *harness) judged(event, input string) {
	h.t.Helper()
	r := h.last(event)
	if r.PolicyApplied != "ocip.task" || r.PolicyRevision != h.policyStatus().Revision || r.PolicyReason != input {
		h.t.Errorf("%s by %s %s:\n got %s\nwant %s", event, r.PolicyApplied, r.PolicyRevision, r.PolicyReason, input)
	}
}

// A policy with a package for tasks is asked before everything that it can refuse, knows
// the details, and leaves nothing behind if it refuses.
func TestTaskPolicy(t *testing.T) {
	h := ruled(t, taskTeam+"  effects: {late: ask}\n", judge(freely))
	c := h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}})
	lead := `"actor":{"name":"lead","role":"orchestrator"},`
	about := func(phase string) string {
		return `"task":{"classification":"public","labels":["billing"],"phase":"` + phase + `","tenant_id":"acme-corp"}`
	}
	h.judged("task.created", `{"action":"task_transition",`+lead+about("")+`,"to_phase":"spec_review"}`)

	c.review("spec", "approved")
	move := m{"task_id": c.id, "from_phase": "spec_review", "to_phase": "execution_ready", "actor": "lead", "actor_role": "orchestrator", "reason": "r"}
	start := m{"task_id": c.id, "phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}
	revision := c.lead.must("task.get", m{"task_id": c.id})["revision"]
	for _, members := range []string{denies, asks} {
		h.enact(judge(members))
		e := c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.transition", move)
		if !strings.Contains(e.Message, "transition to execution_ready") {
			t.Errorf("it is told %q", e.Message)
		}
		if r := h.last("task_refused"); r.PolicyApplied != "ocip.task" || r.PolicyRevision != h.policyStatus().Revision || r.PolicyResult != audit.ResultDeny || r.TaskID != c.id {
			t.Errorf("on record is %+v", r.Record)
		}
	}
	if now := c.lead.must("task.get", m{"task_id": c.id}); now["revision"] != revision {
		t.Errorf("a refusal changed the task: %v", now)
	}
	h.enact(judge(freely))
	c.lead.must("task.transition", move)
	h.judged("task.transitioned", `{"action":"task_transition",`+lead+about("spec_review")+`,"to_phase":"execution_ready"}`)
	for _, members := range []string{denies, asks} {
		h.enact(judge(members))
		c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.start_attempt", start)
		// A guard refuses first: the policy cannot open a guard.
		c.lead.refuse(api.Conflict, task.GuardFailed, "task.transition", m{"task_id": c.id, "from_phase": "execution_ready", "to_phase": "executing", "actor": "lead", "actor_role": "orchestrator", "reason": "r"})
	}
	h.enact(judge(freely))
	c.attempt = str(c.lead.must("task.start_attempt", start), "attempt_id")
	h.judged("attempt.started", `{"action":"task_attempt",`+lead+`"attempt":1,"executor":"builder",`+about("execution_ready")+`}`)
	c.builder = h.actor("builder", c.id)
	c.move(task.Executing)

	// Tools.
	ask := m{"task_id": c.id, "attempt_id": c.attempt, "tool_call": m{"kind": "execute", "mcp_server": "other", "in_workspace": true}, "options": []any{}}
	if got := c.builder.must("task.ask_permission", ask); got["decision"] != "allow" {
		t.Errorf("permission %v", got)
	}
	h.judged("task_permission", `{"action":"task_permission","actor":{"name":"builder","role":"executor"},`+about("executing")+`,"tool_call":{"in_workspace":true,"kind":"execute","mcp_server":"other","research":false}}`)
	h.enact(judge(denies))
	if got := c.builder.must("task.ask_permission", ask); got["decision"] != "deny" || got["reason"] != "not today" {
		t.Errorf("permission %v", got)
	}

	h.enact(judge(freely))
	c.toApproval()

	// An effect, at its request.
	request := m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification"}
	h.enact(judge(denies))
	c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.request_approval", request)
	h.enact(judge(fmt.Sprintf(asksMany, 2)))
	asked := c.lead.must("task.request_approval", request)
	operator := h.taskOperator()
	shown := operator.must("approval.get", m{"approvalId": asked["approval_id"]})
	if shown["needed"] != 2.0 || shown["policyApplied"] != "ocip.task" || shown["policyRevision"] != h.policyStatus().Revision {
		t.Errorf("shown %v", shown)
	}
	operator.must("task.cancel_effect", m{"task_id": c.id, "effect_id": asked["effect_id"]})
	// One person is needed even if the policy asks for nobody.
	h.enact(judge(freely))
	asked = c.lead.must("task.request_approval", request)
	h.judged("approval.requested", `{"action":"task_effect",`+lead+`"effect":{"argv0":"","compensation":false,"kind":"notification","late":true,"type":"external"},`+about("awaiting_approval")+`}`)
	run := m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"]}
	resume := m{"task_id": c.id, "from_phase": "awaiting_approval", "to_phase": "ready_to_resume", "actor": "lead", "actor_role": "orchestrator", "reason": "r"}
	c.lead.refuse(api.Conflict, task.GuardFailed, "task.transition", resume)
	shown = operator.must("approval.get", m{"approvalId": asked["approval_id"]})
	operator.must("approval.resolve", m{"approvalId": asked["approval_id"], "decision": "approve", "digest": shown["digest"]})
	c.lead.must("task.transition", resume)

	// And at its start.
	for _, members := range []string{denies, fmt.Sprintf(asksMany, 2)} {
		h.enact(judge(members))
		c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.run_effect", run)
	}
	if effects := c.lead.must("task.get", m{"task_id": c.id})["effects"].([]any); effects[0].(m)["state"] != "planned" {
		t.Errorf("refused, and %v", effects)
	}
	h.enact(judge(asks))
	if got := c.lead.must("task.run_effect", run); got["state"] != "started" {
		t.Errorf("run %v", got)
	}
	h.verify()
}

// A policy that does not answer denies, whatever its fault. The caller does not learn the
// reason; the record has it.
func TestDeadTaskPolicy(t *testing.T) {
	h := ruled(t, taskTeam, judge(freely))
	c := h.crew()
	c.review("spec", "approved")
	move := m{"task_id": c.id, "from_phase": "spec_review", "to_phase": "execution_ready", "actor": "lead", "actor_role": "orchestrator", "reason": "r"}
	const endless = `count([1 | some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); some c in numbers.range(1, 20000); a + b + c < 0]) == 0`
	refused := func(name, cause string) {
		e := c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.transition", move)
		if !strings.HasSuffix(e.Message, "the policy gave no answer") {
			t.Errorf("%s: it is told %q", name, e.Message)
		}
		if r := h.last("task_refused"); !strings.Contains(r.PolicyReason, cause) || r.PolicyRevision != h.policyStatus().Revision {
			t.Errorf("%s: on record is %q", name, r.PolicyReason)
		}
	}
	for name, tt := range map[string]struct{ members, rule, cause string }{
		"undefined":          {rule: "false", cause: "it is undefined"},
		"no object":          {members: `1, 2`, cause: "want an object"},
		"a member missing":   {members: `"allow": true, "require_approval": false, "reason": ""`, cause: "constraints is missing"},
		"a wrong type":       {members: `"allow": "yes", "require_approval": false, "reason": "", "constraints": {}`, cause: "allow is a string"},
		"an unknown member":  {members: freely + `, "allows": true`, cause: "unknown member"},
		"rounds":             {members: `"allow": true, "require_approval": false, "reason": "", "constraints": {"max_rounds": 3}`, cause: "a task has no rounds"},
		"a built-in's error": {rule: "to_number(input.task.phase) > 1", cause: "to_number"},
	} {
		files := judge(tt.members)
		if tt.members == "" {
			files = judge(freely)
			files["task.rego"] = strings.TrimSuffix(files["task.rego"], "\n") + " if " + tt.rule + "\n"
		}
		h.enact(files)
		refused(name, tt.cause)
	}
	// The level that the policy allows has a ceiling, too.
	h.enact(judge(`"allow": true, "require_approval": false, "reason": "fine", "constraints": {"max_classification": "public"}`))
	e := c.lead.refuse(api.Forbidden, task.PolicyDenied, "task.create", m{"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_draft", "classification": "internal"})
	if !strings.Contains(e.Message, "the task is internal, and the policy allows up to public") {
		t.Errorf("it is told %q", e.Message)
	}
	// Without the package, the built-in rules apply.
	h.enact(map[string]string{"task.rego": "package unrelated\n"})
	c.lead.must("task.create", m{"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_draft", "classification": "internal"})
	if r := h.last("task.created"); r.PolicyApplied != "tasks-built-in" || r.PolicyRevision != h.policyStatus().Revision {
		t.Errorf("on record is %+v", r.Record)
	}
	// An endless evaluation is ended.
	h.stop()
	lay(t, h.path("policy"), map[string]string{"task.rego": strings.TrimSuffix(judge(freely)["task.rego"], "\n") + " if " + endless + "\n"})
	h.flags = map[string]any{"policy.timeout": "50ms"}
	h.start()
	c.lead = h.actor("lead", "")
	refused("endless", "no answer in time")
	h.verify()
}

// The initial rules of a new policy are the built-in ones.
func TestTaskRulesToBeginWith(t *testing.T) {
	starter, err := policies.Starter()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(starter, func(name, _ string) bool { return strings.HasPrefix(name, "my_") })
	p, err := policy.Compile(t.Context(), policy.Source{Path: lay(t, t.TempDir(), starter)})
	if err != nil {
		t.Fatal(err)
	}
	var questions []taskservice.Question
	of := func(q task.Question, tool *taskapi.ToolCall) {
		questions = append(questions, taskservice.Question{Question: q, Tool: tool}, taskservice.Question{Question: q, Tool: tool, Research: true})
	}
	of(task.Question{Action: task.AskTransition, To: task.Completed}, nil)
	of(task.Question{Action: task.AskAttempt, Attempt: 3, WorkedBy: "builder"}, nil)
	of(task.Question{Action: task.AskEffect, Effect: &task.Effect{EffectType: task.TypeExternal}}, nil)
	for _, kind := range []string{"read", "search", "think", "edit", "execute", "delete", "fetch", "other", ""} {
		for _, server := range []string{"", "ocipd", "other"} {
			for _, inside := range []bool{false, true} {
				of(task.Question{Action: task.AskPermission}, &taskapi.ToolCall{Kind: kind, Server: server, InWorkspace: inside})
			}
		}
	}
	for i := range questions {
		q := &questions[i]
		in := policy.TaskQuestion{Action: q.Action, Classification: "internal", To: string(q.To), Attempt: q.Attempt}
		if q.Effect != nil {
			in.Effect = &policy.TaskEffect{Type: q.Effect.EffectType}
		}
		if q.Tool != nil {
			in.Tool = &policy.TaskTool{Kind: q.Tool.Kind, Server: q.Tool.Server, InWorkspace: q.Tool.InWorkspace, Research: q.Research}
		}
		said, _, _, err := p.EvaluateTask(t.Context(), &in)
		want := taskservice.BuiltIn(q)
		if err != nil || said.Allow != want.Allow || said.RequireApproval != want.RequireApproval || max(1, said.Approvers) != max(1, want.Approvers) {
			t.Errorf("%+v, %+v: %+v, %v, want %+v", q.Question, q.Tool, said, err, want)
		}
	}
}
