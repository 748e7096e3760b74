package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/openclawos/ocipd/internal/ocip"
)

// taskPackage is the package for questions about tasks.
const taskPackage = "ocip.task"

// TaskQuestion is a question about a task, as Rego sees it. Members without a value are absent.
type TaskQuestion struct {
	Action                 string
	Tenant, Classification string
	Labels                 []string
	Phase                  string
	Actor                  string
	Role                   string
	// To is the phase after a transition.
	To string
	// Attempt is the number of the next attempt, counted since the circuit was last closed, and
	// Executor is its executor.
	Attempt  int
	Executor string
	Effect   *TaskEffect
	Tool     *TaskTool
}

// TaskEffect is a planned effect outside the daemon. Program is empty unless the effect is a
// command.
type TaskEffect struct {
	Kind, Type, Program string
	// Compensation is set if the effect is to be undone, and Late if it was planned after the reviews.
	Compensation, Late bool
}

// TaskTool is a tool call of an agent. Server is the MCP server, if the tool has one. Research is set
// if the call is part of an attempt that only reads.
type TaskTool struct {
	Kind, Server          string
	InWorkspace, Research bool
}

// value returns the question as Rego sees it.
func (q *TaskQuestion) value() *ast.Term {
	text := func(name, s string) [2]*ast.Term { return ast.Item(ast.InternedTerm(name), ast.StringTerm(s)) }
	flag := func(name string, b bool) [2]*ast.Term { return ast.Item(ast.InternedTerm(name), ast.InternedTerm(b)) }
	labels := make([]*ast.Term, len(q.Labels))
	for i, l := range q.Labels {
		labels[i] = ast.StringTerm(l)
	}
	members := [][2]*ast.Term{
		text("action", q.Action),
		ast.Item(ast.InternedTerm("task"), ast.ObjectTerm(
			text("tenant_id", q.Tenant), text("classification", q.Classification), text("phase", q.Phase),
			ast.Item(ast.InternedTerm("labels"), ast.ArrayTerm(labels...)),
		)),
		ast.Item(ast.InternedTerm("actor"), ast.ObjectTerm(text("name", q.Actor), text("role", q.Role))),
	}
	if q.To != "" {
		members = append(members, text("to_phase", q.To))
	}
	if q.Attempt > 0 {
		members = append(members, ast.Item(ast.InternedTerm("attempt"), ast.InternedTerm(q.Attempt)), text("executor", q.Executor))
	}
	if e := q.Effect; e != nil {
		members = append(members, ast.Item(ast.InternedTerm("effect"), ast.ObjectTerm(
			text("kind", e.Kind), text("type", e.Type), text("argv0", e.Program), flag("compensation", e.Compensation), flag("late", e.Late),
		)))
	}
	if t := q.Tool; t != nil {
		members = append(members, ast.Item(ast.InternedTerm("tool_call"), ast.ObjectTerm(
			text("kind", t.Kind), text("mcp_server", t.Server), flag("in_workspace", t.InWorkspace), flag("research", t.Research),
		)))
	}
	return ast.ObjectTerm(members...)
}

// taskSchema describes the members of a question about a task.
func taskSchema() map[string]any {
	text, flag := map[string]any{"type": "string"}, map[string]any{"type": "boolean"}
	object := func(members map[string]any) any { return map[string]any{"type": "object", "properties": members} }
	return map[string]any{
		"action":    text,
		"task":      object(map[string]any{"tenant_id": text, "classification": text, "phase": text, "labels": map[string]any{"type": "array", "items": text}}),
		"actor":     object(map[string]any{"name": text, "role": text}),
		"to_phase":  text,
		"attempt":   map[string]any{"type": "integer"},
		"executor":  text,
		"effect":    object(map[string]any{"kind": text, "type": text, "argv0": text, "compensation": flag, "late": flag}),
		"tool_call": object(map[string]any{"kind": text, "mcp_server": text, "in_workspace": flag, "research": flag}),
	}
}

// JudgesTasks reports whether the policy has a package for tasks.
func (p *Policy) JudgesTasks() bool { return p.tasks != nil }

// EvaluateTask answers one question about a task, as [Policy.Evaluate] does, if the policy judges
// tasks. It refuses if the policy allows only a classification below the task's. Answers are not
// cached.
func (p *Policy) EvaluateTask(ctx context.Context, q *TaskQuestion) (answer ocip.PolicyAnswer, name, revision string, err error) {
	if p.tasks == nil {
		return ocip.PolicyAnswer{}, "", p.Revision(), ErrNotLoaded
	}
	answer, err = p.tasks.evaluate(ctx, q.value().Value, p.timeout)
	if err != nil {
		return answer, p.tasks.name, p.Revision(), err
	}
	level, err := ocip.ParseLevel(q.Classification)
	if err != nil {
		return ocip.PolicyAnswer{}, p.tasks.name, p.Revision(), err
	}
	if answer.HasMaxClassification && level > answer.MaxClassification {
		answer.Reason = strings.TrimPrefix(fmt.Sprintf("%s; the task is %s, and the policy allows up to %s", answer.Reason, level, answer.MaxClassification), "; ")
		answer.Allow = false
	}
	return answer, p.tasks.name, p.Revision(), nil
}

// taskSamples are questions for trying a policy for tasks.
func taskSamples() []TaskQuestion {
	of := func(action string) TaskQuestion {
		return TaskQuestion{
			Action: action, Tenant: "sample", Classification: ocip.Internal.String(), Labels: []string{"sample"}, Phase: "execution_ready", Actor: "sample-1", Role: "orchestrator",
		}
	}
	move, attempt, effect, tool := of("transition"), of("attempt"), of("effect"), of("permission")
	move.To = "executing"
	attempt.Attempt, attempt.Executor = 1, "sample-2"
	effect.Phase, effect.Effect = "ready_to_resume", &TaskEffect{Kind: "deployment", Type: "command", Program: "bin/deploy"}
	tool.Phase, tool.Role, tool.Tool = "executing", "executor", &TaskTool{Kind: "execute"}
	return []TaskQuestion{move, attempt, effect, tool}
}
