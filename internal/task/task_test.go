package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/openclawos/ocipd/internal/base/ids"
)

var (
	lead    = Actor{Name: "lead", Role: Orchestrator, Tenant: "acme"}
	person  = Actor{Name: "uid:1000", Role: Operator}
	checker = Actor{Name: "checker", Role: SpecReviewer, Tenant: "acme"}
	critic  = Actor{Name: "critic", Role: QualityReviewer, Tenant: "acme"}
	builder = Actor{Name: "builder", Role: Executor, Tenant: "acme"}
	gate    = Actor{Name: "gate", Role: Lobster, Tenant: "acme"}
	daemon  = Actor{Name: "ocipd", Role: Daemon}
)

const zero = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func sum(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// desk is one task under test, with its world.
type desk struct {
	t    testing.TB
	task *Task
	w    World
	now  time.Time
	ids  int
	last *Outcome
}

func newDesk(t testing.TB) *desk {
	d := &desk{t: t, now: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)}
	d.w = World{
		Rules:  Rules{Lease: 90 * time.Second, Retry: tries{3, 30 * time.Second, 4}, Rework: tries{3, 0, 1}, SpecReviews: 1, QualityReviews: 1},
		Runner: true,
		Level: func(name string) int {
			return max(0, slices.Index([]string{"public", "internal", "confidential", "restricted"}, name))
		},
		Known: func(name string) (Role, string, bool) {
			for _, a := range []Actor{lead, checker, critic, builder, gate} {
				if a.Name == name {
					return a.Role, "restricted", true
				}
			}
			return "", "", false
		},
	}
	d.w.NewID = func(prefix string) string {
		d.ids++
		return fmt.Sprintf("%s%08x-0000-7000-8000-000000000000", prefix, d.ids)
	}
	return d
}

func goodSpec() Fields {
	return Fields{
		Goal: "Accountants download a month of invoices as CSV.", ScopeIn: []string{"the endpoint GET /invoices.csv"}, ScopeOut: []string{}, Inputs: []string{},
		Outputs: []string{"internal/evidence/export/*.go", "out.go", "`a`"}, AcceptanceCriteria: []string{"`go test ./internal/evidence/export` exits with 0"}, Risks: []string{},
	}
}

func (d *desk) try(who Actor, c Command) error {
	out, err := Decide(d.task, c, &who, &d.w, d.now)
	if err == nil {
		d.task, d.last = out.Task, out
	}
	return err
}

func (d *desk) do(who Actor, c Command) *Outcome {
	d.t.Helper()
	if err := d.try(who, c); err != nil {
		d.t.Fatalf("%T by %s: %v", c, who.Name, err)
	}
	return d.last
}

func (d *desk) refused(who Actor, c Command, code Code, guards ...Guard) {
	d.t.Helper()
	before := fmt.Sprintf("%+v", d.task)
	err := d.try(who, c)
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Code != code {
		d.t.Fatalf("%T by %s: got %v, want %s", c, who.Name, err, code)
	}
	if code == GuardFailed && len(guards) > 0 && !slices.Equal(r.Guards, guards) {
		d.t.Fatalf("%T by %s: guards %v, want %v", c, who.Name, r.Guards, guards)
	}
	if after := fmt.Sprintf("%+v", d.task); after != before {
		d.t.Fatalf("%T by %s: a refusal changed the task", c, who.Name)
	}
}

func (d *desk) create(phase Phase, effects ...Planned) {
	d.t.Helper()
	d.do(lead, Create{Title: "Invoices get a CSV export", Workspace: "billing", Tenant: "acme", Phase: phase, Priority: 2, Spec: Spec{Fields: goodSpec()}, Effects: effects})
}

func (d *desk) move(to Phase) {
	d.t.Helper()
	d.do(lead, Move{From: d.task.Phase, To: to, Reason: "because"})
}

func (d *desk) review(who Actor, verdict string) {
	d.t.Helper()
	kind := ReviewSpec
	if who.Role == QualityReviewer {
		kind = ReviewQuality
	}
	who.Seen = d.task.Subject()
	d.do(who, AppendReview{AttemptID: d.task.CurrentAttempt, Type: kind, Verdict: verdict})
}

func (d *desk) start() *Attempt {
	d.t.Helper()
	d.do(lead, StartAttempt{Runtime: "local", Executor: "builder", WorkerRef: "builder"})
	return d.task.Running()
}

func (d *desk) deliver(digest string) {
	d.t.Helper()
	d.do(builder, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: PrimaryOutput, URI: "out.go", Digest: digest})
	d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptSucceeded})
}

// to brings a new task to a phase on the straight way.
func (d *desk) to(phase Phase, effects ...Planned) {
	d.t.Helper()
	steps := map[Phase]func(){
		SpecDraft:      func() { d.create(SpecDraft, effects...) },
		SpecReview:     func() { d.move(SpecReview) },
		ExecutionReady: func() { d.review(checker, VerdictApproved); d.move(ExecutionReady) },
		Executing:      func() { d.start(); d.move(Executing) },
		SpecGate:       func() { d.deliver(sum(1)); d.move(SpecGate) },
		QualityGate:    func() { d.review(checker, VerdictApproved); d.move(QualityGate) },
		AwaitingApproval: func() {
			d.review(critic, VerdictApproved)
			if phase == Completed && len(effects) == 0 {
				return
			}
			d.move(AwaitingApproval)
		},
		ReadyToResume: func() {
			if phase == Completed && len(effects) == 0 {
				return
			}
			for i := range d.task.Effects {
				d.approve(&d.task.Effects[i])
			}
			d.move(ReadyToResume)
		},
		Completed: func() {
			for _, e := range d.task.Effects {
				d.run(e.ID, EffectDone)
			}
			d.move(Completed)
		},
	}
	for _, p := range Phases() {
		if f := steps[p]; f != nil {
			f()
		}
		if p == phase {
			return
		}
	}
}

func deploy() Planned {
	return Planned{Key: "deploy", Kind: "deployment", RequestedAction: "Deploy", Command: &Action{Argv: []string{"bin/deploy"}}, Compensation: &Action{Argv: []string{"bin/undo"}}}
}

func notify() Planned {
	return Planned{Key: "notify", Kind: "notification", RequestedAction: "Tell", Params: jsontext.Value(`{"to":"ops"}`)}
}

func (d *desk) request(p Planned) *Outcome {
	d.t.Helper()
	return d.do(gate, RequestApproval{Planned: p, Digest: zero, ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)})
}

func (d *desk) approve(e *Effect) {
	d.t.Helper()
	id := d.request(e.Planned).Approval
	d.do(person, ResolveApproval{ID: id, Status: ApprovalApproved, By: "uid:1000"})
}

func (d *desk) run(id, state string) int {
	d.t.Helper()
	d.do(gate, RunEffect{EffectID: id, Digest: zero, TokenHash: "h"})
	n := d.last.Run
	d.finishRun(id, n, state)
	return n
}

