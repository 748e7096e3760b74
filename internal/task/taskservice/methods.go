package taskservice

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
)

// Matrix says which roles may call which method: the column of the method table.
func Matrix() map[string]task.Roles {
	return map[string]task.Roles{
		"task.create": task.O | task.P, "task.get": task.All, "task.transition": task.O | task.P, "task.start_attempt": task.O | task.P,
		"task.record_checkpoint": task.O | task.E | task.S | task.Q | task.L, "task.record_artifact": task.O | task.E | task.S | task.Q | task.L,
		"task.append_review": task.S | task.Q, "task.request_approval": task.O | task.L | task.P, "task.resolve_approval": task.O | task.L | task.P,
		"task.open_circuit": task.O | task.P, "task.list_ready": task.O | task.P, "task.claim": task.O | task.P, "task.update": task.O | task.P,
		"task.finish_attempt": task.O | task.E | task.P, "task.plan_effect": task.O | task.E | task.L | task.P, "task.run_effect": task.O | task.L | task.P,
		"task.finish_effect": task.O | task.L | task.P, "task.settle_effect": task.P, "task.kill_effect": task.P, "task.cancel_effect": task.O | task.P, "task.close_circuit": task.P,
		"task.ask_permission": task.E | task.S | task.Q, "task.grant": task.O | task.P, "task.revoke_grant": task.O | task.P, "task.grants": task.P,
		"task.list": task.P, "task.watch": task.P, "task.import": task.P,
	}
}

// ToolsOf are the tools of a role: its methods, but for the one that is for bridges.
func ToolsOf(role task.Role) (tools []string) {
	for method, roles := range Matrix() {
		if roles.Has(role) && method != "task.ask_permission" {
			tools = append(tools, tool(method))
		}
	}
	slices.Sort(tools)
	return tools
}

// keyed are parameters with a request key.
type keyed interface{ WithKey() string }

// once answers a request that has a key as it was answered before, or makes the call
// and keeps its answer. The answer is kept in the call's own change. Secret parts of
// an answer are not kept.
func once[P keyed, R any](ctx context.Context, s *Session, method string, p P, kept func(R) R, call func(keep func(*store.Change, R) error) (R, error)) (R, error) {
	var none R
	key := p.WithKey()
	if key == "" {
		return call(func(*store.Change, R) error { return nil })
	}
	who := ctx.Value(callKey{}).(*caller)
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return none, err
	}
	asked := task.Digest(append([]byte(method+"\n"), text...))
	owner := who.Name
	if who.Tenant != "" {
		// The name may pass to another tenant's actor.
		owner = who.Tenant + "\n" + owner
	}
	defer s.t.locks.Lock("key " + owner + "\n" + key)()
	before, err := s.t.o.Store.RequestOf(ctx, owner, key, s.t.o.Now())
	switch {
	case err == nil && before.Asked != asked:
		return none, s.t.refused(nil, &who.Actor, nil, &task.Refusal{Code: task.RequestKeyReused, Message: "the key " + key + " was of another request"})
	case err == nil:
		if about, ok := any(p).(interface{ About() string }); ok && about.About() != "" {
			// The key is the actor's, and may have been used by another grant of it.
			if err := s.t.mayHear(ctx, about.About(), &who.Actor); err != nil {
				return none, err
			}
		}
		if err := json.Unmarshal(before.Result, &none); err != nil {
			return none, err
		}
		reflect.ValueOf(&none).Elem().FieldByName("Replayed").SetBool(true)
		return none, nil
	case !errors.Is(err, store.ErrNotFound):
		return none, err
	}
	return call(func(change *store.Change, result R) error {
		if kept != nil {
			result = kept(result)
		}
		text, err := json.Marshal(result)
		if err == nil && len(change.Records) > 0 {
			change.Add(&store.RequestKey{Actor: owner, Key: key, Asked: asked, At: s.t.o.Now(), Result: text})
		}
		return err
	})
}

// mayHear refuses whoever has no business with a task, or may not work with it.
func (t *Tasks) mayHear(ctx context.Context, id string, who *task.Actor) error {
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		return err
	}
	w, err := t.world(ctx, t.config.Load(), at)
	if err != nil {
		return err
	}
	if err := at.Reads(who, w); err != nil {
		return t.refused(at, who, w, err)
	}
	return nil
}

