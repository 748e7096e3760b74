package describe

import (
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Likely is the likelihood that a message commits somebody, with the chance and the reasons that
// weighed most, as far as they are known.
func Likely(g ocip.Guess) string {
	said := string(g.Likelihood)
	if g.Chance > 0 {
		said += fmt.Sprintf(", %d in 100", g.Chance)
	}
	if reasons := commitment.InWords(commitment.SplitReasons(g.LikelyBecause)); len(reasons) > 0 {
		said += ": " + commitment.JoinReasons(reasons)
	}
	return said
}

// HeldWords says in a sentence what a message seems to do by the words that hold it, with these
// words if they are in its content.
func HeldWords(content string, detections []audit.Detection) string {
	var names []string
	of := map[string]*audit.Detection{}
	for i := range detections {
		d := &detections[i]
		if name, words := strings.CutPrefix(d.Rule, "commitment."); words && !d.Shadow && of[name] == nil {
			names, of[name] = append(names, name), d
		}
	}
	name := commitment.Telling(names)
	sentence := "It " + commitment.Meaning(name)
	if d := of[name]; d != nil && d.Member == "" && d.Start >= 0 && d.Start < d.End && d.End <= len(content) {
		sentence += ": «" + clauseAt(content, d.Start, d.End) + "»"
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
