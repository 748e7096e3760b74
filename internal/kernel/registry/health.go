package registry

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"go.uber.org/zap"
)

// CheckHealth runs when an app may have been silent for too long, and schedules its next run.
func (r *Registry) CheckHealth(a *App) {
	silent, patience := r.now().Sub(time.Unix(0, a.lastSeen.Load())), r.terms().UnhealthyAfter
	next := patience - silent
	if next <= 0 {
		if a.unhealthy.CompareAndSwap(false, true) {
			r.becameUnhealthy(a, silent)
		}
		next = patience
	}
	r.mu.Lock()
	if r.apps[a.ID()] == a && a.silence != nil {
		a.silence.Reset(next)
	}
	r.mu.Unlock()
}

func (r *Registry) becameUnhealthy(a *App, silent time.Duration) {
	r.log.Warn("app is silent", zap.String("app", a.ID()), zap.Duration("for", silent))
	if r.drain(r.lifecycle(a, "unhealthy", map[string]any{"silentMs": silent.Milliseconds()})) == nil {
		r.announce(a, api.AppUnhealthy, nil)
	}
}

// seen notes a sign of life.
func (r *Registry) seen(a *App) {
	a.lastSeen.Store(r.now().UnixNano())
	if a.unhealthy.Load() && a.unhealthy.CompareAndSwap(true, false) && r.drain(r.lifecycle(a, "healthy", nil)) == nil {
		r.announce(a, api.AppHealthy, nil)
	}
}

// announceEnd records that an app is gone, and tells the others.
func (r *Registry) announceEnd(a *App, event string) {
	r.log.Info("app "+event, zap.String("app", a.ID()))
	if r.drain(r.lifecycle(a, event, nil)) == nil {
		r.announce(a, "app:"+event, a)
	}
}

// announce tells the apps that share a tenant with an app about a change of it, except one of them.
func (r *Registry) announce(about *App, event string, but *App) {
	t := r.terms()
	payload, theirs := appEvent(about, r.now()), t.tenantsOf(about.ID())
	r.mu.RLock()
	apps := slices.Collect(maps.Values(r.apps))
	r.mu.RUnlock()
	for _, a := range apps {
		if a != but && (a == about || theirs.share(t.tenantsOf(a.ID()))) {
			put(a.link, gate.Notice(event, payload), nil)
		}
	}
}

// appEvent returns the payload of events about an app's life.
func appEvent(a *App, now time.Time) []byte {
	payload, err := json.Marshal(struct {
		AppID      string `json:"appId"`
		LastSeenAt int64  `json:"lastSeenAt"`
		Timestamp  int64  `json:"timestamp"`
	}{a.ID(), time.Unix(0, a.lastSeen.Load()).UnixMilli(), now.UnixMilli()})
	if err != nil {
		return []byte("{}")
	}
	return payload
}
