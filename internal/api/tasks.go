package api

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/task"
)

// TaskCode is a code of the multi-agent protocol, see [TaskError].
type TaskCode = task.Code

// TaskError is details.task of an error about a task.
type TaskError struct {
	Code     TaskCode       `json:"code"`
	Phase    task.Phase     `json:"phase,omitzero"`
	Revision int            `json:"revision,omitzero"`
	Missing  []task.Missing `json:"missing,omitempty"`
	// Guards are those that do not hold.
	Guards      []task.Guard  `json:"guards,omitempty"`
	Transitions []task.Option `json:"allowed_transitions,omitempty"`
	// At is when it could be done, where time alone is in the way.
	At time.Time `json:"at,omitzero"`
}

// TaskDetails is the details of such an error.
type TaskDetails struct {
	Task TaskError `json:"task"`
}

// Strict is in parameters that have no members but their own, each once: one that is
// misspelled would be taken for left out.
type Strict struct{}

// Strictly marks them.
func (Strict) Strictly() {}

// TaskRef names a task.
type TaskRef struct {
	Strict
	TaskID string `json:"task_id"`
}

func (p *TaskRef) validate(f *fields) { f.id("task_id", task.TaskID, p.TaskID) }

// Validate names the fields that are wrong.
func (p *TaskRef) Validate() []FieldError {
	var f fields
	p.validate(&f)
	return f
}

// id demands an id with its prefix.
func (f *fields) id(path, prefix, id string) {
	switch {
	case id == "":
		f.add(path, "required")
	case !task.IsID(prefix, id):
		f.add(path, "want %s and a UUID", prefix)
	}
}

// maybe checks an id where there is one.
func (f *fields) maybe(path, prefix, id string) {
	if id != "" {
		f.id(path, prefix, id)
	}
}

// oneOf demands a word of a list.
func (f *fields) oneOf(path, value string, list []string) {
	switch {
	case value == "":
		f.add(path, "required: one of %s", strings.Join(list, ", "))
	case !slices.Contains(list, value):
		f.add(path, "%.64q is not one of %s", value, strings.Join(list, ", "))
	}
}

// upTo refuses a text that is endless.
func (f *fields) upTo(path, value string, limit int) {
	if len(value) > limit {
		f.add(path, "longer than %d bytes", limit)
	}
}

