package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
)

// effectTask is the title of the task whose effects are asked about and done.
const effectTask = "the task with effects"

// The effects of that task: one that its starter carries out, and a command that the runner
// runs. Each leaves lines that can be counted.
const (
	tell = "tell"
	line = "line"
)

// effects are the questions to people about a task, and the runs that follow, over the life of
// two daemons.
type effects struct {
	id     string
	tokens map[string]string
	runner *exec.Cmd
	// told is the run token of the effect that the runner does not run, and given counts how
	// often a token was given. allowed are the requests by which a tool call was allowed or denied.
	told    string
	given   int
	allowed []string
	// acknowledged are the requests whose approval was answered, and finished is set where it
	// was answered that the effect is done.
	acknowledged []string
	finished     bool
	// left is set where the end of the daemon has left nobody who could say how it went.
	left bool
	view effectView
	// states are those of the requests that people had.
	states map[string]string
}

// effectView has the members of a task that the check reads.
type effectView struct {
	stored
	Effects []struct {
		ID     string `json:"effect_id"`
		Key    string `json:"idempotency_key"`
		State  string `json:"state"`
		Digest string `json:"request_digest"`
		Runs   []struct {
			Run      int    `json:"run"`
			State    string `json:"state"`
			Approval string `json:"approval_id"`
		} `json:"runs"`
	} `json:"effects"`
	Approvals []approvalView `json:"approvals"`
}

type approvalView struct {
	ID     string `json:"approval_id"`
	Effect string `json:"effect_id"`
	Status string `json:"status"`
}

// end ends the runner.
func (e *effects) end() {
	if e.runner != nil {
		_ = e.runner.Process.Kill()
		_ = e.runner.Wait()
	}
}

func (p place) work() string { return filepath.Join(p.dir, "work") }

// lines is how often the command was run.
func (p place) lines() int {
	text, err := os.ReadFile(filepath.Join(p.work(), "effects"))
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte("\n"))
}

// as makes a call by an actor's grant.
func (p *people) as(actor, method string, params, result any) error {
	return p.asWithin(p.ctx, actor, method, params, result)
}

func (p *people) asWithin(ctx context.Context, actor, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, p.place.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Call(ctx, "task.attach", map[string]any{"token": p.effects.tokens[actor]}, nil); err != nil {
		return err
	}
	return c.Call(ctx, method, params, result)
}

// ask takes a task to the phase in which people are asked about its effects, and starts a runner.
func (p *people) ask() error {
	e := p.effects
	e.tokens = make(map[string]string)
	for _, actor := range []string{"lead", "checker", "critic"} {
		var granted struct {
			Token string `json:"token"`
		}
		if err := p.call(p.operator, "task.grant", map[string]any{"actor": actor}, &granted); err != nil {
			return err
		}
		e.tokens[actor] = granted.Token
	}
	if err := os.Mkdir(p.place.work(), 0o700); err != nil {
		return err
	}
	if err := p.prepareTask(); err != nil {
		return fmt.Errorf("%s: %w", effectTask, err)
	}
	e.runner = exec.CommandContext(p.ctx, p.place.binary, "runner", "--config", p.place.config(), "--socket", p.place.socket())
	e.runner.Env = p.place.environ()
	said, err := os.Create(filepath.Join(p.place.dir, "runner.log"))
	if err != nil {
		return err
	}
	defer said.Close()
	e.runner.Stderr = said
	return e.runner.Start()
}

