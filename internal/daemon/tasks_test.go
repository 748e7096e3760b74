package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

const taskTeam = acme + `
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme-corp}
    - {name: second, role: orchestrator, tenant_id: acme-corp}
    - {name: builder, role: executor, tenant_id: acme-corp}
    - {name: checker, role: spec_reviewer, tenant_id: acme-corp}
    - {name: critic, role: quality_reviewer, tenant_id: acme-corp}
    - {name: gate, role: lobster, tenant_id: acme-corp}
    - {name: foreign, role: orchestrator, tenant_id: globex-inc}
    - {name: bot, role: orchestrator, app: "@acme/alice", tenant_id: acme-corp}
  self_approval: true
  self_review: true
`

const goodTaskSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

type m = map[string]any

// taskCaller is a caller on one of the two sockets.
type taskCaller struct {
	t    testing.TB
	c    *client.Client
	name string
	said *said
}

func (h *harness) taskOperator() *taskCaller { return h.taskDial("run/operator.sock", "operator") }

// attaches attaches the caller as the runner, and returns its orders.
func (a *taskCaller) attaches() *client.Stream {
	a.t.Helper()
	orders, err := a.c.Stream(a.t.Context(), "runner.attach", m{})
	if err == nil {
		// The first line says that the runner is attached.
		_, err = nextOf(a.t, orders)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return orders
}

func (h *harness) taskDial(socket, name string) *taskCaller {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, h.path(socket))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return &taskCaller{t: h.t, c: c, name: name, said: h.said}
}

// actor attaches as an actor with a fresh grant.
func (h *harness) actor(name, id string) *taskCaller {
	h.t.Helper()
	params := m{"actor": name}
	if id != "" {
		params["task_id"] = id
	}
	granted := h.taskOperator().must("task.grant", params)
	a := h.taskDial("run/kernel.sock", name)
	a.must("task.attach", m{"token": granted["token"]})
	return a
}

func (a *taskCaller) call(method string, params any) (m, error) {
	a.said.calls(method, params)
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	var result m
	err := a.c.Call(ctx, method, params, &result)
	return result, err
}

func (a *taskCaller) must(method string, params any) m {
	a.t.Helper()
	result, err := a.call(method, params)
	if err != nil {
		a.t.Fatalf("%s by %s: %v", method, a.name, err)
	}
	return result
}

// refuse checks for an error, with its code of tasks if there is one.
func (a *taskCaller) refuse(code api.Code, why task.Code, method string, params any) *api.Error {
	a.t.Helper()
	_, err := a.call(method, params)
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != code {
		a.t.Fatalf("%s by %s: %v, want %s", method, a.name, err, code)
	}
	text, _ := json.Marshal(e.Details)
	if why != "" && !strings.Contains(string(text), `"code":"`+string(why)+`"`) {
		a.t.Fatalf("%s by %s: %s, want %s", method, a.name, text, why)
	}
	return e
}

func str(v m, name string) string { s, _ := v[name].(string); return s }

// crew are the actors of one task in progress.
type crew struct {
	h             *harness
	lead, builder *taskCaller
	id, attempt   string
}

