package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
)

// App is one registered app. It lives as long as its connection. The registry's lock guards its
// fields that are not atomic.
type App struct {
	manifest *api.Manifest
	peer     api.Peer
	link     api.Link
	// digest is the digest of the token that the app's requests must show.
	digest tokenDigest
	order  uint64
	uid    uint32
	pid    int32
	// skeleton is the visual form of its id.
	skeleton string

	ready   bool
	leaving bool
	// resumedFrom is the registration that the app has resumed by its token, nil if it registered.
	// It may still register.
	resumedFrom  *savedApp
	capabilities map[string]*capability
	// events are the events that it was sent, including on an earlier connection if it has shown
	// that connection's token. An app with merely the same id has none of them.
	events *events
	// hooks holds the subscriptions: by canonical name, the names the app used.
	hooks  map[api.Hook]hookNames
	status jsontext.Value

	// lastSeen is in Unix nanoseconds.
	lastSeen  atomic.Int64
	unhealthy atomic.Bool
	// byProcess is set while the connection has shown no token, and belongs to the app because the
	// process does.
	byProcess atomic.Bool
	binding   atomic.Pointer[binding]
	// silence fires when the app may have been silent for too long.
	silence *time.Timer
	gone    chan struct{}
}

// ID returns the app's id.
func (a *App) ID() string { return a.manifest.ID }

// Redeems reports whether the app redeems approved messages.
func (a *App) Redeems() bool { return a.manifest.Capabilities.Redeem }

// Acknowledges reports whether the app acknowledges its messages.
func (a *App) Acknowledges() bool { return a.manifest.Capabilities.Acknowledges }

// Line returns the line of the app's connection.
func (a *App) Line() api.Line { return a.link }

// owns reports whether a token is the app's.
func (a *App) owns(token string) bool {
	return token != "" && (sameDigest(digestOfToken(token), a.digest) || mutant.Off("token"))
}

// tokenDigest stands for a token, which the registry does not keep, not even in memory.
type tokenDigest [sha256.Size]byte

func digestOfToken(token string) tokenDigest { return sha256.Sum256([]byte(token)) }

// sameDigest reports whether two digests are of one token.
func sameDigest(x, y tokenDigest) bool { return subtle.ConstantTimeCompare(x[:], y[:]) == 1 }

func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

func (a *App) statusLocked() api.AppStatus {
	s := api.AppStatus{
		ID: a.ID(), Version: a.manifest.Version, Type: a.manifest.Type, Health: "healthy", Ready: a.ready, PID: a.pid, UID: a.uid,
		LastSeenAt: time.Unix(0, a.lastSeen.Load()).UTC(), Status: a.status,
	}
	if a.unhealthy.Load() {
		s.Health = "unhealthy"
	}
	for _, cp := range a.capabilities {
		s.Capabilities = append(s.Capabilities, cp.kind+":"+cp.name)
	}
	for _, names := range a.hooks {
		s.Hooks = append(s.Hooks, names...)
	}
	slices.Sort(s.Capabilities)
	slices.Sort(s.Hooks)
	return s
}

// Events at the beginning of an app's connection.
const (
	eventRegistered = "registered"
	eventResumed    = "resumed"
)

// lifecycle returns a record of an app's connection or disconnection.
func (r *Registry) lifecycle(a *App, event string, details map[string]any) *audit.Record {
	if details == nil {
		details = make(map[string]any)
	}
	details["version"], details["pid"], details["uid"] = a.manifest.Version, a.pid, a.uid
	if event == eventRegistered || event == eventResumed {
		if path, digest := Program(a.peer); path != "" {
			details["exe"] = path
			if digest != "" {
				details["program"] = digest
			}
		}
		if a.manifest.Model != "" {
			details["model"] = a.manifest.Model
		}
	}
	return &audit.Record{ID: r.newID(), ActionType: audit.ActionAppLifecycle, Event: event, AppID: a.ID(), Details: details}
}
