package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// hookNames are the names under which an app listens to one hook: the protocol's own, the SDK's
// alias for it, or both. The app gets an event under each.
type hookNames []string

// UnmarshalJSON also reads the older form, with one name per hook.
func (n *hookNames) UnmarshalJSON(b []byte) error {
	if jsontext.Value(b).Kind() != '"' {
		return json.Unmarshal(b, (*[]string)(n))
	}
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return err
	}
	*n = hookNames{name}
	return nil
}

// Subscribe grants the hooks that the app's manifest lists. An app that provides a channel gets the
// channel's messages as message_sending, whatever it lists.
func (c *Client) Subscribe(_ context.Context, p *api.HooksParams) (api.SubscribeResult, error) {
	a, r := c.app.Load(), c.registry
	result := api.SubscribeResult{Subscribed: []string{}, Denied: []string{}}
	t := r.terms()
	defer r.save(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range p.Events {
		hook, known := api.ParseHook(name)
		owns := hook == api.MessageSending && len(a.manifest.Capabilities.Channels.Provides) > 0
		if !known || !owns && !a.declaresHook(hook) || !t.mayListen(a, hook) {
			result.Denied = append(result.Denied, name)
			continue
		}
		r.listenLocked(a, hook, name)
		result.Subscribed = append(result.Subscribed, name)
	}
	return result, nil
}

// declaresHook reports whether the app's manifest lists a hook.
func (a *App) declaresHook(hook api.Hook) bool {
	declared := &a.manifest.Capabilities.Hooks
	return listsHook(declared.Subscribes, hook) || listsHook(declared.Intercepts, hook)
}

// listenLocked adds a name under which an app listens. An app that provides channels and lists no
// hook gets its own channels' messages, as deliveries, and nothing as a listener.
func (r *table) listenLocked(a *App, hook api.Hook, name string) {
	names, again := a.hooks[hook]
	if !again && r.apps[a.ID()] == a && a.declaresHook(hook) {
		listeners := append(slices.Clone(r.listeners[hook]), a)
		slices.SortFunc(listeners, func(x, y *App) int { return cmp.Compare(x.order, y.order) })
		r.listeners[hook] = listeners
		if hook == api.ToolExecuting && r.listened != nil {
			r.listened()
		}
	}
	if !slices.Contains(names, name) {
		// Copy the list: an earlier reader uses it without the lock.
		a.hooks[hook] = append(slices.Clone(names), name)
	}
}

func (r *table) removeListenerLocked(hook api.Hook, a *App) {
	r.listeners[hook] = slices.DeleteFunc(slices.Clone(r.listeners[hook]), func(other *App) bool { return other == a })
}

// Listeners returns the apps that listen to a hook, in registration order. Callers must not change
// the list.
func (r *table) Listeners(hook api.Hook) []*App {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.listeners[hook]
}

// Unsubscribe ends subscriptions: under a name that was subscribed to, that one; under another name
// of the same hook, all of that hook.
func (c *Client) Unsubscribe(_ context.Context, p *api.HooksParams) (api.UnsubscribeResult, error) {
	a, r := c.app.Load(), c.registry
	result := api.UnsubscribeResult{Unsubscribed: []string{}}
	defer r.save(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range p.Events {
		hook, known := api.ParseHook(name)
		names, subscribed := a.hooks[hook]
		if !known || !subscribed {
			continue
		}
		result.Unsubscribed = append(result.Unsubscribed, name)
		left := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
		if len(left) > 0 && len(left) < len(names) {
			a.hooks[hook] = left
			continue
		}
		delete(a.hooks, hook)
		r.removeListenerLocked(hook, a)
	}
	return result, nil
}

// agentChannel begins the keys of agents' own sessions.
const agentChannel = "agent"

// mayObserve reports whether a listening app may be told of something: acts of its own agents, and
// of those that the configuration grants it. If the configuration declares no access, the app that
// has a channel is told of that too.
//
// An act under earlier terms, perhaps some seconds ago, is told only to apps that may still observe
// that agent.
func (r *Registry) mayObserve(t *Terms, a *App, about *api.HookContext) bool {
	return r.then(t, about.AgentID, func(t *Terms) bool { return r.mayObserveUnder(t, a, about) })
}

// then reports whether something about an agent is allowed under some terms, and also under those
// in force now, in which the agent must be the same.
func (r *Registry) then(t *Terms, agentID string, may func(*Terms) bool) bool {
	if !may(t) {
		return false
	}
	now := r.terms()
	if now == t {
		return true
	}
	was, is := t.Directory.Agent(agentID), now.Directory.Agent(agentID)
	return was != nil && is != nil && was.Identified() == is.Identified() && may(now)
}

func (r *Registry) mayObserveUnder(t *Terms, a *App, about *api.HookContext) bool {
	agent := t.Directory.Agent(about.AgentID)
	if agent == nil {
		return false
	}
	// The channel in the key of an agent's own session is chosen by the sender: nothing goes
	// through it.
	channel, _ := directory.Split(about.SessionKey)
	if channel == agentChannel {
		channel = ""
	}
	return t.Directory.Observes(a.ID(), agent, channel) ||
		!t.Directory.Declared() && channel != "" && r.Owns(t, a, channel)
}

// mayListen reports whether an app could ever be told of anything, or asked about anything, as a
// listener to a hook.
func (t *Terms) mayListen(a *App, hook api.Hook) bool {
	for i := range t.Agents {
		agent := &t.Agents[i]
		if t.Directory.Observes(a.ID(), agent, "") || t.canBeAsked(a, hook) && t.Directory.Intercepts(a.ID(), agent) {
			return true
		}
	}
	// An app of a channel is told of the channel's messages.
	return slices.ContainsFunc(a.manifest.Capabilities.Channels.Provides, func(channel string) bool {
		return t.Directory.MayOwn(a.ID(), channel) == nil
	})
}

// Observe tells the apps that only observe a hook, except one. Nobody waits for them. From is the
// agent that sent the message to the one that it is about, or "".
func (r *Registry) Observe(t *Terms, hook api.Hook, what gate.Sealed, about api.HookContext, from string, but *App) {
	for _, a := range r.Listeners(hook) {
		if a == but || !r.mayObserve(t, a, &about) {
			continue
		}
		names, intercepts := r.subscription(t, a, hook)
		if intercepts && t.intercepts(a, about.AgentID) {
			continue
		}
		still := may(func() bool { return r.mayObserve(t, a, &about) && runs(r, &about, from) })
		for _, name := range names {
			e := a.events.add(&event{id: r.newID(), hook: hook})
			put(a.link, what.Hook(nil, e.id, name, about.Append), still)
		}
	}
}

// subscription returns the names under which an app listens to a hook, none if it does not or is
// not ready, and whether it intercepts the hook.
func (r *table) subscription(t *Terms, a *App, hook api.Hook) (names hookNames, intercepts bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names, subscribed := a.hooks[hook]
	if !subscribed || !a.ready {
		return nil, false
	}
	if !t.canBeAsked(a, hook) {
		return names, false
	}
	if t.HookApps[a.ID()].Required {
		return names, true
	}
	if hook == api.MessageSending && len(r.channelsLocked(a)) > 0 && !a.mustAnswerLocked(hook) {
		// The owner of a channel gets its messages last, and sees no others unless it asked to
		// intercept them.
		return nil, false
	}
	return names, a.mustAnswerLocked(hook) || a.listsIntercept(hook)
}