func (c *crew) move(to task.Phase) m {
	c.h.t.Helper()
	now := c.lead.must("task.get", m{"task_id": c.id})
	return c.lead.must("task.transition", m{"task_id": c.id, "from_phase": now["phase"], "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "because"})
}

func (c *crew) review(kind, verdict string) {
	c.h.t.Helper()
	name := map[string]string{"spec": "checker", "quality": "critic"}[kind]
	reviewer := c.h.actor(name, c.id)
	params := m{"task_id": c.id, "review_type": kind, "reviewer_ref": name, "verdict": verdict, "findings": []any{}}
	if c.attempt != "" {
		params["attempt_id"] = c.attempt
	}
	reviewer.must("task.append_review", params)
}

func (h *harness) crew(effects ...any) *crew {
	h.t.Helper()
	c := &crew{h: h, lead: h.actor("lead", "")}
	work := filepath.Join(h.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		h.t.Fatal(err)
	}
	created := c.lead.must("task.create", m{"title": "Export", "spec_markdown": goodTaskSpec, "workspace": work, "initial_phase": "spec_review", "labels": []any{"billing"}, "effects": append([]any{}, effects...)})
	c.id = str(created, "task_id")
	return c
}

// executing brings the task to its execution.
func (c *crew) executing() {
	c.h.t.Helper()
	c.review("spec", "approved")
	c.move(task.ExecutionReady)
	c.attempt = str(c.lead.must("task.start_attempt", m{"task_id": c.id, "phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}), "attempt_id")
	c.builder = c.h.actor("builder", c.id)
	c.move(task.Executing)
}

func (c *crew) deliver() {
	c.h.t.Helper()
	if err := os.WriteFile(filepath.Join(c.h.dir, "work/out.txt"), []byte("made"), 0o600); err != nil {
		c.h.t.Fatal(err)
	}
	got := c.builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "builder"})
	if got["verified"] != true || got["artifact_revision"] != 1.0 {
		c.h.t.Errorf("artifact %v", got)
	}
	c.builder.must("task.finish_attempt", m{"task_id": c.id, "attempt_id": c.attempt, "outcome": "succeeded"})
}

// toApproval delivers the work, and brings the task through its gates.
func (c *crew) toApproval() {
	c.h.t.Helper()
	c.deliver()
	c.move(task.SpecGate)
	c.review("spec", "approved")
	c.move(task.QualityGate)
	c.review("quality", "approved")
	c.move(task.AwaitingApproval)
}

// If a task revokes an unused approval, everybody sees it as revoked, also after a restart.
func TestApprovalThatItsTaskRevokes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]task.Phase{"failed": task.Failed, "reworked": task.ExecutionReady} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effect := func(key string) m {
				return m{"idempotency_key": key, "side_effect_kind": "notification", "requested_action": "Tell " + key, "params": m{"to": key}}
			}
			h := build(t, taskTeam)
			c := h.crew(effect("ops"), effect("dev"))
			c.executing()
			c.toApproval()
			lobster, person := h.actor("gate", c.id), h.operates()
			var id string
			for key, what := range map[string]string{"ops": api.DecideApprove, "dev": api.DecideChanges} {
				asked := lobster.must("task.request_approval", m{"task_id": c.id, "idempotency_key": key, "requested_action": "Tell " + key, "side_effect_kind": "notification", "requested_by": "gate"})
				saw := h.shown(str(asked, "approval_id"))
				person.must("approval.resolve", decision(what, &saw), nil)
				if what == api.DecideApprove {
					id = saw.ApprovalID
				}
			}
			c.move(end)
			for range 2 {
				now := h.shown(id)
				if now.State != api.ApprovalRevoked || now.Decision == nil || now.Decision.Decision != api.DecideRevoke || now.Decision.By != "lead" || len(now.Approvals) != 1 {
					t.Errorf("it is %+v by %+v", now, now.Decision)
				}
				var list api.ApprovalListResult
				h.operator("approval.list", m{"state": api.ApprovalApproved}, &list)
				if list.Total != 0 {
					t.Errorf("listed as approved are %s", list.Approvals)
				}
				h.stop()
				h.start()
			}
			if got := h.decisions(id); !slices.Equal(got, []string{"approved", "revoked"}) {
				t.Errorf("on record are %q", got)
			}
		})
	}
}

