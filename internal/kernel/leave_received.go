package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// stillReceived weighs a message from outside again: whether it is still for the agent, from the
// same sender and from nobody behind the tenant wall, brought by an app that may bring it, about a
// task of the agent's tenant, and allowed by the rules for receivers.
func (w *waitedMessage) stillReceived(ctx context.Context, m *api.Inbound) error {
	k, r := w.k, w.Record
	agent := k.directory.Local(r.AgentID)
	if agent == nil || agent.TenantID != r.TenantID {
		return withdraws(ocip.RecipientMismatch, "agent %s, for whom the message is, is no longer configured as it was", r.AgentID)
	}
	origin, err := k.directory.Origin(m.SessionKey, m.Metadata, agent)
	if err != nil {
		return withdraws(ocip.RecipientMismatch, "session %s is none any more: %v", m.SessionKey, err)
	}
	from, err := k.state.Seen.Known(ctx, m.SessionKey, agent, origin.Counterparty)
	if err != nil {
		return err
	}
	if reason, walled := ocip.Wall(agent.Identity, from); walled && !mutant.Off("waiting-wall") {
		return withdraws(ocip.CrossEnterpriseBlocked, "%s", reason)
	}
	if _, denied, err := k.tasks.find(ctx, m.Metadata, agent); !directory.IsHosts(r.AppID) && (err != nil || denied != nil) {
		if denied != nil {
			err = withdraws(denied.Code, "%s", denied.Reason)
		}
		return err
	}
	envelope, err := ocip.ParseEnvelope(m.Metadata["ocip"])
	channel, _ := directory.Split(m.SessionKey)
	if err != nil || channel != directory.AgentChannel {
		if err := w.stillBrings(channel, m.SessionKey, agent); err != nil {
			return err
		}
	}
	if err != nil {
		return w.stillPlain(from, err)
	}
	source, reported := sourceOf(k, r.AppID, m.SessionKey, &origin, agent, &envelope)
	if denied := source.denied; denied != nil {
		return withdraws(denied.Code, "%s", denied.Reason)
	}
	if reported {
		// At its arrival it was compared with that agent's record of the sent message.
		source.Kind = ocip.KindAgent
	}
	return w.stillTakes(ctx, agent, source.Counterparty, &envelope, m.SessionKey, m.Content.Inspect(), m.Metadata, k.directory.Rendering(origin.Channel)...)
}

// stillBrings reports whether the app that brought a message in could bring it under the current
// configuration. It need not have the channel right now: it may be disconnected.
func (w *waitedMessage) stillBrings(channel, key string, agent *Agent) error {
	k, r := w.k, w.Record
	err := k.directory.MayBring(r.AppID, true, key, agent)
	if err == nil && channel != directory.AgentChannel && r.AppID != agent.App {
		err = k.directory.MayOwn(r.AppID, channel)
	}
	if err != nil {
		return withdraws(ocip.SourceMismatch, "%v", err)
	}
	return nil
}

// stillPlain weighs a message without an envelope by its known author. Problem is the reason that
// it has none.
func (w *waitedMessage) stillPlain(from ocip.Counterparty, problem error) error {
	k, r := w.k, w.Record
	same := func(was, is string) bool { return k.keys.Same(r.TenantID, was, is) }
	if was, is := r.Counterparty, counterpartyRecord(from.Kind, from.Identity); was.Kind != string(ocip.KindUnknown) &&
		(was.Kind != is.Kind || !same(was.InstanceID, is.InstanceID) || !same(was.TenantID, is.TenantID) || !same(was.UserID, is.UserID)) {
		return withdraws(ocip.SourceMismatch, "session %s is no longer of whom the message was decided to be from", r.SessionKey)
	}
	if from.Kind != ocip.KindAgent {
		return nil
	}
	if _, malformed := r.Details["malformedEnvelope"]; malformed || !errors.Is(problem, ocip.ErrNoEnvelope) {
		return withdraws(ocip.MalformedEnvelope, "agent %s is known, and the envelope of its message is none", from.InstanceID)
	}
	if k.cfg.Unannotated == UnannotatedRefuse {
		return withdraws(ocip.MalformedEnvelope, "agent %s is known, and its message has no envelope", from.InstanceID)
	}
	return nil
}

// stillTakes weighs a message by the receiver's rules in force, as if nothing had come after it.
func (w *waitedMessage) stillTakes(ctx context.Context, agent *Agent, from ocip.Counterparty, envelope *ocip.Envelope, key, content string, metadata api.Object, as ...text.Rendering) error {
	k, r := w.k, w.Record
	now := k.now()
	in := &ocip.Incoming{
		Now: now, Receiver: agent.Agent, From: from, Envelope: *envelope,
		Exchange: ocip.Exchange{
			ID: r.ExchangeID, ConversationID: r.ConversationID, Type: ocip.ExchangeType(r.ExchangeType), Agent: agent.InstanceID, Counterparty: from.InstanceID, SessionKey: key,
			Outcome: ocip.InProgress, Round: max(r.Round-1, 0), MaxRounds: r.MaxRounds, OpenedAt: r.Time, UpdatedAt: r.Time, ExpiresAt: envelope.ExpiresAt.Time,
		},
		Chain: ocip.BeginChain(r.DispatchID, from.InstanceID, now), ExpiresAfter: k.cfg.ExpiresAfter,
		Content: content, Rendering: as, Passages: passages(metadata, func(string) bool { return false }), Rules: k.cfg.Rules, Approved: r.ApprovalID != "",
	}
	if v := ocip.Receive(ctx, in, k.policy); v.Result == ocip.Deny {
		return &gate.Withdrawn{Code: string(v.Code), Reason: v.Reason}
	}
	return nil
}