func (d *desk) finishRun(id string, n int, state string) {
	d.t.Helper()
	if r := d.task.Effect(id).Run(n); r.TokenHash == "" && r.State == EffectStarted {
		d.do(daemon, BeginRun{EffectID: id, Run: n, Process: "7@1", Signed: true})
	}
	d.do(daemon, FinishRun{EffectID: id, Run: n, State: state})
}

// A task goes the whole way, and its events are counted without a gap.
func TestLifecycle(t *testing.T) {
	d := newDesk(t)
	d.to(Completed, deploy())
	if d.task.Phase != Completed {
		t.Fatalf("phase %s", d.task.Phase)
	}
	if d.task.Effects[0].State != EffectDone || !d.task.Approvals[0].Used {
		t.Errorf("effect %+v", d.task.Effects[0])
	}
	d.refused(lead, Move{From: Completed, To: Failed}, PhaseMismatch)
	d.refused(lead, OpenCircuit{}, PhaseMismatch)
	d.refused(lead, Update{Priority: new(1)}, PhaseMismatch)

	d = newDesk(t)
	d.to(Completed)
	if d.task.Phase != Completed {
		t.Fatalf("phase %s", d.task.Phase)
	}
}

// Each row of the table is taken where its guards hold, and where one does not, the
// refusal names it.
func TestTransitions(t *testing.T) {
	tests := []struct {
		name string
		from Phase
		have []Planned
		then func(*desk)
		to   Phase
		want []Guard
	}{
		{"a complete spec is reviewed", SpecDraft, nil, nil, SpecReview, nil},
		{"one that is not is not", SpecDraft, nil, func(d *desk) {
			d.do(lead, Update{Spec: &Spec{Fields: Fields{Goal: "x"}}})
		}, SpecReview, []Guard{Complete}},
		{"no review", SpecReview, nil, nil, ExecutionReady, []Guard{SpecOK}},
		{"against", SpecReview, nil, func(d *desk) { d.review(checker, VerdictChanges) }, ExecutionReady, []Guard{SpecOK}},
		{"approved, then against", SpecReview, nil, func(d *desk) {
			d.review(checker, VerdictApproved)
			d.review(checker, VerdictBlocked)
		}, ExecutionReady, []Guard{SpecOK}},
		{"against, then approved", SpecReview, nil, func(d *desk) {
			d.review(checker, VerdictBlocked)
			d.review(checker, VerdictApproved)
		}, ExecutionReady, nil},
		{"two reviewers, one against", SpecReview, nil, func(d *desk) {
			d.review(checker, VerdictApproved)
			other := checker
			other.Name = "other"
			d.review(other, VerdictChanges)
		}, ExecutionReady, []Guard{SpecOK}},
		{"two are needed", SpecReview, nil, func(d *desk) {
			d.w.Rules.SpecReviews = 2
			d.review(checker, VerdictApproved)
		}, ExecutionReady, []Guard{SpecOK}},
		{"back to the draft", SpecReview, nil, nil, SpecDraft, nil},
		{"a changed spec is reviewed anew", SpecReview, nil, func(d *desk) {
			d.review(checker, VerdictApproved)
			d.move(SpecDraft)
			f := goodSpec()
			f.Goal = "Accountants download a year."
			d.do(lead, Update{Spec: &Spec{Fields: f}})
			d.move(SpecReview)
		}, ExecutionReady, []Guard{SpecOK}},
		{"nobody works", ExecutionReady, nil, nil, Executing, []Guard{Leased}},
		{"somebody works", ExecutionReady, nil, func(d *desk) { d.start() }, Executing, nil},
		{"the lease has ended", ExecutionReady, nil, func(d *desk) {
			d.start()
			d.now = d.now.Add(time.Hour)
		}, Executing, []Guard{Leased}},
		{"blocked", ExecutionReady, nil, func(d *desk) {
			d.start()
			d.w.Open = []string{"tsk_other"}
		}, Executing, []Guard{Unblocked}},
		{"to the draft while somebody works", ExecutionReady, nil, func(d *desk) { d.start() }, SpecDraft, []Guard{Idle}},
		{"to the draft", ExecutionReady, nil, nil, SpecDraft, nil},
		{"nothing delivered yet", Executing, nil, nil, SpecGate, []Guard{Delivered}},
		{"a report is no delivery", Executing, nil, func(d *desk) {
			d.do(builder, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: ReviewReport, URI: "r", Digest: sum(3)})
			d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptSucceeded})
		}, SpecGate, []Guard{Delivered}},
		{"success without anything", Executing, nil, func(d *desk) {
			d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptSucceeded})
		}, SpecGate, []Guard{Delivered}},
		{"delivered", Executing, nil, func(d *desk) { d.deliver(sum(1)) }, SpecGate, nil},
		{"back when nobody does", Executing, nil, func(d *desk) {
			d.do(lead, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptAborted})
		}, ExecutionReady, nil},
		{"back while somebody works", Executing, nil, nil, ExecutionReady, []Guard{Idle}},
		{"the gate before a review", SpecGate, nil, nil, QualityGate, []Guard{SpecOK}},
		{"the gate after one", SpecGate, nil, func(d *desk) { d.review(checker, VerdictApproved) }, QualityGate, nil},
		{"rework", SpecGate, nil, nil, ExecutionReady, nil},
		{"no quality review", QualityGate, nil, nil, Completed, []Guard{QualityOK}},
		{"no quality review, to approval", QualityGate, nil, nil, AwaitingApproval, []Guard{QualityOK}},
		{"an effect to be approved", QualityGate, []Planned{deploy()}, func(d *desk) { d.review(critic, VerdictApproved) }, AwaitingApproval, nil},
		{"rework", QualityGate, nil, nil, ExecutionReady, nil},
		{"an open effect", QualityGate, []Planned{deploy()}, func(d *desk) { d.review(critic, VerdictApproved) }, Completed, []Guard{NoEffect}},
		{"no effect", QualityGate, nil, func(d *desk) { d.review(critic, VerdictApproved) }, Completed, nil},
		{"not approved yet", AwaitingApproval, []Planned{deploy()}, nil, ReadyToResume, []Guard{Approved}},
		{"approved", AwaitingApproval, []Planned{deploy()}, func(d *desk) { d.approve(&d.task.Effects[0]) }, ReadyToResume, nil},
		{"approved too long ago", AwaitingApproval, []Planned{deploy()}, func(d *desk) {
			d.approve(&d.task.Effects[0])
			d.now = d.now.Add(time.Hour)
		}, ReadyToResume, []Guard{Approved}},
		{"one of two approved", AwaitingApproval, []Planned{deploy(), notify()}, func(d *desk) { d.approve(&d.task.Effects[0]) }, ReadyToResume, []Guard{Approved}},
		{"the last effect is cancelled", AwaitingApproval, []Planned{deploy()}, func(d *desk) {
			d.do(lead, CancelEffect{EffectID: d.task.Effects[0].ID})
		}, ReadyToResume, nil},
		{"nobody asks for changes", AwaitingApproval, []Planned{deploy()}, nil, ExecutionReady, []Guard{Changes}},
		{"a person asks for changes", AwaitingApproval, []Planned{deploy()}, func(d *desk) {
			d.do(person, ResolveApproval{ID: d.request(deploy()).Approval, Status: ApprovalChanges, By: "uid:1"})
		}, ExecutionReady, nil},
		{"what was approved is not done", ReadyToResume, []Planned{deploy()}, nil, Completed, []Guard{NoEffect}},
		{"it is being done", ReadyToResume, []Planned{deploy()}, func(d *desk) {
			d.do(gate, RunEffect{EffectID: d.task.Effects[0].ID, Digest: zero})
		}, Completed, []Guard{Quiet}},
		{"nobody knows", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectUncertain) }, Completed, []Guard{Quiet}},
		{"nobody knows, and it is given up", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectUncertain) }, Failed, []Guard{Quiet}},
		{"it failed", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectFailed) }, Completed, []Guard{NoEffect}},
		{"it failed, once more", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectFailed) }, AwaitingApproval, nil},
		{"it failed, rework", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectFailed) }, ExecutionReady, nil},
		{"nothing new is planned", QualityGate, nil, nil, SpecGate, []Guard{Unreviewed}},
		{"planned after a review", QualityGate, nil, func(d *desk) { d.do(lead, PlanEffect{Planned: notify()}) }, SpecGate, nil},
		{"nothing new is planned", AwaitingApproval, []Planned{deploy()}, nil, SpecGate, []Guard{Unreviewed}},
		{"planned after the reviews", AwaitingApproval, []Planned{deploy()}, func(d *desk) { d.do(gate, PlanEffect{Planned: notify()}) }, SpecGate, nil},
		{"all is approved still", ReadyToResume, []Planned{deploy()}, nil, AwaitingApproval, []Guard{Unapproved}},
		{"done", ReadyToResume, []Planned{deploy()}, func(d *desk) { d.run(d.task.Effects[0].ID, EffectDone) }, Completed, nil},
	}
	covered := make(map[[2]Phase]bool)
	for _, test := range tests {
		t.Run(string(test.from)+" "+test.name, func(t *testing.T) {
			d := newDesk(t)
			d.to(test.from, test.have...)
			if test.then != nil {
				test.then(d)
			}
			c := Move{From: d.task.Phase, To: test.to, Reason: "because"}
			if test.want != nil {
				d.refused(lead, c, GuardFailed, test.want...)
				return
			}
			covered[[2]Phase{test.from, test.to}] = true
			d.do(lead, c)
			if d.task.Phase != test.to {
				t.Errorf("phase %s", d.task.Phase)
			}
		})
	}
	for _, row := range table() {
		if row.Via == ByTransition && !covered[[2]Phase{row.From, row.To}] {
			t.Errorf("nothing goes from %s to %s", row.From, row.To)
		}
	}
}