// A task goes from its spec to completed through separate connections, with its effect
// once, and over restarts of the daemon; its events have no gap.
func TestTaskLifecycle(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}})
	c.executing()
	c.builder.must("task.record_checkpoint", m{"task_id": c.id, "attempt_id": c.attempt, "checkpoint_type": "progress", "payload": m{"done": 1}})
	c.deliver()
	if _, err := c.builder.call("task.get", m{"task_id": c.id}); err == nil {
		t.Error("a grant outlives its attempt")
	}
	c.move(task.SpecGate)
	c.lead.refuse(api.Conflict, task.GuardFailed, "task.transition", m{"task_id": c.id, "from_phase": "spec_gate", "to_phase": "quality_gate", "actor": "lead", "actor_role": "orchestrator", "reason": "x"})
	h.stop()
	h.start()
	c.lead = h.actor("lead", "")
	c.review("spec", "approved")
	c.move(task.QualityGate)
	c.review("quality", "approved")
	c.lead.refuse(api.Conflict, task.GuardFailed, "task.transition", m{"task_id": c.id, "from_phase": "quality_gate", "to_phase": "completed", "actor": "lead", "actor_role": "orchestrator", "reason": "x"})
	c.move(task.AwaitingApproval)
	lobster := h.actor("gate", c.id)
	ask := m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification", "requested_by": "gate"}
	asked := lobster.must("task.request_approval", ask)
	if again := lobster.must("task.request_approval", ask); again["approval_id"] != asked["approval_id"] || again["replayed"] != true {
		t.Errorf("asked again: %v", again)
	}
	operator := h.taskOperator()
	shown := operator.must("approval.get", m{"approvalId": asked["approval_id"]})
	if shown["kind"] != "effect" || shown["taskId"] != c.id || !strings.Contains(str(shown, "content"), "Tell ops") {
		t.Errorf("shown %v", shown)
	}
	resolve := m{"task_id": c.id, "approval_id": asked["approval_id"], "resolution": "approved", "resolved_by": "somebody", "digest": shown["digest"]}
	lobster.refuse(api.Forbidden, task.NeedsPerson, "task.resolve_approval", resolve)
	run := m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"]}
	lobster.refuse(api.Conflict, task.PhaseMismatch, "task.run_effect", run)
	if got := operator.must("task.resolve_approval", resolve); got["status"] != "approved" {
		t.Errorf("resolved %v", got)
	}
	c.move(task.ReadyToResume)
	started := lobster.must("task.run_effect", run)
	lobster.refuse(api.Conflict, task.EffectInFlight, "task.run_effect", run)
	h.stop()
	h.start()
	c.lead, lobster = h.actor("lead", ""), h.actor("gate", c.id)
	lobster.refuse(api.Conflict, task.EffectInFlight, "task.run_effect", run)
	lobster.must("task.finish_effect", m{"task_id": c.id, "effect_id": started["effect_id"], "run": started["run"], "run_token": started["run_token"], "outcome": "done", "receipt": m{"id": 7}})
	if got := lobster.must("task.run_effect", run); got["replayed"] != true || got["state"] != "done" {
		t.Errorf("run again: %v", got)
	}
	c.move(task.Completed)

	var seqs []int
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionTask, TaskID: c.id}}) {
		seqs = append(seqs, r.TaskSeq)
	}
	slices.Sort(seqs)
	for i, n := range seqs {
		if n != i+1 {
			t.Fatalf("events %v", seqs)
		}
	}
	view := c.lead.must("task.get", m{"task_id": c.id, "include_events_limit": 200})
	if events := view["events"].([]any); len(events) != len(seqs) || view["phase"] != "completed" {
		t.Errorf("%d events of %d", len(events), len(seqs))
	}
	h.verify()
}

// taskParams are well-formed parameters of each method.
func taskParams(id string) map[string]m {
	any36 := "01a1fe46-d68f-77d6-9611-d5a7674802c7"
	att, eff := "att_"+any36, "eff_"+any36
	zero := "sha256:" + strings.Repeat("0", 64)
	with := func(more m) m { p := m{"task_id": id}; maps.Copy(p, more); return p }
	return map[string]m{
		"task.create":            {"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_draft"},
		"task.get":               with(nil),
		"task.transition":        with(m{"from_phase": "completed", "to_phase": "failed", "actor": "x", "actor_role": "", "reason": "r"}),
		"task.start_attempt":     with(m{"phase": "executing", "actor": "x", "runtime": "local", "executor_kind": "builder", "expected_revision": 99}),
		"task.record_checkpoint": with(m{"attempt_id": att, "checkpoint_type": "x", "payload": m{}}),
		"task.record_artifact":   with(m{"attempt_id": att, "kind": "other", "uri": "x", "produced_by": "x", "digest": zero}),
		"task.append_review":     with(m{"review_type": "spec", "reviewer_ref": "x", "verdict": "approved", "findings": []any{}, "attempt_id": att}),
		"task.request_approval":  with(m{"idempotency_key": "none", "requested_action": "x", "side_effect_kind": "x", "params": m{}}),
		"task.resolve_approval":  with(m{"approval_id": "apr_" + any36, "resolution": "rejected", "resolved_by": "x"}),
		"task.open_circuit":      with(m{"actor": "x", "reason": "r", "latest_attempt_id": att}),
		"task.list_ready":        {},
		"task.claim":             with(m{"lease_s": 0}),
		"task.update":            with(m{"expected_revision": 99}),
		"task.finish_attempt":    with(m{"attempt_id": att, "outcome": "succeeded"}),
		"task.plan_effect":       with(m{"idempotency_key": "none", "side_effect_kind": "x", "params": m{}}),
		"task.run_effect":        with(m{"effect_id": eff, "request_digest": zero}),
		"task.finish_effect":     with(m{"effect_id": eff, "run": 1, "run_token": "x", "outcome": "done"}),
		"task.settle_effect":     with(m{"effect_id": eff, "outcome": "done", "note": "x"}),
		"task.cancel_effect":     with(m{"effect_id": eff}),
		"task.kill_effect":       with(m{"effect_id": eff, "reason": "x"}),
		"task.close_circuit":     with(m{"to_phase": "spec_draft", "reason": "r"}),
		"task.ask_permission":    with(m{"tool_call": m{"kind": "read", "in_workspace": true}, "options": []any{}}),
		"task.grant":             with(m{"actor": "checker", "attempt_id": att}),
		"task.revoke_grant":      with(m{"grant_id": "grt_" + any36}),
		"task.grants":            {},
		"task.list":              {},
		"task.import":            {"origin": "v1:x", "title": "t", "phase": "spec_draft", "workspace": "w"},
	}
}

