package taskapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/task"
)

// ApprovalContext shows the person who decides about an effect the task, the reviews and the other
// effects. Its texts are cut, and LeftOut counts the entries that it does not have.
type ApprovalContext struct {
	Title       string `json:"title"`
	Goal        string `json:"goal"`
	SpecVersion int    `json:"spec_version"`
	// Attempt is the last attempt, and Revision that of its artifacts.
	Attempt   *ContextAttempt   `json:"attempt,omitempty"`
	Revision  int               `json:"artifact_revision"`
	Artifacts []ContextArtifact `json:"artifacts"`
	// Gates are the reviews of this revision in short, and Reviews the newest one of each reviewer.
	Gates   Gates           `json:"gates"`
	Reviews []ContextReview `json:"reviews"`
	// Effects are the other effects of the task.
	Effects []ContextEffect `json:"effects"`
	Planned ContextPlanned  `json:"planned"`
	LeftOut map[string]int  `json:"left_out,omitempty"`
}

// ContextAttempt is the attempt that made what is approved.
type ContextAttempt struct {
	Ordinal int    `json:"ordinal"`
	Actor   string `json:"actor"`
	Status  string `json:"status"`
}

// ContextArtifact is an artifact of the revision. Scripts look for the digest of the request by the
// name "digest": no member of a context has that name.
type ContextArtifact struct {
	URI    string `json:"uri"`
	Digest string `json:"content_digest"`
	// Undeclared is set if the spec declares no output of this name.
	Undeclared bool `json:"undeclared,omitzero"`
}

// ContextReview is a review of the revision.
type ContextReview struct {
	Type     string         `json:"review_type"`
	Actor    string         `json:"actor"`
	Verdict  string         `json:"verdict"`
	Summary  string         `json:"summary,omitzero"`
	Findings []task.Finding `json:"findings"`
}

// ContextEffect is another effect of the task.
type ContextEffect struct {
	Key             string `json:"idempotency_key"`
	Kind            string `json:"side_effect_kind"`
	State           string `json:"state"`
	RequestedAction string `json:"requested_action,omitzero"`
	// Late is set if it was planned after the reviews.
	Late bool `json:"late,omitzero"`
}

// ContextPlanned is who planned the effect, and when. Late is set if that was after the reviews.
type ContextPlanned struct {
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Late bool      `json:"late"`
}

// Text is the context as lines for people. Texts of actors are in quotes, so that none of them looks
// like a line of the daemon's.
func (c *ApprovalContext) Text(taskID string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("for the task: %q (%s)", c.Title, taskID)
	for goal := range strings.Lines(c.Goal) {
		line("goal: %q", strings.TrimRight(goal, "\n"))
	}
	if c.Planned.Late {
		line("PLANNED AFTER THE REVIEWS: no reviewer has seen this effect; %s planned it at %s", c.Planned.By, c.Planned.At.UTC().Format(time.RFC3339))
	} else {
		line("planned before the reviews, by %s", c.Planned.By)
	}
	if a := c.Attempt; a != nil {
		line("attempt %d by %s: %s", a.Ordinal, a.Actor, a.Status)
	}
	line("reviewed: version %d of the spec, revision %d of the artifacts", c.SpecVersion, c.Revision)
	for _, a := range c.Artifacts {
		undeclared := ""
		if a.Undeclared {
			undeclared = " NOT AN OUTPUT THAT THE SPEC DECLARES"
		}
		line("artifact: %q %s%s", a.URI, a.Digest, undeclared)
	}
	for _, gate := range []struct {
		name  string
		state task.Gate
	}{{task.ReviewSpec, c.Gates.Spec}, {task.ReviewQuality, c.Gates.Quality}} {
		says := "APPROVED BY TOO FEW"
		if gate.state.OK() {
			says = "approved"
		}
		line("%s gate: %s, %d of %d reviews approve", gate.name, says, len(gate.state.Approved), gate.state.Needed)
	}
	for i := range c.Reviews {
		r := &c.Reviews[i]
		line("%s review by %s: %s %q", r.Type, r.Actor, r.Verdict, r.Summary)
		for j := range r.Findings {
			f := &r.Findings[j]
			line("  %s: %q %q line %d", f.Severity, f.Message, f.File, f.Line)
		}
	}
	for _, e := range c.Effects {
		when := "planned before the reviews"
		if e.Late {
			when = "PLANNED AFTER THE REVIEWS"
		}
		line("another effect: %q (%q, %s, %s) %q", e.Key, e.Kind, e.State, when, e.RequestedAction)
	}
	for _, name := range []string{"goal", "artifacts", "reviews", "findings", "effects"} {
		if n := c.LeftOut[name]; n > 0 {
			line("left out: %d more of %s (ocipd task show %s)", n, name, taskID)
		}
	}
	return b.String()
}
