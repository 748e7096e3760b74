// Package contacts lists the contacts of agents: with whom they had sessions, and how each agent
// knows them. If a person asks for it, it forgets what messages have shown of a contact.
package contacts

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Options holds the dependencies of Contacts.
type Options struct {
	Store *store.Store
	State *exchangestate.State
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	NewID  func() string
}

// Contacts lists and forgets contacts. Its methods are safe for concurrent use.
type Contacts struct{ o Options }

// New returns a Contacts.
func New(o Options) *Contacts { return &Contacts{o} }

// List lists with whom the agents had sessions, and how each agent knows them. An agent that asks
// sees its own.
func (c *Contacts) List(ctx context.Context, p *api.ContactListParams, d *directory.Directory, who ...*directory.Agent) (api.ContactListResult, error) {
	f := store.SessionFilter{AgentID: p.Agent, ChannelID: p.Channel}
	if len(who) > 0 {
		f.Of = &store.SessionOwners{Agents: exchangestate.Owners(who...)}
	}
	var left store.Left
	around := &left
	if len(who) > 0 {
		// An agent learns nothing of rows that may be another's.
		around = nil
	}
	page, total, err := c.o.Store.Sessions(ctx, f, p.PageSize(), p.Offset, around)
	if err != nil {
		return api.ContactListResult{}, err
	}
	result := api.ContactListResult{Contacts: make([]api.Contact, 0, len(page)), Total: total, Altered: left.Names}
	for i := range page {
		s := &page[i]
		one := api.Contact{SessionKey: s.Key, Agent: s.AgentID, LastActiveAt: s.LastActiveAt.UTC(), MessageCount: s.MessageCount, Kind: string(ocip.KindUnknown)}
		// The agent may have left the configuration.
		if self := exchangestate.Owner(d, s); self != nil {
			to, at, err := c.at(ctx, s.Key, self, d)
			if err != nil {
				return api.ContactListResult{}, err
			}
			one.Kind, one.InstanceID, one.UserID, one.TenantID = string(to.Kind), to.InstanceID, to.UserID, to.TenantID
			one.Learned, one.Group = to.Identity != at.Counterparty.Identity, at.Group
		}
		if d.SeveralTenants() {
			seen, err := c.o.Store.SeenByAll(ctx, s.Key)
			if err != nil {
				return api.ContactListResult{}, err
			}
			for _, by := range seen {
				one.SeenBy = append(one.SeenBy, cmp.Or(by.By, everybody))
			}
		}
		result.Contacts = append(result.Contacts, one)
	}
	return result, nil
}

// at returns whom a session reaches now, as one of its agents sees it, and the directory's entry
// for it. An old session reaches nobody if its key would no longer be accepted.
func (c *Contacts) at(ctx context.Context, key string, self *directory.Agent, d *directory.Directory) (to ocip.Counterparty, at directory.Recipient, err error) {
	brought, err := c.o.State.Origins.Of(ctx, exchangestate.OriginKey(d, self, key))
	if err != nil {
		return to, at, err
	}
	at, err = d.Recipient(key, "", brought, self)
	if err != nil {
		nobody := ocip.Counterparty{Kind: ocip.KindUnknown}
		return nobody, directory.Recipient{Counterparty: nobody}, nil
	}
	to, _, err = c.o.State.Readers(ctx, d, key, self, &at)
	return to, at, err
}

// Forget deletes what messages of a session have shown about the other end: the agent, the members
// of an address, and the speakers at the place. Entries of the configuration stay.
func (c *Contacts) Forget(ctx context.Context, who api.Peer, p *api.ContactForgetParams, d *directory.Directory) (api.ContactForgetResult, error) {
	seen, err := c.o.Store.SeenByAll(ctx, p.SessionKey)
	if err != nil {
		return api.ContactForgetResult{}, err
	}
	keys := exchangestate.OriginKeys(d, p.SessionKey)
	var (
		parts  []store.Part
		places []string
		known  bool
	)
	for _, key := range keys {
		brought, err := c.o.Store.Brought(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return api.ContactForgetResult{}, err
		}
		known = known || len(brought.Members) > 0
		parts = append(parts, store.Forgotten(key))
		places = append(places, d.Places(p.SessionKey, brought.Members)...)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, place := range places {
		spoke, err := c.o.Store.SpeakersToAll(ctx, place)
		if err != nil {
			return api.ContactForgetResult{}, err
		}
		for _, one := range spoke {
			seen = append(seen, store.Seen{SessionKey: place, By: one.By, Identity: one.Identity})
		}
		parts = append(parts, store.Unheard(place))
	}
	if len(seen) == 0 && !known {
		return api.ContactForgetResult{}, nil
	}
	r := &audit.Record{
		ID: c.o.NewID(), ActionType: audit.ActionSecurity, Event: "contact_forgotten", SessionKey: p.SessionKey, Details: caller.PersonDetails(who, p.Note),
	}
	if len(seen) > 0 {
		at := seen[0].Identity
		r.Counterparty = audit.Counterparty{InstanceID: at.InstanceID, UserID: at.UserID, OrgUnit: at.OrgUnit, TenantID: at.TenantID}
	}
	if len(seen) > 1 {
		all := make([]map[string]any, len(seen))
		for i, one := range seen {
			all[i] = map[string]any{"at": one.SessionKey, "by": cmp.Or(one.By, everybody), "instanceId": one.InstanceID, "tenantId": one.TenantID}
		}
		r.Details["seen"] = all
	}
	change := &store.Change{Records: []*audit.Record{r}, Parts: parts, Drains: true}
	receipt, err := c.o.State.Forget(p.SessionKey, keys, places, func() (store.Receipt, error) { return c.o.Commit(change) })
	if err != nil {
		return api.ContactForgetResult{}, err
	}
	return api.ContactForgetResult{Changed: true, InstanceID: r.Counterparty.InstanceID, TenantID: r.Counterparty.TenantID, AuditSeq: receipt.Seq}, nil
}

// everybody stands for all tenants, in the list of tenants that saw an agent.
const everybody = "*"
