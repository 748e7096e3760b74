// Package lobster has Lobster run a workflow for an effect of a task. It starts the
// workflow. When the workflow pauses, it waits for a person and for the task's phase, and
// resumes the workflow according to the daemon's answer.
//
// Lobster is not a security boundary: it reads its files again when it resumes, and its
// tokens are unsigned. The package always asks the daemon whether the effect was approved
// and done. It runs a failed workflow again from the start, with the same key, and uses
// each token only once.
package lobster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// Daemon is a connection under a grant for the task.
type Daemon interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Options are the inputs of [Run].
type Options struct {
	Daemon Daemon
	// Lobster runs the program with arguments, to its end, and returns its standard output.
	Lobster func(ctx context.Context, env []string, args ...string) ([]byte, error)
	// File is the absolute path of the workflow, and Env the environment of its steps.
	File        string
	Env         []string
	TaskID, Key string
	// Every is the interval between checks.
	Every time.Duration
	// Say reports waits and failures.
	Say func(format string, args ...any)
	Now func() time.Time
}

// Result is the daemon's final state of the effect.
type Result struct {
	TaskID     string `json:"task_id"`
	Key        string `json:"key"`
	State      string `json:"state"`
	EffectID   string `json:"effect_id,omitzero"`
	Run        int    `json:"run,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`
	// Why says why the effect was not done.
	Why string `json:"why,omitzero"`
}

// Done reports whether the effect was done.
func (r *Result) Done() bool { return r.State == task.EffectDone && r.Why == "" }

// errOver means that the daemon cannot be asked any more.
var errOver = errors.New("the grant has ended, as its task has or by a person's hand")

// maxTries bounds the runs of a workflow that fails without waiting for anything.
const maxTries = 4

// run carries one workflow to its end.
type run struct {
	o    *Options
	said string
	e    *task.Effect
	v    *taskapi.View
	// spent are the approvals that open no further gate: those decided before the workflow
	// began, and those that have opened a gate.
	spent map[string]bool
}

// Run runs a workflow until its effect ends. An error means that the workflow cannot be
// run; the outcome is in the result.
func Run(ctx context.Context, o *Options) (Result, error) {
	r := &run{o: o}
	why, err := r.steps(ctx)
	if errors.Is(err, errOver) {
		why, err = err.Error(), nil
	}
	result := Result{TaskID: o.TaskID, Key: o.Key, State: "none", Why: why}
	if r.e != nil {
		result.State, result.EffectID, result.Run = r.e.State, r.e.ID, len(r.e.Runs)
		if a := r.newest(); a != nil {
			result.ApprovalID = a.ID
		}
	}
	return result, err
}

// steps runs the workflow until the daemon says that the effect is done, or until there is
// nothing to wait for.
func (r *run) steps(ctx context.Context) (why string, err error) {
	for failed := 0; ; {
		e, stopped, err := r.once(ctx)
		if err != nil || stopped != "" {
			return stopped, err
		}
		if err := r.look(ctx); err != nil {
			return "", err
		}
		for r.e != nil && r.e.State == task.EffectStarted {
			if err := r.waits(ctx, "the end of %s", r.o.Key); err != nil {
				return "", err
			}
			if err := r.look(ctx); err != nil {
				return "", err
			}
			failed = 0
		}
		switch state := r.state(); {
		case state == task.EffectUncertain:
			return fmt.Sprintf("nobody knows how it ended: ocipd task effect settle %s --task %s", r.e.ID, r.o.TaskID), nil
		case state == task.EffectFailed && !r.live():
			return "it failed: ask again once the task is back in awaiting_approval", nil
		case e.ok() && state == task.EffectDone:
			return "", nil
		case e.ok():
			return r.notRun(), nil
		case strings.Contains(e.text(), string(task.RunnerAbsent)):
			if err := r.waits(ctx, "a runner: ocipd runner"); err != nil {
				return "", err
			}
			continue
		}
		if failed++; failed >= maxTries {
			return "the workflow failed: " + e.text(), nil
		}
		r.o.Say("the workflow is run again, as it ended with: %s", e.text())
		if err := r.sleep(ctx); err != nil {
			return "", err
		}
	}
}

// once runs the workflow from start to end, through its gate. If the gate stays closed,
// stopped says why.
func (r *run) once(ctx context.Context) (e *envelope, stopped string, err error) {
	if err := r.look(ctx); err != nil {
		return nil, "", err
	}
	r.spent = make(map[string]bool)
	for i := range r.v.Approvals {
		r.spent[r.v.Approvals[i].ID] = r.v.Approvals[i].Status != task.ApprovalPending
	}
	if e, err = r.lobster(ctx, nil, "run", "--mode", "tool", "--file", r.o.File, "--args-json", argsOf(r.o.TaskID, r.o.Key)); err != nil {
		return nil, "", err
	}
	for e.paused() {
		id, token := e.approval(), e.RequiresApproval.ResumeToken
		answer, why, err := r.decision(ctx, id)
		if err != nil || answer == "" {
			return nil, why, err
		}
		var env []string
		if a := r.approval(id); a != nil && a.ResolvedBy != "" {
			env = append(env, "LOBSTER_APPROVAL_APPROVED_BY="+a.ResolvedBy)
		}
		if e, err = r.lobster(ctx, env, "resume", "--token", token, "--approve", answer); err != nil {
			return nil, "", err
		}
		if answer == no {
			return nil, why, nil
		}
	}
	if e.OK && e.Status == statusInput {
		return nil, "the workflow asks for input, which only a person can give: lobster resume", nil
	}
	return e, "", nil
}

