package kernel

import (
	"context"
	"errors"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/registry"
)

// Emit takes a hook from a runtime that delivers by itself. A message goes the
// same way as one that the daemon delivers, the delivery alone left out, so
// that there is one implementation of every rule.
func (c *Client) Emit(ctx context.Context, p *api.EmitParams) (api.EmitResult, error) {
	hook, known := api.ParseHook(p.HookName)
	if !known {
		return api.EmitResult{}, api.Invalid([]api.FieldError{{Path: "hookName", Message: "there is no such hook"}})
	}
	if hook == api.MessageSending {
		return c.emitSending(ctx, p)
	}
	if hook == api.MessageReceived {
		return c.emitReceived(ctx, p)
	}
	k, err := c.rules()
	if err != nil {
		return api.EmitResult{}, err
	}
	agent, err := k.sender(c.App().ID(), p.Context.AgentID)
	if err != nil {
		return api.EmitResult{}, k.apps.RecordRefusal(c.App(), "sender_refused", err, map[string]any{"hook": hook})
	}
	about, err := k.emittedAbout(ctx, agent, &p.Context)
	if err != nil {
		return api.EmitResult{}, err
	}
	if reason, paused := k.pauses.Reason(agent.ID, about.ChannelID); paused {
		return k.refuseHook(c.App(), agent, hook, reason, about)
	}
	if hook == api.ToolExecuting {
		return k.executeTool(ctx, c.App(), agent, p.Data, about)
	}
	return k.notice(c.App(), agent, hook, p.Data, about)
}

// emittedAbout is the context of a hook that a runtime raises. Who hears of it goes
// by the agent and its session, so the runtime names one of the agent's own and the
// rest is the daemon's to say.
func (k *ruleset) emittedAbout(ctx context.Context, agent *Agent, given *api.HookContext) (about api.HookContext, err error) {
	about = api.HookContext{AgentID: agent.ID, Timestamp: k.now().UnixMilli()}
	if given.SessionKey == "" {
		return about, nil
	}
	own := k.directory.LocalAgent(given.SessionKey) == agent
	if !own {
		whose, err := k.state.Sessions.Agent(ctx, given.SessionKey)
		if err != nil {
			return about, err
		}
		own = whose == agent.ID
	}
	if !own {
		return about, api.Invalid([]api.FieldError{{Path: "context.sessionKey", Message: "is no session of agent " + agent.ID}})
	}
	about.SessionKey, about.ChannelID = given.SessionKey, directory.ChannelOf(given.SessionKey)
	return about, nil
}

// refuseHook puts on record that a hook was raised while the agent's sending is
// paused. Nobody is told, and no tool may run.
func (k *ruleset) refuseHook(a *registry.App, agent *Agent, hook api.Hook, reason string, about api.HookContext) (api.EmitResult, error) {
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: string(hook), AppID: a.ID(),
		TenantID: agent.TenantID, UserID: agent.UserID, AgentID: agent.InstanceID, SessionKey: about.SessionKey,
		PolicyApplied: "pause", PolicyResult: string(ocip.Deny), PolicyReason: reason, Code: string(ocip.Paused),
	}
	if _, err := k.record(r); err != nil {
		return api.EmitResult{}, err
	}
	return api.EmitResult{Reason: reason, OCIP: map[string]any{"code": ocip.Paused, "reason": reason, "result": ocip.Deny, "auditId": r.ID}}, nil
}

// notice tells who observes an agent what its runtime says that it did. What they
// are told is on record first.
func (k *ruleset) notice(a *registry.App, agent *Agent, hook api.Hook, data api.Object, about api.HookContext) (api.EmitResult, error) {
	encoded := data.Append(nil)
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: string(hook), AppID: a.ID(),
		TenantID: agent.TenantID, UserID: agent.UserID, AgentID: agent.InstanceID, SessionKey: about.SessionKey,
		PolicyApplied: "access", PolicyResult: string(ocip.Allow), PolicyReason: "told to those who may observe the agent",
	}
	if err := k.content(r, string(encoded)); err != nil {
		return api.EmitResult{}, err
	}
	if _, err := k.record(r); err != nil {
		return api.EmitResult{}, err
	}
	about.AuditID = r.ID
	k.apps.Observe(k.terms, hook, encoded, about, a)
	return api.EmitResult{Allowed: true, Data: encoded}, nil
}

// emitted reads the message of a hook. It needs what a message that is
// dispatched needs.
func emitted(p *api.EmitParams) (m api.EmittedMessage, err error) {
	if err := json.Unmarshal(p.Data.Append(nil), &m); err != nil {
		return m, api.Invalid([]api.FieldError{{Path: "data", Message: "not a message, want {sessionKey, content, metadata}"}})
	}
	return m, api.Invalid(m.Validate())
}

