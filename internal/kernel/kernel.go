// Package kernel carries one call from its caller to its effect: apps and what
// they may do, hooks, sessions, who talks to whom, the way of a message, and
// its delivery.
//
// The kernel knows no sockets. It is given a store, a policy, a clock and a
// source of ids, and is handed connections as [api.Link]s. Its one rule is the
// house's: a message is decided by internal/ocip, the decision is committed to
// internal/store, and only the commit's own callback lets anything out.
package kernel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Config is the kernel's part of the configuration, checked and typed.
type Config struct {
	// Directory is who is who.
	Directory directory.Config

	// HookWait is how long a plain interceptor is waited for, HookAnswer how
	// long one that must answer. HookApps overrides both for single apps.
	HookWait, HookAnswer time.Duration
	HookApps             map[string]HookTimes

	// UnhealthyAfter is how long an app may be silent.
	UnhealthyAfter time.Duration
	// ActiveWindow is how recently an active session was used.
	ActiveWindow time.Duration
	// DrainTimeout bounds a graceful end where the app sets no limit.
	DrainTimeout time.Duration

	DefaultLevel  ocip.Level
	DefaultType   ocip.ExchangeType
	MaxRounds     int
	ExpiresAfter  time.Duration
	MaxAnnotation int
	Disclosure    ocip.Disclosure
	// Rules are what messages' texts and causal lines are judged by, and
	// ChainWindow for how long an agent acts on what it heard.
	Rules       *ocip.Rules
	ChainWindow time.Duration
	// MaxHeld is how many messages of one agent may wait for a person, HoldFor
	// for how long, and Approvers how many people must approve one where the
	// policy does not say.
	MaxHeld, Approvers int
	HoldFor            time.Duration
	// AppsMayOperate admits apps' processes to the operator socket.
	AppsMayOperate bool
	// Unannotated is how a known agent's text without an annotation is taken: bind
	// has its answer go by that agent's rules, human takes it as a person's, and
	// refuse does not take it.
	Unannotated string
	// KeepHeld keeps the texts of held messages when they are decided.
	KeepHeld bool
}

// Agent is a local agent, as the directory has it.
type Agent = directory.Agent

// HookTimes are one app's own limits; zero is the general one. Required makes
// the app an interceptor that messages wait for even while it is away: without
// it, nothing goes out.
type HookTimes struct {
	Wait, Answer time.Duration
	Required     bool
}

// Settings is the part of the configuration that apps may see.
type Settings interface {
	// Get returns the value at a path, nil where there is none. The view is asked
	// for after the configuration that it is a view of.
	Get(view func() View, path string) (any, error)
	// Watch delivers changes below any of the paths, all where there are
	// none, until the context ends. The view is asked for anew at each change.
	Watch(ctx context.Context, view func() View, paths []string) (<-chan []api.ConfigChange, error)
}

// View says what an app may see: its own section and those of its channels.
type View struct {
	App      string
	Channels []string
}

