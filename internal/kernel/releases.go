package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/releases"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Redeem gives the app an approved message to send, once.
func (c *Client) Redeem(ctx context.Context, p *api.RedeemParams) (api.RedeemAnswer, error) {
	k, err := c.rules()
	if err != nil {
		return api.RedeemAnswer{}, err
	}
	return redeem(ctx, k, c.App().ID(), p, nil, func(r *approval.Request) error {
		if _, err := k.addresses.sender(c.App().ID(), r.AgentID); err != nil {
			return err
		}
		return k.mayLeave(r)
	})
}

// redeem takes the locks in the order of every decision: the two ends of the message, then the
// pauses. The lock of the release comes after both.
func redeem(ctx context.Context, k *ruleset, app string, p *api.RedeemParams, still remains, may func(*approval.Request) error) (api.RedeemAnswer, error) {
	r, unknown := k.decider.Get(ctx, p.ApprovalID)
	if unknown == nil {
		defer k.exchanges.Lock(r)()
	}
	done, err := still.decides(k.pauses)
	if err != nil {
		return api.RedeemAnswer{}, err
	}
	defer done()
	answer, err := k.releases.Redeem(ctx, app, p, may)
	if err != nil && unknown == nil && !k.asked(r) {
		return api.RedeemAnswer{}, noneToRedeem(p.ApprovalID)
	}
	if err == nil {
		answer.While(func() bool { return k.inForce.Load() == k && k.mayLeave(r) == nil })
	}
	return answer, err
}

func noneToRedeem(id string) error {
	return api.Errorf(api.NotFound, "there is no approval %q whose message can be redeemed", id)
}

// mayLeave refuses a message that a pause of either end stops, and one whose agent was replaced
// under the same id.
func (k *ruleset) mayLeave(r *approval.Request) error {
	if !speaksFor(k, r) {
		return noneToRedeem(r.ApprovalID)
	}
	to := ""
	if local := k.directory.LocalAgent(r.SessionKey); local != nil {
		to = local.ID
	}
	if reason, paused := k.pauses.Reason(directory.ChannelOf(r.SessionKey), r.AgentID, to); paused {
		return &api.Error{Code: api.Forbidden, Message: reason, Details: api.OCIP(ocip.Paused, reason)}
	}
	return nil
}

// asked reports whether the agent that asked is the same and in the same tenant, and its app still
// speaks for it.
func (k *ruleset) asked(r *approval.Request) bool {
	return speaksFor(k, r) && ofTenant(r, k.directory.Agent(r.AgentID))
}

// ofTenant reports whether an agent is in the tenant in which it asked.
func ofTenant(r *approval.Request, agent *Agent) bool {
	return r.Tenant == "" || r.Tenant == agent.TenantID
}

// speaksFor reports whether the app of a request still speaks for the same agent, in any tenant. If
// the agent has moved, redeeming withdraws the message, on record.
func speaksFor(k *ruleset, r *approval.Request) bool {
	agent := k.directory.Agent(r.AgentID)
	return agent != nil && agent.InstanceID == r.Agent && agent.App == r.AppID
}

// Confirm takes the app's statement about a message that it delivers by itself.
func (c *Client) Confirm(ctx context.Context, p *api.ConfirmParams) (api.OK, error) {
	return c.kernel.releases.Confirm(context.WithoutCancel(ctx), c.App().ID(), p)
}

// Redeemable lists what the app can redeem.
func (c *Client) Redeemable(ctx context.Context, _ *api.Empty) (api.RedeemableResult, error) {
	return c.kernel.releases.Ready(ctx, c.App().ID(), c.kernel.rules().asked)
}

// Withdraw takes back a request of the app that no person has decided.
func (c *Client) Withdraw(ctx context.Context, p *api.WithdrawParams) (api.OK, error) {
	return c.kernel.rules().withdraw(ctx, c.App().ID(), p)
}

func (k *ruleset) withdraw(ctx context.Context, app string, p *api.WithdrawParams) (api.OK, error) {
	ctx = context.WithoutCancel(ctx)
	if r, err := k.decider.Get(ctx, p.ApprovalID); err == nil && !k.asked(r) {
		return api.OK{}, approval.NotFound(p.ApprovalID)
	}
	return k.decider.Withdraw(ctx, app, p)
}

// Withdraw takes back a request of the agent that no person has decided.
func (g *Granted) Withdraw(ctx context.Context, p *api.WithdrawParams) (api.OK, api.AfterReply, error) {
	result, err := g.rules.withdraw(ctx, g.agent.App, p)
	return result, nil, err
}

