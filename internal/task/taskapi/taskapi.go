// Package taskapi has the wire types of tasks: the parameters and answers of the methods
// task.* and runner.*, and what is wrong with parameters.
package taskapi

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// Code is a code of the multi-agent protocol, see [Error].
type Code = task.Code

// Error is details.task of an error about a task.
type Error struct {
	Code     Code           `json:"code"`
	Phase    task.Phase     `json:"phase,omitzero"`
	Revision int            `json:"revision,omitzero"`
	Missing  []task.Missing `json:"missing,omitempty"`
	// Guards are those that do not hold.
	Guards      []task.Guard  `json:"guards,omitempty"`
	Transitions []task.Option `json:"allowed_transitions,omitempty"`
	// At is when it could be done, where time alone is in the way.
	At time.Time `json:"at,omitzero"`
}

// Details is the details of such an error.
type Details struct {
	Task Error `json:"task"`
}

// fields collects what is wrong with parameters.
type fields struct{ api.Fields }

// most refuses more of a member than a task may keep of it: that is no fault of its form, so
// the caller is told LIMIT.
func (f *fields) most(path string, have, most int, unit string) {
	if have <= most {
		return
	}
	what := fmt.Sprintf("more than %d %s", most, unit)
	f.Fields = append(f.Fields, api.FieldError{Path: path, Message: what, Instead: &api.Error{
		Code: api.Conflict, Message: path + ": " + what, Details: Details{Task: Error{Code: task.Limit}},
	}})
}

// Ref names a task.
type Ref struct {
	TaskID string `json:"task_id"`
}

// About is the task that a call is about.
func (p *Ref) About() string { return p.TaskID }

func (p *Ref) validate(f *fields) { f.ID("task_id", ids.Task, p.TaskID) }

// Validate names the fields that are wrong.
func (p *Ref) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	return f.Fields
}

// Write is in what changes a task. RequestKey makes a call that is made again
// answer what it answered before.
type Write struct {
	Ref
	RequestKey string `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *Write) WithKey() string { return p.RequestKey }

func (p *Write) validate(f *fields) {
	p.Ref.validate(f)
	f.UpTo("request_key", p.RequestKey, api.MaxName)
}

// Changed is the answer to what changes a task.
type Changed struct {
	TaskID   string     `json:"task_id"`
	Phase    task.Phase `json:"phase"`
	Revision int        `json:"revision"`
	// AuditSeq is the record of the change, for people alone.
	AuditSeq uint64 `json:"audit_seq,omitzero"`
	// Replayed is set where nothing was done since it was done before.
	Replayed bool `json:"replayed,omitzero"`
}

// Said is who a caller says that it is. It has to be who it is.
type Said struct {
	Actor     string `json:"actor,omitzero"`
	ActorRole string `json:"actor_role,omitzero"`
}

// SpecRef names a spec's file in the workspace.
type SpecRef struct {
	URI    string `json:"uri"`
	Digest string `json:"digest,omitzero"`
}

// CreateParams makes a task (task.create).
type CreateParams struct {
	Title          string         `json:"title"`
	SpecMarkdown   string         `json:"spec_markdown,omitzero"`
	SpecRef        *SpecRef       `json:"spec_ref,omitzero"`
	Spec           *task.Fields   `json:"spec,omitzero"`
	Workspace      string         `json:"workspace"`
	InitialPhase   task.Phase     `json:"initial_phase"`
	Labels         []string       `json:"labels,omitzero"`
	Priority       *int           `json:"priority,omitzero"`
	DependsOn      []string       `json:"depends_on,omitzero"`
	Effects        []task.Planned `json:"effects,omitzero"`
	TenantID       string         `json:"tenant_id,omitzero"`
	Classification string         `json:"classification,omitzero"`
	NotBefore      time.Time      `json:"not_before,omitzero"`
	RequestKey     string         `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *CreateParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *CreateParams) Validate() []api.FieldError {
	var f fields
	f.Text("title", p.Title, task.MaxTitle)
	f.Text("workspace", p.Workspace, api.MaxName)
	if p.Spec == nil && p.SpecRef == nil && p.SpecMarkdown == "" {
		f.Add("spec_markdown", "required: or spec_ref, or spec")
	}
	if p.SpecRef != nil {
		f.Text("spec_ref.uri", p.SpecRef.URI, task.MaxText)
		if p.SpecRef.Digest != "" && !task.Digests(p.SpecRef.Digest) {
			f.Add("spec_ref.digest", "want sha256: and 64 digits")
		}
		if p.SpecMarkdown != "" {
			f.Add("spec_ref", "the Markdown stands in spec_markdown already")
		}
	}
	f.OneOf("initial_phase", string(p.InitialPhase), []string{string(task.SpecDraft), string(task.SpecReview)})
	f.labels(p.Labels)
	f.priority(p.Priority)
	f.dependencies(p.DependsOn)
	f.most("effects", len(p.Effects), task.MaxEffects, "effects")
	for i := range p.Effects[:min(len(p.Effects), task.MaxEffects)] {
		f.planned("effects["+strconv.Itoa(i)+"].", &p.Effects[i], false)
	}
	f.UpTo("tenant_id", p.TenantID, api.MaxName)
	f.UpTo("request_key", p.RequestKey, api.MaxName)
	return f.Fields
}

