package task

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Unblock lists a person's options for an open circuit.
func (t *Task) Unblock() []string {
	if t.Phase != CircuitOpen {
		return nil
	}
	ways := []string{"task_close_circuit to spec_draft: change the spec, have it reviewed, and count attempts anew"}
	if len(t.Missing()) == 0 {
		ways = append(ways, "task_close_circuit to execution_ready, once the spec's reviews approve of it: try again as it is")
	}
	return append(ways, "task_transition to failed: give it up")
}

// The size of a summary: of lines, of the findings of one review, and of a line in bytes.
const (
	maxSummaryLines = 64
	maxOpenFindings = 5
	maxSummaryLine  = 500
)

// FailureSummary says why the circuit is open: the reason, and of each attempt since the circuit was
// last closed its failure and the newest findings that are open.
func (t *Task) FailureSummary() []string {
	if t.Phase != CircuitOpen {
		return nil
	}
	list := []string{t.CircuitReason}
	list = append(list, openFindings(t, "the spec", func(r *Review) bool { return !r.Subject.Gate && r.Subject.Spec == t.Spec().Version })...)
	for i := range t.Attempts[min(t.Counted, len(t.Attempts)):] {
		a := &t.Attempts[t.Counted+i]
		what := "attempt " + itoa(a.Ordinal)
		if a.Failure != "" {
			list = append(list, strings.TrimSuffix(what+": "+a.Failure+": "+a.Error, ": "))
		}
		list = append(list, openFindings(t, what, func(r *Review) bool { return r.Subject.Gate && r.AttemptID == a.ID })...)
	}
	if e := refusedEffect(t); e != "" {
		list = append(list, e)
	}
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	if more := len(list) - maxSummaryLines; more > 0 {
		list = append(list[:1], append([]string{fmt.Sprintf("%d older lines are left out", more)}, list[1+more:]...)...)
	}
	for i := range list {
		list[i] = text.Clip(list[i], maxSummaryLine)
	}
	return list
}

// openFindings are the findings of each reviewer's newest review of those that are meant, unless that
// one approves.
func openFindings(t *Task, what string, meant func(*Review) bool) (list []string) {
	seen := make(map[string]bool)
	for i := range slices.Backward(t.Reviews) {
		r := &t.Reviews[i]
		if !meant(r) || seen[r.Type+r.Actor] {
			continue
		}
		if seen[r.Type+r.Actor] = true; r.Verdict != VerdictApproved {
			list = append(slices.Clip(r.lines(what)), list...)
		}
	}
	return list
}

// lines are the findings of a review about something, one a line.
func (r *Review) lines(what string) (list []string) {
	what = fmt.Sprintf("%s, %s review by %s (%s): ", what, r.Type, r.Actor, r.Verdict)
	for i := range r.Findings[:min(len(r.Findings), maxOpenFindings)] {
		list = append(list, what+r.Findings[i].String())
	}
	switch more := len(r.Findings) - maxOpenFindings; {
	case more > 0:
		list = append(list, fmt.Sprintf("%s%d more findings", what, more))
	case len(r.Findings) == 0 && r.Summary != "":
		list = append(list, what+r.Summary)
	case len(r.Findings) == 0:
		list = append(list, what+"without a finding")
	}
	return list
}

// String is the finding with its place.
func (f Finding) String() string {
	place := f.File
	if place == "" {
		place = f.URI
	}
	if place != "" && f.Line > 0 {
		place += ":" + itoa(f.Line)
	}
	if place != "" {
		place = " (" + place + ")"
	}
	return f.Severity + ": " + f.Message + place
}

// refusedEffect is a person's newest word about an effect if it refused the effect or asked for
// changes.
func refusedEffect(t *Task) string {
	if len(t.Approvals) == 0 {
		return ""
	}
	a := &t.Approvals[len(t.Approvals)-1]
	e := t.Effect(a.EffectID)
	if e == nil || a.Status != ApprovalRejected && a.Status != ApprovalChanges {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("effect %s: %s by %s: %s", e.Key, a.Status, a.ResolvedBy, a.Note), ": ")
}

// LastGood returns the newest artifact revision that both gates approved, with the newest artifact
// of each URI in it. The revision is zero if none was approved.
func (t *Task) LastGood(r *Rules) (revision int, artifacts []Artifact) {
	var subjects []Subject
	for i := range t.Reviews {
		if s := t.Reviews[i].Subject; s.Gate && s.Artifact > 0 && !slices.Contains(subjects, s) {
			subjects = append(subjects, s)
		}
	}
	slices.SortFunc(subjects, func(a, b Subject) int { return b.Artifact - a.Artifact })
	for _, s := range subjects {
		if t.gate(ReviewSpec, r.SpecReviews, s).OK() && t.gate(ReviewQuality, r.QualityReviews, s).OK() {
			return s.Artifact, t.made(s.Artifact)
		}
	}
	return 0, []Artifact{}
}

// made is the work up to a revision: the newest artifact of each URI by then, in the order in which
// they were recorded.
func (t *Task) made(revision int) []Artifact {
	list := []Artifact{}
	for i := range t.Artifacts {
		if a := &t.Artifacts[i]; a.Work && a.Revision <= revision {
			list = append(slices.DeleteFunc(list, func(b Artifact) bool { return b.URI == a.URI }), *a)
		}
	}
	return list
}
