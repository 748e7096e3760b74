package kernel

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// The methods about exchanges are served to apps, who see and end those of
// their own agents, and to operators, who see all and alone can settle what was
// escalated.

// Exchange returns the sides of an exchange that the app's agents hold.
func (c *Client) Exchange(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	return c.kernel.exchange(ctx, p.ExchangeID, c.holds)
}

// Exchanges lists the exchanges of one of the app's agents.
func (c *Client) Exchanges(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	agents := c.kernel.directory.spokenBy(c.app.Load().id())
	if p.Agent == "" && len(agents) == 1 {
		p.Agent = agents[0].InstanceID
	}
	if !c.holds(p.Agent) {
		return api.ExchangeResult{}, api.Errorf(api.Forbidden, "app %s does not speak for agent %q; name one of its own in agent", c.app.Load().id(), p.Agent)
	}
	return c.kernel.ExchangeList(ctx, p)
}

// ResolveExchange ends an exchange of one of the app's agents.
func (c *Client) ResolveExchange(ctx context.Context, p *api.ExchangeResolveParams) (api.OK, error) {
	return c.kernel.resolve(ctx, p, c.app.Load(), c.holds)
}

// holds reports whether the client's app speaks for an agent.
func (c *Client) holds(instance string) bool {
	return slices.ContainsFunc(c.kernel.directory.spokenBy(c.app.Load().id()), func(a *Agent) bool { return a.InstanceID == instance })
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

// ExchangeResolve lets a person end an exchange, with what is held of it, and
// settles the escalation of its round limit: the two agents may begin anew.
func (k *Kernel) ExchangeResolve(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams) (api.OK, error) {
	if err := k.MayOperate(who); err != nil {
		return api.OK{}, err
	}
	waiting, err := k.store.PendingOf(ctx, p.ExchangeID)
	if err != nil {
		return api.OK{}, err
	}
	for _, held := range waiting {
		_, err := k.ApprovalResolve(ctx, who, &api.ApprovalResolveParams{ApprovalID: held.ID, Decision: api.DecideResolve, Note: p.Note})
		if err != nil && api.AsError(err).Code != api.Conflict {
			return api.OK{}, err
		}
	}
	return k.resolve(ctx, p, nil, anyAgent)
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

// resolve ends the open sides of an exchange. An app ends what is in progress;
// what was escalated is for a person.
func (k *Kernel) resolve(ctx context.Context, p *api.ExchangeResolveParams, by *app, mine func(agent string) bool) (api.OK, error) {
	sides, err := k.sides(ctx, p.ExchangeID, mine)
	if err != nil {
		return api.OK{}, err
	}
	for _, side := range sides {
		if err := k.resolveSide(ctx, side, p.Note, by); err != nil {
			return api.OK{}, err
		}
	}
	return api.OK{OK: true}, nil
}

func (k *Kernel) resolveSide(ctx context.Context, seen ocip.Exchange, note string, by *app) error {
	unlock := k.exchanges.pairs.lock(seen.Agent, seen.Counterparty)
	defer unlock()
	// It may have gone on since it was looked up.
	e, err := k.exchanges.side(ctx, seen.Agent, seen.ID)
	if err != nil {
		return err
	}
	pair, change := store.PairOf(e.Agent, e.Counterparty), new(store.Change)
	escalated, err := k.exchanges.escalation(ctx, pair)
	if err != nil {
		return err
	}
	switch {
	case by != nil && e.Outcome == ocip.Escalated:
		return k.onRecord(by, "settling_refused", api.Errorf(api.Forbidden, "exchange %s was escalated: a person settles it, on the operator socket", e.ID), map[string]any{"exchangeId": e.ID})
	case by != nil && e.Outcome != ocip.InProgress:
		return api.Errorf(api.Conflict, "exchange %s is %s already", e.ID, e.Outcome)
	case by == nil:
		if escalated == e.ID {
			change.Settled = append(change.Settled, pair)
		}
		// A person has looked: what the agent does next begins a new line.
		if err := k.chains.hear(ctx, e.Agent, ocip.Chain{}, k.now(), change); err != nil {
			return err
		}
	}
	if e.Outcome == ocip.InProgress || e.Outcome == ocip.Escalated {
		e.Outcome, e.UpdatedAt = ocip.Resolved, k.now()
		change.Exchanges = append(change.Exchanges, e)
	}
	r := k.exchangeRecord(&e, "resolved")
	r.Details = map[string]any{"note": note, "settled": len(change.Settled) > 0}
	if by != nil {
		r.AppID = by.id()
	} else {
		r.Details["by"] = "operator"
	}
	change.Records = append(change.Records, r)
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.entered(change)
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
		}
	}
	return result
}
