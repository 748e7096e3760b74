package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/sessions"
)

func (c *Client) viewer(k *ruleset) *sessions.Viewer {
	return &sessions.Viewer{
		Store: k.store, Directory: k.directory, Agents: k.cfg.Directory.Agents, App: c.App().ID(), Channels: k.apps.Channels(k.terms, c.App()),
	}
}

// Session returns one session of the app's.
func (c *Client) Session(ctx context.Context, p *api.SessionGetParams) (api.SessionResult, error) {
	return under(c, func(k *ruleset) (api.SessionResult, error) { return c.viewer(k).Get(ctx, p) })
}

// Sessions returns a page of the app's sessions.
func (c *Client) Sessions(ctx context.Context, p *api.SessionListParams) (api.SessionListResult, error) {
	return under(c, func(k *ruleset) (api.SessionListResult, error) {
		return c.viewer(k).List(ctx, p, k.now().Add(-k.cfg.ActiveWindow))
	})
}
