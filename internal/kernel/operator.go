package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/status"
)

// Apps are those that are connected.
func (k *Kernel) Apps() []api.AppStatus { return k.apps.Status() }

// Status returns what the kernel knows of itself. The daemon adds the rest.
func (k *Kernel) Status(ctx context.Context) (api.Status, error) {
	cfg := &k.rules().cfg
	from := status.Sources{Store: k.store, Requests: k.requests, Pauses: k.pauses, Exchanges: k.exchanges, Apps: k.apps, Inboxes: k.inboxes}
	return from.Read(ctx, cfg.Directory.Agents, k.now().Add(-cfg.ActiveWindow))
}

// ContactList lists with whom the agents had sessions, and who that is to them.
func (k *Kernel) ContactList(ctx context.Context, p *api.ContactListParams) (api.ContactListResult, error) {
	return k.contacts.List(ctx, p, k.rules().directory)
}

// ContactForget undoes what messages of a session have shown about who is there.
func (k *Kernel) ContactForget(ctx context.Context, who api.Peer, p *api.ContactForgetParams) (api.ContactForgetResult, error) {
	return k.contacts.Forget(ctx, who, p, k.rules().directory)
}