// told is the receipt that a caller is told of: actors are told no number of the log, which
// counts the records of other tenants.
func told(who *task.Actor, r store.Receipt) store.Receipt {
	if who.Role != task.Operator {
		return store.Receipt{}
	}
	return r
}

func changed(out *task.Outcome, receipt store.Receipt) taskapi.Changed {
	t := out.Task
	return taskapi.Changed{TaskID: t.ID, Phase: t.Phase, Revision: t.Revision, AuditSeq: receipt.Seq, Replayed: out.Replayed}
}

// write runs a command of a writer and makes its answer.
func write[P keyed, R any](ctx context.Context, s *Session, method, id string, p P, build func(*task.Task) (task.Command, error), answer func(*task.Outcome, taskapi.Changed) R) (R, error) {
	return once(ctx, s, method, p, nil, func(keep func(*store.Change, R) error) (R, error) {
		return acted(ctx, s, id, build, keep, answer)
	})
}

// acted makes the answer to a command that is decided, which a request's key keeps.
func acted[R any](ctx context.Context, s *Session, id string, build func(*task.Task) (task.Command, error), keep func(*store.Change, R) error, answer func(*task.Outcome, taskapi.Changed) R) (result R, err error) {
	out, receipt, err := s.t.act(ctx, id, s.as(ctx, id), build, func(change *store.Change, out *task.Outcome) error {
		return keep(change, answer(out, changed(out, store.Receipt{})))
	})
	if err != nil {
		return result, err
	}
	return answer(out, changed(out, receipt)), nil
}

func always(c task.Command) func(*task.Task) (task.Command, error) {
	return func(*task.Task) (task.Command, error) { return c, nil }
}

func justChanged(_ *task.Outcome, c taskapi.Changed) taskapi.Changed { return c }

// Transition answers task.transition.
func (s *Session) Transition(ctx context.Context, p *taskapi.TransitionParams) (taskapi.Changed, error) {
	claimed, err := s.said(s.as(ctx, p.TaskID), p.Actor, p.ActorRole)
	if err != nil {
		return taskapi.Changed{}, err
	}
	c := task.Move{From: p.FromPhase, To: p.ToPhase, AttemptID: p.AttemptID, Expected: p.Expected, Reason: p.Reason, ClaimedBy: claimed}
	return write(ctx, s, "task.transition", p.TaskID, p, s.withFile(ctx, c), justChanged)
}

// StartAttempt answers task.start_attempt.
func (s *Session) StartAttempt(ctx context.Context, p *taskapi.StartAttemptParams) (taskapi.AttemptStarted, error) {
	if _, err := s.said(s.as(ctx, p.TaskID), p.Actor, p.ActorRole); err != nil {
		return taskapi.AttemptStarted{}, err
	}
	c := task.StartAttempt{Runtime: p.Runtime, Executor: p.ExecutorKind, WorkerRef: p.WorkerRef, SessionRef: p.SessionRef, Expected: p.Expected}
	return write(ctx, s, "task.start_attempt", p.TaskID, p, always(c), func(out *task.Outcome, c taskapi.Changed) taskapi.AttemptStarted {
		a := out.Task.Attempt(out.Attempt)
		return taskapi.AttemptStarted{Changed: c, AttemptID: a.ID, Ordinal: a.Ordinal, Fence: a.Fence, Escalate: a.Escalate}
	})
}

// RecordCheckpoint answers task.record_checkpoint.
func (s *Session) RecordCheckpoint(ctx context.Context, p *taskapi.CheckpointParams) (taskapi.Checkpointed, error) {
	c := task.RecordCheckpoint{AttemptID: p.AttemptID, Type: p.Type, Payload: p.Payload, Fence: p.Fence}
	return write(ctx, s, "task.record_checkpoint", p.TaskID, p, always(c), func(out *task.Outcome, c taskapi.Changed) taskapi.Checkpointed {
		return taskapi.Checkpointed{Changed: c, LeaseExpiresAt: out.Lease, Cancel: out.Cancel}
	})
}

