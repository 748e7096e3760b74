// Package taskservice answers the calls about tasks: one call from its caller to the
// commit.
//
// A call is admitted by its caller's role, which is the connection's and never an
// argument's: that of an app, of a grant's token, or of a person. It is decided by
// internal/task under the task's lock, committed with its records, and takes effect
// when that is durable.
//
// The caller's duty: one [Session] for each connection, one request of it admitted by
// [Session.Admit] before each call, and [Tasks.Close] before the store closes.
package taskservice

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
	"go.uber.org/zap"
)

// Actor is somebody that the configuration lets work on tasks.
type Actor struct {
	Name   string
	Role   task.Role
	App    string
	Tenant string
	// MaxClassification is the highest level that the actor may work with.
	MaxClassification string
	UID               *int
	Exe               string
}

// is reports whether an actor, nil for none, has a role in a tenant.
func (a *Actor) is(role task.Role, tenant string) bool {
	return a != nil && a.Role == role && a.Tenant == tenant
}

// Config is the part of a configuration for tasks. It does not change.
type Config struct {
	Actors []Actor
	Rules  task.Rules
	// ApproveWithin is for how long an approval of an effect waits and counts, and
	// PermitWithin one of a tool call.
	ApproveWithin, PermitWithin time.Duration
	// MaxAsked is how many tool calls of a task may wait for a person.
	MaxAsked int
	// Tenants are those that tasks can be of.
	Tenants []string
	// Levels rank the names of classifications, lowest first.
	Levels []string
	// Seal, if set, makes what records keep of texts themselves: of all, or with SealHeld of those
	// that wait for a person. If it fails, nothing is done.
	Seal     func(text string) (string, error)
	SealHeld bool
}

// Question is a question to the policy about a task.
type Question struct {
	task.Question
	Tenant, Classification string
	Labels                 []string
	Phase                  task.Phase
	Tool                   *taskapi.ToolCall
	// Research is set if the tool is to be used for an attempt that only reads.
	Research bool
}

