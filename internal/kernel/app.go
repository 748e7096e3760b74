package kernel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/text"
	"go.uber.org/zap"
)

// app is one registered app. It lives as long as its connection. What is not
// atomic is guarded by the kernel's registry lock.
type app struct {
	manifest *api.Manifest
	peer     api.Peer
	link     api.Link
	// digest is of the token that the app's requests have to show, and former of that
	// of an earlier registration which the app has shown.
	digest, former tokenDigest
	order          uint64
	uid            uint32
	pid            int32
	// looks is the skeleton of its id.
	looks string

	ready   bool
	leaving bool
	// was is what the app had before, where it went on with its token. It may still
	// register.
	was          *keptApp
	capabilities map[string]*capability
	// hooks holds the subscriptions: by canonical name, the names the app used.
	hooks  map[api.Hook]hookNames
	status jsontext.Value

	// lastSeen is in Unix nanoseconds.
	lastSeen  atomic.Int64
	unhealthy atomic.Bool
	// adopted is set while the connection has shown no token, and is the app's because
	// it is its process's.
	adopted   atomic.Bool
	clearance atomic.Pointer[clearance]
	watch     *time.Timer
	gone      chan struct{}
}

// id returns the app's id.
func (a *app) id() string { return a.manifest.ID }

// is reports whether the other is this app itself, on this connection or a later
// one: it has shown this one's token. Whoever merely has the id is another.
func (a *app) is(other *app) bool {
	return a == other || a.id() == other.id() && (sameDigest(other.digest, a.digest) || sameDigest(other.former, a.digest))
}

// owns reports whether a token is the app's.
func (a *app) owns(token string) bool {
	return token != "" && sameDigest(digestOfToken(token), a.digest)
}

// Client is one connection of an app, registered or not.
type Client struct {
	kernel *Kernel
	peer   api.Peer
	link   api.Link
	app    atomic.Pointer[app]
	// refused are the terms under which an app that would go on was refused, on
	// record. Requests are admitted one after another.
	refused *ruleset

	// entering is held while the connection becomes an app's, which requests do and,
	// where none comes, the kernel by itself.
	entering sync.Mutex
	gone     bool
	adopts   *time.Timer
}

// Connect begins a connection. One of the very process of an app that is away
// becomes that app's by itself, see [Client.adopt].
func (k *Kernel) Connect(peer api.Peer, link api.Link) *Client {
	c := &Client{kernel: k, peer: peer, link: link}
	if uid, _, pid := peer.Credentials(); k.absent(uid, pid) != "" {
		c.entering.Lock()
		c.adopts = time.AfterFunc(adoptAfter, c.adopt)
		c.entering.Unlock()
	}
	return c
}

// Registered reports whether the connection has an app.
func (c *Client) Registered() bool { return c.app.Load() != nil }

// Authorize checks a request's token and counts as a sign of life.
func (c *Client) Authorize(token string) error {
	a := c.app.Load()
	switch {
	case (a == nil || a.adopted.Load()) && token == "":
		return api.Errorf(api.AppNotRegistered, "call app.register first")
	case a == nil:
		// An app that was there before goes on.
		return c.resume(token)
	case a.adopted.Load() && !a.owns(token):
		return api.Errorf(api.AppNotRegistered, "call app.register first")
	case token == "":
		return api.Errorf(api.Unauthorized, "the request has no token; send the one app.register returned")
	case !a.owns(token):
		return api.Errorf(api.Unauthorized, "the token is not the one app.register returned")
	}
	a.adopted.Store(false)
	if _, err := c.rules(); err != nil {
		return err
	}
	a.lastSeen.Store(c.kernel.now().UnixNano())
	if a.unhealthy.Load() {
		c.kernel.recovered(a)
	}
	return nil
}

// Register makes the connection an app's. An id that has a live connection is
// taken over only with that connection's token.
func (c *Client) Register(_ context.Context, token string, p *api.RegisterParams) (api.RegisterResult, error) {
	k := c.kernel
	c.entering.Lock()
	defer c.entering.Unlock()
	if was := c.app.Load(); was != nil {
		if !was.adopted.Load() && (was.was == nil || was.id() != p.Manifest.ID) {
			return api.RegisterResult{}, api.Errorf(api.Conflict, "this connection has registered %s already", was.id())
		}
		// A request that came before this one made the app go on as it was. It
		// begins anew.
		if k.remove(was) && was.id() != p.Manifest.ID {
			k.tellGone(was, "lost")
		}
		k.outbox.leave(was)
	}
	fresh := newToken()
	a := c.newApp(p.Manifest, digestOfToken(fresh))
	change := &store.Change{Records: []*audit.Record{k.lifecycle(a, "registered", nil)}}
	if err := c.enter(a, token, change); err != nil {
		if was := c.app.Load(); was != nil {
			k.tellGone(was, "lost")
			c.link.Close(0)
		}
		return api.RegisterResult{}, err
	}
	k.log.Info("app registered", zap.String("app", a.id()), zap.String("version", a.manifest.Version), zap.Int32("pid", a.pid))
	return api.RegisterResult{AppID: a.id(), Token: fresh, ProtocolVersion: api.ProtocolVersion}, nil
}