// Every cell of the matrix over the real sockets: a permitted caller is never refused
// because of its role, and another one always is, with a record.
func TestTaskMatrix(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	holders := map[task.Role]*taskCaller{
		task.Orchestrator: c.lead, task.Executor: c.builder, task.Lobster: h.actor("gate", c.id), task.Operator: h.taskOperator(),
	}
	review, result := h.crew(), h.crew()
	holders[task.SpecReviewer] = h.actor("checker", review.id)
	result.executing()
	result.deliver()
	result.move(task.SpecGate)
	holders[task.QualityReviewer] = h.actor("critic", result.id)
	all := taskParams(c.id)
	refusals := 0
	for method, roles := range taskservice.Matrix() {
		if method == "task.watch" {
			continue
		}
		if all[method] == nil {
			t.Errorf("%s is not tried", method)
		}
		for role, who := range holders {
			params := maps.Clone(all[method])
			if own := map[task.Role]*crew{task.SpecReviewer: review, task.QualityReviewer: result}[role]; own != nil && params["task_id"] != nil {
				params["task_id"] = own.id
			}
			if method == "task.append_review" && role == task.QualityReviewer {
				params["review_type"] = "quality"
			}
			if method == "task.transition" {
				params["actor_role"] = role
			}
			_, err := who.call(method, params)
			e, _ := errors.AsType[*api.Error](err)
			text, _ := json.Marshal(e)
			notPermitted := e != nil && e.Code == api.Forbidden && strings.Contains(string(text), "NOT_PERMITTED")
			if notPermitted == roles.Has(role) {
				t.Errorf("%s by %s (may %s): %s", method, role, roles, text)
			}
			if notPermitted {
				refusals++
			}
		}
	}
	// Methods for people on the operator socket are for nobody on the other one.
	for _, method := range []string{"task.watch", "runner.attach", "runner.report"} {
		for role, who := range holders {
			if role == task.Operator {
				continue
			}
			params := m{"task_id": c.id}
			if method != "task.watch" {
				params = m{}
			}
			if _, err := who.call(method, params); api.AsError(err).Code != api.Forbidden {
				t.Errorf("%s by %s: %v", method, role, err)
			}
		}
	}
	if refused := h.records(audit.Filter{Like: audit.Record{Event: "task_refused", Code: string(task.NotPermitted)}}); len(refused) != refusals {
		t.Errorf("%d refusals are on record of %d", len(refused), refusals)
	}
}