// TaskWrite is in what changes a task. RequestKey makes a call that is made again
// answer what it answered before.
type TaskWrite struct {
	TaskRef
	RequestKey string `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *TaskWrite) WithKey() string { return p.RequestKey }

func (p *TaskWrite) validate(f *fields) {
	p.TaskRef.validate(f)
	f.upTo("request_key", p.RequestKey, maxName)
}

// TaskChanged is the answer to what changes a task.
type TaskChanged struct {
	TaskID   string     `json:"task_id"`
	Phase    task.Phase `json:"phase"`
	Revision int        `json:"revision"`
	AuditSeq uint64     `json:"audit_seq"`
	// Replayed is set where nothing was done since it was done before.
	Replayed bool `json:"replayed,omitzero"`
}

// TaskSaid is who a caller says that it is. It has to be who it is.
type TaskSaid struct {
	Actor     string `json:"actor,omitzero"`
	ActorRole string `json:"actor_role,omitzero"`
}

// TaskSpecRef names a spec's file in the workspace.
type TaskSpecRef struct {
	URI    string `json:"uri"`
	Digest string `json:"digest,omitzero"`
}

// TaskCreateParams makes a task (task.create).
type TaskCreateParams struct {
	Strict
	Title          string         `json:"title"`
	SpecMarkdown   string         `json:"spec_markdown,omitzero"`
	SpecRef        *TaskSpecRef   `json:"spec_ref,omitzero"`
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
func (p *TaskCreateParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *TaskCreateParams) Validate() []FieldError {
	var f fields
	f.text("title", p.Title, task.MaxTitle)
	f.text("workspace", p.Workspace, maxName)
	if p.Spec == nil && p.SpecRef == nil && p.SpecMarkdown == "" {
		f.add("spec_markdown", "required: or spec_ref, or spec")
	}
	if p.SpecRef != nil {
		f.text("spec_ref.uri", p.SpecRef.URI, task.MaxText)
		if p.SpecRef.Digest != "" && !task.Digests(p.SpecRef.Digest) {
			f.add("spec_ref.digest", "want sha256: and 64 digits")
		}
		if p.SpecMarkdown != "" {
			f.add("spec_ref", "the Markdown stands in spec_markdown already")
		}
	}
	f.oneOf("initial_phase", string(p.InitialPhase), []string{string(task.SpecDraft), string(task.SpecReview)})
	f.labels(p.Labels)
	f.priority(p.Priority)
	f.dependencies(p.DependsOn)
	if len(p.Effects) > task.MaxEffects {
		f.add("effects", "more than %d", task.MaxEffects)
	} else {
		for i := range p.Effects {
			f.planned("effects["+strconv.Itoa(i)+"].", &p.Effects[i], false)
		}
	}
	f.upTo("tenant_id", p.TenantID, maxName)
	f.upTo("request_key", p.RequestKey, maxName)
	return f
}

func (f *fields) labels(labels []string) {
	if len(labels) > task.MaxLabels {
		f.add("labels", "more than %d", task.MaxLabels)
		return
	}
	for i, l := range labels {
		f.text("labels["+strconv.Itoa(i)+"]", l, 64)
	}
}

func (f *fields) priority(p *int) {
	if p != nil {
		f.between("priority", *p, 0, task.MaxPriority)
	}
}

func (f *fields) dependencies(ids []string) {
	if len(ids) > task.MaxDependencies {
		f.add("depends_on", "more than %d", task.MaxDependencies)
		return
	}
	for i, id := range ids {
		f.id("depends_on["+strconv.Itoa(i)+"]", task.TaskID, id)
	}
}

// planned checks what is to be done in the world. Bare is for a request that names a
// key alone.
func (f *fields) planned(at string, p *task.Planned, bare bool) {
	f.text(at+"idempotency_key", p.Key, maxName)
	f.upTo(at+"requested_action", p.RequestedAction, task.MaxText)
	if p.Command == nil && len(p.Params) == 0 && bare {
		f.upTo(at+"side_effect_kind", p.Kind, 64)
		return
	}
	f.text(at+"side_effect_kind", p.Kind, 64)
	if (p.Command == nil) == (len(p.Params) == 0) {
		f.add(at+"command", "want either command or params")
	}
	if len(p.Params) > 0 && p.Params.Kind() != '{' {
		f.add(at+"params", "not an object")
	}
	if len(p.Params) > task.MaxPayloadBytes {
		f.add(at+"params", "longer than %d bytes", task.MaxPayloadBytes)
	}
	f.action(at+"command.", p.Command)
	f.action(at+"compensation.", p.Compensation)
}

func (f *fields) action(at string, c *task.Action) {
	if c == nil {
		return
	}
	size := 0
	for i, a := range c.Argv {
		if size += len(a) + 1; strings.ContainsRune(a, 0) {
			f.add(at+"argv["+strconv.Itoa(i)+"]", "has a zero byte")
		}
	}
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		f.add(at+"argv", "required: the program and its arguments")
	case size > task.MaxArgvBytes:
		f.add(at+"argv", "longer than %d bytes", task.MaxArgvBytes)
	}
	f.upTo(at+"stdin", c.Stdin, task.MaxStdinBytes)
	f.upTo(at+"cwd", c.Cwd, task.MaxText)
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			f.add(at+"env", "%.64q is no variable", name)
		}
	}
	if len(c.Env) > maxList {
		f.add(at+"env", "more than %d items", maxList)
	}
	for i, name := range c.EnvFrom {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			f.add(at+"env_from["+strconv.Itoa(i)+"]", "no variable's name")
		}
	}
	f.names(at+"env_from", c.EnvFrom)
	f.names(at+"inputs", c.Inputs)
	if c.TimeoutS < 0 || c.TimeoutS > 24*60*60 {
		f.add(at+"timeout_s", "%d is not between 0 and 86400", c.TimeoutS)
	}
}

// TaskCreated is the answer of task.create.
type TaskCreated struct {
	TaskChanged
	Missing []task.Missing `json:"missing"`
}

// TaskGetParams asks for a task (task.get).
type TaskGetParams struct {
	TaskRef
	Events *int `json:"include_events_limit,omitzero"`
	// Part names one list that is given alone, from After on.
	Part  string `json:"part,omitzero"`
	After string `json:"after,omitzero"`
}

// TaskParts lists the lists of a task.
func TaskParts() []string {
	return []string{"specs", "attempts", "artifacts", "reviews", "effects", "approvals", "checkpoints", "events"}
}

// Validate names the fields that are wrong.
func (p *TaskGetParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	if p.Events != nil {
		f.between("include_events_limit", *p.Events, 0, 200)
	}
	if p.Part != "" {
		f.oneOf("part", p.Part, TaskParts())
	}
	f.upTo("after", p.After, maxName)
	return f
}

// TaskReview is a review with whether it counts.
type TaskReview struct {
	task.Review
	Stale bool `json:"stale"`
}

// TaskGates is how the reviews stand.
type TaskGates struct {
	Spec    task.Gate `json:"spec"`
	Quality task.Gate `json:"quality"`
}

// TaskView is a task as whoever may read it is given it. Of each list it has the
// newest hundred; More names those that were cut.
type TaskView struct {
	task.Head
	Spec             task.Spec         `json:"spec"`
	SpecVersions     int               `json:"spec_versions"`
	Missing          []task.Missing    `json:"missing"`
	Attempts         []task.Attempt    `json:"attempts"`
	Artifacts        []task.Artifact   `json:"artifacts"`
	Reviews          []TaskReview      `json:"reviews"`
	Effects          []task.Effect     `json:"effects"`
	Approvals        []task.Approval   `json:"approvals"`
	Gates            TaskGates         `json:"gates"`
	Transitions      []task.Option     `json:"allowed_transitions"`
	RetriesLeft      int               `json:"retries_left"`
	ReadyAt          *time.Time        `json:"ready_at"`
	LeaseExpiresAt   time.Time         `json:"lease_expires_at,omitzero"`
	OpenDependencies []string          `json:"open_dependencies,omitempty"`
	Events           []TaskEvent       `json:"events"`
	More             []string          `json:"more,omitempty"`
	FailureSummary   []string          `json:"failure_summary,omitempty"`
	LastGood         []task.Artifact   `json:"last_good_artifacts,omitempty"`
	Unblock          []string          `json:"unblock,omitempty"`
	Specs            []task.Spec       `json:"specs,omitempty"`
	Checkpoints      []task.Checkpoint `json:"checkpoints,omitempty"`
}

// TaskEvent is one event of a task, a record of the log.
type TaskEvent struct {
	Seq       uint64         `json:"seq"`
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

// TaskTransitionParams moves a task (task.transition).
type TaskTransitionParams struct {
	TaskWrite
	FromPhase task.Phase `json:"from_phase"`
	ToPhase   task.Phase `json:"to_phase"`
	TaskSaid
	Reason    string `json:"reason"`
	AttemptID string `json:"attempt_id,omitzero"`
	Expected  *int   `json:"expected_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskTransitionParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.phase("from_phase", p.FromPhase)
	f.phase("to_phase", p.ToPhase)
	f.text("actor", p.Actor, maxName)
	f.text("actor_role", p.ActorRole, maxName)
	f.text("reason", p.Reason, task.MaxText)
	f.maybe("attempt_id", task.AttemptID, p.AttemptID)
	return f
}

