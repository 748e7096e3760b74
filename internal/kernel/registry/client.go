package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Client is one connection of an app, registered or not.
type Client struct {
	registry *Registry
	peer     api.Peer
	link     api.Link
	app      atomic.Pointer[App]
	// refused are the terms under which a resumption was refused, on record. Requests are admitted
	// one after another.
	refused *Terms

	// entering is held while the connection becomes an app's: by a request, or if none comes, by
	// the registry.
	entering sync.Mutex
	gone     bool
	// resumption fires when the connection has been silent long enough to be resumed by its
	// process.
	resumption *time.Timer
}

// Connect begins a connection. If its process is that of a disconnected app, it becomes that app's
// without a request, see [Client.resumeByProcess].
func (r *Registry) Connect(peer api.Peer, link api.Link) *Client {
	c := &Client{registry: r, peer: peer, link: link}
	r.mu.Lock()
	r.clients[c] = struct{}{}
	r.mu.Unlock()
	if uid, _, pid := peer.Credentials(); r.awayApp(uid, pid) != "" {
		c.entering.Lock()
		c.resumption = time.AfterFunc(resumeAfter, c.resumeByProcess)
		c.entering.Unlock()
	}
	return c
}

// Registered reports whether the connection has an app.
func (c *Client) Registered() bool { return c.app.Load() != nil }

// App returns the connection's app, nil if it has none yet.
func (c *Client) App() *App { return c.app.Load() }

// CheckBinding reports whether the connection's app may run under some terms. If not, its calls are
// refused from the next one on.
func (c *Client) CheckBinding(t *Terms) error { return c.registry.CheckBinding(t, c.app.Load()) }

// Authorize checks a request's token and counts as a sign of life.
func (c *Client) Authorize(token string) error {
	a := c.app.Load()
	switch {
	case (a == nil || a.byProcess.Load()) && token == "":
		return api.Errorf(api.AppNotRegistered, "call app.register first")
	case a == nil:
		// An app that registered before resumes.
		return c.resume(token)
	case a.byProcess.Load() && !a.owns(token):
		return api.Errorf(api.AppNotRegistered, "call app.register first")
	case token == "":
		return api.Errorf(api.Unauthorized, "the request has no token; send the one app.register returned")
	case !a.owns(token):
		return api.Errorf(api.Unauthorized, "the token is not the one app.register returned")
	}
	a.byProcess.Store(false)
	if err := c.CheckBinding(c.registry.terms()); err != nil {
		return err
	}
	c.registry.seen(a)
	return nil
}

// Register makes the connection an app's. If the id has a live connection, that connection's token
// is needed to take over.
func (c *Client) Register(_ context.Context, token string, p *api.RegisterParams) (api.RegisterResult, error) {
	r := c.registry
	c.entering.Lock()
	defer c.entering.Unlock()
	if before := c.app.Load(); before != nil {
		if !before.byProcess.Load() && (before.resumedFrom == nil || before.ID() != p.Manifest.ID) {
			return api.RegisterResult{}, api.Errorf(api.Conflict, "this connection has registered %s already", before.ID())
		}
		// An earlier request on this connection resumed the app. Now it begins again.
		if r.unregister(before) && before.ID() != p.Manifest.ID {
			r.announceEnd(before, "lost")
		}
		r.outbox.Leave(before)
	}
	fresh := newToken()
	a := c.newApp(p.Manifest, digestOfToken(fresh))
	change := &store.Change{Records: []*audit.Record{r.lifecycle(a, eventRegistered, nil)}}
	if err := c.enter(a, token, change); err != nil {
		if before := c.app.Load(); before != nil {
			r.announceEnd(before, "lost")
			c.link.Close(0)
		}
		return api.RegisterResult{}, err
	}
	r.log.Info("app registered", zap.String("app", a.ID()), zap.String("version", a.manifest.Version), zap.Int32("pid", a.pid))
	return api.RegisterResult{AppID: a.ID(), Token: fresh, ProtocolVersion: api.ProtocolVersion}, nil
}

