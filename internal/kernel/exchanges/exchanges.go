// Package exchanges shows exchanges, escalates them to people and ends them: for the apps of their
// agents, for people, and at their deadline. People see all exchanges, and only they can settle an
// escalation.
package exchanges

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Options holds the dependencies of Exchanges.
type Options struct {
	Store    *store.Store
	State    *exchangestate.State
	Requests *approval.Requests
	Apps     *registry.Registry
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	// Search finds records, newest first. Waiting returns the ids of the messages that wait for an
	// agent and were handed to nobody yet.
	Search  func(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
	Waiting func(ctx context.Context, agent string) (dispatchIDs map[string]bool, err error)
	// Settled is called in the commit in which a person ends an exchange.
	Settled func()
	Now     func() time.Time
	NewID   func() string
}

// Exchanges shows and ends exchanges. Its methods are safe for concurrent use.
type Exchanges struct {
	o Options
	// swept is the sweep's position. Only the sweep uses it.
	swept store.ExchangeKey
	tally tally
}

// New returns an Exchanges.
func New(o Options) *Exchanges { return &Exchanges{o: o} }

// Rules is the part of a configuration that concerns exchanges.
type Rules struct {
	Directory *directory.Directory
	Decider   *approval.Decider
	// MaxHeld is how many requests of one agent may wait for a person, and HoldFor for how long.
	MaxHeld int
	HoldFor time.Duration
	// Name enters into the record of a new request the digest that names it.
	Name func(*audit.Record, *approval.Request) error
}

// WaitsUntil returns the deadline for a person's decision: at most the end of the exchange.
func (r *Rules) WaitsUntil(e *ocip.Exchange, now time.Time) time.Time {
	expires := now.Add(r.HoldFor)
	if !e.ExpiresAt.IsZero() && e.ExpiresAt.Before(expires) {
		return e.ExpiresAt
	}
	return expires
}

// Of returns a filter for the sides that the agents of an app hold.
func (r *Rules) Of(app string) func(instance string) bool {
	if mutant.Off("exchange-owner") {
		return All
	}
	mine := r.Directory.SpokenBy(app)
	return func(instance string) bool {
		return slices.ContainsFunc(mine, func(a *directory.Agent) bool { return a.InstanceID == instance })
	}
}

// All accepts every agent's side.
func All(string) bool { return true }

// filter returns the filter of a list request, from an exchange on.
func filter(p *api.ExchangeListParams, before string) store.ExchangeFilter {
	return store.ExchangeFilter{Agent: p.Agent, Counterparty: p.Counterparty, Outcome: ocip.Outcome(p.Outcome), Before: before}
}

// List returns a page of exchanges to people, newest first.
func (x *Exchanges) List(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	var left store.Left
	page, err := x.o.Store.Exchanges(ctx, filter(p, p.Before), p.Page(), &left)
	if err != nil {
		return api.ExchangeResult{}, err
	}
	list, err := x.shown(ctx, page)
	list.Altered = left.Names
	return list, err
}

// Show returns every side of an exchange, each with the state that a person settles.
func (x *Exchanges) Show(ctx context.Context, id string) (api.ExchangeResult, error) {
	sides, err := x.sides(ctx, id, All)
	if err != nil {
		return api.ExchangeResult{}, err
	}
	list, err := x.shown(ctx, sides)
	if err != nil {
		return api.ExchangeResult{}, err
	}
	for i := range sides {
		if list.Exchanges[i].State, err = x.state(ctx, &sides[i]); err != nil {
			return api.ExchangeResult{}, err
		}
	}
	return list, nil
}

// ResolveAs lets a person end an exchange: its open sides, its held messages, and the escalation of
// its round limit, so that the two agents may begin anew. The person must name its current state.
func (x *Exchanges) ResolveAs(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams, r *Rules) (api.OK, error) {
	text := api.SignedSettlement(p.ExchangeID, p.Agent, p.State)
	by, err := r.Decider.Who(who, api.DecideResolve, p.Note, p.Signature, text, &audit.Record{ID: x.o.NewID(), ExchangeID: p.ExchangeID, AgentID: p.Agent})
	if err != nil {
		return api.OK{}, err
	}
	signed := ""
	if by.Signature != "" {
		if p.State == "" {
			return api.OK{}, api.Invalid([]api.FieldError{{Path: "state", Message: "required where decisions are signed: exchange.get has it"}})
		}
		signed = api.SignedNote(text, p.Note)
	}
	return x.resolve(ctx, p, &resolver{person: by, signed: signed, mine: All}, r)
}

// ResolveFor ends an exchange for an app, only the sides of its own agents.
func (x *Exchanges) ResolveFor(ctx context.Context, a *registry.App, p *api.ExchangeResolveParams, r *Rules) (api.OK, error) {
	return x.resolve(ctx, p, &resolver{app: a, mine: r.Of(a.ID())}, r)
}

// sides returns the sides of an exchange that a caller may see, at least one.
func (x *Exchanges) sides(ctx context.Context, id string, mine func(agent string) bool) ([]ocip.Exchange, error) {
	sides, err := x.o.Store.Exchanges(ctx, store.ExchangeFilter{ID: id}, api.MaxPage, nil)
	if err != nil {
		return nil, err
	}
	sides = slices.DeleteFunc(sides, func(e ocip.Exchange) bool { return !mine(e.Agent) })
	if len(sides) == 0 {
		return nil, notThere(id)
	}
	return sides, nil
}

func notThere(id string) error { return api.Errorf(api.NotFound, "there is no exchange %q", id) }

// resolver is the one that ends an exchange: an app, for its own agents, or a person.
type resolver struct {
	app    *registry.App
	person api.ApprovalDecision
	// signed is the text that the person signed, "" if no signature is required.
	signed string
	mine   func(agent string) bool
}

// resolve ends the open sides of an exchange. An app may end one in progress; only a person may end
// an escalated one. Agents choose their own ids, so an id that several pairs use is ambiguous and
// refused.
func (x *Exchanges) resolve(ctx context.Context, p *api.ExchangeResolveParams, by *resolver, r *Rules) (api.OK, error) {
	sides, err := x.sides(ctx, p.ExchangeID, by.mine)
	if err != nil {
		return api.OK{}, err
	}
	if p.Agent != "" {
		if sides = slices.DeleteFunc(sides, func(e ocip.Exchange) bool { return e.Agent != p.Agent && e.Counterparty != p.Agent }); len(sides) == 0 {
			return api.OK{}, api.Errorf(api.NotFound, "agent %s has no exchange %q", p.Agent, p.ExchangeID)
		}
	}
	first := sides[0]
	if slices.ContainsFunc(sides, func(e ocip.Exchange) bool { return exchangestate.PairOf(&e) != exchangestate.PairOf(&first) }) {
		return api.OK{}, api.Errorf(api.Conflict, "several pairs of agents have an exchange %q; name an agent of the one you mean in agent", p.ExchangeID)
	}
	return api.OK{OK: true}, x.resolveSides(context.WithoutCancel(ctx), &first, p, by, r)
}

// resolveSides ends the sides of one exchange that the resolver may end, and for a person also its
// held messages, in one commit.
func (x *Exchanges) resolveSides(ctx context.Context, of *ocip.Exchange, p *api.ExchangeResolveParams, by *resolver, r *Rules) error {
	unlock := x.o.State.Lock(of.Agent, of.Counterparty)
	defer unlock()
	st, err := x.standingLocked(ctx, of)
	if err != nil {
		return err
	}
	if by.app == nil {
		if err := st.maySettle(of, p.State); err != nil {
			return err
		}
	}
	change, now := &store.Change{Drains: true, Last: by.app == nil}, x.o.Now()
	if by.app == nil && st.escalated {
		change.Add(store.Settled(store.PairOf(of.Agent, of.Counterparty)))
	}
	for _, one := range st.sides {
		if !by.mine(one.Agent) {
			continue
		}
		if err := x.mayResolve(&one.Exchange, by); err != nil {
			return err
		}
		if by.app == nil {
			if !one.unsettled() && !st.escalated {
				continue
			}
			if err := x.settleSide(ctx, &one, by, change, r); err != nil {
				return err
			}
		}
		e, open := one.Settle(now, ocip.Resolved)
		e.Stopped = by.app == nil
		if open {
			change.Add(&store.Exchange{Exchange: e})
		}
		record := x.resolved(&e, p, by, st, r)
		change.Records = append(change.Records, record)
		if by.app != nil && open {
			if err := x.EndOtherSide(ctx, change, &e, r.Directory, func(other *audit.Record) { other.AppID = by.app.ID() }); err != nil {
				return err
			}
		}
	}
	if by.app == nil {
		change.OnDurable(func(store.Receipt) { x.o.Settled() })
		if by.signed != "" {
			change.Add(store.UsedSignature{Act: store.SignedSettlement(p.State)})
		}
	}
	if _, err := x.o.Commit(change); errors.Is(err, store.ErrSignatureUsed) {
		return api.Errorf(api.Conflict, "exchange %s was settled with this signature before: look at it again, and settle what it is now", of.ID)
	} else if err != nil {
		return err
	}
	x.o.State.Entered(change)
	return nil
}

// resolved returns the record of a side that was resolved.
func (x *Exchanges) resolved(e *ocip.Exchange, p *api.ExchangeResolveParams, by *resolver, st *standing, r *Rules) *audit.Record {
	record := x.Record(e, audit.EventResolved, r.Directory)
	record.Details = map[string]any{"note": p.Note, "settled": by.app == nil && st.escalated}
	if by.app != nil {
		record.AppID = by.app.ID()
		return record
	}
	maps.Copy(record.Details, approval.Details(&by.person))
	if by.signed != "" {
		record.Details["signedText"] = by.signed
	}
	return record
}

// settleSide enters a person's settlement of one agent's side. The agent's next message begins a
// chain of its own, questions of the exchange need no answer any more, and its pending requests are
// resolved.
func (x *Exchanges) settleSide(ctx context.Context, one *side, by *resolver, change *store.Change, r *Rules) error {
	if err := x.o.State.Chains.BeginAnew(ctx, one.Agent, x.o.Now(), change); err != nil {
		return err
	}
	if err := x.o.State.Owed.ForgiveLocked(ctx, change, one.Agent, one.Counterparty, ocip.Resolved, one.ConversationID, ""); err != nil {
		return err
	}
	for _, request := range one.held {
		if err := r.Decider.EndWith(request, &by.person, change); err != nil {
			return err
		}
	}
	return nil
}

// mayResolve reports whether the resolver may end a side in its state.
func (x *Exchanges) mayResolve(e *ocip.Exchange, by *resolver) error {
	switch {
	case by.app == nil, e.Outcome == ocip.InProgress:
		return nil
	case e.Outcome == ocip.Escalated:
		return x.o.Apps.RecordRefusal(by.app, "settling_refused", api.Errorf(api.Forbidden, "exchange %s was escalated: a person settles it, on the operator socket", e.ID), map[string]any{"exchangeId": e.ID})
	}
	return api.Errorf(api.Conflict, "exchange %s is %s already", e.ID, e.Outcome)
}

func (x *Exchanges) shown(ctx context.Context, sides []ocip.Exchange) (api.ExchangeResult, error) {
	list := api.ExchangeResult{Exchanges: make([]api.Exchange, len(sides))}
	for i := range sides {
		e := &sides[i]
		list.Exchanges[i] = api.Exchange{
			ExchangeID: e.ID, ConversationID: e.ConversationID, Type: string(e.Type), Agent: e.Agent, Counterparty: e.Counterparty,
			SessionKey: e.SessionKey, Outcome: string(e.Outcome), CurrentRound: e.Round, MaxRounds: e.MaxRounds, Classification: e.Level.String(),
			OpenedAt: e.OpenedAt.UnixMilli(), UpdatedAt: e.UpdatedAt.UnixMilli(), ExpiresAt: e.ExpiresAt.UnixMilli(), Transcript: e.Transcript,
			DataShared: append([]ocip.Shared{}, e.Shared...), DataWithheld: append([]ocip.Withheld{}, e.Withheld...),
		}
		if e.Outcome != ocip.Escalated {
			continue
		}
		var err error
		if list.Exchanges[i].Pending, err = x.pending(ctx, e); err != nil {
			return api.ExchangeResult{}, err
		}
	}
	return list, nil
}

// pending reports whether an escalated exchange still needs a person's settlement.
func (x *Exchanges) pending(ctx context.Context, e *ocip.Exchange) (bool, error) {
	requests, err := x.o.Requests.OfExchange(ctx, e.ID, e.Agent)
	if err != nil || len(requests) > 0 {
		return len(requests) > 0, err
	}
	stopped, err := x.o.Store.Escalated(ctx, store.PairOf(e.Agent, e.Counterparty))
	return stopped == e.ID, err
}
