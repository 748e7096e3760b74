// Package registry knows the apps: which are connected, the token and process of each registration,
// its grants (channels, tools, gateway methods), its hooks, and the events that wait for its
// answer. It records when apps connect and disconnect, resumes a registration on another
// connection, and watches heartbeats.
//
// The registry decides nothing about messages. Code that does asks it for the app of a connection,
// the owner of a channel or the listeners of a hook, and has it tell an app something.
package registry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Config is the registry's part of the configuration, checked and typed.
type Config struct {
	// HookWait is the wait for a plain interceptor, HookAnswer the wait for one that must answer.
	// HookApps overrides both for single apps.
	HookWait, HookAnswer time.Duration
	HookApps             map[string]HookTimes

	// UnhealthyAfter is how long an app may be silent.
	UnhealthyAfter time.Duration
	// DrainTimeout bounds a graceful end if the app sets no limit.
	DrainTimeout time.Duration
	// AppsMayOperate admits apps' processes to the operator socket.
	AppsMayOperate bool
}

// HookTimes are one app's own limits; zero is the general one. Required makes the app an
// interceptor that messages wait for even while it is away: without it, no message is sent.
type HookTimes struct {
	Wait, Answer time.Duration
	Required     bool
}

// Terms are the configuration of the registry. They never change: the kernel replaces them as one,
// with the rest of its ruleset.
type Terms struct {
	Config
	Directory *directory.Directory
	// Agents and Grants are the directory's configuration.
	Agents []directory.Agent
	Grants map[string]directory.Grant
	// Generation counts the terms, from 1. It is set before they are in force.
	Generation uint64
}

// Outbox brings durable messages to the apps they are for.
type Outbox interface {
	// Resume sends waiting messages to an app, ResumeChannel those of a channel.
	Resume(*App)
	ResumeChannel(channel string)
	// Leave removes the lanes to an app that is gone.
	Leave(*App)
	// Acknowledge records a receipt.
	Acknowledge(*App, *Delivery, Receipt) error
}

// Options holds the dependencies of a registry.
type Options struct {
	Store    *store.Store
	Settings Settings
	Outbox   Outbox
	// Terms returns the terms in force.
	Terms func() *Terms
	// Listened, if set, is called when an app has begun to listen to tool calls, before the app is
	// answered. The registry is locked.
	Listened func()
	// Paused returns the scope of a pause that stops messages between two agents or through a
	// channel, or "". If it is nil, nothing is paused.
	Paused func(channel string, agents ...string) string
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	Now    func() time.Time
	NewID  func() string
	// Boot names the system's boot. Runs reports whether a process that an [api.Peer] named still
	// runs; if Runs is nil, all do.
	Boot string
	Runs func(process string) bool
	// Signs reports whether people sign what they decide.
	Signs   func() bool
	Metrics *metrics.Set
	Log     *zap.Logger
}

// Registry has the connected apps, records what they do, and tells them things. Its methods are safe
// for concurrent use.
type Registry struct {
	table
	// Processes are those of registered apps.
	Processes Processes

	store    *store.Store
	settings Settings
	outbox   Outbox
	terms    func() *Terms
	paused   func(channel string, agents ...string) string
	commit   func(*store.Change) (store.Receipt, error)
	now      func() time.Time
	newID    func() string
	metrics  *metrics.Set
	log      *zap.Logger
	// closing ends when the daemon does.
	closing context.Context
}

// table is the table of the connected apps: who has which id, channel and capability, and who
// listens to which hook.
type table struct {
	// mu guards the connected apps and their grants. It is held for look-ups and changes in memory,
	// never over the disk or an app.
	mu       sync.RWMutex
	clients  map[*Client]struct{}
	apps     map[string]*App
	channels map[string]*App
	// listeners are the apps that listen to a hook, in registration order. A list is
	// replaced, never changed.
	listeners map[api.Hook][]*App
	listened  func()
	order     uint64
	saved     saved
}

