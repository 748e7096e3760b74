package task

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/openclawos/ocipd/internal/base/ids"
)

// plan adds an effect, or plans a cancelled one again. One that is planned already
// stays as it is.
func (d *draft) plan(p *Planned, origin string) (*Effect, error) {
	t := d.t
	e := t.EffectOf(p.Key)
	planned := *p
	// The database has the parameters in this form, and people are shown them as they are.
	if planned.Params = p.Params.Clone(); len(planned.Params) > 0 {
		if err := planned.Params.Compact(); err != nil {
			return nil, fmt.Errorf("cannot read the parameters of %q: %w", p.Key, err)
		}
	}
	switch {
	case e != nil && e.State != EffectCancelled:
		if !p.same(&e.Planned) {
			return nil, refuse(IdempotencyConflict, "%q is planned already, and is something else", p.Key)
		}
		return e, nil
	case e != nil && e.underWay() != nil:
		return nil, e.underWay()
	case e != nil:
		e = d.effect(e.ID)
		d.event("effect.planned").made("effect_id", e.ID).set("state", e.State, EffectPlanned).made("side_effect_kind", p.Kind).Digests["effect"] = planned
		e.Planned, e.EffectType, e.Origin, e.State, e.PlannedBy, e.Digest, e.At = planned, p.Type(), origin, EffectPlanned, d.who.Name, "", d.now
		d.late(e)
		return e, nil
	case len(t.Effects) >= MaxEffects:
		return nil, refuse(Limit, "a task has %d effects at most", MaxEffects)
	}
	t.Effects = append(t.Effects, Effect{
		ID: d.w.NewID(ids.Effect), Planned: planned, EffectType: p.Type(), Origin: origin, State: EffectPlanned, PlannedBy: d.who.Name, At: d.now,
	})
	e = &t.Effects[len(t.Effects)-1]
	touch(d, KindEffect, t.Effects, len(t.Effects)-1, e.ID)
	event := d.event("effect.planned").made("effect_id", e.ID).made("state", e.State).made("side_effect_kind", e.Kind).made("type", e.EffectType).made("origin", origin)
	event.Texts["idempotency_key"], event.Digests["effect"] = e.Key, planned
	d.late(e)
	return e, nil
}

// same reports whether two plans are of the same.
func (p *Planned) same(q *Planned) bool {
	text := func(p *Planned) []byte {
		v, err := json.Marshal(p, json.Deterministic(true))
		if err == nil {
			err = (*jsontext.Value)(&v).Canonicalize()
		}
		if err != nil {
			return nil
		}
		return v
	}
	return bytes.Equal(text(p), text(q))
}

// PlanEffect says ahead what is to be done in the world.
type PlanEffect struct{ Planned Planned }

func (c PlanEffect) decide(d *draft) error {
	t := d.t
	switch t.Phase {
	case Executing, SpecGate, QualityGate, AwaitingApproval:
	default:
		return refuse(PhaseMismatch, "effects are planned from executing to awaiting_approval, and the task is in %s", t.Phase)
	}
	if err := d.mayPlan(); err != nil {
		return err
	}
	before := len(d.out.Events)
	e, err := d.plan(&c.Planned, originAttempt)
	if err != nil {
		return err
	}
	d.out.Effect, d.out.Replayed = e.ID, len(d.out.Events) == before
	return nil
}

// RequestApproval asks a person about an effect.
type RequestApproval struct {
	Planned Planned
	// Digest is the request's, Bound what else it names, and ID the approval's if there
	// has to be a new one.
	Digest    string
	Bound     jsontext.Value
	ID        string
	ExpiresAt time.Time
	ClaimedBy string
	// Undo asks about undoing what was planned by the key.
	Undo bool
}

