package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/status"
	"github.com/openclawos/ocipd/internal/store"
)

// Apps lists the connected apps.
func (k *Kernel) Apps() []api.AppStatus { return k.apps.Status() }

// Signs reports whether people sign their decisions.
func (k *Kernel) Signs() bool { return k.rules().decider.Signers != nil }

// Vouch verifies the signature on a call of an operator method, and records it before the call does
// anything. The records after it show the effect of the call.
func (k *Kernel) Vouch(who api.Peer, method, text, signature string) (api.Peer, error) {
	decider := k.rules().decider
	if decider.Signers == nil {
		return who, nil
	}
	by, err := decider.Who(who, method, "", signature, text, &audit.Record{ID: k.newID()})
	if err != nil {
		return nil, err
	}
	r := &audit.Record{ID: k.newID(), ActionType: audit.ActionSecurity, Event: "call_signed", Details: approval.Details(&by)}
	r.Details["signedText"] = text
	if _, err := k.commit(&store.Change{Records: []*audit.Record{r}, Last: true}); err != nil {
		return nil, err
	}
	return caller.Vouched{Peer: who, By: by.By, Record: r.ID}, nil
}

// Status returns the kernel's part of the status. The daemon adds the rest.
func (k *Kernel) Status(ctx context.Context) (api.Status, error) {
	cfg := &k.rules().cfg
	from := status.Sources{Store: k.store, Requests: k.requests, Pauses: k.pauses, Exchanges: k.exchanges, Apps: k.apps, Inboxes: k.inboxes}
	return from.Read(ctx, cfg.Directory.Agents, k.now().Add(-cfg.ActiveWindow))
}

// ContactList lists with whom the agents had sessions, and how each agent knows them.
func (k *Kernel) ContactList(ctx context.Context, p *api.ContactListParams) (api.ContactListResult, error) {
	return k.contacts.List(ctx, p, k.rules().directory)
}

// ContactForget deletes what messages of a session have shown about the other end.
func (k *Kernel) ContactForget(ctx context.Context, who api.Peer, p *api.ContactForgetParams) (api.ContactForgetResult, error) {
	return k.contacts.Forget(ctx, who, p, k.rules().directory)
}