// There is no other way from a phase to another than the table's, and from all but
// the final ones a task can fail and its circuit can be opened.
func TestNoOtherWay(t *testing.T) {
	for _, from := range Phases() {
		if from == Failed || from == CircuitOpen {
			continue
		}
		for _, to := range Phases() {
			if _, ok := transition(from, to); ok {
				continue
			}
			d := newDesk(t)
			d.to(from)
			d.refused(lead, Move{From: from, To: to}, PhaseMismatch)
		}
		if from.Final() {
			continue
		}
		for _, to := range []Phase{Failed, CircuitOpen} {
			d := newDesk(t)
			d.to(from)
			d.move(to)
			if a := d.task.Running(); a != nil {
				t.Errorf("from %s to %s: an attempt goes on", from, to)
			}
		}
	}
}

// Only a person closes the circuit, and not around the spec's review.
func TestCircuit(t *testing.T) {
	d := newDesk(t)
	d.to(SpecReview)
	d.move(CircuitOpen)
	d.refused(lead, Move{From: CircuitOpen, To: ExecutionReady}, NotPermitted)
	d.refused(lead, Move{From: CircuitOpen, To: SpecDraft}, NotPermitted)
	d.refused(person, CloseCircuit{To: Executing}, PhaseMismatch)
	d.refused(person, CloseCircuit{To: Failed}, PhaseMismatch)
	d.refused(person, CloseCircuit{To: ExecutionReady}, GuardFailed, SpecOK)
	d.do(person, CloseCircuit{To: SpecDraft})
	if d.task.Phase != SpecDraft || d.task.Circuit != CircuitClosed {
		t.Errorf("task %+v", d.task.Head)
	}

	d = newDesk(t)
	d.to(Executing)
	for range d.w.Rules.Retry.Attempts {
		if d.task.Running() == nil {
			d.now = d.now.Add(time.Hour)
			d.start()
		}
		d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptFailed, Failure: "crashed"})
	}
	d.now = d.now.Add(time.Hour)
	d.refused(lead, StartAttempt{}, RetriesExhausted)
	d.move(ExecutionReady)
	d.refused(lead, StartAttempt{}, RetriesExhausted)
	d.do(lead, OpenCircuit{Reason: "three crashes"})
	if got := d.task.FailureSummary(); len(got) != 4 {
		t.Errorf("summary %q", got)
	}
	d.do(person, CloseCircuit{To: ExecutionReady})
	if left, _, _ := d.task.Left(&d.w.Rules); d.start().Escalate || left != 3 {
		t.Error("attempts are not counted anew")
	}
}

// The waits between attempts and the last one's escalation are stored.
func TestRetry(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	for n, wait := range []time.Duration{30 * time.Second, 120 * time.Second} {
		d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptFailed, Failure: "timeout"})
		last := d.task.Last()
		if last.Status != AttemptRetrying || !last.RetryAt.Equal(d.now.Add(wait)) {
			t.Fatalf("after attempt %d: %+v", n+1, last)
		}
		if at, ok := d.task.ReadyAt(&d.w, d.now); !ok || !at.Equal(last.RetryAt) {
			t.Errorf("ready at %v", at)
		}
		d.now = d.now.Add(wait - 1)
		d.refused(lead, StartAttempt{}, NotBefore)
		d.now = d.now.Add(1)
		if a := d.start(); a.Escalate != (n == 1) || a.Fence != int64(n+2) || a.Ordinal != n+2 {
			t.Errorf("attempt %+v", a)
		}
		if d.task.Phase != Executing {
			t.Errorf("retrying left executing for %s", d.task.Phase)
		}
	}
	d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptFailed, Failure: "timeout"})
	if d.task.Last().Status != AttemptFailed || !d.task.Last().RetryAt.IsZero() {
		t.Errorf("last %+v", d.task.Last())
	}
	d.refused(lead, StartAttempt{}, RetriesExhausted)
	d.move(ExecutionReady)
	d.refused(lead, StartAttempt{}, RetriesExhausted)
	for _, code := range OtherFailures() {
		d := newDesk(t)
		d.to(Executing)
		d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptFailed, Failure: code})
		if d.task.Last().Status != AttemptFailed {
			t.Errorf("%s: %s", code, d.task.Last().Status)
		}
		d.refused(lead, StartAttempt{}, PhaseMismatch)
		d.move(ExecutionReady)
		d.start()
	}
}

