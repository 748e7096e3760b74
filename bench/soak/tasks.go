package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
)

const taskSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

// team are the actors of tasks, each with a connection.
type team map[string]*client.Client

func (s *soak) team(ctx context.Context) (t team, err error) {
	t = make(team)
	defer func() {
		if err != nil {
			t.leave()
		}
	}()
	operator, err := client.Dial(ctx, config.OperatorPath(s.place.socket()))
	if err != nil {
		return nil, err
	}
	defer operator.Close()
	for _, name := range []string{"lead", "builder", "checker", "critic"} {
		var granted struct {
			Token string `json:"token"`
		}
		if err := call(ctx, operator, "task.grant", map[string]any{"actor": name}, &granted); err != nil {
			return nil, err
		}
		if t[name], err = client.Dial(ctx, s.place.socket()); err != nil {
			delete(t, name)
			return nil, err
		}
		if err := call(ctx, t[name], "task.attach", map[string]any{"token": granted.Token}, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t team) leave() {
	for _, c := range t {
		_ = c.Close()
	}
}

// taskView has the members of a task that the team reads.
type taskView struct {
	ID        string `json:"task_id"`
	Phase     string `json:"phase"`
	Attempt   string `json:"attempt_id"`
	Approvals []struct {
		Status string `json:"status"`
	} `json:"approvals"`
}

// manage takes one task from its spec to its end: its first attempt fails, the second is
// stopped, the third delivers, and a person decides whether its effect is done.
func (s *soak) manage(ctx context.Context, t team, n int) {
	j := &taskJob{ctx: ctx, team: t}
	j.task(n)
	switch {
	case j.err == nil:
		s.tasks.Add(1)
	case code(j.err) == api.Conflict && !j.begun.IsZero() && time.Since(j.begun) >= lease:
		// A worker that was stopped for as long as its lease has lost the lease, and the refusal is right.
		s.late.Add(1)
	default:
		s.note(ctx, j.err)
	}
}

// lease is for how long an attempt is waited for that nobody hears of, as the daemon has it
// where the configuration says nothing else.
const lease = 90 * time.Second

// taskJob is one task's way. After an error nothing more is done.
type taskJob struct {
	ctx     context.Context
	team    team
	id      string
	attempt string
	// begun is when the attempt that runs has begun, zero while none does.
	begun time.Time
	err   error
}

func (j *taskJob) do(who, method string, params map[string]any) (v taskView) {
	if j.err != nil {
		return v
	}
	if j.id != "" {
		params["task_id"] = j.id
	}
	j.err = call(j.ctx, j.team[who], method, params, &v)
	return v
}

func (j *taskJob) move(from, to string) {
	j.do("lead", "task.transition", map[string]any{"from_phase": from, "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "next"})
}

func (j *taskJob) review(who, kind string) {
	j.do(who, "task.get", map[string]any{})
	params := map[string]any{"review_type": kind, "reviewer_ref": who, "verdict": "approved", "findings": []any{}}
	if j.attempt != "" {
		params["attempt_id"] = j.attempt
	}
	j.do(who, "task.append_review", params)
}

func (j *taskJob) begin() {
	j.begun = time.Now()
	j.attempt = j.do("lead", "task.start_attempt", map[string]any{"phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}).Attempt
	for range 3 {
		j.do("builder", "task.record_checkpoint", map[string]any{"attempt_id": j.attempt, "checkpoint_type": "heartbeat", "payload": map[string]any{}})
	}
}

func (j *taskJob) task(n int) {
	j.id = j.do("lead", "task.create", map[string]any{
		"title": fmt.Sprintf("Task %d", n), "spec_markdown": taskSpec, "workspace": "billing", "initial_phase": "spec_review",
		"effects": []any{map[string]any{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": map[string]any{"n": n}}},
	}).ID
	j.review("checker", "spec")
	j.move("spec_review", "execution_ready")
	for _, outcome := range []string{"failed", "aborted"} {
		j.begin()
		params := map[string]any{"attempt_id": j.attempt, "outcome": outcome}
		if outcome == "failed" {
			params["failure_code"] = "refused"
		}
		j.do("builder", "task.finish_attempt", params)
	}
	j.begin()
	j.move("execution_ready", "executing")
	j.do("builder", "task.record_checkpoint", map[string]any{"attempt_id": j.attempt, "checkpoint_type": "progress", "payload": map[string]any{"done": n}})
	j.do("builder", "task.record_artifact", map[string]any{
		"attempt_id": j.attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "builder", "digest": fmt.Sprintf("sha256:%064x", n),
	})
	j.do("builder", "task.finish_attempt", map[string]any{"attempt_id": j.attempt, "outcome": "succeeded"})
	if j.err == nil {
		j.begun = time.Time{}
	}
	j.move("executing", "spec_gate")
	j.review("checker", "spec")
	j.move("spec_gate", "quality_gate")
	j.review("critic", "quality")
	j.move("quality_gate", "awaiting_approval")
	var asked struct {
		Digest string `json:"request_digest"`
	}
	if j.err == nil {
		j.err = call(j.ctx, j.team["lead"], "task.request_approval", map[string]any{
			"task_id": j.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification",
		}, &asked)
	}
	switch j.decided() {
	case "approved":
		j.effect(asked.Digest)
	case "":
	default:
		j.move("awaiting_approval", "failed")
	}
}

// decided waits for a person.
func (j *taskJob) decided() (status string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		v := j.do("lead", "task.get", map[string]any{})
		if j.err != nil {
			return ""
		}
		for _, a := range v.Approvals {
			if a.Status != "pending" {
				return a.Status
			}
		}
		select {
		case <-tick.C:
		case <-j.ctx.Done():
			j.err = j.ctx.Err()
			return ""
		}
	}
}

// effect is done, once.
func (j *taskJob) effect(digest string) {
	j.move("awaiting_approval", "ready_to_resume")
	if j.err != nil {
		return
	}
	run := map[string]any{"task_id": j.id, "idempotency_key": "tell", "request_digest": digest}
	var started struct {
		EffectID string `json:"effect_id"`
		Run      int    `json:"run"`
		Token    string `json:"run_token"`
	}
	if j.err = call(j.ctx, j.team["lead"], "task.run_effect", run, &started); j.err == nil && started.Token == "" {
		j.err = errors.New("task.run_effect: it was run before")
	}
	j.do("lead", "task.finish_effect", map[string]any{"effect_id": started.EffectID, "run": started.Run, "run_token": started.Token, "outcome": "done"})
	j.move("ready_to_resume", "completed")
}