func (c RequestApproval) decide(d *draft) error {
	if c.Undo {
		return c.undo(d)
	}
	t := d.t
	e := t.EffectOf(c.Planned.Key)
	if e != nil && e.State != EffectCancelled {
		if !c.Planned.same(&e.Planned) {
			return refuse(IdempotencyConflict, "%q is planned already, and is something else", c.Planned.Key)
		}
		d.out.Effect = e.ID
		newest := t.Newest(e.ID)
		again := isOpen(*e) && (newest == nil || newest.renewable(d.now))
		if newest != nil && (!again || t.Phase != AwaitingApproval) {
			d.out.Approval, d.out.Replayed = newest.ID, true
			return nil
		}
		if !again {
			return refuse(PhaseMismatch, "the effect is %s, and nothing waits for an approval", e.State)
		}
		if r := e.underWay(); r != nil {
			return r
		}
	}
	if t.Phase != AwaitingApproval {
		return refuse(PhaseMismatch, "approvals are asked for in awaiting_approval, and the task is in %s", t.Phase)
	}
	if err := c.reviewed(d, e); err != nil {
		return err
	}
	e, err := d.plan(&c.Planned, originAttempt)
	if err != nil {
		return err
	}
	if err := d.ask(Question{Action: AskEffect, Effect: e}); err != nil {
		return err
	}
	e = d.effect(e.ID)
	e.Digest = c.Digest
	return d.request(e, Approval{ID: c.ID, Digest: c.Digest, Bound: c.Bound, ExpiresAt: c.ExpiresAt}, c.ClaimedBy)
}

// request enters an approval that waits, of an effect or of undoing it.
func (d *draft) request(e *Effect, a Approval, claimedBy string) error {
	t := d.t
	if len(t.Approvals) >= maxApprovals {
		return refuse(Limit, "a task has %d approvals at most", maxApprovals)
	}
	pair, err := boundOf(t.ID, a.Bound)
	if err != nil {
		return err
	}
	a.EffectID, a.Status, a.RequestedBy, a.AskedAt, a.Needed = e.ID, ApprovalPending, d.who.Name, d.now, d.w.Rules.People(d.out.Policy)
	t.Approvals = append(t.Approvals, a)
	touch(d, KindApproval, t.Approvals, len(t.Approvals)-1, a.ID)
	event := d.event("approval.requested").made("approval_id", a.ID).made("effect_id", e.ID).made("status", a.Status).made("request_digest", a.Digest)
	event.Digests["request"] = request(t.ID, &e.Planned, &pair)
	if claimedBy != "" {
		event.Details["claimed_by"] = claimedBy
	}
	if a.Undo > 0 {
		event.Details["compensation"] = true
	}
	d.out.Effect, d.out.Approval = e.ID, a.ID
	return nil
}

// renewable reports whether an open effect may get another approval than this one.
func (a *Approval) renewable(now time.Time) bool {
	if a.Void || a.Used || a.Status == ApprovalRevoked || a.Status == ApprovalExpired {
		return true
	}
	return (a.Status == ApprovalPending || a.Status == ApprovalApproved) && !now.Before(a.ExpiresAt)
}

// Unsigned is why nothing starts by an approval of people who may not sign any more.
func (a *Approval) Unsigned(compensation bool) error {
	then := "take it back (ocipd approvals deny), and ask for it anew"
	if compensation && a.Undo == 0 {
		then = askUndo
	}
	r := refuse(GuardFailed, "approval %s does not count any more: not enough of those who gave it are among the allowed signers; %s", a.ID, then)
	r.Guards = []Guard{Approved}
	return r
}

// Restored is the daemon's word that the state is a copy which was restored. An approval that was
// not used in the copy may have been used since, as may one to undo what was done, and a command
// that had not begun may have run.
type Restored struct{}

func (Restored) decide(d *draft) error {
	for i := range d.t.Approvals {
		if a := &d.t.Approvals[i]; a.Unspent(d.t) || a.undoes(d.t) != nil {
			d.takeBack(d.approval(a.ID))
			d.out.Events[len(d.out.Events)-1].Reason = "a copy of the state was restored: look whether it was done since, and ask anew"
		}
	}
	for _, at := range d.t.Effects {
		for _, run := range at.Runs {
			if run.State != EffectStarted || at.EffectType == TypeExternal && !run.Compensation {
				continue
			}
			e := d.effect(at.ID)
			r := e.run(run.Number)
			d.unknown(e, r, "a copy of the state was restored while the run was under way")
		}
	}
	d.out.Replayed = len(d.out.Events) == 0
	return nil
}

