package task

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// KillRun is a person's word that a command is to be ended. A command that has begun ends as the
// runner reports; any other never begins.
type KillRun struct {
	EffectID, Reason string
	Run              int
}

func (c KillRun) decide(d *draft) error {
	e := d.t.Effect(c.EffectID)
	if e == nil {
		return refuse(Absent, "the task has no effect %s", c.EffectID)
	}
	number := c.Run
	if number == 0 {
		number = e.Started()
	}
	r := e.run(number)
	switch {
	case r == nil || r.State != EffectStarted:
		return refuse(PhaseMismatch, "no command of effect %s is running", e.ID)
	case e.EffectType != TypeCommand && !r.Compensation:
		return refuse(Invalid, "effect %s is no command: somebody else does it", e.ID)
	}
	d.event("effect.kill_asked").made("effect_id", e.ID).made("run", number).Reason = c.Reason
	d.out.Effect, d.out.Run, d.silent = e.ID, number, true
	d.effect(e.ID).run(number).KillAsked = true
	return nil
}

// BeginRun is the runner's word that a process waits for the command of a run. The run may have
// waited for a runner since its start, so it ends without its command if a person wants it ended,
// if its actor is not configured as it was, or if the policy, the signers or the number of people do
// not allow it any more. A pause is for messages and new starts, and does not end it.
type BeginRun struct {
	EffectID string
	Run      int
	// Signed says that enough of the people who approved the run may still sign.
	Signed bool
}

func (c BeginRun) decide(d *draft) error {
	e, r, err := d.runOf(c.EffectID, c.Run)
	if err != nil {
		return err
	}
	if r.State != EffectStarted {
		return refuse(PhaseMismatch, "run %d of effect %s is %s", c.Run, c.EffectID, r.State)
	}
	refused := c.mayBegin(d, e, r)
	d.out.Policy = nil
	if refused == nil {
		d.out.Touched, d.out.Replayed = nil, true
		return nil
	}
	why := "its command did not begin: " + refused.Error()
	receipt, err := json.Marshal(map[string]any{"started_at": r.StartedAt, "error": why}, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("cannot say why run %d of effect %s ends: %w", c.Run, c.EffectID, err)
	}
	event := d.ends(e, r, "effect.finished", EffectFailed).made("not_begun", true)
	r.NotBegun = true
	event.Reason, event.Digests["receipt"] = why, jsontext.Value(receipt)
	if r.Receipt = receipt; !r.Compensation {
		e.Receipt = receipt
	}
	return nil
}

// mayBegin weighs again what let a run be started, for the actor who started it.
func (c BeginRun) mayBegin(d *draft, e *Effect, r *Run) error {
	a := d.t.Approval(r.ApprovalID)
	as, _, known := d.w.Known(r.Actor)
	role := cmp.Or(r.Role, as, Operator) // a run of an earlier version has no role
	switch {
	case r.KillAsked:
		return refuse(PhaseMismatch, "a person wants it ended")
	case role != Operator && (!known || as != role):
		return refuse(NotPermitted, "its actor %s is not configured as it was", r.Actor)
	case !c.Signed:
		return a.Unsigned(r.Compensation)
	case d.w.Ask == nil:
		return nil
	}
	q := Question{Action: AskEffect, Effect: e, Compensation: r.Compensation, Actor: r.Actor, ActorAs: role}
	answer := d.w.Ask(q)
	if d.out.Policy = &answer; !answer.Allow {
		return d.policyRefuses(&q, answer.Reason)
	}
	if r := d.tooFew(&q, a); r != nil {
		return r
	}
	return nil
}
