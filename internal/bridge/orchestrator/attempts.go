package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// attempt begins an attempt and runs its agent.
func (l *loop) attempt(ctx context.Context) (next, error) {
	actor := l.o.Actors.Executor
	if l.v.Escalate && l.o.Actors.Escalation != "" {
		actor = l.o.Actors.Escalation
	}
	if actor == "" {
		return stop("no executor is configured (tasks.run)")
	}
	var started taskapi.AttemptStarted
	err := l.o.Daemon.Call(ctx, "task.start_attempt", &taskapi.StartAttemptParams{
		Write: l.write(), Said: taskapi.Said{Actor: l.o.Me, ActorRole: string(task.Orchestrator)}, Phase: task.Executing, Runtime: "acp", ExecutorKind: "external_coder", WorkerRef: actor, Expected: &l.v.Revision,
	}, &started)
	switch taskclient.Code(err) {
	case task.RetriesExhausted:
		if l.v.RetriesLeft == 0 {
			return l.openCircuit(ctx, "as many attempts failed in a row as tasks.retry allows")
		}
		return l.openCircuit(ctx, "changes were asked for once more than tasks.rework allows")
	case task.NotBefore:
		return l.waits("the time of the next attempt")
	case task.GuardFailed:
		if len(l.v.OpenDependencies) > 0 {
			return l.waits("%d other tasks", len(l.v.OpenDependencies))
		}
	default:
	}
	if err != nil {
		return next{}, err
	}
	l.tell(Event{What: NewAttempt, Actor: actor, Text: fmt.Sprintf("attempt %d", started.Ordinal)})
	if l.v.Phase == task.ExecutionReady {
		l.v.Revision = started.Revision
		if _, err := l.move(ctx, task.Executing, "attempt %d has begun", started.Ordinal); err != nil {
			return next{}, err
		}
	}
	token, err := l.grant(ctx, actor, started.AttemptID)
	if err == nil {
		l.work(ctx, Work{Actor: actor, TaskID: l.id, AttemptID: started.AttemptID, Token: token}, &started)
	} else {
		l.why = err.Error()
	}
	return next{}, l.ended(context.WithoutCancel(ctx), &started)
}

// work runs an executor's agent. If the loop is interrupted, it aborts the attempt itself before it
// ends the bridge: an attempt that the orchestrator aborts counts as no failure.
func (l *loop) work(ctx context.Context, w Work, started *taskapi.AttemptStarted) {
	held, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		defer end()
		last, cancel := context.WithTimeout(held, l.o.Every)
		defer cancel()
		_ = l.o.Daemon.Call(last, "task.finish_attempt", &taskapi.FinishAttemptParams{ // if it fails, the bridge reports the abort
			Write: l.write(), AttemptID: started.AttemptID, Outcome: task.AttemptAborted, ErrorSummary: "the loop was interrupted", Fence: &started.Fence,
		}, nil)
	})
	l.bridge(held, w)
	if !stop() {
		<-ended
	}
}

// ended ends an attempt whose bridge ended without reporting an outcome.
func (l *loop) ended(ctx context.Context, started *taskapi.AttemptStarted) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := l.look(ctx); err != nil {
		return err
	}
	if a := l.running(); a == nil || a.ID != started.AttemptID {
		return nil
	}
	return l.o.Daemon.Call(ctx, "task.finish_attempt", &taskapi.FinishAttemptParams{
		Write: l.write(), AttemptID: started.AttemptID, Outcome: task.AttemptFailed, FailureCode: "environment", ErrorSummary: text.Clip(cmp.Or(l.why, "the bridge has ended without a word"), task.MaxText), Fence: &started.Fence,
	}, nil)
}

// executing acts on the state of the last attempt.
func (l *loop) executing(ctx context.Context) (next, error) {
	a := l.last()
	switch {
	case a == nil:
		return stop("it has no attempt")
	case a.Status == task.AttemptRunning:
		return l.waits("attempt %d of %s, which runs elsewhere", a.Ordinal, a.Actor)
	case a.Status == task.AttemptSucceeded:
		return l.move(ctx, task.SpecGate, "attempt %d is delivered", a.Ordinal)
	case a.Status == task.AttemptRetrying && l.o.Now().Before(a.RetryAt):
		return l.waits("the next attempt, which may start at %s, since attempt %d failed (%s)", a.RetryAt.Local().Format(time.TimeOnly), a.Ordinal, a.Failure)
	case a.Status == task.AttemptRetrying:
		return l.attempt(ctx)
	case a.Status == task.AttemptFailed && l.v.RetriesLeft == 0:
		return l.openCircuit(ctx, fmt.Sprintf("attempt %d was the last one, and failed (%s)", a.Ordinal, a.Failure))
	}
	return stop("attempt %d is %s (%s): %s. To try again: ocipd task transition %s execution_ready", a.Ordinal, a.Status, cmp.Or(a.Failure, "by hand"), a.Error, l.id)
}
