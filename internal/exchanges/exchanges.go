// Package exchanges shows exchanges, asks people to see to them and ends them: for the
// apps of their agents, for people, who see all and alone can settle what was escalated,
// and when their time has run out.
package exchanges

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/registry"
	"github.com/openclawos/ocipd/internal/store"
)

// Options is what exchanges are shown and ended with.
type Options struct {
	Store    *store.Store
	State    *exchange.State
	Requests *approval.Requests
	Apps     *registry.Registry
	// Commit makes a change durable. Its error is what the caller is told.
	Commit func(*store.Change) (store.Receipt, error)
	Now    func() time.Time
	NewID  func() string
}

// Exchanges shows and ends exchanges. Its methods are safe for concurrent use.
type Exchanges struct {
	o Options
	// swept is how far the sweep has come. It is the sweep's alone.
	swept store.ExchangeKey
	tally tally
}

// New returns who shows and ends exchanges.
func New(o Options) *Exchanges { return &Exchanges{o: o} }

// Rules are what one configuration says about them.
type Rules struct {
	Directory *directory.Directory
	Decider   *approval.Decider
	// MaxHeld is how many requests of one agent may wait for a person, and HoldFor for
	// how long.
	MaxHeld int
	HoldFor time.Duration
	// Name enters into the record of a new request the digest that names it.
	Name func(*audit.Record, *approval.Request) error
}

// WaitsUntil is until when a person is waited for: at most as long as the exchange
// lasts.
func (r *Rules) WaitsUntil(e *ocip.Exchange, now time.Time) time.Time {
	expires := now.Add(r.HoldFor)
	if !e.ExpiresAt.IsZero() && e.ExpiresAt.Before(expires) {
		return e.ExpiresAt
	}
	return expires
}

// Of tells the sides that the agents of an app hold from others.
func (r *Rules) Of(app string) func(instance string) bool {
	mine := r.Directory.SpokenBy(app)
	return func(instance string) bool {
		return slices.ContainsFunc(mine, func(a *directory.Agent) bool { return a.InstanceID == instance })
	}
}

// All is every agent's side.
func All(string) bool { return true }

// Get returns the sides of an exchange that a caller may see.
func (x *Exchanges) Get(ctx context.Context, id string, mine func(agent string) bool) (api.ExchangeResult, error) {
	sides, err := x.sides(ctx, id, mine)
	if err != nil {
		return api.ExchangeResult{}, err
	}
	return x.shown(ctx, sides)
}

// List returns a page of exchanges, newest first.
func (x *Exchanges) List(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	page, err := x.o.Store.Exchanges(ctx, store.ExchangeFilter{
		Agent: p.Agent, Counterparty: p.Counterparty, Outcome: ocip.Outcome(p.Outcome), Before: p.Before,
	}, p.Page())
	if err != nil {
		return api.ExchangeResult{}, err
	}
	return x.shown(ctx, page)
}

// ResolveAs lets a person end an exchange, both its sides and what is held
// of it, and settles the escalation of its round limit: the two agents may begin
// anew.
func (x *Exchanges) ResolveAs(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams, r *Rules) (api.OK, error) {
	by, err := r.Decider.Who(who, api.DecideResolve, p.Note, p.Signature, api.SignedSettlement(p.ExchangeID, p.Agent),
		&audit.Record{ID: x.o.NewID(), ExchangeID: p.ExchangeID, AgentID: p.Agent})
	if err != nil {
		return api.OK{}, err
	}
	return x.resolve(ctx, p, &resolver{person: by, mine: All}, r)
}

// ResolveFor ends an exchange for an app, the sides of its own agents alone.
func (x *Exchanges) ResolveFor(ctx context.Context, a *registry.App, p *api.ExchangeResolveParams, r *Rules) (api.OK, error) {
	return x.resolve(ctx, p, &resolver{app: a, mine: r.Of(a.ID())}, r)
}

// sides returns the sides of an exchange that a caller may see, at least one.
func (x *Exchanges) sides(ctx context.Context, id string, mine func(agent string) bool) ([]ocip.Exchange, error) {
	sides, err := x.o.Store.Exchanges(ctx, store.ExchangeFilter{ID: id}, api.MaxPage)
	if err != nil {
		return nil, err
	}
	sides = slices.DeleteFunc(sides, func(e ocip.Exchange) bool { return !mine(e.Agent) })
	if len(sides) == 0 {
		return nil, api.Errorf(api.NotFound, "there is no exchange %q", id)
	}
	return sides, nil
}

