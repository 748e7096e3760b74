package commitment

import (
	"maps"
	"slices"
	"strings"
)

// weights gives each finding the frequency with which it was a commitment in texts that people have
// judged. All keywords have the same weight.
var weights = map[string]float64{
	Acceptance: 3, Pledge: 3, FirstPersonFuture: 2, Money: 2, Done: 2,
	German: 1, Spanish: 1, French: 1, Italian: 1, Japanese: 1, Dutch: 1, Portuguese: 1, Chinese: 1,
	Evidence: 1, Prefixed: .5, Derived: .5, NextStep: 0, Unreadable: 0,
}

const (
	keywordWeight   = .5
	performedWeight = 1
	outputWeight    = -3
)

// performed is the reason for a keyword with which its sender does the deed itself: "I promise",
// and neither "he promised" nor "shall I promise?".
const performed = "keyword in the first person"

// Likelihood estimates whether a message that is held for its words binds somebody.
type Likelihood string

// The likelihoods. docs/reference/detection.md gives the share of commitments for each, among the
// messages of the benchmark that people have not used to tune the rules.
const (
	High   Likelihood = "high"
	Medium Likelihood = "medium"
	Low    Likelihood = "low"
)

// Likelihoods lists them, the highest first.
func Likelihoods() []Likelihood { return []Likelihood{High, Medium, Low} }

// The least weight of a message for each likelihood.
const (
	highWeight   = 2
	mediumWeight = 1
)

// LikelihoodOf estimates whether the findings in a message are a commitment, by the hits that are
// not shadow and by the appearance of its content. It serves only to order the messages for people,
// with the reason in words: an unlikely message is held as well.
func LikelihoodOf(hits []Hit, content string) (likelihood Likelihood, reason string) {
	found := make(map[string]float64)
	for _, h := range hits {
		weight, family := weights[h.Rule]
		switch {
		case h.Shadow:
		case family:
			found[h.Rule] = weight
		case h.performs(content):
			found[performed] = performedWeight
		default:
			found[RuleKeyword] = keywordWeight
		}
	}
	if _, said := found[performed]; said {
		delete(found, RuleKeyword)
	}
	because, weighs := slices.Sorted(maps.Keys(found)), 0.
	for _, weight := range found {
		weighs += weight
	}
	if looksLikeOutput(content) {
		weighs += outputWeight
		because = append(because, "looks like the output of a tool")
	}
	likelihood = Low
	switch {
	case weighs >= highWeight:
		likelihood = High
	case weighs >= mediumWeight:
		likelihood = Medium
	}
	return likelihood, strings.Join(because, ", ")
}

// performs reports whether the hit is a keyword in its base form after "I" or "we", in the
// message's own words, and not after a word that asks.
func (h *Hit) performs(content string) bool {
	if h.Member != "" || h.Zone != ZoneBody || h.End > len(content) || h.Start < 0 || h.Start >= h.End || !strings.EqualFold(content[h.Start:h.End], h.Keyword) {
		return false
	}
	// Only a few words before it matter.
	words := strings.Fields(strings.ToLower(content[max(0, h.Start-64):h.Start]))
	n := len(words)
	if n == 0 || words[n-1] != "i" && words[n-1] != "we" {
		return false
	}
	return n == 1 || !slices.Contains([]string{"can", "could", "shall", "should", "may", "might", "do", "did", "must", "would", "will", "if", "unless", "before", "when"}, words[n-2])
}

// maxWritten bounds the length of a message that people write to each other.
const maxWritten = 4000

// looksLikeOutput reports whether a text is more likely the output of a tool, a
// page or a file than written for its reader.
func looksLikeOutput(content string) bool {
	content = strings.TrimSpace(content)
	for _, begin := range [...]string{"{", "[", "<", "```", "exitcode", "Traceback", "diff --git", "$ ", "#!"} {
		if strings.HasPrefix(content, begin) {
			return true
		}
	}
	return len(content) > maxWritten || strings.Contains(content, "Traceback (most recent call last)") || strings.Count(content, "```") >= 4
}
