package kernel

import (
	"context"
	"errors"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// owned are the sessions that the client's app may see: those of the agents it
// speaks for, and in the channels it owns those of the agents they serve.
func (c *Client) owned(k *ruleset) *store.SessionOwners {
	a, own := c.App(), new(store.SessionOwners)
	for _, agent := range k.directory.SpokenBy(a.ID()) {
		own.Agents = append(own.Agents, agent.ID)
	}
	own.Channels = k.apps.Channels(a)
	for i := range k.cfg.Directory.Agents {
		if agent := &k.cfg.Directory.Agents[i]; k.directory.Serves(a.ID(), agent) == nil {
			own.Served = append(own.Served, agent.ID)
		}
	}
	return own
}

// Session returns one session, or null where there is none or it is another
// app's.
func (c *Client) Session(ctx context.Context, p *api.SessionGetParams) (api.SessionResult, error) {
	k, err := c.rules()
	if err != nil {
		return api.SessionResult{}, err
	}
	found, err := k.store.FreshSession(ctx, p.Key)
	if errors.Is(err, store.ErrNotFound) {
		return api.SessionResult{}, nil
	}
	if err != nil {
		return api.SessionResult{}, err
	}
	channel, _ := directory.Split(found.Key)
	own := c.owned(k)
	through := slices.Contains(own.Channels, channel) && slices.Contains(own.Served, found.AgentID)
	if !through && !slices.Contains(own.Agents, found.AgentID) {
		return api.SessionResult{}, nil
	}
	entry := sessionEntry(&found)
	return api.SessionResult{Session: &entry}, nil
}

// Sessions returns a page of the app's sessions, last used first.
func (c *Client) Sessions(ctx context.Context, p *api.SessionListParams) (api.SessionListResult, error) {
	k, err := c.rules()
	if err != nil {
		return api.SessionListResult{}, err
	}
	f := store.SessionFilter{AgentID: p.Filter.AgentID, ChannelID: p.Filter.ChannelID, AccountID: p.Filter.AccountID, Of: c.owned(k)}
	if p.Filter.Active != nil {
		edge := k.now().Add(-k.cfg.ActiveWindow)
		if *p.Filter.Active {
			f.ActiveSince = edge
		} else {
			f.IdleSince = edge
		}
	}
	page, total, err := k.store.Sessions(ctx, f, p.Page(), p.Offset)
	if err != nil {
		return api.SessionListResult{}, err
	}
	result := api.SessionListResult{Sessions: make([]api.SessionEntry, len(page)), Total: total}
	for i := range page {
		result.Sessions[i] = sessionEntry(&page[i])
	}
	return result, nil
}

func sessionEntry(s *store.Session) api.SessionEntry {
	return api.SessionEntry{
		Key: s.Key, AgentID: s.AgentID, ChannelID: s.ChannelID, AccountID: s.AccountID,
		CreatedAt: s.CreatedAt.UnixMilli(), LastActiveAt: s.LastActiveAt.UnixMilli(), MessageCount: s.MessageCount,
	}
}
