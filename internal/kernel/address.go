package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// served returns an error if the app of the message's channel does not serve the sender. Tenants
// have separate apps for a channel.
func (k *ruleset) served(m *outgoing) error {
	if m.local != nil || m.channel == directory.AgentChannel {
		return nil
	}
	return registry.Reached(k.apps, k.terms, m.channel, m.sender, m.carried)
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
		Reason: fmt.Sprintf("%s names another recipient in metadata.%s than session %s reaches%s", by, mismatch, m.key, k.addresses.instead(m, mismatch)),
	})
}

// addresses finds out whom messages reach, and whose their sessions are.
type addresses struct {
	directory *directory.Directory
	state     *exchangestate.State
	// generation is [ruleset.generation].
	generation func(tenant string) uint64
}

// sender returns the agent that an app speaks for. If there are several, the app must name it.
func (k *addresses) sender(app, named string) (*Agent, error) {
	agent, err := k.directory.Sender(app, named)
	if err != nil {
		return nil, api.Errorf(api.Forbidden, "%s", err)
	}
	return agent, nil
}

// locate finds out whom a message reaches. An answer goes to the address that the message before it
// came from, by default the session's last one. Otherwise the session key gives the address. The
// directory names the counterparty there.
func (k *addresses) locate(ctx context.Context, m *outgoing) error {
	brought, err := k.state.Origins.Of(ctx, exchangestate.OriginKey(k.directory, m.sender, m.key))
	if err != nil {
		return err
	}
	return k.reach(ctx, m, k.directory.Answering(m.key, brought, m.metadata))
}

// reach is locate for a caller that already knows what earlier messages brought.
func (k *addresses) reach(ctx context.Context, m *outgoing, brought map[string]string) (err error) {
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

// instead says how to correct a member that names another recipient. It does not reveal the address
// behind a session of another tenant's agent.
func (k *addresses) instead(m *outgoing, member string) string {
	const omit = "; leave that member out"
	has, err := k.state.Sessions.Agent(context.Background(), k.directory, m.key)
	reached := m.recipient.Says(member)
	if err != nil || reached == "" || has != nil && has.TenantID != m.sender.TenantID {
		return omit
	}
	return fmt.Sprintf(", which is %q%s, or give that", reached, omit)
}

// locateHeld updates a request's counterparty, if the configuration has changed it since.
func (k *addresses) locateHeld(ctx context.Context, r *approval.Request) {
	sender := k.directory.Agent(r.AgentID)
	if r.State != api.ApprovalPending || r.Kind != api.ApprovalOfMessage || sender == nil {
		return
	}
	var (
		kept     keptMessage
		metadata map[string]jsontext.Value
	)
	if json.Unmarshal(r.Own, &kept) != nil || json.Unmarshal([]byte(kept.Metadata), &metadata) != nil {
		return
	}
	m := &outgoing{speaker: speaker{sender: sender}, destination: destination{key: r.SessionKey, account: kept.Account}}
	bound, err := k.directory.Brought(m.key, metadata)
	if err != nil || k.reach(ctx, m, bound) != nil {
		return
	}
	if m.to.Kind != r.CounterpartyKind {
		r.CounterpartyNow = m.to.Kind
	}
}

// sessionOf returns the agent that a message's session belongs to if nobody has it yet.
func (k *addresses) sessionOf(m *outgoing) *Agent {
	if m.local != nil {
		return m.local
	}
	if routed, ok := k.directory.Routed(m.key); ok {
		// The first sender does not take a session away from the agent that it is configured for.
		return routed
	}
	if other := k.directory.Default(); other != nil && other.TenantID != m.sender.TenantID {
		return other
	}
	return m.sender
}

// enterSession enters a message's session into a change. If the session belongs to another tenant's
// agent, that row does not change: its app would learn the key that the sender chose.
func (k *addresses) enterSession(ctx context.Context, m *outgoing, whose *Agent, now time.Time, change *store.Change) (fresh *bool, err error) {
	known, err := k.state.Sessions.Agent(ctx, k.directory, m.key)
	if err != nil {
		return nil, err
	}
	if cmp.Or(known, whose).TenantID != m.sender.TenantID {
		return new(bool), k.state.Sessions.UseOfOthers(ctx, k.directory, m.key, m.sender, m.account, now, change)
	}
	return k.state.Sessions.Use(ctx, k.directory, m.key, whose, m.account, now, change)
}