func (f *fields) labels(labels []string) {
	if len(labels) > task.MaxLabels {
		f.Add("labels", "more than %d", task.MaxLabels)
		return
	}
	for i, l := range labels {
		f.Text("labels["+strconv.Itoa(i)+"]", l, 64)
	}
}

func (f *fields) priority(p *int) {
	if p != nil {
		f.Between("priority", *p, 0, task.MaxPriority)
	}
}

func (f *fields) dependencies(on []string) {
	f.most("depends_on", len(on), task.MaxDependencies, "tasks")
	for i, id := range on[:min(len(on), task.MaxDependencies)] {
		f.ID("depends_on["+strconv.Itoa(i)+"]", ids.Task, id)
	}
}

// planned checks what is to be done in the world. Bare is for a request that names a
// key alone.
func (f *fields) planned(at string, p *task.Planned, bare bool) {
	f.Text(at+"idempotency_key", p.Key, api.MaxName)
	f.UpTo(at+"requested_action", p.RequestedAction, task.MaxText)
	if p.Command == nil && len(p.Params) == 0 && bare {
		f.UpTo(at+"side_effect_kind", p.Kind, 64)
		return
	}
	f.Text(at+"side_effect_kind", p.Kind, 64)
	if (p.Command == nil) == (len(p.Params) == 0) {
		f.Add(at+"command", "want either command or params")
	}
	if len(p.Params) > 0 && p.Params.Kind() != '{' {
		f.Add(at+"params", "not an object")
	}
	f.most(at+"params", len(p.Params), task.MaxPayloadBytes, "bytes")
	f.action(at+"command.", p.Command)
	f.action(at+"compensation.", p.Compensation)
}

// daemonsOwn is how variables begin that a command gets of the daemon and the runner alone.
const daemonsOwn = "OCIPD_"

func (f *fields) action(at string, c *task.Action) {
	if c == nil {
		return
	}
	size := 0
	for i, a := range c.Argv {
		if size += len(a) + 1; strings.ContainsRune(a, 0) {
			f.Add(at+"argv["+strconv.Itoa(i)+"]", "has a zero byte")
		}
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		f.Add(at+"argv", "required: the program and its arguments")
	}
	f.most(at+"argv", size, task.MaxArgvBytes, "bytes")
	f.most(at+"stdin", len(c.Stdin), task.MaxStdinBytes, "bytes")
	f.UpTo(at+"cwd", c.Cwd, task.MaxText)
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			f.Add(at+"env", "%.64q is no variable", name)
		}
		if strings.HasPrefix(name, daemonsOwn) {
			f.Add(at+"env", "%.64q: the variables %s… are the daemon's to give", name, daemonsOwn)
		}
	}
	if len(c.Env) > api.MaxList {
		f.Add(at+"env", "more than %d items", api.MaxList)
	}
	for i, name := range c.EnvFrom {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			f.Add(at+"env_from["+strconv.Itoa(i)+"]", "no variable's name")
		}
		if strings.HasPrefix(name, daemonsOwn) {
			f.Add(at+"env_from["+strconv.Itoa(i)+"]", "%.64q: the variables %s… are the daemon's to give", name, daemonsOwn)
		}
	}
	f.Names(at+"env_from", c.EnvFrom)
	f.Names(at+"inputs", c.Inputs)
	if c.TimeoutS < 0 || c.TimeoutS > 24*60*60 {
		f.Add(at+"timeout_s", "%d is not between 0 and 86400", c.TimeoutS)
	}
}

