package task

import (
	"strings"
	"testing"
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
