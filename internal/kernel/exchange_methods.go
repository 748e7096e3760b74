package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
)

// Exchange returns the sides of an exchange that the app's agents hold.
func (c *Client) Exchange(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	return under(c, func(k *ruleset) (api.ExchangeResult, error) {
		return k.exchanges.GetFor(ctx, p.ExchangeID, c.App().ID(), k.exchangeRules)
	})
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
	if !k.exchangeRules.Of(a.ID())(p.Agent) {
		return api.ExchangeResult{}, api.Errorf(api.Forbidden, "app %s does not speak for agent %q; name one of its own in agent", a.ID(), p.Agent)
	}
	return k.exchanges.ListFor(ctx, p, k.exchangeRules)
}

// ResolveExchange ends an exchange of one of the app's agents.
func (c *Client) ResolveExchange(ctx context.Context, p *api.ExchangeResolveParams) (api.OK, error) {
	return under(c, func(k *ruleset) (api.OK, error) { return k.exchanges.ResolveFor(ctx, c.App(), p, k.exchangeRules) })
}

// ExchangeGet returns every side of an exchange, and the state that a person settles.
func (k *Kernel) ExchangeGet(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	return k.exchanges.Show(ctx, p.ExchangeID)
}

// ExchangeList returns a page of exchanges, newest first.
func (k *Kernel) ExchangeList(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	return k.exchanges.List(ctx, p)
}

// ExchangeResolve lets a person end an exchange.
func (k *Kernel) ExchangeResolve(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams) (api.OK, error) {
	return k.exchanges.ResolveAs(ctx, who, p, k.rules().exchangeRules)
}
