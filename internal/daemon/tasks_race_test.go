package daemon_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// taskOp is one of many simultaneous calls. taskState is the state in question: the task's
// claim and phase, and the fence of its running attempt.
type (
	taskOp struct {
		call, who string
		from, to  task.Phase
	}
	taskState struct {
		holder  string
		phase   task.Phase
		fence   int64
		running bool
	}
	taskResult struct {
		ok    bool
		fence int64
	}
)

// taskModel is a model of one task's store: a call wins alone or changes nothing.
func taskModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return taskState{phase: task.ExecutionReady} },
		Step: func(state, input, output any) (bool, any) {
			s, op, got := state.(taskState), input.(taskOp), output.(taskResult)
			mine := s.holder == "" || s.holder == op.who
			next, ok := s, false
			switch op.call {
			case "claim":
				if ok = mine; ok {
					next.holder = op.who
				}
			case "release":
				if ok = mine; ok {
					next.holder = ""
				}
			case "start":
				ok = mine && s.phase == task.ExecutionReady && !s.running
				if ok {
					next.fence, next.running = s.fence+1, true
				}
				if ok && got.fence != next.fence {
					return false, s
				}
			case "abort":
				if ok = mine && s.running && got.fence == s.fence; ok {
					next.running = false
				} else if !got.ok {
					return true, s // it named an attempt that does not run any more
				}
			case "move":
				ok = mine && s.phase == op.from && (op.to == task.Executing && s.running || op.to == task.ExecutionReady && !s.running)
				if ok {
					next.phase = op.to
				}
			}
			return got.ok == ok, next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

// Claims, attempts and transitions of two orchestrators over many connections are
// linearizable: one attempt at a time, with a rising fence.
func TestTaskCallsAreLinearizable(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew()
	c.review("spec", "approved")
	c.move(task.ExecutionReady)
	const clients, rounds = 6, 12
	var mu sync.Mutex
	var history []porcupine.Operation
	var clock int64
	tick := func() int64 { mu.Lock(); defer mu.Unlock(); clock++; return clock }
	var all sync.WaitGroup
	for n := range clients {
		name := []string{"lead", "second"}[n%2]
		who := h.actor(name, "")
		all.Go(func() {
			attempt, fence := "", int64(0)
			for i := range rounds {
				op := taskOp{who: name}
				var method string
				params := m{"task_id": c.id}
				switch (i + n) % 6 {
				case 0:
					op.call, method = "claim", "task.claim"
				case 1:
					op.call, method = "start", "task.start_attempt"
					params["phase"], params["actor"], params["runtime"], params["executor_kind"] = "executing", name, "local", "builder"
				case 2:
					op.call, op.from, op.to, method = "move", task.ExecutionReady, task.Executing, "task.transition"
				case 3:
					if attempt == "" {
						continue
					}
					op.call, method = "abort", "task.finish_attempt"
					params["attempt_id"], params["outcome"] = attempt, "aborted"
				case 4:
					op.call, op.from, op.to, method = "move", task.Executing, task.ExecutionReady, "task.transition"
				default:
					op.call, method = "release", "task.claim"
					params["lease_s"] = 0
				}
				if op.call == "move" {
					params["from_phase"], params["to_phase"], params["actor"], params["actor_role"], params["reason"] = op.from, op.to, name, "orchestrator", "r"
				}
				began := tick()
				result, err := who.call(method, params)
				got := taskResult{ok: err == nil, fence: fence}
				if e, refused := errors.AsType[*api.Error](err); err != nil && (!refused || e.Code != api.Conflict) {
					t.Errorf("%s: %v", method, err)
					return
				}
				if op.call == "start" {
					got.fence = 0
					if err == nil {
						attempt = str(result, "attempt_id")
						fence = int64(result["fence"].(float64))
						got.fence = fence
					}
				}
				ended := tick()
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: n, Input: op, Call: began, Output: got, Return: ended})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if result := porcupine.CheckOperations(taskModel(), history); !result {
		var b strings.Builder
		for _, op := range history {
			fmt.Fprintf(&b, "%d-%d %+v %+v\n", op.Call, op.Return, op.Input, op.Output)
		}
		t.Errorf("not linearizable:\n%s", &b)
	}
	h.verify()
}

// If many run one approved effect at once, one starts it.
func TestTaskEffectStartsOnce(t *testing.T) {
	h := build(t, taskTeam)
	c := h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}})
	c.executing()
	c.toApproval()
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification", "requested_by": "lead"})
	operator := h.taskOperator()
	shown := operator.must("approval.get", m{"approvalId": asked["approval_id"]})
	operator.must("approval.resolve", m{"approvalId": asked["approval_id"], "decision": "approve", "digest": shown["digest"]})
	c.move(task.ReadyToResume)
	var mu sync.Mutex
	started := 0
	var all sync.WaitGroup
	for range 16 {
		who := h.actor("gate", c.id)
		all.Go(func() {
			result, err := who.call("task.run_effect", m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"]})
			if err == nil && str(result, "run_token") != "" {
				mu.Lock()
				started++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if started != 1 {
		t.Errorf("%d started it", started)
	}
}