// ResolveApproval is the decision of a person, or of time, about an approval.
type ResolveApproval struct {
	ID, Status, Note string
	// By names the person, UID the user that spoke, as operators are named, and Needed how many it took.
	By, UID string
	Needed  int
}

func (c ResolveApproval) decide(d *draft) error {
	a := d.t.Approval(c.ID)
	if a == nil {
		return refuse(Absent, "the task has no approval %s", c.ID)
	}
	if a.Status != ApprovalPending && (c.Status != ApprovalRevoked || !a.Unspent(d.t)) {
		return refuse(PhaseMismatch, "approval %s is %s already", c.ID, a.Status)
	}
	a = d.approval(c.ID)
	if c.Status == ApprovalApproved {
		if a.Void || !d.now.Before(a.ExpiresAt) {
			return refuse(PhaseMismatch, "what approval %s was for is gone", c.ID)
		}
		if err := d.t.MayApprove(c.ID, c.By, c.UID); err != nil {
			if !d.w.Rules.SelfApproval {
				return err
			}
			a.SelfApproved, d.out.SelfApproved = true, true
		}
		a.Needed = cmp.Or(c.Needed, a.Needed)
	}
	e := d.event("approval.resolved").made("approval_id", a.ID).made("effect_id", a.EffectID).set("status", a.Status, c.Status)
	e.Reason = c.Note
	if a.SelfApproved {
		e.Details["self_approved"] = true
	}
	a.Status, a.ResolvedBy, a.ResolvedAt, a.Note = c.Status, c.By, d.now, c.Note
	d.out.Approval, d.out.Effect = a.ID, a.EffectID
	return nil
}

// CancelEffect gives up an effect that is open.
type CancelEffect struct{ EffectID string }

func (c CancelEffect) decide(d *draft) error {
	e := d.t.Effect(c.EffectID)
	switch {
	case e == nil:
		return refuse(Absent, "the task has no effect %s", c.EffectID)
	case e.State == EffectCancelled:
		d.out.Effect, d.out.Replayed = e.ID, true
		return nil
	case !isOpen(*e):
		return busy(e)
	}
	for i := range d.t.Approvals {
		if a := &d.t.Approvals[i]; a.EffectID == e.ID && !a.Void {
			a = d.approval(a.ID)
			a.Void = true
			d.revoke(a)
		}
	}
	d.cancel(e.ID)
	d.out.Effect = e.ID
	return nil
}

func (d *draft) cancel(id string) {
	e := d.effect(id)
	d.event("effect.cancelled").made("effect_id", e.ID).set("state", e.State, EffectCancelled)
	e.State = EffectCancelled
}

// busy is why nothing can be done with an effect that is not open.
func busy(e *Effect) *Refusal {
	switch e.State {
	case EffectStarted:
		return refuse(EffectInFlight, "effect %s is under way", e.ID)
	case EffectUncertain:
		return refuse(EffectUnknown, "nobody knows whether effect %s was done: a person has to look and settle it", e.ID)
	default:
		return refuse(PhaseMismatch, "effect %s is %s", e.ID, e.State)
	}
}

// underWay is why an effect stays as it is: a run of it, which may be what undoes it, has begun,
// and is of what it was then.
func (e *Effect) underWay() *Refusal {
	for i := range e.Runs {
		switch r := &e.Runs[i]; r.State {
		case EffectStarted:
			return refuse(EffectInFlight, "run %d of effect %s is under way", r.Number, e.ID)
		case EffectUncertain:
			return refuse(EffectUnknown, "nobody knows whether run %d of effect %s was done: a person has to look and settle it", r.Number, e.ID)
		}
	}
	return nil
}

// RunEffect starts an effect once, or returns its result.
type RunEffect struct {
	EffectID, Key, Digest string
	Compensation          bool
	// TokenHash is the SHA-256 of the run token of an external effect.
	TokenHash string
}

