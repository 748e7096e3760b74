package kernel

import (
	"context"
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/registry"
	"github.com/openclawos/ocipd/internal/store"
)

// The methods about exchanges are served to apps, who see and end those of
// their own agents, and to operators, who see all and alone can settle what was
// escalated.

// Exchange returns the sides of an exchange that the app's agents hold.
func (c *Client) Exchange(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	k, err := c.rules()
	if err != nil {
		return api.ExchangeResult{}, err
	}
	return k.exchange(ctx, p.ExchangeID, k.heldBy(c.App()))
}

// Exchanges lists the exchanges of one of the app's agents.
func (c *Client) Exchanges(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	k, err := c.rules()
	if err != nil {
		return api.ExchangeResult{}, err
	}
	a := c.App()
	agents := k.directory.SpokenBy(a.ID())
	if p.Agent == "" && len(agents) == 1 {
		p.Agent = agents[0].InstanceID
	}
	if !k.heldBy(a)(p.Agent) {
		return api.ExchangeResult{}, api.Errorf(api.Forbidden, "app %s does not speak for agent %q; name one of its own in agent", a.ID(), p.Agent)
	}
	return k.ExchangeList(ctx, p)
}

// ResolveExchange ends an exchange of one of the app's agents.
func (c *Client) ResolveExchange(ctx context.Context, p *api.ExchangeResolveParams) (api.OK, error) {
	k, err := c.rules()
	if err != nil {
		return api.OK{}, err
	}
	a := c.App()
	return k.resolve(ctx, p, &resolver{app: a, mine: k.heldBy(a)})
}

// heldBy tells the agents that an app speaks for from others.
func (k *ruleset) heldBy(a *registry.App) func(instance string) bool {
	mine := k.directory.SpokenBy(a.ID())
	return func(instance string) bool {
		return slices.ContainsFunc(mine, func(a *Agent) bool { return a.InstanceID == instance })
	}
}

func anyAgent(string) bool { return true }

// ExchangeGet returns every side of an exchange.
func (k *Kernel) ExchangeGet(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	return k.exchange(ctx, p.ExchangeID, anyAgent)
}

// ExchangeList returns a page of exchanges, newest first.
func (k *Kernel) ExchangeList(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	page, err := k.store.Exchanges(ctx, store.ExchangeFilter{
		Agent: p.Agent, Counterparty: p.Counterparty, Outcome: ocip.Outcome(p.Outcome), Before: p.Before,
	}, p.Page())
	return exchangeResult(page), err
}

// ExchangeResolve lets a person end an exchange, both its sides and what is held
// of it, and settles the escalation of its round limit: the two agents may begin
// anew.
func (k *Kernel) ExchangeResolve(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams) (api.OK, error) {
	r := k.rules()
	by, err := r.decider().Who(who, api.DecideResolve, p.Note, p.Signature, api.SignedSettlement(p.ExchangeID, p.Agent),
		&audit.Record{ID: k.newID(), ExchangeID: p.ExchangeID, AgentID: p.Agent})
	if err != nil {
		return api.OK{}, err
	}
	return r.resolve(ctx, p, &resolver{person: by, mine: anyAgent})
}

func (k *Kernel) exchange(ctx context.Context, id string, mine func(agent string) bool) (api.ExchangeResult, error) {
	sides, err := k.sides(ctx, id, mine)
	return exchangeResult(sides), err
}

