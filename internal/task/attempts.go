package task

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task/outputs"
)

func itoa(n int) string { return strconv.Itoa(n) }

// StartAttempt begins an attempt.
type StartAttempt struct {
	Runtime, Executor, WorkerRef, SessionRef string
	Expected                                 *int
}

func (c StartAttempt) decide(d *draft) error {
	t := d.t
	if err := d.revision(c.Expected); err != nil {
		return err
	}
	last := t.Last()
	retrying := last != nil && last.Status == AttemptRetrying
	used := exhausted(t, &d.w.Rules)
	if t.Phase == Executing && used != nil && last.Status == AttemptFailed {
		return used
	}
	if t.Phase != ExecutionReady && (t.Phase != Executing || !retrying) {
		return refuse(PhaseMismatch, "an attempt starts in execution_ready, or in executing where the last one is to be tried again; the task is in %s", t.Phase)
	}
	if err := d.guards("no attempt can start", Idle, Unblocked); err != nil {
		return err
	}
	if used != nil {
		return used
	}
	if len(t.Attempts) >= maxAttempts {
		return refuse(Limit, "a task has %d attempts at most", maxAttempts)
	}
	if at := t.nextAt(&d.w.Rules); d.now.Before(at) {
		r := refuse(NotBefore, "the next attempt may start at %s", at.UTC().Format(time.RFC3339))
		r.At = at
		return r
	}
	actor := d.who.Name
	if role, _, ok := d.w.Known(c.WorkerRef); ok && role == Executor {
		if err := d.cleared(c.WorkerRef); err != nil {
			return err
		}
		actor = c.WorkerRef
	}
	if err := d.ask(Question{Action: AskAttempt, Attempt: t.counted() + 1, WorkedBy: actor}); err != nil {
		return err
	}
	_, _, escalate := t.Left(&d.w.Rules)
	d.forget(false)
	if retrying {
		d.attempt(last.ID).Status = AttemptFailed
	}
	t.Fence++
	a := Attempt{
		ID: d.w.NewID(ids.Attempt), Ordinal: len(t.Attempts) + 1, Actor: actor, Status: AttemptRunning, Fence: t.Fence, Runtime: c.Runtime, Executor: c.Executor,
		WorkerRef: c.WorkerRef, SessionRef: c.SessionRef, Escalate: escalate, StartedAt: d.now, LeaseExpires: d.now.Add(d.w.Rules.Lease),
	}
	if actor == d.who.Name {
		a.By = with(a.By, d.who.By)
	}
	t.Attempts = append(t.Attempts, a)
	touch(d, KindAttempt, t.Attempts, len(t.Attempts)-1, a.ID)
	e := d.event("attempt.started").set("current_attempt_id", t.CurrentAttempt, a.ID).made("ordinal", a.Ordinal).made("fence", a.Fence).
		made("runtime", a.Runtime).made("executor_kind", a.Executor).made("escalate", a.Escalate).made("actor", a.Actor)
	e.AttemptID, t.CurrentAttempt = a.ID, a.ID
	d.out.Attempt, d.out.Lease = a.ID, a.LeaseExpires
	return nil
}

// held returns the running attempt, to be changed, if the caller may write under it: it is named,
// its fence is the one, and its lease has not ended.
func (d *draft) held(id string, fence *int64) (*Attempt, error) {
	a := d.t.Attempt(id)
	if a == nil {
		return nil, refuse(Absent, "the task has no attempt %s", id)
	}
	if err := d.assigned(a); err != nil {
		return nil, err
	}
	switch g := d.who.Grant; {
	case a.Status != AttemptRunning:
		return nil, refuse(LeaseLost, "attempt %d is %s", a.Ordinal, a.Status)
	case fence != nil && *fence != a.Fence, g != nil && g.Fence != 0 && g.Fence != a.Fence:
		return nil, refuse(LeaseLost, "the fence is %d by now", a.Fence)
	case !d.now.Before(d.w.lease(a)):
		return nil, refuse(LeaseLost, "the lease ended at %s", d.w.lease(a).Format(time.RFC3339))
	}
	return d.attempt(id), nil
}

// assigned refuses an executor whose attempt it is not.
func (d *draft) assigned(a *Attempt) error {
	if d.who.Role != Executor {
		return nil
	}
	if g := d.who.Grant; a.Actor != d.who.Name || g != nil && g.AttemptID != "" && g.AttemptID != a.ID {
		return refuse(NotPermitted, "attempt %d is not %s's", a.Ordinal, d.who.Name)
	}
	return nil
}

