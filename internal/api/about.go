package api

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/ids"
)

// MessageTask is metadata.task: the task that a message is about.
type MessageTask struct {
	ID        string `json:"id"`
	AttemptID string `json:"attempt_id,omitzero"`
}

// TaskOf reads metadata.task. A member of that name whose id is no task's is the caller's
// own, and says nothing of a task.
func TaskOf(metadata Object) (t MessageTask, err error) {
	raw := metadata["task"]
	if len(raw) == 0 || raw.Kind() != '{' {
		return t, nil
	}
	var members Object
	if json.Unmarshal(raw, &members) != nil {
		return t, nil
	}
	if id, _ := Text(members["id"]); !strings.HasPrefix(id, ids.Task) {
		return t, nil
	}
	if err := json.Unmarshal(raw, &t, json.RejectUnknownMembers(true)); err != nil {
		return t, Invalid([]FieldError{{Path: "metadata.task", Message: "want {id, attempt_id?} and nothing else"}})
	}
	var f Fields
	f.ID("metadata.task.id", ids.Task, t.ID)
	f.Maybe("metadata.task.attempt_id", ids.Attempt, t.AttemptID)
	return t, Invalid(f)
}