func (c RunEffect) decide(d *draft) error {
	t := d.t
	e := t.Effect(c.EffectID)
	if c.EffectID == "" {
		e = t.EffectOf(c.Key)
	}
	if e == nil {
		return refuse(Absent, "the task has no such effect")
	}
	d.out.Effect = e.ID
	if c.Compensation {
		return c.compensate(d, e)
	}
	switch e.State {
	case EffectDone:
		d.out.Run, d.out.Replayed = e.lastRun(false), true
		return nil
	case EffectStarted, EffectUncertain, EffectCancelled:
		d.out.Run = e.lastRun(false)
		return busy(e)
	}
	if t.Phase != ReadyToResume {
		return refuse(PhaseMismatch, "effects run in ready_to_resume, and the task is in %s", t.Phase)
	}
	a := t.Live(e.ID, d.now)
	if a == nil {
		r := refuse(GuardFailed, "the effect has no approval that can be used: approved, not expired, and not used by a start")
		r.Guards = []Guard{Approved}
		return r
	}
	if a.Digest != c.Digest {
		return refuse(IdempotencyConflict, "what was approved is %s, not %s", a.Digest, c.Digest)
	}
	if r := e.underWay(); r != nil {
		return r
	}
	return d.start(e, a, c.TokenHash, false)
}

func (d *draft) start(e *Effect, a *Approval, token string, compensation bool) error {
	command := e.EffectType == TypeCommand || compensation
	if command && !d.w.Runner {
		return refuse(RunnerAbsent, "no runner is attached: start `ocipd runner`")
	}
	if len(e.Runs) >= MaxRuns {
		return refuse(Limit, "an effect has %d runs at most", MaxRuns)
	}
	q := Question{Action: AskEffect, Effect: e, Compensation: compensation}
	if err := d.ask(q); err != nil {
		return err
	}
	if r := d.tooFew(&q, a); r != nil {
		return r
	}
	if command {
		token = ""
	}
	e = d.effect(e.ID)
	pair, err := boundOf(d.t.ID, a.Bound)
	if err != nil {
		return err
	}
	if pair.Undo != a.Undo || a.Undo > 0 && !compensation {
		return refuse(IdempotencyConflict, "approval %s lets nothing but run %d be undone", a.ID, max(pair.Undo, a.Undo))
	}
	r := Run{Number: len(e.Runs) + 1, Compensation: compensation, State: EffectStarted, ApprovalID: a.ID, Actor: d.who.Name, Role: d.who.Role, StartedAt: d.now, TokenHash: token}
	event := d.event("effect.started").made("effect_id", e.ID).made("run", r.Number).made("approval_id", a.ID).made("request_digest", a.Digest)
	if !compensation && e.Compensation != nil {
		r.UndoUntil = a.undoUntil(&r)
		event.made("undo_until", r.UndoUntil)
	}
	e.Runs = append(e.Runs, r)
	event.Digests["request"] = request(d.t.ID, &e.Planned, &pair)
	if compensation {
		event.Details["compensation"] = true
	} else {
		event.set("state", e.State, EffectStarted)
		e.State = EffectStarted
	}
	if !compensation || a.Undo > 0 {
		d.approval(a.ID).Used = true
	}
	d.out.Run = r.Number
	return nil
}

// lastRun is the number of the effect's last run, or of its compensation's, and zero
// for none.
func (e *Effect) lastRun(compensation bool) int {
	for i := range slices.Backward(e.Runs) {
		if e.Runs[i].Compensation == compensation {
			return e.Runs[i].Number
		}
	}
	return 0
}

// run returns a run by its number, or nil.
func (e *Effect) run(n int) *Run {
	if n < 1 || n > len(e.Runs) {
		return nil
	}
	return &e.Runs[n-1]
}

// Run returns a run by its number, or nil.
func (e *Effect) Run(n int) *Run { return e.run(n) }

