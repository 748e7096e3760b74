package taskservice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// own is the part of a task that an approval request keeps.
type own struct {
	TaskID   string         `json:"task_id"`
	EffectID string         `json:"effect_id,omitzero"`
	Digest   string         `json:"request_digest,omitzero"`
	Planned  *task.Planned  `json:"planned,omitzero"`
	Bound    task.BoundPair `json:"bound,omitzero"`
	Tenant   string         `json:"tenant,omitzero"`
	// Tool is the tool call that an actor asks about, of a permission, and Actor who asks.
	Tool  *taskapi.ToolCall `json:"tool,omitzero"`
	Actor string            `json:"actor,omitzero"`
	Role  task.Role         `json:"role,omitzero"`
	// Attempt is the attempt that the tool is for.
	Attempt string `json:"attempt_id,omitzero"`
	// Context is what the effect is for: [taskapi.ApprovalContext].
	Context jsontext.Value `json:"context,omitzero"`
}

// subject is an effect, or a permission, that waits for a person.
type subject struct {
	t   *Tasks
	r   *approval.Request
	own own
}

// Subject finds what a request of tasks is about.
func (t *Tasks) Subject(r *approval.Request) (approval.Subject, error) {
	s := &subject{t: t, r: r}
	s.own.TaskID = r.TaskID
	if len(r.Own) > 0 {
		if err := json.Unmarshal(r.Own, &s.own); err != nil {
			return nil, fmt.Errorf("cannot decode approval %s: %w", r.ApprovalID, err)
		}
	}
	return s, nil
}

func (s *subject) effect() bool { return s.r.Kind == api.ApprovalOfEffect }

// Lock takes the lock of the task.
func (s *subject) Lock() (unlock func()) { return s.t.locks.Lock(s.own.TaskID) }

// Takes takes what can be decided about something that is done or not.
func (s *subject) Takes(decision string) error {
	if decision == api.DecideTakeover || decision == api.DecideResolve || decision == api.DecideChanges && !s.effect() {
		return api.Errorf(api.InvalidParams, "decision: an %s is approved or denied", s.r.Kind)
	}
	return nil
}

// Preview looks whether what was asked about is still what would be done, how many people have to
// approve it now, and of a tool call what the policy says of it now.
func (s *subject) Preview(ctx context.Context, _ time.Time) error {
	if !s.effect() && s.own.Tool == nil {
		return nil
	}
	at, err := s.t.loadLocked(ctx, s.own.TaskID)
	if err != nil {
		return err
	}
	s.r.Blocked = ""
	if tool := s.own.Tool; tool != nil {
		_, answer := s.t.judged(ctx, at, s.own.Actor, s.own.Role, tool, s.own.Attempt)
		s.r.PolicyApplied, s.r.PolicyRevision, s.r.Needed = answer.Policy, answer.Revision, s.t.config.Load().Rules.People(&answer)
		if !answer.Allow {
			s.r.Blocked = answer.Reason
		}
		return nil
	}
	a := at.Approval(s.r.ApprovalID)
	if a == nil || a.Void || a.Status != task.ApprovalPending {
		s.r.Blocked = "what it was for is gone"
		return nil
	}
	if s.r.Blocked, err = unchanged(s.t, at, a, false); err != nil {
		return err
	}
	e := at.Effect(a.EffectID)
	var pair task.BoundPair
	if err := json.Unmarshal(a.Bound, &pair); err != nil {
		return err
	}
	s.recount(ctx, at, a, e)
	return s.frame(at, e, &pair)
}

// recount enters how many people have to approve an effect now. The start of the effect asks the
// policy whether it allows the effect. A policy that denies it or gives no answer has no number of
// people, so it does not lower the number that was asked for.
func (s *subject) recount(ctx context.Context, at *task.Task, a *task.Approval, e *task.Effect) {
	answer := s.t.o.Ask(ctx, Question{
		Question: task.Question{Action: task.AskEffect, Effect: e, Compensation: a.Undo > 0, Actor: a.RequestedBy, ActorAs: s.own.Role}, Tenant: at.Tenant, Classification: at.Classification, Labels: at.Labels, Phase: at.Phase,
	})
	needed := s.t.config.Load().Rules.People(&answer)
	if !answer.Allow {
		needed = max(needed, s.r.Needed)
	}
	s.r.Needed = needed
}