// research is the kind of an attempt that reads and reports.
const research = "research"

// Research reports whether the attempt only reads and reports: it makes no work, and plans no effect.
func (a *Attempt) Research() bool { return a.Executor == research }

// mayPlan refuses an effect if the caller's own attempt only reads, or if the caller is an executor
// without a running attempt.
func (d *draft) mayPlan() error {
	a := d.t.Running()
	if a != nil && a.Research() && a.Actor == d.who.Name {
		return refuse(NotPermitted, "attempt %d is of kind %s, which plans no effect: name what it should be in a report", a.Ordinal, research)
	}
	if d.who.Role != Executor {
		return nil
	}
	if a == nil {
		return refuse(LeaseLost, "no attempt is running")
	}
	_, err := d.held(a.ID, nil)
	d.out.Touched = nil
	return err
}

// CheckpointHeartbeat and CheckpointSession are the types of checkpoints that mean
// something here.
const (
	CheckpointHeartbeat = "heartbeat"
	CheckpointSession   = "session"
)

// heartbeatEvery is how often a heartbeat with a payload is recorded.
const heartbeatEvery = time.Minute

// RecordCheckpoint says how an attempt goes. A heartbeat renews the lease.
type RecordCheckpoint struct {
	AttemptID, Type string
	Payload         jsontext.Value
	Fence           *int64
}

// SignOfLife reports whether it says nothing else than that the attempt goes on.
func (c RecordCheckpoint) SignOfLife() bool {
	return c.Type == CheckpointHeartbeat && emptyPayload(c.Payload)
}

func (c RecordCheckpoint) decide(d *draft) error {
	d.silent = true
	t := d.t
	a := t.Attempt(c.AttemptID)
	if a == nil {
		return refuse(Absent, "the task has no attempt %s", c.AttemptID)
	}
	worker := d.who.Role == Executor || d.who.Role == Orchestrator && a.Status == AttemptRunning || d.who.Role == Operator && a.Status == AttemptRunning
	d.out.Attempt = a.ID
	if a.Status == AttemptAborted && worker {
		if err := d.assigned(a); err != nil {
			return err
		}
		d.out.Cancel = true
		return nil
	}
	if worker {
		if _, err := d.held(c.AttemptID, c.Fence); err != nil {
			return err
		}
		d.out.Touched = nil
		if d.out.Lease = d.w.lease(a); c.Type == CheckpointHeartbeat {
			d.out.Lease = d.now.Add(d.w.Rules.Lease)
		}
	}
	if c.SignOfLife() || c.Type == CheckpointHeartbeat && a.Last != nil && a.Last.Type == c.Type && d.now.Sub(a.Last.At) < heartbeatEvery {
		return nil
	}
	a = d.attempt(a.ID)
	if worker {
		a.LeaseExpires = d.out.Lease
	}
	if c.Type == CheckpointSession {
		var session struct {
			Ref string `json:"external_session_ref"`
		}
		if err := json.Unmarshal(c.Payload, &session); err != nil || session.Ref == "" {
			return refuse(Invalid, "a checkpoint of type session has the payload {external_session_ref}")
		}
		a.SessionRef = session.Ref
	}
	a.Checkpoints++
	a.Last = &Checkpoint{Type: c.Type, Payload: c.Payload, Actor: d.who.Name, At: d.now}
	e := d.event("attempt.checkpoint").made("checkpoint_type", c.Type).made("checkpoints", a.Checkpoints)
	e.AttemptID = a.ID
	e.Texts["payload"] = string(c.Payload)
	return nil
}

func emptyPayload(v jsontext.Value) bool {
	return len(v) == 0 || string(v) == "null" || string(v) == "{}"
}

// RecordArtifact records an artifact of an attempt.
type RecordArtifact struct {
	AttemptID, Kind, URI, Digest, Summary, ClaimedBy string
	Size                                             int64
	Verified                                         bool
	Fence                                            *int64
}

// report reports whether it is of a kind that is no work.
func (c RecordArtifact) report() bool {
	return c.Kind == ReviewReport || c.Kind == TestReport || c.Kind == OtherArtifact
}