// newApp makes an App for the connection's process, without rights yet.
func (c *Client) newApp(manifest *api.Manifest, digest tokenDigest) *App {
	uid, _, pid := c.peer.Credentials()
	return &App{
		manifest: manifest, peer: c.peer, link: c.link, digest: digest, uid: uid, pid: pid, skeleton: text.Skeleton(manifest.ID),
		capabilities: make(map[string]*capability), hooks: make(map[api.Hook]hookNames), events: newEvents(), gone: make(chan struct{}),
	}
}

// enter makes the connection an app's, and the change records it. The token is that of an earlier
// registration, or "".
func (c *Client) enter(a *App, token string, change *store.Change) error {
	r := c.registry
	t := r.terms()
	c.link.Acknowledges(a.Acknowledges())
	event, process := "binding_refused", ""
	err := r.mayRun(t, a.ID(), c.peer)
	if err == nil {
		event = "process_refused"
		process, err = r.Processes.note(a.ID(), c.peer, change)
	}
	if err != nil {
		if a.resumedFrom != nil && c.refused == t {
			return err // already on record: an SDK asks again with every heartbeat
		}
		c.refused = t
		return r.RecordRefusal(a, event, err, t.claimDetails(a))
	}
	a.binding.Store(&binding{under: t})
	a.lastSeen.Store(r.now().UnixNano())
	if err := r.register(t, a, token); err != nil {
		return r.RecordRefusal(a, "binding_refused", err, t.claimDetails(a))
	}
	if a.resumedFrom == nil {
		defer r.forgetSaved(a, change)()
	}
	if _, err := r.commit(change); err != nil {
		r.unregister(a)
		return err
	}
	r.Processes.written(process)
	// Changes of the terms check registered apps; this call covers changes that came in between.
	_ = r.CheckBinding(r.terms(), a)
	c.app.Store(a)
	r.mu.Lock()
	if r.apps[a.ID()] == a {
		a.silence = time.AfterFunc(r.terms().UnhealthyAfter, func() { r.CheckHealth(a) })
	}
	r.mu.Unlock()
	return nil
}

// register enters an app under its id, and ends its earlier connection if the token shows that both
// are the same app. A resumed app replaces the earlier one at once, so that a message always finds
// one of them.
func (r *table) register(t *Terms, a *App, token string) error {
	holder, err := r.replace(t, a, token)
	if holder != nil {
		holder.link.Close(0)
	}
	return err
}

// replace is register without closing the earlier connection, which it returns.
func (r *table) replace(t *Terms, a *App, token string) (holder *App, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if like := r.lookAlikeLocked(t, a); like != "" {
		return nil, api.Errorf(api.Forbidden, "app id %s looks like %s, which is connected; use that id if it is the same app, and another one if not", a.ID(), like)
	}
	if holder = r.apps[a.ID()]; holder != nil {
		resumes := holder.owns(token)
		// A process that has ended may have an open connection: a child holds it, or it is not
		// closed yet.
		if !resumes && holder.peer.Present() == nil {
			return nil, api.Errorf(api.Conflict, "app %s is connected already: end the program that is, or send its token to take over", a.ID())
		}
		r.unregisterLocked(holder)
		if resumes {
			a.events = holder.events
		}
	}
	if a.order == 0 {
		r.order++
		a.order = r.order
	}
	r.apps[a.ID()] = a
	if a.resumedFrom != nil {
		if before := r.saved.tokens[a.ID()]; before.events != nil && sameDigest(before.digest, a.digest) {
			a.events = before.events
		}
		r.restoreLocked(t, a)
	}
	return holder, nil
}