// Shown is the effect in words.
func (s *subject) Shown() approval.View {
	v := approval.View{
		Asked: []string{s.own.TaskID, s.own.EffectID, s.own.Digest}, Effect: s.r.Content, Approvable: "it may be done once",
		Refused: "it cannot be approved any more", Instead: "deny it, or ask for it anew",
	}
	if s.effect() {
		v.Members = []approval.Member{{Name: "context", Text: string(s.own.Context)}}
	}
	return v
}

// MayApprove refuses the approval of an effect by the person who asked for it.
func (s *subject) MayApprove(ctx context.Context, by *api.ApprovalDecision) error {
	if !s.effect() || s.t.config.Load().Rules.SelfApproval {
		return nil
	}
	at, err := s.t.loadLocked(ctx, s.own.TaskID)
	if err != nil {
		return err
	}
	return s.t.refused(nil, operator(by), nil, at.MayApprove(s.r.ApprovalID, by.By, uidOf(by)))
}

// operator is the person who decides, as an actor of the task.
func operator(by *api.ApprovalDecision) *task.Actor {
	return &task.Actor{Name: by.By, Role: task.Operator, Person: by.By}
}

// uidOf names the person's user as an actor that asks without a name.
func uidOf(by *api.ApprovalDecision) string { return fmt.Sprintf("uid:%d", by.UID) }

// Release lets the effect be started once.
func (s *subject) Release(ctx context.Context, d *approval.Decision) error {
	if err := s.enter(ctx, d, task.ApprovalApproved); err != nil {
		return err
	}
	if err := d.Conclude(api.ApprovalApproved, nil); err != nil {
		return err
	}
	_, err := s.t.o.Commit(d.Change)
	return err
}

// End enters that it may not.
func (s *subject) End(ctx context.Context, d *approval.Decision, state string) error {
	status := map[string]string{
		api.ApprovalDenied: task.ApprovalRejected, api.ApprovalExpired: task.ApprovalExpired, api.ApprovalRequestChanges: task.ApprovalChanges, api.ApprovalRevoked: task.ApprovalRevoked,
	}[state]
	return s.enter(ctx, d, status)
}

// enter enters a decision into the task. The task's lock is held.
func (s *subject) enter(ctx context.Context, d *approval.Decision, status string) error {
	id := s.r.ApprovalID
	d.Change.OnDurable(func(store.Receipt) { s.t.moved.tell(id) })
	if !s.effect() {
		s.say(d, status)
		return nil
	}
	at, err := s.t.loadLocked(ctx, s.own.TaskID)
	if err != nil {
		return err
	}
	s.own.Tenant = at.Tenant
	if a := at.Approval(id); a == nil || a.Status != task.ApprovalPending && (status != task.ApprovalRevoked || !a.Unspent(at)) {
		// The task has ended it already, in a change that this is no part of.
		return nil
	}
	who := operator(&d.By)
	if status == task.ApprovalExpired {
		who = daemonActor()
	}
	command := task.ResolveApproval{ID: id, Status: status, Note: d.By.Note, By: d.By.By, Needed: s.r.Needed}
	if d.By.Fingerprint == "" || status == task.ApprovalApproved {
		command.UID = uidOf(&d.By)
	}
	_, change, err := s.t.decide(ctx, at, command, who)
	if err != nil {
		return err
	}
	d.Change.Records = append(d.Change.Records, change.Records...)
	d.Change.Add(change.Parts...)
	d.Change.OnDurable(change.Durable)
	return nil
}

