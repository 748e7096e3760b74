package daemon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// A person sees who may act by a token, at what, until when, bound to whom, and when that one last
// acted; nobody else does. A grant that was revoked or whose attempt is over is not listed.
func TestGrantsInForce(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.executing()
	operator := h.taskOperator()
	// A person sees the processes behind an actor. Actors see each other's names alone.
	for who, sees := range map[*taskCaller]bool{operator: true, c.lead: false, c.builder: false} {
		for _, part := range []string{"", "specs"} {
			seen := fmt.Sprint(who.must("task.get", m{"task_id": c.id, "part": part}))
			if strings.Contains(seen, "processes:") != sees {
				t.Errorf("%s sees in %q: %s", who.name, part, seen)
			}
		}
	}
	unused := operator.must("task.grant", m{"actor": "gate", "task_id": c.id, "bind": "process"})
	listed := func(params m) (ids []string, lines map[string]m) {
		t.Helper()
		lines = map[string]m{}
		for {
			page := operator.must("task.grants", params)
			for _, entry := range page["grants"].([]any) {
				line := entry.(m)
				ids = append(ids, str(line, "grant_id"))
				lines[str(line, "actor")+" "+str(line, "task_id")] = line
			}
			if params["after"] = page["next"]; page["next"] == nil {
				return ids, lines
			}
		}
	}
	all, lines := listed(m{})
	if paged, _ := listed(m{"limit": 1}); !slices.Equal(paged, all) || len(all) != len(lines) {
		t.Errorf("by pages of one are listed %q, want %q", paged, all)
	}
	builder := lines["builder "+c.id]
	holder, _ := builder["holder"].(m)
	if builder["role"] != "executor" || builder["attempt_id"] != c.attempt || builder["last_used_at"] == nil || !strings.Contains(str(holder, "exe"), "/") || builder["token"] != nil || builder["expires_at"] == nil {
		t.Errorf("the executor's is %v", builder)
	}
	if lead := lines["lead "]; lead["role"] != "orchestrator" || lead["task_id"] != nil || lead["issued_by"] == "" {
		t.Errorf("the orchestrator's is %v", lead)
	}
	if gate := lines["gate "+c.id]; gate["grant_id"] != unused["grant_id"] || gate["holder"] != nil || gate["last_used_at"] != nil || gate["bind"] != "process" {
		t.Errorf("one that nobody has used is %v", gate)
	}
	if ids, _ := listed(m{"task_id": c.id, "actor": "gate"}); len(ids) != 1 {
		t.Errorf("of one actor and task are listed %q", ids)
	}
	for _, who := range []*taskCaller{c.lead, c.builder} {
		who.refuse(api.Forbidden, task.NotPermitted, "task.grants", m{})
	}

	operator.must("task.revoke_grant", m{"task_id": c.id, "grant_id": unused["grant_id"]})
	c.deliver()
	// The orchestrator's is for any task of the tenant, and so for this one.
	if ids, left := listed(m{"task_id": c.id}); len(ids) != 1 || left["lead "] == nil {
		t.Errorf("the attempt is over, and listed are %v", left)
	}
	operator.refuse(api.NotFound, "", "task.grants", m{"task_id": "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"})

	// After a restart the records say when a grant was last used.
	h.stop()
	h.start()
	operator = h.taskOperator()
	if _, lines = listed(m{"actor": "lead"}); lines["lead "]["last_used_at"] == nil {
		t.Errorf("after a restart the orchestrator's is %v", lines["lead "])
	}
}