// RecordArtifact answers task.record_artifact.
func (s *Session) RecordArtifact(ctx context.Context, p *taskapi.ArtifactParams) (taskapi.ArtifactRecorded, error) {
	who := s.as(ctx, p.TaskID)
	c := task.RecordArtifact{AttemptID: p.AttemptID, Kind: p.Kind, URI: p.URI, Digest: p.Digest, Summary: p.Summary, Fence: p.Fence}
	if p.ProducedBy != who.Name {
		c.ClaimedBy = p.ProducedBy
	}
	build := func(at *task.Task) (task.Command, error) {
		digest, size, err := s.reader().hashFile(at.Workspace, p.URI)
		switch {
		case err == nil:
			if p.Digest != "" && p.Digest != digest {
				return nil, api.Errorf(api.InvalidParams, "digest: the file has %s", digest)
			}
			c.URI, c.Digest, c.Size, c.Verified = nameOf(at.Workspace, p.URI), digest, size, true
		case !errors.Is(err, errNoFile):
			return nil, err
		case p.Digest == "":
			return nil, api.Errorf(api.InvalidParams, "digest: required for what is no file in the workspace: %v", err)
		}
		return c, nil
	}
	return write(ctx, s, "task.record_artifact", p.TaskID, p, build, func(out *task.Outcome, c taskapi.Changed) taskapi.ArtifactRecorded {
		a := out.Task.Artifacts[len(out.Task.Artifacts)-1]
		return taskapi.ArtifactRecorded{Changed: c, ArtifactID: a.ID, ArtifactRevision: out.Task.ArtifactRevision, Digest: a.Digest, Verified: a.Verified}
	})
}

// AppendReview answers task.append_review.
func (s *Session) AppendReview(ctx context.Context, p *taskapi.ReviewParams) (taskapi.Reviewed, error) {
	c := task.AppendReview{AttemptID: p.AttemptID, Type: p.ReviewType, Verdict: p.Verdict, Summary: p.Summary, Findings: p.Findings, Revision: p.Subject}
	if p.ReviewerRef != s.as(ctx, p.TaskID).Name {
		c.ClaimedBy = p.ReviewerRef
	}
	return write(ctx, s, "task.append_review", p.TaskID, p, s.withFile(ctx, c), func(out *task.Outcome, c taskapi.Changed) taskapi.Reviewed {
		r := &out.Task.Reviews[len(out.Task.Reviews)-1]
		return taskapi.Reviewed{Changed: c, ReviewID: r.ID, Stale: out.Task.Stale(r)}
	})
}

// OpenCircuit answers task.open_circuit.
func (s *Session) OpenCircuit(ctx context.Context, p *taskapi.OpenCircuitParams) (taskapi.Changed, error) {
	if _, err := s.said(s.as(ctx, p.TaskID), p.Actor, p.ActorRole); err != nil {
		return taskapi.Changed{}, err
	}
	return write(ctx, s, "task.open_circuit", p.TaskID, p, always(task.OpenCircuit{Reason: p.Reason, AttemptID: p.LatestAttempt}), justChanged)
}

// CloseCircuit answers task.close_circuit.
func (s *Session) CloseCircuit(ctx context.Context, p *taskapi.CloseCircuitParams) (taskapi.Changed, error) {
	return write(ctx, s, "task.close_circuit", p.TaskID, p, s.withFile(ctx, task.CloseCircuit{To: p.ToPhase, Reason: p.Reason}), justChanged)
}

// defaultClaim is for how long a claim holds that does not say.
const defaultClaim = time.Minute

// Claim answers task.claim.
func (s *Session) Claim(ctx context.Context, p *taskapi.ClaimParams) (taskapi.Claimed, error) {
	c := task.Claiming{For: defaultClaim}
	if p.LeaseS != nil {
		c.For = time.Duration(*p.LeaseS) * time.Second
	}
	return write(ctx, s, "task.claim", p.TaskID, p, always(c), func(out *task.Outcome, c taskapi.Changed) taskapi.Claimed {
		r := taskapi.Claimed{Changed: c}
		if out.Task.Claim != nil {
			r.ClaimedUntil = out.Task.Claim.Until
		}
		return r
	})
}

// FinishAttempt answers task.finish_attempt.
func (s *Session) FinishAttempt(ctx context.Context, p *taskapi.FinishAttemptParams) (taskapi.AttemptFinished, error) {
	c := task.FinishAttempt{AttemptID: p.AttemptID, Outcome: p.Outcome, Failure: p.FailureCode, Summary: p.ErrorSummary, Fence: p.Fence}
	return write(ctx, s, "task.finish_attempt", p.TaskID, p, always(c), func(out *task.Outcome, c taskapi.Changed) taskapi.AttemptFinished {
		a := out.Task.Attempt(p.AttemptID)
		return taskapi.AttemptFinished{Changed: c, Status: a.Status, RetryAt: a.RetryAt, Warning: task.DeliversNothing(out.Task)}
	})
}