// Unspent reports whether an effect may still be started, or undone, by the approval.
func (s *subject) Unspent(ctx context.Context) (bool, error) {
	if !s.effect() {
		return false, nil
	}
	at, err := s.t.loadLocked(ctx, s.own.TaskID)
	if err != nil {
		return false, err
	}
	s.own.Tenant = at.Tenant
	a := at.Approval(s.r.ApprovalID)
	return a != nil && a.Unspent(at) && (a.Used || s.t.o.Now().Before(a.ExpiresAt)), nil
}

// say keeps a person's decision about a tool call for its caller, as long as the caller would have
// waited for it.
func (s *subject) say(d *approval.Decision, status string) {
	if status == task.ApprovalApproved || status == task.ApprovalRejected {
		d.Say(s.r.Agent, d.Now.Add(s.t.config.Load().PermitWithin))
	}
}

// TakeBack takes the word about a tool call back. The question's lock is held meanwhile.
func (s *subject) TakeBack(key string, revoke func() error) error {
	defer s.t.locks.Lock("permission " + key)()
	return revoke()
}

// Record begins a record about the request.
func (s *subject) Record() *audit.Record {
	return &audit.Record{TaskID: s.own.TaskID, TenantID: s.own.Tenant, ApprovalID: s.r.ApprovalID, Classification: s.r.Classification}
}

// Tell tells nobody: the requester waits for it, or reads the task.
func (s *subject) Tell(*store.Change, api.ApprovalOutcome) error { return nil }

// digest names what a person approves of an effect.
func (r reader) digest(at *task.Task, p *task.Planned, salt string) (string, task.BoundPair, error) {
	pair := task.BoundPair{Salt: salt}
	var err error
	if pair.Command, err = r.bind(at, p.Command, false); err != nil {
		return "", pair, err
	}
	if pair.Compensation, err = r.bind(at, p.Compensation, true); err != nil {
		return "", pair, err
	}
	digest, err := task.RequestDigest(at.ID, p, &pair)
	return digest, pair, err
}

// RequestApproval answers task.request_approval.
func (s *Session) RequestApproval(ctx context.Context, p *taskapi.RequestApprovalParams) (taskapi.ApprovalRequested, error) {
	t := s.t
	who := s.as(ctx, p.TaskID)
	id := ids.Approval + t.o.NewID()
	var pair task.BoundPair
	var planned task.Planned
	build := func(at *task.Task) (task.Command, error) {
		c := task.RequestApproval{ID: id, ExpiresAt: t.o.Now().Add(t.config.Load().ApproveWithin), Undo: p.Undo}
		if p.RequestedBy != "" && p.RequestedBy != who.Name {
			c.ClaimedBy = p.RequestedBy
		}
		if p.Undo {
			err := toUndo(at, p.Key, &c, &pair)
			return c, err
		}
		planned = p.Planned
		if e := at.EffectOf(p.Key); e != nil && planned.Command == nil && len(planned.Params) == 0 {
			// The key is enough for a planned effect.
			planned = e.Planned
		} else if planned.Command == nil && len(planned.Params) == 0 {
			return nil, api.Errorf(api.InvalidParams, "command: want either command or params: %.64q is not planned", p.Key)
		}
		c.Planned = planned
		e := at.EffectOf(p.Key)
		if e != nil && at.Phase != task.AwaitingApproval {
			// Nothing new is made there, so nothing has to be looked at.
			return c, nil
		}
		r := s.reader()
		salt := ""
		if r.own {
			// The same asked anew has the same digest: an effect that was approved earlier can be
			// undone.
			salt = at.Salt(e)
		}
		salt = cmp.Or(salt, approval.NewSalt())
		digest, bound, err := r.digest(at, &planned, salt)
		if err != nil {
			return nil, t.refused(at, who, &task.World{}, err)
		}
		pair = bound
		c.Digest = digest
		c.Bound, err = json.Marshal(&bound)
		return c, err
	}
	return once(ctx, s, "task.request_approval", p, nil, func(keep func(*store.Change, taskapi.ApprovalRequested) error) (taskapi.ApprovalRequested, error) {
		out, receipt, err := t.act(ctx, p.TaskID, who, build, func(change *store.Change, out *task.Outcome) error {
			if !out.Replayed {
				if err := t.addRequest(change, out, who, pair); err != nil {
					return err
				}
			}
			return keep(change, requested(out, store.Receipt{}, t.o.Now()))
		})
		if err != nil {
			return taskapi.ApprovalRequested{}, err
		}
		return requested(out, receipt, t.o.Now()), nil
	})
}