// Created is the answer of task.create.
type Created struct {
	Changed
	Missing []task.Missing `json:"missing"`
}

// GetParams asks for a task (task.get).
type GetParams struct {
	Ref
	Events *int `json:"include_events_limit,omitzero"`
	// Part names one list that is given alone, from After on.
	Part  string `json:"part,omitzero"`
	After string `json:"after,omitzero"`
}

// Parts lists the lists of a task.
func Parts() []string {
	return []string{"specs", "attempts", "artifacts", "reviews", "effects", "approvals", "checkpoints", "events"}
}

// Validate names the fields that are wrong.
func (p *GetParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	if p.Events != nil {
		f.Between("include_events_limit", *p.Events, 0, 200)
	}
	if p.Part != "" {
		f.OneOf("part", p.Part, Parts())
	}
	f.UpTo("after", p.After, api.MaxName)
	return f.Fields
}

// Review is a review with whether it counts.
type Review struct {
	task.Review
	Stale bool `json:"stale"`
}

// Gates is how the reviews stand.
type Gates struct {
	Spec    task.Gate `json:"spec"`
	Quality task.Gate `json:"quality"`
}

// View is a task as whoever may read it is given it. Of each list it has the
// newest hundred; More names those that were cut.
type View struct {
	task.Head
	Spec             task.Spec         `json:"spec"`
	SpecVersions     int               `json:"spec_versions"`
	Missing          []task.Missing    `json:"missing"`
	Attempts         []task.Attempt    `json:"attempts"`
	Artifacts        []task.Artifact   `json:"artifacts"`
	Reviews          []Review          `json:"reviews"`
	Effects          []task.Effect     `json:"effects"`
	Approvals        []task.Approval   `json:"approvals"`
	Gates            Gates             `json:"gates"`
	Transitions      []task.Option     `json:"allowed_transitions"`
	RetriesLeft      int               `json:"retries_left"`
	ReadyAt          *time.Time        `json:"ready_at"`
	LeaseExpiresAt   time.Time         `json:"lease_expires_at,omitzero"`
	OpenDependencies []string          `json:"open_dependencies,omitempty"`
	Events           []Event           `json:"events"`
	More             []string          `json:"more,omitempty"`
	FailureSummary   []string          `json:"failure_summary,omitempty"`
	LastGood         []task.Artifact   `json:"last_good_artifacts,omitempty"`
	Unblock          []string          `json:"unblock,omitempty"`
	Specs            []task.Spec       `json:"specs,omitempty"`
	Checkpoints      []task.Checkpoint `json:"checkpoints,omitempty"`
}

// Event is one event of a task, a record of the log.
type Event struct {
	// Seq is the record of the event, for people alone.
	Seq       uint64         `json:"seq,omitzero"`
	TaskID    string         `json:"task_id"`
	N         int            `json:"n"`
	Event     string         `json:"event"`
	At        time.Time      `json:"at"`
	Actor     string         `json:"actor"`
	Role      string         `json:"role"`
	AttemptID string         `json:"attempt_id,omitzero"`
	Was       map[string]any `json:"was,omitempty"`
	Now       map[string]any `json:"now,omitempty"`
	Reason    string         `json:"reason,omitzero"`
	Phase     task.Phase     `json:"phase,omitzero"`
	Revision  int            `json:"revision,omitzero"`
}

// TransitionParams moves a task (task.transition).
type TransitionParams struct {
	Write
	FromPhase task.Phase `json:"from_phase"`
	ToPhase   task.Phase `json:"to_phase"`
	Said
	Reason    string `json:"reason"`
	AttemptID string `json:"attempt_id,omitzero"`
	Expected  *int   `json:"expected_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TransitionParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.phase("from_phase", p.FromPhase)
	f.phase("to_phase", p.ToPhase)
	f.Text("actor", p.Actor, api.MaxName)
	f.Text("actor_role", p.ActorRole, api.MaxName)
	f.Text("reason", p.Reason, task.MaxText)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	return f.Fields
}

func (f *fields) phase(path string, p task.Phase) {
	var names []string
	for _, phase := range task.Phases() {
		names = append(names, string(phase))
	}
	f.OneOf(path, string(p), names)
}

// StartAttemptParams begins an attempt (task.start_attempt).
type StartAttemptParams struct {
	Write
	Said
	Phase        task.Phase `json:"phase"`
	Runtime      string     `json:"runtime"`
	ExecutorKind string     `json:"executor_kind"`
	WorkerRef    string     `json:"worker_ref,omitzero"`
	SessionRef   string     `json:"external_session_ref,omitzero"`
	Expected     *int       `json:"expected_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *StartAttemptParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.OneOf("phase", string(p.Phase), []string{string(task.Executing)})
	f.Text("actor", p.Actor, api.MaxName)
	f.OneOf("runtime", p.Runtime, task.Runtimes())
	f.OneOf("executor_kind", p.ExecutorKind, task.ExecutorKinds())
	f.UpTo("worker_ref", p.WorkerRef, api.MaxName)
	f.UpTo("external_session_ref", p.SessionRef, task.MaxText)
	return f.Fields
}

