package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// served returns an error if the app of the message's channel does not serve the sender. Tenants
// have separate apps for a channel.
func (k *ruleset) served(m *outgoing) error {
	if m.local != nil || m.channel == directory.AgentChannel {
		return nil
	}
	return k.reached(m.channel, m.sender, m.carried)
}

// reached reports whether an agent has a channel, through an app or through its own runtime.
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

// locate finds out whom a message reaches. An answer goes to the address that the message before it
// came from, by default the session's last one. Otherwise the session key gives the address. The
// directory names the counterparty there.
func (k *ruleset) locate(ctx context.Context, m *outgoing) error {
	brought, err := k.state.Origins.Of(ctx, exchangestate.OriginKey(k.directory, m.sender, m.key))
	if err != nil {
		return err
	}
	return k.reach(ctx, m, k.directory.Answering(m.key, brought, m.metadata))
}

// reach is locate for a caller that already knows what earlier messages brought.
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

// bind writes the address that the decision is about into the message's metadata, for the channel's
// app to read. It refuses a message whose metadata names another address, which would reach
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

// instead says how to correct a member that names another recipient. It does not reveal the address
// behind a session of another tenant's agent.
func (k *ruleset) instead(m *outgoing, member string) string {
	const omit = "; leave that member out"
	has, err := k.state.Sessions.Agent(context.Background(), k.directory, m.key)
	reached := m.recipient.Says(member)
	if err != nil || reached == "" || has != nil && has.TenantID != m.sender.TenantID {
		return omit
	}
	return fmt.Sprintf(", which is %q%s, or give that", reached, omit)
}