// newApp makes what the connection's process is from here on, of no rights yet.
func (c *Client) newApp(manifest *api.Manifest, digest tokenDigest) *app {
	uid, _, pid := c.peer.Credentials()
	return &app{
		manifest: manifest, peer: c.peer, link: c.link, digest: digest, uid: uid, pid: pid, looks: text.Skeleton(manifest.ID),
		capabilities: make(map[string]*capability), hooks: make(map[api.Hook]hookNames), gone: make(chan struct{}),
	}
}

// enter makes the connection an app's, which the change puts on record. The
// token is that of an earlier registration, or "".
func (c *Client) enter(a *app, token string, change *store.Change) error {
	k := c.kernel
	rules := k.rules()
	event, process := "binding_refused", ""
	err := rules.mayRun(a.id(), c.peer)
	if err == nil {
		event = "process_refused"
		process, err = k.noteProcess(a, c.peer, change)
	}
	if err != nil {
		if a.was != nil && c.refused == rules {
			return err // is on record: an SDK asks again with every heartbeat
		}
		c.refused = rules
		return k.onRecord(a, event, err, rules.claim(a))
	}
	a.clearance.Store(&clearance{under: rules})
	a.lastSeen.Store(k.now().UnixNano())
	if err := rules.claimID(a, token); err != nil {
		return k.onRecord(a, "binding_refused", err, rules.claim(a))
	}
	if a.was == nil {
		defer k.forgetKept(a, change)()
	}
	if _, err := k.commit(change); err != nil {
		k.remove(a)
		return err
	}
	k.processes.written(process)
	// Among the registered it is looked at by whoever changes the terms; here,
	// for terms that came in between.
	_ = k.rules().clear(a)
	c.app.Store(a)
	k.mu.Lock()
	if k.apps[a.id()] == a {
		a.watch = time.AfterFunc(k.rules().cfg.UnhealthyAfter, func() { k.checkHealth(a) })
	}
	k.mu.Unlock()
	return nil
}

// claim is what a record says of who claimed an app's id.
func (k *ruleset) claim(a *app) map[string]any {
	details := map[string]any{"pid": a.pid, "uid": a.uid}
	if like := k.directory.LooksLike(a.id()); like != "" {
		details["looksLike"] = like
	}
	return details
}

// claimID enters an app under its id, and ends an earlier connection of it
// where the token shows that both are the same app. One that goes on is at once
// what the other was: no message finds neither of them.
func (k *ruleset) claimID(a *app, token string) error {
	k.mu.Lock()
	if like := k.lookAlikeLocked(a); like != "" {
		k.mu.Unlock()
		return api.Errorf(api.Forbidden, "app id %s looks like %s, which is connected; use that id if it is the same app, and another one if not", a.id(), like)
	}
	holder := k.apps[a.id()]
	if holder != nil {
		if !holder.owns(token) {
			k.mu.Unlock()
			return api.Errorf(api.Conflict, "app %s is connected already; send its token to take over", a.id())
		}
		k.strike(holder)
		a.former = holder.digest
	}
	if a.order == 0 {
		k.order++
		a.order = k.order
	}
	k.apps[a.id()] = a
	if a.was != nil {
		k.restore(a)
	}
	k.mu.Unlock()
	if holder != nil {
		holder.link.Close(0)
	}
	return nil
}

// lookAlikeLocked returns an app that is connected and whose id one looks like without
// being it, "" where there is none. An id that the configuration names is meant.
func (k *ruleset) lookAlikeLocked(a *app) string {
	if k.directory.Names(a.id()) {
		return ""
	}
	for id, other := range k.apps {
		if id != a.id() && other.looks == a.looks {
			return id
		}
	}
	return ""
}

