package task

// Move is a transition that the orchestrator wants.
type Move struct {
	From, To  Phase
	AttemptID string
	Expected  *int
	Reason    string
	ClaimedBy string
}

func (c Move) decide(d *draft) error {
	t := d.t
	if err := d.revision(c.Expected); err != nil {
		return err
	}
	if c.From != t.Phase {
		return refuse(PhaseMismatch, "the task is in %s, not in %s", t.Phase, c.From)
	}
	if c.AttemptID != "" && t.Attempt(c.AttemptID) == nil {
		return refuse(Absent, "the task has no attempt %s", c.AttemptID)
	}
	row, ok := transition(t.Phase, c.To)
	if !ok {
		return refuse(PhaseMismatch, "there is no way from %s to %s", t.Phase, c.To)
	}
	if row.Via == ByCloseCircuit {
		return refuse(NotPermitted, "the circuit is closed by task_close_circuit, which an operator alone may call")
	}
	if c.To == CircuitOpen {
		return d.openCircuit(c.Reason)
	}
	return d.move(row, c.Reason)
}

// move makes a transition whose guards hold, with all that comes with it.
func (d *draft) move(row Transition, reason string) error {
	t := d.t
	if err := d.guards("the task cannot go from "+string(row.From)+" to "+string(row.To), row.Guards...); err != nil {
		return err
	}
	if err := d.ask(Question{Action: AskTransition, To: row.To}); err != nil {
		return err
	}
	e := d.event("task.transitioned").set("phase", t.Phase, row.To).set("revision", t.Revision, t.Revision+1)
	e.Reason, e.AttemptID = reason, t.CurrentAttempt
	t.Phase = row.To
	d.entered()
	return nil
}

// entered does what comes with the phase.
func (d *draft) entered() {
	switch d.t.Phase {
	case ExecutionReady:
		d.forget(false)
	case Failed:
		d.abort()
		d.forget(true)
	case CircuitOpen:
		d.abort()
	default:
	}
}

// abort ends the running attempt, or that another one is due.
func (d *draft) abort() {
	switch last := d.t.Last(); {
	case last == nil:
	case last.Status == AttemptRunning:
		d.finish(d.attempt(last.ID), AttemptAborted)
	case last.Status == AttemptRetrying:
		a := d.attempt(last.ID)
		d.event("attempt.finished").set("status", a.Status, AttemptFailed).AttemptID = a.ID
		a.Status = AttemptFailed
	}
}

// forget ends what depended on a result that is gone: approvals that wait or were not
// used, and effects that are open. Those of the spec stay until the task has failed.
func (d *draft) forget(all bool) {
	t := d.t
	for i := range t.Approvals {
		if t.Approvals[i].Void {
			continue
		}
		a := d.approval(t.Approvals[i].ID)
		a.Void = true
		d.revoke(a)
	}
	for i := range t.Effects {
		if isOpen(t.Effects[i]) && (all || t.Effects[i].Origin != originSpec) {
			d.cancel(t.Effects[i].ID)
		}
	}
}

// revoke ends an approval that waits, or that is not used.
func (d *draft) revoke(a *Approval) {
	if a.Status == ApprovalPending || a.Status == ApprovalApproved && !a.Used {
		d.takeBack(a)
	}
}

// takeBack ends an approval, also one that still lets a run be undone.
func (d *draft) takeBack(a *Approval) {
	d.out.Revoke = append(d.out.Revoke, a.ID)
	d.event("approval.resolved").made("approval_id", a.ID).made("effect_id", a.EffectID).set("status", a.Status, ApprovalRevoked)
	a.Status, a.ResolvedAt = ApprovalRevoked, d.now
}

// OpenCircuit stops a task until a person has looked at it.
type OpenCircuit struct {
	Reason    string
	AttemptID string
}

func (c OpenCircuit) decide(d *draft) error {
	if d.t.Phase == CircuitOpen {
		d.out.Replayed = true
		return nil
	}
	if c.AttemptID != "" && d.t.CurrentAttempt != c.AttemptID {
		return refuse(RevisionMismatch, "the last attempt is %s, not %s: look again", d.t.CurrentAttempt, c.AttemptID)
	}
	return d.openCircuit(c.Reason)
}

func (d *draft) openCircuit(reason string) error {
	row, ok := transition(d.t.Phase, CircuitOpen)
	if !ok {
		return refuse(PhaseMismatch, "the task is %s", d.t.Phase)
	}
	if err := d.move(row, reason); err != nil {
		return err
	}
	good, _ := d.t.LastGood(&d.w.Rules)
	d.event("circuit.opened").set("circuit_status", d.t.Circuit, CircuitStopped).made("attempts", d.t.counted()).made("last_good_revision", good).Reason = reason
	d.t.Circuit, d.t.CircuitReason = CircuitStopped, reason
	return nil
}

// CloseCircuit lets a task go on. Attempts are counted anew.
type CloseCircuit struct {
	To     Phase
	Reason string
}

func (c CloseCircuit) decide(d *draft) error {
	if d.t.Phase != CircuitOpen {
		return refuse(PhaseMismatch, "the circuit is not open: the task is in %s", d.t.Phase)
	}
	row, ok := transition(CircuitOpen, c.To)
	if !ok || row.Via != ByCloseCircuit {
		return refuse(PhaseMismatch, "the circuit is closed to spec_draft or execution_ready, not to %s", c.To)
	}
	if err := d.move(row, c.Reason); err != nil {
		return err
	}
	d.event("circuit.closed").set("circuit_status", d.t.Circuit, CircuitClosed).Reason = c.Reason
	d.t.Circuit, d.t.CircuitReason, d.t.Counted = CircuitClosed, "", len(d.t.Attempts)
	return nil
}
