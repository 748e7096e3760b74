package taskservice

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// RunEffect answers task.run_effect: it starts an effect, once, and waits for its end
// for as long as the caller asks.
func (s *Session) RunEffect(ctx context.Context, p *taskapi.RunEffectParams) (taskapi.EffectRun, error) {
	t := s.t
	until := t.o.Now().Add(time.Duration(p.WaitS) * time.Second)
	for {
		moved, leave := t.moved.watch(p.TaskID)
		result, wait, err := s.runOnce(ctx, p)
		if !wait || !t.o.Now().Before(until) {
			leave()
			return result, err
		}
		timer := time.NewTimer(until.Sub(t.o.Now()))
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			leave()
			return result, ctx.Err()
		}
		timer.Stop()
		leave()
	}
}

// runOnce tries to start, or says how it stands. Wait is set if time may help.
func (s *Session) runOnce(ctx context.Context, p *taskapi.RunEffectParams) (result taskapi.EffectRun, wait bool, err error) {
	t := s.t
	who, err := again(ctx, s, p.TaskID)
	if err != nil {
		return result, false, err
	}
	token := newToken("")
	c := task.RunEffect{EffectID: p.EffectID, Key: p.IdempotencyKey, Digest: p.RequestDigest, Compensation: p.Compensation, TokenHash: hex.EncodeToString(digestOf(token))}
	var order *RunOrder
	build := func(at *task.Task) (task.Command, error) {
		return c, t.refused(at, who, &task.World{}, startable(t, at, &c))
	}
	out, receipt, err := t.act(ctx, p.TaskID, who, build, func(_ *store.Change, out *task.Outcome) (err error) {
		if out.Replayed {
			return nil
		}
		// The task may be one in memory: its rows must be as the log says too.
		if err := t.rows.Agrees(ctx, p.TaskID); err != nil {
			return err
		}
		run := out.Task.Effect(out.Effect).Run(out.Run)
		a := out.Task.Approval(run.ApprovalID)
		if stands, err := t.o.Approvals().Stands(ctx, a.ID); err != nil || !stands {
			return t.refused(out.Task, who, &task.World{}, cmp.Or(err, a.Unsigned(run.Compensation)))
		}
		order, err = approvedOrder(out.Task, out.Effect, out.Run)
		return err
	})
	if err != nil {
		return result, p.WaitS > 0 && mayCome(err, who.Role, p.Compensation), err
	}
	e := out.Task.Effect(out.Effect)
	r := e.Run(out.Run)
	result = taskapi.EffectRun{Changed: changed(out, receipt), EffectID: e.ID, State: r.State, Run: r.Number, Receipt: r.Receipt}
	if out.Replayed {
		return result, false, nil
	}
	if r.TokenHash != "" {
		result.RunToken = token
		return result, false, nil
	}
	t.o.Runner.Start(*order)
	if p.WaitS == 0 {
		return result, false, nil
	}
	// The end comes as another answer: the effect is done then, or says why not.
	return s.await(ctx, p, e.ID, r.Number, result)
}

// await waits for the end of a run that this call has started.
func (s *Session) await(ctx context.Context, p *taskapi.RunEffectParams, effect string, run int, started taskapi.EffectRun) (taskapi.EffectRun, bool, error) {
	t := s.t
	timer := time.NewTimer(time.Duration(p.WaitS) * time.Second)
	defer timer.Stop()
	for {
		moved, leave := t.moved.watch(p.TaskID)
		who, err := again(ctx, s, p.TaskID)
		if err != nil {
			leave()
			return started, false, err
		}
		out, _, err := t.act(ctx, p.TaskID, who, always(nil), nil)
		if err != nil {
			leave()
			return started, false, err
		}
		if r := out.Task.Effect(effect).Run(run); r.State != task.EffectStarted {
			leave()
			started.State, started.Receipt, started.Phase, started.Revision = r.State, r.Receipt, out.Task.Phase, out.Task.Revision
			return started, false, nil
		}
		select {
		case <-moved:
		case <-timer.C:
			leave()
			return started, false, nil
		case <-ctx.Done():
			leave()
			return started, false, ctx.Err()
		}
		leave()
	}
}

// mayCome reports whether what is in the way may go away while the caller waits: by the end of a run,
// by a person's decision about a compensation, or, for those that move no task, by the
// orchestrator's move. An orchestrator is answered at once, since it would wait for itself.
func mayCome(err error, as task.Role, compensation bool) bool {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return false
	}
	d, ok := e.Details.(taskapi.Details)
	if !ok {
		return false
	}
	switch d.Task.Code {
	case task.EffectInFlight:
		return true
	case task.GuardFailed:
		return compensation
	case task.PhaseMismatch:
		return as == task.Lobster && (d.Task.Phase == task.AwaitingApproval || d.Task.Phase == task.QualityGate)
	default:
		return false
	}
}

// approvedOrder returns the runner's order for a run before the run is on record, nil if the run is
// not the runner's. The named files of the approval must be those of its digest.
func approvedOrder(at *task.Task, effect string, run int) (*RunOrder, error) {
	e := at.Effect(effect)
	r := e.Run(run)
	if r.TokenHash != "" {
		return nil, nil
	}
	order, bound, err := orderOf(at, e, r)
	if err != nil {
		return nil, err
	}
	a := at.Approval(r.ApprovalID)
	digest, err := task.RequestDigest(at.ID, &e.Planned, &bound)
	if err == nil && digest != a.Digest {
		err = api.Errorf(api.Conflict, "approval %s is of %s, and what is on record for it is %s: ask for it anew", a.ID, a.Digest, digest)
	}
	return &order, err
}

