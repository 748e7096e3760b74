package taskservice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
	"go.uber.org/zap"
)

// act decides about one command and commits what comes of it. Build makes the command of the task
// as it is, nil for none; more, if set, adds to the change. An actor without access to the task is
// refused before build runs, so that no error of build tells the actor anything about the task.
func (t *Tasks) act(ctx context.Context, id string, who *task.Actor, build func(*task.Task) (task.Command, error), more func(*store.Change, *task.Outcome) error) (*task.Outcome, store.Receipt, error) {
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		return nil, store.Receipt{}, err
	}
	if err := at.May(who); err != nil {
		return nil, store.Receipt{}, t.refused(at, who, nil, err)
	}
	if err := holds(ctx, t, who, at); err != nil {
		return nil, store.Receipt{}, err
	}
	command, err := build(at)
	if err != nil {
		return nil, store.Receipt{}, err
	}
	if command == nil {
		return &task.Outcome{Task: at}, store.Receipt{}, nil
	}
	// Building the command may have taken as long as an actor likes, because of files. A pause
	// waits from here on.
	done, err := t.deciding(ctx, who, at, command)
	if err != nil {
		return nil, store.Receipt{}, err
	}
	defer done()
	out, change, err := t.decide(ctx, at, command, who)
	if err != nil {
		return nil, store.Receipt{}, err
	}
	out, receipt, err := t.write(change, at, out, more)
	return out, told(who, receipt), err
}

// write commits what was decided.
func (t *Tasks) write(change *store.Change, at *task.Task, out *task.Outcome, more func(*store.Change, *task.Outcome) error) (*task.Outcome, store.Receipt, error) {
	if more != nil {
		if err := more(change, out); err != nil {
			return nil, store.Receipt{}, err
		}
	}
	if len(change.Records) == 0 {
		t.settle(at, out)
		return out, store.Receipt{}, nil
	}
	receipt, err := t.o.Commit(change)
	if err != nil {
		t.cache.Remove(out.Task.ID)
		return nil, store.Receipt{}, err
	}
	return out, receipt, nil
}

