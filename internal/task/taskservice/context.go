package taskservice

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// The size of a context: of lines of the goal, of entries of its lists, and of texts in bytes.
const (
	maxGoalLines   = 5
	maxContextList = 16
	maxContextText = 200
	maxContextKey  = 256
)

// clipped shortens a text to a number of bytes, and further where its JSON form is longer than half
// as many again: a control character takes six bytes there. The context as a whole takes at most
// 64 KiB by that.
func clipped(s string, most int) string {
	s = text.Clip(s, most)
	for {
		quoted, err := jsontext.AppendQuote(nil, s)
		if err != nil || len(quoted) <= most*3/2 {
			return s
		}
		s = text.Clip(s, len(s)*3/4)
	}
}

// contextOf returns the present context of an effect.
func contextOf(at *task.Task, e *task.Effect, r *task.Rules) *taskapi.ApprovalContext {
	c := &taskapi.ApprovalContext{
		Title: clipped(at.Title, maxContextKey), SpecVersion: at.Spec().Version, Revision: at.ArtifactRevision, LeftOut: make(map[string]int),
		Artifacts: []taskapi.ContextArtifact{}, Reviews: []taskapi.ContextReview{}, Effects: []taskapi.ContextEffect{},
		Gates:   taskapi.Gates{Spec: at.Gate(task.ReviewSpec, r.SpecReviews), Quality: at.Gate(task.ReviewQuality, r.QualityReviews)},
		Planned: taskapi.ContextPlanned{By: e.PlannedBy, At: e.At, Late: e.Late},
	}
	goal := slices.Collect(strings.Lines(at.Spec().Goal))
	for i, line := range goal[:min(len(goal), maxGoalLines)] {
		if c.Goal += clipped(strings.TrimRight(line, "\n"), maxContextText); i < min(len(goal), maxGoalLines)-1 {
			c.Goal += "\n"
		}
	}
	c.LeftOut["goal"] = max(0, len(goal)-maxGoalLines)
	if a := at.Last(); a != nil {
		c.Attempt = &taskapi.ContextAttempt{Ordinal: a.Ordinal, Actor: a.Actor, Status: a.Status}
	}
	for i := range at.Artifacts {
		if a := &at.Artifacts[i]; a.Work && a.Current && room(c, "artifacts", len(c.Artifacts)) {
			c.Artifacts = append(c.Artifacts, taskapi.ContextArtifact{URI: clipped(a.URI, maxContextText), Digest: a.Digest, Undeclared: a.Undeclared})
		}
	}
	for i := range at.Effects {
		o := &at.Effects[i]
		if o.ID != e.ID && o.State != task.EffectCancelled && room(c, "effects", len(c.Effects)) {
			c.Effects = append(c.Effects, taskapi.ContextEffect{Key: clipped(o.Key, maxContextKey), Kind: clipped(o.Kind, maxContextText), State: o.State, RequestedAction: clipped(o.RequestedAction, maxContextText), Late: o.Late})
		}
	}
	findings := 0
	seen := make(map[string]bool)
	for i := range slices.Backward(at.Reviews) {
		w := &at.Reviews[i]
		if !w.Subject.Gate || at.Stale(w) || seen[w.Type+" "+w.Actor] {
			continue
		}
		seen[w.Type+" "+w.Actor] = true
		if !room(c, "reviews", len(c.Reviews)) {
			continue
		}
		one := taskapi.ContextReview{Type: w.Type, Actor: w.Actor, Verdict: w.Verdict, Summary: clipped(w.Summary, maxContextText), Findings: []task.Finding{}}
		for _, f := range w.Findings {
			if !room(c, "findings", findings) {
				continue
			}
			findings++
			f.Message, f.File, f.URI = clipped(f.Message, maxContextText), clipped(f.File, maxContextText), clipped(f.URI, maxContextText)
			one.Findings = append(one.Findings, f)
		}
		c.Reviews = append(c.Reviews, one)
	}
	for name, n := range c.LeftOut {
		if n == 0 {
			delete(c.LeftOut, name)
		}
	}
	return c
}

// room reports whether a list takes one more entry, and counts the entry if it does not.
func room(c *taskapi.ApprovalContext, list string, n int) bool {
	if n < maxContextList {
		return true
	}
	c.LeftOut[list]++
	return false
}

// frame enters into a request what it is for, and what people are shown: that first, and then what
// would be done.
func (s *subject) frame(at *task.Task, e *task.Effect, pair *task.BoundPair) error {
	c := contextOf(at, e, &s.t.config.Load().Rules)
	text, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return err
	}
	s.own.Context = text
	content, line := textOf(&e.Planned, pair)
	s.r.Content, s.r.Summary, s.r.Target = c.Text(at.ID)+"\n"+content, line, summary(at.Title)
	if c.Planned.Late {
		s.r.Reason = lateReason
	}
	s.r.ContentBytes = len(s.r.Content)
	s.r.Own, err = json.Marshal(&s.own)
	return err
}

// The reasons of a request about an effect.
const (
	effectReason = "a person decides about what a task does in the world"
	lateReason   = "THE EFFECT WAS PLANNED AFTER THE REVIEWS: no reviewer has seen it, and a person decides about it"
)

// Show enters into an approval request about an effect its context, which is the task, its reviews and
// its other effects, unless the texts were forgotten, and the digest of the request. It leaves other
// requests as they are.
func Show(ctx context.Context, t *Tasks, a *api.Approval) error {
	if a.Kind != api.ApprovalOfEffect {
		return nil
	}
	r, err := t.o.Approvals().Get(ctx, a.ApprovalID)
	if err != nil || len(r.Own) == 0 {
		return err
	}
	var kept own
	if err := json.Unmarshal(r.Own, &kept); err != nil {
		return err
	}
	if a.RequestDigest = kept.Digest; a.Content != "" {
		a.Context = kept.Context
	}
	return nil
}