func (f *fields) phase(path string, p task.Phase) {
	var names []string
	for _, phase := range task.Phases() {
		names = append(names, string(phase))
	}
	f.oneOf(path, string(p), names)
}

// TaskStartAttemptParams begins an attempt (task.start_attempt).
type TaskStartAttemptParams struct {
	TaskWrite
	TaskSaid
	Phase        task.Phase `json:"phase"`
	Runtime      string     `json:"runtime"`
	ExecutorKind string     `json:"executor_kind"`
	WorkerRef    string     `json:"worker_ref,omitzero"`
	SessionRef   string     `json:"external_session_ref,omitzero"`
	Expected     *int       `json:"expected_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskStartAttemptParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.oneOf("phase", string(p.Phase), []string{string(task.Executing)})
	f.text("actor", p.Actor, maxName)
	f.oneOf("runtime", p.Runtime, task.Runtimes())
	f.oneOf("executor_kind", p.ExecutorKind, task.ExecutorKinds())
	f.upTo("worker_ref", p.WorkerRef, maxName)
	f.upTo("external_session_ref", p.SessionRef, task.MaxText)
	return f
}

// TaskAttemptStarted is the answer of task.start_attempt.
type TaskAttemptStarted struct {
	TaskChanged
	AttemptID string `json:"attempt_id"`
	Ordinal   int    `json:"ordinal"`
	Fence     int64  `json:"fence"`
	Escalate  bool   `json:"escalate"`
}

// TaskCheckpointParams says how an attempt goes (task.record_checkpoint).
type TaskCheckpointParams struct {
	TaskWrite
	AttemptID string         `json:"attempt_id"`
	Type      string         `json:"checkpoint_type"`
	Payload   jsontext.Value `json:"payload"`
	Fence     *int64         `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskCheckpointParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("attempt_id", task.AttemptID, p.AttemptID)
	f.text("checkpoint_type", p.Type, 64)
	switch {
	case len(p.Payload) == 0:
		f.add("payload", "required")
	case p.Payload.Kind() != '{':
		f.add("payload", "not an object")
	case len(p.Payload) > task.MaxPayloadBytes:
		f.add("payload", "longer than %d bytes", task.MaxPayloadBytes)
	}
	return f
}

