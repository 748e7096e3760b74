package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/kernel/inbox"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Granted is an agent without an app, which a grant lets a connection speak and read for. It lives
// for one call.
type Granted struct {
	*inbox.Reader
	kernel *Kernel
	rules  *ruleset
	agent  *Agent
	grant  string
	peer   api.Peer
	// still checks the grant again, holds does so without a lock, as [remains] does, and lasts is
	// its end.
	still, holds func(context.Context) error
	lasts        time.Time
}

// Grantable returns the tenant of an agent that a grant can name, or an error if there is none.
func (k *Kernel) Grantable(agent string) (tenant string, err error) {
	a := k.rules().directory.Agent(agent)
	switch {
	case a == nil:
		return "", api.Errorf(api.NotFound, "there is no agent %.64q; ocipd status lists the configured ones", agent)
	case !directory.IsAgents(a.App):
		return "", hasApp(a)
	}
	return a.TenantID, nil
}

func hasApp(a *Agent) error {
	return api.Errorf(api.Forbidden, "agent %s has the app %s, which speaks for it and takes its messages: leave agents[].app out for an agent that speaks by grants", a.ID, a.App)
}

// Granted returns the agent that a grant of a tenant names, if the process at the other end may
// speak for it.
func (k *Kernel) Granted(agent, tenant, grant string, peer api.Peer) (*Granted, error) {
	r := k.rules()
	g := &Granted{kernel: k, rules: r, agent: r.directory.Agent(agent), grant: grant, peer: peer}
	switch {
	case g.agent == nil || g.agent.TenantID != tenant:
		return nil, api.Errorf(api.Unauthorized, "the grant's agent %s is not configured as it was", agent)
	case !directory.IsAgents(g.agent.App):
		return nil, hasApp(g.agent)
	}
	err := peer.Present()
	if err != nil {
		err = api.Errorf(api.Forbidden, "the process that connected is not who speaks")
	} else {
		err = k.apps.MayBe(r.terms, g.agent, "this grant", peer)
	}
	if err != nil {
		return nil, k.apps.RecordRefusalOf(g.agent.App, "binding_refused", err, map[string]any{"grant_id": grant})
	}
	g.Reader = k.inboxes.For(g.agent, r.directory, &r.cfg.Directory, r.terms, grant, peer)
	return g, nil
}

// While sets the function that checks the grant again when it may have changed, one that does so
// without a lock, while no grant is revoked, and the grant's latest end. Zero means that the end is
// unknown.
func (g *Granted) While(still, holds func(context.Context) error, lasts time.Time) {
	g.still, g.holds, g.lasts = still, holds, lasts
	g.Reader.While(still)
}

// Send takes a message to its receiver, the same way as an app's. If the same request key is used
// again, it returns the earlier answer.
func (g *Granted) Send(ctx context.Context, p *api.AgentSendParams) (api.AgentSent, api.AfterReply, error) {
	var asked string
	if p.RequestKey != "" {
		text, err := json.Marshal(p, json.Deterministic(true))
		if err != nil {
			return api.AgentSent{}, nil, fmt.Errorf("cannot encode a request: %w", err)
		}
		asked = approval.Asked("agent.send", string(text))
		defer g.kernel.asking.Lock(g.asker() + "\n" + p.RequestKey)()
		// The call that had the lock may have waited.
		if err := g.still(ctx); err != nil {
			return api.AgentSent{}, nil, err
		}
		before, err := g.kernel.store.RequestOf(ctx, g.asker(), p.RequestKey, g.kernel.now())
		switch {
		case err == nil && before.Asked != asked:
			return api.AgentSent{}, nil, api.Errorf(api.Conflict, "the request key %s was of another message", p.RequestKey)
		case err == nil:
			var sent api.AgentSent
			err = json.Unmarshal(before.Result, &sent)
			sent.Replayed = true
			return sent, nil, err
		case !errors.Is(err, store.ErrNotFound):
			return api.AgentSent{}, nil, err
		}
	}
	var m *outgoing
	result, err := anew(func() (result api.DispatchResult, err error) {
		if err := g.renew(); err != nil {
			return result, err
		}
		m, result, err = g.rules.say(ctx, g.speaker(ctx, g.keeps(p.RequestKey, asked)), p.Dispatch())
		return result, err
	})
	if err != nil {
		return api.AgentSent{}, nil, err
	}
	return result.SentBy(), m.deliver, nil
}

// asker names the owner of the request keys. A new agent under the same id has others.
func (g *Granted) asker() string { return g.agent.App + " " + g.agent.Identified() }

// keeps enters the answer into the change of a message, under a request key.
func (g *Granted) keeps(key, asked string) func(*store.Change, *api.DispatchResult) error {
	if key == "" {
		return nil
	}
	return func(c *store.Change, r *api.DispatchResult) error {
		text, err := json.Marshal(r.SentBy())
		c.Add(&store.RequestKey{Actor: g.asker(), Key: key, Asked: asked, At: g.kernel.now(), Result: text})
		return err
	}
}

// speaker is the process that speaks for the agent. Keep enters the answer into the change of a
// message. The message is decided even if the process disconnects.
func (g *Granted) speaker(ctx context.Context, keep func(*store.Change, *api.DispatchResult) error) speaker {
	return speaker{appID: g.agent.App, sender: g.agent, grantID: g.grant, keep: keep, still: g.again(context.WithoutCancel(ctx))}
}

// again checks the grant again.
func (g *Granted) again(ctx context.Context) remains {
	return func(deciding bool) error {
		if deciding {
			return g.holds(ctx)
		}
		return g.still(ctx)
	}
}

// delivers checks again a process that delivers by itself: its connection, and its grant.
func (g *Granted) delivers(ctx context.Context) remains {
	again := g.again(ctx)
	return func(deciding bool) error {
		if err := connected(ctx); err != nil {
			return err
		}
		return again(deciding)
	}
}

// renew finds the agent under the rules in force, if they were replaced.
func (g *Granted) renew() error {
	if g.rules == g.kernel.rules() {
		return nil
	}
	now, err := g.kernel.Granted(g.agent.ID, g.agent.TenantID, g.grant, g.peer)
	if err != nil {
		return err
	}
	now.While(g.still, g.holds, g.lasts)
	*g = *now
	return nil
}

// Exchange returns the agent's side of an exchange.
func (g *Granted) Exchange(ctx context.Context, p *api.AgentExchangeParams) (api.ExchangeResult, api.AfterReply, error) {
	result, err := g.kernel.exchanges.GetFor(ctx, p.ExchangeID, g.agent.App, g.rules.exchangeRules)
	return result, nil, err
}

// Approval returns the state of a held message.
func (g *Granted) Approval(ctx context.Context, p *api.AgentApprovalParams) (api.AgentApproval, api.AfterReply, error) {
	r, err := g.kernel.approvalOf(ctx, p.ApprovalID, g.agent.App)
	if err != nil {
		return api.AgentApproval{}, nil, err
	}
	a := api.AgentApproval{
		ApprovalID: r.ApprovalID, Status: r.State, Code: r.Code, Reason: r.Reason, DispatchID: r.DispatchID, ExchangeID: r.ExchangeID, ExpiresAt: time.UnixMilli(r.ExpiresAt).UTC(),
	}
	if r.Decision != nil {
		a.Note = r.Decision.Note
	}
	return a, nil, nil
}
