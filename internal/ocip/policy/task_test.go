package policy

import (
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task"
)

// judging is a policy with more files that allows all messages.
func judging(t *testing.T, more map[string]string) string {
	files := map[string]string{"exchange.rego": "package ocip.agent_exchange\n" + allowAll, "cross.rego": crossOrg}
	maps.Copy(files, more)
	return write(t, files)
}

// TestTaskPackages checks the requirements for a policy for tasks, and its permitted references.
func TestTaskPackages(t *testing.T) {
	for name, tt := range map[string]struct{ file, text, want string }{
		"no decision":         {"t.rego", "package ocip.task\nx := 1\n", "data.ocip.task.decision: it is undefined"},
		"ill-shaped":          {"t.rego", "package ocip.task\ndecision := {\"allow\": true}\n", "require_approval is missing"},
		"rounds":              {"t.rego", "package ocip.task\n" + strings.Replace(allowAll, "{}", `{"max_rounds": 1}`, 1), "a task has no rounds"},
		"a member misspelled": {"t.rego", "package ocip.task\n" + allowAll + "x if input.task.tenant == \"a\"\n", "undefined ref: input.task.tenant"},
		"a message's member":  {"t.rego", "package ocip.task\n" + allowAll + "x if input.source.user_id == \"a\"\n", "undefined ref: input.source.user_id"},
		"no member":           {"t.rego", "package ocip.task\n" + allowAll + "x if input.tsk.phase == \"a\"\n", "t.rego:3: undefined ref: input.tsk.phase"},
		"a task's member":     {"exchange.rego", "package ocip.agent_exchange\n" + allowAll + "x if input.task.phase == \"a\"\n", "exchange.rego:3: undefined ref: input.task.phase"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(t.Context(), Source{Path: judging(t, map[string]string{tt.file: tt.text})})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if p := mustCompile(t, Source{Path: judging(t, nil)}); p.JudgesTasks() {
		t.Error("a policy without the package judges tasks")
	}
	p := mustCompile(t, Source{Path: judging(t, map[string]string{"t.rego": "package ocip.task\n" + allowAll, "lib.rego": "package lib\nx if input.task.phase == input.source.user_id\n"})})
	if !p.JudgesTasks() {
		t.Error("a policy with the package judges no tasks")
	}
}

// A panic in the engine is an error of one question.
func TestPanicDenies(t *testing.T) {
	p := mustCompile(t, Source{Path: judging(t, map[string]string{"t.rego": "package ocip.task\n" + allowAll})})
	// An unprepared query panics.
	broken := &Policy{tasks: &query{name: taskPackage, turns: p.exchange.turns}, exchange: query{name: p.exchange.name, turns: p.exchange.turns}, digest: p.digest, timeout: p.timeout}
	got, name, revision, err := broken.EvaluateTask(t.Context(), &TaskQuestion{Action: task.AskTransition, Classification: "public"})
	if err == nil || !strings.Contains(err.Error(), "panicked") || got != (ocip.PolicyAnswer{}) || name != taskPackage || revision != p.Revision() {
		t.Errorf("got %+v, %q, %q, %v", got, name, revision, err)
	}
	if got, _, _, err := broken.Evaluate(t.Context(), question()); err == nil || got.Allow {
		t.Errorf("got %+v, %v", got, err)
	}
}
