package exchanges

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Concern is a message that an agent's person may have to look at, without a message of the agent
// waiting for it. Either something arrived that only a person may answer, or an exchange reached
// its limit or an error.
type Concern struct {
	Agent                    *directory.Agent
	Other                    ocip.Counterparty
	Key, Summary, DispatchID string
	// Known is set if a person of this daemon has just seen the message and approved it. Nobody is
	// notified twice.
	Known bool
}

// nothingWaits is the reason that an escalation cannot be approved.
const nothingWaits = "nothing waits to be sent: answer yourself, let the agent's own answer go when it asks, or resolve the exchange"

// Escalate enters a request for a person's attention into a verdict's change, once per exchange,
// and notifies people when that is durable. If the agent already has its limit of pending requests,
// only the record says it.
func (x *Exchanges) Escalate(c *Concern, v *ocip.Verdict, rules *Rules, change *store.Change, now time.Time) error {
	reason := v.ForPerson
	if reason == "" && v.Result == ocip.RequireApproval {
		reason = v.Reason
	}
	e := &v.Exchange
	if reason == "" || e.ID == "" || c.Known {
		return nil
	}
	asked := escalationAsked(e)
	room := rules.MaxHeld
	if c.Other.Kind != ocip.KindAgent {
		// A sender whose identity is only its own claim leaves half of the places to known ones.
		room = max(1, room/2)
	}
	if !x.o.Requests.Room(api.ApprovalOfEscalation, c.Agent.InstanceID, asked, room) {
		return nil
	}
	code := v.Code
	if code == "" {
		code = ocip.CommitmentRequiresHuman
	}
	r := &approval.Request{
		Asked: asked,
		Approval: api.Approval{
			ApprovalSummary: api.ApprovalSummary{
				ApprovalID: x.o.NewID(), Kind: api.ApprovalOfEscalation, CounterpartyKind: ocip.KindAgent, Code: string(code), Reason: reason,
				AgentID: c.Agent.ID, Agent: c.Agent.InstanceID, AppID: c.Agent.App, UserID: c.Agent.UserID, SessionKey: c.Key,
				Counterparty: c.Other.InstanceID, CounterpartyUserID: c.Other.UserID, ExchangeID: e.ID, ConversationID: e.ConversationID,
				Type: e.Type, Round: e.Round, MaxRounds: e.MaxRounds, Classification: v.Level.String(), Summary: c.Summary, DispatchID: c.DispatchID,
				AskedAt: now.UnixMilli(), ExpiresAt: rules.WaitsUntil(e, now).UnixMilli(), Blocked: nothingWaits, Needed: 1,
			},
			PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Transcript: e.Transcript, Detections: approval.Detections(v),
		},
	}
	if payload, ok := v.Details["escalation"].(ocip.Escalation); ok {
		r.Escalation = &payload
	}
	if err := x.o.Requests.Add(r, x.Escalation(r, rules.Directory), change); err != nil {
		return err
	}
	record := Asking(r, rules.Directory)
	record.ID, record.ActionType, record.Event = x.o.NewID(), audit.ActionApproval, "escalated"
	record.PolicyReason, record.Details = reason, make(map[string]any)
	if err := rules.Name(record, r); err != nil {
		return err
	}
	change.Records = append(change.Records, record)
	return nil
}

// escalationAsked names the pending escalation of one side of an exchange.
func escalationAsked(e *ocip.Exchange) string {
	return approval.Asked(api.ApprovalOfEscalation, e.ID, e.Agent)
}

// SeenTo enters that the escalation of an exchange is resolved: the person has spoken in it.
func (x *Exchanges) SeenTo(ctx context.Context, d *approval.Decision, e *ocip.Exchange, decider *approval.Decider) error {
	if e.ID == "" {
		return nil
	}
	id := x.o.Requests.Waiting(api.ApprovalOfEscalation, e.Agent, func() string { return escalationAsked(e) })
	if id == "" {
		return nil
	}
	r, err := x.o.Requests.Get(ctx, id)
	if err != nil || r.State != api.ApprovalPending {
		return err
	}
	return decider.EndWith(r, &d.By, d.Change)
}

// Escalation returns the subject of a request for attention, without a held message.
func (x *Exchanges) Escalation(r *approval.Request, d *directory.Directory) approval.Subject {
	return &escalation{x: x, r: r, directory: d}
}

type escalation struct {
	x         *Exchanges
	r         *approval.Request
	directory *directory.Directory
}

// Lock takes the lock of the exchange's two ends.
func (s *escalation) Lock() (unlock func()) { return s.x.Lock(s.r) }

// Takes refuses approval and takeover: there is no message to send.
func (s *escalation) Takes(decision string) error {
	if decision == api.DecideApprove || decision == api.DecideTakeover || decision == api.DecideChanges {
		return api.Obstacle{Blocked: nothingWaits}.Conflict(api.ApprovalBlocked, "this cannot be approved or taken over: "+nothingWaits)
	}
	return nil
}

// Preview does nothing.
func (s *escalation) Preview(context.Context, time.Time) error { return nil }

// Shown names the session of the escalation.
func (s *escalation) Shown() approval.View { return approval.View{Asked: []string{s.r.SessionKey}} }

// Release returns an error: there is no message to send.
func (s *escalation) Release(context.Context, *approval.Decision) error {
	return s.Takes(api.DecideApprove)
}

// End ends the exchange.
func (s *escalation) End(ctx context.Context, d *approval.Decision, state string) error {
	return s.x.End(ctx, d, state, s.directory)
}

// Record begins a record about the escalation.
func (s *escalation) Record() *audit.Record { return Asking(s.r, s.directory) }

// Tell tells nobody: no app asked for it.
func (s *escalation) Tell(*store.Change, api.ApprovalOutcome) error { return nil }
