package kernel

import (
	"context"
	"fmt"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// source compares an envelope with the directory's knowledge of its sender, its session and its
// address. An envelope that contradicts the directory is a forgery.
func (k inbound) source(ctx context.Context, in *incoming, envelope *ocip.Envelope) (*sourced, error) {
	from, reported := sourceOf(k.ruleset, in.appID, in.key, &in.origin, in.agent, envelope)
	if !reported {
		return from, nil
	}
	problem, err := k.sent(ctx, in, envelope, from)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		from.denied = &ocip.Verdict{
			Code: ocip.SourceMismatch, Policy: "receiver",
			Reason: fmt.Sprintf("agent %s has not sent this message, or not so%s", envelope.SourceAgent.InstanceID, problem),
		}
		return from, nil
	}
	from.Kind = ocip.KindAgent
	return from, nil
}

// sourceOf is [inbound.source] by the directory alone. Reported is set if the message must be
// compared with one that an agent of this daemon has sent.
func sourceOf(k *ruleset, app, key string, origin *directory.Origin, agent *Agent, envelope *ocip.Envelope) (from *sourced, reported bool) {
	claimed := envelope.SourceAgent
	from = &sourced{Counterparty: ocip.Counterparty{Kind: ocip.KindUnknown, Identity: claimed}}
	deny := func(code ocip.Code, policy, reason string) (*sourced, bool) {
		from.denied = &ocip.Verdict{Code: code, Policy: policy, Reason: reason}
		return from, false
	}
	claim, forged := k.directory.Compare(envelope, origin, agent)
	as := ocip.Counterparty{Kind: ocip.KindAgent, Identity: claimed}
	if forged == nil && claim.Confirmed {
		// A false sender proves nothing. A stranger's claim about itself says nothing about the
		// room either, whichever tenant it names: otherwise anyone who can write there could stop
		// the sending, or have it held.
		from.spoke = append(from.spoke, as)
	}
	if reason, blocked := ocip.Wall(agent.Identity, as); blocked {
		return deny(ocip.CrossEnterpriseBlocked, "tenant-wall", reason)
	}
	if forged != nil {
		return deny(ocip.EnvelopeForged, "receiver", forged.Error())
	}
	channel, _ := directory.Split(key)
	mayCarry := k.directory.MayCarry(app, claimed.InstanceID, agent)
	switch {
	case claim.Confirmed, claim.Elsewhere && mayCarry == nil:
		from.Kind = ocip.KindAgent
	case app == agent.App && k.directory.Local(claimed.InstanceID) != nil:
		// Its runtime delivers messages between agents of this daemon by itself.
		return from, true
	case channel == directory.AgentChannel && mayCarry != nil:
		return deny(ocip.SourceMismatch, "receiver", mayCarry.Error())
	case claim.Elsewhere:
		return deny(ocip.SourceMismatch, "receiver", fmt.Sprintf("the envelope is of agent %s, and the directory does not have that agent at this session", claimed.InstanceID))
	}
	return from, false
}