// PlanEffect answers task.plan_effect.
func (s *Session) PlanEffect(ctx context.Context, p *taskapi.PlanEffectParams) (taskapi.EffectPlanned, error) {
	return write(ctx, s, "task.plan_effect", p.TaskID, p, always(task.PlanEffect{Planned: p.Planned}), func(out *task.Outcome, c taskapi.Changed) taskapi.EffectPlanned {
		return taskapi.EffectPlanned{Changed: c, EffectID: out.Effect, State: out.Task.Effect(out.Effect).State}
	})
}

func effectState(out *task.Outcome, c taskapi.Changed) taskapi.EffectState {
	return taskapi.EffectState{Changed: c, EffectID: out.Effect, State: out.Task.Effect(out.Effect).State}
}

// CancelEffect answers task.cancel_effect.
func (s *Session) CancelEffect(ctx context.Context, p *taskapi.CancelEffectParams) (taskapi.EffectState, error) {
	return write(ctx, s, "task.cancel_effect", p.TaskID, p, always(task.CancelEffect{EffectID: p.EffectID}), effectState)
}

// FinishEffect answers task.finish_effect.
func (s *Session) FinishEffect(ctx context.Context, p *taskapi.FinishEffectParams) (taskapi.EffectState, error) {
	c := task.FinishRun{EffectID: p.EffectID, Run: p.Run, State: p.Outcome, Receipt: p.Receipt, Token: hex.EncodeToString(digestOf(p.RunToken))}
	return write(ctx, s, "task.finish_effect", p.TaskID, p, always(c), effectState)
}

// SettleEffect answers task.settle_effect.
func (s *Session) SettleEffect(ctx context.Context, p *taskapi.SettleEffectParams) (taskapi.EffectState, error) {
	build := func(at *task.Task) (task.Command, error) {
		if e := at.Effect(p.EffectID); e != nil && s.t.o.Runner != nil {
			for i := range e.Runs {
				r := &e.Runs[i]
				if r.State == task.EffectUncertain && (p.Run == 0 || p.Run == r.Number) && s.t.o.Runner.Lives(RunOrder{TaskID: at.ID, EffectID: e.ID, Run: r.Number, StartedAt: r.StartedAt, Begun: r.Begun}) {
					return nil, s.t.refused(at, s.as(ctx, p.TaskID), &task.World{}, &task.Refusal{Code: task.EffectInFlight, Message: "a process of the run is still there"})
				}
			}
		}
		return task.SettleEffect{EffectID: p.EffectID, Run: p.Run, Outcome: p.Outcome, Note: p.Note}, nil
	}
	return write(ctx, s, "task.settle_effect", p.TaskID, p, build, effectState)
}

// newToken makes a token.
func newToken(prefix string) string {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it does not fail
	return prefix + base64.RawURLEncoding.EncodeToString(random)
}

// longestGrant is for how long a grant holds that nothing ends before.
const longestGrant = 30 * 24 * time.Hour

