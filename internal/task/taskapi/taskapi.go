// Package taskapi has the wire types of tasks: the parameters and answers of the methods
// task.* and runner.*. Tags of the fields hold the bounds of parameters, and the method Rules
// the rules between them; members.Check applies both.
package taskapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
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
	// Guards are the failed ones.
	Guards      []task.Guard  `json:"guards,omitempty"`
	Transitions []task.Option `json:"allowed_transitions,omitempty"`
	// At is the time from which the call can succeed, if only time is in the way.
	At time.Time `json:"at,omitzero"`
}

// Details is the details of such an error.
type Details struct {
	Task Error `json:"task"`
}

// Ref names a task.
type Ref struct {
	TaskID string `json:"task_id" is:"required id=tsk_" doc:"The task's id."`
}

// About is the task that a call is about.
func (p *Ref) About() string { return p.TaskID }

// Keyed is in parameters of calls that can be repeated. A repeated call gets the first answer.
type Keyed struct {
	RequestKey string `json:"request_key,omitzero" is:"max=256" doc:"A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once."`
}

// WithKey is the request's key, "" for none.
func (p *Keyed) WithKey() string { return p.RequestKey }

// Write is in the parameters of calls that change a task.
type Write struct {
	Ref
	Keyed
}

// Changed is the answer to a call that changes a task.
type Changed struct {
	TaskID   string     `json:"task_id"`
	Phase    task.Phase `json:"phase"`
	Revision int        `json:"revision"`
	// AuditSeq is the record of the change. Only people get it.
	AuditSeq uint64 `json:"audit_seq,omitzero"`
	// Replayed is set on the stored answer to a repeated call, which did nothing.
	Replayed bool `json:"replayed,omitzero"`
}

// Said is the caller's own account of its identity. The daemon compares it with the connection.
type Said struct {
	Actor     string `json:"actor,omitzero" is:"required max=256" doc:"The caller's name."`
	ActorRole string `json:"actor_role,omitzero" is:"max=256" doc:"The caller's role."`
}

// SpecRef names a spec's file in the workspace.
type SpecRef struct {
	URI    string `json:"uri" is:"required max=4096" doc:"The file's path in the workspace."`
	Digest string `json:"digest,omitzero" is:"form=digest" doc:"sha256: and the file's SHA-256 in hexadecimal digits."`
}

// CreateParams makes a task (task.create).
type CreateParams struct {
	Title          string         `json:"title" is:"required max=256" doc:"A short title."`
	SpecMarkdown   string         `json:"spec_markdown,omitzero" doc:"The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish. Required unless spec_ref or spec is given."`
	SpecRef        *SpecRef       `json:"spec_ref,omitzero" doc:"A file in the workspace that holds the specification, in place of spec_markdown."`
	Spec           *task.Fields   `json:"spec,omitzero" doc:"The specification as fields. They take precedence over the Markdown."`
	Workspace      string         `json:"workspace" is:"required max=256" doc:"The absolute path of the working folder, or a name."`
	InitialPhase   task.Phase     `json:"initial_phase" is:"required words=spec_draft|spec_review" doc:"The first phase. spec_review needs a complete specification."`
	Labels         []string       `json:"labels,omitzero" is:"max=32" each:"required max=64" doc:"Labels."`
	Priority       *int           `json:"priority,omitzero" is:"range=0..4" doc:"0 is the most urgent; 2 by default."`
	DependsOn      []string       `json:"depends_on,omitzero" is:"keeps=64" each:"required id=tsk_" doc:"Ids of tasks that must be completed first."`
	Effects        []task.Planned `json:"effects,omitzero" is:"keeps=64" doc:"The task's effects on the world at its end. Each needs a person's approval."`
	TenantID       string         `json:"tenant_id,omitzero" is:"max=256" doc:"The task's tenant, if a person creates it and there are several."`
	Classification string         `json:"classification,omitzero" is:"words=public|internal|confidential|restricted" doc:"The level of the task's texts. A text can raise it."`
	NotBefore      time.Time      `json:"not_before,omitzero" doc:"The earliest start, RFC 3339."`
	Keyed
}

// Rules reports faults between members.
func (p *CreateParams) Rules() (f api.Fields) {
	if p.Spec == nil && p.SpecRef == nil && p.SpecMarkdown == "" {
		f.Add("spec_markdown", "required: or spec_ref, or spec")
	}
	if p.SpecRef != nil && p.SpecMarkdown != "" {
		f.Add("spec_ref", "give the Markdown once: spec_markdown has it already")
	}
	for i := range p.Effects[:min(len(p.Effects), task.MaxEffects)] {
		planned(&f, at("effects", i)+".", &p.Effects[i], false)
	}
	return f
}

// Created is the answer of task.create.
type Created struct {
	Changed
	Missing []task.Missing `json:"missing"`
}

