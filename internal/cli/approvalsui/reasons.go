package approvalsui

import (
	"slices"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// likelyOf is the likelihood of a commitment, with its reasons. Names of rules are none.
func likelyOf(a *api.ApprovalSummary) string {
	reasons := slices.DeleteFunc(commitment.SplitReasons(a.LikelyBecause), func(reason string) bool {
		return reason == commitment.RuleKeyword || slices.Contains(commitment.Families(), reason)
	})
	return strings.TrimSuffix(chanceOf(a)+": "+commitment.JoinReasons(reasons), ": ")
}

// chanceOf is the likelihood of a commitment, with the estimate behind it.
func chanceOf(a *api.ApprovalSummary) string {
	if a.Chance == 0 {
		return string(a.Likelihood)
	}
	return string(a.Likelihood) + ", " + strconv.Itoa(a.Chance) + " in 100"
}

// reasonOf is the reason for which a message waits. If it is held for its words, that is a sentence
// with the words; the names of the rules stand beside the text.
func reasonOf(a *api.Approval, g *ocip.Ground) string {
	if g.Likelihood == "" {
		return strings.TrimSuffix(string(g.Code)+": "+g.Reason, ": ")
	}
	var names []string
	of := map[string]*audit.Detection{}
	for i := range a.Detections {
		d := &a.Detections[i]
		if name, words := strings.CutPrefix(d.Rule, "commitment."); words && !d.Shadow && of[name] == nil {
			names, of[name] = append(names, name), d
		}
	}
	name := commitment.Telling(names)
	sentence := "It " + commitment.Meaning(name)
	if d := of[name]; d != nil && d.Member == "" && d.Start >= 0 && d.Start < d.End && d.End <= len(a.Content) {
		sentence += ": «" + clauseAt(a.Content, d.Start, d.End) + "»"
	}
	return sentence
}

// clauseAt returns the words from start to end, and those after them to the end of the clause.
func clauseAt(content string, start, end int) string {
	const most = 60
	stop := end
	for stop < len(content) && stop-end < most && !strings.ContainsRune(".!?;\n", rune(content[stop])) {
		stop++
	}
	return strings.ToValidUTF8(strings.TrimSpace(content[start:stop]), "")
}
