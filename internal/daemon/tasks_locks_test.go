package daemon_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
)

// Requests that need the same locks, in any order, are all answered: an actor cannot block
// anybody with two requests of one key that change dependencies.
func TestTasksLockInOneOrder(t *testing.T) {
	h := build(t, taskTeam)
	lead := h.actor("lead", "")
	base := func(more m) m {
		p := m{"title": "t", "spec_markdown": goodTaskSpec, "workspace": "w", "initial_phase": "spec_draft"}
		maps.Copy(p, more)
		return p
	}
	on := []any{lead.must("task.create", base(nil))["task_id"]}
	id := lead.must("task.create", base(nil))["task_id"]
	var all sync.WaitGroup
	for n := range 40 {
		key := fmt.Sprint("K", n)
		for method, p := range map[string]m{
			"task.update": {"task_id": id, "expected_revision": 1, "depends_on": on, "request_key": key},
			"task.create": base(m{"depends_on": on, "request_key": key}),
		} {
			all.Go(func() {
				// One of the two has the key, and the other is refused.
				_, _ = lead.call(method, p)
			})
		}
	}
	all.Wait()
	lead.must("task.create", base(m{"depends_on": on}))
}
