package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// capability is one grant to an app.
type capability struct {
	id   string
	kind string
	name string
	// hook and intercept are set for hook capabilities.
	hook      api.Hook
	intercept bool
}

// RegisterCapability grants a capability that the manifest declares and no other app has. A refusal
// is an answer, not an error.
func (c *Client) RegisterCapability(_ context.Context, p *api.CapabilityParams) (api.CapabilityResult, error) {
	a, r := c.app.Load(), c.registry
	t := r.terms()
	cp := &capability{id: r.newID(), kind: p.Type, name: p.ID()}
	refused := func(format string, args ...any) (api.CapabilityResult, error) {
		return api.CapabilityResult{CapabilityID: cp.id, Reason: fmt.Sprintf(format, args...)}, nil
	}
	if why := p.Refusal(); why != "" {
		return refused("%s", why)
	}
	if cp.kind == "hook" {
		hook, known := api.ParseHook(cp.name)
		if !known {
			return refused("unknown hook %q", cp.name)
		}
		cp.hook = hook
		cp.intercept = string(p.Config["intercept"]) == "true"
		if cp.intercept && !t.canBeAsked(a, hook) {
			return refused("hook %s can only be observed", hook)
		}
	}
	if declared, where := declares(a.manifest, cp); !declared {
		return refused("the manifest does not declare %s under capabilities.%s", cp.name, where)
	}
	if cp.intercept && !t.mayIntercept(a.ID()) {
		// Otherwise the app would believe that messages wait for it, while they leave without it.
		return refused("app %s may intercept no agent's messages; list the agents in access.apps.%q.intercepts, or make the app required under hooks.apps", a.ID(), a.ID())
	}
	if cp.kind == "channel" {
		if err := t.Directory.MayOwn(a.ID(), cp.name); err != nil {
			return refused("%v", err)
		}
	}
	defer r.save(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.apps[a.ID()] != a {
		// A superseded connection must not acquire capabilities.
		return refused("app %s has another connection", a.ID())
	}
	if len(a.capabilities) >= maxCapabilities {
		return refused("the app has its limit of %d capabilities", maxCapabilities)
	}
	if owner := r.ownerLocked(t, cp, a); owner != nil {
		return refused("%s %s belongs to app %s", cp.kind, cp.name, owner.ID())
	}
	r.grantLocked(a, cp)
	if cp.kind == "channel" && a.ready {
		// The app was ready before it had the channel, so the channel's waiting messages can go
		// now.
		go r.outbox.ResumeChannel(cp.name)
	}
	return api.CapabilityResult{CapabilityID: cp.id, Granted: true}, nil
}

func (r *table) grantLocked(a *App, cp *capability) {
	a.capabilities[cp.id] = cp
	if cp.kind == "channel" {
		r.channels[cp.name] = a
	}
}

// maxCapabilities bounds one app's entries in the registry.
const maxCapabilities = 1024

// ownerLocked returns another app that holds an exclusive capability: a channel, or a tool or a
// gateway method within a tenant. The configuration says which apps can own a channel. An app is
// not told what apps of other tenants have.
func (r *table) ownerLocked(t *Terms, cp *capability, a *App) *App {
	switch cp.kind {
	case "channel":
		if owner := r.channelOwnerLocked(t, cp.name); owner != a {
			return owner
		}
	case "tool", "gateway_method":
		mine := t.tenantsOf(a.ID())
		for _, other := range r.apps {
			if other != a && other.hasLocked(cp) && (!t.Directory.SeveralTenants() || mine.share(t.tenantsOf(other.ID()))) {
				return other
			}
		}
	}
	return nil
}

// hasLocked reports whether the app has a capability of the same name.
func (a *App) hasLocked(cp *capability) bool {
	for _, have := range a.capabilities {
		if have.kind == cp.kind && have.name == cp.name {
			return true
		}
	}
	return false
}

// declares reports whether a manifest declares a capability, and names the member for it.
func declares(m *api.Manifest, cp *capability) (declared bool, where string) {
	c := &m.Capabilities
	switch cp.kind {
	case "channel":
		return slices.Contains(c.Channels.Provides, cp.name), "channels.provides"
	case "tool":
		return slices.Contains(c.Tools.Provides, cp.name), "tools.provides"
	case "provider":
		return slices.Contains(c.Providers.Provides, cp.name), "providers.provides"
	case "gateway_method":
		return slices.Contains(c.Gateway.Methods, cp.name), "gateway.methods"
	case "http_route":
		return slices.Contains(c.Gateway.HTTPRoutes, cp.name), "gateway.httpRoutes"
	case "hook":
		if cp.intercept {
			return listsHook(c.Hooks.Intercepts, cp.hook), "hooks.intercepts"
		}
		return listsHook(c.Hooks.Subscribes, cp.hook) || listsHook(c.Hooks.Intercepts, cp.hook), "hooks.subscribes"
	}
	return false, cp.kind
}

// listsHook reports whether a list of a manifest names a hook, by any of its names.
func listsHook(names []string, hook api.Hook) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		h, known := api.ParseHook(name)
		return known && h == hook
	})
}

