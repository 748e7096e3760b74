package exchanges

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Lock takes the lock of the two ends that a request is between: whatever is decided
// between them is decided one after the other.
func (x *Exchanges) Lock(r *approval.Request) (unlock func()) {
	return x.o.State.Lock(r.Agent, exchange.OtherEnd(r.Counterparty, r.SessionKey))
}

// End enters into a decision's change what it means for the exchange of a request
// that a person has denied or resolved it, or that time ended what waited. It is
// called under the lock of the request.
func (x *Exchanges) End(ctx context.Context, d *approval.Decision, state string, known *directory.Directory) error {
	r := d.Request
	pair := store.PairOf(r.Agent, r.Counterparty)
	// What is not to be sent can be decided about when nobody could send it any more.
	e, err := x.o.State.SideLocked(ctx, pair, r.Agent, r.ExchangeID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	escalated, err := x.o.State.EscalationLocked(ctx, pair)
	if err != nil {
		return err
	}
	outcome := ocip.Denied
	switch state {
	case api.ApprovalExpired:
		if e.ExpiredAt(d.Now) {
			end(d, e, ocip.Expired)
		}
		return nil
	case api.ApprovalResolved:
		outcome = ocip.Resolved
	}
	if err := x.Settle(ctx, d, escalated); err != nil {
		return err
	}
	if err := x.o.State.Owed.ForgiveLocked(ctx, d.Change, r.Agent, r.Counterparty, outcome, r.ConversationID, ocip.Code(r.Code)); err != nil {
		return err
	}
	end(d, e, outcome)
	if escalated == "" || escalated != r.ExchangeID {
		return nil
	}
	return x.endOtherSide(ctx, d, &e, outcome, known)
}

// end gives the exchange of a request its outcome, and reports whether it was open.
func end(d *approval.Decision, e ocip.Exchange, outcome ocip.Outcome) (ended ocip.Exchange, open bool) {
	if ended, open = e.Settle(d.Now, outcome); open {
		d.Change.Add(&store.Exchange{Exchange: ended})
	}
	return ended, open
}

// endOtherSide ends the other agent's side too of an exchange whose rounds are
// used up, where it is kept here: that agent would go on in it, and be stopped
// once more.
func (x *Exchanges) endOtherSide(ctx context.Context, d *approval.Decision, of *ocip.Exchange, outcome ocip.Outcome, known *directory.Directory) error {
	sides, err := x.o.State.SidesLocked(ctx, of)
	if err != nil {
		return err
	}
	for _, e := range sides {
		if e.Agent == d.Request.Agent || e.ConversationID != d.Request.ConversationID {
			continue
		}
		if e, open := end(d, e, outcome); open {
			r := x.Record(&e, string(outcome), known)
			r.ApprovalID = d.Request.ApprovalID
			d.Change.Records = append(d.Change.Records, r)
		}
	}
	return nil
}

// Settle enters that a person has looked: where the rounds of the request's exchange
// were used up, its two agents may begin anew, and the agent begins a causal chain
// anew. Escalated is the exchange between the two whose rounds are used up, or "".
func (x *Exchanges) Settle(ctx context.Context, d *approval.Decision, escalated string) error {
	if escalated != "" && escalated == d.Request.ExchangeID {
		d.Change.Add(store.Settled(store.PairOf(d.Request.Agent, d.Request.Counterparty)))
	}
	return x.o.State.Chains.BeginAnew(ctx, d.Request.Agent, d.Now, d.Change)
}

// Asking begins a record about a request: what it is about, and whose.
func Asking(h *approval.Request, known *directory.Directory) *audit.Record {
	r := &audit.Record{
		AppID: h.AppID, AgentID: h.Agent, UserID: h.UserID,
		Counterparty: audit.Counterparty{Kind: string(h.CounterpartyKind), InstanceID: h.Counterparty, UserID: h.CounterpartyUserID},
		SessionKey:   h.SessionKey, TaskID: h.TaskID, ExchangeID: h.ExchangeID, ConversationID: h.ConversationID, ExchangeType: string(h.Type),
		Round: h.Round, MaxRounds: h.MaxRounds, Classification: h.Classification, PolicyRevision: h.PolicyRevision,
		Code: h.Code, DispatchID: h.DispatchID, ApprovalID: h.ApprovalID,
	}
	if agent := known.Local(h.Agent); agent != nil {
		r.TenantID = agent.TenantID
	}
	return r
}
