package task

import (
	"fmt"

	"github.com/openclawos/ocipd/internal/ocip"
)

// People is [ocip.PeopleNeeded] for an answer of the policy, nil if the policy was not asked.
func (r *Rules) People(policy *Answer) int {
	if policy == nil {
		return ocip.PeopleNeeded(0, r.Approvers)
	}
	return ocip.PeopleNeeded(policy.Approvers, r.Approvers)
}

// askUndo is the advice for a run whose approval does not cover its undoing.
const askUndo = "ask whether it may be undone (task.request_approval with undo, ocipd task request-approval --undo)"

// tooFew is the refusal of a start whose approval fewer people gave than are needed now, nil if
// enough people gave it.
func (d *draft) tooFew(q *Question, a *Approval) *Refusal {
	took := max(1, a.Needed)
	needed := d.w.Rules.People(d.out.Policy)
	if took >= needed {
		return nil
	}
	then := "revoke that one, and ask anew"
	if q.Compensation && a.Undo == 0 {
		then = askUndo
	}
	if wanted := d.out.Policy; wanted != nil && wanted.Approvers > took {
		return d.policyRefuses(q, fmt.Sprintf("it wants %d people to approve by now, and approval %s took %d: %s", wanted.Approvers, a.ID, took, then))
	}
	r := refuse(GuardFailed, "%d people have to approve by now (approvals.required), and approval %s took %d: %s", needed, a.ID, took, then)
	r.Guards, r.Answer = []Guard{Approved}, d.out.Policy
	return r
}
