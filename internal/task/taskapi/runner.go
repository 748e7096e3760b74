package taskapi

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// RunnerAttachParams makes the caller's process run the commands of effects
// (runner.attach). There is one such process at a time.
type RunnerAttachParams struct{}

// RunnerChunk is one thing that a runner is told: first where its ledger is, then
// what to run and what to end.
type RunnerChunk struct {
	Directory string       `json:"directory,omitzero"`
	Run       *RunnerOrder `json:"run,omitempty"`
	Kill      *RunnerRef   `json:"kill,omitempty"`
}

// RunnerRef names a run of an effect.
type RunnerRef struct {
	TaskID   string `json:"task_id"`
	EffectID string `json:"effect_id"`
	Run      int    `json:"run"`
}

// RunnerOrder is a run that is on record as started.
type RunnerOrder struct {
	RunnerRef
	Workspace string      `json:"workspace"`
	Action    task.Action `json:"command"`
	Bound     task.Bound  `json:"bound"`
	// Compensation is set for a command that undoes another one.
	Compensation bool      `json:"compensation,omitzero"`
	StartedAt    time.Time `json:"started_at"`
}

// What a runner reports of a run: that a process waits to start it, that its command has
// a process, and how it ended.
const (
	RunnerWaits    = "waits"
	RunnerSpawned  = "spawned"
	RunnerFinished = "finished"
)

// RunnerReportParams is a runner's word about a run (runner.report).
type RunnerReportParams struct {
	RunnerRef
	Event string `json:"event"`
	// Process names the process that waits, by its pid and when it began.
	Process string `json:"process,omitzero"`
	PID     int    `json:"pid,omitzero"`
	// State is how it ended: done, failed or outcome_unknown. Evidence is what is known
	// of what nobody knows the outcome of.
	State    string         `json:"state,omitzero"`
	Evidence string         `json:"evidence,omitzero"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
}

// Validate names the fields that are wrong.
func (p *RunnerReportParams) Validate() []api.FieldError {
	var f fields
	f.ID("task_id", ids.Task, p.TaskID)
	f.ID("effect_id", ids.Effect, p.EffectID)
	if p.Run < 1 {
		f.Add("run", "required")
	}
	f.OneOf("event", p.Event, []string{RunnerWaits, RunnerSpawned, RunnerFinished})
	switch p.Event {
	case RunnerWaits:
		f.Text("process", p.Process, 64)
	case RunnerSpawned:
		if p.PID < 1 {
			f.Add("pid", "required")
		}
	case RunnerFinished:
		f.OneOf("state", p.State, []string{task.EffectDone, task.EffectFailed, task.EffectUncertain})
	}
	f.UpTo("evidence", p.Evidence, task.MaxPayloadBytes)
	return f.Fields
}
