package task

import (
	"slices"
	"strings"
)

// Phase is the phase of a task.
type Phase string

// The phases.
const (
	SpecDraft        Phase = "spec_draft"
	SpecReview       Phase = "spec_review"
	ExecutionReady   Phase = "execution_ready"
	Executing        Phase = "executing"
	SpecGate         Phase = "spec_gate"
	QualityGate      Phase = "quality_gate"
	AwaitingApproval Phase = "awaiting_approval"
	ReadyToResume    Phase = "ready_to_resume"
	Completed        Phase = "completed"
	Failed           Phase = "failed"
	CircuitOpen      Phase = "circuit_open"
)

// Phases lists them in the order of a task that goes well, then the others.
func Phases() []Phase {
	return []Phase{
		SpecDraft, SpecReview, ExecutionReady, Executing, SpecGate, QualityGate, AwaitingApproval, ReadyToResume, Completed, Failed, CircuitOpen,
	}
}

// Final reports whether nothing leads out of the phase.
func (p Phase) Final() bool { return p == Completed || p == Failed }

// Role is the rights of an actor on tasks.
type Role string

// The roles. An operator is a person; the daemon ends what time ends.
const (
	Orchestrator    Role = "orchestrator"
	Executor        Role = "executor"
	SpecReviewer    Role = "spec_reviewer"
	QualityReviewer Role = "quality_reviewer"
	Lobster         Role = "lobster"
	Operator        Role = "operator"
	Daemon          Role = "daemon"
)

// ActorRoles lists the roles that a configured actor can have.
func ActorRoles() []Role {
	return []Role{Orchestrator, Executor, SpecReviewer, QualityReviewer, Lobster}
}

// Roles is a set of roles: a column of the method table.
type Roles uint8

// The roles as members of a set.
const (
	O Roles = 1 << iota
	E
	S
	Q
	L
	P
)

// All are all callers.
const All = O | E | S | Q | L | P

// set is a role as a set of its own.
func (r Role) set() Roles {
	switch r {
	case Orchestrator:
		return O
	case Executor:
		return E
	case SpecReviewer:
		return S
	case QualityReviewer:
		return Q
	case Lobster:
		return L
	case Operator:
		return P
	default:
		return 0
	}
}

// Has reports whether a role is in the set.
func (s Roles) Has(r Role) bool { return s&r.set() != 0 }

// String names the roles by their letters, as the protocol's table does.
func (s Roles) String() string {
	var b strings.Builder
	for i, letter := range "OESQLP" {
		if s&(1<<i) != 0 {
			b.WriteRune(letter)
		}
	}
	return b.String()
}

// Code is why something about a task was refused: details.task.code.
type Code string

// The codes.
const (
	NotPermitted        Code = "NOT_PERMITTED"
	RoleMismatch        Code = "ROLE_MISMATCH"
	SameActor           Code = "SAME_ACTOR"
	SelfApproval        Code = "SELF_APPROVAL"
	NeedsPerson         Code = "APPROVAL_NEEDS_PERSON"
	Classified          Code = "CLASSIFICATION"
	PolicyDenied        Code = "POLICY_DENIED"
	Paused              Code = "PAUSED"
	RevisionMismatch    Code = "REVISION_MISMATCH"
	PhaseMismatch       Code = "PHASE_MISMATCH"
	GuardFailed         Code = "GUARD_FAILED"
	NotBefore           Code = "NOT_BEFORE"
	RetriesExhausted    Code = "RETRIES_EXHAUSTED"
	IdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	Limit               Code = "LIMIT"
	RunnerAbsent        Code = "RUNNER_ABSENT"
	LeaseLost           Code = "LEASE_LOST"
	Claimed             Code = "CLAIMED"
	ReadFirst           Code = "READ_FIRST"
	RequestKeyReused    Code = "REQUEST_KEY_REUSED"
	EffectInFlight      Code = "EFFECT_IN_FLIGHT"
	EffectUnknown       Code = "EFFECT_UNKNOWN"
	// Invalid is for requests that can never succeed in this form, and Absent for things that the
	// task does not have. They are INVALID_PARAMS and NOT_FOUND.
	Invalid Code = "INVALID"
	Absent  Code = "ABSENT"
	// ToolDenied is for tools that a grant does not have: CAPABILITY_DENIED.
	ToolDenied Code = "TOOL_DENIED"
)