// UnregisterCapability gives a capability back. If the app does not have it, that is an answer, not
// an error.
func (c *Client) UnregisterCapability(_ context.Context, p *api.UnregisterParams) (api.OK, error) {
	a, r := c.app.Load(), c.registry
	defer r.save(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	cp, ok := a.capabilities[p.CapabilityID]
	if !ok {
		return api.OK{Reason: fmt.Sprintf("app %s has no capability %q", a.ID(), p.CapabilityID)}, nil
	}
	delete(a.capabilities, p.CapabilityID)
	if cp.kind == "channel" && r.channels[cp.name] == a && !a.hasLocked(cp) {
		delete(r.channels, cp.name)
	}
	return api.OK{OK: true}, nil
}

// Owner returns the app that has a channel, or nil.
func (r *table) Owner(t *Terms, channel string) *App {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.channelOwnerLocked(t, channel)
}

// channelOwnerLocked returns the app that has a channel. An app that may not have it any more does
// not count, so that it does not block others.
func (r *table) channelOwnerLocked(t *Terms, channel string) *App {
	if a := r.channels[channel]; a != nil && t.Directory.MayOwn(a.ID(), channel) == nil {
		return a
	}
	return nil
}

// Owns reports whether the app has the channel, or any channel if the name is empty. A channel that
// it may not have any more does not count, even if it is registered.
func (r *table) Owns(t *Terms, a *App, channel string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if channel != "" {
		return a != nil && r.channelOwnerLocked(t, channel) == a
	}
	for name, owner := range r.channels {
		if owner == a && t.Directory.MayOwn(a.ID(), name) == nil {
			return true
		}
	}
	return false
}

// Channels lists the channels of an app, except those that it may not have any more.
func (r *table) Channels(t *Terms, a *App) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.DeleteFunc(r.channelsLocked(a), func(channel string) bool { return r.channelOwnerLocked(t, channel) != a })
}

func (r *table) channelsLocked(a *App) (channels []string) {
	for channel, owner := range r.channels {
		if owner == a {
			channels = append(channels, channel)
		}
	}
	return channels
}

// mustAnswerLocked reports whether the app registered itself as an interceptor that must answer.
func (a *App) mustAnswerLocked(hook api.Hook) bool {
	for _, cp := range a.capabilities {
		if cp.kind == "hook" && cp.hook == hook && cp.intercept {
			return true
		}
	}
	return false
}

// Reached reports whether an agent has a channel, through an app or through its own runtime.
func Reached(r *Registry, t *Terms, channel string, agent *directory.Agent, carried bool) error {
	owner := r.Owner(t, channel)
	if carried && owner == nil && !t.Directory.Granted(channel) {
		return nil // the runtime has a channel of its own
	}
	err := t.Directory.Served(channel, agent)
	if owner != nil {
		if err = t.Directory.Serves(owner.ID(), agent); err != nil {
			err = t.Directory.NotServed(channel, agent)
		}
	}
	if err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	return nil
}