// prepareTask makes the task, and takes it through its reviews.
func (p *people) prepareTask() (err error) {
	e := p.effects
	var made struct {
		ID      string `json:"task_id"`
		Attempt string `json:"attempt_id"`
	}
	do := func(actor, method string, params map[string]any) {
		if err != nil {
			return
		}
		if e.id != "" {
			params["task_id"] = e.id
		}
		if err = p.as(actor, method, params, &made); err == nil {
			e.id = made.ID
		}
	}
	move := func(from, to string) {
		do("lead", "task.transition", map[string]any{"from_phase": from, "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "next"})
	}
	review := func(who, kind string) {
		params := map[string]any{"review_type": kind, "reviewer_ref": who, "verdict": "approved", "findings": []any{}, "subject_revision": 1}
		if made.Attempt != "" {
			params["attempt_id"] = made.Attempt
		}
		do(who, "task.append_review", params)
	}
	do("lead", "task.create", map[string]any{
		"title": effectTask, "spec_markdown": taskSpec, "workspace": p.place.work(), "initial_phase": "spec_review",
		"effects": []any{
			map[string]any{"idempotency_key": tell, "side_effect_kind": "notification", "requested_action": "Tell ops", "params": map[string]any{"to": "ops"}},
			map[string]any{"idempotency_key": line, "side_effect_kind": "deployment", "requested_action": "Write a line", "command": map[string]any{"argv": []any{"/bin/sh", "-c", "echo done >>effects"}}},
		},
	})
	review("checker", "spec")
	move("spec_review", "execution_ready")
	do("lead", "task.start_attempt", map[string]any{"phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder"})
	move("execution_ready", "executing")
	do("lead", "task.record_artifact", map[string]any{"attempt_id": made.Attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "lead", "digest": fmt.Sprintf("sha256:%064x", 1)})
	do("lead", "task.finish_attempt", map[string]any{"attempt_id": made.Attempt, "outcome": "succeeded"})
	move("executing", "spec_gate")
	review("checker", "spec")
	move("spec_gate", "quality_gate")
	review("critic", "quality")
	move("quality_gate", "awaiting_approval")
	return err
}

// carryTime is for how long a task is carried on, and lookEvery how often what has to come by
// itself is looked for.
const (
	carryTime = 20 * time.Second
	lookEvery = 20 * time.Millisecond
)

// carry has a person answer about a tool call and approve the effects, and carries them out,
// from the task's present phase. A full disk costs one call; if the daemon is gone or closed,
// the next daemon goes on.
func (p *people) carry(o *outcome) {
	e := p.effects
	ctx, cancel := context.WithTimeout(p.ctx, carryTime)
	defer cancel()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		done, err := p.step()
		var a attempt
		switch a.judge(err); {
		case errors.Is(err, client.ErrNotRunning):
			return
		case a.other != "":
			o.wrong("%s: %s", effectTask, a.other)
			return
		case done, err != nil && !a.unrecorded:
			return
		}
		if now, alive := p.status(); !alive || now.Audit.Fault != "" {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			o.wrong("%s is not done in %s: %+v", effectTask, carryTime, e.view)
			return
		}
	}
}

// step looks at the task and does what comes next.
func (p *people) step() (done bool, err error) {
	e := p.effects
	if len(e.allowed) == 0 {
		return false, p.permission()
	}
	e.view = effectView{}
	if err := p.as("lead", "task.get", map[string]any{"task_id": e.id}, &e.view); err != nil {
		return false, err
	}
	switch e.view.Phase {
	case "awaiting_approval":
		return false, p.approvals()
	case "ready_to_resume":
		return p.start()
	}
	return true, nil
}

// permission has an actor ask about a tool call, and a person allow it.
func (p *people) permission() error {
	e := p.effects
	var said struct {
		Decision string `json:"decision"`
		Approval string `json:"approval_id"`
	}
	asking, cancel := context.WithCancel(p.ctx)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answered <- p.asWithin(asking, "checker", "task.ask_permission", map[string]any{"task_id": e.id, "options": []any{}, "tool_call": map[string]any{"id": "1", "kind": "execute", "title": "make all"}}, &said)
	}()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case err := <-answered:
			if err == nil && said.Decision != "allow" {
				err = fmt.Errorf("what was approved is answered with %s", said.Decision)
			}
			if err == nil {
				e.allowed = append(e.allowed, said.Approval)
			}
			return err
		case <-again.C:
		}
		waits, err := p.requests(api.ApprovalPending)
		for _, id := range waits {
			if err == nil {
				err = p.approves(id)
			}
		}
		if err != nil {
			// It is asked for anew.
			cancel()
			<-answered //nolint:errcheck // it was given up
			return err
		}
	}
}

