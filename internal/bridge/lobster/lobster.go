// Package lobster has Lobster run a workflow for an effect of a task: it starts it, waits
// for a person and for the task's phase where the workflow pauses, and resumes it by what
// the daemon says.
//
// Lobster is no boundary: it reads its files again when it resumes, and its tokens are
// unsigned. Whatever it says, the daemon is asked whether the effect was approved and
// whether it was done. A workflow that ended in any other way is run again from its
// beginning, with the same key; a token is used once and never tried again.
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

// Daemon is a connection that acts by a grant for the task.
type Daemon interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Options is what a run is given.
type Options struct {
	Daemon Daemon
	// Lobster runs the program with arguments, to its end, and returns what it wrote on
	// standard output.
	Lobster func(ctx context.Context, env []string, args ...string) ([]byte, error)
	// File is the workflow, by its absolute path, and Env what its steps get.
	File        string
	Env         []string
	TaskID, Key string
	// Every is how often is looked at what is waited for.
	Every time.Duration
	// Say is told what is waited for, and what went wrong on the way.
	Say func(format string, args ...any)
	Now func() time.Time
}

// Result is what the daemon says of the effect at the end.
type Result struct {
	TaskID     string `json:"task_id"`
	Key        string `json:"key"`
	State      string `json:"state"`
	EffectID   string `json:"effect_id,omitzero"`
	Run        int    `json:"run,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`
	// Why is why it was not done.
	Why string `json:"why,omitzero"`
}

// Done reports whether the effect was done.
func (r *Result) Done() bool { return r.State == task.EffectDone && r.Why == "" }

// errOver says that there is nothing more to be asked of the daemon.
var errOver = errors.New("the grant has ended, as its task has or by a person's hand")

// maxTries is how often a workflow is run that fails without anything being waited for.
const maxTries = 4

// run is one workflow's way to its end.
type run struct {
	o    *Options
	said string
	e    *task.Effect
	v    *taskapi.View
	// spent are the approvals that open no gate any more: those that were decided before the
	// workflow began, which asks about none of them, and those that have opened one.
	spent map[string]bool
}

// Run runs a workflow up to the end of its effect. An error says that it cannot be run; what
// came of it is in the result.
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

// once runs the workflow from its beginning to its end, through its gate. It says why there
// is none further, where a gate is not to be passed.
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

// decision waits until the approval that a gate names is decided and the task is where its
// effects are run. There is no answer to a gate that the daemon knows nothing of.
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
			// Another run has begun it, and this one gets what came of it.
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

// notRun is why a workflow that ended well has not run its effect.
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

// lobster runs the program. What it says is read as one envelope; what is none is as one
// that says so. It is no error of the run, as a Lobster that was killed leaves none.
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

// look reads the task. A daemon that is away is waited for.
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

// approval is an approval of the effect.
func (r *run) approval(id string) *task.Approval {
	i := slices.IndexFunc(r.v.Approvals, func(a task.Approval) bool { return a.ID == id })
	if i < 0 || r.e == nil || r.v.Approvals[i].EffectID != r.e.ID {
		return nil
	}
	return &r.v.Approvals[i]
}

// newest is the newest approval of the effect.
func (r *run) newest() *task.Approval {
	if r.e == nil {
		return nil
	}
	for i := range slices.Backward(r.v.Approvals) {
		if a := &r.v.Approvals[i]; a.EffectID == r.e.ID {
			return a
		}
	}
	return nil
}

// live reports whether the effect may still be run on its approval.
func (r *run) live() bool {
	a := r.newest()
	return a != nil && a.Status == task.ApprovalApproved && !a.Used && !a.Void && r.o.Now().Before(a.ExpiresAt)
}

// say tells what is waited for, once.
func (r *run) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != r.said {
		r.said = text
		r.o.Say("waits for %s", text)
	}
}

// waits says what is waited for, and waits a while.
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