// requested is the answer about an approval that was asked for.
func requested(out *task.Outcome, receipt store.Receipt, now time.Time) taskapi.ApprovalRequested {
	a := out.Task.Approval(out.Approval)
	return taskapi.ApprovalRequested{
		Changed: changed(out, receipt), ApprovalID: a.ID, EffectID: a.EffectID, Status: statusOf(a, now), RequestDigest: a.Digest, ExpiresAt: a.ExpiresAt,
	}
}

// statusOf is how an approval stands, also where its time is over and nobody has
// written that down yet.
func statusOf(a *task.Approval, now time.Time) string {
	if (a.Status == task.ApprovalPending || a.Status == task.ApprovalApproved && !a.Used) && !now.Before(a.ExpiresAt) {
		return task.ApprovalExpired
	}
	return a.Status
}

// decided are approvals with their status by now.
func decided(approvals []task.Approval, now time.Time) []task.Approval {
	approvals = slices.Clone(approvals)
	for i := range approvals {
		approvals[i].Status = statusOf(&approvals[i], now)
	}
	return approvals
}

// addRequest enters the request that people see.
func (t *Tasks) addRequest(change *store.Change, out *task.Outcome, who *task.Actor, pair task.BoundPair) error {
	a := out.Task.Approval(out.Approval)
	e := out.Task.Effect(a.EffectID)
	policy := task.Answer{}
	if out.Policy != nil {
		policy = *out.Policy
	}
	r := &approval.Request{Asked: approval.Asked(api.ApprovalOfEffect, out.Task.ID, e.ID+a.ID), Approval: api.Approval{
		ApprovalSummary: api.ApprovalSummary{
			ApprovalID: a.ID, Kind: api.ApprovalOfEffect, State: api.ApprovalPending, Code: "EFFECT", Reason: effectReason,
			AgentID: who.Name, Agent: "task:" + out.Task.ID, TaskID: out.Task.ID, Classification: out.Task.Classification,
			AskedAt: a.AskedAt.UnixMilli(), ExpiresAt: a.ExpiresAt.UnixMilli(), Approvable: true, Needed: a.Needed,
		},
		PolicyApplied: policy.Policy, PolicyRevision: policy.Revision,
	}}
	s := &subject{t: t, r: r, own: own{TaskID: out.Task.ID, EffectID: e.ID, Digest: a.Digest, Planned: &e.Planned, Bound: pair, Tenant: out.Task.Tenant, Actor: who.Name, Role: who.Role}}
	if err := s.frame(out.Task, e, &pair); err != nil {
		return err
	}
	if err := t.o.Approvals().Add(r, s, change); err != nil {
		return err
	}
	for _, record := range change.Records {
		if record.Event == "approval.requested" {
			return t.shows(record, r)
		}
	}
	return nil
}

// shows enters into the record of a new request what people are shown: the keyed digest of the
// text, and the digest that they decide about. The text itself and the salt are sealed, or on no
// record.
func (t *Tasks) shows(record *audit.Record, r *approval.Request) (err error) {
	record.ContentBytes = len(r.Content)
	if record.ContentDigest, err = t.o.Keys.Text(record.TenantID, audit.LabelContent, r.Content); err != nil {
		return err
	}
	record.Details["digest"], record.Details["expiresAt"] = r.Digest, r.ExpiresAt
	if seal := t.config.Load().Seal; seal != nil {
		if record.Content, err = seal(r.Content); err == nil {
			record.Details["salt"], err = seal(r.Salt)
		}
	}
	return err
}