// The answers to a gate.
const (
	yes = "yes"
	no  = "no"
)

// decision waits until the approval that a gate names is decided and the task is in the
// phase that runs effects. It gives no answer to a gate that the daemon does not know.
func (r *run) decision(ctx context.Context, id string) (answer, why string, err error) {
	for {
		if err := r.look(ctx); errors.Is(err, errOver) {
			return no, err.Error(), nil
		} else if err != nil {
			return "", "", err
		}
		a := r.approval(id)
		switch {
		case r.spent[id]:
			return "", "the workflow has a gate more than it has approvals, which only a person can answer: lobster resume", nil
		case a == nil:
			return "", "the workflow asks for something else than the effect " + r.o.Key + ", which only a person can answer: lobster resume", nil
		case a.Used:
			// Another run has begun the effect; the workflow then gets that run's result.
			r.spent[id] = true
			return yes, "", nil
		case a.Void:
			return no, "what it was asked for is gone: the task is in " + string(r.v.Phase), nil
		case a.Status == task.ApprovalPending && r.o.Now().Before(a.ExpiresAt):
			err = r.waits(ctx, "a person's word about %s: ocipd approvals show %s", r.o.Key, id)
		case a.Status != task.ApprovalApproved || !r.o.Now().Before(a.ExpiresAt):
			status := a.Status
			if status == task.ApprovalPending || status == task.ApprovalApproved {
				status = task.ApprovalExpired
			}
			return no, strings.TrimSuffix("the approval is "+status+": "+a.Note, ": "), nil
		case r.v.Phase == task.ReadyToResume:
			r.spent[id] = true
			return yes, "", nil
		default:
			err = r.waits(ctx, "the orchestrator: ocipd task transition %s %s", r.o.TaskID, task.ReadyToResume)
		}
		if err != nil {
			return "", "", err
		}
	}
}

// notRun says why a successful workflow has not run its effect.
func (r *run) notRun() string {
	a := r.newest()
	switch {
	case a == nil:
		return "the workflow ended, and did not ask for approval"
	case a.Status != task.ApprovalApproved:
		return strings.TrimSuffix("the approval is "+a.Status+": "+a.Note, ": ")
	default:
		return "the workflow ended, and did not run it"
	}
}

// lobster runs the program and parses its output. If the output is not an envelope, it
// returns one that says so instead of an error, because a killed Lobster writes none.
func (r *run) lobster(ctx context.Context, env []string, args ...string) (*envelope, error) {
	out, err := r.o.Lobster(ctx, append(slices.Clip(r.o.Env), env...), args...)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e, readErr := parse(out)
	if readErr != nil {
		e = &envelope{Error: &fault{Message: cmp.Or(err, readErr).Error()}}
	}
	return e, nil
}

// look reads the task. If the daemon is away, it waits.
func (r *run) look(ctx context.Context) error {
	for {
		v, err := taskclient.View(ctx, r.o.Daemon.Call, r.o.TaskID)
		if err == nil {
			r.v, r.e = v, nil
			if i := slices.IndexFunc(v.Effects, func(e task.Effect) bool { return e.Key == r.o.Key }); i >= 0 {
				r.e = &v.Effects[i]
			}
			return nil
		}
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.Unauthorized && r.v != nil {
			return errOver
		}
		if !taskclient.Away(err) {
			return err
		}
		if err := r.waits(ctx, "the daemon, which is away"); err != nil {
			return err
		}
	}
}

func (r *run) state() string {
	if r.e == nil {
		return ""
	}
	return r.e.State
}

// approval returns an approval of the effect.
func (r *run) approval(id string) *task.Approval {
	i := slices.IndexFunc(r.v.Approvals, func(a task.Approval) bool { return a.ID == id })
	if i < 0 || r.e == nil || r.v.Approvals[i].EffectID != r.e.ID {
		return nil
	}
	return &r.v.Approvals[i]
}

// newest returns the newest approval of the effect.
func (r *run) newest() *task.Approval {
	if r.e == nil {
		return nil
	}
	for i := range slices.Backward(r.v.Approvals) {
		if a := &r.v.Approvals[i]; a.EffectID == r.e.ID && a.Undo == 0 {
			return a
		}
	}
	return nil
}

// live reports whether the effect may still run under its newest approval.
func (r *run) live() bool {
	a := r.newest()
	return a != nil && a.Status == task.ApprovalApproved && !a.Used && !a.Void && r.o.Now().Before(a.ExpiresAt)
}

// say reports a wait, unless it was reported last.
func (r *run) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != r.said {
		r.said = text
		r.o.Say("waits for %s", text)
	}
}

// waits reports a wait, and waits a while.
func (r *run) waits(ctx context.Context, format string, args ...any) error {
	r.say(format, args...)
	return r.sleep(ctx)
}

func (r *run) sleep(ctx context.Context) error {
	timer := time.NewTimer(r.o.Every)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
