package daemon_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A grant that an actor gives ends with what the actor gives it by: its own grant, when that is
// revoked or expires, or its place in the configuration. The end is on record, and holds after a
// restart too.
func TestGrantEndsWithItsGivers(t *testing.T) {
	ends := func(t *testing.T, h *harness, c *crew, child m, holder *taskCaller) {
		t.Helper()
		if holder != nil {
			holder.refuse(api.Unauthorized, "", "task.get", m{"task_id": c.id})
		}
		h.taskDial("run/kernel.sock", "again").refuse(api.Unauthorized, "", "task.attach", m{"token": child["token"]})
		if seen := fmt.Sprint(h.taskOperator().must("task.grants", m{"task_id": c.id})); strings.Contains(seen, str(child, "grant_id")) {
			t.Errorf("still listed: %s", seen)
		}
	}
	for name, tc := range map[string]struct {
		end     func(h *harness, parent m)
		revoked bool
	}{
		"revoked": {func(h *harness, parent m) {
			h.taskOperator().must("task.revoke_grant", m{"grant_id": parent["grant_id"]})
		}, true},
		"not configured any more": {func(h *harness, _ m) {
			h.reloaded(strings.Replace(taskTeam, "{name: second, role: orchestrator, tenant_id: acme-corp}", "{name: second, role: orchestrator, tenant_id: globex-inc}", 1))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, taskTeam)
			c := h.crew()
			parent := h.taskOperator().must("task.grant", m{"actor": "second", "expires_s": 900})
			second := c.again(parent)
			child := second.must("task.grant", m{"task_id": c.id, "actor": "checker", "expires_s": 9000})
			if child["expires_at"] != parent["expires_at"] {
				t.Errorf("it ends at %v, and the grant under which it was given at %v", child["expires_at"], parent["expires_at"])
			}
			listed := fmt.Sprint(h.taskOperator().must("task.grants", m{"task_id": c.id, "actor": "checker"}))
			if issued := h.last("grant.issued").Details; issued["now"].(map[string]any)["under"] != parent["grant_id"] || !strings.Contains(listed, "under:"+str(parent, "grant_id")) {
				t.Errorf("on record %v, listed %s", issued, listed)
			}
			checker := c.again(child)
			checker.must("task.get", m{"task_id": c.id})

			tc.end(h, parent)
			ends(t, h, c, child, checker)
			var said []string
			for _, r := range h.records(audit.Filter{Like: audit.Record{Event: "grant.revoked"}}) {
				said = append(said, fmt.Sprint(r.Details["grant_id"], " under ", r.Details["under"]))
			}
			want := fmt.Sprintf("[%v under <nil> %v under %v]", parent["grant_id"], child["grant_id"], parent["grant_id"])
			if !tc.revoked {
				want = "[]"
			}
			if fmt.Sprint(said) != want {
				t.Errorf("revoked on record are %v, want %v", said, want)
			}
			// Whoever acted by it cannot give another one, and others of the task go on.
			second.refuse(api.Unauthorized, "", "task.grant", m{"task_id": c.id, "actor": "critic"})
			h.actor("checker", c.id).must("task.get", m{"task_id": c.id})
			h.stop()
			h.start()
			h.verified()
			ends(t, h, c, child, nil)
		})
	}
}

// After the record of a grant's revocation nobody has done anything by it, however many calls were
// under way: a message, a tool call on record, a task.
func TestNothingFollowsARevocation(t *testing.T) {
	h := build(t, ungoverned)
	operator := h.taskOperator()
	acts := map[string]struct {
		grant  m
		method string
		params func(n int) m
	}{
		"message": {m{"agent": "ann"}, "agent.send", func(n int) m { return m{"to": "ben", "text": fmt.Sprint("Build ", n, " is green.")} }},
		"task": {m{"actor": "lead"}, "task.create", func(n int) m {
			return m{"title": fmt.Sprint("Export ", n), "spec_markdown": goodTaskSpec, "workspace": h.dir, "initial_phase": "spec_draft"}
		}},
	}
	for name, act := range acts {
		for range 12 {
			act.grant["bind"] = "none"
			granted := operator.must("task.grant", act.grant)
			var running sync.WaitGroup
			begun := make(chan struct{}, 64)
			for range 4 {
				who := h.taskDial("run/kernel.sock", name)
				who.must("task.attach", m{"token": granted["token"]})
				running.Go(func() {
					for n := range 64 {
						if n == 2 {
							begun <- struct{}{}
						}
						if _, err := who.call(act.method, act.params(n)); err != nil && api.AsError(err).Code == api.Unauthorized {
							return
						}
					}
				})
			}
			<-begun
			<-begun
			operator.must("task.revoke_grant", m{"grant_id": granted["grant_id"]})
			running.Wait()
			revoked := h.last("grant.revoked").Seq
			for _, r := range h.records(audit.Filter{}) {
				if r.Details["grant_id"] == granted["grant_id"] && r.PolicyResult == audit.ResultAllow && r.Seq > revoked {
					t.Fatalf("%s: record %d %s %s comes after the revocation, record %d", name, r.Seq, r.ActionType, r.Event, revoked)
				}
			}
		}
	}
}