// New makes a registry and loads the apps from the store. The context ends when the daemon does.
func New(closing context.Context, o Options) (*Registry, error) {
	r := &Registry{
		store: o.Store, settings: o.Settings, outbox: o.Outbox, terms: o.Terms, paused: o.Paused, commit: o.Commit,
		now: o.Now, newID: o.NewID, metrics: o.Metrics, log: o.Log, closing: closing,
		table: table{
			clients: make(map[*Client]struct{}), apps: make(map[string]*App), channels: make(map[string]*App), listeners: make(map[api.Hook][]*App), listened: o.Listened,
		},
	}
	if err := r.loadSaved(closing); err != nil {
		return nil, err
	}
	if err := r.Processes.load(closing, &o); err != nil {
		return nil, err
	}
	return r, nil
}

// Probe takes the registry's lock for writing, so that it hangs if a reader never releases it.
func (r *table) Probe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = len(r.apps)
}

// Connected returns the app of an id, nil if it is not connected.
func (r *table) Connected(id string) *App {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.apps[id]
}

// Receiver returns the app of an id if it may be sent messages: it is ready and may run.
func (r *table) Receiver(t *Terms, id string) *App {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return receivingLocked(t, r.apps[id])
}

// ChannelReceiver returns the owner of a channel if it may be sent messages.
func (r *table) ChannelReceiver(t *Terms, channel string) *App {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return receivingLocked(t, r.channelOwnerLocked(t, channel))
}

func receivingLocked(t *Terms, a *App) *App {
	if a == nil || !a.ready || !a.bindingOK(t) {
		return nil
	}
	return a
}

// Status lists the apps that are connected, by id.
func (r *table) Status() []api.AppStatus {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var list []api.AppStatus
	for _, a := range r.apps {
		list = append(list, a.statusLocked())
	}
	slices.SortFunc(list, func(x, y api.AppStatus) int { return cmp.Compare(x.ID, y.ID) })
	return list
}

// drain records the end of something, or a condition of it. Such records are written even while the
// disk is nearly full.
func (r *Registry) drain(records ...*audit.Record) error {
	_, err := r.commit(&store.Change{Records: records, Drains: true})
	return err
}

// RecordRefusal records that an app tried something that it may not do, and returns its error. A
// merely malformed request is no attempt and gets no record.
func (r *Registry) RecordRefusal(a *App, event string, refusal error, details map[string]any) error {
	return r.RecordRefusalOf(a.ID(), event, refusal, details)
}

// RecordRefusalOf is RecordRefusal for a process that speaks under an app's id without being
// connected as that app.
func (r *Registry) RecordRefusalOf(app, event string, refusal error, details map[string]any) error {
	if api.AsError(refusal).Code != api.Forbidden {
		return refusal
	}
	_, err := r.commit(&store.Change{Records: []*audit.Record{{
		ID: r.newID(), ActionType: audit.ActionSecurity, Event: event, AppID: app,
		PolicyResult: string(ocip.Deny), PolicyReason: reasonOf(refusal), Details: details,
	}}})
	if err != nil {
		return err
	}
	return refusal
}

// put sends an event immediately. Nobody learns whether it arrives.
func put(line api.Line, e gate.Event, fate gate.Fate) {
	if line.Put(e, fate) {
		line.Flush()
	}
}

// may is the fate of somebody's text that an app is shown.
type may func() bool

// Stays reports whether the app may still be shown the text (gate.Fate).
func (f may) Stays() bool { return f() }

// runs reports whether no pause stops a message between two agents or through a channel.
func runs(r *Registry, about *api.HookContext, from string) bool {
	return r.paused == nil || r.paused(about.ChannelID, about.AgentID, from) == ""
}

// Lines returns the lines of all connections.
func Lines(r *Registry) (lines []api.Line) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for c := range r.clients {
		lines = append(lines, c.link)
	}
	return lines
}