// No parameter changes the caller's identity.
func TestTaskRoles(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	stranger := h.taskDial("run/kernel.sock", "stranger")
	stranger.refuse(api.AppNotRegistered, "", "task.get", m{"task_id": c.id})
	stranger.refuse(api.Unauthorized, "", "task.attach", m{"token": "ocg_guess"})
	stranger.refuse(api.AppNotRegistered, "", "task.list_ready", m{})
	foreign := h.actor("foreign", "")
	foreign.refuse(api.NotFound, "", "task.get", m{"task_id": c.id})
	foreign.refuse(api.NotFound, "", "task.claim", m{"task_id": c.id})
	c.lead.refuse(api.Forbidden, task.RoleMismatch, "task.transition", m{"task_id": c.id, "from_phase": "spec_review", "to_phase": "spec_draft", "actor": "lead", "actor_role": "operator", "reason": "x"})
	c.lead.refuse(api.InvalidParams, "", "task.claim", m{"task_id": c.id, "role": "operator"})
	c.lead.refuse(api.Forbidden, task.NotPermitted, "task.grant", m{"actor": "second"})
	checker := h.actor("checker", c.id)
	checker.refuse(api.Forbidden, task.NotPermitted, "task.append_review", m{"task_id": c.id, "review_type": "quality", "reviewer_ref": "checker", "verdict": "approved", "findings": []any{}})
	other := h.crew()
	checker.refuse(api.Forbidden, task.NotPermitted, "task.get", m{"task_id": other.id})
	// An app is its actor only with its own token.
	bot := h.register("@acme/alice", api.Capabilities{})
	var list m
	bot.must("task.list_ready", m{}, &list)
	if len(list["tasks"].([]any)) != 2 {
		t.Errorf("ready: %v", list)
	}
	// A grant permits the tools that it names, until it is revoked.
	operator := h.taskOperator()
	granted := operator.must("task.grant", m{"task_id": c.id, "actor": "checker", "tools": []any{"task_get"}})
	few := h.taskDial("run/kernel.sock", "few")
	few.must("task.attach", m{"token": granted["token"]})
	few.must("task.get", m{"task_id": c.id})
	few.refuse(api.CapabilityDenied, "", "task.append_review", m{"task_id": c.id, "review_type": "spec", "reviewer_ref": "x", "verdict": "approved", "findings": []any{}})
	operator.must("task.revoke_grant", m{"task_id": c.id, "grant_id": granted["grant_id"]})
	few.refuse(api.Unauthorized, "", "task.get", m{"task_id": c.id})
}

// An actor that moves to another tenant under its name has request keys of its own: it gets no
// answer that the former one got.
func TestTaskRequestKeysOfAMovedActor(t *testing.T) {
	h := build(t, taskTeam)
	create := m{"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_review", "request_key": "one"}
	first := h.actor("lead", "").must("task.create", create)
	h.reloaded(strings.Replace(taskTeam, "{name: lead, role: orchestrator, tenant_id: acme-corp}", "{name: lead, role: orchestrator, tenant_id: globex-inc}", 1))
	moved := h.actor("lead", "")
	if got := moved.must("task.create", create); got["task_id"] == first["task_id"] || got["replayed"] != nil {
		t.Errorf("the actor of acme got %v, that of globex %v", first, got)
	}
	create["title"] = "u"
	moved.refuse(api.Conflict, task.RequestKeyReused, "task.create", create)
}

// A repeated request gets the same answer, without a token, and a key belongs to one request.
func TestTaskRequestKeys(t *testing.T) {
	h := build(t, taskTeam)
	lead := h.actor("lead", "")
	create := m{"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_review", "request_key": "one"}
	first := lead.must("task.create", create)
	again := lead.must("task.create", create)
	if again["task_id"] != first["task_id"] || again["replayed"] != true || first["replayed"] != nil {
		t.Errorf("%v, then %v", first, again)
	}
	create["title"] = "u"
	lead.refuse(api.Conflict, task.RequestKeyReused, "task.create", create)
	grant := m{"task_id": first["task_id"], "actor": "checker", "request_key": "g"}
	given, replayed := lead.must("task.grant", grant), lead.must("task.grant", grant)
	if str(given, "token") == "" || str(replayed, "token") != "" || given["grant_id"] != replayed["grant_id"] {
		t.Errorf("%v, then %v", given, replayed)
	}
	// A key belongs to an actor, and only the task's grants get the earlier answer.
	one, other := h.crew(), h.crew()
	one.executing()
	other.executing()
	says := m{"task_id": one.id, "attempt_id": one.attempt, "checkpoint_type": "progress", "payload": m{"done": 1}, "request_key": "said"}
	one.builder.must("task.record_checkpoint", says)
	if again := one.builder.must("task.record_checkpoint", says); again["replayed"] != true {
		t.Errorf("said again: %v", again)
	}
	other.builder.refuse(api.Forbidden, task.NotPermitted, "task.record_checkpoint", says)
	lead.must("task.update", m{"task_id": one.id, "expected_revision": lead.must("task.get", m{"task_id": one.id})["revision"], "title": "the key is ghp_0123456789abcdefghijABCDEFGHIJ012345"})
	one.builder.refuse(api.Forbidden, task.Classified, "task.record_checkpoint", says)
}