// runOf returns a run of the task, to be changed.
func (d *draft) runOf(effect string, n int) (*Effect, *Run, error) {
	e := d.t.Effect(effect)
	if e == nil {
		return nil, nil, refuse(Absent, "the task has no effect %s", effect)
	}
	if e.run(n) == nil {
		return nil, nil, refuse(Absent, "effect %s has no run %d", effect, n)
	}
	e = d.effect(effect)
	d.out.Effect, d.out.Run = effect, n
	return e, e.run(n), nil
}

// FinishRun says how a run ended. Without Token it is the runner's word about a
// command, or the daemon's that nobody said anything in time.
type FinishRun struct {
	EffectID, State, Evidence string
	Run                       int
	Receipt                   jsontext.Value
	// Token is the SHA-256 of the run token of an external effect.
	Token string
}

func (c FinishRun) decide(d *draft) error {
	e, r, err := d.runOf(c.EffectID, c.Run)
	if err != nil {
		return err
	}
	if d.who.Role != Daemon && (r.TokenHash == "" || r.TokenHash != c.Token) {
		return refuse(NotPermitted, "run %d of effect %s is not yours to finish", c.Run, c.EffectID)
	}
	if r.State == c.State {
		d.out.Touched, d.out.Replayed = nil, true
		return nil
	}
	if r.State == EffectUncertain {
		return refuse(EffectUnknown, "nobody knows any more whether run %d was done: a person has to settle it", c.Run)
	}
	if r.State != EffectStarted {
		return refuse(PhaseMismatch, "run %d is %s already", c.Run, r.State)
	}
	kind, state, evidence := "effect.finished", c.State, c.Evidence
	if !r.ran(state) {
		state, evidence = EffectUncertain, fmt.Sprintf("the runner says that it is %s, and the daemon has not let it begin", state)
	}
	if state == EffectUncertain {
		kind = "effect.unknown"
	}
	event := d.ends(e, r, kind, state)
	event.Texts["evidence"] = evidence
	if len(c.Receipt) > 0 {
		event.Digests["receipt"] = c.Receipt
		if r.TokenHash == "" {
			r.NotBegun = event.ran(c.Receipt) && state == EffectFailed
		}
	}
	r.Receipt, r.Evidence = c.Receipt, evidence
	if !r.Compensation {
		e.Receipt = c.Receipt
	}
	return nil
}

// ran enters what the runner says of a command's end, and reports whether it did not begin. A receipt
// of another form is ignored.
func (e *Event) ran(receipt jsontext.Value) (notBegun bool) {
	type output struct {
		Bytes  int64  `json:"bytes"`
		Digest string `json:"digest"`
	}
	var said struct {
		ExitCode  *int      `json:"exit_code"`
		Signal    string    `json:"signal"`
		TimedOut  bool      `json:"timed_out"`
		Killed    bool      `json:"killed"`
		NotBegun  bool      `json:"not_begun"`
		Stdout    output    `json:"stdout"`
		Stderr    output    `json:"stderr"`
		StartedAt time.Time `json:"started_at"`
		EndedAt   time.Time `json:"ended_at"`
	}
	if json.Unmarshal(receipt, &said) != nil {
		return false
	}
	if said.ExitCode != nil {
		e.made("exit_code", *said.ExitCode)
	}
	if said.Signal != "" {
		e.made("signal", said.Signal)
	}
	for name, is := range map[string]bool{"timed_out": said.TimedOut, "killed": said.Killed, "not_begun": said.NotBegun} {
		if is {
			e.made(name, true)
		}
	}
	for name, at := range map[string]time.Time{"started_at": said.StartedAt, "ended_at": said.EndedAt} {
		if !at.IsZero() {
			e.made(name, at)
		}
	}
	for name, out := range map[string]output{"stdout": said.Stdout, "stderr": said.Stderr} {
		if out.Digest != "" {
			e.made(name+"_bytes", out.Bytes).Digests[name] = out.Digest
		}
	}
	return said.NotBegun
}

func (d *draft) ends(e *Effect, r *Run, kind, state string) *Event {
	event := d.event(kind).made("effect_id", e.ID).made("run", r.Number).set("state", r.State, state)
	if r.Compensation {
		event.Details["compensation"] = true
	} else {
		e.State = state
	}
	if r.State = state; state != EffectUncertain {
		r.EndedAt = d.now
	}
	return event
}

