package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/task"
)

// effectOp is one call about an effect, and effectGot its result. The result of a call
// whose daemon was killed is unknown.
type (
	effectOp struct {
		call, approval string
		run            int
	}
	effectGot struct {
		ok, unknown bool
		approval    string
		run         int
	}
	// effectState is an effect with its newest approval. The id of an approval from an
	// unanswered call is unknown.
	effectState struct {
		resumes          bool
		effect, approval string
		id               string
		run              int
	}
)

const unknownID = "?"

// step is the effect of a call in the model.
func (op effectOp) step(s effectState, got effectGot) (next effectState, ok bool) {
	next = s
	open := s.effect == task.EffectPlanned || s.effect == task.EffectFailed
	switch op.call {
	case "request":
		ok = true
		if !s.resumes && open && (s.approval == "" || s.approval == "used") {
			next.approval, next.id = task.ApprovalPending, unknownID
		}
		if next.id == unknownID && !got.unknown {
			next.id = got.approval
		}
	case "approve":
		if ok = s.approval == task.ApprovalPending && (s.id == op.approval || s.id == unknownID); ok {
			next.approval, next.id = task.ApprovalApproved, op.approval
		}
	case "resume":
		if ok = !s.resumes && open && s.approval == task.ApprovalApproved; ok {
			next.resumes = true
		}
	case "back":
		if ok = s.resumes && open && s.approval != task.ApprovalApproved; ok {
			next.resumes = false
		}
	case "run":
		if ok = s.resumes && open && s.approval == task.ApprovalApproved && s.run < task.MaxRuns; ok {
			next.effect, next.approval, next.run = task.EffectStarted, "used", s.run+1
		}
	case "finish":
		// A repeated request gets the earlier answer.
		if ok = op.run <= s.run; ok && op.run == s.run {
			next.effect = task.EffectFailed
		}
	}
	return next, ok
}

func effectModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{effectState{effect: task.EffectPlanned}} },
		Step: func(state, input, output any) []any {
			s, op, got := state.(effectState), input.(effectOp), output.(effectGot)
			next, ok := op.step(s, got)
			switch {
			case got.unknown:
				return []any{s, next}
			case got.ok != ok, ok && op.call == "request" && got.approval != next.id, ok && op.call == "run" && got.run != next.run:
				return nil
			default:
				return []any{next}
			}
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return model.ToModel()
}

// history is the history of several callers.
type history struct {
	mu    sync.Mutex
	clock int64
	ops   []porcupine.Operation
}

func (h *history) tick() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

// does makes a call, and notes its result. A call that could not be made does not count.
func (w *taskWorld) does(ctx context.Context, h *history, who int, token string, op effectOp, method string, params object, answered func(map[string]any) effectGot) effectGot {
	path := w.socket
	if token == "" {
		path = config.OperatorPath(path)
	}
	c, err := client.Dial(ctx, path)
	if err != nil {
		return effectGot{unknown: true}
	}
	defer c.Close()
	if token != "" {
		if err := c.Call(ctx, "task.attach", object{"token": token}, nil); err != nil {
			return effectGot{unknown: true}
		}
	}
	var result map[string]any
	began := h.tick()
	err = c.Call(ctx, method, params, &result)
	ended := h.tick()
	got := effectGot{}
	switch e, refused := errors.AsType[*api.Error](err); {
	case err == nil:
		got = effectGot{ok: true}
		if answered != nil {
			got = answered(result)
		}
	case !refused || e.Code == api.ConnectionClosed:
		got.unknown, ended = true, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: who, Input: op, Call: began, Output: got, Return: ended})
	return got
}

