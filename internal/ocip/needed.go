package ocip

// PeopleNeeded is how many people must approve a message, a tool call or an effect: the number of
// the policy or that of the configuration (approvals.required), whichever is larger, and at least
// one. A caller asks for it when it makes a request, at each preview of the request, and once more
// before the approved thing starts or is handed over.
func PeopleNeeded(policy, required int) int { return max(1, policy, required) }
