package mcpserver

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// schemaOf is the schema of a method's parameters, with the bounds and descriptions of the
// table of methods.
func schemaOf(params reflect.Type) (*jsonschema.Schema, error) { return schema.Of(params, true, true) }

// describe is the tool's description for a client under a grant.
func (t *tool) describe(at *taskapi.Attached) (*mcp.Tool, error) {
	s, err := schemaOf(t.params)
	if err != nil {
		return nil, fmt.Errorf("cannot describe the tool %s: %w", t.name, err)
	}
	for _, member := range append(slices.Clone(t.said), t.hidden...) {
		drop(s, member)
	}
	if at.AttemptID != "" {
		drop(s, "fence")
	}
	optional := map[string]bool{"task_id": at.TaskID != "", "attempt_id": at.AttemptID != ""}
	s.Required = slices.DeleteFunc(s.Required, func(member string) bool { return optional[member] })
	plain(s, toolNames())
	no, yes := new(bool), new(bool)
	*yes = true
	hints := &mcp.ToolAnnotations{Title: t.title, ReadOnlyHint: t.effect == reads, IdempotentHint: t.effect != writes, DestructiveHint: no, OpenWorldHint: no}
	if t.effect == acts {
		hints.DestructiveHint, hints.OpenWorldHint = yes, yes
	}
	return &mcp.Tool{Name: t.name, Title: t.title, Description: t.about, InputSchema: s, Annotations: hints}, nil
}

func drop(s *jsonschema.Schema, member string) {
	delete(s.Properties, member)
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, func(name string) bool { return name == member })
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == member })
}

// toolNames replaces the names of methods with those of their tools.
func toolNames() *strings.Replacer {
	var names []string
	for _, t := range tools() {
		names = append(names, t.method, t.name)
	}
	return strings.NewReplacer(names...)
}

// plain fits the members of a schema to clients of MCP: descriptions name tools, free JSON is
// an object, and only keywords of JSON Schema remain.
func plain(s *jsonschema.Schema, names *strings.Replacer) {
	if s == nil {
		return
	}
	s.Extra = nil
	for _, member := range s.Properties {
		if member.Description = names.Replace(member.Description); member.Type == "" {
			member.Type = "object"
		}
		plain(member, names)
	}
	plain(s.Items, names)
}
