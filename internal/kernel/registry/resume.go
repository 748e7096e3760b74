package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// savedApp is the stored form of an app that became ready. When a connection or the daemon ends,
// the app's SDK connects again by itself, and then resumes with its token, without registering
// anew.
type savedApp struct {
	// Token is the SHA-256 of the app's token, which is 256 random bits.
	Token        []byte                 `json:"token"`
	UID          uint32                 `json:"uid"`
	PID          int32                  `json:"pid"`
	Order        uint64                 `json:"order"`
	Manifest     *api.Manifest          `json:"manifest"`
	Capabilities []savedCapability      `json:"capabilities"`
	Hooks        map[api.Hook]hookNames `json:"hooks"`
	// Boot, Process and Exe identify the process and its program; "" if they could not be
	// determined.
	Boot    string `json:"boot,omitzero"`
	Process string `json:"process,omitzero"`
	Exe     string `json:"exe,omitzero"`
}

type savedCapability struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Hook      api.Hook `json:"hook,omitzero"`
	Intercept bool     `json:"intercept,omitzero"`
}

// Bounds of the saved apps. An app with more to save registers anew after a restart. If there are
// too many apps, a disconnected one is dropped: one of the same process, if that has many, else the
// one that registered first of those that speak for no agent.
const (
	maxSaved          = 1024
	maxSavedOfProcess = 16
	maxSavedBytes     = 16 << 10
)

// saved knows the tokens that can be resumed; the rest of each app is in the store. The registry's
// lock guards the maps.
type saved struct {
	apps   map[tokenDigest]string
	tokens map[string]savedToken
	// writing is held, per app, from the read of its state to the commit, so that the last write
	// wins.
	writing keylock.Locks
}

type savedToken struct {
	digest tokenDigest
	order  uint64
	uid    uint32
	pid    int32
	// events are the app's events since the daemon started.
	events *events
}

const savedPrefix = "app:"

func savedKey(id string) string { return savedPrefix + id }

// loadSaved loads the apps from the store. It skips an unreadable app, which then registers again.
func (r *Registry) loadSaved(ctx context.Context) error {
	r.saved.apps, r.saved.tokens = make(map[tokenDigest]string), make(map[string]savedToken)
	values, err := r.store.MetaUnder(ctx, savedPrefix)
	if err != nil {
		return err
	}
	for key, value := range values {
		var app savedApp
		if err := json.Unmarshal(value, &app); err != nil || len(app.Token) != sha256.Size || app.Manifest == nil || savedKey(app.Manifest.ID) != key {
			r.log.Warn("cannot read what is kept of an app", zap.String("key", key), zap.Error(err))
			continue
		}
		r.saved.put(app.Manifest.ID, savedToken{digest: tokenDigest(app.Token), order: app.Order, uid: app.UID, pid: app.PID})
		r.order = max(r.order, app.Order)
	}
	return nil
}

func (r *saved) put(id string, t savedToken) {
	r.drop(id)
	r.apps[t.digest] = id
	r.tokens[id] = t
}

func (r *saved) drop(id string) {
	if t, ok := r.tokens[id]; ok {
		delete(r.apps, t.digest)
		delete(r.tokens, id)
	}
}

// forgetSaved makes an app's earlier token worthless, and has the change remove it from the store.
// The caller commits the change before it calls done.
func (r *Registry) forgetSaved(a *App, c *store.Change) (done func()) {
	done = r.saved.writing.Lock(a.ID())
	r.mu.Lock()
	r.saved.drop(a.ID())
	r.mu.Unlock()
	c.Add(store.Dropped(savedKey(a.ID())))
	return done
}

// save stores a ready app, so that it can resume. If that fails, or the app is too large, the app
// keeps working, and must register anew later.
func (r *Registry) save(a *App) {
	defer r.saved.writing.Lock(a.ID())()
	t := r.terms()
	// Without a known process, the app resumes by its token alone.
	process, _ := a.peer.Process()
	exe, _ := a.peer.Executable()
	r.mu.Lock()
	if !a.ready || r.apps[a.ID()] != a {
		r.mu.Unlock()
		return
	}
	digest := a.digest
	now := savedApp{Boot: r.Processes.boot, Process: process, Exe: exe, Token: digest[:], UID: a.uid, PID: a.pid, Order: a.order, Manifest: a.manifest, Hooks: maps.Clone(a.hooks)}
	for _, cp := range a.capabilities {
		now.Capabilities = append(now.Capabilities, savedCapability{cp.id, cp.kind, cp.name, cp.hook, cp.intercept})
	}
	r.mu.Unlock()
	value, err := json.Marshal(now)
	if err == nil && len(value) > maxSavedBytes {
		err = fmt.Errorf("it has %d bytes, limit %d", len(value), maxSavedBytes)
	}
	if err == nil {
		change := &store.Change{Parts: []store.Part{store.Meta{Key: savedKey(a.ID()), Value: value}}}
		if r.makeRoom(t, a, change) {
			_, err = r.store.Commit(change)
		} else {
			err = errors.New("too many apps are kept")
		}
	}
	r.mu.Lock()
	if err == nil {
		r.saved.put(a.ID(), savedToken{digest, a.order, a.uid, a.pid, a.events})
	} else {
		r.saved.drop(a.ID())
	}
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("cannot keep what an app has: it has to register after a restart", zap.String("app", a.ID()), zap.Error(err))
	}
}

