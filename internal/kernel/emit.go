package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Emit takes a hook from a runtime that delivers by itself. A message goes the same way as one that
// the daemon delivers, without the delivery, so that every rule has one implementation.
func (c *Client) Emit(ctx context.Context, p *api.EmitParams) (api.EmitAnswer, error) {
	hook, known := api.ParseHook(p.HookName)
	if !known {
		return api.EmitAnswer{}, api.Invalid([]api.FieldError{{Path: "hookName", Message: "there is no such hook"}})
	}
	if hook == api.MessageSending {
		return c.emitSending(ctx, p)
	}
	if hook == api.MessageReceived {
		return c.emitReceived(ctx, p)
	}
	if hook == api.MessageSent {
		// Only the daemon raises this hook, after a delivery.
		return api.EmitAnswer{}, api.Invalid([]api.FieldError{{Path: "hookName", Message: "is raised by the daemon alone"}})
	}
	return under(c, func(k *ruleset) (api.EmitAnswer, error) {
		agent, err := k.addresses.sender(c.App().ID(), p.Context.AgentID)
		if err != nil {
			return api.EmitAnswer{}, k.apps.RecordRefusal(c.App(), "sender_refused", err, map[string]any{"hook": hook})
		}
		return k.hooks.Take(ctx, &hooks.Raised{By: c.App(), AppID: c.App().ID(), Agent: agent, Hook: hook, Context: p.Context, Data: p.Data}, k.hookRules)
	})
}

// emitSending decides and records a message that its runtime then delivers.
func (c *Client) emitSending(ctx context.Context, p *api.EmitParams) (api.EmitAnswer, error) {
	given, err := p.Message()
	if err != nil {
		return api.EmitAnswer{}, err
	}
	m, result, err := c.dispatch(ctx, &api.DispatchParams{SessionKey: given.SessionKey, Content: given.Content, Metadata: given.Metadata, InAnnotation: given.Disclosure != "", Mended: p.Mended}, p.Context.AgentID, true)
	return c.kernel.carried(m, &result, err)
}

// carried returns the answer to a runtime about a message that it delivers by itself.
func (k *Kernel) carried(m *outgoing, decided *api.DispatchResult, err error) (api.EmitAnswer, error) {
	if err != nil {
		return api.NotAllowed(err)
	}
	if decided.Held {
		return api.EmitAnswer{Held: true, ApprovalID: decided.ApprovalID, Reason: decided.OCIP.Reason, OCIP: decided.OCIP}, nil
	}
	result := api.EmitAnswer{Allowed: true, OCIP: decided.OCIP, Data: m.sealed}
	result.Watch(k.releases.Allowed(m.record))
	to, from, tenant, generation, channel := "", m.sender.ID, m.sender.TenantID, m.known.generation, directory.ChannelOf(m.key)
	if m.local != nil {
		to = m.local.ID
	}
	result.While(func() bool {
		return k.rules().generation(tenant) == generation && k.pauses.Of(channel, from, to) == ""
	})
	return result, nil
}

// emitReceived weighs a message that its runtime has received by itself.
func (c *Client) emitReceived(ctx context.Context, p *api.EmitParams) (api.EmitAnswer, error) {
	given, err := p.Message()
	if err != nil {
		return api.EmitAnswer{}, err
	}
	in, _, err := c.queue(ctx, &api.QueueParams{SessionKey: given.SessionKey, Text: given.Content, Metadata: given.Metadata, Mended: p.Mended}, p.Context.AgentID, true)
	return in.taken(err)
}

// taken returns the answer to a runtime about a message that it has received by itself.
func (in *incoming) taken(err error) (api.EmitAnswer, error) {
	if err != nil {
		return api.NotAllowed(err)
	}
	return api.EmitAnswer{Allowed: true, Data: in.sealed}, nil
}
