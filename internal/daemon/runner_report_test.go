package daemon_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Only the attached runner reports its runs, on its own connection, and it excludes only processes
// that it has started from the operator socket.
func TestReportsAreTheRunnersAlone(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": m{"argv": []string{"./ship.sh"}}})
	if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.executing()
	c.toApproval()
	operator, runner := h.taskOperator(), h.taskOperator()
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
	h.decides(api.DecideApprove, str(asked, "approval_id"))
	c.move(task.ReadyToResume)
	runner.attaches()
	started := c.lead.must("task.run_effect", m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
	of := func(event string, more m) m {
		p := m{"task_id": c.id, "effect_id": started["effect_id"], "run": started["run"], "event": event}
		maps.Copy(p, more)
		return p
	}
	own := waitingProcess(t)
	parent, err := peer.NameOf(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []m{of("finished", m{"state": "failed"}), of("spawned", m{"pid": 1}), of("waits", m{"process": own})} {
		operator.refuse(api.Forbidden, "", "runner.report", p)
	}
	runner.refuse(api.Forbidden, "", "runner.report", of("waits", m{"process": parent}))
	runner.refuse(api.Forbidden, "", "runner.report", of("waits", m{"process": "1@7"}))
	if n := len(h.records(audit.Filter{Like: audit.Record{Event: "effect_process"}})); n != 0 {
		t.Errorf("%d processes are excluded", n)
	}
	runner.must("runner.report", of("waits", m{"process": own}))
	runner.must("runner.report", of("finished", m{"state": "done"}))
	c.move(task.Completed)
}

// waitingProcess is the name of a process that this one, which is the runner of tests, has started.
func waitingProcess(t testing.TB) string {
	t.Helper()
	name, _ := endingProcess(t)
	return name
}

// endingProcess is [waitingProcess] with the function that ends it.
func endingProcess(t testing.TB) (name string, end func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	t.Cleanup(end)
	name, err := peer.NameOf(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return name, end
}

// runs has a run of a task's effect begin as a process, and end.
func (a *taskCaller) runs(id string, started m, state string) {
	a.t.Helper()
	of := m{"task_id": id, "effect_id": started["effect_id"], "run": started["run"]}
	for _, more := range []m{{"event": "waits", "process": waitingProcess(a.t)}, {"event": "finished", "state": state}} {
		maps.Copy(more, of)
		a.must("runner.report", more)
	}
}

// One approval is one start, whatever the runner says: what it reports of a run that the daemon has
// not let begin, or begins a second time, is on record as an outcome that a person has to find out.
func TestOneApprovalIsOneStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		says     func(one, two string) []m
		state    string
		evidence string
	}{
		{"done without a begin", func(string, string) []m { return []m{{"event": "finished", "state": "done"}} }, task.EffectUncertain, "has not let it begin"},
		{"failed without a begin", func(string, string) []m { return []m{{"event": "finished", "state": "failed"}} }, task.EffectUncertain, "has not let it begin"},
		{"twice", func(one, two string) []m {
			return []m{{"event": "waits", "process": one}, {"event": "spawned", "pid": 7}, {"event": "waits", "process": two}}
		}, task.EffectUncertain, "it has begun as process"},
		{"twice, without its process", func(one, two string) []m {
			return []m{{"event": "waits", "process": one}, {"event": "waits", "process": two}}
		}, task.EffectUncertain, "it has begun as process"},
		{"the same process", func(one, _ string) []m {
			return []m{{"event": "waits", "process": one}, {"event": "waits", "process": one}}
		}, task.EffectStarted, ""},
		{"after a withdrawal", func(one, two string) []m {
			return []m{{"event": "waits", "process": one}, {"event": "withdrawn", "process": one}, {"event": "waits", "process": two}}
		}, task.EffectStarted, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := build(t, taskTeam)
			c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": m{"argv": []string{"./ship.sh"}}})
			if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			c.executing()
			c.toApproval()
			asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
			h.decides(api.DecideApprove, str(asked, "approval_id"))
			c.move(task.ReadyToResume)
			runner := h.taskOperator()
			runner.attaches()
			started := c.lead.must("task.run_effect", m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
			said := tt.says(waitingProcess(t), waitingProcess(t))
			for i, p := range said {
				maps.Copy(p, m{"task_id": c.id, "effect_id": started["effect_id"], "run": started["run"]})
				if i < len(said)-1 || tt.state == task.EffectStarted {
					runner.must("runner.report", p)
					continue
				}
				runner.refuse(api.Conflict, "", "runner.report", p)
			}
			effect := c.lead.must("task.get", m{"task_id": c.id})["effects"].([]any)[0].(m)
			if effect["state"] != tt.state {
				t.Fatalf("the effect is %v", effect)
			}
			if tt.state != task.EffectUncertain {
				return
			}
			contains(t, str(effect["runs"].([]any)[0].(m), "evidence"), tt.evidence)
			if h.last("effect.unknown").TaskID != c.id {
				t.Error("it is not on record")
			}
			c.lead.refuse(api.Conflict, task.EffectUnknown, "task.run_effect", m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
			h.restart()
			if got := h.altered(); len(got) != 0 {
				t.Errorf("altered rows on record: %v", got)
			}
		})
	}
}

// chunks is a stream that calls a function with each chunk.
type chunks func(taskapi.RunnerChunk) error

func (f chunks) Send(_ context.Context, sent ...any) error {
	for _, chunk := range sent {
		if err := f(chunk.(taskapi.RunnerChunk)); err != nil {
			return err
		}
	}
	return nil
}

// A run that starts while the runner attaches is told to the runner once.
func TestRunThatStartsWhileTheRunnerAttachesIsToldOnce(t *testing.T) {
	t.Parallel()
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": m{"argv": []string{"./ship.sh"}}})
	if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.executing()
	c.toApproval()
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
	h.decides(api.DecideApprove, str(asked, "approval_id"))
	c.move(task.ReadyToResume)
	told, enough := 0, errors.New("enough")
	err := h.daemon.FeedRunner(t.Context(), chunks(func(chunk taskapi.RunnerChunk) error {
		switch {
		case chunk.Directory != "":
			started := c.lead.must("task.run_effect", m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
			// This is queued behind the run.
			h.taskOperator().must("task.kill_effect", m{"task_id": c.id, "effect_id": started["effect_id"], "reason": "enough"})
		case chunk.Run != nil:
			told++
		default:
			return enough
		}
		return nil
	}))
	if told != 1 || !errors.Is(err, enough) {
		t.Errorf("the run is told %d times: %v", told, err)
	}
}

// A run that waits for a runner is weighed again when its command is about to begin: a person who
// wants it ended is heard without a runner, and so is a policy that allows no effect any more.
func TestRunThatWaitsForARunnerIsWeighedAgain(t *testing.T) {
	t.Parallel()
	for what, stop := range map[string]func(h *harness, of func(m) m){
		"kill":   func(h *harness, of func(m) m) { h.taskOperator().must("task.kill_effect", of(m{"reason": "enough"})) },
		"policy": func(h *harness, _ func(m) m) { h.enact(judge(denies)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, taskTeam, judge(freely))
			c := h.crew(m{"idempotency_key": "ship", "side_effect_kind": "deployment", "requested_action": "Ship it", "command": m{"argv": []string{"./ship.sh"}}})
			if err := os.WriteFile(filepath.Join(h.dir, "work/ship.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			c.executing()
			c.toApproval()
			asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ship", "requested_action": "Ship it", "side_effect_kind": "deployment", "requested_by": "lead"})
			h.decides(api.DecideApprove, str(asked, "approval_id"))
			c.move(task.ReadyToResume)
			gone := h.taskOperator()
			gone.attaches()
			started := c.lead.must("task.run_effect", m{"task_id": c.id, "idempotency_key": "ship", "request_digest": asked["request_digest"]})
			if err := gone.c.Close(); err != nil {
				t.Fatal(err)
			}
			of := func(more m) m {
				p := m{"task_id": c.id, "effect_id": started["effect_id"], "run": started["run"]}
				maps.Copy(p, more)
				return p
			}
			stop(h, of)
			h.restart()
			next := h.taskOperator()
			orders := next.attaches()
			var told []taskapi.RunnerChunk
			for range map[string]int{"kill": 2, "policy": 1}[what] {
				line, err := nextOf(t, orders)
				var chunk taskapi.RunnerChunk
				if err == nil {
					err = json.Unmarshal(line, &chunk)
				}
				if err != nil {
					t.Fatal(err)
				}
				told = append(told, chunk)
			}
			if told[0].Run == nil || what == "kill" && told[1].Kill == nil {
				t.Errorf("the runner is told %+v", told)
			}
			next.refuse(api.Conflict, "", "runner.report", of(m{"event": "waits", "process": waitingProcess(t)}))
			ended := h.last("effect.finished")
			reason, _ := ended.Details["reason"].(string)
			contains(t, reason, "its command did not begin")
			if n := len(h.records(audit.Filter{Like: audit.Record{Event: "effect_process"}})); n != 0 {
				t.Errorf("%d processes may run", n)
			}
			h.restart()
			if got := h.altered(); len(got) != 0 {
				t.Errorf("altered rows on record: %v", got)
			}
		})
	}
}