// sendBack has the reviewer ask for changes, and the orchestrator follow.
func (d *desk) sendBack() {
	d.t.Helper()
	d.review(checker, VerdictChanges)
	d.move(ExecutionReady)
}

// Failures and reworks have a limit each: one uses up nothing of the other.
func TestRework(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	for n := range 4 {
		// Two failures before each delivery are retries.
		for range 2 {
			d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptFailed, Failure: "crashed"})
			d.now = d.now.Add(time.Hour)
			a := d.start()
			if retries, reworks, _ := d.task.Left(&d.w.Rules); a.Escalate != (retries == 1) || reworks != 3-n {
				t.Fatalf("delivery %d: escalates %t with %d retries, %d reworks left", n, a.Escalate, retries, reworks)
			}
		}
		d.deliver(sum(n))
		d.move(SpecGate)
		d.sendBack()
		if n < 3 && d.start().Escalate {
			t.Error("the first attempt of a rework escalates")
			continue
		}
		if n < 3 {
			d.move(Executing)
		}
	}
	d.refused(lead, StartAttempt{}, RetriesExhausted)
	d.do(lead, OpenCircuit{Reason: "asked for changes again and again"})
	d.do(person, CloseCircuit{To: ExecutionReady})
	d.start()
	if retries, reworks, _ := d.task.Left(&d.w.Rules); retries != 3 || reworks != 3 {
		t.Errorf("after the circuit was closed: %d retries, %d reworks", retries, reworks)
	}
}

// A person's or the orchestrator's abort is neither a failure nor a rework. An executor's own is a
// failure, so that it cannot go on without end.
func TestAborts(t *testing.T) {
	for _, test := range []struct {
		who     Actor
		retries int
	}{{lead, 3}, {person, 3}, {builder, 1}} {
		d := newDesk(t)
		d.to(Executing)
		for range 2 {
			d.do(test.who, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptAborted})
			d.move(ExecutionReady)
			d.start()
			d.move(Executing)
		}
		if retries, _, _ := d.task.Left(&d.w.Rules); retries != test.retries {
			t.Errorf("%s: %d retries left, want %d", test.who.Name, retries, test.retries)
		}
	}
	d := newDesk(t)
	d.to(Executing)
	d.deliver(sum(1))
	for range 5 {
		d.sendBackByHand()
		d.start()
		d.do(lead, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptAborted})
	}
	if _, reworks, _ := d.task.Left(&d.w.Rules); reworks != 3 {
		t.Errorf("%d reworks left", reworks)
	}
}

// sendBackByHand has the orchestrator go back to execution_ready, if the task is not there.
func (d *desk) sendBackByHand() {
	d.t.Helper()
	if d.task.Phase != ExecutionReady {
		d.move(ExecutionReady)
	}
}

// A rework waits as the configuration says, from the request for changes on.
func TestReworkWaits(t *testing.T) {
	d := newDesk(t)
	d.w.Rules.Rework = tries{Attempts: 3, Base: time.Minute, Factor: 2}
	d.to(Executing)
	for n, wait := range []time.Duration{time.Minute, 2 * time.Minute} {
		d.deliver(sum(n))
		d.move(SpecGate)
		d.now = d.now.Add(time.Hour)
		d.sendBack()
		if at, ok := d.task.ReadyAt(&d.w, d.now); !ok || !at.Equal(d.now.Add(wait)) {
			t.Errorf("rework %d is ready at %v", n+1, at)
		}
		d.now = d.now.Add(wait - 1)
		d.refused(lead, StartAttempt{}, NotBefore)
		d.now = d.now.Add(1)
		d.start()
		d.move(Executing)
	}
	if w := (tries{Attempts: 30, Base: time.Hour, Factor: 100}).wait(30); w != longestWait {
		t.Errorf("a wait of %s", w)
	}
}

// Whoever has lost the lease writes nothing more.
func TestFence(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	first := *d.task.Running()
	beat := RecordCheckpoint{AttemptID: first.ID, Type: CheckpointHeartbeat}
	revision, seq := d.task.Revision, d.task.Seq
	d.now = d.now.Add(time.Minute)
	if out := d.do(builder, beat); !out.Lease.Equal(d.now.Add(90*time.Second)) || d.task.Revision != revision || d.task.Seq != seq {
		t.Errorf("heartbeat: %+v", out)
	} else {
		d.w.Lease = out.Lease
	}
	artifact := RecordArtifact{AttemptID: first.ID, Kind: Diff, URI: "x", Digest: sum(1)}
	wrong := artifact
	wrong.Fence = new(int64(7))
	d.refused(builder, wrong, LeaseLost)
	stranger := builder
	stranger.Name = "stranger"
	d.refused(stranger, artifact, NotPermitted)

	d.now = d.now.Add(90 * time.Second)
	d.refused(builder, artifact, LeaseLost)
	d.refused(builder, beat, LeaseLost)
	d.refused(builder, FinishAttempt{AttemptID: first.ID, Outcome: AttemptSucceeded}, LeaseLost)
	d.do(daemon, EndLease{AttemptID: first.ID})
	if a := d.task.Last(); a.Status != AttemptRetrying || a.Failure != FailureLease {
		t.Fatalf("attempt %+v", a)
	}
	d.w.Lease = time.Time{}
	d.now = d.now.Add(time.Minute)
	d.start()
	d.refused(builder, artifact, LeaseLost)
	if d.do(daemon, EndLease{AttemptID: d.task.CurrentAttempt}); len(d.last.Events) > 0 {
		t.Error("a lease that holds was ended")
	}

	d.move(Failed)
	if out := d.do(builder, RecordCheckpoint{AttemptID: d.task.CurrentAttempt, Type: CheckpointHeartbeat}); !out.Cancel {
		t.Error("an aborted attempt is not told so")
	}
}

// The revision of artifacts grows with what is new of the work, and with nothing else.
func TestArtifactRevision(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	record := func(who Actor, kind, uri, digest string, want int) {
		t.Helper()
		d.do(who, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: kind, URI: uri, Digest: digest})
		if d.task.ArtifactRevision != want {
			t.Errorf("%s by %s: revision %d, want %d", uri, who.Name, d.task.ArtifactRevision, want)
		}
	}
	record(builder, Diff, "a", sum(1), 1)
	record(builder, Diff, "a", sum(1), 1)
	record(lead, Diff, "a", sum(2), 2)
	record(builder, Diff, "b", sum(1), 3)
	reviewer := checker
	reviewer.Grant = &Grant{TaskID: d.task.ID, Role: SpecReviewer}
	record(reviewer, ReviewReport, "a", sum(9), 3)
	d.refused(reviewer, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: Diff, URI: "a", Digest: sum(9)}, NotPermitted)
	current := 0
	for _, a := range d.task.Artifacts {
		if a.Current && a.URI == "a" && a.Work {
			current++
		}
	}
	if current != 1 {
		t.Errorf("%d of a are current", current)
	}
}

