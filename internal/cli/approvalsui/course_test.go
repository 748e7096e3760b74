package approvalsui

import (
	"errors"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli/measure"
)

// unlikelyBy is a message that is held for a word that hardly commits anybody.
func unlikelyBy(n int, says string) *api.ApprovalSummary {
	a := heldBy("alice", n, says)
	a.Likelihood, a.LikelyBecause, a.Chance = "low", "keyword; its words", 3
	return a
}

// TestModelDecidesTogether approves all unlikely messages to one receiver by one decision, after every
// text was shown once and read to its end.
func TestModelDecidesTogether(t *testing.T) {
	all := []*api.ApprovalSummary{
		unlikelyBy(1, "Let me confirm the file"), unlikelyBy(2, "Let me confirm the test"), unlikelyBy(3, "Let me confirm the file"), heldBy("alice", 4, "I promise it"),
	}
	s := sitDown(t, 100, 20, all...)
	for n, a := range all {
		s.decider.all[a.ApprovalID].Digest = "sha256:" + strings.Repeat(string(rune('a'+n)), 64)
	}
	s.want("2 texts: Let me confirm the file")
	s.keys("end", "a")
	s.want("Approve these 3, each as it is shown?", "3 requests, unlikely to commit anybody", "text 1 of 2, in 2 requests", "sha256:ccccccc", "more lines below")
	s.wantNot("text 2 of 2", "I promise it")
	// Nothing is sent before the person has seen the last text.
	s.keys("y")
	s.want("read to the end first")
	if taken := s.decided(); taken != nil {
		t.Errorf("took %+v", taken)
	}
	s.keys("end")
	s.want("text 2 of 2, in 1 request", "    │ Let me confirm the test")
	s.keys("y")
	taken := s.decided()
	if len(taken) != 3 || taken[0].Decision != api.DecideApprove || taken[1].ApprovalID != all[2].ApprovalID && taken[1].ApprovalID != all[1].ApprovalID {
		t.Fatalf("took %+v", taken)
	}
	for _, p := range taken {
		if p.Digest != s.decider.all[p.ApprovalID].Digest || p.Exchange != nil {
			t.Errorf("took %+v", p)
		}
	}
	s.want("approved: 3 of them, the last in record 42")

	// One that cannot be approved is left out. One that changes under the eyes ends the question.
	s.decider.all[all[1].ApprovalID].Approvable = false
	s.keys("a")
	s.want("Approve these 2, each as it is shown?")
	changed := *all[2]
	changed.Given = 1
	s.tell(newsMsg{newsHeld{&changed}})
	s.want("changed under your eyes")
	s.decider.err = errors.New("no touch")
	s.keys("a", "end", "y")
	s.want("cannot approve it: no touch")
	s.decider.err = nil

	// Marked ones go in steps: those that are unlikely together, and each other by itself.
	s.decider.all[all[1].ApprovalID].Approvable = true
	s.keys("M", "a")
	s.want("1 of 4 marked", "I promise it")
	s.keys("end", "y")
	s.want("4 of 4 marked", "Approve these 3")
	s.keys("end", "y")
	if taken := s.decided(); len(taken) != 4 {
		t.Errorf("took %+v", taken)
	}
	s.wantNot("marked")

	// The page of one of them, and having read it, does not count for the others; a denial is for
	// one, or all.
	s.keys("enter", "end", "esc", "a", "y")
	s.want("read to the end first")
	s.keys("n", "d")
	s.want("There are 2 more like it.")
	s.keys("esc", "g", "end", "a")
	s.wantNot("Approve these")
}

// TestModelWeek shows the acts of the last week where nothing else is said.
func TestModelWeek(t *testing.T) {
	for want, line := range map[string]string{
		"": actsLine(0, measure.Saving{}), "1 act of yours in 7 days": actsLine(1, measure.Saving{}),
		"9 acts of yours in 7 days; ocip.same_owner: record saves 4":                               actsLine(9, measure.Saving{Setting: "ocip.same_owner: record", Saved: 4}),
		"9 acts of yours in 7 days; ocip.same_owner: record saves 4, but sends 1 that you stopped": actsLine(9, measure.Saving{Setting: "ocip.same_owner: record", Saved: 4, Stopped: 1}),
	} {
		if line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	s := sitDown(t, 80, 24, heldBy("alice", 1, "I promise it"))
	s.tell(weekMsg("9 acts of yours in 7 days"))
	s.want("9 acts of yours in 7 days")
	s.keys("a")
	s.wantNot("9 acts")
}
