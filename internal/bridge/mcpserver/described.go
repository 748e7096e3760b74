package mcpserver

import (
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Described is a tool as a client sees it under a grant for all of an actor's tasks.
type Described struct {
	Name, Title string
	// Required are the members that a call needs.
	Required []string
}

// TaskTools are the tools about tasks.
func TaskTools() (list []Described, err error) {
	for _, t := range tools() {
		if !strings.HasPrefix(t.name, "task_") {
			continue
		}
		described, err := t.describe(new(taskapi.Attached))
		if err != nil {
			return nil, err
		}
		input, _ := described.InputSchema.(*jsonschema.Schema) // describe made it
		list = append(list, Described{t.name, t.title, input.Required})
	}
	return list, nil
}
