package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Redeem gives the app what a person has approved for it to send, once.
func (c *Client) Redeem(ctx context.Context, p *api.RedeemParams) (api.Redeemed, error) {
	k, err := c.rules()
	if err != nil {
		return api.Redeemed{}, err
	}
	return k.releases.Redeem(ctx, c.App().ID(), p, func(r *approval.Request) error {
		if _, err := k.sender(c.App().ID(), r.AgentID); err != nil {
			return err
		}
		return k.mayLeave(r)
	})
}

// mayLeave refuses what a pause stops.
func (k *ruleset) mayLeave(r *approval.Request) error {
	if reason, paused := k.pauses.Reason(r.AgentID, directory.ChannelOf(r.SessionKey)); paused {
		return &api.Error{Code: api.Forbidden, Message: reason, Details: map[string]any{"ocip": map[string]any{"code": ocip.Paused, "reason": reason}}}
	}
	return nil
}

// Confirm takes the app's word about what became of a message that it delivers by itself.
func (c *Client) Confirm(ctx context.Context, p *api.ConfirmParams) (api.OK, error) {
	return c.kernel.releases.Confirm(context.WithoutCancel(ctx), c.App().ID(), p)
}

// Redeemable lists what the app can redeem.
func (c *Client) Redeemable(ctx context.Context, _ *api.Empty) (api.RedeemableResult, error) {
	return c.kernel.releases.Ready(ctx, c.App().ID())
}

// Withdraw takes back what the app asked for and no person has decided about.
func (c *Client) Withdraw(ctx context.Context, p *api.WithdrawParams) (api.OK, error) {
	return c.kernel.Approvals().Withdraw(context.WithoutCancel(ctx), c.App().ID(), p)
}

// Withdraw takes back what the agent asked for and no person has decided about.
func (g *Granted) Withdraw(ctx context.Context, p *api.WithdrawParams) (api.OK, api.AfterReply, error) {
	result, err := g.rules.decider.Withdraw(context.WithoutCancel(ctx), g.agent.App, p)
	return result, nil, err
}

// Emit decides about a message that the process which speaks for the agent delivers by
// itself.
func (g *Granted) Emit(ctx context.Context, p *api.EmitParams) (api.EmitResult, api.AfterReply, error) {
	if hook, _ := api.ParseHook(p.HookName); hook != api.MessageSending {
		return api.EmitResult{}, nil, api.Invalid([]api.FieldError{{Path: "hookName", Message: "an agent without an app asks about message_sending alone"}})
	}
	given, err := emitted(p)
	if err != nil {
		return api.EmitResult{}, nil, err
	}
	m := &outgoing{appID: g.agent.App, sender: g.agent, grantID: g.grant, carried: true, redeems: true, there: func() bool { return api.There(ctx) }}
	decided, err := g.dispatch(ctx, m, &api.DispatchParams{SessionKey: given.SessionKey, Content: given.Content, Metadata: given.Metadata, Mended: p.Mended})
	result, err := g.kernel.carried(m, &decided, err)
	return result, nil, err
}

// Redeem gives the agent what a person has approved for it to send, once.
func (g *Granted) Redeem(ctx context.Context, p *api.RedeemParams) (api.Redeemed, api.AfterReply, error) {
	result, err := g.kernel.releases.Redeem(ctx, g.agent.App, p, g.rules.mayLeave)
	return result, nil, err
}

// Confirm takes the agent's word about what became of a message that it delivers by itself.
func (g *Granted) Confirm(ctx context.Context, p *api.ConfirmParams) (api.OK, api.AfterReply, error) {
	result, err := g.kernel.releases.Confirm(context.WithoutCancel(ctx), g.agent.App, p)
	return result, nil, err
}

// Redeemable lists what the agent can redeem.
func (g *Granted) Redeemable(ctx context.Context, _ *api.Empty) (api.RedeemableResult, api.AfterReply, error) {
	result, err := g.kernel.releases.Ready(ctx, g.agent.App)
	return result, nil, err
}