// Nobody reviews their own, nor what they have not read.
func TestReviews(t *testing.T) {
	d := newDesk(t)
	d.to(SpecReview)
	c := AppendReview{Type: ReviewSpec, Verdict: VerdictApproved}
	d.refused(checker, c, ReadFirst)
	seen := checker
	seen.Seen = d.task.Subject()
	author := seen
	author.Name = "lead"
	d.refused(author, c, SameActor)
	quality := seen
	quality.Role = QualityReviewer
	quality.Grant = &Grant{TaskID: d.task.ID}
	d.refused(quality, c, NotPermitted)
	d.refused(quality, AppendReview{Type: ReviewQuality, Verdict: VerdictApproved}, PhaseMismatch)
	future := c
	future.Revision = new(2)
	d.refused(seen, future, RevisionMismatch)

	d = newDesk(t)
	d.to(SpecGate)
	seen.Seen = d.task.Subject()
	d.refused(seen, c, Invalid)
	c.AttemptID = d.task.CurrentAttempt
	maker := seen
	maker.Name = "builder"
	d.refused(maker, c, SameActor)
	before := seen
	before.Seen = Subject{Spec: 1}
	d.refused(before, c, ReadFirst)

	// A verdict about an earlier result is kept, and counts for nothing.
	c.Revision = new(0)
	d.do(seen, c)
	if r := &d.task.Reviews[len(d.task.Reviews)-1]; !d.task.Stale(r) {
		t.Errorf("review %+v is not stale", r)
	}
	d.refused(lead, Move{From: SpecGate, To: QualityGate}, GuardFailed, SpecOK)
}

// A review of one result says nothing about the next one, and one of the spec nothing
// about a result.
func TestReviewsHoldForTheirSubject(t *testing.T) {
	d := newDesk(t)
	d.to(QualityGate)
	d.review(critic, VerdictApproved)
	d.move(ExecutionReady)
	d.start()
	d.move(Executing)
	d.deliver(sum(2))
	d.move(SpecGate)
	d.refused(lead, Move{From: SpecGate, To: QualityGate}, GuardFailed, SpecOK)

	// The spec changes, and the same bytes are delivered again.
	d.move(ExecutionReady)
	d.move(SpecDraft)
	d.do(lead, Update{Spec: &Spec{Fields: goodSpec()}})
	d.move(SpecReview)
	d.review(checker, VerdictApproved)
	d.move(ExecutionReady)
	d.start()
	d.move(Executing)
	d.deliver(sum(2))
	d.move(SpecGate)
	d.refused(lead, Move{From: SpecGate, To: QualityGate}, GuardFailed, SpecOK)
}

// The table of an effect's life.
func TestEffectLife(t *testing.T) {
	d := newDesk(t)
	d.to(AwaitingApproval, deploy())
	id := d.task.Effects[0].ID
	run := RunEffect{EffectID: id, Digest: zero}
	d.refused(gate, run, PhaseMismatch)
	first := d.request(deploy()).Approval
	if again := d.request(deploy()); again.Approval != first || !again.Replayed {
		t.Errorf("asked again: %+v", again)
	}
	other := deploy()
	other.Command = &Action{Argv: []string{"bin/other"}}
	d.refused(gate, RequestApproval{Planned: other, Digest: zero, ID: "x"}, IdempotencyConflict)
	asker := ResolveApproval{ID: first, Status: ApprovalApproved, By: "gate"}
	d.refused(person, asker, SelfApproval)
	if err := d.task.MayApprove(first, "gate", "uid:1"); err == nil {
		t.Error("the asker may be one of several who approve")
	}
	if err := d.task.MayApprove(first, "ann", "uid:1"); err != nil {
		t.Error(err)
	}
	d.do(person, ResolveApproval{ID: first, Status: ApprovalApproved, By: "uid:1"})
	d.refused(person, ResolveApproval{ID: first, Status: ApprovalRejected, By: "uid:1"}, PhaseMismatch)
	d.move(ReadyToResume)
	wrong := run
	wrong.Digest = sum(4)
	d.refused(gate, wrong, IdempotencyConflict)
	d.w.Runner = false
	d.refused(gate, run, RunnerAbsent)
	d.w.Runner = true
	d.do(gate, run)
	d.refused(gate, run, EffectInFlight)
	d.refused(gate, CancelEffect{EffectID: id}, EffectInFlight)
	d.finishRun(id, 1, EffectFailed)
	d.refused(gate, run, GuardFailed, Approved)

	d.move(AwaitingApproval)
	second := d.request(deploy()).Approval
	if second == first {
		t.Fatal("a used approval was given again")
	}
	d.do(person, ResolveApproval{ID: second, Status: ApprovalApproved, By: "uid:1"})
	d.move(ReadyToResume)
	if d.run(id, EffectUncertain) != 2 {
		t.Error("not the second run")
	}
	d.refused(gate, run, EffectUnknown)
	d.refused(daemon, FinishRun{EffectID: id, Run: 2, State: EffectDone}, EffectUnknown)
	d.do(person, SettleEffect{EffectID: id, Outcome: EffectDone, Note: "looked"})
	if out := d.do(gate, run); !out.Replayed || out.Run != 2 {
		t.Errorf("outcome %+v", out)
	}
	d.refused(person, SettleEffect{EffectID: id, Outcome: EffectDone}, PhaseMismatch)
	d.move(Completed)

	// What was done is undone once, by the approval that it was done on.
	undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
	d.do(gate, undo)
	d.refused(gate, undo, EffectInFlight)
	d.finishRun(id, 3, EffectDone)
	if out := d.do(gate, undo); !out.Replayed || d.task.Effects[0].State != EffectDone {
		t.Errorf("outcome %+v", out)
	}
}

