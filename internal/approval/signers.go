package approval

import (
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// Signers knows who may decide with a signature.
type Signers interface {
	// Verify checks an armored SSH signature over a text and returns the
	// principal who made it and the fingerprint of the key. Its error is shown
	// to whoever decides.
	Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error)
}

// recount drops the approvals that count no longer: of whoever was taken off the
// list of signers since, or never signed.
func recount(a *api.Approval, signers Signers) {
	if signers == nil {
		return
	}
	a.Approvals = slices.DeleteFunc(a.Approvals, func(given api.ApprovalDecision) bool {
		_, _, err := signers.Verify([]byte(given.Signature), []byte(api.SignedNote(api.SignedApproval(a, given.Exchange), given.Note)), time.UnixMilli(given.At))
		return err != nil
	})
	a.Given = len(a.Approvals)
}

// others counts the approvals that are of other people than who decides now.
func others(approvals []api.ApprovalDecision, by *api.ApprovalDecision) (n int) {
	for i := range approvals {
		if !same(&approvals[i], by) {
			n++
		}
	}
	return n
}

// same reports whether two decisions are of one person.
func same(a, b *api.ApprovalDecision) bool {
	return a.By == b.By || a.Fingerprint != "" && a.Fingerprint == b.Fingerprint
}