// requests are the ids of requests about tool calls.
func (p *people) requests(state string) (ids []string, err error) {
	var list struct {
		Approvals []api.ApprovalSummary `json:"approvals"`
	}
	err = p.call(p.operator, "approval.list", map[string]any{"state": state}, &list)
	for _, a := range list.Approvals {
		if a.Kind == api.ApprovalOfPermission {
			ids = append(ids, a.ApprovalID)
		}
	}
	return ids, err
}

// approves approves a request as a person does.
func (p *people) approves(id string) error {
	var shown api.Approval
	err := p.call(p.operator, "approval.get", map[string]any{"approvalId": id}, &shown)
	if err != nil || shown.State != api.ApprovalPending {
		return err
	}
	if err = p.call(p.operator, "approval.resolve", map[string]any{"approvalId": id, "decision": api.DecideApprove, "digest": shown.Digest}, nil); err == nil {
		p.effects.acknowledged = append(p.effects.acknowledged, id)
	}
	return err
}

// approvals asks about each effect, has a person approve, and has the task go on.
func (p *people) approvals() error {
	e := p.effects
	for _, effect := range e.view.Effects {
		i := slices.IndexFunc(e.view.Approvals, func(a approvalView) bool { return a.Effect == effect.ID })
		switch {
		case i < 0:
			return p.as("lead", "task.request_approval", map[string]any{"task_id": e.id, "idempotency_key": effect.Key, "requested_action": effect.Key, "side_effect_kind": "notification"}, nil)
		case e.view.Approvals[i].Status == "pending":
			return p.approves(e.view.Approvals[i].ID)
		}
	}
	return p.as("lead", "task.transition", map[string]any{"task_id": e.id, "from_phase": "awaiting_approval", "to_phase": "ready_to_resume", "actor": "lead", "actor_role": "orchestrator", "reason": "next"}, nil)
}

// start starts each effect once, and says how the one went that is not the runner's.
func (p *people) start() (done bool, err error) {
	e := p.effects
	for _, effect := range e.view.Effects {
		switch {
		case effect.State == "planned":
			var run struct {
				Token string `json:"run_token"`
			}
			err := p.as("lead", "task.run_effect", map[string]any{"task_id": e.id, "effect_id": effect.ID, "request_digest": effect.Digest}, &run)
			if err == nil && run.Token != "" {
				e.told, e.given = run.Token, e.given+1
			}
			if failure := new(api.Error); errors.As(err, &failure) && failure.Code == api.Conflict {
				return false, nil // there is no runner yet
			}
			return false, err
		case effect.State == "started" && effect.Key == tell && e.told == "":
			e.left = true
		case effect.State == "started" && effect.Key == tell:
			err := p.as("lead", "task.finish_effect", map[string]any{"task_id": e.id, "effect_id": effect.ID, "run": 1, "run_token": e.told, "outcome": "done"}, nil)
			e.finished = e.finished || err == nil
			return false, err
		case effect.State == "started":
			return false, nil
		}
	}
	if e.left {
		return true, nil
	}
	return false, p.as("lead", "task.transition", map[string]any{"task_id": e.id, "from_phase": "ready_to_resume", "to_phase": "completed", "actor": "lead", "actor_role": "orchestrator", "reason": "next"}, nil)
}