// Search finds records.
type Search interface {
	Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Runner runs commands. Its methods do not wait for the runs that they start.
type Runner interface {
	// Attached reports whether there is a process to run commands in.
	Attached() bool
	// Start begins a run that is on record as started.
	Start(RunOrder)
	// Lives reports whether a process of a run may still be there.
	Lives(RunOrder) bool
	// Kill ends a run's processes, if there is a process to run commands in.
	Kill(RunOrder)
}

// RunOrder is an order to a runner.
type RunOrder struct {
	TaskID, EffectID string
	Run              int
	Workspace        string
	Action           task.Action
	Bound            task.Bound
	Compensation     bool
	StartedAt        time.Time
	// KillAsked is set once a person wants the run ended.
	KillAsked bool
	// Begun names the process that was let begin the command.
	Begun string
}

// Options are the dependencies of the tasks.
type Options struct {
	Store *store.Store
	// Commit makes a change durable. Its error is the answer to the caller.
	Commit func(*store.Change) (store.Receipt, error)
	// Keys makes the digests that stand in records for texts. Its error is the answer to the
	// caller.
	Keys audit.Keys
	// Ask asks the policy in force, nil if there are the built-in rules alone. If there is no
	// answer, it denies.
	Ask func(context.Context, Question) task.Answer
	// Raise returns the level that texts come to, at least the one that is given.
	Raise  func(level string, texts ...string) string
	Search Search
	// Note remembers, with the change, that a connection's process is an actor's, so that neither
	// it nor what it starts operates the daemon, and names it. Written is set if that is on disk
	// already. Boot names the system's boot, in which no two processes have the same name.
	Note func(actor string, p api.Peer, c *store.Change) (process string, written bool, err error)
	Boot string
	// Program returns the program of a process, and its digest as records have it: "" if it cannot
	// be read.
	Program func(p api.Peer) (path, digest string)
	// Approvals returns who decides under the configuration in force.
	Approvals func() *approval.Decider
	// Paused reports whether a person has paused an app or an agent, and says so in words.
	// Deciding keeps pauses from beginning until the function that it returns is called.
	Paused   func(app, agent string) (reason string, paused bool)
	Deciding func() (done func())
	// Revoking waits for decisions in progress, and keeps others from beginning until the function
	// that it returns is called.
	Revoking func() (done func())
	// Revoked is called when a grant was revoked, before that is answered.
	Revoked func()
	Runner  Runner
	// Agent returns the tenant of an agent that speaks by grants, and an error where it is
	// none.
	Agent func(id string) (tenant string, err error)
	// Private are the daemon's own folders, of which no file is read for a caller.
	Private []string
	Config  Config
	Now     func() time.Time
	NewID   func() string
	Log     *zap.Logger
}

// Tasks are all tasks. They are safe for concurrent use.
type Tasks struct {
	rows   taskstore.Tasks
	o      Options
	config atomic.Pointer[Config]
	// matrix is [Matrix], read at each call.
	matrix map[string]task.Roles
	locks  keylock.Locks
	// deps is held while dependencies change, so that no two changes make a circle. Locks are
	// taken in one order: that of a request's key, of a grant, of an origin, of dependencies, of a
	// permission, of a task, of pauses ([Tasks.deciding]).
	deps sync.Mutex
	// cache holds tasks as they are stored. One is read and replaced under its lock.
	cache *lru.Cache[string, *task.Task]
	// grants holds grants as they are stored. One is read and forgotten under its lock.
	grants *lru.Cache[string, *task.Grant]
	uses   uses
	// leases are those that were renewed in memory.
	leases leases
	// moved tells who waits that a task has changed.
	moved   watchers
	counts  counts
	closing context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// cached is how many tasks are kept in memory, and how many grants.
const cached = 512

// maxUses is of how many grants the last use is kept in memory.
const maxUses = 4096

// New takes up what the store holds. Attempts that run have their whole lease anew.
func New(ctx context.Context, o Options) (*Tasks, error) {
	if o.Ask == nil {
		o.Ask = func(_ context.Context, q Question) task.Answer { return BuiltIn(&q) }
	}
	t := &Tasks{o: o, rows: taskstore.In(o.Store), matrix: Matrix(), leases: leases{until: make(map[string]time.Time)}, moved: watchers{set: make(map[string]map[chan struct{}]struct{})}}
	t.config.Store(&o.Config)
	var err error
	if t.cache, err = lru.New[string, *task.Task](cached); err != nil {
		return nil, err
	}
	if t.grants, err = lru.New[string, *task.Grant](cached); err != nil {
		return nil, err
	}
	if t.uses, err = lru.New[string, *atomic.Int64](maxUses); err != nil {
		return nil, err
	}
	if t.counts.open, err = t.rows.Open(ctx); err != nil {
		return nil, err
	}
	ids, err := t.rows.Running(ctx)
	if err != nil {
		return nil, err
	}
	now := o.Now()
	for _, id := range ids {
		t.leases.renew(id, now.Add(o.Config.Rules.Lease))
	}
	t.closing, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.running.Go(t.sweep)
	return t, nil
}

// Configure puts another configuration in force.
func (t *Tasks) Configure(c Config) { t.config.Store(&c) }

// Stop says that the daemon is ending: nobody waits for a person any longer.
func (t *Tasks) Stop() { t.stop() }

// Close ends what goes on by itself.
func (t *Tasks) Close() {
	t.stop()
	t.running.Wait()
}

// actor returns a configured actor by its name.
func (c *Config) actor(name string) *Actor {
	for i := range c.Actors {
		if c.Actors[i].Name == name {
			return &c.Actors[i]
		}
	}
	return nil
}

// actorOf returns the actor that an app is.
func (c *Config) actorOf(app string) *Actor {
	for i := range c.Actors {
		if app != "" && c.Actors[i].App == app {
			return &c.Actors[i]
		}
	}
	return nil
}

func (c *Config) level(name string) int {
	for i, l := range c.Levels {
		if l == name {
			return i
		}
	}
	return 0
}

// counts are how many tasks of each tenant are open.
type counts struct {
	mu   sync.Mutex
	open map[string]int
}

// maxOpen is how many tasks of a tenant may be open.
const maxOpen = 100_000

func (c *counts) add(tenant string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[tenant] += n
}

func (c *counts) full(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[tenant] >= maxOpen
}

// leases are until when the leases of running attempts were renewed, by task.
type leases struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (l *leases) of(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until[id]
}

// renew is called with the task's lock, so that an earlier decision does not set a lease back.
func (l *leases) renew(id string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[id] = until
}

func (l *leases) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, id)
}

