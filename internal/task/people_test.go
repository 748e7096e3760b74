package task

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/ids"
)

// An effect takes the people of the policy or of the configuration, whichever are more, when it
// is asked about and when it starts, and so does what undoes it. What was approved counts for as
// many as it took.
func TestEffectTakesEnoughPeople(t *testing.T) {
	for _, tt := range []struct {
		name           string
		policy, config int
		took           int
		want           Code
		message        string
	}{
		{name: "one", took: 1},
		{name: "as many as required", config: 2, took: 2},
		{name: "required by the configuration", config: 2, took: 1, want: GuardFailed, message: "2 people have to approve by now (approvals.required)"},
		{name: "wanted by the policy", policy: 2, config: 3, took: 1, want: PolicyDenied, message: "it wants 2 people to approve by now"},
		{name: "more than the policy wants", policy: 2, config: 3, took: 2, want: GuardFailed, message: "3 people have to approve by now"},
	} {
		for _, compensation := range []bool{false, true} {
			d := newDesk(t)
			d.to(AwaitingApproval, deploy())
			e := d.task.Effects[0]
			d.do(person, ResolveApproval{ID: d.request(e.Planned).Approval, Status: ApprovalApproved, By: "uid:1000", Needed: tt.took})
			d.move(ReadyToResume)
			if compensation {
				d.run(e.ID, EffectFailed)
			}
			d.w.Rules.Approvers = tt.config
			d.w.Ask = func(Question) Answer { return Answer{Allow: true, Approvers: tt.policy} }
			start := RunEffect{EffectID: e.ID, Digest: zero, Compensation: compensation}
			if tt.want == "" {
				d.do(gate, start)
				continue
			}
			d.refused(gate, start, tt.want, Approved)
			then := "revoke that one, and ask anew"
			if compensation {
				then = "ask whether it may be undone"
			}
			if err := d.try(gate, start); !strings.Contains(err.Error(), tt.message) || !strings.Contains(err.Error(), then) {
				t.Errorf("%s, of the compensation %v: it is refused with %q", tt.name, compensation, err)
			}
		}
	}
	d := newDesk(t)
	d.to(AwaitingApproval, deploy())
	d.w.Rules.Approvers = 2
	d.w.Ask = func(Question) Answer { return Answer{Allow: true, Approvers: 3} }
	if a := d.task.Approval(d.request(d.task.Effects[0].Planned).Approval); a.Needed != 3 {
		t.Errorf("asked about by %+v", a)
	}
}

// A run whose command has not begun ends without it if a person wants it ended, if its approvers may
// not sign any more, or if the policy or the required people have changed since its start. A person
// is heard also without a runner.
func TestCommandBeginsWhileItsRunMayStart(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(d *desk, id string)
		unsigned bool
		message  string
	}{
		{name: "nothing has changed", change: func(*desk, string) {}},
		{name: "killed without a runner", message: "a person wants it ended", change: func(d *desk, id string) {
			d.w.Runner = false
			d.do(person, KillRun{EffectID: id, Reason: "stop"})
		}},
		{name: "signers", unsigned: true, message: "not enough of those who gave it", change: func(*desk, string) {}},
		{name: "policy", message: "frozen", change: func(d *desk, _ string) {
			d.w.Ask = func(q Question) Answer {
				if q.Actor != gate.Name || q.ActorAs != gate.Role {
					t.Errorf("asked about %+v", q)
				}
				return Answer{Reason: "frozen"}
			}
		}},
		{name: "removed actor", message: "gate is not configured as it was", change: func(d *desk, _ string) {
			d.w.Known = func(string) (Role, string, bool) { return "", "", false }
			d.w.Ask = func(Question) Answer { return Answer{Allow: true} }
		}},
		{name: "another role", message: "gate is not configured as it was", change: func(d *desk, _ string) {
			d.w.Known = func(string) (Role, string, bool) { return Orchestrator, "restricted", true }
		}},
		{name: "people", message: "2 people have to approve by now", change: func(d *desk, _ string) {
			d.w.Rules.Approvers = 2
			d.w.Ask = func(Question) Answer { return Answer{Allow: true} }
		}},
	} {
		for _, compensation := range []bool{false, true} {
			d := newDesk(t)
			d.to(AwaitingApproval, deploy())
			e := d.task.Effects[0]
			d.do(person, ResolveApproval{ID: d.request(e.Planned).Approval, Status: ApprovalApproved, By: "uid:1000"})
			d.move(ReadyToResume)
			run := 1
			if compensation {
				d.run(e.ID, EffectDone)
				run = 2
			}
			d.do(gate, RunEffect{EffectID: e.ID, Digest: zero, Compensation: compensation})
			tt.change(d, e.ID)
			begin := BeginRun{EffectID: e.ID, Run: run, Process: "7@1", Signed: !tt.unsigned}
			out := d.do(daemon, begin)
			r := out.Task.Effect(e.ID).Run(run)
			if tt.message == "" {
				if r.State != EffectStarted || len(out.Events) != 1 || out.Events[0].Details == nil || !d.do(daemon, begin).Replayed {
					t.Errorf("%s: %+v, %+v", tt.name, r, out.Events)
				}
				continue
			}
			if r.State != EffectFailed || !strings.Contains(string(r.Receipt), tt.message) || len(out.Events) != 1 || !strings.Contains(out.Events[0].Reason, tt.message) || out.Policy != nil {
				t.Errorf("%s, of the compensation %v: %+v %s, %+v", tt.name, compensation, r, r.Receipt, out)
			}
			d.refused(daemon, begin, PhaseMismatch)
		}
	}
}