// orderOf returns the runner's order for a run, and the bound files of the run's approval.
func orderOf(at *task.Task, e *task.Effect, r *task.Run) (o RunOrder, pair task.BoundPair, err error) {
	if bound := at.Approval(r.ApprovalID).Bound; len(bound) > 0 {
		if err := json.Unmarshal(bound, &pair); err != nil {
			return o, pair, err
		}
	}
	o = RunOrder{TaskID: at.ID, EffectID: e.ID, Run: r.Number, Workspace: at.Workspace, Compensation: r.Compensation, StartedAt: r.StartedAt, KillAsked: r.KillAsked, Begun: r.Begun}
	action, bound := e.Command, pair.Command
	if r.Compensation {
		action, bound = e.Compensation, pair.Compensation
	}
	o.Action = *action
	if bound != nil {
		o.Bound = *bound
	}
	return o, pair, nil
}

// Orders are the runs of commands that are on record as started: the runs that an attaching runner
// has to account for.
func (t *Tasks) Orders(ctx context.Context) (orders []RunOrder, err error) {
	ids, err := t.rows.Busy(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		out, _, err := t.act(ctx, id, daemonActor(), always(nil), nil)
		if err != nil {
			return nil, err
		}
		for i := range out.Task.Effects {
			e := &out.Task.Effects[i]
			for j := range e.Runs {
				r := &e.Runs[j]
				if r.State != task.EffectStarted || e.EffectType == task.TypeExternal && !r.Compensation {
					continue
				}
				order, _, err := orderOf(out.Task, e, r)
				if err != nil {
					return nil, err
				}
				orders = append(orders, order)
			}
		}
	}
	return orders, nil
}

// Restored takes back what people have approved and no effect of this state has used, since it
// may have been done after the state was copied.
func (t *Tasks) Restored(ctx context.Context) error {
	ids, err := t.rows.Approved(ctx)
	for _, id := range ids {
		if err == nil {
			_, _, err = t.act(ctx, id, daemonActor(), always(task.Restored{}), nil)
		}
	}
	return err
}

// Waiting refuses to let the command of a run begin that is not on record as started, or could not
// be started now, or that another process may have begun. Such a run ends. The process is on record
// before this returns.
func (t *Tasks) Waiting(ctx context.Context, taskID, effect string, run int, process string) error {
	begin := task.BeginRun{EffectID: effect, Run: run, Process: process}
	out, _, err := t.act(ctx, taskID, daemonActor(), func(at *task.Task) (_ task.Command, err error) {
		if e := at.Effect(effect); e != nil && e.Run(run) != nil {
			begin.Signed, err = t.o.Approvals().Stands(ctx, e.Run(run).ApprovalID)
		}
		return begin, err
	}, nil)
	if err != nil {
		return err
	}
	if r := out.Task.Effect(effect).Run(run); r.State != task.EffectStarted {
		return api.Errorf(api.Conflict, "run %d of effect %s is over: its command may not begin any more", run, effect)
	}
	return nil
}

// Spawned is the runner's word that a run has a process, or that the process that waited for its
// command, which has the name withdrawn, ended without it.
func (t *Tasks) Spawned(ctx context.Context, taskID, effect string, run, pid int, withdrawn string) error {
	_, _, err := t.act(ctx, taskID, daemonActor(), always(task.Spawned{EffectID: effect, Run: run, PID: pid, Withdrawn: withdrawn}), nil)
	return err
}

// Finished is the runner's word of how a run ended: done, failed or outcome_unknown. It counts for a
// run that the daemon has let begin; the outcome of any other is unknown then.
func (t *Tasks) Finished(ctx context.Context, taskID, effect string, run int, state, evidence string, receipt jsontext.Value) error {
	out, _, err := t.act(ctx, taskID, daemonActor(), always(task.FinishRun{EffectID: effect, Run: run, State: state, Evidence: evidence, Receipt: receipt}), nil)
	if err != nil {
		return err
	}
	if r := out.Task.Effect(effect).Run(run); r.State != state {
		return api.Errorf(api.Conflict, "run %d of effect %s is not %s: %s", run, effect, state, r.Evidence)
	}
	return nil
}

// KillEffect answers task.kill_effect: it has the runner end a command. Without a runner, the next
// one does.
func (s *Session) KillEffect(ctx context.Context, p *taskapi.KillEffectParams) (taskapi.EffectState, error) {
	result, err := write(ctx, s, "task.kill_effect", p.TaskID, p, always(task.KillRun{EffectID: p.EffectID, Run: p.Run, Reason: p.Reason}), effectState)
	if err != nil {
		return result, err
	}
	run := p.Run
	if run == 0 {
		out, _, err := s.t.act(ctx, p.TaskID, daemonActor(), always(nil), nil)
		if err != nil {
			return result, err
		}
		run = out.Task.Effect(p.EffectID).Started()
	}
	s.t.o.Runner.Kill(RunOrder{TaskID: p.TaskID, EffectID: p.EffectID, Run: run})
	return result, nil
}
