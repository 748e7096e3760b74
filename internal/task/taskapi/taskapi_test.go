package taskapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// More of a member than a task may keep is a conflict, LIMIT, which names the member. What is
// wrong in its form as well is told first.
func TestLimits(t *testing.T) {
	const id = "0190a5b0-0000-7000-8000-000000000000"
	object := func(size int) jsontext.Value {
		return jsontext.Value(`{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`)
	}
	command := func(change func(c *task.Action, n int)) func(n int) interface{ Validate() []api.FieldError } {
		return func(n int) interface{ Validate() []api.FieldError } {
			p := &PlanEffectParams{Planned: task.Planned{Key: "k", Kind: "deployment", Command: &task.Action{Argv: []string{"x"}}}}
			p.TaskID = ids.Task + id
			change(p.Command, n)
			return p
		}
	}
	for name, tt := range map[string]struct {
		most int
		of   func(n int) interface{ Validate() []api.FieldError }
	}{
		"command.argv":  {task.MaxArgvBytes, command(func(c *task.Action, n int) { c.Argv[0] = strings.Repeat("x", n-1) })},
		"command.stdin": {task.MaxStdinBytes, command(func(c *task.Action, n int) { c.Stdin = strings.Repeat("x", n) })},
		"params": {task.MaxPayloadBytes, func(n int) interface{ Validate() []api.FieldError } {
			p := &PlanEffectParams{Planned: task.Planned{Key: "k", Kind: "deployment", Params: object(n)}}
			p.TaskID = ids.Task + id
			return p
		}},
		"payload": {task.MaxPayloadBytes, func(n int) interface{ Validate() []api.FieldError } {
			p := &CheckpointParams{AttemptID: ids.Attempt + id, Type: "progress", Payload: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"receipt": {task.MaxPayloadBytes, func(n int) interface{ Validate() []api.FieldError } {
			p := &FinishEffectParams{EffectID: ids.Effect + id, Run: 1, RunToken: "t", Outcome: task.EffectDone, Receipt: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"tool_call.input": {task.MaxArgvBytes, func(n int) interface{ Validate() []api.FieldError } {
			p := &AskPermissionParams{ToolCall: ToolCall{Kind: "execute", Input: object(n)}}
			p.TaskID = ids.Task + id
			return p
		}},
		"options": {task.MaxPayloadBytes, func(n int) interface{ Validate() []api.FieldError } {
			p := &AskPermissionParams{ToolCall: ToolCall{Kind: "execute"}, Options: object(n)}
			p.TaskID = ids.Task + id
			return p
		}},
		"effects": {task.MaxEffects, func(n int) interface{ Validate() []api.FieldError } {
			p := &CreateParams{Title: "t", Workspace: "main", SpecMarkdown: "# s", InitialPhase: task.SpecDraft}
			for range n {
				p.Effects = append(p.Effects, task.Planned{Key: "k", Kind: "deployment", Params: object(10)})
			}
			return p
		}},
		"depends_on": {task.MaxDependencies, func(n int) interface{ Validate() []api.FieldError } {
			p := &CreateParams{Title: "t", Workspace: "main", SpecMarkdown: "# s", InitialPhase: task.SpecDraft}
			for range n {
				p.DependsOn = append(p.DependsOn, ids.Task+id)
			}
			return p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := api.Invalid(tt.of(tt.most).Validate()); err != nil {
				t.Errorf("as much as may be is refused: %v", err)
			}
			faults := tt.of(tt.most + 1).Validate()
			e, ok := errors.AsType[*api.Error](api.Invalid(faults))
			if !ok || e.Code != api.Conflict || !strings.HasPrefix(e.Message, name+": more than") {
				t.Fatalf("got %v", e)
			}
			if d, ok := e.Details.(Details); !ok || d.Task.Code != task.Limit {
				t.Errorf("got %+v", e.Details)
			}
			e, ok = errors.AsType[*api.Error](api.Invalid(append(faults, api.FieldError{Path: "x", Message: "required"})))
			if !ok || e.Code != api.InvalidParams || !strings.Contains(e.Message, name+": more than") {
				t.Errorf("got %v", e)
			}
		})
	}
}