// TaskCheckpointed is the answer of task.record_checkpoint.
type TaskCheckpointed struct {
	TaskChanged
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero"`
	// Cancel tells that the attempt was aborted: stop.
	Cancel bool `json:"cancel"`
}

// TaskArtifactParams records an artifact (task.record_artifact).
type TaskArtifactParams struct {
	TaskWrite
	AttemptID  string `json:"attempt_id"`
	Kind       string `json:"kind"`
	URI        string `json:"uri"`
	ProducedBy string `json:"produced_by"`
	Summary    string `json:"summary,omitzero"`
	Digest     string `json:"digest,omitzero"`
	Fence      *int64 `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskArtifactParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("attempt_id", task.AttemptID, p.AttemptID)
	f.oneOf("kind", p.Kind, task.ArtifactKinds())
	f.text("uri", p.URI, task.MaxText)
	f.text("produced_by", p.ProducedBy, maxName)
	f.upTo("summary", p.Summary, task.MaxText)
	if p.Digest != "" && !task.Digests(p.Digest) {
		f.add("digest", "want sha256: and 64 digits")
	}
	return f
}

// TaskArtifactRecorded is the answer of task.record_artifact.
type TaskArtifactRecorded struct {
	TaskChanged
	ArtifactID       string `json:"artifact_id"`
	ArtifactRevision int    `json:"artifact_revision"`
	Digest           string `json:"digest"`
	Verified         bool   `json:"verified"`
}

// TaskReviewParams is a reviewer's word (task.append_review).
type TaskReviewParams struct {
	TaskWrite
	AttemptID   string         `json:"attempt_id,omitzero"`
	ReviewType  string         `json:"review_type"`
	ReviewerRef string         `json:"reviewer_ref"`
	Verdict     string         `json:"verdict"`
	Findings    []task.Finding `json:"findings"`
	Summary     string         `json:"summary,omitzero"`
	Subject     *int           `json:"subject_revision,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskReviewParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.maybe("attempt_id", task.AttemptID, p.AttemptID)
	f.oneOf("review_type", p.ReviewType, task.ReviewTypes())
	f.text("reviewer_ref", p.ReviewerRef, maxName)
	f.oneOf("verdict", p.Verdict, task.Verdicts())
	f.upTo("summary", p.Summary, task.MaxText)
	if p.Findings == nil {
		f.add("findings", "required: a list, empty where there is none")
	}
	if len(p.Findings) > task.MaxFindings {
		f.add("findings", "more than %d", task.MaxFindings)
		return f
	}
	for i, finding := range p.Findings {
		at := "findings[" + strconv.Itoa(i) + "]."
		f.oneOf(at+"severity", finding.Severity, task.Severities())
		f.text(at+"message", finding.Message, task.MaxText)
		f.upTo(at+"file", finding.File, task.MaxText)
		f.upTo(at+"artifact_uri", finding.URI, task.MaxText)
		if finding.Line < 0 {
			f.add(at+"line", "%d is no line", finding.Line)
		}
	}
	return f
}

