package registry

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
)

// Settings is the part of the configuration that apps may see.
type Settings interface {
	// Get returns the value at a path, nil if there is none. It calls view after it has loaded the
	// configuration.
	Get(view func() View, path string) (any, error)
	// Watch delivers changes below any of the paths, or all changes if there are none, until the
	// context ends. It calls view again at each change.
	Watch(ctx context.Context, view func() View, paths []string) (<-chan []api.ConfigChange, error)
}

// View names the sections that an app may see: its own and those of its channels.
type View struct {
	App      string
	Channels []string
}

// view returns the sections that the client's app may see now: its own, and those of the channels
// that it declares and may have, unless another app has them. It is empty if the app may not run.
func (c *Client) view() View {
	a, r := c.app.Load(), c.registry
	t := r.terms()
	if r.CheckBinding(t, a) != nil {
		return View{}
	}
	v := View{App: a.ID()}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, channel := range a.manifest.Capabilities.Channels.Provides {
		if owner := r.channelOwnerLocked(t, channel); (owner == nil || owner == a) && t.Directory.MayOwn(a.ID(), channel) == nil {
			v.Channels = append(v.Channels, channel)
		}
	}
	return v
}

// Config returns a configuration value.
func (c *Client) Config(_ context.Context, p *api.ConfigGetParams) (api.ConfigValue, error) {
	if err := c.CheckBinding(c.registry.terms()); err != nil {
		return api.ConfigValue{}, err
	}
	value, err := c.registry.settings.Get(c.view, p.Path)
	return api.ConfigValue{Value: value}, err
}

// WatchConfig opens a stream of configuration changes.
func (c *Client) WatchConfig(ctx context.Context, p *api.ConfigWatchParams) (func(context.Context, api.Stream) error, error) {
	if err := c.CheckBinding(c.registry.terms()); err != nil {
		return nil, err
	}
	changes, err := c.registry.settings.Watch(ctx, c.view, p.Paths)
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
				if err := sendAll(ctx, s, batch); err != nil {
					return err
				}
			}
		}
	}, nil
}

func sendAll(ctx context.Context, s api.Stream, batch []api.ConfigChange) error {
	for _, change := range batch {
		if err := s.Send(ctx, change); err != nil {
			return err
		}
	}
	return nil
}
