package acp

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/openclawos/ocipd/internal/task"
)

// prompt is the agent's instruction.
func (b *bridge) prompt() string {
	var t strings.Builder
	v := b.view
	switch {
	case b.attempt != nil && b.attempt.Research():
		fmt.Fprintf(&t, "You make attempt %d at task %s: %s\nRead in the folder %s, and change nothing in it but your report.\n", b.attempt.Ordinal, v.ID, v.Title, b.dir)
		t.WriteString("\nThis attempt reads and reports. What you report is judged by the acceptance criteria below, by somebody else. A person is asked before you edit a file. " +
			"Files that match the outputs of the specification are recorded when your turn ends; record anything else with the tool task_record_artifact of the MCP server ocipd, of kind test_report, " +
			"review_report or other. You plan no effects. Your heartbeats are sent for you, and the attempt is finished for you when your turn ends.\n")
	case b.attempt != nil:
		fmt.Fprintf(&t, "You make attempt %d at task %s: %s\nWork in the folder %s.\n", b.attempt.Ordinal, v.ID, v.Title, b.dir)
		t.WriteString("\nWhat you make is judged by the acceptance criteria below, by somebody else. Files that match the outputs of the specification are recorded when your turn ends; " +
			"record anything else that you made with the tool task_record_artifact of the MCP server ocipd. Nothing outside the folder is yours to change: what is to be done in the world is an effect, " +
			"which task_plan_effect plans and a person approves. Your heartbeats are sent for you, and the attempt is finished for you when your turn ends.\n")
	default:
		what := "the specification alone: whether it can be built from and judged by"
		if v.Phase != task.SpecReview {
			what = "what was made: whether it is what the specification says, by each acceptance criterion"
			if v.Phase == task.QualityGate {
				what = "the quality of what was made: whether it is correct, whole, and fit to be kept"
			}
		}
		fmt.Fprintf(&t, "You review task %s: %s\nIts folder is %s. Change nothing in it.\n\nYou judge %s.\n", v.ID, v.Title, b.dir, what)
		fmt.Fprintf(&t, "\nGive your verdict with the tool task_append_review of the MCP server ocipd: task_id %s", v.ID)
		kind, subject := task.ReviewSpec, v.ArtifactRevision
		if b.o.Attached.Role == task.QualityReviewer {
			kind = task.ReviewQuality
		}
		if v.Phase == task.SpecReview {
			subject = v.Spec.Version
		} else {
			fmt.Fprintf(&t, ", attempt_id %s", v.CurrentAttempt)
		}
		fmt.Fprintf(&t, ", review_type %s, subject_revision %d. Without that tool, end your answer with one JSON object and nothing after it:\n", kind, subject)
		t.WriteString(`{"verdict": "approved" or "changes_requested" or "blocked", "summary": "…", "findings": [{"severity": "critical" or "major" or "minor", "message": "…", "file": "…", "line": 1}]}` + "\n")
	}
	b.spec(&t)
	b.made(&t)
	b.toMend(&t)
	return t.String()
}

// spec writes the task's specification.
func (b *bridge) spec(t *strings.Builder) {
	s := &b.view.Spec
	fmt.Fprintf(t, "\n# The specification, version %d\n", s.Version)
	read, _ := task.ReadMarkdown([]byte(s.Markdown))
	if s.Markdown == "" || !reflect.DeepEqual(read, s.Fields) {
		fmt.Fprintf(t, "\n## Goal\n%s\n", s.Goal)
		for _, part := range []struct {
			name string
			list []string
		}{{"In scope", s.ScopeIn}, {"Out of scope", s.ScopeOut}, {"Inputs", s.Inputs}, {"Outputs", s.Outputs}, {"Acceptance criteria", s.AcceptanceCriteria}, {"Risks", s.Risks}} {
			fmt.Fprintf(t, "\n## %s\n", part.name)
			for _, entry := range part.list {
				fmt.Fprintf(t, "- %s\n", entry)
			}
		}
	}
	if s.Markdown != "" {
		fmt.Fprintf(t, "\n%s\n", strings.TrimSpace(s.Markdown))
	}
}

// made writes the results that a reviewer has to check.
func (b *bridge) made(t *strings.Builder) {
	if b.attempt != nil || b.view.Phase == task.SpecReview {
		return
	}
	t.WriteString("\n# What was made\n\n")
	for i := range b.view.Artifacts {
		if a := &b.view.Artifacts[i]; a.Current {
			undeclared := ""
			if a.Undeclared {
				undeclared = ", NOT AN OUTPUT THAT THE SPECIFICATION DECLARES"
			}
			fmt.Fprintf(t, "- %s (%s, by %s, %s%s) %s\n", a.URI, a.Kind, a.Actor, a.Digest, undeclared, a.Summary)
		}
	}
}

// toMend writes the open findings of reviewers, and how the last attempt ended.
func (b *bridge) toMend(t *strings.Builder) {
	var list []string
	v := b.view
	newest := make(map[string]int)
	for i := range v.Reviews {
		newest[v.Reviews[i].Actor+" "+v.Reviews[i].Type] = i
	}
	for i := range v.Reviews {
		r := &v.Reviews[i]
		if r.Verdict == task.VerdictApproved || newest[r.Actor+" "+r.Type] != i || r.Subject.Spec != v.Spec.Version || r.Subject.Gate == (v.Phase == task.SpecReview) {
			continue
		}
		if r.Summary != "" {
			list = append(list, fmt.Sprintf("%s review: %s", r.Type, r.Summary))
		}
		for _, f := range r.Findings {
			at := cmp.Or(f.File, f.URI)
			if f.Line > 0 {
				at = fmt.Sprintf("%s:%d", at, f.Line)
			}
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s: %s %s", f.Severity, f.Message, at)))
		}
	}
	for i := range v.Approvals {
		if a := &v.Approvals[i]; a.Status == task.ApprovalChanges && a.Note != "" {
			list = append(list, "a person asked for changes: "+a.Note)
		}
	}
	if b.attempt != nil {
		for i := range v.Attempts {
			if a := &v.Attempts[i]; a.Ordinal == b.attempt.Ordinal-1 && a.Failure != "" {
				list = append(list, fmt.Sprintf("the attempt before this one failed (%s): %s", a.Failure, a.Error))
			}
		}
	}
	if len(list) == 0 {
		return
	}
	if t.WriteString("\n# What was found before, and is to be mended\n\n"); b.attempt == nil {
		t.WriteString("See whether it was.\n\n")
	}
	for _, line := range list {
		t.WriteString("- " + line + "\n")
	}
}
