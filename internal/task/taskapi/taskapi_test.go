package taskapi

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// More of a member than a task keeps is a conflict, LIMIT, that names the member. Another
// fault of the form takes precedence.
func TestLimits(t *testing.T) {
	const id = "0190a5b0-0000-7000-8000-000000000000"
	object := func(size int) jsontext.Value {
		return jsontext.Value(`{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`)
	}
	command := func(change func(c *task.Action, n int)) func(n int) any {
		return func(n int) any {
			p := &PlanEffectParams{Planned: task.Planned{Key: "k", Kind: "deployment", Command: &task.Action{Argv: []string{"x"}}}}
			p.TaskID = ids.Task + id
			change(p.Command, n)
			return p
		}
	}
	for name, tt := range map[string]struct {
		most int
		of   func(n int) any
	}{
		"command.argv":  {task.MaxArgvBytes, command(func(c *task.Action, n int) { c.Argv[0] = strings.Repeat("x", n-1) })},
		"command.stdin": {task.MaxStdinBytes, command(func(c *task.Action, n int) { c.Stdin = strings.Repeat("x", n) })},
		"params": {task.MaxPayloadBytes, func(n int) any {
			p := &PlanEffectParams{Planned: task.Planned{Key: "k", Kind: "deployment", Params: object(n)}}
			p.TaskID = ids.Task + id
			return p
		}},
		"payload": {task.MaxPayloadBytes, func(n int) any {
			p := &CheckpointParams{AttemptID: ids.Attempt + id, Type: "progress", Payload: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"receipt": {task.MaxPayloadBytes, func(n int) any {
			p := &FinishEffectParams{EffectID: ids.Effect + id, Run: 1, RunToken: "t", Outcome: task.EffectDone, Receipt: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"tool_call.input": {task.MaxArgvBytes, func(n int) any {
			p := &AskPermissionParams{ToolCall: ToolCall{Kind: "execute", Input: object(n)}}
			p.TaskID = ids.Task + id
			return p
		}},
		"options": {task.MaxPayloadBytes, func(n int) any {
			p := &AskPermissionParams{ToolCall: ToolCall{Kind: "execute"}, Options: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"effects": {task.MaxEffects, func(n int) any {
			p := &CreateParams{Title: "t", Workspace: "main", SpecMarkdown: "# s", InitialPhase: task.SpecDraft}
			for range n {
				p.Effects = append(p.Effects, task.Planned{Key: "k", Kind: "deployment", Params: object(10)})
			}
			return p
		}},
		"depends_on": {task.MaxDependencies, func(n int) any {
			p := &CreateParams{Title: "t", Workspace: "main", SpecMarkdown: "# s", InitialPhase: task.SpecDraft}
			for range n {
				p.DependsOn = append(p.DependsOn, ids.Task+id)
			}
			return p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := api.Invalid(members.Check(tt.of(tt.most))); err != nil {
				t.Errorf("as much as may be is refused: %v", err)
			}
			faults := members.Check(tt.of(tt.most + 1))
			e, ok := errors.AsType[*api.Error](api.Invalid(faults))
			if !ok || e.Code != api.Conflict || !strings.HasPrefix(e.Message, name+": more than") {
				t.Fatalf("got %v", e)
			}
			var d Details
			if text, err := json.Marshal(e.Details); err != nil || json.Unmarshal(text, &d) != nil || d.Task.Code != task.Limit {
				t.Errorf("got %+v", e.Details)
			}
			e, ok = errors.AsType[*api.Error](api.Invalid(append(faults, api.FieldError{Path: "x", Message: "required"})))
			if !ok || e.Code != api.InvalidParams || !strings.Contains(e.Message, name+": more than") {
				t.Errorf("got %v", e)
			}
		})
	}
}

// words are a list of words as texts.
func words[S ~string](list []S) (texts []string) {
	for _, word := range list {
		texts = append(texts, string(word))
	}
	return texts
}

// The words and the limits in tags are those of package task.
func TestTagsFollowTask(t *testing.T) {
	outcomes := []string{task.EffectDone, task.EffectFailed}
	for _, tt := range []struct {
		of     any
		member string
		words  []string
		most   int
	}{
		{TransitionParams{}, "FromPhase", words(task.Phases()), 0},
		{TransitionParams{}, "ToPhase", words(task.Phases()), 0},
		{CloseCircuitParams{}, "ToPhase", words(task.Phases()), 0},
		{ListParams{}, "Phase", words(task.Phases()), 0},
		{StartAttemptParams{}, "Runtime", task.Runtimes(), 0},
		{StartAttemptParams{}, "ExecutorKind", task.ExecutorKinds(), 0},
		{ArtifactParams{}, "Kind", task.ArtifactKinds(), 0},
		{FinishAttemptParams{}, "Outcome", task.Outcomes(), 0},
		{FinishAttemptParams{}, "FailureCode", task.Failures(), 0},
		{ReviewParams{}, "ReviewType", task.ReviewTypes(), 0},
		{ReviewParams{}, "Verdict", task.Verdicts(), 0},
		{ReviewParams{}, "Findings", nil, task.MaxFindings},
		{task.Finding{}, "Severity", task.Severities(), 0},
		{ResolveApprovalParams{}, "Resolution", task.Resolutions(), 0},
		{ResolveApprovalParams{}, "Note", nil, api.MaxNote},
		{ResolveApprovalParams{}, "Signature", nil, api.MaxSignature},
		{SettleEffectParams{}, "Note", nil, api.MaxNote},
		{GrantParams{}, "Bind", task.Binds(), 0},
		{FinishEffectParams{}, "Outcome", outcomes, 0},
		{SettleEffectParams{}, "Outcome", outcomes, 0},
		{RunnerReportParams{}, "Event", []string{RunnerWaits, RunnerWithdrawn, RunnerSpawned, RunnerFinished}, 0},
		{RunnerReportParams{}, "State", append(outcomes, task.EffectUncertain), 0},
		{CreateParams{}, "Title", nil, task.MaxTitle},
		{CreateParams{}, "Labels", nil, task.MaxLabels},
		{CreateParams{}, "InitialPhase", words([]task.Phase{task.SpecDraft, task.SpecReview}), 0},
		{OpenCircuitParams{}, "Reason", nil, task.MaxText},
		{ImportParams{}, "Artifacts", nil, task.MaxEntries},
		{ImportParams{}, "Phase", words([]task.Phase{task.SpecDraft, task.CircuitOpen, task.Completed}), 0},
	} {
		f, ok := reflect.TypeOf(tt.of).FieldByName(tt.member)
		if !ok {
			t.Fatalf("%T has no %s", tt.of, tt.member)
		}
		if b := members.Of(f); !slices.Equal(b.Words, tt.words) || tt.most > 0 && b.Max != tt.most {
			t.Errorf("%T.%s has %q and %d, want %q and %d", tt.of, tt.member, b.Words, b.Max, tt.words, tt.most)
		}
	}
}

// TestRules gives each rule between members parameters that break it.
func TestRules(t *testing.T) {
	const id = "0190a5b0-0000-7000-8000-000000000000"
	const ref = `"task_id":"tsk_` + id + `"`
	for _, tt := range []struct {
		of         any
		text, want string
	}{
		{&CreateParams{}, `{"title":"t","workspace":"w","initial_phase":"spec_draft"}`, "spec_markdown: required: or spec_ref, or spec"},
		{&CreateParams{}, `{"title":"t","workspace":"w","initial_phase":"spec_draft","spec_markdown":"x","spec_ref":{"uri":"x"},"effects":[{"idempotency_key":"k","side_effect_kind":"s"}]}`,
			"spec_ref: give the Markdown once: spec_markdown has it already; effects[0].command: want either command or params"},
		{&TransitionParams{}, `{` + ref + `,"from_phase":"executing","to_phase":"failed","actor":"a","reason":"r"}`, "actor_role: required"},
		{&FinishAttemptParams{}, `{` + ref + `,"attempt_id":"att_` + id + `","outcome":"failed"}`,
			"failure_code: required: one of agent_error, timeout, lease_expired, crashed, max_tokens, max_turns, invalid_output, refused, cancelled, environment"},
		{&FinishAttemptParams{}, `{` + ref + `,"attempt_id":"att_` + id + `","outcome":"aborted","failure_code":"timeout"}`, "failure_code: only a failed attempt has one"},
		{&PlanEffectParams{}, `{` + ref + `,"idempotency_key":"k","side_effect_kind":"s","command":{"argv":["x"]},"params":{}}`, "command: want either command or params"},
		{&PlanEffectParams{}, `{` + ref + `,"idempotency_key":"k","side_effect_kind":"s","command":{"argv":[""],"env":{"A=B":"x"},"env_from":["OCIPD_A"]}}`,
			`command.argv: required: the program and its arguments; command.env: "A=B" is no variable; command.env_from[0]: "OCIPD_A": only the daemon sets variables OCIPD_…`},
		{&PlanEffectParams{}, `{` + ref + `,"idempotency_key":"k","side_effect_kind":"s","params":{},"compensation":{"argv":["a\u0000"],"timeout_s":-1}}`,
			"compensation.timeout_s: -1 is not between 0 and 86400; compensation.argv[0]: has a zero byte"},
		{&RequestApprovalParams{}, `{` + ref + `,"idempotency_key":"k","side_effect_kind":"s"}`, "requested_action: required"},
		{&RequestApprovalParams{}, `{` + ref + `,"idempotency_key":"k","side_effect_kind":"s","requested_action":"a","undo":true,"params":{}}`,
			"undo: leave out command, params and compensation: the approval of the effect determines its undoing"},
		{&ResolveApprovalParams{}, `{` + ref + `,"approval_id":"apr_` + id + `","resolution":"approved"}`, "digest: required: the digest of the request that you saw, from approval.get"},
		{&RunEffectParams{}, `{` + ref + `,"request_digest":"sha256:` + strings.Repeat("0", 64) + `"}`, "effect_id: want either effect_id or idempotency_key"},
		{&GrantParams{}, `{}`, "actor: required"},
		{&GrantParams{}, `{` + ref + `,"agent":"a"}`, "actor: required with task_id"},
		{&RunnerReportParams{}, `{` + ref + `,"effect_id":"eff_` + id + `","run":1,"event":"waits"}`, "process: required"},
		{&RunnerReportParams{}, `{` + ref + `,"effect_id":"eff_` + id + `","run":1,"event":"spawned"}`, "pid: required"},
		{&RunnerReportParams{}, `{` + ref + `,"effect_id":"eff_` + id + `","run":1,"event":"finished"}`, "state: required: one of done, failed, outcome_unknown"},
	} {
		if err := json.Unmarshal([]byte(tt.text), tt.of); err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		var got []string
		for _, f := range members.Check(tt.of) {
			got = append(got, f.Path+": "+f.Message)
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%T %s: got %q, want %q", tt.of, tt.text, strings.Join(got, "; "), tt.want)
		}
	}
}