// AttemptStarted is the answer of task.start_attempt.
type AttemptStarted struct {
	Changed
	AttemptID string `json:"attempt_id"`
	Ordinal   int    `json:"ordinal"`
	Fence     int64  `json:"fence"`
	Escalate  bool   `json:"escalate"`
}

// CheckpointParams says how an attempt goes (task.record_checkpoint).
type CheckpointParams struct {
	Write
	AttemptID string         `json:"attempt_id"`
	Type      string         `json:"checkpoint_type"`
	Payload   jsontext.Value `json:"payload"`
	Fence     *int64         `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *CheckpointParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("attempt_id", ids.Attempt, p.AttemptID)
	f.Text("checkpoint_type", p.Type, 64)
	switch {
	case len(p.Payload) == 0:
		f.Add("payload", "required")
	case p.Payload.Kind() != '{':
		f.Add("payload", "not an object")
	}
	f.most("payload", len(p.Payload), task.MaxPayloadBytes, "bytes")
	return f.Fields
}

// Checkpointed is the answer of task.record_checkpoint.
type Checkpointed struct {
	Changed
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero"`
	// Cancel tells that the attempt was aborted: stop.
	Cancel bool `json:"cancel"`
}

// ArtifactParams records an artifact (task.record_artifact).
type ArtifactParams struct {
	Write
	AttemptID  string `json:"attempt_id"`
	Kind       string `json:"kind"`
	URI        string `json:"uri"`
	ProducedBy string `json:"produced_by"`
	Summary    string `json:"summary,omitzero"`
	Digest     string `json:"digest,omitzero"`
	Fence      *int64 `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ArtifactParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("attempt_id", ids.Attempt, p.AttemptID)
	f.OneOf("kind", p.Kind, task.ArtifactKinds())
	f.Text("uri", p.URI, task.MaxText)
	f.Text("produced_by", p.ProducedBy, api.MaxName)
	f.UpTo("summary", p.Summary, task.MaxText)
	if p.Digest != "" && !task.Digests(p.Digest) {
		f.Add("digest", "want sha256: and 64 digits")
	}
	return f.Fields
}

// ArtifactRecorded is the answer of task.record_artifact.
type ArtifactRecorded struct {
	Changed
	ArtifactID       string `json:"artifact_id"`
	ArtifactRevision int    `json:"artifact_revision"`
	Digest           string `json:"digest"`
	Verified         bool   `json:"verified"`
}

// ReviewParams is a reviewer's word (task.append_review).
type ReviewParams struct {
	Write
	AttemptID   string         `json:"attempt_id,omitzero"`
	ReviewType  string         `json:"review_type"`
	ReviewerRef string         `json:"reviewer_ref"`
	Verdict     string         `json:"verdict"`
	Findings    []task.Finding `json:"findings"`
	Summary     string         `json:"summary,omitzero"`
	Subject     *int           `json:"subject_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ReviewParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	f.OneOf("review_type", p.ReviewType, task.ReviewTypes())
	f.Text("reviewer_ref", p.ReviewerRef, api.MaxName)
	f.OneOf("verdict", p.Verdict, task.Verdicts())
	f.UpTo("summary", p.Summary, task.MaxText)
	if p.Findings == nil {
		f.Add("findings", "required: a list, empty where there is none")
	}
	if len(p.Findings) > task.MaxFindings {
		f.Add("findings", "more than %d", task.MaxFindings)
		return f.Fields
	}
	for i, finding := range p.Findings {
		at := "findings[" + strconv.Itoa(i) + "]."
		f.OneOf(at+"severity", finding.Severity, task.Severities())
		f.Text(at+"message", finding.Message, task.MaxText)
		f.UpTo(at+"file", finding.File, task.MaxText)
		f.UpTo(at+"artifact_uri", finding.URI, task.MaxText)
		if finding.Line < 0 {
			f.Add(at+"line", "%d is no line", finding.Line)
		}
	}
	return f.Fields
}

