package taskapi

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// StartAttemptParams begins an attempt (task.start_attempt).
type StartAttemptParams struct {
	Write
	Said
	Phase        task.Phase `json:"phase" is:"required words=executing" doc:"The phase of the attempt."`
	Runtime      string     `json:"runtime" is:"required words=local|acp|other" doc:"The runtime of the attempt."`
	ExecutorKind string     `json:"executor_kind" is:"required words=builder|research|external_coder" doc:"The kind of executor. One of kind research reads and reports: it records no work and plans no effect."`
	WorkerRef    string     `json:"worker_ref,omitzero" is:"max=256" doc:"The name of the executor that makes the attempt; the caller if it is absent."`
	SessionRef   string     `json:"external_session_ref,omitzero" is:"max=4096" doc:"The executor's session elsewhere."`
	Expected     *int       `json:"expected_revision,omitzero" doc:"The revision that the caller read. The call is refused if the task has changed since."`
}

// AttemptStarted is the answer of task.start_attempt.
type AttemptStarted struct {
	Changed
	AttemptID string `json:"attempt_id"`
	Ordinal   int    `json:"ordinal"`
	Fence     int64  `json:"fence"`
	Escalate  bool   `json:"escalate"`
}

// CheckpointParams reports the progress of an attempt (task.record_checkpoint).
type CheckpointParams struct {
	Write
	AttemptID string         `json:"attempt_id" is:"required id=att_" doc:"The attempt's id."`
	Type      string         `json:"checkpoint_type" is:"required max=64" doc:"heartbeat renews the lease. Any other word, such as progress, is kept as a checkpoint."`
	Payload   jsontext.Value `json:"payload" is:"required object keeps=16384" doc:"The content of the checkpoint. Empty for a mere heartbeat."`
	Fence     *int64         `json:"fence,omitzero" doc:"The attempt's fence from task.start_attempt."`
}

// Checkpointed is the answer of task.record_checkpoint.
type Checkpointed struct {
	Changed
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero"`
	// Cancel reports that the attempt was aborted: the executor must stop.
	Cancel bool `json:"cancel"`
}

// ArtifactParams records an artifact (task.record_artifact).
type ArtifactParams struct {
	Write
	AttemptID  string `json:"attempt_id" is:"required id=att_" doc:"The attempt's id."`
	Kind       string `json:"kind" is:"required words=primary_output|test_report|diff|review_report|other" doc:"The kind of artifact."`
	URI        string `json:"uri" is:"required max=4096" doc:"The file's path in the workspace, or another address."`
	ProducedBy string `json:"produced_by" is:"required max=256" doc:"The caller's name."`
	Summary    string `json:"summary,omitzero" is:"max=4096" doc:"A sentence about it."`
	Digest     string `json:"digest,omitzero" is:"form=digest" doc:"sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace."`
	Fence      *int64 `json:"fence,omitzero" doc:"The attempt's fence from task.start_attempt."`
}

// ArtifactRecorded is the answer of task.record_artifact.
type ArtifactRecorded struct {
	Changed
	ArtifactID       string `json:"artifact_id"`
	ArtifactRevision int    `json:"artifact_revision"`
	Digest           string `json:"digest"`
	Verified         bool   `json:"verified"`
}

// FinishAttemptParams ends an attempt (task.finish_attempt).
type FinishAttemptParams struct {
	Write
	AttemptID    string `json:"attempt_id" is:"required id=att_" doc:"The attempt's id."`
	Outcome      string `json:"outcome" is:"required words=succeeded|failed|aborted" doc:"The outcome."`
	FailureCode  string `json:"failure_code,omitzero" is:"words=agent_error|timeout|lease_expired|crashed|max_tokens|max_turns|invalid_output|refused|cancelled|environment" doc:"The cause of a failure. Required with failed, and given with nothing else."`
	ErrorSummary string `json:"error_summary,omitzero" is:"max=4096" doc:"The failure in a sentence."`
	Fence        *int64 `json:"fence,omitzero" doc:"The attempt's fence from task.start_attempt."`
}

// Rules reports faults between members.
func (p *FinishAttemptParams) Rules() (f api.Fields) {
	switch failed := p.Outcome == task.AttemptFailed; {
	case failed && p.FailureCode == "":
		f.OneOf("failure_code", "", task.Failures())
	case !failed && p.FailureCode != "":
		f.Add("failure_code", "only a failed attempt has one")
	}
	return f
}

// AttemptFinished is the answer of task.finish_attempt.
type AttemptFinished struct {
	Changed
	Status  string    `json:"status"`
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Warning says that a success delivers nothing.
	Warning string `json:"warning,omitzero"`
}

// ReviewParams is a reviewer's verdict (task.append_review).
type ReviewParams struct {
	Write
	AttemptID   string         `json:"attempt_id,omitzero" is:"id=att_" doc:"The attempt's id."`
	ReviewType  string         `json:"review_type" is:"required words=spec|quality" doc:"The subject of the review. A reviewer gives reviews of its own type."`
	ReviewerRef string         `json:"reviewer_ref" is:"required max=256" doc:"The caller's name."`
	Verdict     string         `json:"verdict" is:"required words=approved|changes_requested|blocked" doc:"The verdict. approved passes."`
	Findings    []task.Finding `json:"findings" is:"required max=200" doc:"The findings; an empty list if there are none."`
	Summary     string         `json:"summary,omitzero" is:"max=4096" doc:"A sentence about it."`
	Subject     *int           `json:"subject_revision,omitzero" doc:"The reviewed revision; by default the last one that the caller read."`
}

// Reviewed is the answer of task.append_review.
type Reviewed struct {
	Changed
	ReviewID string `json:"review_id"`
	Stale    bool   `json:"stale"`
}

// AskPermissionParams asks whether an agent may use a tool of its runtime (task.ask_permission).
type AskPermissionParams struct {
	Ref
	AttemptID string         `json:"attempt_id,omitzero" is:"id=att_" doc:"The attempt's id."`
	ToolCall  ToolCall       `json:"tool_call" doc:"The call."`
	Options   jsontext.Value `json:"options" is:"keeps=16384" doc:"The answers that the runtime offers its user."`
}

// ToolCall is an agent's call of a tool.
type ToolCall struct {
	ID          string         `json:"id,omitzero" is:"max=256" doc:"The call's id in the runtime."`
	Kind        string         `json:"kind" is:"required max=64" doc:"The kind of call, such as execute."`
	Title       string         `json:"title,omitzero" is:"max=4096" doc:"The call in a sentence."`
	InWorkspace bool           `json:"in_workspace,omitzero" doc:"Whether the call touches only files of the task's workspace."`
	Server      string         `json:"mcp_server,omitzero" is:"max=256" doc:"The tool's MCP server."`
	Input       jsontext.Value `json:"input,omitzero" is:"keeps=65536" doc:"The tool's arguments."`
}

// Permission is the answer of task.ask_permission.
type Permission struct {
	Decision   string `json:"decision"`
	Reason     string `json:"reason,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`

	api.Followed `json:"-"`
}
