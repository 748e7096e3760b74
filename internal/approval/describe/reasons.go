package describe

import (
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// LikelyOf is the likelihood of a commitment, with its reasons.
func LikelyOf(a *api.ApprovalSummary) string {
	return Likely(ocip.Guess{Likelihood: a.Likelihood, LikelyBecause: a.LikelyBecause, Chance: a.Chance})
}

// ChanceOf is the likelihood of a commitment, with the estimate behind it.
func ChanceOf(a *api.ApprovalSummary) string {
	return Likely(ocip.Guess{Likelihood: a.Likelihood, Chance: a.Chance})
}

// ReasonOf is the reason for which a message waits. If it is held for its words, that is a sentence
// with the words; the names of the rules stand beside the text.
func ReasonOf(a *api.Approval, g *ocip.Ground) string {
	if g.Likelihood == "" {
		return strings.TrimSuffix(string(g.Code)+": "+g.Reason, ": ")
	}
	return HeldWords(a.Content, a.Detections)
}