// Reviewed is the answer of task.append_review.
type Reviewed struct {
	Changed
	ReviewID string `json:"review_id"`
	Stale    bool   `json:"stale"`
}

// ResolveApprovalParams decides about an approval (task.resolve_approval).
type ResolveApprovalParams struct {
	Write
	ApprovalID string `json:"approval_id"`
	Resolution string `json:"resolution"`
	ResolvedBy string `json:"resolved_by"`
	Note       string `json:"note,omitzero"`
	Digest     string `json:"digest,omitzero"`
	Signature  string `json:"signature,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ResolveApprovalParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("approval_id", ids.Approval, p.ApprovalID)
	f.OneOf("resolution", p.Resolution, task.Resolutions())
	f.UpTo("resolved_by", p.ResolvedBy, api.MaxName)
	f.UpTo("note", p.Note, api.MaxNote)
	f.UpTo("digest", p.Digest, api.MaxName)
	f.UpTo("signature", p.Signature, api.MaxSignature)
	if p.Resolution == task.ApprovalApproved && p.Digest == "" {
		f.Add("digest", "required: the digest of what you saw, from approval.get")
	}
	return f.Fields
}

// ApprovalResolved is the answer of task.resolve_approval.
type ApprovalResolved struct {
	Changed
	Status string `json:"status"`
	Needed int    `json:"needed"`
	Given  int    `json:"given"`
}

// OpenCircuitParams stops a task (task.open_circuit).
type OpenCircuitParams struct {
	Write
	Said
	Reason        string `json:"reason"`
	LatestAttempt string `json:"latest_attempt_id,omitzero"`
}

// Validate names the fields that are wrong.
func (p *OpenCircuitParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.Text("actor", p.Actor, api.MaxName)
	f.Text("reason", p.Reason, task.MaxText)
	f.Maybe("latest_attempt_id", ids.Attempt, p.LatestAttempt)
	return f.Fields
}

// CloseCircuitParams lets a task go on (task.close_circuit).
type CloseCircuitParams struct {
	Write
	ToPhase task.Phase `json:"to_phase"`
	Reason  string     `json:"reason"`
}

// Validate names the fields that are wrong.
func (p *CloseCircuitParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.phase("to_phase", p.ToPhase)
	f.Text("reason", p.Reason, task.MaxText)
	return f.Fields
}

// ListReadyParams asks for tasks with something to do (task.list_ready).
type ListReadyParams struct {
	Limit  *int     `json:"limit,omitzero"`
	Labels []string `json:"labels,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ListReadyParams) Validate() []api.FieldError {
	var f fields
	if p.Limit != nil {
		f.Between("limit", *p.Limit, 1, api.MaxPage)
	}
	f.labels(p.Labels)
	return f.Fields
}

// ListParams asks for tasks (task.list).
type ListParams struct {
	TenantID string     `json:"tenant_id,omitzero"`
	Phase    task.Phase `json:"phase,omitzero"`
	// Open leaves out completed and failed tasks that ask nothing of a person.
	Open  bool   `json:"open,omitzero"`
	Limit *int   `json:"limit,omitzero"`
	After string `json:"after,omitzero"`
	// Newest begins with the newest task; After then continues to older ones.
	Newest bool `json:"newest,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ListParams) Validate() []api.FieldError {
	var f fields
	if p.Limit != nil {
		f.Between("limit", *p.Limit, 1, api.MaxPage)
	}
	if p.Phase != "" {
		f.phase("phase", p.Phase)
	}
	f.Maybe("after", ids.Task, p.After)
	return f.Fields
}

// Line is one task of a list.
type Line struct {
	task.Head
	ReadyAt *time.Time `json:"ready_at"`
	// Waits is who or what the task waits for, and Since since when.
	Waits string    `json:"waits_for"`
	Since time.Time `json:"since"`
	// Person is set where a person has to do something.
	Person bool `json:"person,omitzero"`
	// Questions are what a person is asked about the task, oldest first.
	Questions []Question `json:"questions,omitempty"`
}

// Question is one thing about a task that waits for a person.
type Question struct {
	About string `json:"about"`
	// ApprovalID, or EffectID and Run, is what it is about.
	ApprovalID string    `json:"approval_id,omitzero"`
	EffectID   string    `json:"effect_id,omitzero"`
	Run        int       `json:"run,omitzero"`
	Text       string    `json:"text"`
	Since      time.Time `json:"since"`
}

// What a person is asked: to decide about an approval request, to say how a run ended
// that nobody knows of, or to look at a task whose circuit is open.
const (
	AskApproval = "approval"
	AskOutcome  = "outcome"
	AskCircuit  = "circuit"
)

// List is a page of tasks.
type List struct {
	Tasks []Line `json:"tasks"`
	// Next continues the list, absent at its end.
	Next string `json:"next,omitzero"`
}

// ClaimParams keeps a task for an orchestrator (task.claim).
type ClaimParams struct {
	Write
	LeaseS *int `json:"lease_s,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ClaimParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	if p.LeaseS != nil {
		f.Between("lease_s", *p.LeaseS, 0, 3600)
	}
	return f.Fields
}

