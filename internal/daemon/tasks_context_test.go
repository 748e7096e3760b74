package daemon_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// telling is an effect that tells somebody something.
func telling(key string) m {
	return m{"idempotency_key": key, "side_effect_kind": "notification", "requested_action": "Tell " + key, "params": m{"to": key}}
}

// asks asks about an effect, and returns the request as a person sees it, with its context.
func (c *crew) asksAbout(effect m) (saw api.Approval, about taskapi.ApprovalContext) {
	c.h.t.Helper()
	p := m{"task_id": c.id, "requested_by": "lead"}
	maps.Copy(p, effect)
	saw = c.h.shown(str(c.lead.must("task.request_approval", p), "approval_id"))
	if err := json.Unmarshal(saw.Context, &about); err != nil {
		c.h.t.Fatal(err)
	}
	return saw, about
}

// A person sees what an effect is for, and approves that too: if it changes, they look again.
func TestApprovalShowsWhatItIsFor(t *testing.T) {
	t.Parallel()
	h := build(t, taskTeam)
	c := h.crew(telling("ops"), telling("dev"))
	c.executing()
	c.deliver()
	c.move(task.SpecGate)
	checker := h.actor("checker", c.id)
	checker.must("task.append_review", m{
		"task_id": c.id, "attempt_id": c.attempt, "review_type": "spec", "reviewer_ref": "checker", "verdict": "approved", "summary": "it does",
		"findings": []any{m{"severity": "minor", "message": "one name is short\nfor the task: forged", "file": "out.txt", "line": 3}},
	})
	c.move(task.QualityGate)
	c.review("quality", "approved")
	c.move(task.AwaitingApproval)
	saw, about := c.asksAbout(telling("ops"))
	contains(t, saw.Content, `for the task: "Export" (`+c.id+")\n", "goal: \"", "planned before the reviews, by lead\n", "attempt 1 by builder: succeeded\n", `artifact: "out.txt" sha256:`,
		"spec gate: approved, 1 of 1 reviews approve\nquality gate: approved, 1 of 1 reviews approve\n", `spec review by checker: approved "it does"`,
		`minor: "one name is short\nfor the task: forged" "out.txt" line 3`, `another effect: "dev" ("notification", planned, planned before the reviews) "Tell dev"`, "\n\n"+`"Tell ops" (notification, key "ops")`)
	if about.Title != "Export" || about.Attempt.Ordinal != 1 || len(about.Reviews) != 2 || len(about.Effects) != 1 || about.Planned.Late || saw.Target != "Export" || saw.Summary != "Tell ops" || about.LeftOut != nil {
		t.Errorf("context %+v of %+v", about, saw.ApprovalSummary)
	}
	// A script that looks for the digest finds none but the request's.
	if strings.Contains(string(saw.Context), `"digest"`) {
		t.Errorf("the context has a member digest: %s", saw.Context)
	}
	// The context is part of what is approved.
	c.lead.must("task.update", m{"task_id": c.id, "expected_revision": c.lead.must("task.get", m{"task_id": c.id})["revision"], "title": "Import"})
	person := h.operates()
	if err := person.call("approval.resolve", decision(api.DecideApprove, &saw), nil); err == nil || !strings.Contains(err.Error(), "look again") {
		t.Errorf("with another title it is approved: %v", err)
	}
	again := h.shown(saw.ApprovalID)
	if again.Digest == saw.Digest || again.Target != "Import" || !slices.ContainsFunc(again.Changed, func(c api.ApprovalChange) bool { return c.Field == "context" }) {
		t.Errorf("it is shown as %q, changed %+v", again.Target, again.Changed)
	}
	contains(t, again.Content, `for the task: "Import"`)
	person.must("approval.resolve", decision(api.DecideApprove, &again), nil)
	if done := h.shown(saw.ApprovalID); len(done.Context) > 0 {
		t.Errorf("a forgotten text has a context: %s", done.Context)
	}
}

// An effect that was planned after the reviews is reviewed again, or marked loudly.
func TestApprovalOfALateEffect(t *testing.T) {
	t.Parallel()
	for late, warns := range map[string]bool{"ask": true, "review": false} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			h := build(t, taskTeam+"  effects: {late: "+late+"}\n")
			c := h.crew(telling("ops"))
			c.executing()
			c.toApproval()
			plan := telling("late")
			plan["task_id"] = c.id
			c.lead.must("task.plan_effect", plan)
			delete(plan, "task_id")
			if late == "review" {
				plan["task_id"], plan["requested_by"] = c.id, "lead"
				c.lead.refuse(api.Conflict, task.GuardFailed, "task.request_approval", plan)
				delete(plan, "task_id")
				c.move(task.SpecGate)
				c.review("spec", "approved")
				c.move(task.QualityGate)
				c.review("quality", "approved")
				c.move(task.AwaitingApproval)
			}
			saw, about := c.asksAbout(plan)
			if about.Planned.Late != warns || strings.Contains(saw.Content, "PLANNED AFTER THE REVIEWS: no reviewer has seen this effect; lead planned it") != warns || strings.Contains(saw.Reason, "PLANNED AFTER") != warns {
				t.Errorf("shown %+v, %s\n%s", about.Planned, saw.Reason, saw.Content)
			}
		})
	}
}

// A context has a bounded size, and counts what it leaves out.
func TestContextIsBounded(t *testing.T) {
	t.Parallel()
	h := build(t, taskTeam)
	var effects []any
	for n := range 40 {
		e := telling(fmt.Sprint("e", n))
		e["requested_action"] = strings.Repeat("\x01", 800)
		effects = append(effects, e)
	}
	c := h.crew(effects...)
	c.executing()
	c.deliver()
	c.move(task.SpecGate)
	var findings []any
	for range 50 {
		findings = append(findings, m{"severity": "minor", "message": strings.Repeat("\x01", 350), "file": strings.Repeat("\x01", 350)})
	}
	h.actor("checker", c.id).must("task.append_review", m{"task_id": c.id, "attempt_id": c.attempt, "review_type": "spec", "reviewer_ref": "checker", "verdict": "approved", "findings": findings})
	c.move(task.QualityGate)
	c.review("quality", "approved")
	c.move(task.AwaitingApproval)
	one := effects[0].(m)
	one["requested_action"] = "Tell"
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "requested_by": "lead", "idempotency_key": "e0", "side_effect_kind": "notification", "requested_action": "Tell"})
	saw := h.shown(str(asked, "approval_id"))
	var about taskapi.ApprovalContext
	if err := json.Unmarshal(saw.Context, &about); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(about.LeftOut); got != "map[effects:23 findings:34]" {
		t.Errorf("left out %s", got)
	}
	contains(t, saw.Content, "left out: 34 more of findings (ocipd task show "+c.id+")", "left out: 23 more of effects")
	if n := len(saw.Content) - 4*800; n > 64<<10 || len(saw.Context) > 64<<10 {
		t.Errorf("the content has %d bytes besides the effect, the context %d", n, len(saw.Context))
	}
}
