package policy

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/openclawos/ocipd/internal/ocip"
)

// toolPackage is the package for questions about tool calls, and toolAction their action.
const (
	toolPackage = "ocip.tool"
	toolAction  = "tool_call"
)

// toolValue returns the question as Rego sees it.
func toolValue(q *ocip.ToolQuestion) (ast.Value, error) {
	given := q.Arguments
	if len(given) == 0 {
		given = []byte("{}")
	}
	arguments, err := ast.ValueFromReader(bytes.NewReader(given))
	if err != nil {
		return nil, fmt.Errorf("cannot read the arguments of the call: %w", err)
	}
	text := func(name, s string) [2]*ast.Term { return ast.Item(ast.InternedTerm(name), ast.StringTerm(s)) }
	found := make([]*ast.Term, len(q.Found))
	for i, rule := range q.Found {
		found[i] = ast.StringTerm(rule)
	}
	return ast.NewObject(
		text("action", toolAction),
		ast.Item(ast.InternedTerm("agent"), identityTerm(&q.Agent)),
		ast.Item(ast.InternedTerm("tool"), ast.ObjectTerm(text("name", q.Name), text("server", q.Server), text("command", q.Command), text("folder", q.Folder),
			text("map", q.Map), ast.Item(ast.InternedTerm("found"), ast.ArrayTerm(found...)))),
		ast.Item(ast.InternedTerm("arguments"), ast.NewTerm(arguments)),
	), nil
}

// toolSchema describes the members of a question about a tool call.
func toolSchema() map[string]any {
	text := map[string]any{"type": "string"}
	object := func(names ...string) any {
		members := make(map[string]any)
		for _, name := range names {
			members[name] = text
		}
		if slices.Contains(names, "found") {
			members["found"] = map[string]any{"type": "array", "items": text}
		}
		return map[string]any{"type": "object", "properties": members}
	}
	return map[string]any{
		"action": text, "agent": object("instance_id", "user_id", "org_unit", "tenant_id"),
		"tool": object("name", "server", "command", "folder", "map", "found"), "arguments": map[string]any{"type": "object"},
	}
}

// JudgesTools reports whether the policy has a package for tool calls.
func (p *Policy) JudgesTools() bool { return p.tools != nil }

// EvaluateTool answers one question about a tool call, as [Policy.Evaluate] does, if the policy
// judges them. Answers are not cached.
func (p *Policy) EvaluateTool(ctx context.Context, q *ocip.ToolQuestion) (answer ocip.PolicyAnswer, name, revision string, err error) {
	if p.tools == nil {
		return ocip.PolicyAnswer{}, "", p.Revision(), ErrNotLoaded
	}
	input, err := toolValue(q)
	if err == nil {
		answer, err = p.tools.evaluate(ctx, input, p.timeout)
	}
	return answer, p.tools.name, p.Revision(), err
}

// toolSamples are questions for trying a policy for tools.
func toolSamples() ([]ast.Value, error) {
	whose := ocip.Identity{InstanceID: "sample-1", UserID: "alice", OrgUnit: "engineering", TenantID: "sample"}
	var list []ast.Value
	for _, q := range []ocip.ToolQuestion{
		{Agent: whose, Name: "Bash", Command: "git status", Folder: "/work", Arguments: []byte(`{"command": "git status"}`)},
		{Agent: whose, Name: "Read", Folder: "/work", Arguments: []byte(`{"file_path": "/work/README.md"}`)},
		{Agent: whose, Name: "search", Server: "web", Arguments: []byte(`{}`)},
	} {
		value, err := toolValue(&q)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}
