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

// Signers knows the people who may sign decisions.
type Signers interface {
	// Verify checks an armored SSH signature over a text and returns the principal who made it and
	// the fingerprint of the key. The person who decides sees its error.
	Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error)
}

// recount drops approvals that do not count any more: their people were removed from the list of
// signers, or never signed, or the list has them as the same person by now.
func recount(a *api.Approval, signers Signers) {
	if signers == nil {
		return
	}
	var stand []api.ApprovalDecision
	for _, given := range a.Approvals {
		name, _, err := signers.Verify([]byte(given.Signature), []byte(api.SignedNote(api.SignedApproval(a, given.Exchange), given.Note)), time.UnixMilli(given.At))
		// The list may name the key otherwise by now.
		if given.By = name; err == nil && others(stand, &given) == len(stand) {
			stand = append(stand, given)
		}
	}
	a.Approvals, a.Given = stand, len(stand)
}

// Stands reports whether enough approvers of a request may sign now.
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

// others counts the approvals of people other than the one who decides now.
func others(approvals []api.ApprovalDecision, by *api.ApprovalDecision) (n int) {
	for i := range approvals {
		if !same(&approvals[i], by) {
			n++
		}
	}
	return n
}

// same reports whether two decisions are by one person. Everybody whose line in the list of signers
// has a pattern in place of a name is the same unnamed person.
func same(a, b *api.ApprovalDecision) bool {
	unnamed := func(by *api.ApprovalDecision) bool { return by.Fingerprint != "" && strings.ContainsAny(by.By, "*?") }
	return a.By == b.By || a.Fingerprint != "" && a.Fingerprint == b.Fingerprint || unnamed(a) && unnamed(b)
}

// People returns how many people approved a release, from the record of the decision.
func People(decided *audit.Entry) int {
	given, _ := decided.Details["approvals"].([]any)
	return max(len(given), 1)
}

// StillSigned reports whether everybody whose signature released something may still sign, and has
// signed the release. The texts are made from the request, which must be the one that the record of
// the decision names. Without signers it is always true.
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

// letsGo returns the text that a person signs for a decision that releases a request's subject, and
// reports whether the decision does that. Signed is the text on record: a takeover with a text of
// one's own signs a digest of it, which cannot be computed once the salt is forgotten.
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