// Emit decides about a message that the agent's process delivers, or has received, by itself.
func (g *Granted) Emit(ctx context.Context, p *api.AgentEmitParams) (api.EmitAnswer, api.AfterReply, error) {
	answer, err := anew(func() (api.EmitAnswer, error) {
		if err := g.renew(); err != nil {
			return api.EmitAnswer{}, err
		}
		return g.emit(ctx, p)
	})
	return answer, nil, err
}

func (g *Granted) emit(ctx context.Context, p *api.AgentEmitParams) (api.EmitAnswer, error) {
	hook, _ := api.ParseHook(p.HookName)
	switch hook {
	case api.ToolExecuting, api.ToolCompleted:
		return g.emitTool(ctx, hook, p)
	case api.MessageSending, api.MessageReceived:
	default:
		return api.EmitAnswer{}, api.Invalid([]api.FieldError{{Path: "hookName", Message: "an agent without an app asks about messages and tools alone"}})
	}
	given, err := p.Message()
	if err != nil {
		return api.EmitAnswer{}, err
	}
	if hook == api.MessageReceived {
		k := g.kernel
		in := &incoming{appID: g.agent.App, agent: g.agent, key: given.SessionKey, content: given.Content, metadata: given.Metadata, runID: k.newID(), dispatchID: k.newID(), carried: g.delivers(ctx), halves: p.Halves}
		_, err := inbound{g.rules}.bring(ctx, in)
		return in.taken(err)
	}
	s := g.speaker(ctx, g.keeps(p.RequestKey, releases.Emitted))
	s.carried, s.redeems, s.still = true, true, g.delivers(ctx)
	m, decided, err := g.rules.say(ctx, s, &api.DispatchParams{SessionKey: given.SessionKey, Content: given.Content, Metadata: given.Metadata, Mended: p.Mended})
	return g.kernel.carried(m, &decided, err)
}

// emitTool decides about a tool call of the agent's process.
func (g *Granted) emitTool(ctx context.Context, hook api.Hook, p *api.AgentEmitParams) (api.EmitAnswer, error) {
	result, err := g.kernel.hooks.Take(ctx, &hooks.Raised{AppID: g.agent.App, Agent: g.agent, Hook: hook, Data: p.Data, Still: g.delivers(ctx)}, g.rules.hookRules)
	if err == nil && result.Allowed && hook == api.ToolExecuting {
		result.ExemptUntil = g.kernel.hooks.ExemptUntil(ctx, &g.kernel.Exempt, &hooks.Caller{
			Agent: g.agent, Peer: g.peer, Process: p.Process, Lasts: g.lasts,
			Still: func(ctx context.Context) bool { return g.kernel.rules() == g.rules && g.still(ctx) == nil },
		}, g.rules.hookRules)
	}
	return result, err
}

// Redeem gives the agent an approved message to send, once.
func (g *Granted) Redeem(ctx context.Context, p *api.RedeemParams) (api.RedeemAnswer, api.AfterReply, error) {
	result, err := redeem(ctx, g.rules, g.agent.App, p, g.delivers(ctx), g.rules.mayLeave)
	return result, nil, err
}

// Confirm takes the agent's statement about a message that it delivers by itself.
func (g *Granted) Confirm(ctx context.Context, p *api.ConfirmParams) (api.OK, api.AfterReply, error) {
	ctx = context.WithoutCancel(ctx)
	waits, err := g.kernel.releases.Asked(ctx, g.asker(), p)
	if err != nil || waits != nil {
		if err == nil {
			_, err = g.rules.withdraw(ctx, g.agent.App, waits)
		}
		return api.OK{OK: err == nil}, nil, err
	}
	result, err := g.kernel.releases.Confirm(ctx, g.agent.App, p)
	return result, nil, err
}

// Watch tells the agent of its requests as they change.
func (g *Granted) Watch(ctx context.Context, s api.Stream) error {
	return g.kernel.requests.WatchOf(ctx, func(r *approval.Request) bool { return r.AppID == g.agent.App && g.kernel.rules().asked(r) }, s)
}

// Redeemable lists what the agent can redeem.
func (g *Granted) Redeemable(ctx context.Context, _ *api.Empty) (api.RedeemableResult, api.AfterReply, error) {
	result, err := g.kernel.releases.Ready(ctx, g.agent.App, g.rules.asked)
	return result, nil, err
}
