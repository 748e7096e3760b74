package task

import "testing"

// An effect that is planned after the reviews is reviewed before a person is asked about it.
func TestLateEffectsAreReviewed(t *testing.T) {
	d := newDesk(t)
	d.to(AwaitingApproval, deploy())
	ask := func(p Planned) RequestApproval {
		return RequestApproval{Planned: p, Digest: zero, ID: d.w.NewID("apr_"), ExpiresAt: d.now.Add(longestWait)}
	}
	// What nobody has planned is not planned by asking.
	d.refused(gate, ask(notify()), GuardFailed, SpecOK, QualityOK)
	d.do(gate, PlanEffect{Planned: notify()})
	if e := d.task.EffectOf("notify"); e.Late {
		t.Error("it is marked, although reviewers see it")
	}
	for i := range d.task.Reviews {
		if r := &d.task.Reviews[i]; r.Subject.Gate && !d.task.Stale(r) {
			t.Errorf("the %s review counts", r.Type)
		}
	}
	for _, p := range []Planned{notify(), deploy()} {
		d.refused(gate, ask(p), GuardFailed, SpecOK, QualityOK)
	}
	d.move(SpecGate)
	d.refused(lead, Move{From: SpecGate, To: QualityGate}, GuardFailed, SpecOK)
	d.review(checker, VerdictApproved)
	d.move(QualityGate)
	d.refused(lead, Move{From: QualityGate, To: AwaitingApproval}, GuardFailed, QualityOK)
	d.review(critic, VerdictApproved)
	d.move(AwaitingApproval)
	d.refused(lead, Move{From: AwaitingApproval, To: SpecGate}, GuardFailed, Unreviewed)
	for i := range d.task.Effects {
		d.approve(&d.task.Effects[i])
	}
	d.move(ReadyToResume)
	if _, reworks, _ := d.task.Left(&d.w.Rules); reworks != 3 {
		t.Errorf("reviewing again counts as a rework: %d left", reworks)
	}
}

// An effect that an attempt plans before the reviews is not late, in whatever attempt.
func TestEffectsBeforeTheReviews(t *testing.T) {
	d := newDesk(t)
	d.to(SpecGate)
	d.sendBack()
	d.start()
	d.move(Executing)
	d.do(builder, PlanEffect{Planned: notify()})
	d.deliver(sum(2))
	d.move(SpecGate)
	d.review(checker, VerdictApproved)
	d.move(QualityGate)
	d.review(critic, VerdictApproved)
	d.move(AwaitingApproval)
	d.approve(d.task.EffectOf("notify"))
	d.move(ReadyToResume)
}

// With tasks.effects.late: ask, a person is asked at once, and the effect is marked.
func TestLateEffectsAreMarked(t *testing.T) {
	d := newDesk(t)
	d.w.Rules.AskLate = true
	d.to(AwaitingApproval, deploy())
	d.request(notify())
	if e := d.task.EffectOf("notify"); !e.Late || d.task.EffectOf("deploy").Late {
		t.Errorf("effects %+v", d.task.Effects)
	}
	if !d.task.Gate(ReviewSpec, 1).OK() || !d.task.Gate(ReviewQuality, 1).OK() {
		t.Error("the reviews count no longer")
	}
	// One that is planned again in time is not late any more.
	d.do(lead, CancelEffect{EffectID: d.task.EffectOf("notify").ID})
	d.do(lead, OpenCircuit{Reason: "once more"})
	d.do(person, CloseCircuit{To: ExecutionReady})
	d.start()
	d.move(Executing)
	d.do(builder, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: Diff, URI: "out.go", Digest: sum(7)})
	d.do(builder, PlanEffect{Planned: notify()})
	if d.task.EffectOf("notify").Late {
		t.Error("it is late before any review")
	}
}
