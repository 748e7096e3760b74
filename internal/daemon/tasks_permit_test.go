package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// askPermission asks about a tool call without waiting for the answer.
func (c *crew) askPermission(a *taskCaller, call string) chan m {
	answered := make(chan m, 1)
	go func() {
		got, _ := a.call("task.ask_permission", m{
			"task_id": c.id, "attempt_id": c.attempt, "options": []any{},
			"tool_call": m{"id": call, "kind": "execute", "title": "rm -r build", "input": m{"b": 1, "a": "x"}},
		})
		answered <- got
	}()
	return answered
}

// Two calls whose whole numbers are one double are two questions: an answer to one says nothing about
// the other.
func TestPermissionsWithLargeNumbers(t *testing.T) {
	t.Parallel()
	c := build(t, taskTeam).crew()
	c.executing()
	for _, amount := range []string{"9007199254740992", "9007199254740993"} {
		go func() {
			_, _ = c.builder.call("task.ask_permission", m{
				"task_id": c.id, "attempt_id": c.attempt, "options": []any{},
				"tool_call": m{"id": "call-1", "kind": "execute", "title": "pay", "input": m{"cents": jsontext.Value(amount)}},
			})
		}()
	}
	c.waiting(2, 2)
}

// waiting waits until n questions are on record, and checks the number of pending requests.
func (c *crew) waiting(n, asked int) []api.ApprovalSummary {
	c.h.t.Helper()
	c.h.statusUntil("what was asked", func(api.Status) bool {
		return len(c.h.records(audit.Filter{Like: audit.Record{Event: "task_permission", PolicyResult: audit.ResultApproval}})) == asked
	})
	var page struct {
		Approvals []api.ApprovalSummary `json:"approvals"`
	}
	c.h.operator("approval.list", m{}, &page)
	if len(page.Approvals) != n {
		c.h.t.Fatalf("%d requests wait: %+v", len(page.Approvals), page.Approvals)
	}
	return page.Approvals
}

// says has a person decide.
func (c *crew) says(decide string, r api.ApprovalSummary) {
	c.h.t.Helper()
	saw := c.h.shown(r.ApprovalID)
	c.h.operator("approval.resolve", decision(decide, &saw), nil)
}

// again attaches with a token on a new connection.
func (c *crew) again(granted m) *taskCaller {
	c.h.t.Helper()
	a := c.h.taskDial("run/kernel.sock", "again")
	a.must("task.attach", m{"token": granted["token"]})
	return a
}

// accepted are the daemon's open connections on a socket.
func (h *harness) accepted(socket string) (ids []string) {
	h.t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path; St is 3 for a connection.
		if f := strings.Fields(line); len(f) == 8 && f[5] == "03" && f[7] == h.path(socket) {
			ids = append(ids, f[6])
		}
	}
	return ids
}

// If an agent waits for a permission when the daemon ends, its bridge asks again, and the
// person sees one question. One decision answers one asking, and a simultaneous one needs
// another decision. The same call under another id is another question.
func TestPermissionIsAskedForOnce(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	granted := h.taskOperator().must("task.grant", m{"actor": "builder", "task_id": c.id})
	c.askPermission(c.builder, "call-1")
	first := c.waiting(1, 1)[0].ApprovalID
	h.stop()
	h.start()
	again := c.again(granted)
	one, same, other := c.askPermission(again, "call-1"), c.askPermission(again, "call-1"), c.askPermission(again, "call-2")
	for _, r := range c.waiting(2, 4) {
		if r.ApprovalID == first {
			c.says(api.DecideApprove, r)
		} else {
			c.says(api.DecideDeny, r)
		}
	}
	if got := <-other; got["decision"] != "deny" {
		t.Errorf("another call is answered %v", got)
	}
	c.says(api.DecideDeny, c.waiting(1, 5)[0])
	both := []m{<-one, <-same}
	if both[0]["decision"] == "deny" {
		both[0], both[1] = both[1], both[0]
	}
	if both[0]["decision"] != "allow" || str(both[0], "approval_id") != first || both[1]["decision"] != "deny" {
		t.Errorf("asked twice at the same time: %v", both)
	}
}

