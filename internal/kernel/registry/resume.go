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

// savedApp is what the store keeps of an app that became ready. Its SDK connects
// again by itself when a connection or the daemon ended, and then resumes with the
// token it has, without registering anew.
type savedApp struct {
	// Token is the SHA-256 of the app's token, which is 256 random bits.
	Token        []byte                 `json:"token"`
	UID          uint32                 `json:"uid"`
	PID          int32                  `json:"pid"`
	Order        uint64                 `json:"order"`
	Manifest     *api.Manifest          `json:"manifest"`
	Capabilities []savedCapability      `json:"capabilities"`
	Hooks        map[api.Hook]hookNames `json:"hooks"`
	// Boot, Process and Exe are which process it was, and what it ran; "" where that
	// could not be told.
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

// Bounds of what is saved. An app with more to save registers anew after a restart.
// Where there are too many, one that is not connected gives way: of the process
// itself, where it has many, else the one that registered first of those that
// speak for no agent.
const (
	maxSaved          = 1024
	maxSavedOfProcess = 16
	maxSavedBytes     = 16 << 10
)

// saved knows which tokens can be resumed; what belongs to a token is in the store.
// The maps are guarded by the registry's lock.
type saved struct {
	apps   map[tokenDigest]string
	tokens map[string]savedToken
	// writing is held, for an app, from what is known of it to the commit: what
	// is written last is what holds.
	writing keylock.Locks
}

type savedToken struct {
	digest tokenDigest
	order  uint64
	uid    uint32
	pid    int32
	// events are those that the app was sent since the daemon started.
	events *events
}

const savedPrefix = "app:"

func savedKey(id string) string { return savedPrefix + id }

// loadSaved takes up what the store holds of apps. What cannot be read is as if it
// were not there: its app registers again.
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

// forgetSaved makes an app's earlier token worthless, and has the change take it
// out of the store. The caller commits it before it calls done.
func (r *Registry) forgetSaved(a *App, c *store.Change) (done func()) {
	done = r.saved.writing.Lock(a.ID())
	r.mu.Lock()
	r.saved.drop(a.ID())
	r.mu.Unlock()
	c.Add(store.Dropped(savedKey(a.ID())))
	return done
}

// save writes down what a ready app has, so that it can resume with it. Where that
// fails, or the app has too much, it works as ever, and has to register anew.
func (r *Registry) save(a *App) {
	defer r.saved.writing.Lock(a.ID())()
	t := r.terms()
	// What cannot be told is left out: then the app resumes by its token alone.
	process, _ := a.peer.Process()
	exe, _ := a.peer.Executable()
	r.mu.Lock()
	if !a.ready || r.apps[a.ID()] != a {
		r.mu.Unlock()
		return
	}
	digest := a.digest
	now := savedApp{Boot: r.processes.boot, Process: process, Exe: exe, Token: digest[:], UID: a.uid, PID: a.pid, Order: a.order, Manifest: a.manifest, Hooks: maps.Clone(a.hooks)}
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

// makeRoom has the change drop another app where there are too many, and reports
// whether there is room for one more.
func (r *Registry) makeRoom(t *Terms, a *App, c *store.Change) bool {
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

// resume makes the connection that of the app whose token a request on it shows,
// with what the app had when its last connection ended. Only the process that
// registered can resume: another one that has the token has to register.
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

// savedOf returns what is saved of an app.
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

// resumeAfter is how long a connection has to say by itself whose it is.
const resumeAfter = 500 * time.Millisecond

// awayApp returns the app of a process that is away, "" where there is none or more
// than one.
func (r *Registry) awayApp(uid uint32, pid int32) (app string) {
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

// resumeByProcess makes a connection that has said nothing yet that of the app which its
// process is, and which is away: a stock app connects again by itself and then says
// nothing until its next heartbeat. It is sent what waits for it; its requests have
// to show the token all the same.
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
	if err != nil || len(before.Token) != sha256.Size || before.UID != uid || before.PID != pid || before.Process == "" || before.Exe == "" || before.Boot != r.processes.boot {
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
	// A stock app has still what it read of a line that the daemon before this one did
	// not end, and loses with it the first line that comes now: one that nobody misses.
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
		// What is another app's now stays with that one.
		r.save(a)
	}
	r.outbox.Resume(a)
	r.log.Info("app resumed", zap.String("app", a.ID()), zap.Int32("pid", a.pid))
	return nil
}

// restoreLocked gives an app back what it had, but for what another app took
// meanwhile.
func (r *Registry) restoreLocked(t *Terms, a *App) {
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