// An effect's approvals and starts are linearizable over kills of the daemon: no start
// without its own approval.
func TestEffectsAreLinearizable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	w := newTaskWorld(t)
	const tasks, callers, kills = 4, 5, 2
	starts := 0
	for round := range tasks {
		lead := w.external()
		ctx, stop := context.WithCancel(t.Context())
		h := new(history)
		var all sync.WaitGroup
		for who := range callers {
			random := rand.New(rand.NewPCG(uint64(round), uint64(who)))
			all.Go(func() {
				for ctx.Err() == nil {
					w.effectTurn(ctx, h, who, lead, random)
				}
			})
		}
		for range kills {
			w.lets(400 * time.Millisecond)
			w.kill(w.daemon)
			w.startDaemon()
		}
		w.lets(200 * time.Millisecond)
		stop()
		all.Wait()
		// A call that the test ended has an unknown result, too.
		if found := porcupine.CheckOperationsTimeout(effectModel(), h.ops, time.Minute); found != porcupine.Ok {
			var b strings.Builder
			for _, op := range h.ops {
				fmt.Fprintf(&b, "%d-%d %+v %+v\n", op.Call, op.Return, op.Input, op.Output)
			}
			t.Fatalf("round %d: %s:\n%s", round, found, &b)
		}
		starts += w.startsOnRecord()
	}
	if starts < tasks {
		t.Errorf("there were %d starts: too few to say anything", starts)
	}
}

// effectTurn makes one random call.
func (w *taskWorld) effectTurn(ctx context.Context, h *history, who int, lead string, random *rand.Rand) {
	move := func(call string, from, to task.Phase) {
		w.does(ctx, h, who, lead, effectOp{call: call}, "task.transition",
			object{"task_id": w.id, "from_phase": from, "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "next"}, nil)
	}
	request := func() string {
		return w.does(ctx, h, who, lead, effectOp{call: "request"}, "task.request_approval",
			object{"task_id": w.id, "idempotency_key": "tell", "requested_action": "Run tell", "side_effect_kind": "deployment"},
			func(r map[string]any) effectGot {
				w.digest.Store(r["request_digest"])
				return effectGot{ok: true, approval: r["approval_id"].(string)}
			}).approval
	}
	switch random.IntN(5) {
	case 0:
		move("resume", task.AwaitingApproval, task.ReadyToResume)
	case 1:
		move("back", task.ReadyToResume, task.AwaitingApproval)
	case 2, 3:
		id := request()
		var shown api.Approval
		if id == "" || w.call("", "approval.get", object{"approvalId": id}, &shown) != nil {
			return
		}
		w.does(ctx, h, who, "", effectOp{call: "approve", approval: id}, "task.resolve_approval",
			object{"task_id": w.id, "approval_id": id, "resolution": "approved", "resolved_by": "me", "digest": shown.Digest}, nil)
	default:
		digest := w.digest.Load().(string)
		if digest == "" {
			return // nothing was asked for yet
		}
		var finish object
		got := w.does(ctx, h, who, lead, effectOp{call: "run"}, "task.run_effect", object{"task_id": w.id, "idempotency_key": "tell", "request_digest": digest},
			func(r map[string]any) effectGot {
				finish = object{"task_id": w.id, "effect_id": r["effect_id"], "run": r["run"], "run_token": r["run_token"], "outcome": "failed"}
				return effectGot{ok: true, run: int(r["run"].(float64))}
			})
		for finish != nil && ctx.Err() == nil {
			if !w.does(ctx, h, who, lead, effectOp{call: "finish", run: got.run}, "task.finish_effect", finish, nil).unknown {
				return
			}
		}
	}
}

// startsOnRecord walks the events of the task: each start has its own approval, which a
// person gave before.
func (w *taskWorld) startsOnRecord() (starts int) {
	w.t.Helper()
	view := w.must("", "task.get", object{"task_id": w.id, "include_events_limit": 200})
	// Requests before the newest 200 events are not judged.
	asked, given := map[any]bool{}, map[any]bool{}
	for _, e := range view["events"].([]any) {
		now, _ := e.(object)["now"].(object)
		switch e.(object)["event"] {
		case "approval.requested":
			asked[now["approval_id"]] = true
		case "approval.resolved":
			if now["status"] == task.ApprovalApproved {
				given[now["approval_id"]] = true
			}
		case "effect.started":
			if starts++; asked[now["approval_id"]] && !given[now["approval_id"]] {
				w.t.Errorf("a start without an approval: %v", e)
			}
			delete(given, now["approval_id"])
		}
	}
	return starts
}
