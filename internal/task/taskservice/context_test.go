package taskservice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/task"
)

// A context stays within its bound whatever texts a task has: in its JSON and in its lines, each
// character of these texts takes several.
func TestContextIsBounded(t *testing.T) {
	for name, c := range map[string]string{"letters": "a", "control characters": "\x01", "quotes": `"`, "line separators": "\u2028", "characters beyond the BMP": "\U0001F9EA"} {
		long := strings.Repeat(c, 4096)
		name64, key := strings.Repeat(c, 64/len(c)), strings.Repeat(c, 256/len(c))
		at := &task.Task{Head: task.Head{Title: key, CurrentAttempt: "att_1"}}
		at.Specs = []task.Spec{{Version: 1, Fields: task.Fields{Goal: strings.Repeat(long+"\n", 20)}}}
		at.Attempts = []task.Attempt{{ID: "att_1", Ordinal: 1, Actor: "builder", Status: task.AttemptSucceeded}}
		for i := range 1000 {
			at.Artifacts = append(at.Artifacts, task.Artifact{ID: fmt.Sprint(i), AttemptID: "att_1", URI: long, Digest: "sha256:" + strings.Repeat("0", 64), Work: true, Current: true})
		}
		for i := range 64 {
			at.Effects = append(at.Effects, task.Effect{ID: fmt.Sprint(i), Planned: task.Planned{Key: key, Kind: name64, RequestedAction: long}, State: task.EffectPlanned, PlannedBy: "builder"})
		}
		for i := range 100 {
			r := task.Review{ID: fmt.Sprint(i), Type: task.ReviewQuality, Actor: fmt.Sprint("critic", i), Verdict: task.VerdictApproved, Summary: long, Subject: task.Subject{Spec: 1, Gate: true}}
			for range 200 {
				r.Findings = append(r.Findings, task.Finding{Severity: "critical", Message: long, File: long, URI: long, Line: 1 << 30})
			}
			at.Reviews = append(at.Reviews, r)
		}
		got := contextOf(at, &at.Effects[0], &task.Rules{SpecReviews: 1, QualityReviews: 1})
		raw, err := json.Marshal(got, json.Deterministic(true))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text := got.Text("tsk_1"); len(raw) > 64<<10 || len(text) > 64<<10 {
			t.Errorf("%s: %d bytes of JSON, %d bytes of lines", name, len(raw), len(text))
		}
		if left := fmt.Sprint(got.LeftOut); left != "map[artifacts:984 effects:47 findings:3184 goal:15 reviews:84]" {
			t.Errorf("%s: left out are %s", name, left)
		}
	}
}