// sides returns the sides of an exchange that a caller may see, at least one.
func (k *Kernel) sides(ctx context.Context, id string, mine func(agent string) bool) ([]ocip.Exchange, error) {
	sides, err := k.store.Exchanges(ctx, store.ExchangeFilter{ID: id}, api.MaxPage)
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
func (k *ruleset) resolve(ctx context.Context, p *api.ExchangeResolveParams, by *resolver) (api.OK, error) {
	sides, err := k.sides(ctx, p.ExchangeID, by.mine)
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
	return api.OK{OK: true}, k.resolveSides(context.WithoutCancel(ctx), &first, p.Note, by)
}

// resolveSides ends the sides of one exchange that the resolver may end, and for
// a person what is held of them, in one commit.
func (k *ruleset) resolveSides(ctx context.Context, of *ocip.Exchange, note string, by *resolver) error {
	unlock := k.state.Lock(of.Agent, of.Counterparty)
	defer unlock()
	sides, err := k.state.SidesLocked(ctx, of)
	if err != nil {
		return err
	}
	pair, change, now := store.PairOf(of.Agent, of.Counterparty), &store.Change{Drains: true, Last: by.app == nil}, k.now()
	escalated, err := k.state.EscalationLocked(ctx, pair)
	if err != nil {
		return err
	}
	settled := false
	for _, e := range sides {
		if !by.mine(e.Agent) {
			continue
		}
		if err := k.mayResolve(&e, by); err != nil {
			return err
		}
		if by.app == nil {
			if escalated == e.ID {
				change.Add(store.Settled(pair))
				settled = true
			}
			// A person has looked: what the agent does next begins a new line.
			if err := k.state.Chains.BeginAnew(ctx, e.Agent, now, change); err != nil {
				return err
			}
			if err := k.forgive(ctx, change, e.Agent, e.Counterparty, ocip.Resolved, e.ConversationID, ""); err != nil {
				return err
			}
			if err := k.resolveHeld(ctx, &e, by, change); err != nil {
				return err
			}
		}
		e, open := e.Settle(now, ocip.Resolved)
		if open {
			change.Add(&store.Exchange{Exchange: e})
		}
		r := k.exchangeRecord(&e, "resolved")
		r.Details = map[string]any{"note": note, "settled": settled}
		if by.app != nil {
			r.AppID = by.app.ID()
		} else {
			maps.Copy(r.Details, approval.Details(&by.person))
		}
		change.Records = append(change.Records, r)
	}
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return nil
}

// mayResolve reports whether the resolver may end a side as it is.
func (k *Kernel) mayResolve(e *ocip.Exchange, by *resolver) error {
	switch {
	case by.app == nil, e.Outcome == ocip.InProgress:
		return nil
	case e.Outcome == ocip.Escalated:
		return k.apps.RecordRefusal(by.app, "settling_refused", api.Errorf(api.Forbidden, "exchange %s was escalated: a person settles it, on the operator socket", e.ID), map[string]any{"exchangeId": e.ID})
	}
	return api.Errorf(api.Conflict, "exchange %s is %s already", e.ID, e.Outcome)
}

// resolveHeld enters that what waits of an exchange is resolved with it.
func (k *ruleset) resolveHeld(ctx context.Context, e *ocip.Exchange, by *resolver, change *store.Change) error {
	waiting, err := k.requests.OfExchange(ctx, e.ID, e.Agent)
	if err != nil {
		return err
	}
	decider := k.decider()
	for _, r := range waiting {
		if err := decider.EndWith(r, &by.person, change); err != nil {
			return err
		}
	}
	return nil
}

func exchangeResult(sides []ocip.Exchange) api.ExchangeResult {
	result := api.ExchangeResult{Exchanges: make([]api.Exchange, len(sides))}
	for i := range sides {
		e := &sides[i]
		result.Exchanges[i] = api.Exchange{
			ExchangeID: e.ID, ConversationID: e.ConversationID, Type: string(e.Type), Agent: e.Agent, Counterparty: e.Counterparty,
			SessionKey: e.SessionKey, Outcome: string(e.Outcome), CurrentRound: e.Round, MaxRounds: e.MaxRounds, Classification: e.Level.String(),
			OpenedAt: e.OpenedAt.UnixMilli(), UpdatedAt: e.UpdatedAt.UnixMilli(), ExpiresAt: e.ExpiresAt.UnixMilli(), Transcript: e.Transcript,
			DataShared: append([]ocip.Shared{}, e.Shared...), DataWithheld: append([]ocip.Withheld{}, e.Withheld...),
		}
	}
	return result
}
