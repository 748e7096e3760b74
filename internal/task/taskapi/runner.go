package taskapi

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// RunnerAttachParams makes the caller's process run the commands of effects (runner.attach).
// There is one such process at a time.
type RunnerAttachParams struct{}

// RunnerChunk is one instruction to a runner. The first one has the directory of the ledger, and the
// key that seals its files; the others name a command to run or to end.
type RunnerChunk struct {
	Directory string       `json:"directory,omitzero"`
	Key       []byte       `json:"key,omitzero"`
	Run       *RunnerOrder `json:"run,omitempty"`
	Kill      *RunnerRef   `json:"kill,omitempty"`
}

// RunnerRef names a run of an effect.
type RunnerRef struct {
	TaskID   string `json:"task_id" is:"required id=tsk_" doc:"The task's id."`
	EffectID string `json:"effect_id" is:"required id=eff_" doc:"The effect's id."`
	Run      int    `json:"run" is:"required range=1.." doc:"The run's number."`
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
	// Begun names the process that was let begin the command, as far as it is on record.
	Begun string `json:"begun,omitzero"`
}

// The reports of a runner: a process waits to start the command, it has ended without the command,
// the command has a process, and the command ended.
const (
	RunnerWaits     = "waits"
	RunnerWithdrawn = "withdrawn"
	RunnerSpawned   = "spawned"
	RunnerFinished  = "finished"
)

// RunnerReportParams is a runner's report of a run (runner.report).
type RunnerReportParams struct {
	RunnerRef
	Event    string         `json:"event" is:"required words=waits|withdrawn|spawned|finished" doc:"A process waits to start the command, it has ended without the command, the command has a process, or it ended."`
	Process  string         `json:"process,omitzero" is:"max=64" doc:"The waiting process, by its pid and start. Required with waits and withdrawn."`
	PID      int            `json:"pid,omitzero" doc:"The command's process. Required with spawned."`
	State    string         `json:"state,omitzero" is:"words=done|failed|outcome_unknown" doc:"The outcome. Required with finished."`
	Evidence string         `json:"evidence,omitzero" is:"max=16384" doc:"The known facts about a run with an unknown outcome."`
	Receipt  jsontext.Value `json:"receipt,omitzero" is:"exact" doc:"The run's receipt."`
}

// Rules reports faults between members.
func (p *RunnerReportParams) Rules() (f api.Fields) {
	switch {
	case (p.Event == RunnerWaits || p.Event == RunnerWithdrawn) && p.Process == "":
		f.Add("process", "required")
	case p.Event == RunnerSpawned && p.PID < 1:
		f.Add("pid", "required")
	case p.Event == RunnerFinished && p.State == "":
		f.OneOf("state", "", []string{task.EffectDone, task.EffectFailed, task.EffectUncertain})
	}
	return f
}
