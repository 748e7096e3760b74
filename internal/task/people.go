package task

import "fmt"

// People is how many people must approve what the policy has answered so about, nil where it was
// not asked: what it wants, or what the configuration wants (approvals.required), whichever is
// more, and one at the least. It is asked for when a request is made, at each preview of it, and
// once more when what was approved starts or is handed over.
func (r *Rules) People(policy *Answer) int {
	if policy == nil {
		return max(1, r.Approvers)
	}
	return max(1, r.Approvers, policy.Approvers)
}

// tooFew is why nothing starts by an approval that fewer people gave than have to by now, nil
// where they are enough.
func (d *draft) tooFew(q *Question, a *Approval) *Refusal {
	took := max(1, a.Needed)
	needed := d.w.Rules.People(d.out.Policy)
	if took >= needed {
		return nil
	}
	then := "revoke that one, and ask anew"
	if q.Compensation {
		then = "what undoes an effect is approved with it alone, so let a person undo it, or have fewer people needed"
	}
	if wanted := d.out.Policy; wanted != nil && wanted.Approvers > took {
		return d.policyRefuses(q, fmt.Sprintf("it wants %d people to approve by now, and approval %s took %d: %s", wanted.Approvers, a.ID, took, then))
	}
	r := refuse(GuardFailed, "%d people have to approve by now (approvals.required), and approval %s took %d: %s", needed, a.ID, took, then)
	r.Guards, r.Answer = []Guard{Approved}, d.out.Policy
	return r
}
