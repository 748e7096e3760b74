package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// keptOut reports whether a pause forbids deciding the message. It concerns only messages that the
// runtime already has: the daemon cannot keep those until the pause ends.
func (k inbound) keptOut(in *incoming) (reason string, paused bool) {
	if in.carried == nil {
		return "", false
	}
	return k.pauses.Reason(directory.ChannelOf(in.key), in.agent.ID)
}

// mayBring reports whether an app may bring in a message without an envelope, or one with an
// envelope through a channel. A refused attempt is on record.
func (k inbound) mayBring(in *incoming) error {
	channel, _ := directory.Split(in.key)
	owns := k.apps.Owns(k.terms, in.app, channel)
	err := k.directory.MayBring(in.appID, owns, in.key, in.agent)
	switch {
	case err != nil || channel == directory.AgentChannel || owns:
	case in.app == nil:
		err = registry.Reached(k.apps, k.terms, channel, in.agent, true)
	default:
		// A runtime may bring messages of its own channel, and of no other app's.
		err = k.directory.MayOwn(in.appID, channel)
		if err == nil && k.apps.Owner(k.terms, channel) != nil {
			err = fmt.Errorf("channel %s is another app's", channel)
		}
	}
	if err == nil {
		return nil
	}
	if channel != directory.AgentChannel && !owns {
		return api.Errorf(api.CapabilityDenied, "%v", err)
	}
	return k.apps.RecordRefusalOf(in.appID, "bringing_refused", api.Errorf(api.Forbidden, "%v", err), map[string]any{"sessionKey": in.key, "agentId": in.agent.ID})
}

// freshens reports whether a message begins a new causal chain. Only words of a person in the
// directory do. A stranger's do not, since a bot in a room would keep a loop of agents going. An
// app that speaks for agents could write such messages by itself, so the daemon does not believe it
// if there is a second agent that it could be talking to.
func (k inbound) freshens(in *incoming) bool {
	channel, _ := directory.Split(in.key)
	known := in.from.Kind == ocip.KindOwner || in.from.Kind == ocip.KindPerson
	if !known || channel == directory.AgentChannel || !k.apps.Owns(k.terms, in.app, channel) {
		return false
	}
	return len(k.directory.SpokenBy(in.appID)) == 0 || len(k.cfg.Directory.Agents) == 1
}

// mayBeFor reports whether a message of a session can be for the agent that its app names. It
// cannot if the session belongs to another app's agent, by earlier messages or by a route.
func (k inbound) mayBeFor(ctx context.Context, a *registry.App, key string, named *Agent) error {
	if _, ok := directory.AgentOf(key); ok {
		return nil
	}
	whose, err := k.state.Sessions.Agent(ctx, k.directory, key)
	if err != nil {
		return err
	}
	if routed, ok := k.directory.Routed(key); ok {
		whose = routed
	}
	if whose != nil && whose.App != named.App && k.shows(a, key, whose) {
		return api.Errorf(api.Forbidden, "session %s is of agent %q, not of %q", key, whose.ID, named.ID)
	}
	return nil
}

// shows reports whether an app may know which agent a session belongs to. With several tenants, it
// may own the session's channel or speak for an agent of the same tenant. To any other app the
// session looks unowned.
func (k inbound) shows(a *registry.App, key string, agent *Agent) bool {
	channel, _ := directory.Split(key)
	return !k.directory.SeveralTenants() || k.directory.MayOwn(a.ID(), channel) == nil ||
		slices.ContainsFunc(k.directory.SpokenBy(a.ID()), func(own *Agent) bool { return own.TenantID == agent.TenantID })
}