// Grant answers task.grant.
func (s *Session) Grant(ctx context.Context, p *taskapi.GrantParams) (taskapi.Granted, error) {
	who := s.as(ctx, p.TaskID)
	a, err := grantee(s.t, who, p)
	if err != nil {
		return taskapi.Granted{}, err
	}
	for i, name := range p.Tools {
		if !slices.Contains(granted(a.Role, p.Agent), name) {
			return taskapi.Granted{}, api.Errorf(api.InvalidParams, "tools[%d]: %.64q is no tool of this grant", i, name)
		}
	}
	now := s.t.o.Now()
	expires := now.Add(longestGrant)
	if p.ExpiresS != nil {
		expires = now.Add(time.Duration(*p.ExpiresS) * time.Second)
	}
	if who.Role != task.Operator && (a.Role == task.Orchestrator || p.TaskID == "") {
		return taskapi.Granted{}, s.t.refused(nil, who, nil, &task.Refusal{Code: task.NotPermitted, Message: "an orchestrator's grant, and one without a task, is an operator's to give"})
	}
	g := &task.Grant{ID: ids.Grant + s.t.o.NewID(), Actor: a.Name, Role: a.Role, Tenant: a.Tenant, AttemptID: p.AttemptID, Tools: p.Tools, Agent: p.Agent, IssuedBy: who.Name, IssuedAt: now.UTC(), ExpiresAt: expires.UTC(), Bind: p.Bind}
	s.issues(who, g)
	token := newToken(ids.Token)
	answer := func(c taskapi.Changed) taskapi.Granted {
		return taskapi.Granted{Changed: c, GrantID: g.ID, Token: token, Actor: g.Actor, Role: g.Role, Agent: g.Agent, AttemptID: g.AttemptID, Fence: g.Fence, Tools: toolsOf(g), ExpiresAt: g.ExpiresAt}
	}
	withoutToken := func(r taskapi.Granted) taskapi.Granted { r.Token = ""; return r }
	return once(ctx, s, "task.grant", p, withoutToken, func(keep func(*store.Change, taskapi.Granted) error) (taskapi.Granted, error) {
		more := func(change *store.Change, out *task.Outcome) error {
			c := taskapi.Changed{}
			if out != nil {
				c = changed(out, store.Receipt{})
			}
			body, err := json.Marshal(g)
			if err != nil {
				return err
			}
			change.Add(taskstore.Grant{ID: g.ID, Token: digestOf(token), TaskID: g.TaskID, ExpiresAt: g.ExpiresAt, Body: body}.Rows())
			return keep(change, answer(c))
		}
		if p.TaskID == "" {
			change := &store.Change{Records: []*audit.Record{s.t.grantRecord("grant.issued", g, who)}}
			if err := more(change, nil); err != nil {
				return taskapi.Granted{}, err
			}
			receipt, err := s.t.o.Commit(change)
			return answer(taskapi.Changed{AuditSeq: told(who, receipt).Seq}), err
		}
		build := func(at *task.Task) (task.Command, error) {
			if at.Tenant != a.Tenant {
				return nil, api.Errorf(api.InvalidParams, "actor: %s is of another tenant than the task", a.Name)
			}
			return task.IssueGrant{Grant: g}, readOnly(at, g)
		}
		out, receipt, err := s.t.act(ctx, p.TaskID, who, build, more)
		if err != nil {
			return taskapi.Granted{}, err
		}
		return answer(changed(out, receipt)), nil
	})
}

// issues records the giver of a grant, and the givers of that one's grant, which this one does not
// outlive.
func (s *Session) issues(who *task.Actor, g *task.Grant) {
	uid, _, _ := s.peer.Credentials()
	n := int(uid)
	g.IssuedUID = &n
	if len(who.By.Processes) > 0 {
		g.IssuedFrom = who.By.Processes[0]
	}
	// A person may give everybody a grant: that makes them no one.
	if who.Role != task.Operator {
		g.Issuers = append([]string{who.Name}, who.By.Issuers...)
	}
	if by := who.Grant; by != nil {
		g.Under = by.ID
		if by.ExpiresAt.Before(g.ExpiresAt) {
			g.ExpiresAt = by.ExpiresAt
		}
	}
}

func (s *Session) withFile(ctx context.Context, c task.Command) func(*task.Task) (task.Command, error) {
	return func(at *task.Task) (task.Command, error) {
		if at.Spec().URI == "" {
			return c, nil
		}
		fields, err := s.reader().readSpecFile(at.Workspace, &taskapi.SpecRef{URI: at.Spec().URI})
		if err != nil {
			return nil, fmt.Errorf("cannot look at the spec's file: %w", err)
		}
		if fields.Digest == at.Spec().Digest {
			return c, nil
		}
		// The changed file is a new version, and then there is nothing for the call to
		// stand on: the caller looks again.
		out, change, err := s.t.decide(ctx, at, task.SpecFile{Spec: fields}, daemonActor())
		if err == nil {
			_, _, err = s.t.write(change, at, out, nil)
		}
		if err != nil {
			return nil, err
		}
		return nil, s.t.refused(out.Task, s.as(ctx, at.ID), &task.World{}, &task.Refusal{Code: task.RevisionMismatch, Message: "the spec's file has changed: it is version " + fmt.Sprint(out.Task.Spec().Version) + " now, look again"})
	}
}