func (c RecordArtifact) decide(d *draft) error {
	t := d.t
	attempt := t.Attempt(c.AttemptID)
	if attempt == nil {
		return refuse(Absent, "the task has no attempt %s", c.AttemptID)
	}
	if len(t.Artifacts) >= maxArtifacts {
		return refuse(Limit, "a task has %d artifacts at most", maxArtifacts)
	}
	work := d.who.Role == Executor || d.who.Role == Orchestrator || d.who.Role == Operator
	switch {
	case work:
		if d.who.Role == Executor && t.Phase != Executing {
			return refuse(PhaseMismatch, "an executor delivers in executing, and the task is in %s", t.Phase)
		}
		if _, err := d.held(c.AttemptID, c.Fence); err != nil {
			return err
		}
	case !c.report():
		return refuse(NotPermitted, "a %s records reports and what is other, and no %s", d.who.Role, c.Kind)
	}
	if attempt.Research() && !c.report() {
		return refuse(NotPermitted, "an attempt of kind %s records reports and what is other (%s, %s, %s), and no %s", research, ReviewReport, TestReport, OtherArtifact, c.Kind)
	}
	before := slices.IndexFunc(t.Artifacts, func(a Artifact) bool { return a.Current && a.Work == work && a.URI == c.URI })
	raises := work
	if before >= 0 {
		raises = work && t.Artifacts[before].Digest != c.Digest
		touch(d, KindArtifact, t.Artifacts, before, t.Artifacts[before].ID).Current = false
	}
	was := t.ArtifactRevision
	if raises {
		t.ArtifactRevision++
	}
	a := Artifact{
		ID: d.w.NewID(ids.Artifact), AttemptID: c.AttemptID, Kind: c.Kind, URI: c.URI, Digest: c.Digest, Size: c.Size, Verified: c.Verified, Summary: c.Summary,
		Actor: d.who.Name, Work: work, Current: true, Revision: t.ArtifactRevision, ClaimedBy: c.ClaimedBy, By: d.who.By, At: d.now,
	}
	declared := outputs.Of(t.Spec().Outputs)
	a.Undeclared = work && !declared.Has(c.URI)
	t.Artifacts = append(t.Artifacts, a)
	touch(d, KindArtifact, t.Artifacts, len(t.Artifacts)-1, a.ID)
	e := d.event("artifact.recorded").made("artifact_id", a.ID).made("kind", a.Kind).made("verified", a.Verified).set("artifact_revision", was, t.ArtifactRevision)
	if a.Undeclared {
		e.made("undeclared", true)
	}
	e.AttemptID = a.AttemptID
	e.Texts["uri"], e.Digests["artifact"] = a.URI, a.Digest
	d.out.Artifact, d.out.Attempt = a.ID, a.AttemptID
	return nil
}

// FinishAttempt ends an attempt.
type FinishAttempt struct {
	AttemptID, Outcome, Failure, Summary string
	Fence                                *int64
}

func (c FinishAttempt) decide(d *draft) error {
	a, err := d.held(c.AttemptID, c.Fence)
	if err != nil {
		return err
	}
	if d.who.Role == Executor && c.Outcome == AttemptSucceeded && d.t.Phase != Executing {
		return refuse(PhaseMismatch, "an executor delivers in executing, and the task is in %s", d.t.Phase)
	}
	a.Error = c.Summary
	if a.Actor == d.who.Name {
		a.By = with(a.By, d.who.By)
	}
	if c.Outcome == AttemptFailed {
		a.Failure = c.Failure
	}
	d.finish(a, c.Outcome)
	return nil
}

// finish ends the running attempt. It returns the time of the next attempt if one is due.
func (d *draft) finish(a *Attempt, outcome string) {
	status := outcome
	if outcome == AttemptFailed && slices.Contains(RetriedFailures(), a.Failure) {
		if n := d.t.counts().failures + 1; n < d.w.Rules.Retry.Attempts {
			status, a.RetryAt = AttemptRetrying, d.now.Add(d.w.Rules.Retry.wait(n))
		}
	}
	e := d.event("attempt.finished").set("status", a.Status, status)
	if a.Failure != "" {
		e.made("failure_code", a.Failure)
	}
	if !a.RetryAt.IsZero() {
		e.made("retry_at", a.RetryAt)
	}
	e.AttemptID, e.Reason = a.ID, a.Error
	a.Status, a.EndedAt, a.EndedBy = status, d.now, d.who.Role
	d.out.Attempt = a.ID
}

// EndLease fails an attempt that was not heard of within its lease.
type EndLease struct{ AttemptID string }

func (c EndLease) decide(d *draft) error {
	a := d.t.Running()
	if a == nil || a.ID != c.AttemptID || d.now.Before(d.w.lease(a)) {
		return nil
	}
	a = d.attempt(a.ID)
	a.Failure, a.Error = FailureLease, "nothing was heard of it within its lease"
	d.finish(a, AttemptFailed)
	return nil
}
