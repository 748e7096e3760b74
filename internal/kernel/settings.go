package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
)

// view says which part of the configuration the client's app may see now: its own,
// and that of the channels it declares and may have, unless another app has them;
// nothing where the app may not run.
func (c *Client) view() View {
	k, err := c.rules()
	if err != nil {
		return View{}
	}
	a := c.app.Load()
	v, may := View{App: a.id()}, k.directory
	c.kernel.mu.RLock()
	defer c.kernel.mu.RUnlock()
	for _, channel := range a.manifest.Capabilities.Channels.Provides {
		if owner := c.kernel.channels[channel]; (owner == nil || owner == a) && may.MayOwn(a.id(), channel) == nil {
			v.Channels = append(v.Channels, channel)
		}
	}
	return v
}

// Config returns a configuration value.
func (c *Client) Config(_ context.Context, p *api.ConfigGetParams) (api.ConfigValue, error) {
	if _, err := c.rules(); err != nil {
		return api.ConfigValue{}, err
	}
	value, err := c.kernel.settings.Get(c.view, p.Path)
	return api.ConfigValue{Value: value}, err
}

// WatchConfig opens a stream of configuration changes.
func (c *Client) WatchConfig(ctx context.Context, p *api.ConfigWatchParams) (func(context.Context, api.Stream) error, error) {
	if _, err := c.rules(); err != nil {
		return nil, err
	}
	changes, err := c.kernel.settings.Watch(ctx, c.view, p.Paths)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, s api.Stream) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case batch, ok := <-changes:
				if !ok {
					return nil
				}
				for _, change := range batch {
					if err := s.Send(ctx, change); err != nil {
						return err
					}
				}
			}
		}
	}, nil
}
