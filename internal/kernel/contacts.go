package kernel

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// ContactList lists with whom the agents had sessions, and who that is to them.
func (k *Kernel) ContactList(ctx context.Context, p *api.ContactListParams) (api.ContactListResult, error) {
	page, total, err := k.store.Sessions(ctx, store.SessionFilter{AgentID: p.Agent, ChannelID: p.Channel}, p.PageSize(), p.Offset)
	if err != nil {
		return api.ContactListResult{}, err
	}
	rules := k.rules()
	result := api.ContactListResult{Contacts: make([]api.Contact, 0, len(page)), Total: total}
	for i := range page {
		s := &page[i]
		c := api.Contact{SessionKey: s.Key, Agent: s.AgentID, LastActiveAt: s.LastActiveAt.UTC(), MessageCount: s.MessageCount, Kind: string(ocip.KindUnknown)}
		// The agent may be one that is configured no more.
		if self := rules.directory.Agent(s.AgentID); self != nil {
			to, listed, err := rules.at(ctx, s.Key, self)
			if err != nil {
				return api.ContactListResult{}, err
			}
			c.Kind, c.InstanceID, c.UserID, c.TenantID = string(to.Kind), to.InstanceID, to.UserID, to.TenantID
			c.Learned = to.Identity != listed.Identity
		}
		if rules.directory.SeveralTenants() {
			seen, err := k.store.SeenByAll(ctx, s.Key)
			if err != nil {
				return api.ContactListResult{}, err
			}
			for _, one := range seen {
				c.SeenBy = append(c.SeenBy, cmp.Or(one.By, everybody))
			}
		}
		result.Contacts = append(result.Contacts, c)
	}
	return result, nil
}

// at returns who is reached by a session now, as one of its agents sees it, and whom
// the directory has there. A session whose key is spelled as no new one may be
// reaches nobody any more.
func (k *ruleset) at(ctx context.Context, key string, self *Agent) (to, listed ocip.Counterparty, err error) {
	brought, err := k.state.Origins.Of(ctx, k.originKey(self, key))
	if err != nil {
		return to, listed, err
	}
	recipient, err := k.directory.Recipient(key, "", brought, self)
	if err != nil {
		nobody := ocip.Counterparty{Kind: ocip.KindUnknown}
		return nobody, nobody, nil
	}
	to, _, err = k.state.Readers(ctx, k.directory, key, self, &recipient)
	return to, recipient.Counterparty, err
}

// ContactForget undoes what messages of a session have shown about who is there:
// the agent, the members of an address, and who spoke where it leads. What the
// configuration says stays.
func (k *Kernel) ContactForget(ctx context.Context, who api.Peer, p *api.ContactForgetParams) (api.ContactForgetResult, error) {
	seen, err := k.store.SeenByAll(ctx, p.SessionKey)
	if err != nil {
		return api.ContactForgetResult{}, err
	}
	rules := k.rules()
	keys := rules.originKeys(p.SessionKey)
	var (
		parts  []store.Part
		places []string
		known  bool
	)
	for _, key := range keys {
		brought, err := k.store.Brought(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return api.ContactForgetResult{}, err
		}
		known = known || len(brought.Members) > 0
		parts = append(parts, store.Forgotten(key))
		places = append(places, rules.directory.Places(p.SessionKey, brought.Members)...)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, place := range places {
		spoke, err := k.store.SpeakersToAll(ctx, place)
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
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: "contact_forgotten", SessionKey: p.SessionKey, Details: byPerson(who, p.Note),
	}
	if len(seen) > 0 {
		r.Counterparty = counterpartyRecord("", seen[0].Identity)
	}
	if len(seen) > 1 {
		all := make([]map[string]any, len(seen))
		for i, one := range seen {
			all[i] = map[string]any{"at": one.SessionKey, "by": cmp.Or(one.By, everybody), "instanceId": one.InstanceID, "tenantId": one.TenantID}
		}
		r.Details["seen"] = all
	}
	change := &store.Change{Records: []*audit.Record{r}, Parts: parts, Drains: true}
	receipt, err := k.state.Forget(p.SessionKey, keys, places, func() (store.Receipt, error) { return k.commit(change) })
	if err != nil {
		return api.ContactForgetResult{}, err
	}
	return api.ContactForgetResult{Changed: true, InstanceID: r.Counterparty.InstanceID, TenantID: r.Counterparty.TenantID, AuditSeq: receipt.Seq}, nil
}

// everybody stands for all tenants, in a list of those that saw an agent.
const everybody = "*"
