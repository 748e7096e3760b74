package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// reviewOf has a reviewer give a verdict with findings on the present subject.
func (d *desk) reviewOf(who Actor, verdict string, findings ...Finding) {
	d.t.Helper()
	kind := ReviewSpec
	if who.Role == QualityReviewer {
		kind = ReviewQuality
	}
	who.Seen = d.task.Subject()
	d.do(who, AppendReview{AttemptID: d.task.CurrentAttempt, Type: kind, Verdict: verdict, Findings: findings})
}

// The last good work is what both gates approved, whatever was delivered since, and the summary has
// what the reviewers found.
func TestCircuitTellsTheTruth(t *testing.T) {
	good := func(d *desk) string {
		revision, artifacts := d.task.LastGood(&d.w.Rules)
		names := []string{}
		for _, a := range artifacts {
			names = append(names, a.URI+" "+a.Digest[len(a.Digest)-1:])
		}
		return fmt.Sprint(revision, names)
	}
	d := newDesk(t)
	d.to(SpecGate)
	d.reviewOf(checker, VerdictApproved)
	d.move(QualityGate)
	d.reviewOf(critic, VerdictBlocked, Finding{Severity: "critical", Message: "deletes data", File: "out.go", Line: 3})
	if got := good(d); got != "0 []" {
		t.Errorf("a reviewer has blocked it, and the last good work is %s", got)
	}
	d.move(CircuitOpen)
	want := []string{"because", "attempt 1, quality review by critic (blocked): critical: deletes data (out.go:3)"}
	if got := d.task.FailureSummary(); !slices.Equal(got, want) {
		t.Errorf("summary %q", got)
	}

	// A revision that was approved stays the last good one, until another one is.
	d = newDesk(t)
	d.to(AwaitingApproval, deploy())
	if got := good(d); got != "1 [out.go 1]" {
		t.Errorf("approved at both gates: %s", got)
	}
	d.do(gate, RequestApproval{Planned: deploy(), Digest: zero, ID: "apr_1", ExpiresAt: d.now.Add(longestWait)})
	d.do(person, ResolveApproval{ID: "apr_1", Status: ApprovalChanges, By: "ann", Note: "not on a Friday"})
	d.move(ExecutionReady)
	d.start()
	d.move(Executing)
	d.deliver(sum(2))
	d.move(SpecGate)
	d.reviewOf(checker, VerdictChanges, slices.Repeat([]Finding{{Severity: "minor", Message: "a name"}}, 7)...)
	d.reviewOf(checker, VerdictChanges)
	d.do(lead, OpenCircuit{Reason: "again and again"})
	if got := good(d); got != "1 [out.go 1]" {
		t.Errorf("a later revision was refused: %s", got)
	}
	want = []string{"again and again", "attempt 2, spec review by checker (changes_requested): without a finding", "effect deploy: request_changes by ann: not on a Friday"}
	if got := d.task.FailureSummary(); !slices.Equal(got, want) {
		t.Errorf("summary %q", got)
	}
	e := d.last.Events[len(d.last.Events)-1]
	if e.Type != "circuit.opened" || e.Now["last_good_revision"] != 1 {
		t.Errorf("event %+v", e)
	}
	// More reviews are needed by now than there are.
	d.w.Rules.QualityReviews = 2
	if got := good(d); got != "0 []" {
		t.Errorf("one review of two: %s", got)
	}
}

// A summary has a bounded size, and says how much it leaves out.
func TestSummaryIsBounded(t *testing.T) {
	d := newDesk(t)
	d.to(SpecGate)
	d.reviewOf(checker, VerdictChanges, slices.Repeat([]Finding{{Severity: "minor", Message: strings.Repeat("字", 4000)}}, 200)...)
	d.move(CircuitOpen)
	got := d.task.FailureSummary()
	if len(got) != 1+maxOpenFindings+1 || !strings.HasSuffix(got[len(got)-1], "195 more findings") {
		t.Errorf("summary of %d lines: %.200q", len(got), got[len(got)-1])
	}
	for _, line := range got {
		if len(line) > maxSummaryLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	now := *d.task
	now.Attempts = nil
	for n := range 80 {
		now.Attempts = append(now.Attempts, Attempt{Ordinal: n + 1, Failure: "crashed"})
	}
	if got := now.FailureSummary(); len(got) != maxSummaryLines+1 || got[1] != "17 older lines are left out" || got[len(got)-1] != "attempt 80: crashed" {
		t.Errorf("summary of %d lines: %q … %q", len(got), got[:2], got[len(got)-1])
	}
}