// UpdateParams changes a task's own description (task.update).
type UpdateParams struct {
	Write
	Expected     *int         `json:"expected_revision" is:"required" doc:"The revision that the caller read. The call is refused if the task has changed since."`
	Title        *string      `json:"title,omitzero" is:"nonempty max=256" doc:"A short title."`
	Labels       *[]string    `json:"labels,omitzero" is:"max=32" each:"required max=64" doc:"Labels."`
	Priority     *int         `json:"priority,omitzero" is:"range=0..4" doc:"0 is the most urgent; 2 by default."`
	DependsOn    *[]string    `json:"depends_on,omitzero" is:"keeps=64" each:"required id=tsk_" doc:"Ids of tasks that must be completed first."`
	NotBefore    *time.Time   `json:"not_before,omitzero" doc:"The earliest start, RFC 3339."`
	Spec         *task.Fields `json:"spec,omitzero" doc:"The specification as fields. They take precedence over the Markdown."`
	SpecMarkdown *string      `json:"spec_markdown,omitzero" doc:"The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish."`
}

// Updated is the answer of task.update.
type Updated struct {
	Changed
	Missing []task.Missing `json:"missing"`
}

// GetParams asks for a task (task.get).
type GetParams struct {
	Ref
	Events *int   `json:"include_events_limit,omitzero" is:"range=0..200" doc:"The number of newest events in the answer; 20 by default."`
	Part   string `json:"part,omitzero" is:"words=specs|attempts|artifacts|reviews|effects|approvals|checkpoints|events" doc:"One list of the task, without the others. The answer's more names the lists that were cut."`
	After  string `json:"after,omitzero" is:"max=256" doc:"With part: the id of the entry before the first one in the answer."`
}

// Review is a review, and whether it counts.
type Review struct {
	task.Review
	Stale bool `json:"stale"`
}

// Gates is the state of the reviews.
type Gates struct {
	Spec    task.Gate `json:"spec"`
	Quality task.Gate `json:"quality"`
}

// AtCircuit is what a view has while the circuit is open.
type AtCircuit struct {
	FailureSummary []string `json:"failure_summary,omitempty"`
	// LastGoodRevision is the newest artifact revision that both gates approved, zero if there is
	// none, and LastGood has its artifacts.
	LastGood         []task.Artifact `json:"last_good_artifacts,omitempty"`
	LastGoodRevision *int            `json:"last_good_revision,omitempty"`
	// Unblock are the ways out.
	Unblock []string `json:"unblock,omitempty"`
}

// View is a task in the form for its readers. It has the newest hundred entries of each list;
// More names the cut lists. Escalate is set if the next attempt is the last one after failures.
type View struct {
	task.Head
	Spec             task.Spec       `json:"spec"`
	SpecVersions     int             `json:"spec_versions"`
	Missing          []task.Missing  `json:"missing"`
	Attempts         []task.Attempt  `json:"attempts"`
	Artifacts        []task.Artifact `json:"artifacts"`
	Reviews          []Review        `json:"reviews"`
	Effects          []task.Effect   `json:"effects"`
	Approvals        []task.Approval `json:"approvals"`
	Gates            Gates           `json:"gates"`
	Transitions      []task.Option   `json:"allowed_transitions"`
	RetriesLeft      int             `json:"retries_left"`
	ReworksLeft      int             `json:"reworks_left"`
	Escalate         bool            `json:"escalate,omitzero"`
	ReadyAt          *time.Time      `json:"ready_at"`
	LeaseExpiresAt   time.Time       `json:"lease_expires_at,omitzero"`
	OpenDependencies []string        `json:"open_dependencies,omitempty"`
	Events           []Event         `json:"events"`
	More             []string        `json:"more,omitempty"`
	AtCircuit
	Specs       []task.Spec       `json:"specs,omitempty"`
	Checkpoints []task.Checkpoint `json:"checkpoints,omitempty"`
}

// Event is one event of a task, a record of the log.
type Event struct {
	// Seq is the record of the event. Only people get it.
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
	FromPhase task.Phase `json:"from_phase" is:"required words=spec_draft|spec_review|execution_ready|executing|spec_gate|quality_gate|awaiting_approval|ready_to_resume|completed|failed|circuit_open" doc:"The task's present phase."`
	ToPhase   task.Phase `json:"to_phase" is:"required words=spec_draft|spec_review|execution_ready|executing|spec_gate|quality_gate|awaiting_approval|ready_to_resume|completed|failed|circuit_open" doc:"The next phase."`
	Said
	Reason    string `json:"reason" is:"required max=4096" doc:"The reason, for the record."`
	AttemptID string `json:"attempt_id,omitzero" is:"id=att_" doc:"The attempt's id."`
	Expected  *int   `json:"expected_revision,omitzero" doc:"The revision that the caller read. The call is refused if the task has changed since."`
}

// Rules reports faults between members.
func (p *TransitionParams) Rules() (f api.Fields) {
	if p.ActorRole == "" {
		f.Add("actor_role", "required")
	}
	return f
}

