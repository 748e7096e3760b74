package api

import (
	"fmt"
	"slices"
	"strings"
)

// TextToSign returns the text that a signature for a decision covers, with the person's own
// text and the note unless they are empty. It derives the text from the shown message, so a
// daemon cannot have another text signed.
func (a *Approval) TextToSign(decision, content, note string, exchange *Bounds) (string, error) {
	text := SignedText(a.ApprovalID, decision, a.Digest)
	offered := DecisionsOf(a.Kind)
	switch {
	case !slices.Contains(offered, decision):
		return "", fmt.Errorf("cannot sign: %s is no decision about approval %s: want one of %s", decision, a.ApprovalID, strings.Join(offered, ", "))
	case a.ToSign[decision] == text && content != "":
		text = SignedContent(text, a.Salt, content)
	case a.ToSign[decision] == text && exchange != nil:
		text = SignedApproval(a, exchange)
	case a.ToSign[decision] != text:
		return "", fmt.Errorf("cannot sign: what the daemon wants signed to %s is not about approval %s and digest %s", decision, a.ApprovalID, a.Digest)
	}
	return SignedNote(text, note), nil
}
