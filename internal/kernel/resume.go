package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"math"

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
	Token        []byte              `json:"token"`
	UID          uint32              `json:"uid"`
	PID          int32               `json:"pid"`
	Order        uint64              `json:"order"`
	Manifest     *api.Manifest       `json:"manifest"`
	Capabilities []keptCapability    `json:"capabilities"`
	Hooks        map[api.Hook]string `json:"hooks"`
}

type keptCapability struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Hook      api.Hook `json:"hook,omitzero"`
	Intercept bool     `json:"intercept,omitzero"`
}

// maxKept bounds how many apps are kept: the one that registered first, of those
// that are not connected, gives way.
const maxKept = 4096

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
		k.kept.put(was.Manifest.ID, tokenDigest(was.Token), was.Order)
		k.order = max(k.order, was.Order)
	}
	return nil
}

func (r *kept) put(id string, digest tokenDigest, order uint64) {
	r.drop(id)
	r.apps[digest] = id
	r.tokens[id] = keptToken{digest, order}
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
	c.Dropped = append(c.Dropped, keptKey(a.id()))
	return done
}

// keep writes down what a ready app has, so that it can go on with it. Where that
// fails the app works as ever, and has to register anew.
func (k *Kernel) keep(a *app) {
	defer k.kept.writing.lock(a.id(), "")()
	k.mu.Lock()
	if !a.ready || k.apps[a.id()] != a {
		k.mu.Unlock()
		return
	}
	change := &store.Change{Drains: true}
	if _, known := k.kept.tokens[a.id()]; !known && len(k.kept.tokens) >= maxKept {
		gone := k.leastKept()
		if gone == "" {
			k.mu.Unlock()
			return
		}
		k.kept.drop(gone)
		change.Dropped = []string{keptKey(gone)}
	}
	digest := tokenDigest(sha256.Sum256([]byte(a.token)))
	k.kept.put(a.id(), digest, a.order)
	now := keptApp{Token: digest[:], UID: a.uid, PID: a.pid, Order: a.order, Manifest: a.manifest, Hooks: maps.Clone(a.hooks)}
	for _, cp := range a.capabilities {
		now.Capabilities = append(now.Capabilities, keptCapability{cp.id, cp.kind, cp.name, cp.hook, cp.intercept})
	}
	k.mu.Unlock()
	value, err := json.Marshal(now)
	if err == nil {
		change.Meta = []store.Meta{{Key: keptKey(a.id()), Value: value}}
		_, err = k.store.Commit(change)
	}
	if err != nil {
		k.log.Warn("cannot keep what an app has: it has to register after a restart", zap.String("app", a.id()), zap.Error(err))
	}
}

// leastKept returns the app that registered first of those that are not
// connected, or "". It is called with the registry lock.
func (k *Kernel) leastKept() (least string) {
	first := uint64(math.MaxUint64)
	for id, t := range k.kept.tokens {
		if k.apps[id] == nil && t.order < first {
			least, first = id, t.order
		}
	}
	return least
}

// resume makes the connection that of the app whose token a request on it shows,
// with what the app had when its last connection ended. Only the process that
// registered can go on: another one that has the token has to register.
func (c *Client) resume(token string) error {
	k := c.kernel
	unregistered := api.Errorf(api.AppNotRegistered, "call app.register first")
	digest := tokenDigest(sha256.Sum256([]byte(token)))
	k.mu.RLock()
	id, known := k.kept.apps[digest]
	k.mu.RUnlock()
	if !known {
		return unregistered
	}
	value, err := k.store.Meta(k.closing, keptKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return unregistered
	}
	var was keptApp
	if err == nil {
		err = json.Unmarshal(value, &was)
	}
	if err != nil {
		k.log.Error("cannot read what is kept of an app", zap.String("app", id), zap.Error(err))
		return unregistered
	}
	uid, _, pid := c.peer.Credentials()
	if !bytes.Equal(was.Token, digest[:]) || was.UID != uid || was.PID != pid {
		return unregistered
	}
	a := c.newApp(was.Manifest, token)
	a.order, a.resumed = was.Order, true
	if err := c.enter(a, token, &store.Change{Records: []*audit.Record{k.lifecycle(a, "resumed", nil)}, Drains: true}); err != nil {
		return err
	}
	k.mu.Lock()
	if k.apps[id] == a {
		for _, kc := range was.Capabilities {
			cp := &capability{id: kc.ID, kind: kc.Kind, name: kc.Name, hook: kc.Hook, intercept: kc.Intercept}
			// What another app took meanwhile is that app's.
			if k.ownerOf(cp) == nil || k.ownerOf(cp) == a {
				k.grant(a, cp)
			}
		}
		for hook, name := range was.Hooks {
			k.listen(a, hook, name)
		}
		a.ready = true
	}
	k.mu.Unlock()
	k.outbox.resume(k.queuesOf(a))
	k.log.Info("app resumed", zap.String("app", id), zap.Int32("pid", pid))
	return nil
}
