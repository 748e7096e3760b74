// Package releases keeps the approvals for runtimes that deliver by themselves, until the runtime
// has reported the outcome. A runtime redeems an approval once: it gets the message and a claim. It
// sends the message, and confirms the claim with the outcome.
//
// If the connection of an unconfirmed claim ends, the daemon does not guess. The runtime may come
// back within a moment and report; after that a person is asked. The claim stays valid until that
// person has decided.
package releases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// The states besides those of the store. All are final except unknown, which a person ends.
const (
	stateSent      = "sent"
	stateUnknown   = "unknown"
	stateAbandoned = store.ReleaseAbandoned
	stateExpired   = "expired"
	stateWithdrawn = "withdrawn"
)

// grace is the time that a runtime has to come back and report the outcome.
const grace = 5 * time.Second

// Options holds the dependencies of Releases.
type Options struct {
	Store *store.Store
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	// Approvals returns the decider in force.
	Approvals func() *approval.Decider
	// Record begins a record about a request, and Tell enters the notice of an outcome to the app
	// that asked into a change.
	Record func(*approval.Request) *audit.Record
	Tell   func(r *approval.Request, change *store.Change, outcome api.ApprovalOutcome) error
	// Open opens a message that is read back for an app, and returns its decision. If weigh is set,
	// the current state must still allow it.
	Open func(ctx context.Context, row *store.Release, r *approval.Request, weigh bool) (gate.Sealed, *gate.Waited, error)
	// AskAnew enters a request about a message that has waited into a change. It returns the new
	// request's id, or why no approval could release the message.
	AskAnew func(ctx context.Context, w *gate.Waited, anew *gate.Anew, change *store.Change) (id string, why *gate.Withdrawn, err error)
	// Withdrawn tells the person who approved a message that it was withdrawn.
	Withdrawn func(approvalID string, why *gate.Withdrawn)
	// Search looks for records.
	Search func(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
	// HoldFor returns how long a request waits for a person.
	HoldFor func() time.Duration
	Now     func() time.Time
	NewID   func() string
	// Closing ends with the daemon: claims that are open then are handled after the start.
	Closing context.Context
	Log     *zap.Logger
}

// Releases are all approvals for runtimes that deliver by themselves. They are safe for concurrent
// use.
type Releases struct {
	o     Options
	locks keylock.Locks

	mu sync.Mutex
	// holders are the connections with claims, by approval.
	holders map[string]*holder
}

// New loads the releases from the store.
func New(ctx context.Context, o Options) (*Releases, error) {
	x := &Releases{o: o, holders: make(map[string]*holder)}
	open, err := o.Store.OpenReleases(ctx)
	x.await(open)
	return x, err
}

// Enter enters into the change of a decision that its message may be redeemed.
func Enter(change *store.Change, r *approval.Request, origin string, data []byte, until time.Time) {
	change.Add(&store.Release{Approval: r.ApprovalID, AppID: r.AppID, State: store.ReleaseReady, Origin: origin, Data: data, ExpiresAt: until})
}

// State returns the state of a request's release, "" if it has none.
func (x *Releases) State(ctx context.Context, id string) (string, error) {
	row, err := x.o.Store.Release(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return row.State, err
}

// Ready lists the messages that an app can redeem, of requests that are still its own.
func (x *Releases) Ready(ctx context.Context, app string, own func(*approval.Request) bool) (api.RedeemableResult, error) {
	result := api.RedeemableResult{Approvals: []api.Redeemable{}}
	rows, err := x.o.Store.ReadyReleases(ctx, app, "", x.o.Now(), api.MaxPage)
	for i := range rows {
		r, err := x.o.Approvals().Get(ctx, rows[i].Approval)
		if err != nil {
			return result, err
		}
		if r.Kind != api.ApprovalOfMessage || !own(r) {
			continue
		}
		said, err := x.read(ctx, &rows[i], r)
		if err != nil {
			return result, err
		}
		origin := ""
		if said != nil {
			origin, _ = api.Text(said.Metadata["origin"])
		}
		result.Approvals = append(result.Approvals, api.Redeemable{
			ApprovalID: r.ApprovalID, DispatchID: r.DispatchID, SessionKey: r.SessionKey, Origin: origin, ExpiresAt: rows[i].ExpiresAt.UnixMilli(),
		})
	}
	return result, err
}

// read returns the message of a release as it was allowed, nil if no record allows the stored
// message.
func (x *Releases) read(ctx context.Context, row *store.Release, r *approval.Request) (*api.EmittedMessage, error) {
	_, w, err := x.o.Open(ctx, row, r, false)
	switch {
	case errors.Is(err, gate.ErrUndecided):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return w.Form.(*api.EmittedMessage), nil
}

// load returns an app's release and its request.
func (x *Releases) load(ctx context.Context, app, id string) (store.Release, *approval.Request, error) {
	row, err := x.o.Store.Release(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.AppID != app && !mutant.Off("release-owner") {
		return row, nil, api.Errorf(api.NotFound, "there is no approval %q whose message can be redeemed", id)
	}
	if err != nil {
		return row, nil, err
	}
	r, err := x.o.Approvals().Get(ctx, id)
	if err == nil && r.Kind != api.ApprovalOfMessage {
		err = api.Errorf(api.NotFound, "there is no approval %q whose message can be redeemed", id)
	}
	return row, r, err
}

// Redeem gives an app an approved message, once. May refuses a message that may not leave now. The
// context is the connection's: the claim belongs to that connection until it ends.
func (x *Releases) Redeem(ctx context.Context, app string, p *api.RedeemParams, may func(*approval.Request) error) (api.RedeemAnswer, error) {
	defer x.locks.Lock(p.ApprovalID)()
	row, r, err := x.load(ctx, app, p.ApprovalID)
	if err != nil {
		return api.RedeemAnswer{}, err
	}
	if err := may(r); err != nil {
		return api.RedeemAnswer{}, err
	}
	if r.State != api.ApprovalApproved && r.State != api.ApprovalTakenOver {
		return api.RedeemAnswer{}, over(stateAbandoned)
	}
	again := p.RequestKey != "" && row.Key == p.RequestKey && (row.State == store.ReleaseClaimed || row.State == stateUnknown)
	switch {
	case again, row.State == store.ReleaseReady && x.o.Now().Before(row.ExpiresAt), row.State == store.ReleaseClaimed && mutant.Off("redeem-once"):
	case row.State == store.ReleaseReady:
		return api.RedeemAnswer{}, errors.Join(x.lapseLocked(&row, r), over(stateExpired))
	default:
		return api.RedeemAnswer{}, over(row.State)
	}
	sealed, err := x.open(ctx, &row, r)
	if err != nil {
		return api.RedeemAnswer{}, err
	}
	if again && row.State == store.ReleaseClaimed {
		x.hold(ctx, row.Approval, row.Claim)
		return api.RedeemAnswer{Claim: row.Claim, Data: sealed, Replayed: true}, nil
	}
	if !api.There(ctx) {
		return api.RedeemAnswer{}, api.ErrGone
	}
	change := &store.Change{}
	x.event(change, r, "redeemed", "the app that asked has taken what it may send", nil)
	claim := row.Approval + "." + x.o.NewID()
	step(change, &row, store.ReleaseClaimed, claim, p.RequestKey, row.Data)
	if again {
		if err := x.withdraw(ctx, r, app, change); err != nil {
			return api.RedeemAnswer{}, err
		}
	}
	if _, err := x.o.Commit(change); err != nil {
		return api.RedeemAnswer{}, err
	}
	x.hold(ctx, row.Approval, claim)
	result := api.RedeemAnswer{Claim: claim, Data: sealed, Replayed: again}
	result.Watch(func(written bool) {
		if !written {
			x.giveBack(app, claim)
		}
	})
	return result, nil
}

// open opens a message for an app, if it may still be sent. Otherwise the message is withdrawn, or
// a person is asked again. It leaves alone a row that can be given to nobody.
func (x *Releases) open(ctx context.Context, row *store.Release, r *approval.Request) (gate.Sealed, error) {
	if len(row.Data) == 0 {
		return gate.Sealed{}, nil
	}
	sealed, w, err := x.o.Open(ctx, row, r, true)
	why, isWithdrawn := errors.AsType[*gate.Withdrawn](err)
	anew, isAnew := errors.AsType[*gate.Anew](err)
	switch {
	case errors.Is(err, gate.ErrUndecided):
		why = &gate.Withdrawn{Code: string(ocip.PolicyDenied), Reason: "no record lets the message through as it is stored"}
	case !isWithdrawn && !isAnew:
		return sealed, err
	}
	if isAnew && row.State != store.ReleaseReady {
		// The message may be sent already: a second copy needs no request of its own.
		return gate.Sealed{}, api.Obstacle{State: row.State, Blocked: anew.Reason}.Conflict(ocip.ChangedSince, "this message was redeemed already and something changed since, so it is not handed out again; confirm what became of it: "+anew.Reason)
	}
	change := &store.Change{Drains: true}
	if isAnew {
		var id string
		if id, why, err = x.o.AskAnew(ctx, w, anew, change); err != nil {
			return gate.Sealed{}, err
		}
		if why == nil {
			if err := x.withdrawn(change, row, r, "asked_anew", anew.Reason, map[string]any{"anew": id}); err != nil {
				return gate.Sealed{}, err
			}
			return gate.Sealed{}, api.Obstacle{State: stateWithdrawn, Blocked: anew.Reason}.Conflict(ocip.ChangedSince, "something changed since the message was approved, so a person is asked anew as approval "+id+": "+anew.Reason)
		}
	}
	event := "withdrawn"
	if w == nil {
		event = "undecided_message"
	}
	if err := x.withdrawn(change, row, r, event, why.Reason, map[string]any{"code": why.Code}); err != nil {
		return gate.Sealed{}, err
	}
	x.o.Withdrawn(r.ApprovalID, why)
	return gate.Sealed{}, &api.Error{Code: api.Forbidden, Message: "the message may not leave any more: " + why.Reason, Details: api.OCIP(ocip.Code(why.Code), why.Reason)}
}

// withdrawn records that a message is not given to its app. If the app may have sent it already, it
// stays claimed.
func (x *Releases) withdrawn(change *store.Change, row *store.Release, r *approval.Request, event, reason string, details map[string]any) error {
	details["reason"], details["decidedBy"] = reason, row.RecordSeq
	x.event(change, r, event, reason, details)
	last := change.Records[len(change.Records)-1]
	if event == "undecided_message" {
		last.ActionType, last.PolicyResult = audit.ActionSecurity, string(ocip.Deny)
	} else {
		last.Outcome = event
	}
	if row.State == store.ReleaseReady {
		step(change, row, stateWithdrawn, "", "", nil)
	}
	_, err := x.o.Commit(change)
	return err
}

// over returns the error for a message that cannot be redeemed.
func over(state string) error {
	what := map[string]string{
		store.ReleaseClaimed: "it was redeemed already, and is not confirmed", stateUnknown: "it was redeemed already, and a person is asked what became of it",
		stateSent: "it was sent already", stateAbandoned: "a person has given it up", stateExpired: "its time is over",
		stateWithdrawn: "it may not leave any more, or a person is asked about it anew",
	}[state]
	return api.Obstacle{State: state}.Conflict(api.AlreadyRedeemed, "this message cannot be redeemed: "+what)
}

// While calls a function while nobody can redeem or confirm the message of a request.
func (x *Releases) While(id string, do func() error) error {
	defer x.locks.Lock(id)()
	return do()
}

// step enters the next state of a release. A release that ends drops its text.
func step(change *store.Change, row *store.Release, state, claim, key string, data []byte) {
	next := *row
	next.From, next.FromClaim = row.State, row.Claim
	next.State, next.Claim, next.Key, next.Data = state, claim, key, data
	change.Add(&next)
}

// event enters a record about a release.
func (x *Releases) event(change *store.Change, r *approval.Request, event, reason string, details map[string]any) {
	record := x.o.Record(r)
	record.ID, record.ActionType, record.Event, record.PolicyReason, record.Details = x.o.NewID(), audit.ActionDelivery, event, reason, details
	change.Records = append(change.Records, record)
}

// Confirm takes an app's report about a message.
func (x *Releases) Confirm(ctx context.Context, app string, p *api.ConfirmParams) (api.OK, error) {
	if p.DispatchID != "" {
		return x.confirmSent(ctx, app, p)
	}
	id, _, _ := strings.Cut(p.Claim, ".")
	defer x.locks.Lock(id)()
	row, r, err := x.load(ctx, app, id)
	if err != nil {
		return api.OK{}, api.Errorf(api.NotFound, "there is no such claim")
	}
	if row.Claim != p.Claim || row.State != store.ReleaseClaimed && row.State != stateUnknown {
		return api.OK{}, api.Obstacle{State: row.State}.Conflict(api.AlreadyRedeemed, "the claim is over: the message is "+row.State)
	}
	change := &store.Change{Drains: true}
	details := map[string]any{"outcome": p.Outcome}
	if p.Note != "" {
		details["note"] = p.Note
	}
	x.event(change, r, eventOf(p.Outcome), reasonOf(p.Outcome), details)
	switch p.Outcome {
	case api.OutcomeSent:
		step(change, &row, stateSent, row.Claim, "", nil)
	case api.OutcomeNotSent:
		step(change, &row, store.ReleaseReady, "", "", row.Data)
	default:
		if row.State == stateUnknown {
			return api.OK{OK: true}, nil
		}
		step(change, &row, stateUnknown, row.Claim, row.Key, row.Data)
		err = x.ask(r, &row, takenThen, change)
	}
	if err == nil && row.State == stateUnknown {
		err = x.withdraw(ctx, r, app, change)
	}
	if err == nil {
		_, err = x.o.Commit(change)
	}
	if err != nil {
		return api.OK{}, err
	}
	x.drop(id)
	return api.OK{OK: true}, nil
}

func eventOf(outcome string) string {
	switch outcome {
	case api.OutcomeSent:
		return "delivered"
	case api.OutcomeNotSent:
		return "not_taken"
	default:
		return "outcome_unknown"
	}
}

func reasonOf(outcome string) string {
	switch outcome {
	case api.OutcomeSent:
		return "the app says that it has sent the message"
	case api.OutcomeNotSent:
		return "the app says that it has not sent the message"
	default:
		return "nobody knows whether the message was sent"
	}
}

// giveBack takes back a claim that certainly never reached its app.
func (x *Releases) giveBack(app, claim string) {
	_, err := x.Confirm(context.Background(), app, &api.ConfirmParams{Claim: claim, Outcome: api.OutcomeNotSent, Note: "the connection ended before the answer was written"})
	if err != nil && api.AsError(err).Code != api.Conflict {
		x.o.Log.Error("cannot take a claim back that nobody got", zap.Error(err))
	}
}

// sweepPage is the number of expired releases that are read at a time.
const sweepPage = 64

// Sweep ends releases that nobody redeemed in time. The record says that the message was approved
// and not sent.
func (x *Releases) Sweep(ctx context.Context) error {
	for {
		rows, err := x.o.Store.ExpiredReleases(ctx, x.o.Now(), sweepPage)
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			if err := x.lapse(ctx, rows[i].Approval); err != nil {
				return err
			}
		}
	}
}

func (x *Releases) lapse(ctx context.Context, id string) error {
	defer x.locks.Lock(id)()
	row, err := x.o.Store.Release(ctx, id)
	if err != nil || row.State != store.ReleaseReady {
		return err
	}
	r, err := x.o.Approvals().Get(ctx, id)
	if err != nil {
		return err
	}
	return x.lapseLocked(&row, r)
}

func (x *Releases) lapseLocked(row *store.Release, r *approval.Request) error {
	change := &store.Change{Drains: true}
	switch {
	case r.Kind == api.ApprovalOfMessage:
		x.event(change, r, "approved_not_sent", "the message was approved, and its app has not taken it in time", nil)
	case r.State == api.ApprovalApproved:
		x.event(change, r, "approved_not_used", "the tool call was approved, and its runtime has not asked again in time", nil)
	}
	step(change, row, stateExpired, "", "", nil)
	_, err := x.o.Commit(change)
	return err
}

// Allowed returns the function to call if nobody took the answer that allowed an app to send a
// message without approval.
func (x *Releases) Allowed(sent *audit.Record) (lost func(written bool)) {
	app, id := sent.AppID, sent.DispatchID
	return func(written bool) {
		why := "the connection ended before the answer was written"
		if written {
			why = "the connection ended before the answer is known to be read"
		}
		defer x.locks.Lock(id)()
		r, err := x.onRecord(context.Background(), app, id)
		if err == nil && r != nil {
			err = x.record(r, "not_taken", why+"; its round stays", nil)
		}
		if err != nil {
			x.o.Log.Error("cannot record that nobody took a message", zap.Error(err))
		}
	}
}

// about returns the part of a message's record that records of its outcome repeat.
func about(sent *audit.Record) *audit.Record {
	return &audit.Record{
		AppID: sent.AppID, TenantID: sent.TenantID, UserID: sent.UserID, AgentID: sent.AgentID, Side: sent.Side, SessionKey: sent.SessionKey,
		Counterparty: sent.Counterparty, ExchangeID: sent.ExchangeID, ConversationID: sent.ConversationID, ExchangeType: sent.ExchangeType,
		Round: sent.Round, MaxRounds: sent.MaxRounds, Classification: sent.Classification, TaskID: sent.TaskID, DispatchID: sent.DispatchID,
	}
}

func (x *Releases) record(about *audit.Record, event, reason string, details map[string]any) error {
	r := *about
	r.ID, r.ActionType, r.Event, r.PolicyReason, r.Details = x.o.NewID(), audit.ActionDelivery, event, reason, details
	_, err := x.o.Commit(&store.Change{Records: []*audit.Record{&r}, Drains: true})
	return err
}

// confirmSent takes an app's report about a message that needed no approval.
func (x *Releases) confirmSent(ctx context.Context, app string, p *api.ConfirmParams) (api.OK, error) {
	defer x.locks.Lock(p.DispatchID)()
	r, err := x.onRecord(ctx, app, p.DispatchID)
	if err != nil {
		return api.OK{}, err
	}
	if r == nil {
		return api.OK{}, api.Errorf(api.NotFound, "no message %q was let go to this app, or what became of it is on record already", p.DispatchID)
	}
	details := map[string]any{"outcome": p.Outcome}
	if p.Note != "" {
		details["note"] = p.Note
	}
	return api.OK{OK: true}, x.record(r, eventOf(p.Outcome), reasonOf(p.Outcome), details)
}

// onRecord finds a message that an app may send without approval, if no record has its outcome yet.
// The caller holds the message's lock.
func (x *Releases) onRecord(ctx context.Context, app, dispatchID string) (sent *audit.Record, err error) {
	for before := uint64(0); ; {
		lines, next, err := x.o.Search(ctx, audit.Filter{Like: audit.Record{DispatchID: dispatchID}}, before, searchPage)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			e, err := x.o.Store.WrittenAs(ctx, line)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			switch {
			case e.AppID != app, e.ActionType == audit.ActionDelivery, e.ApprovalID != "":
				return nil, nil
			case e.Side == audit.SideSender && e.PolicyResult == audit.ResultAllow && e.Details["carried"] == true:
				sent = about(&e.Record)
			}
		}
		if before = next; next == 0 {
			return sent, nil
		}
	}
}

// searchPage is the number of records of one message that are read at a time.
const searchPage = 16

// Emitted marks the request key of a message that its runtime delivers by itself.
const Emitted = "agent.emit"

// Asked replaces a message's request key by its dispatchId, for a caller that never got the answer.
// If the message is held and was not sent, it returns the withdrawal of the pending request.
func (x *Releases) Asked(ctx context.Context, asker string, p *api.ConfirmParams) (waits *api.WithdrawParams, err error) {
	if p.RequestKey == "" {
		return nil, nil
	}
	before, err := x.o.Store.RequestOf(ctx, asker, p.RequestKey, x.o.Now())
	if errors.Is(err, store.ErrNotFound) || err == nil && before.Asked != Emitted {
		return nil, api.Errorf(api.NotFound, "no message was let go, or held, under the key %s", p.RequestKey)
	}
	var was api.AgentSent
	if err == nil {
		err = json.Unmarshal(before.Result, &was)
	}
	if err == nil && was.Status == api.SentHeld {
		if p.Outcome != api.OutcomeNotSent {
			return nil, api.Errorf(api.Conflict, "the message of the key %s is held: it cannot have been sent", p.RequestKey)
		}
		return &api.WithdrawParams{ApprovalID: was.ApprovalID, Note: p.Note}, nil
	}
	p.DispatchID = was.DispatchID
	return nil, err
}

// kept is the stored part of a request about a delivery: the original approval.
type kept struct {
	Approval string `json:"approval"`
}

func asked(id string) string { return approval.Asked(api.ApprovalOfDelivery, id) }

// ask enters a request about a message's outcome into a change.
func (x *Releases) ask(r *approval.Request, row *store.Release, why string, change *store.Change) error {
	own, err := json.Marshal(&kept{Approval: r.ApprovalID})
	if err != nil {
		return err
	}
	now := x.o.Now()
	about := &approval.Request{Asked: asked(r.ApprovalID), Own: own, Tenant: r.Tenant, Approval: api.Approval{ApprovalSummary: r.ApprovalSummary, PolicyApplied: "delivery", PolicyRevision: r.PolicyRevision}}
	about.ApprovalID, about.Kind, about.State, about.Code = x.o.NewID(), api.ApprovalOfDelivery, api.ApprovalPending, string(api.OutcomeNotKnown)
	about.Reason = why + ": approve to have it sent again, resolve where it was sent, deny to give it up"
	about.AskedAt, about.ExpiresAt, about.DecidedAt = now.UnixMilli(), now.Add(x.o.HoldFor()).UnixMilli(), 0
	about.Approvable, about.Blocked, about.Needed, about.Given = true, "", max(r.Needed, 1), 0
	said, err := x.read(context.Background(), row, r)
	if err != nil {
		return err
	}
	if said != nil {
		about.Content, about.ContentBytes = said.Content.Inspect(), said.Content.Len()
	}
	s, err := x.Subject(about)
	if err != nil {
		return err
	}
	if err := s.Preview(context.Background(), now); err != nil {
		return err
	}
	return x.o.Approvals().Add(about, s, change)
}

// withdraw enters into a change that a request about a message's outcome is no longer needed.
func (x *Releases) withdraw(ctx context.Context, r *approval.Request, app string, change *store.Change) error {
	d := x.o.Approvals()
	id := d.Waiting(api.ApprovalOfDelivery, r.Agent, func() string { return asked(r.ApprovalID) })
	if id == "" {
		return nil
	}
	about, err := d.Get(ctx, id)
	if err != nil || about.State != api.ApprovalPending {
		return err
	}
	by := api.ApprovalDecision{Decision: api.DecideRevoke, By: app, Note: "the app has said what became of it", At: x.o.Now().UnixMilli()}
	return d.EndWithState(about, &by, api.ApprovalRevoked, change)
}

// subject is a message whose outcome a person reports.
type subject struct {
	x        *Releases
	r        *approval.Request
	original string
}

// Subject returns the subject of a request about a delivery.
func (x *Releases) Subject(r *approval.Request) (approval.Subject, error) {
	var own kept
	if err := json.Unmarshal(r.Own, &own); err != nil {
		// A decided request keeps nothing, and nobody decides again.
		own.Approval = r.ApprovalID
	}
	return &subject{x: x, r: r, original: own.Approval}, nil
}

// Lock takes the lock of the approved message.
func (s *subject) Lock() (unlock func()) { return s.x.locks.Lock(s.original) }

// Takes accepts the decisions about a message that may have been sent.
func (s *subject) Takes(decision string) error {
	if slices.Contains(api.DecisionsOf(api.ApprovalOfDelivery), decision) {
		return nil
	}
	return api.Errorf(api.InvalidParams, "decision: approve has the message sent again, resolve says that it was sent, deny gives it up")
}

// Preview checks whether there is still time to send it.
func (s *subject) Preview(ctx context.Context, now time.Time) error {
	row, err := s.x.o.Store.Release(ctx, s.original)
	if err != nil {
		return err
	}
	s.r.Blocked = ""
	if !now.Before(row.ExpiresAt) {
		s.r.Blocked = "its time is over"
	}
	s.r.Approvable = s.r.Blocked == ""
	return nil
}

// Shown returns the approved message.
func (s *subject) Shown() approval.View {
	return approval.View{
		Asked: []string{s.original, s.r.SessionKey}, Effect: s.r.Content, Approvable: "may be sent again once approved",
		Refused: "it cannot be sent again", Instead: "resolve it where it was sent, or deny it",
	}
}

// Release lets the message be redeemed again.
func (s *subject) Release(ctx context.Context, d *approval.Decision) error {
	if err := s.move(ctx, d.Change, store.ReleaseReady); err != nil {
		return err
	}
	if err := d.Conclude(api.ApprovalApproved, nil); err != nil {
		return err
	}
	_, err := s.x.o.Commit(d.Change)
	return err
}

// End enters a person's other decision.
func (s *subject) End(ctx context.Context, d *approval.Decision, state string) error {
	switch state {
	case api.ApprovalResolved:
		return s.move(ctx, d.Change, stateSent)
	case api.ApprovalRevoked:
		return nil
	default:
		return s.move(ctx, d.Change, stateAbandoned)
	}
}

func (s *subject) move(ctx context.Context, change *store.Change, state string) error {
	row, err := s.x.o.Store.Release(ctx, s.original)
	if err != nil {
		return err
	}
	data := row.Data
	if state != store.ReleaseReady {
		data = nil
	}
	step(change, &row, state, "", "", data)
	return nil
}

// Record begins a record about the message.
func (s *subject) Record() *audit.Record { return s.x.o.Record(s.r) }

// Tell tells the app that asked that it may redeem the message again.
func (s *subject) Tell(change *store.Change, outcome api.ApprovalOutcome) error {
	if outcome.Resolution != api.ApprovalApproved {
		return nil
	}
	outcome.ApprovalID = s.original
	return s.x.o.Tell(s.r, change, outcome)
}