// A decision made after the asker was killed answers the next equal asking, once, also after an
// end of the daemon; and no other: not of another call, of another actor, or of the next attempt.
func TestPermissionIsDecidedMeanwhile(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	granted := h.taskOperator().must("task.grant", m{"actor": "builder", "task_id": c.id})
	reviewer := h.taskOperator().must("task.grant", m{"actor": "checker"})
	asked := 0
	// decides has a person decide about a call whose asker has gone, and ends the daemon.
	decides := func(call, decide string) (id string) {
		t.Helper()
		before := h.accepted("run/kernel.sock")
		gone := c.again(granted)
		asker := slices.DeleteFunc(h.accepted("run/kernel.sock"), func(id string) bool { return slices.Contains(before, id) })
		if len(asker) != 1 {
			t.Fatalf("the asker has the connections %q", asker)
		}
		c.askPermission(gone, call)
		asked++
		r := c.waiting(1, asked)[0]
		gone.c.Close()
		// The daemon closes a connection when all its requests have ended.
		h.statusUntil("nobody asks", func(api.Status) bool {
			open := h.accepted("run/kernel.sock")
			return !slices.ContainsFunc(asker, func(id string) bool { return slices.Contains(open, id) })
		})
		c.says(decide, r)
		h.stop()
		h.start()
		c.lead = c.again(h.taskOperator().must("task.grant", m{"actor": "lead"}))
		return r.ApprovalID
	}
	// anew checks that a person is asked again, who denies it.
	anew := func(what string, a *taskCaller, call string) {
		t.Helper()
		answer := c.askPermission(a, call)
		asked++
		c.says(api.DecideDeny, c.waiting(1, asked)[0])
		if got := <-answer; got["decision"] != "deny" {
			t.Errorf("%s is answered %v", what, got)
		}
	}
	id := decides("call-1", api.DecideApprove)
	builder := c.again(granted)
	anew("another call", builder, "call-2")
	anew("another actor", c.again(reviewer), "call-1")
	if got := <-c.askPermission(builder, "call-1"); got["decision"] != "allow" || got["approval_id"] != id {
		t.Errorf("what was approved is answered %v", got)
	}
	allowed := h.records(audit.Filter{Like: audit.Record{Event: "task_permission", PolicyResult: audit.ResultAllow}})
	if len(allowed) != 1 || allowed[0].ApprovalID != id || allowed[0].AttemptID != c.attempt {
		t.Errorf("on record: %+v", allowed)
	}
	anew("the same once more", builder, "call-1")
	id = decides("call-3", api.DecideDeny)
	builder = c.again(granted)
	if got := <-c.askPermission(builder, "call-3"); got["decision"] != "deny" || got["approval_id"] != id {
		t.Errorf("what was denied is answered %v", got)
	}
	anew("what was denied, once more", builder, "call-3")
	id = decides("call-5", api.DecideApprove)
	c.says(api.DecideDeny, api.ApprovalSummary{ApprovalID: id})
	if now := h.shown(id); now.State != api.ApprovalRevoked || now.Delivery != "abandoned" {
		t.Errorf("taken back it is %+v", now)
	}
	anew("what was approved and taken back", c.again(granted), "call-5")
	decides("call-4", api.DecideApprove)
	c.lead.must("task.finish_attempt", m{"task_id": c.id, "attempt_id": c.attempt, "outcome": "aborted"})
	c.move(task.ExecutionReady)
	c.attempt = str(c.lead.must("task.start_attempt", m{"task_id": c.id, "phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}), "attempt_id")
	anew("the next attempt", h.actor("builder", c.id), "call-4")
	h.verify()
}

// The number of a task's tool calls that wait for a person is bounded, and their
// descriptions cannot look like the daemon's words.
func TestPermissionsThatWait(t *testing.T) {
	h := build(t, strings.Replace(taskTeam, "tasks:", "approvals: {max_open: 2, notify: {desktop: false}}\ntasks:", 1))
	c := h.crew()
	c.executing()
	c.askPermission(c.builder, "one")
	c.askPermission(c.builder, "two")
	shown := h.shown(c.waiting(2, 2)[0].ApprovalID)
	if !strings.HasPrefix(shown.Content, "\"rm -r build\" (\"execute\")\narguments: {") {
		t.Errorf("shown %q", shown.Content)
	}
	ask := m{"task_id": c.id, "options": []any{}, "tool_call": m{"kind": "execute\n", "title": "read\nall that it says it touches is in the workspace"}}
	c.builder.refuse(api.Conflict, task.Limit, "task.ask_permission", ask)
	c.says(api.DecideDeny, c.waiting(2, 2)[0])
	answer := make(chan m, 1)
	go func() {
		got, _ := c.builder.call("task.ask_permission", ask)
		answer <- got
	}()
	for _, r := range c.waiting(2, 3) {
		if content := h.shown(r.ApprovalID).Content; strings.Contains(content, "\nall that") || strings.Count(content, "\n") > 2 {
			t.Errorf("shown %q", content)
		}
		c.says(api.DecideDeny, r)
	}
	if got := <-answer; got["decision"] != "deny" {
		t.Errorf("answered %v", got)
	}
	// A caller without a part in the task cannot ask about it.
	h.actor("critic", "").refuse(api.Forbidden, task.NotPermitted, "task.ask_permission", ask)
}

// A call that waits is its caller's only as long as the caller could make it anew: if the grant is
// revoked, the call starts no effect and gets no permission.
func TestWaitingCallsEndWithTheirGrants(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{}})
	c.executing()
	c.toApproval()
	operator := h.taskOperator()
	attach := func(params m) (a *taskCaller, revoke m) {
		granted := operator.must("task.grant", params)
		a = h.taskDial("run/kernel.sock", params["actor"].(string))
		a.must("task.attach", m{"token": granted["token"]})
		delete(params, "actor")
		params["grant_id"] = granted["grant_id"]
		return a, params
	}
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification", "requested_by": "lead"})
	saw := h.shown(asked["approval_id"].(string))
	operator.must("task.resolve_approval", m{"task_id": c.id, "approval_id": asked["approval_id"], "resolution": "approved", "resolved_by": "me", "digest": saw.Digest})
	lobster, runs := attach(m{"actor": "gate", "task_id": c.id})
	checker, uses := attach(m{"actor": "checker"})
	used := func() int64 {
		var list taskapi.Grants
		h.operator("task.grants", m{"task_id": c.id, "actor": "gate"}, &list)
		return list.Grants[0].LastUsedAt.UnixMilli()
	}
	attached := used()
	waitFor(t, "a later millisecond", func() bool { return time.Now().UnixMilli() > attached })
	ended := make(chan error, 2)
	go func() {
		_, err := lobster.call("task.run_effect", m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"], "wait_s": 20})
		ended <- err
	}()
	go func() {
		_, err := checker.call("task.ask_permission", m{"task_id": c.id, "options": []any{}, "tool_call": m{"id": "call", "kind": "execute", "title": "rm -r build", "input": m{}}})
		ended <- err
	}()
	requests := c.waiting(1, 1)
	waitFor(t, "the call of the lobster is admitted", func() bool { return used() > attached })
	for _, grant := range []m{runs, uses} {
		operator.must("task.revoke_grant", grant)
	}
	c.says("approve", requests[0])
	c.move(task.ReadyToResume)
	for range 2 {
		if err := <-ended; api.AsError(err).Code != api.Unauthorized {
			t.Errorf("a call whose grant was revoked is answered with %v", err)
		}
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{TaskID: c.id}}) {
		if r.Event == "effect.started" || r.Event == "task_permission" && r.PolicyResult == audit.ResultAllow {
			t.Errorf("on record is %+v", r)
		}
	}
}
