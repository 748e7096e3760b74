package page_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/task"
)

// team is acme with actors of tasks.
const team = acme + `
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme-corp}
    - {name: builder, role: executor, tenant_id: acme-corp}
    - {name: checker, role: spec_reviewer, tenant_id: acme-corp}
    - {name: critic, role: quality_reviewer, tenant_id: acme-corp}
    - {name: gate, role: lobster, tenant_id: acme-corp}
  self_approval: true
  self_review: true
`

const taskSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

type object = map[string]any

// actor is an actor of a task.
func (w *world) actor(name, id string) *app {
	w.Helper()
	params := object{"actor": name}
	if id != "" {
		params["task_id"] = id
	}
	var granted object
	w.ask("task.grant", params, &granted)
	c, err := client.Dial(w.Context(), w.path("run/kernel.sock"))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	a := &app{c, w}
	a.must("task.attach", object{"token": granted["token"]})
	return a
}

// told makes a call, and returns its result.
func (a *app) told(method string, params any) (result object) {
	a.w.Helper()
	if err := a.Call(a.w.Context(), method, params, &result); err != nil {
		a.w.Fatalf("%s: %v", method, err)
	}
	return result
}

// job is a task with its actors.
type job struct {
	w             *world
	lead, builder *app
	id, attempt   string
}

func (w *world) job(title string, effects ...any) *job {
	w.Helper()
	j := &job{w: w, lead: w.actor("lead", "")}
	work := w.path("work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		w.Fatal(err)
	}
	j.id, _ = j.lead.told("task.create", object{"title": title, "spec_markdown": taskSpec, "workspace": work, "initial_phase": "spec_review", "effects": append([]any{}, effects...)})["task_id"].(string)
	j.review("checker", "spec")
	j.move(task.ExecutionReady)
	j.attempt, _ = j.lead.told("task.start_attempt", object{"task_id": j.id, "phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"})["attempt_id"].(string)
	j.builder = w.actor("builder", j.id)
	j.move(task.Executing)
	return j
}