// mayRun checks that an app may have its id, and the user and the program that the id
// is bound to.
func (k *ruleset) mayRun(id string, peer api.Peer) error {
	if err := k.directory.MayRegister(id); err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	uid, _, _ := peer.Credentials()
	for _, agent := range k.directory.SpokenBy(id) {
		if agent.UID != nil && *agent.UID != uid {
			return api.Errorf(api.Forbidden, "app %s speaks for agent %s, which is bound to user %d; this process runs as user %d", id, agent.ID, *agent.UID, uid)
		}
		if agent.Exe == "" {
			continue
		}
		exe, err := peer.Executable()
		if err != nil {
			k.log.Warn("cannot tell which program connects", zap.String("app", id), zap.Error(err))
			return api.Errorf(api.Forbidden, "app %s speaks for agent %s, which is bound to a program, and the kernel cannot tell which program this is", id, agent.ID)
		}
		if exe != agent.Exe {
			return api.Errorf(api.Forbidden, "app %s speaks for agent %s, which is bound to %s; this process runs %s", id, agent.ID, agent.Exe, exe)
		}
	}
	return nil
}

// digestOfToken is what is kept of a token, also in memory.
func digestOfToken(token string) tokenDigest { return sha256.Sum256([]byte(token)) }

// sameDigest reports whether two digests are of one token.
func sameDigest(x, y tokenDigest) bool { return subtle.ConstantTimeCompare(x[:], y[:]) == 1 }

func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Heartbeat keeps an app alive.
func (c *Client) Heartbeat(_ context.Context, p *api.HeartbeatParams) (api.HeartbeatResult, error) {
	if len(p.Status) > 0 {
		a := c.app.Load()
		c.kernel.mu.Lock()
		a.status = p.Status.Clone()
		c.kernel.mu.Unlock()
	}
	return api.HeartbeatResult{OK: true, ServerTime: c.kernel.now().UnixMilli()}, nil
}

// Ready lets traffic flow to the app, beginning with what has waited for it.
func (c *Client) Ready(context.Context, *api.ReadyParams) (api.OK, error) {
	a, k := c.app.Load(), c.kernel
	k.mu.Lock()
	if a.leaving {
		k.mu.Unlock()
		return api.OK{}, api.Errorf(api.Conflict, "app %s is shutting down", a.id())
	}
	a.ready = true
	k.mu.Unlock()
	k.keep(a)
	k.outbox.resume(k.queuesOf(a))
	return api.OK{OK: true}, nil
}

// Shutdown ends an app gracefully: nothing more is delivered to it, what it
// asked for is answered, and then the connection is closed.
func (c *Client) Shutdown(_ context.Context, p *api.ShutdownParams) (api.OK, error) {
	a, k := c.app.Load(), c.kernel
	k.mu.Lock()
	a.ready, a.leaving = false, true
	k.mu.Unlock()
	change := &store.Change{Records: []*audit.Record{k.lifecycle(a, "shutdown", map[string]any{"reason": ocip.Summarize(p.Reason)})}, Drains: true}
	defer k.forgetKept(a, change)()
	if _, err := k.commit(change); err != nil {
		return api.OK{}, err
	}
	limit := k.rules().cfg.DrainTimeout
	if p.Timeout > 0 {
		limit = time.Duration(p.Timeout) * time.Millisecond
	}
	c.link.Close(limit)
	return api.OK{OK: true}, nil
}

// Gone ends the connection's part in the kernel.
func (c *Client) Gone() {
	c.entering.Lock()
	c.gone = true
	if c.adopts != nil {
		c.adopts.Stop()
	}
	c.entering.Unlock()
	a := c.app.Load()
	if a == nil || !c.kernel.remove(a) {
		return
	}
	k := c.kernel
	k.outbox.leave(a)
	switch {
	case a.leaving:
		k.tellGone(a, "left")
	case k.closing.Err() == nil:
		// Else the daemon goes, not the app; its own record says so.
		k.tellGone(a, "lost")
	}
}

// tellGone puts on record that an app is no more, and tells the others.
func (k *Kernel) tellGone(a *app, event string) {
	k.log.Info("app "+event, zap.String("app", a.id()))
	if _, err := k.drain(k.lifecycle(a, event, nil)); err != nil {
		return
	}
	k.rules().tellOf(a, "app:"+event, a)
}

// remove takes an app out of the registry, once.
func (k *Kernel) remove(a *app) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.apps[a.id()] != a {
		return false
	}
	k.strike(a)
	return true
}

// strike takes an app out of the registry. It is called with the registry lock.
func (k *Kernel) strike(a *app) {
	delete(k.apps, a.id())
	for channel, owner := range k.channels {
		if owner == a {
			delete(k.channels, channel)
		}
	}
	for hook := range a.hooks {
		k.dropListener(hook, a)
	}
	a.ready = false
	if a.watch != nil {
		a.watch.Stop()
	}
	close(a.gone)
}