// deciding keeps pauses, and revocations of grants, from beginning while an actor's call is decided
// and committed, until the function that it returns is called. A pause, and with it every message,
// waits for that: no file is read meanwhile, and no lock taken that somebody else can have. It
// refuses an actor whose grant was revoked meanwhile. The task, nil for none, is locked.
//
// A revocation waits for the decisions in progress, so that nobody who was checked before it commits
// after it.
func (t *Tasks) deciding(ctx context.Context, who *task.Actor, at *task.Task, command task.Command) (done func(), err error) {
	_, revokes := command.(task.RevokeGrant)
	switch {
	case revokes:
		done = t.o.Revoking()
	case who.Role == task.Operator || who.Role == task.Daemon:
		return func() {}, nil
	default:
		done = t.o.Deciding()
	}
	if err := holds(ctx, t, who, at); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// paused is the refusal of an actor's texts while a person has paused it: other actors read the
// tasks. A sign of life says nothing.
func (t *Tasks) paused(command task.Command, who *task.Actor) *task.Refusal {
	if who.Role == task.Operator || who.Role == task.Daemon {
		return nil
	}
	if c, ok := command.(task.RecordCheckpoint); ok && c.SignOfLife() {
		return nil
	}
	var app, agent string
	if who.Grant != nil {
		agent = who.Grant.Agent
	} else if a := t.config.Load().actor(who.Name); a != nil {
		app = a.App
	}
	reason, paused := t.o.Paused(app, agent)
	if !paused {
		return nil
	}
	return &task.Refusal{Code: task.Paused, Message: reason}
}

// decide asks internal/task, and makes a change from its decision.
func (t *Tasks) decide(ctx context.Context, at *task.Task, command task.Command, who *task.Actor) (*task.Outcome, *store.Change, error) {
	if r := t.paused(command, who); r != nil {
		return nil, nil, t.refused(nil, who, nil, r)
	}
	c := t.config.Load()
	w, err := t.world(ctx, c, at)
	if err != nil {
		return nil, nil, err
	}
	w.Ask = func(q task.Question) task.Answer { return t.ask(ctx, q, at, command, w) }
	level := lowest(c)
	if at != nil {
		level = at.Classification
	}
	w.Raised = sync.OnceValue(func() string { return t.raised(level, command) })
	out, err := task.Decide(at, command, who, w, t.o.Now())
	if err != nil {
		return nil, nil, t.refused(at, who, w, err)
	}
	change, err := t.change(at, out, who, w)
	if err == nil && len(out.Revoke) > 0 {
		err = t.revoke(ctx, change, out.Revoke, who)
	}
	return out, change, err
}

func (t *Tasks) ask(ctx context.Context, q task.Question, at *task.Task, command task.Command, w *task.World) task.Answer {
	full := Question{Question: q}
	if create, ok := command.(task.Create); ok {
		full.Tenant, full.Classification, full.Labels = create.Tenant, create.Classification, create.Labels
	} else {
		full.Tenant, full.Classification, full.Labels, full.Phase = at.Tenant, at.Classification, at.Labels, at.Phase
	}
	if raised := w.Raised(); w.Level(raised) > w.Level(full.Classification) {
		full.Classification = raised
	}
	return t.o.Ask(ctx, full)
}

// change makes the rows and records of an outcome.
func (t *Tasks) change(at *task.Task, out *task.Outcome, who *task.Actor, w *task.World) (*store.Change, error) {
	change := &store.Change{Drains: who.Role == task.Operator || who.Role == task.Daemon}
	if len(out.Events) == 0 {
		return change, nil
	}
	seq := 0
	if at != nil {
		seq = at.Seq
	}
	for i := range out.Events {
		record, err := t.record(out, &out.Events[i], who)
		if err != nil {
			return nil, err
		}
		record.TaskSeq = seq + i + 1
		change.Records = append(change.Records, record)
	}
	if err := t.parts(change, at, out, w); err != nil {
		return nil, err
	}
	change.OnDurable(func(store.Receipt) { t.settle(at, out) })
	return change, nil
}

// settle takes what is durable into memory. The task's lock is held.
func (t *Tasks) settle(at *task.Task, out *task.Outcome) {
	now := out.Task
	if len(out.Events) > 0 {
		t.cache.Add(now.ID, now)
		t.moved.tell(now.ID)
		switch {
		case at == nil && !now.Phase.Final():
			t.counts.add(now.Tenant, 1)
		case at != nil && now.Phase.Final() && !at.Phase.Final():
			t.counts.add(now.Tenant, -1)
		}
	}
	switch {
	case now.Running() == nil:
		t.leases.end(now.ID)
	case !out.Lease.IsZero():
		t.leases.renew(now.ID, out.Lease)
	}
}

// record is an event as the log has it.
func (t *Tasks) record(out *task.Outcome, e *task.Event, who *task.Actor) (*audit.Record, error) {
	now := out.Task
	r := &audit.Record{
		ID: t.o.NewID(), ActionType: audit.ActionTask, Event: e.Type, TenantID: now.Tenant, TaskID: now.ID, AttemptID: e.AttemptID,
		Actor: who.Name, Role: string(who.Role), Classification: now.Classification, PolicyResult: audit.ResultAllow,
		Details: map[string]any{"phase": now.Phase, "revision": now.Revision},
	}
	if out.Policy != nil {
		r.PolicyApplied, r.PolicyRevision, r.PolicyReason = out.Policy.Policy, out.Policy.Revision, out.Policy.Reason
	}
	if id, ok := e.Now["approval_id"].(string); ok {
		r.ApprovalID = id
	}
	maps.Copy(r.Details, e.Details)
	if len(e.Was) > 0 {
		r.Details["was"] = e.Was
	}
	if len(e.Now) > 0 {
		r.Details["now"] = e.Now
	}
	if e.Reason != "" {
		r.Details["reason"] = e.Reason
	}
	texts := make(map[string]any)
	for name, text := range e.Texts {
		if text == "" {
			continue
		}
		digest, err := t.o.Keys.Text(now.Tenant, audit.LabelContent, text)
		if err != nil {
			return nil, err
		}
		texts[name] = digest
	}
	if len(texts) > 0 {
		r.Details["texts"] = texts
	}
	digests := make(map[string]any)
	for name, value := range e.Digests {
		digest, err := t.o.Keys.Task(now.Tenant, name, value)
		if err != nil {
			return nil, err
		}
		digests[name] = digest
	}
	if len(digests) > 0 {
		r.Details["digests"] = digests
	}
	if c := t.config.Load(); c.Seal != nil && !c.SealHeld && len(texts)+len(digests) > 0 {
		said, err := json.Marshal(map[string]any{"texts": e.Texts, "digests": e.Digests}, json.Deterministic(true))
		if err == nil {
			r.Content, err = c.Seal(string(said))
		}
		if err != nil {
			return nil, err
		}
	}
	if g := who.Grant; g != nil {
		r.Details["grant_id"] = g.ID
	}
	if who.Person != "" && who.Person != who.Name {
		r.Details["person"] = who.Person
	}
	return r, nil
}

// parts adds the rows of an outcome.
func (t *Tasks) parts(change *store.Change, at *task.Task, out *task.Outcome, w *task.World) error {
	now := out.Task
	if err := keep(t.o.Keys, now, out.Touched); err != nil {
		return err
	}
	head, err := json.Marshal(&now.Head)
	if err != nil {
		return fmt.Errorf("cannot encode task %s: %w", now.ID, err)
	}
	row := &taskstore.Task{
		ID: now.ID, Tenant: now.Tenant, Phase: string(now.Phase), Origin: now.Origin, Open: !now.Phase.Final(), Binds: now.Phase.Binds(), Running: now.Running() != nil,
		Priority: now.Priority, Seq: now.Seq, Parts: foldedParts(now), Head: head,
	}
	// Whether dependencies are open is the store's to say: they are completed without
	// this task's being written.
	alone := *w
	alone.Open = nil
	if ready, ok := now.ReadyAt(&alone, t.o.Now()); ok {
		row.ReadyAt = ready
	}
	if at != nil {
		row.Was = at.Seq
	}
	row.Completed = now.Phase == task.Completed && (at == nil || at.Phase != task.Completed)
	if at == nil || !equal(at.DependsOn, now.DependsOn) {
		row.Deps, row.DependsOn = at != nil || len(now.DependsOn) > 0, now.DependsOn
	}
	change.Add(row.Rows())
	for _, touched := range out.Touched {
		part, err := encodePart(now, touched)
		if err != nil {
			return fmt.Errorf("cannot encode task %s: %w", now.ID, err)
		}
		change.Add(part)
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Type == "attempt.checkpoint" {
			a := now.Attempt(e.AttemptID)
			body, err := json.Marshal(a.Last)
			if err != nil {
				return fmt.Errorf("cannot encode a checkpoint of task %s: %w", now.ID, err)
			}
			change.Add(taskstore.Part{TaskID: now.ID, Kind: "checkpoint", ID: a.ID, Place: now.Seq, Body: body}.Rows())
		}
	}
	return nil
}

// keep sets what is kept with the entries that were touched.
func keep(keys audit.Keys, now *task.Task, touched []task.Touch) (err error) {
	for _, at := range touched {
		kept := keptOf(now, at)
		if kept == nil {
			continue
		}
		kept.Seq = now.Seq
		if at.Kind == task.KindSpec {
			if kept.Digest, err = keys.Task(now.Tenant, "spec", now.Specs[at.Index].Text()); err != nil {
				return err
			}
		}
	}
	return nil
}

// keptOf is the stored extra of an entry, nil if there is none.
func keptOf(now *task.Task, at task.Touch) *fold.Kept {
	switch at.Kind {
	case task.KindSpec:
		return &now.Specs[at.Index].Kept
	case task.KindAttempt:
		return &now.Attempts[at.Index].Kept
	case task.KindArtifact:
		return &now.Artifacts[at.Index].Kept
	case task.KindReview:
		return &now.Reviews[at.Index].Kept
	case task.KindApproval:
		return &now.Approvals[at.Index].Kept
	case task.KindEffect:
		return &now.Effects[at.Index].Kept
	}
	return nil
}

// foldedParts is the log's state of all parts of a task.
func foldedParts(now *task.Task) (parts fold.Parts) {
	for i := range now.Approvals {
		a := &now.Approvals[i]
		parts.Approval(fold.Kept{Seq: a.Kept.Seq, Digest: a.Digest}, a.ID, a.EffectID, a.Status, a.Used, a.Void)
	}
	for i := range now.Artifacts {
		a := &now.Artifacts[i]
		parts.Artifact(a.Kept, a.ID, a.AttemptID, a.Current)
	}
	for i := range now.Attempts {
		a := &now.Attempts[i]
		parts.Attempt(a.Kept, a.ID, a.Status, a.Fence)
	}
	for i := range now.Effects {
		e := &now.Effects[i]
		parts.Effect(fold.Kept{Seq: e.Kept.Seq, Digest: e.Digest}, e.ID, e.State, e.Compensation != nil)
		for j := range e.Runs {
			r := &e.Runs[j]
			parts.Run(r.Number, r.Compensation, r.State, r.ApprovalID)
		}
	}
	for i := range now.Reviews {
		parts.Review(now.Reviews[i].Kept, now.Reviews[i].ID, now.Reviews[i].Verdict)
	}
	for i := range now.Specs {
		s := &now.Specs[i]
		parts.Spec(s.Kept, s.Version)
	}
	parts.Dependencies(now.DependsOn)
	return parts
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func encodePart(now *task.Task, at task.Touch) (store.Part, error) {
	var entry any
	switch at.Kind {
	case task.KindSpec:
		entry = &now.Specs[at.Index]
	case task.KindAttempt:
		entry = &now.Attempts[at.Index]
	case task.KindArtifact:
		entry = &now.Artifacts[at.Index]
	case task.KindReview:
		entry = &now.Reviews[at.Index]
	case task.KindApproval:
		entry = &now.Approvals[at.Index]
	case task.KindEffect:
		e := &now.Effects[at.Index]
		body, err := stored(e, &e.Kept)
		busy := false
		for i := range e.Runs {
			busy = busy || e.Runs[i].State == task.EffectStarted || e.Runs[i].State == task.EffectUncertain
		}
		return taskstore.Effect{TaskID: now.ID, ID: e.ID, Key: e.Key, Place: at.Index, Busy: busy, Body: body}.Rows(), err
	default:
		return nil, fmt.Errorf("no part of a task is a %s", at.Kind)
	}
	body, err := stored(entry, keptOf(now, at))
	return taskstore.Part{TaskID: now.ID, Kind: at.Kind, ID: at.ID, Place: at.Index, Body: body}.Rows(), err
}

// keeping is the member of a stored entry that holds what is kept with it.
type keeping struct {
	Kept *fold.Kept `json:"kept,omitzero"`
}

// stored is an entry as the database has it.
func stored(entry any, kept *fold.Kept) ([]byte, error) {
	body, err := json.Marshal(entry, json.Deterministic(true))
	if err != nil || *kept == (fold.Kept{}) {
		return body, err
	}
	more, err := json.Marshal(keeping{kept})
	return slices.Concat(body[:len(body)-1], []byte{','}, more[1:]), err
}

func decodeTask(id string, stored *taskstore.Stored) (*task.Task, error) {
	now := new(task.Task)
	err := json.Unmarshal(stored.Head, &now.Head)
	for _, p := range stored.Parts {
		if err != nil {
			break
		}
		switch p.Kind {
		case task.KindSpec:
			now.Specs, err = kept(now.Specs, p.Body, func(s *task.Spec) *fold.Kept { return &s.Kept })
		case task.KindAttempt:
			now.Attempts, err = kept(now.Attempts, p.Body, func(a *task.Attempt) *fold.Kept { return &a.Kept })
		case task.KindArtifact:
			now.Artifacts, err = kept(now.Artifacts, p.Body, func(a *task.Artifact) *fold.Kept { return &a.Kept })
		case task.KindReview:
			now.Reviews, err = kept(now.Reviews, p.Body, func(r *task.Review) *fold.Kept { return &r.Kept })
		case task.KindApproval:
			now.Approvals, err = kept(now.Approvals, p.Body, func(a *task.Approval) *fold.Kept { return &a.Kept })
		default:
			err = fmt.Errorf("this version knows no part %q", p.Kind)
		}
	}
	for _, body := range stored.Effects {
		if err == nil {
			now.Effects, err = kept(now.Effects, body, func(e *task.Effect) *fold.Kept { return &e.Kept })
		}
	}
	if err == nil && len(now.Specs) == 0 {
		err = errors.New("it has no spec")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot decode task %s: %w", id, err)
	}
	return now, nil
}

// kept appends an entry of the database, with its stored extra.
func kept[T any](list []T, body []byte, of func(*T) *fold.Kept) ([]T, error) {
	list, err := appended(list, body)
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(body, &keeping{of(&list[len(list)-1])})
}

func appended[T any](list []T, body []byte) ([]T, error) {
	var entry T
	err := json.Unmarshal(body, &entry)
	return append(list, entry), err
}

// refused is the error for a refusal. A principal's forbidden call is on record.
func (t *Tasks) refused(at *task.Task, who *task.Actor, w *task.World, err error) error {
	r, ok := errors.AsType[*task.Refusal](err)
	if !ok {
		return err
	}
	e := &api.Error{Code: codeOf(r.Code), Message: r.Message}
	d := taskapi.Error{Code: r.Code, Guards: r.Guards, Missing: r.Missing, At: r.At}
	if at != nil && r.Code != task.Absent && at.May(who) == nil {
		d.Phase, d.Revision, d.Transitions = at.Phase, at.Revision, at.Options(w, t.o.Now())
	}
	if r.Code != task.Absent && r.Code != task.Invalid {
		e.Details = taskapi.Details{Task: d}
	}
	switch r.Code {
	case task.NotPermitted, task.RoleMismatch, task.SameActor, task.SelfApproval, task.NeedsPerson, task.Classified, task.ToolDenied, task.PolicyDenied, task.Paused:
		id := ""
		if at != nil {
			id = at.ID
		}
		t.overstepped(id, who, r)
	default:
		if at != nil && r.Code == task.Absent && who.Tenant != at.Tenant && who.Role != task.Operator {
			t.overstepped(at.ID, who, r)
		}
	}
	return e
}

// overstepped puts on record that somebody wanted what the role does not allow.
func (t *Tasks) overstepped(id string, who *task.Actor, r *task.Refusal) {
	record := &audit.Record{
		ID: t.o.NewID(), ActionType: audit.ActionSecurity, Event: "task_refused", TenantID: who.Tenant, TaskID: id, Actor: who.Name, Role: string(who.Role),
		PolicyResult: audit.ResultDeny, PolicyReason: r.Message, Code: string(r.Code),
	}
	if a := r.Answer; a != nil {
		record.PolicyApplied, record.PolicyRevision = a.Policy, a.Revision
		if a.Cause != "" {
			record.PolicyReason += ": " + a.Cause
		}
	}
	if _, err := t.o.Commit(&store.Change{Records: []*audit.Record{record}}); err != nil {
		t.o.Log.Error("cannot record that somebody was refused", zap.Error(err))
	}
}

// codeOf is the protocol's code of a refusal.
func codeOf(c task.Code) api.Code {
	switch c {
	case task.NotPermitted, task.RoleMismatch, task.SameActor, task.SelfApproval, task.NeedsPerson, task.Classified, task.PolicyDenied, task.Paused:
		return api.Forbidden
	case task.ToolDenied:
		return api.CapabilityDenied
	case task.Invalid:
		return api.InvalidParams
	case task.Absent:
		return api.NotFound
	default:
		return api.Conflict
	}
}