// makeRoom has the change drop another app if there are too many, and reports whether there is room
// for one more.
func (r *table) makeRoom(t *Terms, a *App, c *store.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.saved.tokens[a.ID()]; known {
		return true
	}
	mine := 0
	for _, other := range r.saved.tokens {
		if other.uid == a.uid && other.pid == a.pid {
			mine++
		}
	}
	if mine < maxSavedOfProcess && len(r.saved.tokens) < maxSaved {
		return true
	}
	gone, first := "", uint64(math.MaxUint64)
	for id, other := range r.saved.tokens {
		own := other.uid == a.uid && other.pid == a.pid
		if r.apps[id] == nil && other.order < first && (own || mine < maxSavedOfProcess && len(t.Directory.SpokenBy(id)) == 0) {
			gone, first = id, other.order
		}
	}
	if gone == "" {
		return false
	}
	r.saved.drop(gone)
	c.Add(store.Dropped(savedKey(gone)))
	return true
}

// resume makes the connection that of the app whose token a request on it shows, with the state at
// the end of its last connection. Only the process that registered can resume; any other process
// with the token must register.
func (c *Client) resume(token string) error {
	r := c.registry
	c.entering.Lock()
	defer c.entering.Unlock()
	if a := c.app.Load(); a != nil {
		// It has become an app's just now.
		if !a.owns(token) {
			return api.Errorf(api.AppNotRegistered, "call app.register first")
		}
		a.byProcess.Store(false)
		return nil
	}
	unregistered := api.Errorf(api.AppNotRegistered, "call app.register first")
	digest := digestOfToken(token)
	r.mu.RLock()
	id, known := r.saved.apps[digest]
	r.mu.RUnlock()
	if !known {
		return unregistered
	}
	before, err := r.savedOf(id)
	if err != nil {
		return unregistered
	}
	uid, _, pid := c.peer.Credentials()
	if !bytes.Equal(before.Token, digest[:]) || before.UID != uid || before.PID != pid {
		return unregistered
	}
	a := c.newApp(before.Manifest, digest)
	return c.resumeAs(a, before, token, nil)
}

// savedOf returns the saved state of an app.
func (r *Registry) savedOf(id string) (*savedApp, error) {
	value, err := r.store.Meta(r.closing, savedKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	found := new(savedApp)
	if err == nil {
		err = json.Unmarshal(value, found)
	}
	if err != nil {
		r.log.Error("cannot read what is kept of an app", zap.String("app", id), zap.Error(err))
	}
	return found, err
}

// resumeAfter is the time that a connection has to identify itself.
const resumeAfter = 500 * time.Millisecond

// awayApp returns the disconnected app of a process, "" if there is none or more than one.
func (r *table) awayApp(uid uint32, pid int32) (app string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, t := range r.saved.tokens {
		if t.uid != uid || t.pid != pid || r.apps[id] != nil {
			continue
		}
		if app != "" {
			return ""
		}
		app = id
	}
	return app
}

// resumeByProcess makes a silent connection that of the disconnected app whose process it is. A
// stock app connects again by itself and then says nothing until its next heartbeat. It gets its
// waiting messages; its requests must still show the token.
func (c *Client) resumeByProcess() {
	c.entering.Lock()
	defer c.entering.Unlock()
	r := c.registry
	uid, _, pid := c.peer.Credentials()
	id := r.awayApp(uid, pid)
	if c.gone || c.app.Load() != nil || id == "" || r.closing.Err() != nil {
		return
	}
	before, err := r.savedOf(id)
	if err != nil || len(before.Token) != sha256.Size || before.UID != uid || before.PID != pid || before.Process == "" || before.Exe == "" || before.Boot != r.Processes.boot {
		return
	}
	process, err := c.peer.Process()
	if err != nil || process != before.Process {
		return
	}
	if exe, err := c.peer.Executable(); err != nil || exe != before.Exe {
		return
	}
	a := c.newApp(before.Manifest, tokenDigest(before.Token))
	a.byProcess.Store(true)
	// A stock app still has the part of a line that the previous daemon did not finish, and loses
	// the next line with it. So the first line is one that nobody needs.
	c.link.Put(gate.Notice(api.KernelResumed, []byte("{}")), nil)
	if err := c.resumeAs(a, before, "", map[string]any{"by": "process"}); err != nil {
		r.log.Debug("a connection of an app's process is not the app's", zap.String("app", id), zap.Error(err))
	}
}

// resumeAs makes the connection that of an app which registered before.
func (c *Client) resumeAs(a *App, before *savedApp, token string, details map[string]any) error {
	r := c.registry
	a.order, a.resumedFrom = before.Order, before
	if err := c.enter(a, token, &store.Change{Records: []*audit.Record{r.lifecycle(a, eventResumed, details)}}); err != nil {
		return err
	}
	r.mu.RLock()
	less := len(a.capabilities) < len(before.Capabilities)
	r.mu.RUnlock()
	if less {
		// Capabilities of another app by now stay with that app.
		r.save(a)
	}
	r.outbox.Resume(a)
	r.log.Info("app resumed", zap.String("app", a.ID()), zap.Int32("pid", a.pid))
	return nil
}

// restoreLocked gives an app its grants back, except those that another app took meanwhile.
func (r *table) restoreLocked(t *Terms, a *App) {
	for _, kc := range a.resumedFrom.Capabilities {
		cp := &capability{id: kc.ID, kind: kc.Kind, name: kc.Name, hook: kc.Hook, intercept: kc.Intercept}
		if cp.kind == "channel" && t.Directory.MayOwn(a.ID(), cp.name) != nil {
			continue
		}
		if r.ownerLocked(t, cp, a) == nil {
			r.grantLocked(a, cp)
		}
	}
	for hook, names := range a.resumedFrom.Hooks {
		for _, name := range names {
			r.listenLocked(a, hook, name)
		}
	}
	a.ready = true
}