// Claimed is the answer of task.claim.
type Claimed struct {
	Changed
	ClaimedUntil time.Time `json:"claimed_until,omitzero"`
}

// UpdateParams changes what a task says of itself (task.update).
type UpdateParams struct {
	Write
	Expected     *int         `json:"expected_revision"`
	Title        *string      `json:"title,omitzero"`
	Labels       *[]string    `json:"labels,omitzero"`
	Priority     *int         `json:"priority,omitzero"`
	DependsOn    *[]string    `json:"depends_on,omitzero"`
	NotBefore    *time.Time   `json:"not_before,omitzero"`
	Spec         *task.Fields `json:"spec,omitzero"`
	SpecMarkdown *string      `json:"spec_markdown,omitzero"`
}

// Validate names the fields that are wrong.
func (p *UpdateParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	if p.Expected == nil {
		f.Add("expected_revision", "required")
	}
	if p.Title != nil {
		f.Text("title", *p.Title, task.MaxTitle)
	}
	if p.Labels != nil {
		f.labels(*p.Labels)
	}
	if p.DependsOn != nil {
		f.dependencies(*p.DependsOn)
	}
	f.priority(p.Priority)
	return f.Fields
}

// Updated is the answer of task.update.
type Updated struct {
	Changed
	Missing []task.Missing `json:"missing"`
}

// FinishAttemptParams ends an attempt (task.finish_attempt).
type FinishAttemptParams struct {
	Write
	AttemptID    string `json:"attempt_id"`
	Outcome      string `json:"outcome"`
	FailureCode  string `json:"failure_code,omitzero"`
	ErrorSummary string `json:"error_summary,omitzero"`
	Fence        *int64 `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *FinishAttemptParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("attempt_id", ids.Attempt, p.AttemptID)
	f.OneOf("outcome", p.Outcome, task.Outcomes())
	switch {
	case p.Outcome == task.AttemptFailed:
		f.OneOf("failure_code", p.FailureCode, task.Failures())
	case p.FailureCode != "":
		f.Add("failure_code", "only what failed has one")
	}
	f.UpTo("error_summary", p.ErrorSummary, task.MaxText)
	return f.Fields
}

// AttemptFinished is the answer of task.finish_attempt.
type AttemptFinished struct {
	Changed
	Status  string    `json:"status"`
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// PlanEffectParams plans an effect (task.plan_effect).
type PlanEffectParams struct {
	Write
	task.Planned
}

// Validate names the fields that are wrong.
func (p *PlanEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.planned("", &p.Planned, false)
	return f.Fields
}

// EffectPlanned is the answer of task.plan_effect.
type EffectPlanned struct {
	Changed
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}

// RunEffectParams starts an effect once (task.run_effect). It waits up to WaitS
// for the decision, the phase and the end.
type RunEffectParams struct {
	Ref
	EffectID       string `json:"effect_id,omitzero"`
	IdempotencyKey string `json:"idempotency_key,omitzero"`
	RequestDigest  string `json:"request_digest"`
	Compensation   bool   `json:"compensation,omitzero"`
	WaitS          int    `json:"wait_s,omitzero"`
}

// Validate names the fields that are wrong.
func (p *RunEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.Maybe("effect_id", ids.Effect, p.EffectID)
	f.UpTo("idempotency_key", p.IdempotencyKey, api.MaxName)
	if (p.EffectID == "") == (p.IdempotencyKey == "") {
		f.Add("effect_id", "want either effect_id or idempotency_key")
	}
	if !task.Digests(p.RequestDigest) {
		f.Add("request_digest", "required: the digest that task.request_approval answered")
	}
	f.Between("wait_s", p.WaitS, 0, 20)
	return f.Fields
}

// EffectRun is the answer of task.run_effect.
type EffectRun struct {
	Changed
	EffectID string         `json:"effect_id"`
	State    string         `json:"state"`
	Run      int            `json:"run"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
	// RunToken proves who was told to do an external effect. It is given once.
	RunToken string `json:"run_token,omitzero"`
}

