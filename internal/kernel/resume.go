package kernel

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
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// keptApp is what the store keeps of an app that became ready. Its SDK connects
// again by itself when a connection or the daemon ended, and then goes on with the
// token it has, without registering anew.
type keptApp struct {
	// Token is the SHA-256 of the app's token, which is 256 random bits.
	Token        []byte                 `json:"token"`
	UID          uint32                 `json:"uid"`
	PID          int32                  `json:"pid"`
	Order        uint64                 `json:"order"`
	Manifest     *api.Manifest          `json:"manifest"`
	Capabilities []keptCapability       `json:"capabilities"`
	Hooks        map[api.Hook]hookNames `json:"hooks"`
	// Boot, Process and Exe are which process it was, and what it ran; "" where that
	// could not be told.
	Boot    string `json:"boot,omitzero"`
	Process string `json:"process,omitzero"`
	Exe     string `json:"exe,omitzero"`
}

type keptCapability struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Hook      api.Hook `json:"hook,omitzero"`
	Intercept bool     `json:"intercept,omitzero"`
}

// Bounds of what is kept. An app with more to keep registers anew after a restart.
// Where there are too many, one that is not connected gives way: of the process
// itself, where it has many, else the one that registered first of those that
// speak for no agent.
const (
	maxKept          = 1024
	maxKeptOfProcess = 16
	maxKeptBytes     = 16 << 10
)

// tokenDigest is what is kept of a token.
type tokenDigest [sha256.Size]byte

// kept knows which tokens can be gone on with; what belongs to a token is in the
// store. The maps are guarded by the registry lock.
type kept struct {
	apps   map[tokenDigest]string
	tokens map[string]keptToken
	// writing is held, for an app, from what is known of it to the commit: what
	// is written last is what holds.
	writing locks
}

type keptToken struct {
	digest tokenDigest
	order  uint64
	uid    uint32
	pid    int32
}

const keptPrefix = "app:"

func keptKey(id string) string { return keptPrefix + id }

// loadKept takes up what the store keeps of apps. What cannot be read is as if it
// were not there: its app registers again.
func (k *Kernel) loadKept(ctx context.Context) error {
	k.kept.apps, k.kept.tokens = make(map[tokenDigest]string), make(map[string]keptToken)
	values, err := k.store.MetaUnder(ctx, keptPrefix)
	if err != nil {
		return err
	}
	for key, value := range values {
		var was keptApp
		if err := json.Unmarshal(value, &was); err != nil || len(was.Token) != sha256.Size || was.Manifest == nil || keptKey(was.Manifest.ID) != key {
			k.log.Warn("cannot read what is kept of an app", zap.String("key", key), zap.Error(err))
			continue
		}
		k.kept.put(was.Manifest.ID, keptToken{tokenDigest(was.Token), was.Order, was.UID, was.PID})
		k.order = max(k.order, was.Order)
	}
	return nil
}

func (r *kept) put(id string, t keptToken) {
	r.drop(id)
	r.apps[t.digest] = id
	r.tokens[id] = t
}

func (r *kept) drop(id string) {
	if t, ok := r.tokens[id]; ok {
		delete(r.apps, t.digest)
		delete(r.tokens, id)
	}
}

// forgetKept makes an app's earlier token worthless, and has the change take it
// out of the store. The caller commits it before it calls done.
func (k *Kernel) forgetKept(a *app, c *store.Change) (done func()) {
	done = k.kept.writing.lock(a.id(), "")
	k.mu.Lock()
	k.kept.drop(a.id())
	k.mu.Unlock()
	c.Add(store.Dropped(keptKey(a.id())))
	return done
}

// keep writes down what a ready app has, so that it can go on with it. Where that
// fails, or the app has too much, it works as ever, and has to register anew.
func (k *Kernel) keep(a *app) {
	defer k.kept.writing.lock(a.id(), "")()
	rules := k.rules()
	// What cannot be told is left out: then the token alone has the app go on.
	process, _ := a.peer.Process()
	exe, _ := a.peer.Executable()
	k.mu.Lock()
	if !a.ready || k.apps[a.id()] != a {
		k.mu.Unlock()
		return
	}
	digest := a.digest
	now := keptApp{Boot: k.processes.boot, Process: process, Exe: exe, Token: digest[:], UID: a.uid, PID: a.pid, Order: a.order, Manifest: a.manifest, Hooks: maps.Clone(a.hooks)}
	for _, cp := range a.capabilities {
		now.Capabilities = append(now.Capabilities, keptCapability{cp.id, cp.kind, cp.name, cp.hook, cp.intercept})
	}
	k.mu.Unlock()
	value, err := json.Marshal(now)
	if err == nil && len(value) > maxKeptBytes {
		err = fmt.Errorf("it has %d bytes, limit %d", len(value), maxKeptBytes)
	}
	if err == nil {
		change := &store.Change{Parts: []store.Part{store.Meta{Key: keptKey(a.id()), Value: value}}}
		if k.makeRoom(rules, a, change) {
			_, err = k.store.Commit(change)
		} else {
			err = errors.New("too many apps are kept")
		}
	}
	k.mu.Lock()
	if err == nil {
		k.kept.put(a.id(), keptToken{digest, a.order, a.uid, a.pid})
	} else {
		k.kept.drop(a.id())
	}
	k.mu.Unlock()
	if err != nil {
		k.log.Warn("cannot keep what an app has: it has to register after a restart", zap.String("app", a.id()), zap.Error(err))
	}
}

