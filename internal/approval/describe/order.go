package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Rank orders requests by likelihood: first those that are not held by a guess alone, and then the
// likeliest.
func Rank(a *api.ApprovalSummary) int {
	const guessed = 1000 // more than all ranks of those that a rule holds
	// A request of an earlier version has no chance, and goes after the others of its likelihood.
	likely := 200*slices.Index(commitment.Likelihoods(), a.Likelihood) + 100 - a.Chance
	if !slices.ContainsFunc(a.Grounds(), func(g ocip.Ground) bool { return g.Likelihood == "" }) {
		return guessed + likely
	}
	if a.Likelihood == "" {
		return 200*len(commitment.Likelihoods()) - 201 // between an unlikely commitment and a likely one
	}
	return likely
}

// Why says briefly why a request waits. An escalation waits for a person to look at it,
// and a delivery for a person to say whether it was sent.
func Why(a *api.ApprovalSummary) string {
	switch a.Kind {
	case api.ApprovalOfEscalation:
		return "yours to answer"
	case api.ApprovalOfDelivery:
		return "sent or not?"
	}
	var words []string
	for _, g := range a.Grounds() {
		if word := Word(g.Code); !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// Codes lists the codes of all grounds of a request.
func Codes(a *api.ApprovalSummary) string {
	var codes []string
	for _, g := range a.Grounds() {
		codes = append(codes, string(g.Code))
	}
	return strings.Join(codes, " ")
}

// Word describes a code in a word.
func Word(code ocip.Code) string {
	switch code {
	case ocip.CommitmentRequiresHuman:
		return "commitment"
	case ocip.RoundLimit:
		return "round limit"
	case ocip.ChainLimit:
		return "chain limit"
	case ocip.PolicyRequiresApproval:
		return "policy"
	default:
		return strings.ReplaceAll(strings.ToLower(string(code)), "_", " ")
	}
}

// TaskOf names the task that a request is of: by its title, or by its id.
func TaskOf(a *api.ApprovalSummary) string {
	if a.TaskID == "" {
		return ""
	}
	return cmp.Or(a.Target, a.TaskID)
}

// Unlikely reports whether a message is held by guesses alone, and none of them finds a commitment
// likely.
func Unlikely(a *api.ApprovalSummary) bool {
	return a.Likelihood == commitment.Low && !slices.ContainsFunc(a.Grounds(), func(g ocip.Ground) bool { return g.Likelihood != commitment.Low })
}

// Like returns a key that requests have in common if a person needs to read only one of them: those
// of the same agent, counterparty, reason, likelihood, first line and state. Pending ones that are
// Unlikely to commit anybody need not have the same first line.
func Like(a *api.ApprovalSummary) string {
	summary := a.Summary
	if a.State == api.ApprovalPending && Unlikely(a) {
		summary = ""
	}
	return fmt.Sprintf("%q", []string{a.Agent, a.To(), Codes(a), summary, a.State, string(a.Likelihood)})
}