// close reads the end of the task and of the requests to people.
func (p *people) close(o *outcome) {
	e := p.effects
	e.view = effectView{}
	err := p.as("lead", "task.get", map[string]any{"task_id": e.id}, &e.view)
	var ids []string
	if err == nil {
		ids, err = p.requests("all")
	}
	for _, a := range e.view.Approvals {
		ids = append(ids, a.ID)
	}
	e.states = make(map[string]string)
	for _, id := range ids {
		var shown api.Approval
		if err == nil {
			err = p.call(p.operator, "approval.get", map[string]any{"approvalId": id}, &shown)
		}
		e.states[id] = shown.State
	}
	if err != nil {
		o.wrong("%s: %v", effectTask, err)
	}
}

// judge holds what was answered and done against the record: of each request one approval,
// of each approval one start or one allowed call, and nothing without its record.
func (e *effects) judge(ctx context.Context, p place, o *outcome) {
	approved, allowed, starts := make(map[string]int), make(map[string]int), make(map[string]int)
	err := eachRecord(ctx, p, func(r *audit.Entry) {
		switch {
		case r.TaskID != e.id:
		case r.ActionType == audit.ActionApproval && r.Event == api.ApprovalApproved:
			approved[r.ApprovalID]++
		case r.Event == "task_permission" && r.PolicyResult == audit.ResultAllow:
			allowed[r.ApprovalID]++
		case r.Event == "not_taken":
			allowed[r.ApprovalID]--
		case r.Event == "effect.started":
			starts[r.ApprovalID]++
		}
	})
	if err != nil {
		o.wrong("%v", err)
		return
	}
	once := func(what string, counts map[string]int) {
		for id, n := range counts {
			if n > 1 || n > approved[id] {
				o.wrong("%s %s is on record %d times, and its approval %d times", what, id, n, approved[id])
			}
		}
	}
	once("the approval", approved)
	once("a tool call by", allowed)
	once("a start by", starts)
	for id, state := range e.states {
		if (state == api.ApprovalApproved) != (approved[id] == 1) {
			o.wrong("request %s is %s, and %d approvals of it are on record", id, state, approved[id])
		}
	}
	for _, id := range e.acknowledged {
		if approved[id] != 1 {
			o.wrong("the approval of %s was acknowledged, and is not on record", id)
		}
	}
	for _, id := range e.allowed {
		if allowed[id] != 1 {
			o.wrong("a tool call was allowed by %s WITHOUT A RECORD", id)
		}
	}
	// A request is made anew only where the word about the one before was taken, and not heard.
	if spent := len(allowed); len(e.states) > len(e.view.Approvals)+spent+1 {
		o.wrong("people were asked about one tool call %d times, of which %d were answered", len(e.states)-len(e.view.Approvals), spent)
	}
	if len(e.view.Approvals) != 2 {
		o.wrong("people were asked %d times about two effects", len(e.view.Approvals))
	}
	e.compare(p, o, starts)
}

// compare holds the effects against what was done in the world.
func (e *effects) compare(p place, o *outcome, starts map[string]int) {
	done := map[string]int{tell: e.given, line: p.lines()}
	for _, effect := range e.view.Effects {
		runs := len(effect.Runs)
		switch n := done[effect.Key]; {
		case n > runs:
			o.wrong("%q was started %d times, WITHOUT A RECORD of it: %d runs", effect.Key, n, runs)
		case n > 1 || runs > 1:
			o.wrong("%q was started %d times by one approval, in %d runs", effect.Key, n, runs)
		case effect.State == "done" && n != 1:
			o.wrong("%q is done, and was done %d times", effect.Key, n)
		}
		for _, r := range effect.Runs {
			if starts[r.Approval] != 1 {
				o.wrong("%q was started by approval %s, which is on record %d times", effect.Key, r.Approval, starts[r.Approval])
			}
		}
		if effect.Key == tell && e.finished && effect.State != "done" {
			o.wrong("it was acknowledged that %q is done, and it is %s", tell, effect.State)
		}
	}
	if e.view.Phase != "completed" && !e.left {
		o.wrong("%s ends in %s", effectTask, e.view.Phase)
	}
}