// An approval that ran out, was revoked, or was used counts for nothing, and the effect gets
// another one; one that was rejected does not. What was approved is bounded in time too.
func TestApprovalsRunOut(t *testing.T) {
	d := newDesk(t)
	d.to(AwaitingApproval, notify())
	id := d.task.Effects[0].ID
	run := RunEffect{EffectID: id, Digest: zero, TokenHash: "h"}
	first := d.request(notify()).Approval
	d.now = d.now.Add(time.Hour)
	d.refused(person, ResolveApproval{ID: first, Status: ApprovalApproved, By: "uid:1"}, PhaseMismatch)
	second := d.request(notify()).Approval
	d.do(person, ResolveApproval{ID: second, Status: ApprovalApproved, By: "uid:1"})
	d.move(ReadyToResume)
	d.now = d.now.Add(time.Hour)
	d.refused(gate, run, GuardFailed, Approved)
	d.move(AwaitingApproval)
	d.refused(lead, Move{From: AwaitingApproval, To: ReadyToResume}, GuardFailed, Approved)
	third := d.request(notify()).Approval
	d.do(person, ResolveApproval{ID: third, Status: ApprovalApproved, By: "uid:1"})
	d.do(person, ResolveApproval{ID: third, Status: ApprovalRevoked, By: "uid:1"})
	d.refused(lead, Move{From: AwaitingApproval, To: ReadyToResume}, GuardFailed, Approved)
	fourth := d.request(notify()).Approval
	d.do(person, ResolveApproval{ID: fourth, Status: ApprovalRejected, By: "uid:1"})
	if out := d.request(notify()); out.Approval != fourth || !out.Replayed || len(slices.Compact([]string{first, second, third, fourth})) != 4 {
		t.Errorf("after %v: %+v", []string{first, second, third, fourth}, out)
	}
}

// What failed can be undone too, once, wherever the task is by then.
func TestCompensationOfAFailure(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
	d.refused(gate, undo, PhaseMismatch)
	d.run(id, EffectFailed)
	d.move(Failed)
	wrong := undo
	wrong.Digest = sum(1)
	d.refused(gate, wrong, IdempotencyConflict)
	d.do(gate, undo)
	d.finishRun(id, 2, EffectFailed)
	if out := d.do(gate, undo); !out.Replayed || out.Run != 2 {
		t.Errorf("undone again: %+v", out)
	}
}

// Whether an effect may be undone can be asked anew, wherever the task is: by what was approved with
// it, once, and for nothing else.
func TestUndoingIsAskedForAnew(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	// The digest of the request is another one, as it is of another request.
	anew := func() RequestApproval {
		return RequestApproval{Undo: true, Planned: Planned{Key: "deploy"}, Digest: sum(8), Bound: jsontext.Value(`{"undo":1}`), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)}
	}
	d.refused(gate, anew(), PhaseMismatch)
	d.run(id, EffectFailed)
	undo := RunEffect{EffectID: id, Digest: sum(8), Compensation: true}
	d.refused(gate, undo, IdempotencyConflict)
	d.w.Rules.Approvers = 2
	old := undo
	old.Digest = zero
	d.refused(gate, old, GuardFailed, Approved)
	if err := d.try(gate, old); err == nil || !strings.Contains(err.Error(), "request-approval --undo") {
		t.Errorf("the refusal does not say what to do: %v", err)
	}
	first := d.do(gate, anew())
	if a := d.task.Approval(first.Approval); a.Undo != 1 || a.Needed != 2 || a.EffectID != id {
		t.Errorf("it is asked as %+v", a)
	}
	if out := d.do(gate, anew()); !out.Replayed || out.Approval != first.Approval {
		t.Errorf("asked again: %+v", out)
	}
	d.refused(gate, undo, GuardFailed, Approved)
	d.do(person, ResolveApproval{ID: first.Approval, Status: ApprovalApproved, By: "uid:1000", Needed: 2})
	// It is no approval of the effect, which failed and may be done again.
	d.refused(gate, RunEffect{EffectID: id, Digest: sum(8), TokenHash: "h"}, GuardFailed, Approved)
	d.do(gate, undo)
	d.finishRun(id, 2, EffectDone)
	if out := d.do(gate, undo); !out.Replayed || out.Run != 2 || !d.task.Approval(first.Approval).Used {
		t.Errorf("undone again: %+v", out)
	}
	d.refused(gate, anew(), PhaseMismatch)
	// What undid one run does not undo the next one.
	d.move(AwaitingApproval)
	second := d.request(deploy()).Approval
	d.do(person, ResolveApproval{ID: second, Status: ApprovalApproved, By: "uid:1000", Needed: 2})
	d.move(ReadyToResume)
	d.run(id, EffectDone)
	d.refused(gate, undo, IdempotencyConflict)
	d.move(Completed)
	d.w.Rules.Approvers = 3
	third := anew()
	third.Bound = jsontext.Value(`{"undo":3}`)
	d.do(gate, third)
	d.do(person, ResolveApproval{ID: third.ID, Status: ApprovalApproved, By: "uid:1000", Needed: 3})
	d.do(gate, undo)
}

// An approval to undo an effect that a row calls an approval of the effect starts nothing.
func TestApprovalToUndoIsNoOther(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	d.run(id, EffectFailed)
	out := d.do(gate, RequestApproval{Undo: true, Planned: Planned{Key: "deploy"}, Digest: sum(8), Bound: jsontext.Value(`{"undo":1}`), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)})
	d.do(person, ResolveApproval{ID: out.Approval, Status: ApprovalApproved, By: "uid:1000"})
	d.task.Approval(out.Approval).Undo = 0
	d.refused(gate, RunEffect{EffectID: id, Digest: sum(8), TokenHash: "h"}, IdempotencyConflict)
}

// What undid one run of an effect says nothing of the next one, which can be undone as well and
// does not begin while the other is being undone.
func TestEachRunIsUndone(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
	d.run(id, EffectFailed)
	d.move(AwaitingApproval)
	d.approve(&d.task.Effects[0])
	d.move(ReadyToResume)
	d.do(gate, undo)
	d.refused(gate, RunEffect{EffectID: id, Digest: zero}, EffectInFlight)
	d.finishRun(id, 2, EffectUncertain)
	d.refused(gate, RunEffect{EffectID: id, Digest: zero}, EffectUnknown)
	d.do(person, SettleEffect{EffectID: id, Outcome: EffectDone})
	if n := d.run(id, EffectDone); n != 3 {
		t.Fatalf("run %d", n)
	}
	if out := d.do(gate, undo); out.Replayed || out.Run != 4 {
		t.Errorf("the second run is undone by %+v", out)
	}
	d.refused(gate, undo, EffectInFlight)
	d.finishRun(id, 4, EffectDone)
	if out := d.do(gate, undo); !out.Replayed || out.Run != 4 {
		t.Errorf("undone again: %+v", out)
	}
}

// An effect that was asked about anew, or is planned as something else, is not undone by what
// was approved before.
func TestNoCompensationOfAnotherPlan(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	d.run(id, EffectFailed)
	d.move(AwaitingApproval)
	undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
	d.do(gate, RequestApproval{Planned: deploy(), Digest: sum(7), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)})
	d.refused(gate, undo, IdempotencyConflict)
	d.do(lead, CancelEffect{EffectID: id})
	other := deploy()
	other.Compensation = &Action{Argv: []string{"bin/other"}}
	d.do(lead, PlanEffect{Planned: other})
	d.refused(gate, undo, IdempotencyConflict)
}