// FinishEffectParams says how an external effect ended (task.finish_effect).
type FinishEffectParams struct {
	Write
	EffectID string         `json:"effect_id"`
	Run      int            `json:"run"`
	RunToken string         `json:"run_token"`
	Outcome  string         `json:"outcome"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
}

func effectOutcomes() []string { return []string{task.EffectDone, task.EffectFailed} }

// Validate names the fields that are wrong.
func (p *FinishEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("effect_id", ids.Effect, p.EffectID)
	if p.Run < 1 {
		f.Add("run", "required")
	}
	f.Text("run_token", p.RunToken, api.MaxName)
	f.OneOf("outcome", p.Outcome, effectOutcomes())
	f.most("receipt", len(p.Receipt), task.MaxPayloadBytes, "bytes")
	return f.Fields
}

// SettleEffectParams is a person's word about a run of which nobody knows the
// outcome (task.settle_effect).
type SettleEffectParams struct {
	Write
	EffectID string `json:"effect_id"`
	Run      int    `json:"run,omitzero"`
	Outcome  string `json:"outcome"`
	Note     string `json:"note"`
}

// Validate names the fields that are wrong.
func (p *SettleEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("effect_id", ids.Effect, p.EffectID)
	if p.Run < 0 {
		f.Add("run", "%d is no run", p.Run)
	}
	f.OneOf("outcome", p.Outcome, effectOutcomes())
	f.Text("note", p.Note, api.MaxNote)
	return f.Fields
}

// KillEffectParams ends a command that runs (task.kill_effect).
type KillEffectParams struct {
	Write
	EffectID string `json:"effect_id"`
	Run      int    `json:"run,omitzero"`
	Reason   string `json:"reason"`
}

// Validate names the fields that are wrong.
func (p *KillEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("effect_id", ids.Effect, p.EffectID)
	if p.Run < 0 {
		f.Add("run", "%d is no run", p.Run)
	}
	f.Text("reason", p.Reason, task.MaxText)
	return f.Fields
}

// CancelEffectParams gives up an effect (task.cancel_effect).
type CancelEffectParams struct {
	Write
	EffectID string `json:"effect_id"`
}

// Validate names the fields that are wrong.
func (p *CancelEffectParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.ID("effect_id", ids.Effect, p.EffectID)
	return f.Fields
}

// EffectState is the answer of what changes an effect.
type EffectState struct {
	Changed
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}

// GrantParams gives an actor a token (task.grant). An operator may leave out the
// task for an orchestrator, and name an agent that the token speaks and reads for, besides
// the actor or in its place.
type GrantParams struct {
	TaskID    string   `json:"task_id,omitzero"`
	Actor     string   `json:"actor,omitzero"`
	Agent     string   `json:"agent,omitzero"`
	AttemptID string   `json:"attempt_id,omitzero"`
	Tools     []string `json:"tools,omitzero"`
	ExpiresS  *int     `json:"expires_s,omitzero"`
	// Bind says whom the token is good for once one has attached with it: program, which
	// is usual, process, or none for anybody.
	Bind       string `json:"bind,omitzero"`
	RequestKey string `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *GrantParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *GrantParams) Validate() []api.FieldError {
	var f fields
	f.Maybe("task_id", ids.Task, p.TaskID)
	if p.Actor == "" && p.Agent == "" {
		f.Add("actor", "required")
	}
	if p.Actor == "" && p.TaskID != "" {
		f.Add("actor", "required with task_id")
	}
	f.UpTo("actor", p.Actor, api.MaxName)
	f.UpTo("agent", p.Agent, api.MaxName)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	f.Names("tools", p.Tools)
	if p.ExpiresS != nil {
		f.Between("expires_s", *p.ExpiresS, 1, 366*24*60*60)
	}
	if p.Bind != "" {
		f.OneOf("bind", p.Bind, task.Binds())
	}
	f.UpTo("request_key", p.RequestKey, api.MaxName)
	return f.Fields
}

