package task

// late marks an effect that was planned after a review of the present work, or has that review count
// no longer. Effects of the spec are planned before any review.
func (d *draft) late(e *Effect) {
	t := d.t
	now := t.Subject()
	reviews := 0
	for i := range t.Reviews {
		if r := &t.Reviews[i]; !now.Gate || r.Subject != now || r.Void {
			continue
		}
		if reviews++; !d.w.Rules.AskLate {
			touch(d, KindReview, t.Reviews, i, t.Reviews[i].ID).Void = true
		}
	}
	e.Late = reviews > 0 && d.w.Rules.AskLate
	if reviews > 0 {
		d.out.Events[len(d.out.Events)-1].made("reviews_before", reviews)
	}
}

// reviewed refuses to ask people about an effect that reviewers have not seen. E is the effect as it
// is planned, nil for none.
func (c RequestApproval) reviewed(d *draft, e *Effect) error {
	if d.w.Rules.AskLate {
		return nil
	}
	if e == nil || e.State == EffectCancelled {
		r := refuse(GuardFailed, "no reviewer has seen %q: plan it (task.plan_effect), have the work reviewed again (task.transition to spec_gate), and then ask (tasks.effects.late)", c.Planned.Key)
		r.Guards = []Guard{SpecOK, QualityOK}
		return r
	}
	return d.guards("no approval is asked for before reviewers have seen every planned effect: go back to spec_gate", SpecOK, QualityOK)
}