// SettleEffect is a person's word about a run that nobody knows the outcome of.
type SettleEffect struct {
	EffectID, Outcome, Note string
	Run                     int
}

func (c SettleEffect) decide(d *draft) error {
	e := d.t.Effect(c.EffectID)
	if e == nil {
		return refuse(Absent, "the task has no effect %s", c.EffectID)
	}
	number := c.Run
	if number == 0 {
		i := slices.IndexFunc(e.Runs, func(r Run) bool { return r.State == EffectUncertain })
		if i < 0 {
			return refuse(PhaseMismatch, "effect %s is %s: there is nothing to settle", e.ID, e.State)
		}
		number = i + 1
	}
	e, r, err := d.runOf(c.EffectID, number)
	if err != nil {
		return err
	}
	if r.State != EffectUncertain {
		return refuse(PhaseMismatch, "run %d is %s: there is nothing to settle", number, r.State)
	}
	d.ends(e, r, "effect.settled", c.Outcome).Reason = c.Note
	r.Settled = d.who.Name
	return nil
}

// Started is the number of the run that is under way, and zero for none.
func (e *Effect) Started() int {
	i := slices.IndexFunc(e.Runs, func(r Run) bool { return r.State == EffectStarted })
	return i + 1
}

// IssueGrant gives an actor a way to the task by a token. An executor's makes the
// running attempt the actor's own.
type IssueGrant struct{ Grant *Grant }

func (c IssueGrant) decide(d *draft) error {
	t, g := d.t, c.Grant
	if t.Phase.Final() {
		return refuse(PhaseMismatch, "the task is %s", t.Phase)
	}
	if err := d.cleared(g.Actor); err != nil {
		return err
	}
	switch g.Role {
	case Executor:
		a := t.Running()
		if a == nil || g.AttemptID != "" && g.AttemptID != a.ID {
			r := refuse(GuardFailed, "an executor's grant is for an attempt, and that one is not running")
			r.Guards = []Guard{Leased}
			return r
		}
		if role, _, ok := d.w.Known(a.Actor); ok && role == Executor && a.Actor != g.Actor {
			return refuse(NotPermitted, "attempt %d is %s's", a.Ordinal, a.Actor)
		}
		g.AttemptID, g.Fence = a.ID, a.Fence
		if a.Actor != g.Actor {
			d.attempt(a.ID).Actor = g.Actor
		}
	case SpecReviewer, QualityReviewer:
		if g.Role == SpecReviewer && t.Phase != SpecReview && t.Phase != SpecGate || g.Role == QualityReviewer && t.Phase != SpecGate && t.Phase != QualityGate {
			return refuse(PhaseMismatch, "a %s's grant is for what is reviewed, and the task is in %s", g.Role, t.Phase)
		}
		g.Subject = t.Subject()
	default:
	}
	g.TaskID, g.Tenant = t.ID, t.Tenant
	e := d.event("grant.issued").made("grant_id", g.ID).made("actor", g.Actor).made("role", g.Role).made("expires_at", g.ExpiresAt)
	if g.Agent != "" {
		e.made("agent", g.Agent)
	}
	if g.Under != "" {
		e.made("under", g.Under)
	}
	e.AttemptID = g.AttemptID
	d.silent = true
	return nil
}

// RevokeGrant ends a grant.
type RevokeGrant struct{ ID string }

//nolint:unparam // it is a Command
func (c RevokeGrant) decide(d *draft) error {
	d.event("grant.revoked").made("grant_id", c.ID)
	d.silent = true
	return nil
}

// Digest is a SHA-256 as ids of content have it.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Program is the program of a command, as an approval names it.
type Program struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Input is one of a command's inputs, as an approval names it.
type Input struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	// Argv are the words of the command that name it: a copy's name takes their place.
	Argv []Word `json:"argv,omitzero"`
}

// Word is a word of a command, or the end of one.
type Word struct {
	Index int `json:"index"`
	// From is the beginning of the name in it, in bytes, as in --file=NAME and -fNAME.
	From int `json:"from,omitzero"`
}