// Search finds records.
type Search interface {
	// Query returns up to limit records before a number, newest first, and
	// where to go on, zero where nothing more can match. Zero for before is the
	// end of the log.
	Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Options is what a kernel is given from outside.
type Options struct {
	// Terms are those of the start, see [Kernel.Prepare].
	Terms    Terms
	Store    *store.Store
	Settings Settings
	// Search answers operators' questions about the store's records.
	Search Search
	// Notify, where set, is told what waits for a person.
	Notify approval.Notifier
	// Digest makes the keyed digest that stands for a text in records, with the
	// key of a tenant. Where it fails, nothing is released.
	Digest func(tenant, text string) (string, error)
	Now    func() time.Time
	// NewID makes ids that sort by time, so that tables keyed by them grow at
	// one end.
	NewID func() string
	// Boot names the system's boot, and Runs reports whether a process of it that an
	// [api.Peer] named still runs; where Runs is nil, all do.
	Boot string
	Runs func(process string) bool
	// Metrics, where set, counts what the kernel does.
	Metrics *metrics.Set
	Log     *zap.Logger
}

// Kernel is the running kernel. Its methods are safe for concurrent use.
type Kernel struct {
	store    *store.Store
	settings Settings
	search   Search
	notify   approval.Notifier
	digest   func(tenant, text string) (string, error)
	now      func() time.Time
	newID    func() string
	metrics  *metrics.Set
	log      *zap.Logger

	// inForce is what calls that begin now are decided by.
	inForce atomic.Pointer[ruleset]

	exchanges *exchanges
	chains    *chains
	debts     debts
	budgets   *budgets
	origins   origins
	seen      seen
	speakers  speakers
	requests  *approval.Requests
	sessions  *sessions
	outbox    *outbox
	events    *events
	tally     tally
	// logHead is what was last said of the audit log, for the next message.
	logHead atomic.Pointer[logHead]

	// mu guards the registry: who is connected, with what. It is held for
	// look-ups and changes in memory, never for the disk or an app.
	mu       sync.RWMutex
	apps     map[string]*app
	channels map[string]*app
	// processes are those that have registered as an app.
	processes processes
	// hooks holds the apps that listen to a hook, in registration order.
	hooks map[api.Hook][]*app
	order uint64
	kept  kept
	// pauses are what a person has stopped.
	pauses pauses

	// swept is how far the sweep of exchanges has come. It is the sweep's alone.
	swept store.ExchangeKey

	closing context.Context
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

// New makes a kernel over an open store and takes up what the store holds.
func New(ctx context.Context, o Options) (*Kernel, error) {
	k := &Kernel{
		store: o.Store, settings: o.Settings, search: o.Search, notify: o.Notify,
		digest: o.Digest, now: o.Now, newID: o.NewID, metrics: o.Metrics, log: o.Log,
		apps: make(map[string]*app), channels: make(map[string]*app), hooks: make(map[api.Hook][]*app),
	}
	k.closing, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	first, err := k.newRuleset(&o.Terms)
	if err != nil {
		return nil, err
	}
	first.generation = 1
	k.inForce.Store(first)
	if k.exchanges, err = newExchanges(o.Store); err != nil {
		return nil, err
	}
	k.chains, k.debts, k.origins, k.seen = newChains(o.Store), newDebts(o.Store), newOrigins(o.Store), newSeen(o.Store)
	k.speakers = newSpeakers(o.Store)
	if k.budgets, err = newBudgets(o.Store); err != nil {
		return nil, err
	}
	if err := k.newRequests(ctx); err != nil {
		return nil, err
	}
	if k.sessions, err = newSessions(o.Store); err != nil {
		return nil, err
	}
	if err := k.loadKept(ctx); err != nil {
		return nil, err
	}
	if err := k.pauses.load(ctx, o.Store); err != nil {
		return nil, err
	}
	if err := k.processes.load(ctx, &o); err != nil {
		return nil, err
	}
	k.events = newEvents(o.Now)
	k.outbox = newOutbox(k)
	k.tasks.Go(k.sweep)
	return k, nil
}

// Stop says that the daemon is ending: connections that end from now on are no
// loss of an app. It comes before the connections are closed.
func (k *Kernel) Stop() { k.stop() }

// Close waits for the kernel's own tasks. Connections must be closed before;
// the store stays open.
func (k *Kernel) Close() {
	k.stop()
	k.tasks.Wait()
}

// record commits records that come with no other change.
func (k *Kernel) record(r ...*audit.Record) (store.Receipt, error) {
	return k.commit(&store.Change{Records: r})
}

// drain is record for what ends something, or is needed for it: it is written
// also while the disk is nearly full.
func (k *Kernel) drain(r ...*audit.Record) (store.Receipt, error) {
	return k.commit(&store.Change{Records: r, Drains: true})
}

// commit makes a change durable, and turns a failure into what its caller is
// told: nothing was done, since it could not be recorded.
func (k *Kernel) commit(c *store.Change) (store.Receipt, error) {
	receipt, err := k.store.Commit(c)
	if err == nil {
		return receipt, nil
	}
	if !errors.Is(err, store.ErrLow) && !errors.Is(err, store.ErrQuota) {
		// That the disk is nearly full, or an app has too much waiting, is not logged for
		// each message.
		k.log.Error("cannot record a decision: nothing was released", zap.Error(err))
	}
	return store.Receipt{}, NotRecorded("cannot record the decision, so nothing was done", err)
}

// NotRecorded is what a caller is told for whom something was not done because it
// could not be recorded.
func NotRecorded(message string, cause error) *api.Error {
	var lost *store.LostError
	code, verdict := api.InternalError, ocip.AuditWriteFailed
	switch {
	case errors.Is(cause, store.ErrQuota):
		// Nothing is wrong with the log: it is the app that has to wait.
		message, code, verdict = "nothing was done: "+cause.Error(), api.Forbidden, ocip.BudgetExceeded
	case errors.Is(cause, store.ErrFull), errors.Is(cause, syscall.ENOSPC):
		message += ": the disk is full"
	case errors.Is(cause, store.ErrLow), errors.Is(cause, store.ErrMirrorLost):
		message += ": " + cause.Error()
	case errors.As(cause, &lost):
		message += ": " + lost.Error() + "; nothing more is let through until the daemon is restarted"
	case errors.Is(cause, store.ErrLatched):
		message += ": the audit store failed and is closed until the daemon is restarted"
	case errors.Is(cause, store.ErrClosed):
		message += ": the daemon is stopping"
	}
	return &api.Error{Code: code, Message: message, Details: map[string]any{"ocip": map[string]any{"code": verdict, "reason": message}}}
}

// entered remembers what a durable change holds.
func (k *Kernel) entered(c *store.Change) {
	k.exchanges.entered(c)
	k.chains.entered(c)
	k.seen.entered(c)
}

// tell sends an event at once that nobody is told the fate of.
func tell(link api.Link, event string, payload []byte) {
	if link.Send(event, payload, nil) {
		link.Flush()
	}
}

// listeners returns the apps that listen to a hook, in registration order.
func (k *Kernel) listeners(hook api.Hook) []*app {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Clone(k.hooks[hook])
}
