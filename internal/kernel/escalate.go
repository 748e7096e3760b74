package kernel

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
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
	if !k.holds.room(c.agent.InstanceID, asked, k.cfg.MaxHeld) {
		return nil
	}
	id := k.newID()
	expires := k.waitsUntil(e, now)
	code := v.Code
	if code == "" {
		code = ocip.CommitmentRequiresHuman
	}
	h := &held{
		Asked: asked, Metadata: "{}",
		Approval: api.Approval{
			ApprovalSummary: api.ApprovalSummary{
				ApprovalID: id, Kind: api.ApprovalOfEscalation, CounterpartyKind: ocip.KindAgent, Code: string(code), Reason: reason,
				AgentID: c.agent.ID, Agent: c.agent.InstanceID, AppID: c.agent.App, UserID: c.agent.UserID, SessionKey: c.key,
				Counterparty: c.other.InstanceID, CounterpartyUserID: c.other.UserID, ExchangeID: e.ID, ConversationID: e.ConversationID,
				Type: e.Type, Round: e.Round, MaxRounds: e.MaxRounds, Classification: v.Level.String(), Summary: c.summary, DispatchID: c.dispatchID,
				AskedAt: now.UnixMilli(), ExpiresAt: expires.UnixMilli(), Blocked: nothingWaits, Needed: 1,
			},
			SignatureRequired: k.signers != nil, PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Transcript: e.Transcript, Detections: detections(v),
		},
	}
	if escalation, ok := v.Details["escalation"].(ocip.Escalation); ok {
		h.Escalation = &escalation
	}
	h.name()
	stored, err := h.encode(api.ApprovalPending)
	if err != nil {
		return err
	}
	stored.New = true
	change.Approvals = append(change.Approvals, stored)
	r := k.approvalRecord(h, "escalated")
	r.PolicyReason, r.Details = reason, map[string]any{"digest": h.Digest, "expiresAt": h.ExpiresAt}
	change.Records = append(change.Records, r)
	change.OnDurable(func(store.Receipt) {
		k.holds.enter(h)
		if k.notify != nil {
			k.notify.Held(h.ApprovalSummary)
		}
	})
	return nil
}

// escalationAsked names the escalation of one side of an exchange among what waits.
func escalationAsked(e *ocip.Exchange) string { return escalations + digestOf(e.ID, e.Agent) }

// seenTo enters that what a person had to see to in an exchange is seen to: the
// person has spoken in it.
func (k *ruleset) seenTo(ctx context.Context, d *decision) (*held, error) {
	e := &d.st.exchange
	id := k.holds.named(e.Agent, escalationAsked(e))
	if e.ID == "" || id == "" {
		return nil, nil
	}
	h, err := k.lookUp(ctx, id)
	if err != nil || h.State != api.ApprovalPending {
		return nil, err
	}
	done := &decision{ApprovalResolveParams: d.ApprovalResolveParams, by: d.by, h: h, now: d.now, change: d.change}
	return h, k.conclude(done, api.ApprovalResolved, nil)
}
