package task

import "slices"

// Principal is the principal behind an actor's name: the connected process, the processes that
// started it, and the givers of its grants.
type Principal struct {
	Name      string   `json:"name"`
	Processes []string `json:"processes,omitempty"`
	Issuers   []string `json:"issuers,omitempty"`
}

// Is reports whether two principals may be one: they have the same name, one of them
// speaks from the other's process or from one that this has started, one acts by a grant
// that the other has given, or both act by grants of the same giver. How says which.
func (p Principal) Is(q Principal) (how string, same bool) {
	switch {
	case p.Name == q.Name:
		return "it is the same actor", true
	case slices.Contains(p.Issuers, q.Name):
		return q.Name + " gave it its grant", true
	case slices.Contains(q.Issuers, p.Name):
		return "it gave " + q.Name + " its grant", true
	}
	if p.startedBy(q) || q.startedBy(p) {
		return "it speaks from the same process as " + q.Name + ", or one started the other", true
	}
	for _, name := range p.Issuers {
		if slices.Contains(q.Issuers, name) {
			return name + " gave both their grants", true
		}
	}
	return "", false
}

// startedBy reports whether p speaks from q's process, or from one that it has started.
func (p Principal) startedBy(q Principal) bool {
	return len(q.Processes) > 0 && slices.Contains(p.Processes, q.Processes[0])
}

// with adds a principal to those that are there, once.
func with(list []Principal, p Principal) []Principal {
	if p.Name == "" || slices.ContainsFunc(list, func(q Principal) bool {
		return q.Name == p.Name && slices.Equal(q.Processes, p.Processes) && slices.Equal(q.Issuers, p.Issuers)
	}) {
		return list
	}
	return append(slices.Clone(list), p)
}

// MayApprove refuses the approval by whoever asked for it, under a name or a user id.
func (t *Task) MayApprove(id, name, uid string) error {
	if a := t.Approval(id); a != nil && (a.RequestedBy == name || a.RequestedBy == uid) {
		return refuse(SelfApproval, "%s asked for it, so somebody else has to approve", name)
	}
	return nil
}
