package task

import (
	"slices"
	"time"
)

// compensate undoes the last run of an effect, once, by the approved compensation. The undoing of
// an earlier run counts for that run alone.
func (c RunEffect) compensate(d *draft, e *Effect) error {
	n, done, err := d.t.undoable(e)
	if err != nil {
		return err
	}
	if done > 0 {
		d.out.Run, d.out.Replayed = done, true
		return nil
	}
	a := d.t.Approval(e.run(n).ApprovalID)
	if a.Digest == c.Digest && a.Status != ApprovalApproved {
		r := refuse(GuardFailed, "approval %s was taken back: %s", a.ID, askUndo)
		r.Guards = []Guard{Approved}
		return r
	}
	if until := a.undoUntil(e.run(n)); a.Digest == c.Digest && !d.now.Before(until) {
		r := refuse(GuardFailed, "approval %s let run %d be undone until %s: %s", a.ID, n, until.Format(time.RFC3339), askUndo)
		r.Guards = []Guard{Approved}
		return r
	}
	if a.Digest != c.Digest {
		anew := d.t.newest(e.ID, n)
		if anew == nil || anew.Digest != c.Digest {
			return refuse(IdempotencyConflict, "what was approved is %s, not %s", a.Digest, c.Digest)
		}
		if !anew.live(d.now) {
			r := refuse(GuardFailed, "approval %s, to undo run %d, cannot be used: it has to be approved, not expired, and not used by a start", anew.ID, n)
			r.Guards = []Guard{Approved}
			return r
		}
		a = anew
	}
	return d.start(e, a, c.TokenHash, true)
}

// undoUntil is the end of the permission to undo a run that its approval gives: for as long after the
// start as the approval could be used to start it.
func (a *Approval) undoUntil(r *Run) time.Time {
	if !r.UndoUntil.IsZero() {
		return r.UndoUntil
	}
	return r.StartedAt.Add(a.ExpiresAt.Sub(a.AskedAt))
}

// Unspent reports whether an approval of a task still lets something be done, and can be taken back: its effect
// be started, or the run that it started be undone.
func (a *Approval) Unspent(t *Task) bool {
	if a.Status == ApprovalApproved && !a.Used {
		return !a.Void
	}
	r := a.undoes(t)
	return r != nil && r.State != EffectStarted
}

// undoes is the last run of an effect if the approval that it used lets it be undone, and nil if there
// is none or its undoing has begun.
func (a *Approval) undoes(t *Task) *Run {
	e := t.Effect(a.EffectID)
	if e == nil || e.Compensation == nil || a.Status != ApprovalApproved {
		return nil
	}
	n := e.lastBegun(false)
	if r := e.run(n); r != nil && r.ApprovalID == a.ID && e.lastBegun(true) < n {
		return r
	}
	return nil
}

// undoable is the run of an effect that can be undone, or the run that has undone it.
func (t *Task) undoable(e *Effect) (run, undone int, _ error) {
	if e.Compensation == nil {
		return 0, 0, refuse(Invalid, "effect %s has no compensation", e.ID)
	}
	done, n := e.lastBegun(true), e.lastBegun(false)
	if done > n {
		switch r := e.run(done); r.State {
		case EffectStarted:
			return 0, 0, refuse(EffectInFlight, "the compensation of effect %s is under way", e.ID)
		case EffectUncertain:
			return 0, 0, refuse(EffectUnknown, "nobody knows whether the compensation of effect %s was done: a person has to look and settle it", e.ID)
		default:
			return n, done, nil
		}
	}
	if last := e.lastRun(false); n == 0 && last > 0 {
		return 0, 0, refuse(PhaseMismatch, "the command of run %d of effect %s did not begin: there is nothing to undo", last, e.ID)
	}
	// An effect that failed and was cancelled since, with its task, may have been done in part.
	if n == 0 || e.run(n).State != EffectDone && e.run(n).State != EffectFailed {
		return 0, 0, refuse(PhaseMismatch, "effect %s is %s: there is nothing to undo", e.ID, e.State)
	}
	if a := t.Approval(e.run(n).ApprovalID); e.Digest != a.Digest {
		return 0, 0, refuse(IdempotencyConflict, "what was approved is %s, and the effect was asked about anew, or planned as something else", a.Digest)
	}
	return n, 0, nil
}

// Undoing is the run of an effect that can be undone, nil if there is none.
func (t *Task) Undoing(e *Effect) *Run {
	if n, undone, err := t.undoable(e); err == nil && undone == 0 {
		return e.run(n)
	}
	return nil
}

// undo asks people once more whether an effect may be undone by the approved compensation: the
// approval of its run was given by too few people, or by people who may not sign any more.
func (c RequestApproval) undo(d *draft) error {
	t := d.t
	e := t.EffectOf(c.Planned.Key)
	if e == nil {
		return refuse(Absent, "the task has no such effect")
	}
	n, undone, err := t.undoable(e)
	switch {
	case err != nil:
		return err
	case undone > 0:
		return refuse(PhaseMismatch, "effect %s was undone by run %d", e.ID, undone)
	}
	d.out.Effect = e.ID
	if newest := t.newest(e.ID, n); newest != nil && !newest.renewable(d.now) {
		d.out.Approval, d.out.Replayed = newest.ID, true
		return nil
	}
	if err := d.ask(Question{Action: AskEffect, Effect: e, Compensation: true}); err != nil {
		return err
	}
	return d.request(e, Approval{ID: c.ID, Digest: c.Digest, Bound: c.Bound, ExpiresAt: c.ExpiresAt, Undo: n}, c.ClaimedBy)
}

// lastBegun is lastRun without the runs whose command did not begin.
func (e *Effect) lastBegun(compensation bool) int {
	for i := range slices.Backward(e.Runs) {
		if r := &e.Runs[i]; r.Compensation == compensation && !r.NotBegun {
			return r.Number
		}
	}
	return 0
}