// makeRoom has the change drop another app where there are too many, and reports
// whether there is room for one more.
func (k *Kernel) makeRoom(rules *ruleset, a *app, c *store.Change) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.kept.tokens[a.id()]; known {
		return true
	}
	mine := 0
	for _, t := range k.kept.tokens {
		if t.uid == a.uid && t.pid == a.pid {
			mine++
		}
	}
	if mine < maxKeptOfProcess && len(k.kept.tokens) < maxKept {
		return true
	}
	gone, first := "", uint64(math.MaxUint64)
	for id, t := range k.kept.tokens {
		own := t.uid == a.uid && t.pid == a.pid
		if k.apps[id] == nil && t.order < first && (own || mine < maxKeptOfProcess && len(rules.directory.SpokenBy(id)) == 0) {
			gone, first = id, t.order
		}
	}
	if gone == "" {
		return false
	}
	k.kept.drop(gone)
	c.Add(store.Dropped(keptKey(gone)))
	return true
}

// resume makes the connection that of the app whose token a request on it shows,
// with what the app had when its last connection ended. Only the process that
// registered can go on: another one that has the token has to register.
func (c *Client) resume(token string) error {
	k := c.kernel
	c.entering.Lock()
	defer c.entering.Unlock()
	if a := c.app.Load(); a != nil {
		// It has become an app's just now.
		if !a.owns(token) {
			return api.Errorf(api.AppNotRegistered, "call app.register first")
		}
		a.adopted.Store(false)
		return nil
	}
	unregistered := api.Errorf(api.AppNotRegistered, "call app.register first")
	digest := digestOfToken(token)
	k.mu.RLock()
	id, known := k.kept.apps[digest]
	k.mu.RUnlock()
	if !known {
		return unregistered
	}
	was, err := k.keptOf(id)
	if err != nil {
		return unregistered
	}
	uid, _, pid := c.peer.Credentials()
	if !bytes.Equal(was.Token, digest[:]) || was.UID != uid || was.PID != pid {
		return unregistered
	}
	a := c.newApp(was.Manifest, digest)
	return c.goOn(a, was, token, nil)
}

// keptOf returns what is kept of an app.
func (k *Kernel) keptOf(id string) (*keptApp, error) {
	value, err := k.store.Meta(k.closing, keptKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	was := new(keptApp)
	if err == nil {
		err = json.Unmarshal(value, was)
	}
	if err != nil {
		k.log.Error("cannot read what is kept of an app", zap.String("app", id), zap.Error(err))
	}
	return was, err
}

// adoptAfter is how long a connection has to say by itself whose it is.
const adoptAfter = 500 * time.Millisecond

// absent returns the app of a process that is away, "" where there is none or more
// than one.
func (k *Kernel) absent(uid uint32, pid int32) (app string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for id, t := range k.kept.tokens {
		if t.uid != uid || t.pid != pid || k.apps[id] != nil {
			continue
		}
		if app != "" {
			return ""
		}
		app = id
	}
	return app
}

// adopt makes a connection that has said nothing yet that of the app which its
// process is, and which is away: a stock app connects again by itself and then says
// nothing until its next heartbeat. It is sent what waits for it; its requests have
// to show the token all the same.
func (c *Client) adopt() {
	c.entering.Lock()
	defer c.entering.Unlock()
	k := c.kernel
	uid, _, pid := c.peer.Credentials()
	id := k.absent(uid, pid)
	if c.gone || c.app.Load() != nil || id == "" || k.closing.Err() != nil {
		return
	}
	was, err := k.keptOf(id)
	if err != nil || len(was.Token) != sha256.Size || was.UID != uid || was.PID != pid || was.Process == "" || was.Exe == "" || was.Boot != k.processes.boot {
		return
	}
	process, err := c.peer.Process()
	if err != nil || process != was.Process {
		return
	}
	if exe, err := c.peer.Executable(); err != nil || exe != was.Exe {
		return
	}
	a := c.newApp(was.Manifest, tokenDigest(was.Token))
	a.adopted.Store(true)
	// A stock app has still what it read of a line that the daemon before this one did
	// not end, and loses with it the first line that comes now: one that nobody misses.
	c.link.Send(api.KernelResumed, []byte("{}"), nil)
	if err := c.goOn(a, was, "", map[string]any{"by": "process"}); err != nil {
		k.log.Debug("a connection of an app's process is not the app's", zap.String("app", id), zap.Error(err))
	}
}

// goOn makes the connection that of an app which was there before.
func (c *Client) goOn(a *app, was *keptApp, token string, details map[string]any) error {
	k, id := c.kernel, a.id()
	a.order, a.was = was.Order, was
	if err := c.enter(a, token, &store.Change{Records: []*audit.Record{k.lifecycle(a, "resumed", details)}}); err != nil {
		return err
	}
	k.mu.RLock()
	less := len(a.capabilities) < len(was.Capabilities)
	k.mu.RUnlock()
	if less {
		// What is another app's now stays with that one.
		k.keep(a)
	}
	k.outbox.resume(k.queuesOf(a))
	k.log.Info("app resumed", zap.String("app", id), zap.Int32("pid", a.pid))
	return nil
}

// restore gives an app back what it had, but for what another app took meanwhile.
// It is called with the registry lock.
func (k *ruleset) restore(a *app) {
	for _, kc := range a.was.Capabilities {
		cp := &capability{id: kc.ID, kind: kc.Kind, name: kc.Name, hook: kc.Hook, intercept: kc.Intercept}
		if cp.kind == "channel" && k.directory.MayOwn(a.id(), cp.name) != nil {
			continue
		}
		if k.ownerLocked(cp, a) == nil {
			k.grant(a, cp)
		}
	}
	for hook, names := range a.was.Hooks {
		for _, name := range names {
			k.listen(a, hook, name)
		}
	}
	a.ready = true
}
