package exchanges

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Lock takes the lock of a request's two ends, so that decisions between them are made one after
// the other.
func (x *Exchanges) Lock(r *approval.Request) (unlock func()) {
	return x.o.State.Lock(r.Agent, exchangestate.OtherEnd(r.Counterparty, r.SessionKey))
}

// End enters the effect of a decision on the exchange of its request: a person denied or resolved
// it, or its time is over. The caller holds the request's lock.
func (x *Exchanges) End(ctx context.Context, d *approval.Decision, state string, known *directory.Directory) error {
	r := d.Request
	pair := store.PairOf(r.Agent, r.Counterparty)
	// A refusal to send is possible even when the message could no longer be sent.
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
		if !e.ExpiredAt(d.Now) {
			return nil
		}
		ended, open := end(d, e, ocip.Expired)
		if !open {
			return nil
		}
		return x.EndOtherSide(ctx, d.Change, &ended, known, func(record *audit.Record) { record.ApprovalID = r.ApprovalID })
	case api.ApprovalResolved:
		outcome = ocip.Resolved
	}
	if err := x.Settle(ctx, d, escalated); err != nil {
		return err
	}
	if err := x.o.State.Owed.ForgiveLocked(ctx, d.Change, r.Agent, r.Counterparty, outcome, r.ConversationID, ocip.Code(r.Code)); err != nil {
		return err
	}
	ended, open := end(d, e, outcome)
	d.Change.OnDurable(func(store.Receipt) { x.o.Settled() })
	if !open && escalated != r.ExchangeID {
		return nil
	}
	ended.Outcome, ended.Stopped, ended.UpdatedAt = outcome, d.Decision != api.DecideRevoke, d.Now
	return x.EndOtherSide(ctx, d.Change, &ended, known, func(record *audit.Record) { record.ApprovalID = r.ApprovalID })
}

// end gives the exchange of a request its outcome, and reports whether it was open.
func end(d *approval.Decision, e ocip.Exchange, outcome ocip.Outcome) (ended ocip.Exchange, open bool) {
	if ended, open = e.Settle(d.Now, outcome); open {
		ended.Stopped = outcome != ocip.Expired && d.Decision != api.DecideRevoke
		d.Outcome = string(outcome)
		d.Change.Add(&store.Exchange{Exchange: ended})
	}
	return ended, open
}

// EndOtherSide enters into a change that the other agent's side ends too, if this daemon keeps
// both. Otherwise that agent would go on in an exchange that takes no message. A side that waits
// for a person stays open, unless a person has ended the first one. Why completes the record, and
// may be nil.
func (x *Exchanges) EndOtherSide(ctx context.Context, change *store.Change, ended *ocip.Exchange, known *directory.Directory, why func(*audit.Record)) error {
	if ended.ID == "" || ended.Outcome == ocip.InProgress || ended.Outcome == ocip.Escalated {
		return nil
	}
	sides, err := x.o.State.SidesLocked(ctx, ended)
	if err != nil {
		return err
	}
	for _, e := range sides {
		if e.Agent == ended.Agent || e.ConversationID != ended.ConversationID || e.Outcome == ocip.Escalated && !ended.Stopped {
			continue
		}
		e, open := e.Settle(ended.UpdatedAt, ended.Outcome)
		if !open {
			continue
		}
		e.Stopped = ended.Stopped
		change.Add(&store.Exchange{Exchange: e})
		r := x.Record(&e, string(ended.Outcome), known)
		if why != nil {
			why(r)
		}
		change.Records = append(change.Records, r)
	}
	return nil
}

// Settle enters that a person has looked. If the rounds of the request's exchange were used up, its
// two agents may begin anew, and the agent begins a new causal chain. Escalated is the exchange
// between the two whose rounds are used up, or "".
func (x *Exchanges) Settle(ctx context.Context, d *approval.Decision, escalated string) error {
	if escalated != "" && escalated == d.Request.ExchangeID {
		d.Change.Add(store.Settled(store.PairOf(d.Request.Agent, d.Request.Counterparty)))
	}
	return x.o.State.Chains.BeginAnew(ctx, d.Request.Agent, d.Now, d.Change)
}

// Asking begins a record about a request, with its subject and its agent.
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
