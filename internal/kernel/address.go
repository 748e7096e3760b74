package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/exchange"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// served reports whether the app of the message's channel, if it has one, is there
// for the sender: of two tenants, each has its own.
func (k *ruleset) served(m *outgoing) error {
	if m.local != nil || m.channel == directory.AgentChannel {
		return nil
	}
	return k.reached(m.channel, m.sender, m.carried)
}

// reached reports whether an agent has a channel: by an app, or where it delivers by itself.
func (k *ruleset) reached(channel string, agent *Agent, carried bool) error {
	owner := k.apps.Owner(k.terms, channel)
	if carried && owner == nil && !k.directory.Granted(channel) {
		return nil // the runtime has a channel of its own
	}
	err := k.directory.Served(channel, agent)
	if owner != nil {
		if err = k.directory.Serves(owner.ID(), agent); err != nil {
			err = k.directory.NotServed(channel, agent)
		}
	}
	if err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	return nil
}

// locate finds out whom a message reaches: where the message came from that it
// answers, the session's last one unless it says otherwise, else where its key
// leads, and who the directory has there.
func (k *ruleset) locate(ctx context.Context, m *outgoing) error {
	brought, err := k.state.Origins.Of(ctx, exchange.OriginKey(k.directory, m.sender, m.key))
	if err != nil {
		return err
	}
	return k.reach(ctx, m, k.directory.Answering(m.key, brought, m.metadata))
}

// reach is locate where it is known what was brought.
func (k *ruleset) reach(ctx context.Context, m *outgoing, brought map[string]string) (err error) {
	m.known.generation = k.generation(m.sender.TenantID)
	m.recipient, err = k.directory.Recipient(m.key, m.account, brought, m.sender)
	switch {
	case errors.Is(err, directory.ErrSpelling), errors.Is(err, directory.ErrAddress):
		return api.Invalid([]api.FieldError{{Path: "sessionKey", Message: err.Error()}})
	case err != nil:
		return err
	}
	m.channel, m.target, m.account = m.recipient.Channel, m.recipient.Target, m.recipient.Account
	m.to, m.known.learned, err = k.state.Readers(ctx, k.directory, m.key, m.sender, &m.recipient)
	return err
}

// bind writes the address that the message is decided about into its metadata,
// where channels' apps read it. One that says otherwise is refused: it would reach
// somebody else.
func (k *ruleset) bind(m *outgoing, by string) error {
	bound, mismatch := m.recipient.Bind(m.metadata)
	if mismatch == "" {
		m.metadata = bound
		return nil
	}
	return k.refuseEarly(m, &ocip.Verdict{
		Result: ocip.Deny, Code: ocip.RecipientMismatch, Policy: "recipient",
		Reason: fmt.Sprintf("%s names another recipient in metadata.%s than session %s reaches%s", by, mismatch, m.key, k.instead(m, mismatch)),
	})
}

// instead is what to do about a member that names another recipient. Where a session
// of another tenant's agent leads is not told.
func (k *ruleset) instead(m *outgoing, member string) string {
	const omit = "; leave that member out"
	has, err := k.state.Sessions.Agent(context.Background(), k.directory, m.key)
	reached := m.recipient.Says(member)
	if err != nil || reached == "" || has != nil && has.TenantID != m.sender.TenantID {
		return omit
	}
	return fmt.Sprintf(", which is %q%s, or give that", reached, omit)
}
