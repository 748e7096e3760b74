package sendcmd

import (
	"bytes"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
)

// The reason of a message that would be held for its words has these words, and what weighed most.
func TestHeldForItsWords(t *testing.T) {
	guess := ocip.Guess{Likelihood: "high", LikelyBecause: "first-person-future; its words; keyword", Chance: 93}
	held := &spoken{content: "Fine. I'll send it by Friday.", CheckResult: api.CheckResult{
		Result: ocip.RequireApproval, Reasons: []ocip.Ground{{Code: ocip.CommitmentRequiresHuman, Reason: "commitment cues: first-person-future", Guess: guess}},
		Detections: []audit.Detection{{Rule: "commitment.first-person-future", Start: 6, End: 15}},
	}}
	const want = "would be held: COMMITMENT_REQUIRES_HUMAN: commitment cues: first-person-future\n" +
		"It seems to promise something: «I'll send it by Friday»\nlikely high, 93 in 100: it seems to promise something; its words\n"
	var out bytes.Buffer
	if err := say(&cli.Process{Stdout: &out}, "sending.check", held); err != nil || out.String() != want {
		t.Errorf("it says %q, %v", out.String(), err)
	}
}

// If a message was refused because its record could not be written, the answer names no record.
func TestRefusalWithoutARecord(t *testing.T) {
	for id, want := range map[string]string{
		"":      "refused: AUDIT_WRITE_FAILED: the disk is full\n",
		"01a2f": "refused: AUDIT_WRITE_FAILED: the disk is full\nto read its record: ocipd audit query --record 01a2f\n",
	} {
		var out bytes.Buffer
		p := &cli.Process{Stdout: &out}
		if err := say(p, "sending.message", &spoken{CheckResult: api.CheckResult{Result: ocip.Deny, Code: ocip.AuditWriteFailed, Reason: "the disk is full", AuditID: id}}); err != nil || out.String() != want {
			t.Errorf("it says %q, %v", out.String(), err)
		}
	}
}