// receiver returns the agent that an inbound message is for: the named one, or else the session's.
func (k inbound) receiver(ctx context.Context, a *registry.App, key, named string) (*Agent, error) {
	if id, ok := directory.AgentOf(key); ok && named != "" && id != named {
		return nil, api.Errorf(api.InvalidParams, "session %s is of agent %q, not of %q", key, id, named)
	}
	if named != "" {
		agent := k.directory.Agent(named)
		if agent != nil && directory.MayKnow(k.directory, a.ID(), agent) {
			return agent, k.mayBeFor(ctx, a, key, agent)
		}
		return nil, k.noReceiver(a, named)
	}
	if id, ok := directory.AgentOf(key); ok {
		return k.receiver(ctx, a, "", id)
	}
	agent, err := k.state.Sessions.Agent(ctx, k.directory, key)
	if err != nil {
		return nil, err
	}
	if agent == nil {
		if agent, _ = k.directory.Routed(key); agent == nil {
			agent = k.directory.Default()
		}
	}
	if agent != nil && k.shows(a, key, agent) {
		return agent, nil
	}
	return nil, api.Errorf(api.NotFound, "no agent takes messages of session %s; add a route {session: %q, agent: …} or a default_agent to the configuration", key, key)
}

// noReceiver is the error for a message to an agent that does not exist, or that the app may not
// know. With several tenants, both cases give the same error and the same record.
func (k inbound) noReceiver(a *registry.App, named string) error {
	if !k.directory.SeveralTenants() {
		return api.Errorf(api.NotFound, "there is no agent %q; agents[].id in the configuration lists them", named)
	}
	refusal := api.Errorf(api.Forbidden, "app %s serves no agent %q; agents[].id in the configuration lists the agents, and tenants in access.apps those that an app serves", a.ID(), named)
	return k.apps.RecordRefusal(a, "bringing_refused", refusal, map[string]any{"agentId": named})
}

// refuseInbound records the refusal of a message that the daemon has not weighed. Nothing that the
// message claims changes any state.
func (k inbound) refuseInbound(in *incoming, from ocip.Counterparty, code ocip.Code, rule, reason, event string) (api.QueueResult, error) {
	v := ocip.Verdict{Result: ocip.Deny, Code: code, Policy: rule, Reason: reason}
	r, err := k.receivedRecord(in.agent, from, &v, in.key, in.content)
	if err != nil {
		return api.QueueResult{}, err
	}
	in.describe(r)
	r.Event, r.Classification = event, "" // the claimed level is not verified yet
	if err := k.stopped(in, r); err != nil {
		return api.QueueResult{}, err
	}
	return api.QueueResult{}, refused(&v, r)
}

// stopped records that a message was not taken. Its author still counts as a reader of the place
// that it came from.
func (k inbound) stopped(in *incoming, r *audit.Record) error {
	change := &store.Change{Records: []*audit.Record{r}}
	if err := k.heard(context.Background(), in, change); err != nil {
		return err
	}
	in.lane.settle(change)
	_, err := k.commit(change)
	return err
}

// reported returns the author as the record names it: unknown, if a runtime reports the message for
// a channel that it does not have.
func (k inbound) reported(in *incoming) audit.Counterparty {
	if in.speaker == "" && !k.learns(in) {
		return audit.Counterparty{Kind: string(ocip.KindUnknown)}
	}
	return counterpartyRecord(in.from.Kind, in.from.Identity)
}

// takeMalformed handles an annotation that cannot be parsed. A known agent does not send such a
// thing, so it is refused. From anybody else the message stays a human one, and the agent is told
// not to trust the annotation.
func (k inbound) takeMalformed(in *incoming, problem error) (api.QueueResult, error) {
	if reason, blocked := ocip.Wall(in.agent.Identity, in.from); blocked {
		return k.refuseInbound(in, in.from, ocip.CrossEnterpriseBlocked, "tenant-wall", reason, "malformed_envelope")
	}
	if in.from.Kind == ocip.KindAgent {
		return k.refuseInbound(in, in.from, ocip.MalformedEnvelope, "envelope", problem.Error(), "malformed_envelope")
	}
	in.metadata = maps.Clone(in.metadata)
	delete(in.metadata, "ocip")
	delete(in.metadata, "ocipChain")
	delete(in.metadata, exchangestate.LogHeadName)
	in.metadata["ocipUntrusted"] = api.String(problem.Error())
	return k.takeHuman(in, map[string]any{"malformedEnvelope": problem.Error(), "untrusted": true})
}
