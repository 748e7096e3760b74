// Package sessions shows apps their sessions: those of the agents they speak for, and in the
// channels they own those of the agents that they serve.
package sessions

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Viewer is an app that looks, with the channels that it owns.
type Viewer struct {
	Store     *store.Store
	Directory *directory.Directory
	// Agents are all that are configured.
	Agents   []directory.Agent
	App      string
	Channels []string
}

// owned are the sessions that the app may see.
func (v *Viewer) owned() *store.SessionOwners {
	own := &store.SessionOwners{Channels: v.Channels, Agents: exchangestate.Owners(v.Directory.SpokenBy(v.App)...)}
	for i := range v.Agents {
		agent := &v.Agents[i]
		if v.Directory.Serves(v.App, agent) == nil {
			own.Served = append(own.Served, exchangestate.Owners(agent)...)
		}
		if mutant.Off("session-owner") {
			own.Agents = append(own.Agents, exchangestate.Owners(agent)...)
		}
	}
	return own
}

// Get returns one session, or null if there is none or it is another app's.
func (v *Viewer) Get(ctx context.Context, p *api.SessionGetParams) (api.SessionResult, error) {
	found, err := v.Store.FreshSession(ctx, p.Key)
	if errors.Is(err, store.ErrNotFound) {
		return api.SessionResult{}, nil
	}
	if err != nil {
		return api.SessionResult{}, err
	}
	channel, _ := directory.Split(found.Key)
	own := v.owned()
	through := slices.Contains(own.Channels, channel) && slices.Contains(own.Served, found.SessionOwner)
	if !through && !slices.Contains(own.Agents, found.SessionOwner) {
		return api.SessionResult{}, nil
	}
	entry := sessionEntry(&found)
	return api.SessionResult{Session: &entry}, nil
}

// List returns a page of the app's sessions, last used first. Active ones were used
// since the edge.
func (v *Viewer) List(ctx context.Context, p *api.SessionListParams, edge time.Time) (api.SessionListResult, error) {
	f := store.SessionFilter{AgentID: p.Filter.AgentID, ChannelID: p.Filter.ChannelID, AccountID: p.Filter.AccountID, Of: v.owned()}
	if p.Filter.Active != nil {
		if *p.Filter.Active {
			f.ActiveSince = edge
		} else {
			f.IdleSince = edge
		}
	}
	page, total, err := v.Store.Sessions(ctx, f, p.Page(), p.Offset, nil)
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