// maxSummary bounds the line of a request in lists, in bytes.
const maxSummary = 120

func summary(texts ...string) string {
	for _, s := range texts {
		if s, _, _ = strings.Cut(strings.TrimSpace(s), "\n"); s != "" {
			return text.Clip(s, maxSummary)
		}
	}
	return ""
}

// word is a text of an actor's that is to be a word or a few: as it stands, or in quotes where
// it is anything else.
func word(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool {
		return r != ' ' && r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return strconv.Quote(text)
	}
	return text
}

// copied says how a command finds the copy of an input.
func copied(words []task.Word) string {
	const below = "is below $OCIPD_INPUTS: by its own name the command gets what stands there by then"
	if len(words) == 0 {
		return "a copy of which " + below
	}
	places := make([]string, len(words))
	for i, w := range words {
		places[i] = fmt.Sprintf("argument %d", w.Index)
		if w.From > 0 {
			places[i] += fmt.Sprintf(" from byte %d on", w.From)
		}
	}
	return "a copy of which takes the place of " + strings.Join(places, ", ") + " and " + below
}

// marked describes a file that the command names and gets no copy of.
func marked(n *task.Named) string {
	names := "which the command names"
	if n.Leads != "" {
		names += fmt.Sprintf(" and which leads to %q", n.Leads)
	}
	switch {
	case n.Absent:
		return fmt.Sprintf("NOT BOUND: %q, %s and which is not there now: what is there when it runs is not what you approve\n", n.Path, names)
	case n.Digest == "":
		return fmt.Sprintf("NOT BOUND: %q, %s: whoever can write there can change it, also after it was approved\n", n.Path, names)
	}
	return fmt.Sprintf("NOT COPIED: %q %s, %s: checked before the command begins, and whoever can write there can change it from then on\n", n.Path, n.Digest, names)
}

// describe describes an effect for people.
func describe(p *task.Planned, pair *task.BoundPair) string {
	var b strings.Builder
	// Text of an actor is in quotes or behind a bar, so that none of it looks like a line of the
	// daemon's. Everything that is approved is shown.
	fmt.Fprintf(&b, "%q (%s, key %q)\n", p.RequestedAction, word(p.Kind), p.Key)
	action := func(what string, c *task.Action, bound *task.Bound) {
		if c == nil {
			return
		}
		fmt.Fprintf(&b, "%s:", what)
		for _, arg := range c.Argv {
			fmt.Fprintf(&b, " %q", arg)
		}
		b.WriteByte('\n')
		if bound != nil {
			fmt.Fprintf(&b, "program: %q sha256:%s\n", bound.Exe.Path, bound.Exe.SHA256)
			for _, in := range bound.Inputs {
				fmt.Fprintf(&b, "input: %q %s, %s\n", in.URI, in.Digest, copied(in.Argv))
			}
			for _, n := range bound.Named {
				b.WriteString(marked(&n))
			}
		}
		if bound != nil && bound.Folder != "" {
			fmt.Fprintf(&b, "folder: %q\n", bound.Folder)
		}
		var names []string
		for name, value := range c.Env {
			names = append(names, fmt.Sprintf("%q=%q", name, value))
		}
		slices.Sort(names)
		for _, v := range c.EnvFrom {
			names = append(names, fmt.Sprintf("%q", v))
		}
		for _, v := range names {
			fmt.Fprintf(&b, "variable: %s\n", v)
		}
		if c.TimeoutS > 0 {
			fmt.Fprintf(&b, "ends after: %d s\n", c.TimeoutS)
		}
		if c.Stdin != "" {
			fmt.Fprintf(&b, "standard input of %d bytes:\n", len(c.Stdin))
			for line := range strings.Lines(c.Stdin) {
				fmt.Fprintf(&b, "  | %s\n", strings.TrimRight(line, "\n"))
			}
		}
	}
	action("command", p.Command, pair.Command)
	if len(p.Params) > 0 {
		fmt.Fprintf(&b, "parameters: %s\n", p.Params)
	}
	action("to undo it", p.Compensation, pair.Compensation)
	return b.String()
}

