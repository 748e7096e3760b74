package kernel

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// concern is a verdict that a person of an agent has to see to, though no message
// of the agent's waits for it: something arrived that only a person may answer, or
// an exchange came to its limit or to an error.
type concern struct {
	agent      *Agent
	other      ocip.Counterparty
	key        string
	summary    string
	dispatchID string
	// known is set where a person of this daemon has just seen the message and let
	// it through: nobody is told twice.
	known bool
}

func (a *arrival) concern() *concern {
	return &concern{agent: a.agent, other: a.from, key: a.key, summary: ocip.Summarize(a.content), dispatchID: a.dispatchID, known: a.approved}
}

func (m *outgoing) concern() *concern {
	return &concern{agent: m.sender, other: m.to, key: m.key, summary: ocip.Summarize(m.content), dispatchID: m.dispatchID}
}

// nothingWaits is why an escalation cannot be approved.
const nothingWaits = "nothing waits to be sent: answer yourself, let the agent's own answer go when it asks, or resolve the exchange"

// tellPerson enters into a verdict's change what a person has to see to, once for
// an exchange, and has people told when that is durable. Where as many wait for the
// agent's person as may, the record alone says it.
func (k *ruleset) tellPerson(c *concern, v *ocip.Verdict, change *store.Change, now time.Time) error {
	reason := v.ForPerson
	if reason == "" && v.Result == ocip.RequireApproval {
		reason = v.Reason
	}
	e := &v.Exchange
	if reason == "" || e.ID == "" || c.known {
		return nil
	}
	asked := escalationAsked(e)
	if !k.requests.Room(api.ApprovalOfEscalation, c.agent.InstanceID, asked, k.cfg.MaxHeld) {
		return nil
	}
	id := k.newID()
	expires := k.waitsUntil(e, now)
	code := v.Code
	if code == "" {
		code = ocip.CommitmentRequiresHuman
	}
	r := &approval.Request{
		Asked: asked,
		Approval: api.Approval{
			ApprovalSummary: api.ApprovalSummary{
				ApprovalID: id, Kind: api.ApprovalOfEscalation, CounterpartyKind: ocip.KindAgent, Code: string(code), Reason: reason,
				AgentID: c.agent.ID, Agent: c.agent.InstanceID, AppID: c.agent.App, UserID: c.agent.UserID, SessionKey: c.key,
				Counterparty: c.other.InstanceID, CounterpartyUserID: c.other.UserID, ExchangeID: e.ID, ConversationID: e.ConversationID,
				Type: e.Type, Round: e.Round, MaxRounds: e.MaxRounds, Classification: v.Level.String(), Summary: c.summary, DispatchID: c.dispatchID,
				AskedAt: now.UnixMilli(), ExpiresAt: expires.UnixMilli(), Blocked: nothingWaits, Needed: 1,
			},
			PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Transcript: e.Transcript, Detections: detections(v),
		},
	}
	if payload, ok := v.Details["escalation"].(ocip.Escalation); ok {
		r.Escalation = &payload
	}
	if err := k.requests.Add(r, &escalation{k: k, r: r}, change); err != nil {
		return err
	}
	record := k.requestRecord(r)
	record.ID, record.ActionType, record.Event = k.newID(), audit.ActionApproval, "escalated"
	record.PolicyReason, record.Details = reason, make(map[string]any)
	if err := k.named(record, r); err != nil {
		return err
	}
	change.Records = append(change.Records, record)
	return nil
}

// escalationAsked names the escalation of one side of an exchange among what waits.
func escalationAsked(e *ocip.Exchange) string {
	return approval.Asked(api.ApprovalOfEscalation, e.ID, e.Agent)
}

// seenTo enters that what a person had to see to in an exchange is seen to: the
// person has spoken in it.
func (k *ruleset) seenTo(ctx context.Context, d *approval.Decision, e *ocip.Exchange) error {
	if e.ID == "" {
		return nil
	}
	id := k.requests.Waiting(api.ApprovalOfEscalation, e.Agent, func() string { return escalationAsked(e) })
	if id == "" {
		return nil
	}
	r, err := k.requests.Get(ctx, id)
	if err != nil || r.State != api.ApprovalPending {
		return err
	}
	return k.decider().EndWith(r, &d.By, d.Change)
}

// escalation is what a person of an agent has to see to, and that nothing waits for.
type escalation struct {
	k *ruleset
	r *approval.Request
}

// Lock takes the lock of the exchange's two ends.
func (s *escalation) Lock() (unlock func()) { return s.k.lockEnds(s.r) }

// Takes refuses to approve or to take over what nothing waits for.
func (s *escalation) Takes(decision string) error {
	if decision == api.DecideApprove || decision == api.DecideTakeover || decision == api.DecideChanges {
		return api.Obstacle{Blocked: nothingWaits}.Conflict(api.ApprovalBlocked, "this cannot be approved or taken over: "+nothingWaits)
	}
	return nil
}

// Preview has nothing to work out.
func (s *escalation) Preview(context.Context, time.Time) error { return nil }

// Shown names the session that it is about.
func (s *escalation) Shown() approval.View { return approval.View{Asked: []string{s.r.SessionKey}} }

// Release has nothing to let go.
func (s *escalation) Release(context.Context, *approval.Decision) error {
	return s.Takes(api.DecideApprove)
}

// End ends the exchange.
func (s *escalation) End(ctx context.Context, d *approval.Decision, state string) error {
	return s.k.endRequest(ctx, d, state)
}

// Record begins a record about the escalation.
func (s *escalation) Record() *audit.Record { return s.k.requestRecord(s.r) }

// Tell tells nobody: no app asked for it.
func (s *escalation) Tell(*store.Change, api.ApprovalOutcome) error { return nil }