// Granted is the answer of task.grant. The token is never given again.
type Granted struct {
	Changed
	GrantID   string    `json:"grant_id"`
	Token     string    `json:"token,omitzero"`
	Actor     string    `json:"actor"`
	Role      task.Role `json:"role"`
	Agent     string    `json:"agent,omitzero"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Fence     int64     `json:"fence,omitzero"`
	Tools     []string  `json:"tools"`
	ExpiresAt time.Time `json:"expires_at"`
}

// RevokeGrantParams ends a grant (task.revoke_grant).
type RevokeGrantParams struct {
	TaskID     string `json:"task_id,omitzero"`
	GrantID    string `json:"grant_id"`
	RequestKey string `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *RevokeGrantParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *RevokeGrantParams) Validate() []api.FieldError {
	var f fields
	f.Maybe("task_id", ids.Task, p.TaskID)
	f.ID("grant_id", ids.Grant, p.GrantID)
	f.UpTo("request_key", p.RequestKey, api.MaxName)
	return f.Fields
}

// AttachParams makes a connection an actor's by a grant's token (task.attach).
type AttachParams struct {
	Token string `json:"token"`
}

// Validate names the fields that are wrong.
func (p *AttachParams) Validate() []api.FieldError {
	var f fields
	f.Text("token", p.Token, api.MaxName)
	return f.Fields
}

// Attached says whose the connection is.
type Attached struct {
	GrantID   string    `json:"grant_id"`
	Actor     string    `json:"actor"`
	Role      task.Role `json:"role"`
	Agent     string    `json:"agent,omitzero"`
	TenantID  string    `json:"tenant_id,omitzero"`
	TaskID    string    `json:"task_id,omitzero"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Fence     int64     `json:"fence,omitzero"`
	Tools     []string  `json:"tools"`
	ExpiresAt time.Time `json:"expires_at"`
}

// AskPermissionParams asks whether an agent may use a tool of its runtime
// (task.ask_permission).
type AskPermissionParams struct {
	Ref
	AttemptID string         `json:"attempt_id,omitzero"`
	ToolCall  ToolCall       `json:"tool_call"`
	Options   jsontext.Value `json:"options"`
}

// ToolCall is what an agent wants to do.
type ToolCall struct {
	ID    string `json:"id,omitzero"`
	Kind  string `json:"kind"`
	Title string `json:"title,omitzero"`
	// InWorkspace is set where all that it touches is within the task's workspace.
	InWorkspace bool           `json:"in_workspace,omitzero"`
	Server      string         `json:"mcp_server,omitzero"`
	Input       jsontext.Value `json:"input,omitzero"`
}

// Validate names the fields that are wrong.
func (p *AskPermissionParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	f.Text("tool_call.kind", p.ToolCall.Kind, 64)
	f.UpTo("tool_call.id", p.ToolCall.ID, api.MaxName)
	f.UpTo("tool_call.title", p.ToolCall.Title, task.MaxText)
	f.UpTo("tool_call.mcp_server", p.ToolCall.Server, api.MaxName)
	f.most("tool_call.input", len(p.ToolCall.Input), task.MaxArgvBytes, "bytes")
	f.most("options", len(p.Options), task.MaxPayloadBytes, "bytes")
	return f.Fields
}

// Permission is the answer of task.ask_permission.
type Permission struct {
	Decision   string `json:"decision"`
	Reason     string `json:"reason,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`

	lost func(written bool)
}

// OnLost is what is done where nobody is known to have taken the answer.
func (p Permission) OnLost() func(written bool) { return p.lost }

// Watch has a function told where nobody is known to have taken the answer.
func (p *Permission) Watch(lost func(written bool)) { p.lost = lost }

// WatchParams follows tasks (task.watch). After is a number of the log.
type WatchParams struct {
	TaskID string  `json:"task_id,omitzero"`
	After  *uint64 `json:"after,omitzero"`
}

// Validate names the fields that are wrong.
func (p *WatchParams) Validate() []api.FieldError {
	var f fields
	f.Maybe("task_id", ids.Task, p.TaskID)
	return f.Fields
}

// News is one chunk of task.watch. The one with Caught set follows what was there
// already.
type News struct {
	*Event
	Caught bool `json:"caught,omitzero"`
}