// ResolveApproval answers task.resolve_approval.
func (s *Session) ResolveApproval(ctx context.Context, p *taskapi.ResolveApprovalParams) (taskapi.ApprovalResolved, error) {
	t := s.t
	who := s.as(ctx, p.TaskID)
	var none taskapi.ApprovalResolved
	unlock := t.locks.Lock(p.TaskID)
	at, err := t.loadLocked(ctx, p.TaskID)
	if err == nil {
		if err = at.May(who); err != nil {
			err = t.refused(at, who, &task.World{}, err)
		} else if at.Approval(p.ApprovalID) == nil {
			err = api.Errorf(api.NotFound, "the task has no approval %s", p.ApprovalID)
		}
	}
	unlock()
	if err != nil {
		return none, err
	}
	return once(ctx, s, "task.resolve_approval", p, nil, func(func(*store.Change, taskapi.ApprovalResolved) error) (taskapi.ApprovalResolved, error) {
		d := t.o.Approvals()
		decision := map[string]string{task.ApprovalApproved: api.DecideApprove, task.ApprovalRejected: api.DecideDeny, task.ApprovalChanges: api.DecideChanges}[p.Resolution]
		person := who.Role == task.Operator || p.Signature != "" && d.Signers != nil
		if !person && p.Resolution == task.ApprovalApproved {
			return none, t.refused(at, who, &task.World{}, &task.Refusal{Code: task.NeedsPerson, Message: "approving takes a person: at the operator socket, or by a signature of an allowed signer"})
		}
		var result api.ApprovalResolveResult
		if person {
			result, err = d.Resolve(ctx, ctx.Value(callKey{}).(*caller).peer, &api.ApprovalResolveParams{
				ApprovalID: p.ApprovalID, Decision: decision, Digest: p.Digest, Note: p.Note, Signature: p.Signature,
			})
		} else {
			result, err = d.EndBy(ctx, p.ApprovalID, decision, who.Name, p.Note)
		}
		if err != nil {
			return none, err
		}
		defer t.locks.Lock(p.TaskID)()
		now, err := t.loadLocked(ctx, p.TaskID)
		if err != nil {
			return none, err
		}
		return taskapi.ApprovalResolved{
			Changed: taskapi.Changed{TaskID: now.ID, Phase: now.Phase, Revision: now.Revision, AuditSeq: told(who, store.Receipt{Seq: result.AuditSeq}).Seq},
			Status:  now.Approval(p.ApprovalID).Status, Needed: result.Needed, Given: result.Given,
		}, nil
	})
}

// revoke ends requests that a task needs no more, in its change.
func (t *Tasks) revoke(ctx context.Context, change *store.Change, ids []string, who *task.Actor) error {
	for _, id := range ids {
		d := t.o.Approvals()
		r, err := d.Get(ctx, id)
		if err != nil {
			return err
		}
		if r.State != api.ApprovalPending && r.State != api.ApprovalApproved {
			continue
		}
		by := api.ApprovalDecision{Decision: api.DecideRevoke, By: who.Name, At: t.o.Now().UnixMilli()}
		if err := d.EndWithState(r, &by, api.ApprovalRevoked, change); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tasks) grantRecord(event string, g *task.Grant, who *task.Actor) *audit.Record {
	r := &audit.Record{
		ID: t.o.NewID(), ActionType: audit.ActionSecurity, Event: event, TenantID: g.Tenant, Actor: who.Name, Role: string(who.Role), PolicyResult: audit.ResultAllow,
		Details: map[string]any{"grant_id": g.ID, "actor": g.Actor, "role": g.Role, "expires_at": g.ExpiresAt},
	}
	if g.Agent != "" {
		r.Details["agent"] = g.Agent
	}
	if g.Under != "" {
		r.Details["under"] = g.Under
	}
	return r
}
