// Package ids has the form of the ids that the daemon gives to a task and to things that belong to
// it: a prefix for the kind of thing that the id names, and a UUID in lower case.
package ids

import "strings"

// The prefixes say what kind of thing an id names.
const (
	Task     = "tsk_"
	Attempt  = "att_"
	Review   = "rev_"
	Artifact = "art_"
	Approval = "apr_"
	Effect   = "eff_"
	Grant    = "grt_"
	// Token begins the token of a grant.
	Token = "ocg_"
)

// idForm is the form of a UUID; x stands for a digit.
const idForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"

// Is reports whether a text is an id with that prefix.
func Is(prefix, id string) bool {
	id, ok := strings.CutPrefix(id, prefix)
	if !ok || len(id) != len(idForm) {
		return false
	}
	for i := range len(id) {
		if c := id[i]; idForm[i] == '-' && c != '-' || idForm[i] == 'x' && !strings.Contains("0123456789abcdef", string(c)) {
			return false
		}
	}
	return true
}