// While an effect is being undone, it stays what it is: a runner that is told late is told of that.
func TestNothingChangesUnderARun(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	d.run(id, EffectFailed)
	d.do(gate, RunEffect{EffectID: id, Digest: zero, Compensation: true})
	anew := RequestApproval{Planned: deploy(), Digest: sum(7), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)}
	other := deploy()
	other.Compensation = &Action{Argv: []string{"bin/other"}}
	for _, code := range []Code{EffectInFlight, EffectUnknown} {
		d.task.Phase = AwaitingApproval
		d.refused(gate, anew, code)
		before := d.task
		d.do(lead, CancelEffect{EffectID: id})
		d.refused(lead, PlanEffect{Planned: other}, code)
		d.task = before
		d.finishRun(id, 2, EffectUncertain)
	}
}

// A request's digest names all that a person approves, and nothing that says nothing.
func TestRequestDigest(t *testing.T) {
	digest := func(change func(*Planned, *Bound)) string {
		p := deploy()
		p.Command = &Action{Argv: []string{"bin/deploy", "staging"}, Cwd: "sub", Env: map[string]string{"A": "1"}, EnvFrom: []string{"B"}, Stdin: "in", TimeoutS: 7}
		b := &Bound{Exe: Program{"/bin/deploy", "00"}, Inputs: []Input{{URI: "out.txt", Digest: sum(1)}}}
		change(&p, b)
		got, err := RequestDigest("tsk_1", &p, &BoundPair{Command: b, Compensation: &Bound{Exe: Program{"/bin/undo", "00"}}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*Planned, *Bound){
		"nothing":               func(*Planned, *Bound) {},
		"the key":               func(p *Planned, _ *Bound) { p.Key = "other" },
		"the kind":              func(p *Planned, _ *Bound) { p.Kind = "other" },
		"an argument":           func(p *Planned, _ *Bound) { p.Command.Argv[1] = "production" },
		"where arguments end":   func(p *Planned, _ *Bound) { p.Command.Argv = []string{"bin/deploy staging"} },
		"the folder":            func(p *Planned, _ *Bound) { p.Command.Cwd = "other" },
		"a variable":            func(p *Planned, _ *Bound) { p.Command.Env["A"] = "2" },
		"a variable's name":     func(p *Planned, _ *Bound) { p.Command.EnvFrom = []string{"C"} },
		"the input":             func(p *Planned, _ *Bound) { p.Command.Stdin = "other" },
		"the time":              func(p *Planned, _ *Bound) { p.Command.TimeoutS = 8 },
		"the program's path":    func(_ *Planned, b *Bound) { b.Exe.Path = "/bin/other" },
		"the program":           func(_ *Planned, b *Bound) { b.Exe.SHA256 = "01" },
		"a file's name":         func(_ *Planned, b *Bound) { b.Inputs[0].URI = "other" },
		"a file":                func(_ *Planned, b *Bound) { b.Inputs[0].Digest = sum(2) },
		"the word that it is":   func(_ *Planned, b *Bound) { b.Inputs[0].Argv = []Word{{Index: 1}} },
		"what else is named":    func(_ *Planned, b *Bound) { b.Named = []Named{{Path: "/work/in"}} },
		"what is in it":         func(_ *Planned, b *Bound) { b.Named = []Named{{Path: "/work/in", Digest: sum(1)}} },
		"how it is undone":      func(p *Planned, _ *Bound) { p.Compensation.Argv = []string{"bin/other"} },
		"that it can be undone": func(p *Planned, _ *Bound) { p.Compensation = nil },
	} {
		got := digest(change)
		if other, known := seen[got]; known {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[got] = name
	}
	external := func(change func(*Planned)) string {
		p := notify()
		change(&p)
		got, err := RequestDigest("tsk_1", &p, &BoundPair{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	one := external(func(*Planned) {})
	if one == external(func(p *Planned) { p.RequestedAction = "Tell all" }) || one == external(func(p *Planned) { p.Params = jsontext.Value(`{"to":"all"}`) }) {
		t.Error("another effect has the same digest")
	}
	if one != external(func(p *Planned) { p.Params = jsontext.Value("{ \"to\" : \"ops\" }") }) {
		t.Error("blanks make another digest")
	}
	p := notify()
	if other, err := RequestDigest("tsk_1", &p, &BoundPair{Salt: "s"}); err != nil || other == one {
		t.Errorf("with a salt the digest is %s, %v", other, err)
	}
	if other, err := RequestDigest("tsk_2", &p, &BoundPair{}); err != nil || other == one {
		t.Errorf("another task's effect has the digest %s, %v", other, err)
	}
}

// An external effect is finished by whoever has its token.
func TestExternalEffect(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, notify())
	id := d.task.Effects[0].ID
	d.w.Runner = false
	d.do(gate, RunEffect{Key: "notify", Digest: zero, TokenHash: "secret"})
	d.refused(gate, FinishRun{EffectID: id, Run: 1, State: EffectDone, Token: "guess"}, NotPermitted)
	d.refused(gate, FinishRun{EffectID: id, Run: 1, State: EffectDone}, NotPermitted)
	d.do(gate, FinishRun{EffectID: id, Run: 1, State: EffectDone, Token: "secret", Receipt: jsontext.Value(`{"id":7}`)})
	d.move(Completed)
}

// With the result that it was for, an approval goes.
func TestReworkEndsApprovals(t *testing.T) {
	d := newDesk(t)
	d.w.Rules.AskLate = true
	d.to(AwaitingApproval, deploy())
	d.do(gate, PlanEffect{Planned: notify()})
	approved := d.request(deploy()).Approval
	d.do(person, ResolveApproval{ID: approved, Status: ApprovalApproved, By: "uid:1"})
	changes := d.request(notify()).Approval
	d.do(person, ResolveApproval{ID: changes, Status: ApprovalChanges, By: "uid:1"})
	d.move(ExecutionReady)
	if a := d.task.Approval(approved); a.Status != ApprovalRevoked || !slices.Equal(d.last.Revoke, []string{approved}) {
		t.Errorf("approval %+v, of the requests end %q", a, d.last.Revoke)
	}
	if deploy, notify := d.task.EffectOf("deploy"), d.task.EffectOf("notify"); deploy.State != EffectPlanned || notify.State != EffectCancelled {
		t.Errorf("deploy is %s, notify is %s", deploy.State, notify.State)
	}
	d.start()
	d.move(Executing)
	other := notify()
	other.RequestedAction = "Tell somebody else"
	d.do(builder, PlanEffect{Planned: other})
	d.deliver(sum(2))
	d.move(SpecGate)
	d.review(checker, VerdictApproved)
	d.move(QualityGate)
	d.review(critic, VerdictApproved)
	d.move(AwaitingApproval)
	d.refused(lead, Move{From: AwaitingApproval, To: ExecutionReady}, GuardFailed, Changes)
	waiting := d.request(other).Approval
	d.move(Failed)
	if !slices.Contains(d.last.Revoke, waiting) || d.task.EffectOf("deploy").State != EffectCancelled {
		t.Errorf("outcome %+v", d.last)
	}
}

// A claim keeps other orchestrators away until it ends, and each write renews it.
func TestClaim(t *testing.T) {
	d := newDesk(t)
	d.to(SpecDraft)
	other := lead
	other.Name = "other"
	d.do(lead, Claiming{For: time.Minute})
	d.refused(other, Update{Priority: new(1)}, Claimed)
	d.refused(other, Claiming{For: time.Minute}, Claimed)
	d.now = d.now.Add(50 * time.Second)
	d.do(lead, Update{Priority: new(1)})
	d.now = d.now.Add(50 * time.Second)
	d.refused(other, Update{Priority: new(0)}, Claimed)
	d.now = d.now.Add(10 * time.Second)
	d.do(other, Claiming{For: time.Minute})
	d.refused(lead, Move{From: SpecDraft, To: SpecReview}, Claimed)
	d.do(other, Claiming{})
	d.move(SpecReview)
}

// Nobody reviews their own under another name either: not from the same process or one
// that it has started, and not by a grant of whoever did the work, or gave the work's.
func TestPrincipals(t *testing.T) {
	work := Principal{Name: "builder", Processes: []string{"b/7", "b/3", "b/1"}, Issuers: []string{"lead"}}
	for name, tc := range map[string]struct {
		who  Principal
		same bool
	}{
		"another":                     {Principal{Name: "critic", Processes: []string{"b/9", "b/2", "b/1"}}, false},
		"nothing known":               {Principal{Name: "critic"}, false},
		"the same process":            {Principal{Name: "critic", Processes: []string{"b/7", "b/3"}}, true},
		"started by it":               {Principal{Name: "critic", Processes: []string{"b/9", "b/7"}}, true},
		"has started it":              {Principal{Name: "critic", Processes: []string{"b/3", "b/1"}}, true},
		"the same pid, another boot":  {Principal{Name: "critic", Processes: []string{"a/7"}}, false},
		"by a grant of the worker's":  {Principal{Name: "critic", Processes: []string{"b/9"}, Issuers: []string{"builder"}}, true},
		"gave the worker its grant":   {Principal{Name: "lead", Processes: []string{"b/9"}}, true},
		"both by grants of one giver": {Principal{Name: "critic", Issuers: []string{"second", "lead"}}, true},
		"by a grant of another giver": {Principal{Name: "critic", Issuers: []string{"second"}}, false},
	} {
		if how, same := tc.who.Is(work); same != tc.same || same && how == "" {
			t.Errorf("%s: %v (%s)", name, same, how)
		}
		d := newDesk(t)
		d.to(QualityGate)
		d.task.Artifacts[0].Actor, d.task.Artifacts[0].By = work.Name, work
		reviewer := critic
		reviewer.Name, reviewer.By, reviewer.Seen = tc.who.Name, tc.who, d.task.Subject()
		c := AppendReview{Type: ReviewQuality, Verdict: VerdictApproved, AttemptID: d.task.CurrentAttempt}
		if !tc.same {
			d.do(reviewer, c)
			continue
		}
		d.refused(reviewer, c, SameActor)
		d.w.Rules.SharedPrincipals = true
		d.do(reviewer, c)
		if r := d.task.Reviews[len(d.task.Reviews)-1]; r.Shared == "" {
			t.Errorf("%s: the review does not say so", name)
		}
	}
}

// What an actor may not know, it gets no work of.
func TestClassification(t *testing.T) {
	d := newDesk(t)
	known := d.w.Known
	d.w.Known = func(name string) (Role, string, bool) {
		role, level, ok := known(name)
		if name == "builder" {
			level = "internal"
		}
		return role, level, ok
	}
	d.to(ExecutionReady)
	// Any text that is kept raises the task, and none that changes nothing.
	const level = "confidential"
	d.w.Raised = func() string { return level }
	d.do(lead, Claiming{})
	if d.task.Classification == level {
		t.Error("what changes nothing raises")
	}
	d.do(lead, Claiming{For: time.Minute})
	if d.task.Classification != level {
		t.Errorf("the task is %s", d.task.Classification)
	}
	d.w.Raised = nil
	d.refused(lead, StartAttempt{WorkerRef: "builder"}, Classified)
	d.refused(lead, IssueGrant{&Grant{Actor: "builder", Role: Executor}}, Classified)
}

// A grant ends with what it is for.
func TestGrants(t *testing.T) {
	d := newDesk(t)
	d.to(ExecutionReady)
	d.refused(lead, IssueGrant{&Grant{Actor: "builder", Role: Executor}}, GuardFailed, Leased)
	d.do(lead, StartAttempt{Runtime: "local", Executor: "builder"})
	if got := d.task.Running().Actor; got != "lead" {
		t.Errorf("the attempt is %s's", got)
	}
	g := &Grant{ID: "g", Actor: "builder", Role: Executor}
	d.do(lead, IssueGrant{g})
	if g.AttemptID == "" || g.Fence != 1 || d.task.Running().Actor != "builder" {
		t.Errorf("grant %+v", g)
	}
	d.refused(lead, IssueGrant{&Grant{Actor: "other", Role: Executor}}, NotPermitted)
	d.move(Executing)
	if g.Ended(d.task) {
		t.Error("it ended early")
	}
	d.deliver(sum(1))
	if !g.Ended(d.task) {
		t.Error("it outlives its attempt")
	}
	d.move(SpecGate)
	r := &Grant{ID: "r", Actor: "checker", Role: SpecReviewer}
	d.do(lead, IssueGrant{r})
	if r.Ended(d.task) {
		t.Error("it ended early")
	}
	d.move(ExecutionReady)
	d.move(SpecDraft)
	if !r.Ended(d.task) {
		t.Error("it outlives its subject")
	}
}

// Another tenant's task is not there, and an executor's own is all it sees.
func TestMay(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	foreign := lead
	foreign.Tenant = "globex"
	d.refused(foreign, Update{Priority: new(1)}, Absent)
	for _, test := range []struct {
		who Actor
		ok  bool
	}{
		{lead, true}, {person, true}, {builder, true}, {checker, true}, {critic, false}, {gate, false},
		{Actor{Name: "other", Role: SpecReviewer, Tenant: "acme"}, false},
		{Actor{Name: "other", Role: Executor, Tenant: "acme"}, false},
		{Actor{Name: "checker", Role: SpecReviewer, Tenant: "acme", Grant: &Grant{TaskID: d.task.ID}}, true},
		{Actor{Name: "checker", Role: SpecReviewer, Tenant: "acme", Grant: &Grant{TaskID: "tsk_other"}}, false},
	} {
		if got := d.task.May(&test.who) == nil; got != test.ok {
			t.Errorf("%s: %v", test.who.Name, got)
		}
	}
}
