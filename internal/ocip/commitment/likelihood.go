package commitment

import (
	"slices"
	"strings"
)

// likelihoods weighs what was found by how often it was a commitment on texts
// that people have judged. A name of the thirteen weighs as all others.
var likelihoods = map[string]float64{
	Acceptance: 3, Pledge: 3, FirstPersonFuture: 2, Money: 2, Done: 2,
	German: 1, Spanish: 1, French: 1, Italian: 1, Japanese: 1, Dutch: 1, Portuguese: 1, Chinese: 1,
	Prefixed: .5, Derived: .5, NextStep: 0, Unreadable: 0,
}

const (
	keywordLikelihood = .5
	outputLikelihood  = -3
)

// Likelihood says how likely what was found in a message is a commitment, by the
// names of its hits (see [Hit.Name]) that are not shadow and by what its content
// looks like. It is for the order in which people look at messages, with the
// reason in words, and for nothing else: what is unlikely is held as well.
func Likelihood(names []string, content string) (score float64, reason string) {
	var because []string
	keyword := false
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if weight, family := likelihoods[name]; family {
			score += weight
			because = append(because, name)
		} else if !keyword {
			keyword = true
			score += keywordLikelihood
			because = append(because, "keyword")
		}
	}
	if looksLikeOutput(content) {
		score += outputLikelihood
		because = append(because, "looks like the output of a tool")
	}
	return score, strings.Join(because, ", ")
}

// maxWritten is how long a message is that people write to each other.
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
