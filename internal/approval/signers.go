package approval

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
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

// Stands reports whether enough of those who approved a request may sign now.
func (c *Decider) Stands(ctx context.Context, id string) (bool, error) {
	if c.Signers == nil {
		return true, nil
	}
	r, err := c.Get(ctx, id)
	if err != nil {
		return false, err
	}
	recount(&r.Approval, c.Signers)
	return r.Given >= max(1, r.Needed), nil
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

// People is how many people approved what was let go, as the record of that has it.
func People(decided *audit.Entry) int {
	given, _ := decided.Details["approvals"].([]any)
	return max(len(given), 1)
}

// StillSigned reports whether everybody whose signature let something go may sign now, and
// has signed that it goes: the texts are made of what is known of the request, which must be
// the one that the record of the decision names. Without signers nobody has to.
func (c *Decider) StillSigned(ctx context.Context, decided *audit.Entry) (bool, error) {
	if c.Signers == nil {
		return true, nil
	}
	r, err := c.Get(ctx, decided.ApprovalID)
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Code == api.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	by := r.Decision
	if by == nil || r.ApprovalID != decided.ApprovalID || decided.Details["digest"] != r.Digest || decided.Details["signature"] != by.Signature {
		return false, nil
	}
	if !slices.ContainsFunc(r.Approvals, func(given api.ApprovalDecision) bool { return given.Signature == by.Signature }) {
		r.Approvals = append(r.Approvals, *by)
	}
	words, _ := decided.Details["signedText"].(string)
	return !slices.ContainsFunc(r.Approvals, func(given api.ApprovalDecision) bool {
		text, lets := r.letsGo(&given, words)
		_, _, err := c.Signers.Verify([]byte(given.Signature), []byte(text), time.UnixMilli(given.At))
		return !lets || err != nil
	}), nil
}

// letsGo is the text that somebody signs whose decision lets the subject of a request go, and
// reports whether the decision does. Signed is the text on record: who takes over in words of
// their own signs a digest of them, which nobody can make once their salt is forgotten.
func (r *Request) letsGo(given *api.ApprovalDecision, signed string) (text string, lets bool) {
	switch given.Decision {
	case api.DecideApprove:
		return api.SignedNote(api.SignedApproval(&r.Approval, given.Exchange), given.Note), true
	case api.DecideTakeover:
		text = api.SignedText(r.ApprovalID, given.Decision, r.Digest)
		if words, ok := strings.CutPrefix(signed, text); ok && strings.HasPrefix(words, "content ") {
			line, _, _ := strings.Cut(words, "\n")
			text += line + "\n"
		}
		return api.SignedNote(text, given.Note), true
	}
	return "", false
}