// The parameters of an effect are compared and shown in the form of the database.
func TestParametersAreCompact(t *testing.T) {
	d := newDesk(t)
	p := notify()
	p.Params = []byte("{ \"to\": \"ops\" }")
	d.to(AwaitingApproval, p)
	if got := string(d.task.Effects[0].Params); got != `{"to":"ops"}` {
		t.Errorf("planned is %s", got)
	}
}

// The approval of a run also lets it be undone, until its undoing begins. A person can take that
// back, and a restoration does: the run may have been undone since the copy was made.
func TestPermissionToUndoIsTakenBack(t *testing.T) {
	takes := map[string]func(d *desk, id string) string{
		"a person": func(d *desk, id string) string {
			d.do(person, ResolveApproval{ID: id, Status: ApprovalRevoked, By: "uid:1000"})
			return ApprovalRevoked
		},
		"a restoration": func(d *desk, _ string) string {
			d.do(daemon, Restored{})
			return ApprovalRevoked
		},
		"the end of the task": func(d *desk, _ string) string {
			d.move(Failed)
			return ApprovalApproved
		},
	}
	for who, take := range takes {
		d := newDesk(t)
		d.to(ReadyToResume, deploy())
		e := d.task.Effects[0]
		d.run(e.ID, EffectFailed)
		id := d.task.Effects[0].Runs[0].ApprovalID
		want := take(d, id)
		if a := d.task.Approval(id); a.Status != want || !a.Used {
			t.Errorf("by %s the approval is %+v", who, a)
		}
		undo := RunEffect{EffectID: e.ID, Digest: zero, Compensation: true}
		if want == ApprovalApproved {
			d.do(gate, undo)
			d.refused(person, ResolveApproval{ID: id, Status: ApprovalRevoked, By: "uid:1000"}, PhaseMismatch)
			continue
		}
		d.refused(gate, undo, GuardFailed, Approved)
		anew := RequestApproval{Undo: true, Planned: Planned{Key: "deploy"}, Digest: sum(8), Bound: jsontext.Value(`{"undo":1}`), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)}
		d.do(gate, anew)
		d.do(person, ResolveApproval{ID: anew.ID, Status: ApprovalApproved, By: "uid:1000"})
		undo.Digest = sum(8)
		d.do(gate, undo)
	}
	// While the run is under way, there is nothing to take back, but a copy of that state may be old.
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	e := d.task.Effects[0]
	d.do(gate, RunEffect{EffectID: e.ID, Digest: zero})
	id := d.task.Effects[0].Runs[0].ApprovalID
	d.refused(person, ResolveApproval{ID: id, Status: ApprovalRevoked, By: "uid:1000"}, PhaseMismatch)
	// The command may have begun and ended since, so nobody lets it begin, and a person settles the run.
	d.do(daemon, Restored{})
	if r := d.task.Effects[0].Runs[0]; r.State != EffectUncertain || r.Evidence == "" {
		t.Errorf("the run is %+v", r)
	}
	d.refused(daemon, BeginRun{EffectID: e.ID, Run: 1, Process: "7@1", Signed: true}, PhaseMismatch)
	d.do(person, SettleEffect{EffectID: e.ID, Outcome: EffectDone, Note: "looked"})
	d.refused(gate, RunEffect{EffectID: e.ID, Digest: zero, Compensation: true}, GuardFailed, Approved)
}