// lookAlikeLocked returns a connected app whose id looks like this one's without being equal, or
// "". An id that the configuration names is allowed.
func (r *table) lookAlikeLocked(t *Terms, a *App) string {
	if t.Directory.Names(a.ID()) {
		return ""
	}
	for id, other := range r.apps {
		if id != a.ID() && other.skeleton == a.skeleton {
			return id
		}
	}
	return ""
}

// unregister removes an app from the registry, once.
func (r *table) unregister(a *App) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.apps[a.ID()] != a {
		return false
	}
	r.unregisterLocked(a)
	return true
}

func (r *table) unregisterLocked(a *App) {
	delete(r.apps, a.ID())
	for channel, owner := range r.channels {
		if owner == a {
			delete(r.channels, channel)
		}
	}
	for hook := range a.hooks {
		r.removeListenerLocked(hook, a)
	}
	a.ready = false
	if a.silence != nil {
		a.silence.Stop()
	}
	close(a.gone)
}

// Heartbeat keeps an app alive.
func (c *Client) Heartbeat(_ context.Context, p *api.HeartbeatParams) (api.HeartbeatResult, error) {
	if len(p.Status) > 0 {
		a := c.app.Load()
		c.registry.mu.Lock()
		a.status = p.Status.Clone()
		c.registry.mu.Unlock()
	}
	return api.HeartbeatResult{OK: true, ServerTime: c.registry.now().UnixMilli()}, nil
}

// Ready starts deliveries to the app, beginning with waiting messages.
func (c *Client) Ready(context.Context, *api.ReadyParams) (api.OK, error) {
	a, r := c.app.Load(), c.registry
	r.mu.Lock()
	if a.leaving {
		r.mu.Unlock()
		return api.OK{}, api.Errorf(api.Conflict, "app %s is shutting down", a.ID())
	}
	a.ready = true
	r.mu.Unlock()
	r.save(a)
	r.outbox.Resume(a)
	return api.OK{OK: true}, nil
}

// Acknowledge takes an app's word that it is done with a message, which is then not sent again.
func (c *Client) Acknowledge(_ context.Context, p *api.AcknowledgeParams) (api.OK, error) {
	if !c.link.Acknowledge(p.ID) {
		return api.OK{Reason: "no message of this event on this connection waits for it"}, nil
	}
	return api.OK{OK: true}, nil
}

// Shutdown ends an app gracefully: deliveries to it stop, its requests are answered, and then the
// connection is closed.
func (c *Client) Shutdown(_ context.Context, p *api.ShutdownParams) (api.OK, error) {
	a, r := c.app.Load(), c.registry
	r.mu.Lock()
	a.ready, a.leaving = false, true
	r.mu.Unlock()
	change := &store.Change{Records: []*audit.Record{r.lifecycle(a, "shutdown", map[string]any{"reason": ocip.Summarize(p.Reason)})}, Drains: true}
	defer r.forgetSaved(a, change)()
	if _, err := r.commit(change); err != nil {
		return api.OK{}, err
	}
	limit := r.terms().DrainTimeout
	if p.Timeout > 0 {
		limit = time.Duration(p.Timeout) * time.Millisecond
	}
	c.link.Close(limit)
	return api.OK{OK: true}, nil
}

// Gone ends the connection's part in the registry.
func (c *Client) Gone() {
	c.entering.Lock()
	c.gone = true
	if c.resumption != nil {
		c.resumption.Stop()
	}
	c.entering.Unlock()
	a, r := c.app.Load(), c.registry
	r.mu.Lock()
	delete(r.clients, c)
	r.mu.Unlock()
	if a == nil || !r.unregister(a) {
		return
	}
	r.outbox.Leave(a)
	r.mu.RLock()
	leaving := a.leaving
	r.mu.RUnlock()
	switch {
	case leaving:
		r.announceEnd(a, "left")
	case r.closing.Err() == nil:
		// Otherwise the daemon is ending, not the app; its own record says so.
		r.announceEnd(a, "lost")
	}
}