// The states of an attempt. A failed attempt with a further one due is retrying.
const (
	AttemptRunning   = "running"
	AttemptSucceeded = "succeeded"
	AttemptFailed    = "failed"
	AttemptAborted   = "aborted"
	AttemptRetrying  = "retrying"
)

// Outcomes lists how an attempt is said to have ended.
func Outcomes() []string { return []string{AttemptSucceeded, AttemptFailed, AttemptAborted} }

// FailureLease is the failure of an attempt that was not heard of any more.
const FailureLease = "lease_expired"

// RetriedFailures lists the failures after which another attempt is due, and
// OtherFailures those after which it is not.
func RetriedFailures() []string {
	return []string{"agent_error", "timeout", FailureLease, "crashed", "max_tokens", "max_turns", "invalid_output"}
}

// OtherFailures lists the failures that another attempt would only meet again.
func OtherFailures() []string { return []string{"refused", "cancelled", "environment"} }

// Failures lists all of them.
func Failures() []string { return slices.Concat(RetriedFailures(), OtherFailures()) }

// Runtimes lists where an attempt runs, and ExecutorKinds what runs it.
func Runtimes() []string { return []string{"local", "acp", "other"} }

// ExecutorKinds lists what can run an attempt.
func ExecutorKinds() []string { return []string{"builder", "research", "external_coder"} }

// The kinds of artifacts.
const (
	PrimaryOutput = "primary_output"
	TestReport    = "test_report"
	Diff          = "diff"
	ReviewReport  = "review_report"
	OtherArtifact = "other"
)

// ArtifactKinds lists them.
func ArtifactKinds() []string {
	return []string{PrimaryOutput, TestReport, Diff, ReviewReport, OtherArtifact}
}

// The types of reviews.
const (
	ReviewSpec    = "spec"
	ReviewQuality = "quality"
)

// ReviewTypes lists them.
func ReviewTypes() []string { return []string{ReviewSpec, ReviewQuality} }

// The verdicts of reviews, and how much a finding weighs.
const (
	VerdictApproved = "approved"
	VerdictChanges  = "changes_requested"
	VerdictBlocked  = "blocked"
)

// Verdicts lists them.
func Verdicts() []string { return []string{VerdictApproved, VerdictChanges, VerdictBlocked} }

// Severities lists how much a finding can weigh.
func Severities() []string { return []string{"critical", "major", "minor"} }

// The states of an effect, and of a run of one.
const (
	EffectPlanned   = "planned"
	EffectStarted   = "started"
	EffectDone      = "done"
	EffectFailed    = "failed"
	EffectUncertain = "outcome_unknown"
	EffectCancelled = "cancelled"
)

// An effect is a command that the runner runs, or external: somebody else does it
// and says how it went.
const (
	TypeCommand  = "command"
	TypeExternal = "external"
)

// The origins of an effect. An effect of the spec outlives attempts.
const (
	originSpec    = "spec"
	originAttempt = "attempt"
)

// The states of an approval, as tasks call them.
const (
	ApprovalPending  = "pending"
	ApprovalApproved = "approved"
	ApprovalRejected = "rejected"
	ApprovalChanges  = "request_changes"
	ApprovalExpired  = "expired"
	ApprovalRevoked  = "revoked"
)

// Resolutions lists what can be decided about an approval.
func Resolutions() []string { return []string{ApprovalApproved, ApprovalRejected, ApprovalChanges} }

// The states of the circuit.
const (
	CircuitClosed  = "closed"
	CircuitStopped = "open"
)

// The limits of a task.
const (
	MaxSpecBytes    = 128 << 10
	MaxEntries      = 64
	MaxDependencies = 64
	MaxEffects      = 64
	maxAttempts     = 100
	maxArtifacts    = 1000
	maxReviews      = 1000
	maxApprovals    = 1000
	MaxRuns         = 100
	MaxPayloadBytes = 16 << 10
	MaxArgvBytes    = 64 << 10
	MaxStdinBytes   = 256 << 10
	MaxLabels       = 32
	MaxFindings     = 200
	MaxTitle        = 256
	MaxText         = 4096
	MaxPriority     = 4
	DefaultPriority = 2
)