// emitSending decides and records a message that its runtime then delivers.
func (c *Client) emitSending(ctx context.Context, p *api.EmitParams) (api.EmitResult, error) {
	given, err := emitted(p)
	if err != nil {
		return api.EmitResult{}, err
	}
	m, result, err := c.dispatch(ctx, &api.DispatchParams{SessionKey: given.SessionKey, Content: given.Content, Metadata: given.Metadata, Mended: p.Mended}, p.Context.AgentID, true)
	if err != nil {
		return notAllowed(err)
	}
	if result.Held {
		return api.EmitResult{Held: true, ApprovalID: result.ApprovalID, Reason: result.OCIP.Reason, OCIP: result.OCIP}, nil
	}
	return api.EmitResult{
		Allowed: true, OCIP: result.OCIP,
		Data: m.emitted().Append(nil),
	}, nil
}

// emitReceived weighs a message that its runtime has received by itself.
func (c *Client) emitReceived(ctx context.Context, p *api.EmitParams) (api.EmitResult, error) {
	given, err := emitted(p)
	if err != nil {
		return api.EmitResult{}, err
	}
	in, _, err := c.queue(ctx, &api.QueueParams{SessionKey: given.SessionKey, Text: given.Content, Metadata: given.Metadata, Mended: p.Mended}, p.Context.AgentID, true)
	if err != nil {
		return notAllowed(err)
	}
	return api.EmitResult{
		Allowed: true,
		Data:    api.EmittedMessage{SessionKey: in.key, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID}.Append(nil),
	}, nil
}

// notAllowed turns a verdict into a result. What is no verdict stays an error,
// which the runtime must take for a refusal.
func notAllowed(err error) (api.EmitResult, error) {
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code == api.InternalError {
		return api.EmitResult{}, err
	}
	details, ok := refusal.Details.(map[string]any)
	if !ok || details["ocip"] == nil {
		return api.EmitResult{}, err
	}
	return api.EmitResult{Reason: refusal.Message, OCIP: details["ocip"]}, nil
}

// executeTool asks the interceptors whether an agent's tool may run, and with
// what. The answer is on record, also where it is yes.
func (k *ruleset) executeTool(ctx context.Context, a *registry.App, agent *Agent, data api.Object, about api.HookContext) (api.EmitResult, error) {
	var changedBy []string
	blocked, err := k.apps.Ask(ctx, k.terms, &registry.Question{
		Hook: api.ToolExecuting, About: about, Asker: a,
		Data: func() []byte { return data.Append(nil) },
		Take: func(by *registry.App, result jsontext.Value) *ocip.Verdict {
			if denied := by.Denies(result); denied != nil {
				return denied
			}
			var changed api.Object
			if err := json.Unmarshal(result, &changed); err != nil {
				return by.Deny("gave an answer that is no object")
			}
			if !changed.Equal(data) {
				data, changedBy = changed, append(changedBy, by.ID())
			}
			return nil
		},
	})
	if err != nil {
		return api.EmitResult{}, err
	}
	tool, _ := api.Text(data["toolName"])
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: string(api.ToolExecuting), AppID: a.ID(),
		TenantID: agent.TenantID, UserID: agent.UserID, AgentID: agent.InstanceID, SessionKey: about.SessionKey,
		PolicyApplied: "interceptors", PolicyResult: string(ocip.Allow), PolicyReason: "no interceptor objected",
		Details: map[string]any{"tool": ocip.Summarize(tool)},
	}
	if len(changedBy) > 0 {
		r.Details["changedBy"] = changedBy
	}
	if blocked != nil {
		r.PolicyApplied, r.PolicyResult, r.PolicyReason, r.Code = blocked.Policy, string(ocip.Deny), blocked.Reason, string(blocked.Code)
		maps.Copy(r.Details, blocked.Details)
	}
	encoded := data.Append(nil)
	if err := k.content(r, string(encoded)); err != nil {
		return api.EmitResult{}, err
	}
	if _, err := k.record(r); err != nil {
		return api.EmitResult{}, err
	}
	if blocked != nil {
		return api.EmitResult{Reason: blocked.Reason, OCIP: map[string]any{"code": blocked.Code, "reason": blocked.Reason, "result": ocip.Deny, "auditId": r.ID}}, nil
	}
	about.AuditID = r.ID
	k.apps.Observe(k.terms, api.ToolExecuting, encoded, about, a)
	return api.EmitResult{Allowed: true, Data: encoded}, nil
}
