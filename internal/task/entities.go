package task

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/base/mutant"
)

// Head is a task without its lists.
type Head struct {
	ID        string `json:"task_id"`
	Tenant    string `json:"tenant_id,omitzero"`
	Title     string `json:"title"`
	Workspace string `json:"workspace"`
	Phase     Phase  `json:"phase"`
	// Revision grows by one with each change, but not with checkpoints and claims, and
	// Seq with each event.
	Revision  int      `json:"revision"`
	Seq       int      `json:"seq"`
	Circuit   string   `json:"circuit_status"`
	Priority  int      `json:"priority"`
	Labels    []string `json:"labels"`
	DependsOn []string `json:"depends_on"`
	// Classification is the level of the task's texts.
	Classification string    `json:"classification,omitzero"`
	NotBefore      time.Time `json:"not_before,omitzero"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	CreatedBy      string    `json:"created_by"`
	// CurrentAttempt is the last attempt, running or not.
	CurrentAttempt   string `json:"current_attempt_id,omitzero"`
	ArtifactRevision int    `json:"artifact_revision"`
	// Fence is the last attempt's, and Counted from which attempt on retries count:
	// the first since the circuit was last closed.
	Fence   int64  `json:"fence,omitzero"`
	Counted int    `json:"counted,omitzero"`
	Claim   *Claim `json:"claim,omitzero"`
	// CircuitReason is why the circuit was opened.
	CircuitReason string `json:"circuit_reason,omitzero"`
	// Origin names the task elsewhere that this one was imported from.
	Origin string `json:"origin,omitzero"`
}

// Task is a task as it is stored.
type Task struct {
	Head
	// Specs are all versions of the spec, the current one last.
	Specs     []Spec     `json:"specs"`
	Attempts  []Attempt  `json:"attempts"`
	Artifacts []Artifact `json:"artifacts"`
	Reviews   []Review   `json:"reviews"`
	Effects   []Effect   `json:"effects"`
	Approvals []Approval `json:"approvals"`
}

// Claim keeps a task for one orchestrator for a while.
type Claim struct {
	Actor string    `json:"actor"`
	Until time.Time `json:"until"`
	// LeaseMS is how long each write of the holder renews it for.
	LeaseMS int64 `json:"lease_ms"`
}

// Spec is one version of a task's specification.
type Spec struct {
	Version int `json:"version"`
	Fields
	Markdown string `json:"markdown,omitzero"`
	// URI and Digest name the file in the workspace that it was read from.
	URI    string    `json:"uri,omitzero"`
	Digest string    `json:"digest,omitzero"`
	Author string    `json:"author"`
	By     Principal `json:"by,omitzero"`
	At     time.Time `json:"at"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// Fields are the parts of a spec. A list that is nil is absent.
type Fields struct {
	Goal               string   `json:"goal,omitzero" doc:"The goal, in a sentence."`
	ScopeIn            []string `json:"scope_in,omitzero" doc:"The parts of the task."`
	ScopeOut           []string `json:"scope_out,omitzero" doc:"The parts that do not belong to the task."`
	Inputs             []string `json:"inputs,omitzero" doc:"The inputs of the task."`
	Outputs            []string `json:"outputs,omitzero" doc:"The results of the task."`
	AcceptanceCriteria []string `json:"acceptance_criteria,omitzero" doc:"The criteria of a completed task. Each can be checked."`
	Risks              []string `json:"risks,omitzero" doc:"The risks."`
}

// Attempt is one try at the task.
type Attempt struct {
	ID      string `json:"attempt_id"`
	Ordinal int    `json:"ordinal"`
	// Actor is the executor: the orchestrator itself where nobody else is assigned.
	Actor    string `json:"actor"`
	Status   string `json:"status"`
	Fence    int64  `json:"fence"`
	Runtime  string `json:"runtime"`
	Executor string `json:"executor_kind"`
	// The two references are somebody else's and decide nothing.
	WorkerRef  string    `json:"worker_ref,omitzero"`
	SessionRef string    `json:"external_session_ref,omitzero"`
	Escalate   bool      `json:"escalate"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
	// EndedBy is the role of whoever ended it.
	EndedBy Role `json:"ended_by,omitzero"`
	// LeaseExpires is the end of the lease that was last stored. Heartbeats renew it in memory
	// alone.
	LeaseExpires time.Time `json:"lease_expires_at"`
	RetryAt      time.Time `json:"retry_at,omitzero"`
	Failure      string    `json:"failure_code,omitzero"`
	Error        string    `json:"error_summary,omitzero"`
	// By are the principals that began or ended it as its executor.
	By []Principal `json:"by,omitempty"`
	// Checkpoints are how many were recorded, and Last what the last one said.
	Checkpoints int         `json:"checkpoints"`
	Last        *Checkpoint `json:"last_checkpoint,omitzero"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// Checkpoint is a report about a running attempt.
type Checkpoint struct {
	Type    string         `json:"checkpoint_type"`
	Payload jsontext.Value `json:"payload,omitzero"`
	Actor   string         `json:"actor"`
	At      time.Time      `json:"at"`
}

// Artifact is something that an attempt made, or that was made about it.
type Artifact struct {
	ID        string `json:"artifact_id"`
	AttemptID string `json:"attempt_id"`
	Kind      string `json:"kind"`
	URI       string `json:"uri"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size,omitzero"`
	// Verified is set if the daemon has hashed the file itself.
	Verified bool   `json:"verified"`
	Summary  string `json:"summary,omitzero"`
	Actor    string `json:"actor"`
	// Work is set on artifacts that can raise the artifact revision: those that an executor or the
	// orchestrator recorded. Current is set on the newest of its URI.
	Work bool `json:"work"`
	// Undeclared is set on work whose name is none of the outputs that the spec declares.
	Undeclared bool      `json:"undeclared,omitzero"`
	Current    bool      `json:"current"`
	Revision   int       `json:"artifact_revision"`
	ClaimedBy  string    `json:"claimed_by,omitzero"`
	By         Principal `json:"by,omitzero"`
	At         time.Time `json:"at"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// Subject is the subject of a review: a version of the spec alone, or the work for it.
type Subject struct {
	Spec int `json:"spec_version"`
	// Artifact is zero if the spec alone is reviewed.
	Artifact int `json:"artifact_revision"`
	// Gate is set if what was made is reviewed, though nothing may have been.
	Gate bool `json:"gate"`
}

// Review is one reviewer's word.
type Review struct {
	ID        string    `json:"review_id"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Type      string    `json:"review_type"`
	Actor     string    `json:"actor"`
	Verdict   string    `json:"verdict"`
	Findings  []Finding `json:"findings"`
	Summary   string    `json:"summary,omitzero"`
	Subject   Subject   `json:"subject"`
	ClaimedBy string    `json:"claimed_by,omitzero"`
	// Shared names the principal that may be behind both the work and the review, if the
	// configuration allows that.
	Shared string `json:"shared_principal,omitzero"`
	// Void is set if an effect was planned since that the reviewer has not seen.
	Void bool      `json:"void,omitzero"`
	At   time.Time `json:"at"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// Finding is one thing a reviewer found.
type Finding struct {
	Severity string `json:"severity" is:"required words=critical|major|minor" doc:"The severity."`
	Message  string `json:"message" is:"required max=4096" doc:"The fault, and how to correct it."`
	File     string `json:"file,omitzero" is:"max=4096" doc:"The file."`
	Line     int    `json:"line,omitzero" is:"range=0.." doc:"The line."`
	URI      string `json:"artifact_uri,omitzero" is:"max=4096" doc:"The artifact."`
}

// Action is a command as it is planned.
type Action struct {
	Argv     []string          `json:"argv" is:"required nonempty" doc:"The program and its arguments."`
	Cwd      string            `json:"cwd,omitzero" is:"max=4096" doc:"The working folder, within the workspace."`
	Env      map[string]string `json:"env,omitzero" is:"max=256" doc:"Variables."`
	EnvFrom  []string          `json:"env_from,omitzero" is:"names" doc:"Names of variables of the runner, such as credentials."`
	Stdin    string            `json:"stdin,omitzero" is:"keeps=262144" doc:"The standard input."`
	Inputs   []string          `json:"inputs,omitzero" is:"names" doc:"Artifacts and files of the workspace that the command reads, by id or path."`
	TimeoutS int               `json:"timeout_s,omitzero" is:"range=0..86400" doc:"The seconds until the runner ends the command; 0 is its usual limit."`
}

// Planned is a planned effect on the world.
type Planned struct {
	Key             string         `json:"idempotency_key" is:"required max=256" doc:"A name of the effect within the task. A second request with it is the same effect."`
	Kind            string         `json:"side_effect_kind" is:"required max=64" doc:"The kind of effect, in a word: deployment, merge, notification, …"`
	RequestedAction string         `json:"requested_action,omitzero" is:"max=4096" doc:"The action, in a sentence that a person can decide about. Required to request an approval."`
	Command         *Action        `json:"command,omitzero" doc:"The program to run. The approval binds program, arguments, environment and inputs by their digests."`
	Params          jsontext.Value `json:"params,omitzero" is:"object exact keeps=16384" doc:"The parameters of an effect that is no command, for its executor."`
	Compensation    *Action        `json:"compensation,omitzero" doc:"A command that undoes the effect. It is approved together with the effect."`
}

// Type is command or external.
func (p *Planned) Type() string {
	if p.Command != nil {
		return TypeCommand
	}
	return TypeExternal
}

// Effect is something that is done in the world once a person has approved it.
type Effect struct {
	ID string `json:"effect_id"`
	Planned
	EffectType string `json:"type"`
	Origin     string `json:"origin"`
	State      string `json:"state"`
	PlannedBy  string `json:"planned_by"`
	// Late is set if it was planned after a review of the present work that still counts.
	Late bool `json:"late,omitzero"`
	// Digest is the request's that was last asked for.
	Digest  string         `json:"request_digest,omitzero"`
	Runs    []Run          `json:"runs"`
	Receipt jsontext.Value `json:"receipt,omitzero"`
	At      time.Time      `json:"at"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// Run is one start of an effect, or of its compensation.
type Run struct {
	Number       int    `json:"run"`
	Compensation bool   `json:"compensation,omitzero"`
	State        string `json:"state"`
	ApprovalID   string `json:"approval_id"`
	Actor        string `json:"actor"`
	// Role is the role in which the actor started the run.
	Role      Role      `json:"role,omitzero"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Begun names the process that the daemon has let begin the command. Withdrawn is set once it has
	// ended without the command.
	Begun     string         `json:"begun,omitzero"`
	Withdrawn bool           `json:"withdrawn,omitzero"`
	PID       int            `json:"pid,omitzero"`
	Receipt   jsontext.Value `json:"receipt,omitzero"`
	// TokenHash is the SHA-256 of the run token of an external effect.
	TokenHash string `json:"token_hash,omitzero"`
	// KillAsked is set once a person wants the command ended: one that has not begun never does.
	KillAsked bool `json:"kill_asked,omitzero"`
	// NotBegun is set if the command did not begin: then there is nothing to undo.
	NotBegun bool `json:"not_begun,omitzero"`
	// UndoUntil is the end of the permission to undo the run that its approval gives, zero for a run
	// without one, and for one of an earlier version.
	UndoUntil time.Time `json:"undo_until,omitzero"`
	// Evidence is why the outcome is not known, and Settled who settled it.
	Evidence string `json:"evidence,omitzero"`
	Settled  string `json:"settled_by,omitzero"`
}

// open reports whether the run is not at its end.
func (r *Run) open() bool { return r.State == EffectStarted || r.State == EffectUncertain }

// Approval is a person's word about an effect, as the task has it.
type Approval struct {
	ID       string `json:"approval_id"`
	EffectID string `json:"effect_id"`
	Status   string `json:"status"`
	// Digest is the request's, and Bound the files that the request names besides the plan: a
	// [BoundPair]. A start is handed what its own approval names, and nothing of a request that
	// came later.
	Digest      string         `json:"request_digest"`
	Bound       jsontext.Value `json:"bound,omitzero"`
	RequestedBy string         `json:"requested_by"`
	AskedAt     time.Time      `json:"asked_at"`
	ExpiresAt   time.Time      `json:"expires_at"`
	ResolvedBy  string         `json:"resolved_by,omitzero"`
	ResolvedAt  time.Time      `json:"resolved_at,omitzero"`
	Note        string         `json:"note,omitzero"`
	// Needed is how many people it takes, and how many it took once it is approved.
	Needed int `json:"needed,omitzero"`
	// Used is set when a start has taken it, and Void when its subject is gone.
	Used bool `json:"used,omitzero"`
	Void bool `json:"void,omitzero"`
	// SelfApproved marks an approval by the actor that asked for it, if that is allowed.
	SelfApproved bool `json:"self_approved,omitzero"`
	// Undo is the number of the run that the approval lets be undone, and nothing else. It is zero
	// for an approval of the effect.
	Undo int `json:"undo,omitzero"`
	// Kept is stored with the entry and shown to nobody.
	Kept fold.Kept `json:"-"`
}

// live reports whether an effect may be started on the approval.
func (a *Approval) live(now time.Time) bool {
	return (a.Status == ApprovalApproved || mutant.Off("effect-approved")) && !a.Used && !a.Void && now.Before(a.ExpiresAt)
}

// Spec returns the current version.
func (t *Task) Spec() *Spec { return &t.Specs[len(t.Specs)-1] }

// spec returns a version of the spec, or nil.
func (t *Task) spec(version int) *Spec {
	return find(t.Specs, func(s *Spec) bool { return s.Version == version })
}

// worked is the work up to a revision as an event names it.
func (t *Task) worked(revision int) []Input {
	list := []Input{}
	for _, a := range t.made(revision) {
		list = append(list, Input{URI: a.URI, Digest: a.Digest})
	}
	return list
}

// Running returns the running attempt, or nil.
func (t *Task) Running() *Attempt {
	if a := t.Last(); a != nil && a.Status == AttemptRunning {
		return a
	}
	return nil
}

// Last returns the last attempt, or nil.
func (t *Task) Last() *Attempt {
	if len(t.Attempts) == 0 {
		return nil
	}
	return &t.Attempts[len(t.Attempts)-1]
}

// Attempt returns an attempt by its id, or nil.
func (t *Task) Attempt(id string) *Attempt {
	return find(t.Attempts, func(a *Attempt) bool { return a.ID == id })
}

// Effect returns an effect by its id, or nil.
func (t *Task) Effect(id string) *Effect {
	return find(t.Effects, func(e *Effect) bool { return e.ID == id })
}

// EffectOf returns the effect of an idempotency key, or nil.
func (t *Task) EffectOf(key string) *Effect {
	return find(t.Effects, func(e *Effect) bool { return e.Key == key })
}

// Approval returns an approval by its id, or nil.
func (t *Task) Approval(id string) *Approval {
	return find(t.Approvals, func(a *Approval) bool { return a.ID == id })
}

// Newest returns the newest approval of an effect, or nil.
func (t *Task) Newest(effect string) *Approval { return t.newest(effect, 0) }

// newest returns the newest approval of an effect, or of undoing a run of it, or nil.
func (t *Task) newest(effect string, undo int) *Approval {
	for i := range slices.Backward(t.Approvals) {
		if a := &t.Approvals[i]; a.EffectID == effect && a.Undo == undo {
			return a
		}
	}
	return nil
}

// Salt is that of the newest request about an effect, "" for none.
func (t *Task) Salt(e *Effect) string {
	if e == nil || t.Newest(e.ID) == nil {
		return ""
	}
	var bound BoundPair
	if err := json.Unmarshal(t.Newest(e.ID).Bound, &bound); err != nil {
		return ""
	}
	return bound.Salt
}

// Live returns the approval that an effect can be started on, or nil.
func (t *Task) Live(effect string, now time.Time) *Approval {
	if a := t.Newest(effect); a != nil && a.live(now) {
		return a
	}
	return nil
}

func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Subject is the subject of a review now.
func (t *Task) Subject() Subject {
	s := Subject{Spec: t.Spec().Version}
	if t.Phase != SpecDraft && t.Phase != SpecReview && t.Phase != CircuitOpen {
		s.Artifact, s.Gate = t.ArtifactRevision, true
	}
	return s
}

// Stale reports whether a review counts no longer: its subject has changed since, or an effect was
// planned.
func (t *Task) Stale(r *Review) bool {
	if r.Void || r.Subject.Spec != t.Spec().Version {
		return true
	}
	return r.Subject.Gate && r.Subject.Artifact != t.ArtifactRevision
}

// Digests reports whether a text is a SHA-256 in the form "sha256:" and 64 hexadecimal
// digits.
func Digests(text string) bool {
	const prefix, length = "sha256:", 64
	if len(text) != len(prefix)+length || text[:len(prefix)] != prefix {
		return false
	}
	for _, c := range []byte(text[len(prefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
