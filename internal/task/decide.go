package task

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/mutant"
)

// Actor is the caller of a command on a task: the known facts about the connection, and none of its
// claims.
type Actor struct {
	Name   string
	Role   Role
	Tenant string
	// By is the principal behind the name.
	By Principal
	// Grant is the grant of the connection, nil for none.
	Grant *Grant
	// Person names the person, if the actor is one: an operator's user, or the signer.
	Person string
	// Seen is the subject that the connection last read of this task, zero for none.
	Seen Subject
}

// Grant is the rights of an actor with a token.
type Grant struct {
	ID        string   `json:"grant_id"`
	Actor     string   `json:"actor"`
	Role      Role     `json:"role"`
	Tenant    string   `json:"tenant_id,omitzero"`
	TaskID    string   `json:"task_id,omitzero"`
	AttemptID string   `json:"attempt_id,omitzero"`
	Fence     int64    `json:"fence,omitzero"`
	Subject   Subject  `json:"subject,omitzero"`
	Tools     []string `json:"tools,omitempty"`
	// Research is set if the attempt only reads. The tools for work are not shown then.
	Research bool   `json:"research,omitzero"`
	Agent    string `json:"agent,omitzero"`
	IssuedBy string `json:"issued_by"`
	// Under is the grant by which its giver acted, if that is an actor with one. It ends with that one.
	Under string `json:"under,omitzero"`
	// Issuers are the actors that have given it: the giver, the giver of that grant, and so on. A
	// person is none. IssuedUID and IssuedFrom are the user and process that gave it.
	Issuers    []string `json:"issuers,omitempty"`
	IssuedUID  *int     `json:"issued_uid,omitempty"`
	IssuedFrom string   `json:"issued_from,omitzero"`
	// Bind says whom the token is bound to, and Holder who that is.
	Bind      string    `json:"bind,omitzero"`
	Holder    *Holder   `json:"holder,omitempty"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// The processes that a grant's token admits after the first attach: the same program of the same
// user, that process alone, or anybody.
const (
	BindProgram = "program"
	BindProcess = "process"
	BindNone    = "none"
)

// Binds lists whom a grant can be bound to.
func Binds() []string { return []string{BindProgram, BindProcess, BindNone} }

// Holder is the process that acts by a grant.
type Holder struct {
	UID     int    `json:"uid"`
	Exe     string `json:"exe,omitzero"`
	Process string `json:"process,omitzero"`
}

func (h Holder) String() string {
	return strings.TrimSpace(fmt.Sprintf("user %d, %s %s", h.UID, h.Exe, h.Process))
}

// Ended reports whether the grant holds no longer for a task: its attempt, its subject or the task
// itself has ended. Conditions that depend on no task are not checked here.
func (g *Grant) Ended(t *Task) bool {
	switch g.Role {
	case Executor:
		a := t.Running()
		return g.AttemptID != "" && (a == nil || a.ID != g.AttemptID)
	case SpecReviewer, QualityReviewer:
		return g.Subject != (Subject{}) && g.Subject != t.Subject()
	default:
		return t.Phase.Final()
	}
}

// Rules are the rules of the configuration.
type Rules struct {
	Lease time.Duration
	// Retry bounds the attempts that fail in a row, and Rework those after a success, for which a
	// reviewer or a person asked.
	Retry, Rework               tries
	SpecReviews, QualityReviews int
	// AskLate lets people be asked about an effect that was planned after the reviews. Otherwise
	// the reviews count no longer, and are made again.
	AskLate      bool
	SelfApproval bool
	// Approvers is how many people must approve an effect, the policy's wish apart.
	Approvers int
	// SharedPrincipals lets one principal do the work and review it under another name.
	SharedPrincipals bool
}

// World is the state outside a task that a decision depends on.
type World struct {
	Rules Rules
	// Open are those dependencies that are not completed.
	Open []string
	// Lease is the end of the running attempt's renewed lease, if that is later than the stored
	// one.
	Lease time.Time
	// NewID makes an id with a prefix.
	NewID func(prefix string) string
	// Ask asks the policy, once all guards hold. Without one everything is allowed.
	Ask func(Question) Answer
	// Level ranks a name of a classification.
	Level func(name string) int
	// Known returns the role of a configured actor of the tenant and the highest
	// classification that it may work with, and false for none.
	Known func(name string) (role Role, highest string, ok bool)
	// Raised returns the level that the command's texts come to.
	Raised func() string
	// Runner reports whether one is there that can run commands.
	Runner bool
}

func (w *World) lease(a *Attempt) time.Time { return latest(w.Lease, a.LeaseExpires) }

// Question is a question to the policy.
type Question struct {
	Action  string
	To      Phase
	Attempt int
	// Effect is the effect, and Compensation is set to undo it.
	Effect       *Effect
	Compensation bool
	Actor        string
	ActorAs      Role
	WorkedBy     string
}

// The actions that the policy is asked about.
const (
	AskTransition = "task_transition"
	AskAttempt    = "task_attempt"
	AskEffect     = "task_effect"
	AskPermission = "task_permission"
)

// Answer is the policy's answer.
type Answer struct {
	Allow, RequireApproval bool
	Reason                 string
	// Cause is why there is no answer, for the record alone.
	Cause            string
	Approvers        int
	Policy, Revision string
}

// Command is something that is wanted of a task. The types of this package alone are
// commands.
type Command interface{ decide(*draft) error }

// Event is a record of a change.
type Event struct {
	Type      string
	AttemptID string
	// Was and Now hold each enum, number, id and digest that changed.
	Was, Now map[string]any
	// Reason is a text for people. Details are recorded unchanged, Texts and Digests as keyed
	// digests alone. A text of Digests is digested as it is, anything else in the canonical form of
	// its JSON (RFC 8785).
	Reason  string
	Details map[string]any
	Texts   map[string]string
	Digests map[string]any
}

// Outcome is the outcome of a command.
type Outcome struct {
	Task *Task
	// Events are empty if nothing is to be written.
	Events []Event
	// Touched names what of the lists is another than before.
	Touched []Touch
	// Revoke are approval requests that end with the change.
	Revoke []string
	// Policy is the policy's answer if it was asked.
	Policy *Answer
	// Attempt, Review, Artifact, Effect and Approval are the ids of the command's subjects, and Run
	// is the number of the run.
	Attempt, Review, Artifact, Effect, Approval string
	Run                                         int
	// Cancel tells an executor that its attempt was aborted. Replayed is set if the requested state
	// was there already.
	Cancel, Replayed bool
	// Lease is until when the attempt's lease is renewed, in memory.
	Lease time.Time
	// SelfApproved is set on an approval by its requester.
	SelfApproved bool
}

// Touch names an entry of one of a task's lists.
type Touch struct {
	Kind, ID string
	Index    int
}

// The kinds of entries.
const (
	KindSpec     = "spec"
	KindAttempt  = "attempt"
	KindArtifact = "artifact"
	KindReview   = "review"
	KindEffect   = "effect"
	KindApproval = "approval"
)

// Refusal is why nothing was done.
type Refusal struct {
	Code    Code
	Message string
	// Guards are those that do not hold, and Missing what the spec lacks.
	Guards  []Guard
	Missing []Missing
	// At is when it could be done.
	At time.Time
	// Answer is the policy's if it refused.
	Answer *Answer
}

func (r *Refusal) Error() string { return r.Message }

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// draft is a decision on its way.
type draft struct {
	old *Task
	t   *Task
	w   *World
	who *Actor
	now time.Time
	out *Outcome
	// silent leaves the revision as it is.
	silent bool
}

// Decide decides about one command. The task is nil for [Create]. It changes none of its arguments.
func Decide(t *Task, c Command, who *Actor, w *World, now time.Time) (*Outcome, error) {
	now = now.UTC()
	d := &draft{old: t, w: w, who: who, now: now, out: new(Outcome)}
	if t != nil {
		d.t = t.clone()
		if err := d.belongs(c); err != nil {
			return nil, err
		}
	}
	if err := c.decide(d); err != nil {
		return nil, err
	}
	d.out.Task = d.t
	if len(d.out.Events) == 0 && len(d.out.Touched) == 0 {
		d.out.Task = t
		return d.out, nil
	}
	if d.w.Raised != nil && len(d.out.Events) > 0 {
		// Every reader of a task can read its texts.
		if level := d.w.Raised(); d.w.Level(level) > d.w.Level(d.t.Classification) {
			d.out.Events[0].set("classification", d.t.Classification, level)
			d.t.Classification = level
		}
	}
	if !d.silent {
		d.t.Revision++
		d.t.UpdatedAt = now
		if t != nil && d.t.Claim != nil && d.t.Claim.Actor == who.Name {
			claim := *d.t.Claim
			claim.Until = now.Add(time.Duration(claim.LeaseMS) * time.Millisecond)
			d.t.Claim = &claim
		}
	}
	d.t.Seq += len(d.out.Events)
	return d.out, nil
}

// clone copies a task so far that it can be changed by way of a draft.
func (t *Task) clone() *Task {
	c := *t
	c.Specs, c.Attempts, c.Artifacts = slices.Clone(t.Specs), slices.Clone(t.Attempts), slices.Clone(t.Artifacts)
	c.Reviews, c.Effects, c.Approvals = slices.Clone(t.Reviews), slices.Clone(t.Effects), slices.Clone(t.Approvals)
	return &c
}

// May refuses whoever has no business with the task: another tenant's, or one that
// is not the actor's own.
func (t *Task) May(who *Actor) error {
	if who.Role == Operator || who.Role == Daemon {
		return nil
	}
	if who.Tenant != t.Tenant && !mutant.Off("task-tenant") {
		return refuse(Absent, "there is no task %s", t.ID)
	}
	if g := who.Grant; g != nil && g.TaskID != "" && g.TaskID != t.ID {
		return refuse(NotPermitted, "this grant is for task %s", g.TaskID)
	}
	if who.Role == Orchestrator || who.Grant != nil && who.Grant.TaskID == t.ID || t.own(who) {
		return nil
	}
	return refuse(NotPermitted, "the task is not one of %s's", who.Name)
}

// own reports whether a task is one of an actor's that is known by its app: an
// executor's that has an attempt of it, a reviewer's and a lobster's in their phases or where they had a part.
func (t *Task) own(who *Actor) bool {
	switch who.Role {
	case Executor:
		return slices.ContainsFunc(t.Attempts, func(a Attempt) bool { return a.Actor == who.Name })
	case SpecReviewer:
		return t.Phase == SpecReview || t.Phase == SpecGate || t.reviewed(who.Name)
	case QualityReviewer:
		return t.Phase == QualityGate || t.reviewed(who.Name)
	case Lobster:
		return t.Phase == AwaitingApproval || t.Phase == ReadyToResume ||
			slices.ContainsFunc(t.Approvals, func(a Approval) bool { return a.RequestedBy == who.Name })
	default:
		return false
	}
}

func (t *Task) reviewed(actor string) bool {
	return slices.ContainsFunc(t.Reviews, func(r Review) bool { return r.Actor == actor })
}

// Reads refuses whoever may not read the task.
func (t *Task) Reads(who *Actor, w *World) error {
	d := &draft{t: t, w: w, who: who}
	if err := t.May(who); err != nil || who.Role == Operator || who.Role == Daemon {
		return err
	}
	return d.cleared(who.Name)
}

// belongs refuses whoever has no business with the task, and an orchestrator's
// command while another one has claimed it.
func (d *draft) belongs(c Command) error {
	if err := d.t.May(d.who); err != nil {
		return err
	}
	if d.w.Level != nil && d.who.Role != Operator && d.who.Role != Daemon {
		if err := d.cleared(d.who.Name); err != nil {
			return err
		}
	}
	_, claims := c.(Claiming)
	if claim := d.t.Claim; claim != nil && !claims && d.who.Role == Orchestrator && claim.Actor != d.who.Name && d.now.Before(claim.Until) {
		return &Refusal{Code: Claimed, Message: fmt.Sprintf("%s has claimed the task until %s", claim.Actor, claim.Until.Format(time.RFC3339)), At: claim.Until}
	}
	return nil
}

// cleared refuses an actor whose level is below the task's classification.
func (d *draft) cleared(name string) error {
	_, highest, ok := d.w.Known(name)
	if !ok || d.w.Level(highest) >= d.w.Level(d.t.Classification) {
		return nil
	}
	return refuse(Classified, "%s may work with what is %s at most, and the task is %s", name, highest, d.t.Classification)
}

// event adds an event.
func (d *draft) event(kind string) *Event {
	d.out.Events = append(d.out.Events, Event{Type: kind, Was: make(map[string]any), Now: make(map[string]any), Details: make(map[string]any), Texts: make(map[string]string), Digests: make(map[string]any)})
	return &d.out.Events[len(d.out.Events)-1]
}

// set writes down that a value changed.
func (e *Event) set(name string, was, now any) *Event {
	if was != now {
		e.Was[name], e.Now[name] = was, now
	}
	return e
}

// made writes down a value of something new.
func (e *Event) made(name string, now any) *Event {
	e.Now[name] = now
	return e
}

// touch returns an entry to be changed.
func touch[T any](d *draft, kind string, list []T, i int, id string) *T {
	at := Touch{Kind: kind, ID: id, Index: i}
	if !slices.Contains(d.out.Touched, at) {
		d.out.Touched = append(d.out.Touched, at)
	}
	return &list[i]
}

// attempt, effect and approval return an entry to be changed, or nil.
func (d *draft) attempt(id string) *Attempt {
	i := slices.IndexFunc(d.t.Attempts, func(a Attempt) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return touch(d, KindAttempt, d.t.Attempts, i, id)
}

func (d *draft) effect(id string) *Effect {
	i := slices.IndexFunc(d.t.Effects, func(e Effect) bool { return e.ID == id })
	if i < 0 {
		return nil
	}
	e := touch(d, KindEffect, d.t.Effects, i, id)
	e.Runs = slices.Clone(e.Runs)
	return e
}

func (d *draft) approval(id string) *Approval {
	i := slices.IndexFunc(d.t.Approvals, func(a Approval) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return touch(d, KindApproval, d.t.Approvals, i, id)
}

// revision refuses a command that was meant for another revision.
func (d *draft) revision(expected *int) error {
	if expected == nil || *expected == d.t.Revision {
		return nil
	}
	return refuse(RevisionMismatch, "the task is at revision %d, not %d: look again", d.t.Revision, *expected)
}

// guards refuses what its guards do not allow.
func (d *draft) guards(what string, guards ...Guard) error {
	failed := d.t.failing(guards, d.w, d.now)
	if len(failed) == 0 {
		return nil
	}
	r := refuse(GuardFailed, "%s: it needs %s", what, Needs(failed))
	r.Guards = failed
	if slices.Contains(failed, Delivered) {
		r.Message += d.t.undelivered()
	}
	if slices.Contains(failed, Complete) {
		r.Missing = d.t.Missing()
		for i, m := range r.Missing {
			if i == 0 {
				r.Message += ":"
			}
			r.Message += " " + m.String() + ";"
		}
		r.Message = strings.TrimSuffix(r.Message, ";")
	}
	return r
}

// ask asks the policy.
func (d *draft) ask(q Question) error {
	if d.w.Ask == nil {
		return nil
	}
	q.Actor, q.ActorAs = d.who.Name, d.who.Role
	a := d.w.Ask(q)
	d.out.Policy = &a
	if !a.Allow || a.RequireApproval && (q.Action == AskTransition || q.Action == AskAttempt) {
		reason := a.Reason
		if a.Allow {
			reason = "the policy asks for an approval, which a " + strings.TrimPrefix(q.Action, "task_") + " has none of: " + reason
		}
		return d.policyRefuses(&q, reason)
	}
	return nil
}

// policyRefuses is a refusal by the policy.
func (d *draft) policyRefuses(q *Question, reason string) *Refusal {
	what := strings.TrimPrefix(q.Action, "task_")
	if q.To != "" {
		what += " to " + string(q.To)
	}
	r := refuse(PolicyDenied, "the policy does not allow this %s: %s", what, reason)
	r.Answer = d.out.Policy
	return r
}