// Bound is the files of a command that an approval names besides the plan.
type Bound struct {
	Exe Program `json:"exe"`
	// Folder is the command's working folder, without links.
	Folder string  `json:"folder,omitzero"`
	Inputs []Input `json:"inputs"`
	// Named are the other files that the command names: in the workspace or the folder, and elsewhere
	// if others than root can change them.
	Named []Named `json:"named,omitzero"`
}

// Named are the files that a command names besides its inputs: the command gets no copy.
type Named struct {
	// Path is the target of the name. With a link on the way it is the name as the command has it,
	// from the command's folder on.
	Path string `json:"path"`
	// Leads is the target of such a name without links, as far as it is known beforehand.
	Leads string `json:"leads,omitzero"`
	// Digest is of a file that has to be the same when the command begins. It is empty for
	// folders, for files that are too large or cannot be read, for targets of links in the
	// workspace, for names inside a longer text, and for the names of a compensation, since the
	// command itself may have changed those files.
	Digest string `json:"digest,omitzero"`
	// Absent is set for a file that was not there, and which a person therefore has not seen. The
	// command does not begin once it is there.
	Absent bool `json:"absent,omitzero"`
}

// BoundPair is the files of an effect that an approval names: its command's, and its
// compensation's.
type BoundPair struct {
	Command      *Bound `json:"command,omitzero"`
	Compensation *Bound `json:"compensation,omitzero"`
	// Salt keeps everybody from guessing the request by its digest, which is on record, and an
	// actor who may not read the daemon's files from learning about them by it. Requests of
	// earlier versions may have none.
	Salt string `json:"salt,omitzero"`
	// Undo is as of [Approval].
	Undo int `json:"undo,omitzero"`
}

// request is the content of an approval: the plan, and for a command the files that it would run.
func request(taskID string, p *Planned, bound *BoundPair) map[string]any {
	m := map[string]any{
		"v": 1, "task_id": taskID, "type": p.Type(), "idempotency_key": p.Key, "side_effect_kind": p.Kind,
		"command": boundCommand(p.Command, bound.Command), "compensation": boundCommand(p.Compensation, bound.Compensation),
	}
	if p.Command == nil {
		delete(m, "command")
		m["requested_action"] = p.RequestedAction
		m["params"] = p.Params
		if len(p.Params) == 0 {
			m["params"] = nil
		}
	}
	if bound.Undo > 0 {
		m["undo"] = bound.Undo
	}
	return m
}

// boundOf reads the files and the salt that an approval names besides the plan.
func boundOf(taskID string, bound jsontext.Value) (pair BoundPair, _ error) {
	if len(bound) > 0 {
		if err := json.Unmarshal(bound, &pair); err != nil {
			return pair, fmt.Errorf("cannot read what an approval of task %s is of: %w", taskID, err)
		}
	}
	return pair, nil
}

// RequestDigest names exactly what a person approves: SHA-256 over the RFC 8785 form of the
// request and its salt.
func RequestDigest(taskID string, p *Planned, bound *BoundPair) (string, error) {
	m := request(taskID, p, bound)
	if bound.Salt != "" {
		m["salt"] = bound.Salt
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	if err == nil {
		err = (*jsontext.Value)(&text).Canonicalize()
	}
	if err != nil {
		return "", fmt.Errorf("cannot name what is asked for: %w", err)
	}
	return Digest(text), nil
}

func boundCommand(c *Action, b *Bound) any {
	if c == nil {
		return nil
	}
	if b == nil {
		b = new(Bound)
	}
	// Lists and maps that say nothing are written as empty, however they came.
	m := map[string]any{
		"argv": c.Argv, "cwd": c.Cwd, "env": c.Env, "env_from": c.EnvFrom, "timeout_s": c.TimeoutS,
		"exe": b.Exe, "folder": b.Folder, "inputs": b.Inputs, "stdin_sha256": Digest([]byte(c.Stdin)),
	}
	if len(b.Named) > 0 {
		m["named"] = b.Named
	}
	return m
}