// resolver is who ends an exchange: an app, for its own agents, or a person.
type resolver struct {
	app    *registry.App
	person api.ApprovalDecision
	mine   func(agent string) bool
}

// resolve ends the open sides of an exchange. An app ends what is in progress;
// what was escalated is for a person. Ids are the agents' own to choose, so one
// that several pairs of agents use names none of their exchanges.
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
	if slices.ContainsFunc(sides, func(e ocip.Exchange) bool { return exchange.PairOf(&e) != exchange.PairOf(&first) }) {
		return api.OK{}, api.Errorf(api.Conflict, "several pairs of agents have an exchange %q; name an agent of the one you mean in agent", p.ExchangeID)
	}
	return api.OK{OK: true}, x.resolveSides(context.WithoutCancel(ctx), &first, p.Note, by, r)
}

// resolveSides ends the sides of one exchange that the resolver may end, and for
// a person what is held of them, in one commit.
func (x *Exchanges) resolveSides(ctx context.Context, of *ocip.Exchange, note string, by *resolver, r *Rules) error {
	unlock := x.o.State.Lock(of.Agent, of.Counterparty)
	defer unlock()
	sides, err := x.o.State.SidesLocked(ctx, of)
	if err != nil {
		return err
	}
	pair, change, now := store.PairOf(of.Agent, of.Counterparty), &store.Change{Drains: true, Last: by.app == nil}, x.o.Now()
	escalated, err := x.o.State.EscalationLocked(ctx, pair)
	if err != nil {
		return err
	}
	settled := false
	for _, e := range sides {
		if !by.mine(e.Agent) {
			continue
		}
		if err := x.mayResolve(&e, by); err != nil {
			return err
		}
		if by.app == nil {
			if escalated == e.ID {
				change.Add(store.Settled(pair))
				settled = true
			}
			// A person has looked: what the agent does next begins a new line.
			if err := x.o.State.Chains.BeginAnew(ctx, e.Agent, now, change); err != nil {
				return err
			}
			if err := x.o.State.Owed.ForgiveLocked(ctx, change, e.Agent, e.Counterparty, ocip.Resolved, e.ConversationID, ""); err != nil {
				return err
			}
			if err := x.resolveHeld(ctx, &e, by, change, r); err != nil {
				return err
			}
		}
		e, open := e.Settle(now, ocip.Resolved)
		if open {
			change.Add(&store.Exchange{Exchange: e})
		}
		record := x.Record(&e, "resolved", r.Directory)
		record.Details = map[string]any{"note": note, "settled": settled}
		if by.app != nil {
			record.AppID = by.app.ID()
		} else {
			maps.Copy(record.Details, approval.Details(&by.person))
		}
		change.Records = append(change.Records, record)
	}
	if _, err := x.o.Commit(change); err != nil {
		return err
	}
	x.o.State.Entered(change)
	return nil
}

// mayResolve reports whether the resolver may end a side as it is.
func (x *Exchanges) mayResolve(e *ocip.Exchange, by *resolver) error {
	switch {
	case by.app == nil, e.Outcome == ocip.InProgress:
		return nil
	case e.Outcome == ocip.Escalated:
		return x.o.Apps.RecordRefusal(by.app, "settling_refused", api.Errorf(api.Forbidden, "exchange %s was escalated: a person settles it, on the operator socket", e.ID), map[string]any{"exchangeId": e.ID})
	}
	return api.Errorf(api.Conflict, "exchange %s is %s already", e.ID, e.Outcome)
}

// resolveHeld enters that what waits of an exchange is resolved with it.
func (x *Exchanges) resolveHeld(ctx context.Context, e *ocip.Exchange, by *resolver, change *store.Change, rules *Rules) error {
	waiting, err := x.o.Requests.OfExchange(ctx, e.ID, e.Agent)
	if err != nil {
		return err
	}
	for _, r := range waiting {
		if err := rules.Decider.EndWith(r, &by.person, change); err != nil {
			return err
		}
	}
	return nil
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

// pending reports whether a person is to settle an exchange that was escalated.
func (x *Exchanges) pending(ctx context.Context, e *ocip.Exchange) (bool, error) {
	requests, err := x.o.Requests.OfExchange(ctx, e.ID, e.Agent)
	if err != nil || len(requests) > 0 {
		return len(requests) > 0, err
	}
	stopped, err := x.o.Store.Escalated(ctx, store.PairOf(e.Agent, e.Counterparty))
	return stopped == e.ID, err
}
