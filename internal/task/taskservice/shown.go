package taskservice

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// hideProcesses removes the process ids of principals from a view for an actor. It copies each list
// before it changes an element, because the stored task has the same list.
func hideProcesses(v *taskapi.View) {
	v.Spec.By.Processes = nil
	v.Specs, v.Attempts, v.Artifacts = slices.Clone(v.Specs), slices.Clone(v.Attempts), slices.Clone(v.Artifacts)
	for i := range v.Specs {
		v.Specs[i].By.Processes = nil
	}
	for i := range v.Attempts {
		by := slices.Clone(v.Attempts[i].By)
		for j := range by {
			by[j].Processes = nil
		}
		v.Attempts[i].By = by
	}
	for i := range v.Artifacts {
		v.Artifacts[i].By.Processes = nil
	}
}

// shown are effects without what proves who was told to do one, and without the older receipts
// of one that was run so often that they would leave no room.
func shown(effects []task.Effect) []task.Effect {
	effects = slices.Clone(effects)
	for i := range effects {
		e := &effects[i]
		e.Runs = append([]task.Run{}, e.Runs...)
		size := 0
		for j := len(e.Runs) - 1; j >= 0; j-- {
			r := &e.Runs[j]
			r.TokenHash = ""
			if size += len(r.Receipt) + len(r.Evidence); size > maxReceipts && j < len(e.Runs)-1 {
				r.Receipt, r.Evidence = nil, ""
			}
		}
	}
	return effects
}

// progress enters how the running attempt of a task in a list goes. Heartbeats renew the lease in memory
// alone, so that the lease says when the last one came.
func progress(ctx context.Context, t *Tasks, l *taskapi.Line) error {
	defer t.locks.Lock(l.ID)()
	at, err := t.loadLocked(ctx, l.ID)
	if err != nil {
		return err
	}
	a := at.Running()
	if a == nil {
		return nil
	}
	until, lease := a.LeaseExpires, t.config.Load().Rules.Lease
	if renewed := t.leases.of(at.ID); renewed.After(until) {
		until = renewed
	}
	l.Progress = &taskapi.Progress{Attempt: a.Ordinal, Actor: a.Actor, StartedAt: a.StartedAt, Checkpoints: a.Checkpoints, LeaseExpiresAt: until, HeardAt: until.Add(-lease)}
	if a.Last != nil && a.Last.At.After(l.Progress.HeardAt) {
		l.Progress.HeardAt = a.Last.At
	}
	return nil
}