// over returns the tasks whose lease has ended.
func (l *leases) over(now time.Time) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, until := range l.until {
		if !now.Before(until) {
			ids = append(ids, id)
		}
	}
	return ids
}

// watchers are those who wait for a task to change.
type watchers struct {
	mu  sync.Mutex
	set map[string]map[chan struct{}]struct{}
}

// watch returns a channel that is closed when the task changes.
func (w *watchers) watch(id string) (moved <-chan struct{}, leave func()) {
	c := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set[id] == nil {
		w.set[id] = make(map[chan struct{}]struct{})
	}
	w.set[id][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.set[id], c); len(w.set[id]) == 0 {
			delete(w.set, id)
		}
	}
}

func (w *watchers) tell(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.set[id] {
		close(c)
	}
	delete(w.set, id)
}

// load returns a task. Its lock is held.
func (t *Tasks) loadLocked(ctx context.Context, id string) (*task.Task, error) {
	if found, ok := t.cache.Get(id); ok {
		return found, nil
	}
	stored, err := t.rows.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	found, err := decodeTask(id, &stored)
	if err == nil {
		t.cache.Add(id, found)
	}
	return found, err
}

func notFound(id string) error { return api.Errorf(api.NotFound, "there is no task %s", id) }

// world is the present state outside a task.
func (t *Tasks) world(ctx context.Context, c *Config, at *task.Task) (*task.World, error) {
	w := &task.World{
		Rules: c.Rules, NewID: func(prefix string) string { return prefix + t.o.NewID() }, Level: c.level,
		Known:  func(name string) (task.Role, string, bool) { return c.known(name, at) },
		Runner: t.o.Runner != nil && t.o.Runner.Attached(),
	}
	if at == nil {
		return w, nil
	}
	w.Lease = t.leases.of(at.ID)
	if len(at.DependsOn) > 0 {
		var err error
		if w.Open, err = t.rows.OpenDependencies(ctx, at.ID); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// known is an actor as a task's decisions know it: one of another tenant is none.
func (c *Config) known(name string, at *task.Task) (task.Role, string, bool) {
	a := c.actor(name)
	if a == nil || at != nil && a.Tenant != at.Tenant {
		return "", "", false
	}
	return a.Role, a.MaxClassification, true
}

// sweepEvery is how often what time ends is looked for.
const sweepEvery = time.Second

// sweep ends leases, and external effects of which nobody said how they went.
func (t *Tasks) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-t.closing.Done():
			return
		case <-ticker.C:
		}
		for _, id := range t.leases.over(t.o.Now()) {
			t.endLease(id)
		}
		if n%30 == 0 {
			t.endExternal()
		}
	}
}

func (t *Tasks) endLease(id string) {
	_, _, err := t.act(t.closing, id, daemonActor(), func(at *task.Task) (task.Command, error) {
		a := at.Running()
		if a == nil {
			t.leases.end(id)
			return nil, nil
		}
		return task.EndLease{AttemptID: a.ID}, nil
	}, nil)
	if err != nil {
		t.o.Log.Error("cannot end the lease of a task's attempt", zap.String("task", id), zap.Error(err))
	}
}

// externalWithin is for how long it is waited for word of an external effect.
const externalWithin = 10 * time.Minute

func (t *Tasks) endExternal() {
	ids, err := t.rows.Busy(t.closing)
	if err != nil {
		return
	}
	for _, id := range ids {
		_, _, err := t.act(t.closing, id, daemonActor(), func(at *task.Task) (task.Command, error) {
			for i := range at.Effects {
				e := &at.Effects[i]
				for j := range e.Runs {
					r := &e.Runs[j]
					if e.EffectType == task.TypeExternal && !r.Compensation && r.State == task.EffectStarted && t.o.Now().Sub(r.StartedAt) >= externalWithin {
						return task.FinishRun{EffectID: e.ID, Run: r.Number, State: task.EffectUncertain, Evidence: "nobody said how it went within 10 minutes"}, nil
					}
				}
			}
			return nil, nil
		}, nil)
		if err != nil {
			t.o.Log.Error("cannot record that an effect's outcome is not known", zap.String("task", id), zap.Error(err))
		}
	}
}

func daemonActor() *task.Actor { return &task.Actor{Name: "ocipd", Role: task.Daemon} }