// dropListener is called with the registry lock.
func (k *Kernel) dropListener(hook api.Hook, a *app) {
	k.hooks[hook] = slices.DeleteFunc(slices.Clone(k.hooks[hook]), func(other *app) bool { return other == a })
}

// checkHealth runs when an app may have been silent for too long, and sets
// itself up again for when it next may be.
func (k *Kernel) checkHealth(a *app) {
	silent, patience := k.now().Sub(time.Unix(0, a.lastSeen.Load())), k.rules().cfg.UnhealthyAfter
	next := patience - silent
	if next <= 0 {
		if a.unhealthy.CompareAndSwap(false, true) {
			k.unhealthy(a, silent)
		}
		next = patience
	}
	k.mu.Lock()
	if k.apps[a.id()] == a && a.watch != nil {
		a.watch.Reset(next)
	}
	k.mu.Unlock()
}

func (k *Kernel) unhealthy(a *app, silent time.Duration) {
	k.log.Warn("app is silent", zap.String("app", a.id()), zap.Duration("for", silent))
	if _, err := k.drain(k.lifecycle(a, "unhealthy", map[string]any{"silentMs": silent.Milliseconds()})); err != nil {
		return
	}
	k.rules().tellOf(a, api.AppUnhealthy, nil)
}

// recovered runs when an app that was silent is heard again.
func (k *Kernel) recovered(a *app) {
	if !a.unhealthy.CompareAndSwap(true, false) {
		return
	}
	if _, err := k.drain(k.lifecycle(a, "healthy", nil)); err != nil {
		return
	}
	k.rules().tellOf(a, api.AppHealthy, nil)
}

// tellOf tells the apps that share a tenant with one what became of it, but for one
// of them.
func (k *ruleset) tellOf(about *app, event string, but *app) {
	payload, theirs := appEvent(about, k.now()), k.tenantsOf(about.id())
	k.mu.RLock()
	apps := slices.Collect(maps.Values(k.apps))
	k.mu.RUnlock()
	for _, a := range apps {
		if a != but && (a == about || theirs.share(k.tenantsOf(a.id()))) {
			tell(a.link, event, payload)
		}
	}
}

// tenants are those that an app belongs to; every one is all of them.
type tenants struct {
	every bool
	names []string
}

// tenantsOf returns the tenants of an app: those of the agents it speaks for, and
// those that it is granted something of. Where nothing has to be declared there is
// one, and everybody is of it.
func (k *ruleset) tenantsOf(app string) tenants {
	if !k.directory.Declared() {
		return tenants{every: true}
	}
	var of tenants
	for _, agent := range k.directory.SpokenBy(app) {
		of.names = append(of.names, agent.TenantID)
	}
	grant, granted := k.cfg.Directory.Grants[app]
	if !granted && !k.cfg.HookApps[app].Required {
		return of
	}
	if len(grant.Channels) > 0 || len(grant.Tenants) > 0 {
		of.names = append(of.names, k.directory.Tenants(app)...)
	}
	for i := range k.cfg.Directory.Agents {
		if agent := &k.cfg.Directory.Agents[i]; k.directory.Intercepts(app, agent) || k.directory.Observes(app, agent, "") {
			of.names = append(of.names, agent.TenantID)
		}
	}
	return of
}

// share reports whether two apps have a tenant in common.
func (t tenants) share(other tenants) bool {
	if t.every || other.every {
		return true
	}
	return slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(other.names, name) })
}

// appEvent is the payload of the events about an app's life.
func appEvent(a *app, now time.Time) []byte {
	payload, err := json.Marshal(struct {
		AppID      string `json:"appId"`
		LastSeenAt int64  `json:"lastSeenAt"`
		Timestamp  int64  `json:"timestamp"`
	}{a.id(), time.Unix(0, a.lastSeen.Load()).UnixMilli(), now.UnixMilli()})
	if err != nil {
		return []byte("{}")
	}
	return payload
}

// lifecycle is the record of an app's coming and going.
func (k *Kernel) lifecycle(a *app, event string, details map[string]any) *audit.Record {
	if details == nil {
		details = make(map[string]any)
	}
	details["version"], details["pid"], details["uid"] = a.manifest.Version, a.pid, a.uid
	return &audit.Record{ID: k.newID(), ActionType: audit.ActionAppLifecycle, Event: event, AppID: a.id(), Details: details}
}
