package task

import (
	"cmp"
	"fmt"
	"strconv"

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
//
// One approval is one start, whatever the runner's ledger says: a run that another process may have
// begun ends with an unknown outcome.
type BeginRun struct {
	EffectID string
	Run      int
	// Process is the name of the process.
	Process string
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
	if r.PID != 0 || r.Begun != "" && r.Begun != c.Process && !r.Withdrawn {
		d.unknown(e, r, fmt.Sprintf("it has begun as process %s already, and left no result that counts: the runner wanted to begin it once more, and the daemon did not let it", cmp.Or(r.Begun, strconv.Itoa(r.PID))))
		return nil
	}
	refused := c.mayBegin(d, e, r)
	d.out.Policy = nil
	if refused == nil && r.Begun == c.Process {
		d.out.Touched, d.out.Replayed = nil, true
		return nil
	}
	if refused == nil {
		r.Begun, r.Withdrawn = c.Process, false
		d.event("effect.begun").made("effect_id", e.ID).made("run", r.Number).made("process", c.Process)
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

// Spawned says that the runner has started the process of a run, or that the process which waited for
// the command has ended without it, so that another one may begin it.
type Spawned struct {
	EffectID string
	Run, PID int
	// Withdrawn names the process that has ended.
	Withdrawn string
}

func (c Spawned) decide(d *draft) error {
	_, r, err := d.runOf(c.EffectID, c.Run)
	if err != nil {
		return err
	}
	switch {
	case r.State != EffectStarted || r.PID != 0 || c.Withdrawn != "" && (r.Withdrawn || r.Begun != c.Withdrawn):
		d.out.Touched, d.out.Replayed = nil, true
	case c.Withdrawn != "":
		r.Withdrawn = true
		d.event("effect.withdrawn").made("effect_id", c.EffectID).made("run", c.Run).made("process", c.Withdrawn)
	default:
		r.PID = c.PID
		d.event("effect.spawned").made("effect_id", c.EffectID).made("run", c.Run).made("pid", c.PID)
	}
	return nil
}

// ran reports whether a run can have ended so by the runner's word: the daemon has let it begin.
func (r *Run) ran(state string) bool {
	return state == EffectUncertain || r.TokenHash != "" || r.Begun != "" && (state != EffectDone || !r.Withdrawn)
}

// unknown ends a run of which a person has to find out whether it was done.
func (d *draft) unknown(e *Effect, r *Run, evidence string) {
	r.Evidence = evidence
	d.ends(e, r, "effect.unknown", EffectUncertain).Texts["evidence"] = evidence
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
