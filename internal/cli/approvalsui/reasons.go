package approvalsui

import (
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
)

// likelyOf is the likelihood of a commitment, with its reasons.
func likelyOf(a *api.ApprovalSummary) string {
	return cli.Likely(ocip.Guess{Likelihood: a.Likelihood, LikelyBecause: a.LikelyBecause, Chance: a.Chance})
}

// chanceOf is the likelihood of a commitment, with the estimate behind it.
func chanceOf(a *api.ApprovalSummary) string {
	return cli.Likely(ocip.Guess{Likelihood: a.Likelihood, Chance: a.Chance})
}

// reasonOf is the reason for which a message waits. If it is held for its words, that is a sentence
// with the words; the names of the rules stand beside the text.
func reasonOf(a *api.Approval, g *ocip.Ground) string {
	if g.Likelihood == "" {
		return strings.TrimSuffix(string(g.Code)+": "+g.Reason, ": ")
	}
	return cli.HeldWords(a.Content, a.Detections)
}