func (j *job) move(to task.Phase) {
	j.w.Helper()
	now := j.lead.told("task.get", object{"task_id": j.id})
	j.lead.must("task.transition", object{"task_id": j.id, "from_phase": now["phase"], "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "because"})
}

func (j *job) review(by, kind string) {
	j.w.Helper()
	params := object{"task_id": j.id, "review_type": kind, "reviewer_ref": by, "verdict": "approved", "findings": []any{}}
	if j.attempt != "" {
		params["attempt_id"] = j.attempt
	}
	j.w.actor(by, j.id).must("task.append_review", params)
}

// delivered brings the task to the approval of its effects.
func (j *job) delivered() {
	j.w.Helper()
	if err := os.WriteFile(j.w.path("work/out.txt"), []byte("made"), 0o600); err != nil {
		j.w.Fatal(err)
	}
	j.builder.must("task.record_artifact", object{"task_id": j.id, "attempt_id": j.attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "builder"})
	j.builder.must("task.finish_attempt", object{"task_id": j.id, "attempt_id": j.attempt, "outcome": "succeeded"})
	j.move(task.SpecGate)
	j.review("checker", "spec")
	j.move(task.QualityGate)
	j.review("critic", "quality")
	j.move(task.AwaitingApproval)
}

// whole fails if the page lacks a part of the terminal's description of a request, all of it unfolded.
func (w *world) whole(id string) {
	w.Helper()
	var a api.Approval
	w.ask("approval.get", object{"approvalId": id}, &a)
	shown := describe.Show(&a, time.Now())
	plain := func(s string) string {
		var named strings.Builder
		for _, r := range strings.Join(strings.Fields(s), " ") {
			if text.Shows(r) {
				named.WriteRune(r)
			} else {
				fmt.Fprintf(&named, "‹U+%04X›", r)
			}
		}
		return named.String()
	}
	page := plain(eval[string](w, `document.querySelector(".one").textContent`))
	for _, p := range shown.Parts {
		if p.Kind == describe.PartTitle {
			continue // it is the heading, in other words
		}
		for _, s := range []string{p.Name, p.Text} {
			// A time goes on between the two.
			if s = plain(s); !strings.Contains(s, `\u`) && !strings.Contains(s, ", in ") && !strings.HasSuffix(s, " ago") && !strings.Contains(page, s) {
				w.Errorf("the page of a %s lacks %q", a.Kind, s)
			}
		}
	}
}

// decides opens a request, reads it, and decides with a key of the page.
func (w *world) decides(id, key string, steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	w.open(id)
	w.whole(id)
	w.do(press(key))
	w.until(`document.querySelector("dialog .actions button:last-child:not(:disabled)")`)
	w.do(steps...)
	if len(steps) > 0 {
		w.until(`document.querySelector("dialog .signed")?.textContent.match(/^(note|content) sha256:/m) && document.querySelector("dialog .actions button:last-child:not(:disabled)")`)
	}
	w.do(click("dialog .actions button:last-child"))
	w.until(`document.querySelector(".said") || document.querySelector("dialog .fault")`)
	if fault := eval[string](w, `document.querySelector("dialog .fault")?.textContent ?? ""`); fault != "" {
		w.Errorf("%s: %s", key, fault)
	}
}

// approval is a request as it is now.
func (w *world) approval(id string) (a api.Approval) {
	w.Helper()
	w.ask("approval.get", object{"approvalId": id}, &a)
	return a
}

// TestKinds decides about more than messages to approve: a tool call, an effect approved and one sent
// back, a message in the person's own words, and one that is resolved. The page has all of their parts,
// the metadata unfolded among them.
func TestKinds(t *testing.T) {
	w := begin(t, team)
	alice := w.people()
	effect := func(key string) object {
		return object{"idempotency_key": key, "side_effect_kind": "notification", "requested_action": "Tell " + key, "params": object{"to": key}}
	}
	j := w.job("Export invoices", effect("ops"), effect("dev"))
	answered := make(chan object, 1)
	go func() {
		var got object
		err := j.builder.Call(t.Context(), "task.ask_permission", object{"task_id": j.id, "attempt_id": j.attempt, "options": []any{}, "tool_call": object{"id": "call-1", "kind": "execute", "title": "rm -r build", "input": object{"path": "build"}}}, &got)
		if err != nil {
			got = object{"error": err.Error()}
		}
		answered <- got
	}()
	w.browse(1280, 900, "light", "/waiting")
	w.until(`[...document.querySelectorAll(".list .kind")].some((e) => e.textContent === "tool call") || [...document.querySelectorAll(".list .row")].some((e) => e.textContent.includes("rm -r build"))`)
	permission := w.waits(api.ApprovalOfPermission)
	row := `[...document.querySelectorAll(".list .row")].find((e) => e.textContent.includes("rm -r build"))`
	w.until(row + `.querySelector(".who").textContent.endsWith("Export invoices")`)
	// The column of the time that is left has room for the longest.
	if wide := eval[float64](w, `(() => {
		const left = `+row+`.querySelector(".left"), text = left.cloneNode(), room = left.getBoundingClientRect().width;
		text.textContent = "58 min left";
		text.style.cssText = "position: absolute; width: max-content";
		left.after(text);
		const { width } = text.getBoundingClientRect();
		text.remove();
		return width - room;
	})()`); wide > 0 {
		t.Errorf("the time that is left needs %g pixels more", wide)
	}
	// The task's page has the request, as the list of tasks says.
	w.visit("/tasks/" + j.id)
	w.until(`document.querySelector("a[href='#/waiting/` + permission + `']") && !document.querySelector(".one").textContent.includes("Nothing was asked")`)
	w.until(`[...document.querySelectorAll(".events li")].some((e) => e.textContent.includes("task transitioned to executing"))`)
	w.decides(permission, "a")
	if got := <-answered; got["decision"] != "allow" {
		t.Errorf("the tool call is answered with %v", got)
	}

	j.delivered()
	lobster := w.actor("gate", j.id)
	for key, press := range map[string]string{"ops": "a", "dev": "c"} {
		id, _ := lobster.told("task.request_approval", object{"task_id": j.id, "idempotency_key": key, "requested_action": "Tell " + key, "side_effect_kind": "notification", "requested_by": "gate"})["approval_id"].(string)
		var steps []chromedp.Action[chromedp.Void]
		if press == "c" {
			steps = append(steps, sets("dialog input[maxlength]", "tell all of them"))
		}
		w.decides(id, press, steps...)
		want := map[string]string{"a": api.ApprovalApproved, "c": api.ApprovalRequestChanges}[press]
		if a := w.approval(id); a.State != want || a.Kind != api.ApprovalOfEffect {
			t.Errorf("the request about %s is a %s in state %s, want %s", key, a.Kind, a.State, want)
		}
	}

	// Two requests of one actor differ in their effects.
	w.visit("/tasks/" + j.id)
	w.until(`(() => { const said = [...document.querySelectorAll(".one p:has(a[href^='#/waiting/'])")].map((e) => e.textContent); return said.some((s) => s.includes("Tell ops asked")) && said.some((s) => s.includes("Tell dev asked")); })()`)

	held := w.offers(alice)
	w.decides(held, "t", sets("dialog textarea", "The review comes when it is done."))
	if a := w.approval(held); a.State != api.ApprovalTakenOver || a.Decision == nil {
		t.Errorf("the message is %s", a.State)
	}

	other := w.waits(api.ApprovalOfMessage)
	w.decides(other, "r")
	if a := w.approval(other); a.State != api.ApprovalResolved {
		t.Errorf("the other message is %s", a.State)
	}
}

// waits is the request of a kind that waits.
func (w *world) waits(kind string) (id string) {
	w.Helper()
	var list api.ApprovalListResult
	w.ask("approval.list", &api.ApprovalListParams{State: api.ApprovalPending}, &list)
	for _, raw := range list.Approvals {
		var a api.ApprovalSummary
		if err := json.Unmarshal(raw, &a); err == nil && a.Kind == kind {
			return a.ApprovalID
		}
	}
	w.Fatalf("no %s waits", kind)
	return ""
}

// TestQuestions shows what a task asks besides requests: an open circuit, with its reason, first in
// Tasks and in Waiting. The page closes none, and has the command.
func TestQuestions(t *testing.T) {
	w := begin(t, team)
	j := w.job("Export invoices")
	j.builder.must("task.finish_attempt", object{"task_id": j.id, "attempt_id": j.attempt, "outcome": "failed", "failure_code": "crashed"})
	j.lead.must("task.open_circuit", object{"task_id": j.id, "actor": "lead", "reason": "the miller moved", "latest_attempt_id": j.attempt})
	w.browse(1280, 900, "light", "/waiting")
	w.until(`document.querySelector(".question")?.textContent.includes("the miller moved")`)
	w.until(`document.querySelector(".tab.on .n")?.textContent === "1" && document.title.startsWith("(1)")`)
	w.visit("/tasks")
	w.until(`document.querySelector(".questions .question") && document.querySelector(".list .row")?.textContent.includes("asks you")`)
	w.do(click(".question"))
	w.until(`document.querySelector(".lead .tag")?.textContent.includes("the miller moved")`)
	if said := eval[string](w, `document.querySelector(".one").textContent`); !strings.Contains(said, "ocipd task circuit close "+j.id) {
		t.Errorf("the task's page has no command: %q", said)
	}
}

// TestEscalationAndDelivery decides about what only a person sees to: an exchange that was escalated is
// resolved, and one is denied, and neither can be approved; a message of which nobody knows whether it
// was sent is sent again, and one is resolved.
func TestEscalationAndDelivery(t *testing.T) {
	w := begin(t, acme)
	runtime := api.Capabilities{Redeem: true, Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}}
	alice, bob := w.app("@acme/alice", runtime), w.app("@acme/bob", runtime)
	alice.must("app.ready", object{})
	bob.must("app.ready", object{})
	w.browse(1280, 900, "light", "/waiting")
	for key, want := range map[string]string{"r": api.ApprovalResolved, "d": api.ApprovalDenied} {
		alice.must("message.dispatch", object{"sessionKey": "agent:bob:main", "content": "Who is on call?", "metadata": object{"exchange": object{"new": true, "replyPolicy": "human-only"}}})
		id := w.waits(api.ApprovalOfEscalation)
		w.open(id)
		w.do(press("a"))
		if eval[bool](w, `!!document.querySelector("dialog") || [...document.querySelectorAll(".decide button")].some((b) => b.textContent.includes("Approve"))`) {
			t.Error("an escalation can be approved")
		}
		w.decides(id, key)
		if a := w.approval(id); a.State != want {
			t.Errorf("the escalation is %s, want %s", a.State, want)
		}
	}

	for key, want := range map[string]string{"a": "ready", "r": "sent"} {
		emitted := alice.told("hook.emit", object{"hookName": "message_sending", "data": object{"sessionKey": "agent:bob:main", "content": "I promise the review by Monday.", "metadata": object{"exchange": object{"new": true}}}})
		held, _ := emitted["approvalId"].(string)
		w.decides(held, "a")
		claim := alice.told("approval.redeem", object{"approvalId": held})["claim"]
		alice.must("approval.confirm", object{"claim": claim, "outcome": api.OutcomeUnknown, "note": "the line broke"})
		id := w.waits(api.ApprovalOfDelivery)
		w.decides(id, key)
		if a := w.approval(held); a.Delivery != want {
			t.Errorf("after %s the message is %q, want %q", key, a.Delivery, want)
		}
		if key == "a" {
			claim = alice.told("approval.redeem", object{"approvalId": held})["claim"]
			alice.must("approval.confirm", object{"claim": claim, "outcome": "sent"})
		}
	}
}

// TestOutcomeOfARun shows that a task asks what became of a run whose end nobody has seen, first in
// Waiting and in Tasks. The page settles nothing, and has the command.
func TestOutcomeOfARun(t *testing.T) {
	w := begin(t, team)
	j := w.job("Export invoices", object{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": object{"argv": []string{"./ship.sh"}}})
	if err := os.WriteFile(w.path("work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	j.delivered()
	asked := j.lead.told("task.request_approval", object{"task_id": j.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
	w.browse(1280, 900, "light", "/waiting")
	w.decides(w.waits(api.ApprovalOfEffect), "a")
	j.move(task.ReadyToResume)
	runner, err := w.operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	orders, err := runner.Stream(t.Context(), "runner.attach", object{})
	if err == nil {
		_, err = orders.Next(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	run := j.lead.told("task.run_effect", object{"task_id": j.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
	reports := &app{runner, w}
	of := func(more object) object {
		maps.Copy(more, object{"task_id": j.id, "effect_id": run["effect_id"], "run": run["run"]})
		return more
	}
	reports.must("runner.report", of(object{"event": "spawned", "pid": 4242}))
	reports.must("runner.report", of(object{"event": "finished", "state": "outcome_unknown", "evidence": "nobody has seen the end"}))
	w.visit("/tasks")
	w.until(`document.querySelector(".questions .question")?.textContent.includes("nobody knows how it ended: ship: run 1") && document.querySelector(".list .row")?.textContent.includes("asks you")`)
	w.visit("/waiting")
	w.until(`document.querySelector(".questions .question")?.textContent.includes("nobody knows how it ended: ship: run 1")`)
	w.do(click(".question"))
	w.until(`document.querySelector(".one .effect .tag")`)
	if said := eval[string](w, `document.querySelector(".one").textContent`); !strings.Contains(said, "ocipd task effect settle --task "+j.id) {
		t.Errorf("the task's page has no command: %q", said)
	}
}

// TestNoApproval says why a request cannot be approved, in place of the way to approve it.
func TestNoApproval(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 500, "light", "/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.answer = func(method string, result jsontext.Value) jsontext.Value {
		if method != "approval.get" {
			return result
		}
		var a api.Approval
		if err := decode(result, &a); err != nil {
			t.Error(err)
		}
		a.Approvable, a.Blocked = false, "the agent is no longer configured as it was"
		return encode(a)
	}
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide [role=status]")?.textContent.includes("It cannot be approved: the agent is no longer configured as it was")`)
	if said := eval[string](w, `document.querySelector(".decide [role=status]").textContent`); strings.Contains(said, "to approve") {
		t.Errorf("the page says %q", said)
	}
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`document.querySelector(".decide .four") && document.querySelector(".decide [role=status]").textContent.includes("It cannot be approved")`)
	if !eval[bool](w, `document.querySelector(".decide .primary").disabled`) {
		t.Error("the request can be approved")
	}
}

// TestMessagesAreKept has the filter, the result and the time of Messages after a record was opened, by
// the browser's way back, by the page's, and by the key.
func TestMessagesAreKept(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 800, "light", "/messages")
	w.until(`document.querySelectorAll(".list .row").length > 4`)
	w.do(sets("[data-filter]", "agent:agent-alice-1"), chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll(".chip")].find((e) => e.textContent === "Held").click(); [...document.querySelectorAll(".chip")].find((e) => e.textContent === "24h").click(); undefined`))
	kept := `document.querySelector("[data-filter]")?.value === "agent:agent-alice-1" && [...document.querySelectorAll(".chip.on:not(a)")].map((e) => e.textContent).join() === "Held,24h" && document.querySelectorAll(".list .row").length === 1`
	w.until(kept)
	for name, back := range map[string]chromedp.Action[chromedp.Void]{
		"the browser": chromedp.Evaluate[chromedp.Void](`history.back(); undefined`), "the page": click(".back"), "the key": press("\x1b"),
	} {
		w.do(click(".list .row"))
		w.until(`document.querySelector(".steps")`)
		w.do(back)
		w.until(`document.querySelector(".list") && ` + kept)
		if hash := eval[string](w, `location.hash`); hash != "#/messages?q=agent%3Aagent-alice-1&result=require_approval&since=24h" {
			t.Errorf("after %s the address is %q", name, hash)
		}
	}
	// The tab shows all again.
	w.do(click(`.tab[href="#/messages"]`))
	w.until(`document.querySelector("[data-filter]").value === "" && document.querySelectorAll(".list .row").length > 4`)
}
