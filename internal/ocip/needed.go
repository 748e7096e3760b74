package ocip

// PeopleNeeded returns the number of people who must approve a message, a tool call or an effect:
// the number of the policy or of the configuration (approvals.required), whichever is larger, and
// at least one. Callers use it when they make a request, at each preview of the request, and once
// more before the approved thing starts or is handed over.
func PeopleNeeded(policy, required int) int { return max(1, policy, required) }