// TaskReviewed is the answer of task.append_review.
type TaskReviewed struct {
	TaskChanged
	ReviewID string `json:"review_id"`
	Stale    bool   `json:"stale"`
}

// TaskRequestApprovalParams asks a person about an effect (task.request_approval).
// For an effect that is planned, the key is enough besides what is required.
type TaskRequestApprovalParams struct {
	TaskWrite
	AttemptID string `json:"attempt_id,omitzero"`
	task.Planned
	RequestedBy string `json:"requested_by"`
	// Status is of the published protocol, and ignored.
	Status string `json:"status,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskRequestApprovalParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.maybe("attempt_id", task.AttemptID, p.AttemptID)
	f.planned("", &p.Planned, true)
	f.text("requested_action", p.RequestedAction, task.MaxText)
	f.text("side_effect_kind", p.Kind, 64)
	f.upTo("requested_by", p.RequestedBy, maxName)
	f.upTo("status", p.Status, maxName)
	return f
}

// TaskApprovalRequested is the answer of task.request_approval.
type TaskApprovalRequested struct {
	TaskChanged
	ApprovalID    string    `json:"approval_id"`
	EffectID      string    `json:"effect_id"`
	Status        string    `json:"status"`
	RequestDigest string    `json:"request_digest"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// TaskResolveApprovalParams decides about an approval (task.resolve_approval).
type TaskResolveApprovalParams struct {
	TaskWrite
	ApprovalID string `json:"approval_id"`
	Resolution string `json:"resolution"`
	ResolvedBy string `json:"resolved_by"`
	Note       string `json:"note,omitzero"`
	Digest     string `json:"digest,omitzero"`
	Signature  string `json:"signature,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskResolveApprovalParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("approval_id", task.ApprovalID, p.ApprovalID)
	f.oneOf("resolution", p.Resolution, task.Resolutions())
	f.upTo("resolved_by", p.ResolvedBy, maxName)
	f.upTo("note", p.Note, MaxNote)
	f.upTo("digest", p.Digest, maxName)
	f.upTo("signature", p.Signature, maxSignature)
	if p.Resolution == task.ApprovalApproved && p.Digest == "" {
		f.add("digest", "required: the digest of what you saw, from approval.get")
	}
	return f
}

// TaskApprovalResolved is the answer of task.resolve_approval.
type TaskApprovalResolved struct {
	TaskChanged
	Status string `json:"status"`
	Needed int    `json:"needed"`
	Given  int    `json:"given"`
}

// TaskOpenCircuitParams stops a task (task.open_circuit).
type TaskOpenCircuitParams struct {
	TaskWrite
	TaskSaid
	Reason        string `json:"reason"`
	LatestAttempt string `json:"latest_attempt_id,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskOpenCircuitParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.text("actor", p.Actor, maxName)
	f.text("reason", p.Reason, task.MaxText)
	f.maybe("latest_attempt_id", task.AttemptID, p.LatestAttempt)
	return f
}

// TaskCloseCircuitParams lets a task go on (task.close_circuit).
type TaskCloseCircuitParams struct {
	TaskWrite
	ToPhase task.Phase `json:"to_phase"`
	Reason  string     `json:"reason"`
}

// Validate names the fields that are wrong.
func (p *TaskCloseCircuitParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.phase("to_phase", p.ToPhase)
	f.text("reason", p.Reason, task.MaxText)
	return f
}

// TaskListReadyParams asks for tasks with something to do (task.list_ready).
type TaskListReadyParams struct {
	Strict
	Limit  *int     `json:"limit,omitzero"`
	Labels []string `json:"labels,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskListReadyParams) Validate() []FieldError {
	var f fields
	if p.Limit != nil {
		f.between("limit", *p.Limit, 1, MaxPage)
	}
	f.labels(p.Labels)
	return f
}

// TaskListParams asks for tasks (task.list).
type TaskListParams struct {
	Strict
	TenantID string     `json:"tenant_id,omitzero"`
	Phase    task.Phase `json:"phase,omitzero"`
	// Open leaves out completed and failed tasks.
	Open  bool   `json:"open,omitzero"`
	Limit *int   `json:"limit,omitzero"`
	After string `json:"after,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskListParams) Validate() []FieldError {
	var f fields
	if p.Limit != nil {
		f.between("limit", *p.Limit, 1, MaxPage)
	}
	if p.Phase != "" {
		f.phase("phase", p.Phase)
	}
	f.maybe("after", task.TaskID, p.After)
	return f
}

// TaskLine is one task of a list.
type TaskLine struct {
	task.Head
	ReadyAt *time.Time `json:"ready_at"`
	// Waits is who or what the task waits for, and Since since when.
	Waits string    `json:"waits_for"`
	Since time.Time `json:"since"`
	// Person is set where a person has to do something.
	Person bool `json:"person,omitzero"`
}

// TaskList is a page of tasks.
type TaskList struct {
	Tasks []TaskLine `json:"tasks"`
	// Next continues the list, absent at its end.
	Next string `json:"next,omitzero"`
}

// TaskClaimParams keeps a task for an orchestrator (task.claim).
type TaskClaimParams struct {
	TaskWrite
	LeaseS *int `json:"lease_s,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskClaimParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	if p.LeaseS != nil {
		f.between("lease_s", *p.LeaseS, 0, 3600)
	}
	return f
}

// TaskClaimed is the answer of task.claim.
type TaskClaimed struct {
	TaskChanged
	ClaimedUntil time.Time `json:"claimed_until,omitzero"`
}

// TaskUpdateParams changes what a task says of itself (task.update).
type TaskUpdateParams struct {
	TaskWrite
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
func (p *TaskUpdateParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	if p.Expected == nil {
		f.add("expected_revision", "required")
	}
	if p.Title != nil {
		f.text("title", *p.Title, task.MaxTitle)
	}
	if p.Labels != nil {
		f.labels(*p.Labels)
	}
	if p.DependsOn != nil {
		f.dependencies(*p.DependsOn)
	}
	f.priority(p.Priority)
	return f
}

// TaskUpdated is the answer of task.update.
type TaskUpdated struct {
	TaskChanged
	Missing []task.Missing `json:"missing"`
}

// TaskFinishAttemptParams ends an attempt (task.finish_attempt).
type TaskFinishAttemptParams struct {
	TaskWrite
	AttemptID    string `json:"attempt_id"`
	Outcome      string `json:"outcome"`
	FailureCode  string `json:"failure_code,omitzero"`
	ErrorSummary string `json:"error_summary,omitzero"`
	Fence        *int64 `json:"fence,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskFinishAttemptParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("attempt_id", task.AttemptID, p.AttemptID)
	f.oneOf("outcome", p.Outcome, task.Outcomes())
	switch {
	case p.Outcome == task.AttemptFailed:
		f.oneOf("failure_code", p.FailureCode, task.Failures())
	case p.FailureCode != "":
		f.add("failure_code", "only what failed has one")
	}
	f.upTo("error_summary", p.ErrorSummary, task.MaxText)
	return f
}

// TaskAttemptFinished is the answer of task.finish_attempt.
type TaskAttemptFinished struct {
	TaskChanged
	Status  string    `json:"status"`
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// TaskPlanEffectParams plans an effect (task.plan_effect).
type TaskPlanEffectParams struct {
	TaskWrite
	task.Planned
}

// Validate names the fields that are wrong.
func (p *TaskPlanEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.planned("", &p.Planned, false)
	return f
}

// TaskEffectPlanned is the answer of task.plan_effect.
type TaskEffectPlanned struct {
	TaskChanged
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}

// TaskRunEffectParams starts an effect once (task.run_effect). It waits up to WaitS
// for the decision, the phase and the end.
type TaskRunEffectParams struct {
	TaskRef
	EffectID       string `json:"effect_id,omitzero"`
	IdempotencyKey string `json:"idempotency_key,omitzero"`
	RequestDigest  string `json:"request_digest"`
	Compensation   bool   `json:"compensation,omitzero"`
	WaitS          int    `json:"wait_s,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskRunEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.maybe("effect_id", task.EffectID, p.EffectID)
	f.upTo("idempotency_key", p.IdempotencyKey, maxName)
	if (p.EffectID == "") == (p.IdempotencyKey == "") {
		f.add("effect_id", "want either effect_id or idempotency_key")
	}
	if !task.Digests(p.RequestDigest) {
		f.add("request_digest", "required: the digest that task.request_approval answered")
	}
	f.between("wait_s", p.WaitS, 0, 20)
	return f
}

// TaskEffectRun is the answer of task.run_effect.
type TaskEffectRun struct {
	TaskChanged
	EffectID string         `json:"effect_id"`
	State    string         `json:"state"`
	Run      int            `json:"run"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
	// RunToken proves who was told to do an external effect. It is given once.
	RunToken string `json:"run_token,omitzero"`
}

// TaskFinishEffectParams says how an external effect ended (task.finish_effect).
type TaskFinishEffectParams struct {
	TaskWrite
	EffectID string         `json:"effect_id"`
	Run      int            `json:"run"`
	RunToken string         `json:"run_token"`
	Outcome  string         `json:"outcome"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
}

func effectOutcomes() []string { return []string{task.EffectDone, task.EffectFailed} }

// Validate names the fields that are wrong.
func (p *TaskFinishEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("effect_id", task.EffectID, p.EffectID)
	if p.Run < 1 {
		f.add("run", "required")
	}
	f.text("run_token", p.RunToken, maxName)
	f.oneOf("outcome", p.Outcome, effectOutcomes())
	if len(p.Receipt) > task.MaxPayloadBytes {
		f.add("receipt", "longer than %d bytes", task.MaxPayloadBytes)
	}
	return f
}

// TaskSettleEffectParams is a person's word about a run of which nobody knows the
// outcome (task.settle_effect).
type TaskSettleEffectParams struct {
	TaskWrite
	EffectID string `json:"effect_id"`
	Run      int    `json:"run,omitzero"`
	Outcome  string `json:"outcome"`
	Note     string `json:"note"`
}

// Validate names the fields that are wrong.
func (p *TaskSettleEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("effect_id", task.EffectID, p.EffectID)
	if p.Run < 0 {
		f.add("run", "%d is no run", p.Run)
	}
	f.oneOf("outcome", p.Outcome, effectOutcomes())
	f.text("note", p.Note, MaxNote)
	return f
}

// TaskKillEffectParams ends a command that runs (task.kill_effect).
type TaskKillEffectParams struct {
	TaskWrite
	EffectID string `json:"effect_id"`
	Run      int    `json:"run,omitzero"`
	Reason   string `json:"reason"`
}

// Validate names the fields that are wrong.
func (p *TaskKillEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("effect_id", task.EffectID, p.EffectID)
	if p.Run < 0 {
		f.add("run", "%d is no run", p.Run)
	}
	f.text("reason", p.Reason, task.MaxText)
	return f
}

// TaskCancelEffectParams gives up an effect (task.cancel_effect).
type TaskCancelEffectParams struct {
	TaskWrite
	EffectID string `json:"effect_id"`
}

// Validate names the fields that are wrong.
func (p *TaskCancelEffectParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.id("effect_id", task.EffectID, p.EffectID)
	return f
}

// TaskEffectState is the answer of what changes an effect.
type TaskEffectState struct {
	TaskChanged
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}

// TaskGrantParams gives an actor a token (task.grant). An operator may leave out the
// task for an orchestrator, and name an agent that the token speaks and reads for, besides
// the actor or in its place.
type TaskGrantParams struct {
	Strict
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
func (p *TaskGrantParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *TaskGrantParams) Validate() []FieldError {
	var f fields
	f.maybe("task_id", task.TaskID, p.TaskID)
	if p.Actor == "" && p.Agent == "" {
		f.add("actor", "required")
	}
	if p.Actor == "" && p.TaskID != "" {
		f.add("actor", "required with task_id")
	}
	f.upTo("actor", p.Actor, maxName)
	f.upTo("agent", p.Agent, maxName)
	f.maybe("attempt_id", task.AttemptID, p.AttemptID)
	f.names("tools", p.Tools)
	if p.ExpiresS != nil {
		f.between("expires_s", *p.ExpiresS, 1, 366*24*60*60)
	}
	if p.Bind != "" {
		f.oneOf("bind", p.Bind, task.Binds())
	}
	f.upTo("request_key", p.RequestKey, maxName)
	return f
}

// TaskGranted is the answer of task.grant. The token is never given again.
type TaskGranted struct {
	TaskChanged
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

// TaskRevokeGrantParams ends a grant (task.revoke_grant).
type TaskRevokeGrantParams struct {
	Strict
	TaskID     string `json:"task_id,omitzero"`
	GrantID    string `json:"grant_id"`
	RequestKey string `json:"request_key,omitzero"`
}

// WithKey is the request's key, "" for none.
func (p *TaskRevokeGrantParams) WithKey() string { return p.RequestKey }

// Validate names the fields that are wrong.
func (p *TaskRevokeGrantParams) Validate() []FieldError {
	var f fields
	f.maybe("task_id", task.TaskID, p.TaskID)
	f.id("grant_id", task.GrantID, p.GrantID)
	f.upTo("request_key", p.RequestKey, maxName)
	return f
}

// TaskAttachParams makes a connection an actor's by a grant's token (task.attach).
type TaskAttachParams struct {
	Strict
	Token string `json:"token"`
}

// Validate names the fields that are wrong.
func (p *TaskAttachParams) Validate() []FieldError {
	var f fields
	f.text("token", p.Token, maxName)
	return f
}

// TaskAttached says whose the connection is.
type TaskAttached struct {
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

// TaskAskPermissionParams asks whether an agent may use a tool of its runtime
// (task.ask_permission).
type TaskAskPermissionParams struct {
	TaskRef
	AttemptID string         `json:"attempt_id,omitzero"`
	ToolCall  TaskToolCall   `json:"tool_call"`
	Options   jsontext.Value `json:"options"`
}

// TaskToolCall is what an agent wants to do.
type TaskToolCall struct {
	ID    string `json:"id,omitzero"`
	Kind  string `json:"kind"`
	Title string `json:"title,omitzero"`
	// InWorkspace is set where all that it touches is within the task's workspace.
	InWorkspace bool           `json:"in_workspace,omitzero"`
	Server      string         `json:"mcp_server,omitzero"`
	Input       jsontext.Value `json:"input,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskAskPermissionParams) Validate() []FieldError {
	var f fields
	p.validate(&f)
	f.maybe("attempt_id", task.AttemptID, p.AttemptID)
	f.text("tool_call.kind", p.ToolCall.Kind, 64)
	f.upTo("tool_call.id", p.ToolCall.ID, maxName)
	f.upTo("tool_call.title", p.ToolCall.Title, task.MaxText)
	if len(p.ToolCall.Input) > task.MaxArgvBytes || len(p.Options) > task.MaxPayloadBytes {
		f.add("tool_call.input", "longer than %d bytes", task.MaxArgvBytes)
	}
	return f
}

// TaskPermission is the answer of task.ask_permission.
type TaskPermission struct {
	Decision   string `json:"decision"`
	Reason     string `json:"reason,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`
}

// TaskWatchParams follows tasks (task.watch). After is a number of the log.
type TaskWatchParams struct {
	Strict
	TaskID string  `json:"task_id,omitzero"`
	After  *uint64 `json:"after,omitzero"`
}

// Validate names the fields that are wrong.
func (p *TaskWatchParams) Validate() []FieldError {
	var f fields
	f.maybe("task_id", task.TaskID, p.TaskID)
	return f
}

// TaskNews is one chunk of task.watch. The one with Caught set follows what was there
// already.
type TaskNews struct {
	*TaskEvent
	Caught bool `json:"caught,omitzero"`
}