// A malformed request changes nothing.
func TestTaskHostile(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	before := fmt.Sprint(c.lead.must("task.get", m{"task_id": c.id}))
	for _, uri := range []string{"../secret", "/etc/passwd", "link", "pipe", "work", "."} {
		work := filepath.Join(h.dir, "work")
		_ = os.Symlink("/etc/passwd", filepath.Join(work, "link"))
		_ = os.MkdirAll(filepath.Join(work, "work"), 0o700)
		c.builder.refuse(api.InvalidParams, "", "task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "diff", "uri": uri, "produced_by": "x"})
	}
	for _, params := range []m{
		{"task_id": c.id + "0"}, {"task_id": 7}, {"task_id": c.id, "lease_s": -1}, {"task_id": c.id, "lease_s": 1e9}, {"task_id": c.id, "unknown": 1}, {},
		{"task_id": "tsk_" + strings.Repeat("0", 36)},
	} {
		c.lead.refuse(api.InvalidParams, "", "task.claim", params)
	}
	c.lead.refuse(api.NotFound, "", "task.claim", m{"task_id": "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"})
	c.lead.refuse(api.Conflict, task.Limit, "task.create", m{"title": "t", "spec_markdown": strings.Repeat("x", task.MaxSpecBytes+1), "workspace": "w", "initial_phase": "spec_draft"})
	c.lead.refuse(api.InvalidParams, "", "task.create", m{"title": "t", "spec_markdown": "x", "workspace": "w", "initial_phase": "spec_draft", "depends_on": []any{"tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"}})
	other := h.crew()
	c.lead.must("task.update", m{"task_id": other.id, "expected_revision": 1, "depends_on": []any{c.id}})
	c.builder.refuse(api.Conflict, task.LeaseLost, "task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "diff", "uri": "x", "produced_by": "x", "digest": "sha256:" + strings.Repeat("0", 64), "fence": 7})
	if after := fmt.Sprint(c.lead.must("task.get", m{"task_id": c.id})); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	third := h.crew()
	c.lead.must("task.update", m{"task_id": third.id, "expected_revision": 1, "depends_on": []any{other.id}})
	c.lead.refuse(api.InvalidParams, "", "task.update", m{"task_id": other.id, "expected_revision": 2, "depends_on": []any{third.id}})
}

// A file of the workspace is one artifact, whatever name is used: an earlier record of it
// is not current beside it.
func TestOneFileIsOneArtifact(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	work := filepath.Join(h.dir, "work")
	if err := os.MkdirAll(filepath.Join(work, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, uri := range []string{"out.txt", "sub/../out.txt", ".//out.txt", filepath.Join(work, "out.txt"), "file://" + work + "/out.txt"} {
		if err := os.WriteFile(filepath.Join(work, "out.txt"), fmt.Append(nil, i), 0o600); err != nil {
			t.Fatal(err)
		}
		c.builder.must("task.record_artifact", m{"task_id": c.id, "attempt_id": c.attempt, "kind": "diff", "uri": uri, "produced_by": "builder"})
	}
	current := 0
	for _, a := range c.lead.must("task.get", m{"task_id": c.id})["artifacts"].([]any) {
		if a.(m)["current"] == true {
			current++
		}
		if a.(m)["uri"] != "out.txt" {
			t.Errorf("artifact %v", a)
		}
	}
	if current != 1 {
		t.Errorf("%d artifacts are current", current)
	}
}

// taskSamples are parameters of the tasks' methods, good ones and refused ones.
func taskSamples() map[string]struct{ good, bad []string } {
	all := taskParams("tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7")
	ref := m{"task_id": "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7", "effect_id": "eff_01a1fe46-d68f-77d6-9611-d5a7674802c7", "run": 1, "event": "finished", "state": "done"}
	all["runner.attach"], all["runner.report"] = m{}, ref
	all["task.attach"], all["task.watch"] = m{"token": "ocg_x"}, m{"after": 7}
	all["task.transition"]["actor_role"] = "orchestrator"
	all["task.list"], all["task.list_ready"] = m{"limit": 7}, m{"limit": 7}
	samples := make(map[string]struct{ good, bad []string })
	for method, params := range all {
		text := func(more m) string {
			p := maps.Clone(params)
			maps.Copy(p, more)
			b, _ := json.Marshal(p)
			return string(b)
		}
		s := struct{ good, bad []string }{good: []string{text(nil)}, bad: []string{text(m{"unknown": 1}), `[]`, `7`}}
		for name := range params {
			if name == "options" {
				continue // any input of the agent's runtime
			}
			s.bad = append(s.bad, text(m{name: []any{m{}}}), strings.Replace(text(nil), "{", `{"`+name+`":null,`, 1))
		}
		samples[method] = s
	}
	return samples
}

// Every question about another tenant's task gets the answer for a missing task, also if
// its files have changed or are gone, and changes nothing of it.
func TestTasksOfOthersAreNotThere(t *testing.T) {
	h := build(t, taskTeam)
	work, spec := t.TempDir(), "spec.md"
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, spec), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(goodTaskSpec)
	lead, foreign := h.actor("lead", ""), h.actor("foreign", "")
	id, _ := lead.must("task.create", m{"title": "Export", "workspace": work, "initial_phase": "spec_draft", "spec_ref": m{"uri": spec}})["task_id"].(string)
	const none = "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	asked := map[string]m{
		"task.get": {}, "task.claim": {}, "task.grant": {"actor": "foreign"}, "task.update": {"expected_revision": 1, "depends_on": []string{none}},
		"task.transition":    {"from_phase": "spec_draft", "to_phase": "spec_review", "actor": "foreign", "actor_role": "orchestrator", "reason": "so"},
		"task.start_attempt": {"actor": "foreign", "phase": "executing", "runtime": "local", "executor_kind": "builder"}, "task.open_circuit": {"actor": "foreign", "reason": "so"},
		"task.request_approval": {"idempotency_key": "k", "requested_action": "so", "side_effect_kind": "deployment", "requested_by": "foreign", "command": m{"argv": []string{"nowhere"}}},
		"task.record_artifact":  {"attempt_id": "att_" + none[4:], "kind": "diff", "uri": spec, "produced_by": "foreign"}, "task.cancel_effect": {"effect_id": "eff_" + none[4:]},
	}
	for _, change := range []func(){func() {}, func() { put(goodTaskSpec + "- another\n") }, func() { _ = os.Remove(filepath.Join(work, spec)) }} {
		change()
		for method, params := range asked {
			var said [2]string
			for i, of := range []string{id, none} {
				params["task_id"] = of
				if _, err := foreign.call(method, params); err == nil {
					t.Errorf("%s of %s is done", method, of)
				} else {
					said[i] = strings.ReplaceAll(err.Error(), of, "")
				}
			}
			if said[0] != said[1] {
				t.Errorf("%s of another tenant's task: %s; of none: %s", method, said[0], said[1])
			}
		}
		if now := lead.must("task.get", m{"task_id": id}); now["revision"] != 1.0 {
			t.Errorf("the task is at revision %v", now["revision"])
		}
	}
}

// The daemon reads none of its own files, nor the system's, for the author of a task,
// whatever the workspace.
func TestTasksReadNoPrivateFile(t *testing.T) {
	h := build(t, taskTeam)
	lead := h.actor("lead", "")
	for workspace, name := range map[string]string{
		h.path("state"): "audit.jsonl", h.path("state") + "/keys": "checkpoint.key", h.dir: "ocipd.yaml", "/proc/self": "environ", "/etc": "hostname",
	} {
		_, err := lead.call("task.create", m{"title": "Read a file", "workspace": workspace, "initial_phase": "spec_draft", "spec_ref": m{"uri": name}})
		if own := workspace != "/etc"; err == nil && own {
			t.Errorf("%s of %s is read", name, workspace)
		} else if own && !strings.Contains(err.Error(), "no such file in the workspace") {
			t.Errorf("%s of %s: %v", name, workspace, err)
		}
	}
}