// OpenCircuitParams stops a task (task.open_circuit).
type OpenCircuitParams struct {
	Write
	Said
	Reason        string `json:"reason" is:"required max=4096" doc:"The reason, for the record."`
	LatestAttempt string `json:"latest_attempt_id,omitzero" is:"id=att_" doc:"The id of the last attempt."`
}

// CloseCircuitParams lets a stopped task continue (task.close_circuit).
type CloseCircuitParams struct {
	Write
	ToPhase task.Phase `json:"to_phase" is:"required words=spec_draft|spec_review|execution_ready|executing|spec_gate|quality_gate|awaiting_approval|ready_to_resume|completed|failed|circuit_open" doc:"The next phase."`
	Reason  string     `json:"reason" is:"required max=4096" doc:"The reason, for the record."`
}

// ListReadyParams asks for tasks that wait for an orchestrator (task.list_ready).
type ListReadyParams struct {
	Limit  *int     `json:"limit,omitzero" is:"range=1..1000" doc:"The most tasks in the answer."`
	Labels []string `json:"labels,omitzero" is:"max=32" each:"required max=64" doc:"Labels. Tasks with all of them are listed."`
}

// ListParams asks for tasks (task.list).
type ListParams struct {
	TenantID string     `json:"tenant_id,omitzero" doc:"Tasks of this tenant."`
	Phase    task.Phase `json:"phase,omitzero" is:"words=spec_draft|spec_review|execution_ready|executing|spec_gate|quality_gate|awaiting_approval|ready_to_resume|completed|failed|circuit_open" doc:"Tasks in this phase."`
	Open     bool       `json:"open,omitzero" doc:"Leaves out completed and failed tasks without a question to people."`
	Limit    *int       `json:"limit,omitzero" is:"range=1..1000" doc:"The most tasks in the answer."`
	After    string     `json:"after,omitzero" is:"id=tsk_" doc:"The answer's next: continues a list."`
	Newest   bool       `json:"newest,omitzero" doc:"Begins with the newest task. after then continues to older ones."`
}

// Line is one task of a list.
type Line struct {
	task.Head
	ReadyAt *time.Time `json:"ready_at"`
	// Waits names the person, actor or event that the task waits for. Since is the start of the wait.
	Waits string    `json:"waits_for"`
	Since time.Time `json:"since"`
	// Person is set if a person has to act.
	Person bool `json:"person,omitzero"`
	// Questions are the open questions to people about the task, oldest first.
	Questions []Question `json:"questions,omitempty"`
	// Progress is how the running attempt goes, for people.
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is how a running attempt goes.
type Progress struct {
	Attempt     int       `json:"attempt"`
	Actor       string    `json:"actor"`
	StartedAt   time.Time `json:"started_at"`
	Checkpoints int       `json:"checkpoints"`
	// HeardAt is when its last heartbeat or checkpoint came.
	HeardAt        time.Time `json:"heard_at"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// Question is one thing about a task that waits for a person.
type Question struct {
	About string `json:"about"`
	// ApprovalID, or EffectID and Run, is the subject.
	ApprovalID string `json:"approval_id,omitzero"`
	EffectID   string `json:"effect_id,omitzero"`
	Run        int    `json:"run,omitzero"`
	Text       string `json:"text"`
	// Details are further lines: of an open circuit, the open findings and the last approved work.
	Details []string  `json:"details,omitempty"`
	Since   time.Time `json:"since"`
}

// Size is about how many bytes the question takes.
func (q *Question) Size() int {
	size := len(q.Text)
	for _, line := range q.Details {
		size += len(line)
	}
	return size
}

// GoodLine is the last approved work of a task with an open circuit, in a line.
func GoodLine(revision int, artifacts []task.Artifact) string {
	if revision == 0 {
		return "none: no revision was approved at both gates"
	}
	names := make([]string, len(artifacts))
	for i := range artifacts {
		names[i] = artifacts[i].URI
	}
	return fmt.Sprintf("revision %d: %s", revision, strings.Join(names, ", "))
}

// The questions to people: to decide about an approval request, to report the end of a run
// with an unknown outcome, or to look at a task whose circuit is open.
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
	LeaseS *int `json:"lease_s,omitzero" is:"range=0..3600" doc:"The seconds of the claim; 60 by default, and 0 gives the task back."`
}

// Claimed is the answer of task.claim.
type Claimed struct {
	Changed
	ClaimedUntil time.Time `json:"claimed_until,omitzero"`
}

// WatchParams follows tasks (task.watch).
type WatchParams struct {
	TaskID string  `json:"task_id,omitzero" is:"id=tsk_" doc:"The task; all tasks if it is absent."`
	After  *uint64 `json:"after,omitzero" doc:"A number of the log. The stream begins after it."`
}

// News is one chunk of task.watch. The chunk with Caught set separates stored events from new ones.
type News struct {
	*Event
	Caught bool `json:"caught,omitzero"`
}
