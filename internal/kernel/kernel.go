package kernel

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/grants"
	"github.com/openclawos/ocipd/internal/approval/pause"
	"github.com/openclawos/ocipd/internal/approval/releases"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/kernel/attachments"
	"github.com/openclawos/ocipd/internal/kernel/contacts"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/kernel/inbox"
	"github.com/openclawos/ocipd/internal/kernel/logquery"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/peercheck"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
)

// Config is the kernel's part of the configuration, checked and typed.
type Config struct {
	// Directory is the configuration of the directory.
	Directory directory.Config

	// Config is the registry's part.
	registry.Config

	// ActiveWindow is how recently an active session was used.
	ActiveWindow time.Duration

	DefaultLevel  ocip.Level
	DefaultType   ocip.ExchangeType
	MaxRounds     int
	ExpiresAfter  time.Duration
	MaxAnnotation int
	Disclosure    ocip.Disclosure
	// Rules are the rules for messages' texts and causal chains. ChainWindow is how long a received
	// message counts as the cause of an agent's acts.
	Rules       *ocip.Rules
	ChainWindow time.Duration
	// MaxHeld is how many messages of one agent may wait for a person, HoldFor for how long, and
	// Approvers how many people must approve one if the policy names no number.
	MaxHeld, Approvers int
	HoldFor            time.Duration
	// Unannotated says how a known agent's text without an annotation is treated: bind applies that
	// agent's rules to the answer, human treats it as a person's text, and refuse does not take it.
	Unannotated string
	// Clicks lets a person decide on a page without a signature, if decisions are not signed.
	Clicks bool
	// Judge is the operator's model, nil if none is asked.
	Judge *approval.Judge
	// KeepHeld keeps the texts of held messages after the decision.
	KeepHeld bool
}

// Agent is a local agent, as the directory has it.
type Agent = directory.Agent

// Options holds the dependencies of a kernel.
type Options struct {
	// Terms are the terms at the start, see [Kernel.Prepare].
	Terms    Terms
	Store    *store.Store
	Settings registry.Settings
	// Search finds the store's records.
	Search logquery.Search
	// Notify, if set, is told about requests that wait for a person.
	Notify approval.Notifier
	// Subject finds the subjects of approval requests that are not about messages.
	Subject func(*approval.Request) (approval.Subject, error)
	// Tasks, if set, returns the tenant of a task.
	Tasks TaskOf
	// Digest makes the keyed digest that stands for a text in records, with the key of a tenant. If
	// it fails, nothing is released.
	Digest func(tenant, text string) (string, error)
	// Keys is Digest for text that a function appends to a buffer.
	Keys gate.Keys
	Now  func() time.Time
	// NewID makes ids that sort by time, so that tables keyed by them grow at
	// one end.
	NewID func() string
	// Boot names the system's boot. Runs reports whether a process that an [api.Peer] named still
	// runs; if Runs is nil, all do.
	Boot string
	Runs func(process string) bool
	// Look describes a process by its name. If it is nil, no process is seen.
	Look func(process string) (peer.Seen, error)
	// Metrics, if set, counts the kernel's work.
	Metrics *metrics.Set
	Log     *zap.Logger
}

// base is the part that is the same under every configuration: the known state, and the means to
// record decisions and carry them out.
type base struct {
	store  *store.Store
	search logquery.Search
	digest func(tenant, text string) (string, error)
	keys   gate.Keys
	tasks  TaskOf
	// subjectOf finds the subjects of requests that are not the kernel's own.
	subjectOf func(*approval.Request) (approval.Subject, error)
	now       func() time.Time
	newID     func() string
	metrics   *metrics.Set
	log       *zap.Logger

	// inForce is the ruleset for calls that begin now.
	inForce atomic.Pointer[ruleset]
	// state is the state between any two ends.
	state    *exchangestate.State
	requests *approval.Requests
	releases *releases.Releases
	grants   *grants.Grants
	outbox   *outbox.Outbox
	// settled counts the exchanges that people have ended.
	settled atomic.Uint64
	// exchanges shows and ends exchanges.
	exchanges *exchanges.Exchanges
	contacts  *contacts.Contacts
	// logHead caches the log head that messages carry.
	logHead exchangestate.LogHead
	// apps are the connected apps.
	apps *registry.Registry
	// files weighs the attachments of messages.
	files *attachments.Looker
	// pauses are the pauses in force.
	pauses *pause.Pauses
	// hooks handles agents' acts besides sending and receiving.
	hooks *hooks.Hooks
}

// Kernel is the running kernel. Its methods are safe for concurrent use.
type Kernel struct {
	*base
	notify approval.Notifier

	// inboxes are for agents without an app, and asking are those agents' requests.
	inboxes *inbox.Inboxes
	asking  keylock.Locks

	// Hosts is the traffic with other hosts of the fleet.
	Hosts *Hosts

	// Processes are those of apps and of actors of tasks, which do not operate the daemon.
	Processes *registry.Processes

	// Sending pauses and resumes messages.
	Sending Sending

	// Exempt are the connections whose callers need not ask about tool calls.
	Exempt hooks.Exemptions

	// Behalf judges the processes for which operators' programs ask.
	Behalf *peercheck.Judge

	closing context.Context
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

// New makes a kernel over an open store and loads the store's state.
func New(ctx context.Context, o Options) (*Kernel, error) {
	k := &Kernel{notify: o.Notify, base: &base{
		store: o.Store, search: o.Search, digest: o.Digest, keys: o.Keys, subjectOf: o.Subject, tasks: o.Tasks, now: o.Now, newID: o.NewID, metrics: o.Metrics, log: o.Log, state: exchangestate.New(o.Store),
		// The other half stays free for messages without files.
		files: attachments.NewLooker(runtime.GOMAXPROCS(0) / 2),
	}}
	k.closing, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := k.newRequests(ctx); err != nil {
		return nil, err
	}
	k.Sending = Sending{base: k.base, exempt: &k.Exempt}
	k.Hosts = &Hosts{Kernel: k, since: o.Now()}
	first, err := k.newRuleset(&o.Terms)
	if err != nil {
		return nil, err
	}
	first.terms.Generation = 1
	k.inForce.Store(first)
	if err := k.state.Sessions.Settle(ctx, first.cfg.Directory.Agents, k.commit); err != nil {
		return nil, err
	}
	if k.grants, err = grants.Load(ctx, grants.Options{Store: o.Store, Commit: k.commit, Now: o.Now, NewID: o.NewID}); err != nil {
		return nil, err
	}
	if k.pauses, err = pause.Load(ctx, o.Store); err != nil {
		return nil, err
	}
	k.outbox = outbox.New(k.closing, &outbox.Options{
		Host: receivers{k}, Store: o.Store, Search: o.Search.Query, Keys: o.Keys, Now: o.Now, NewID: o.NewID, Metrics: o.Metrics, Log: o.Log,
	})
	k.apps, err = registry.New(k.closing, registry.Options{
		Store: o.Store, Settings: o.Settings, Outbox: deliveries{k}, Terms: func() *registry.Terms { return k.rules().terms }, Listened: k.Exempt.End, Paused: k.pauses.Of,
		Commit: k.commit, Now: o.Now, NewID: o.NewID, Boot: o.Boot, Runs: o.Runs, Signs: k.Signs, Metrics: o.Metrics, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	k.Processes = &k.apps.Processes
	k.Behalf = newJudge(k, &o)
	k.exchanges = exchanges.New(exchanges.Options{Store: o.Store, State: k.state, Requests: k.requests, Apps: k.apps, Commit: k.commit, Search: o.Search.Query, Waiting: k.outbox.Waiting, Settled: func() { k.settled.Add(1); k.tasks.Go(k.recall) }, Now: o.Now, NewID: o.NewID})
	tell := tells(k)
	k.hooks = hooks.New(hooks.Options{InForce: func() *hooks.Rules { return k.rules().hookRules }, Apps: k.apps, State: k.state, Store: o.Store, Pauses: k.pauses, Commit: k.commit, Keys: o.Keys, Tell: tell, Now: o.Now, NewID: o.NewID, Log: o.Log})
	if k.releases, err = newReleases(ctx, k, &o, tell); err != nil {
		return nil, err
	}
	k.contacts = contacts.New(contacts.Options{Store: o.Store, State: k.state, Commit: k.commit, NewID: o.NewID})
	k.inboxes = inbox.New(inbox.Options{Outbox: k.outbox, Contacts: k.contacts, Apps: k.apps, Ours: exchangehints.Own(), Digest: o.Digest, Now: o.Now, NewID: o.NewID, Closing: k.closing.Done()})
	k.tasks.Go(k.sweep)
	return k, nil
}

// newReleases loads the approved messages that runtimes redeem.
func newReleases(ctx context.Context, k *Kernel, o *Options, tell func(*approval.Request, *store.Change, api.ApprovalOutcome) error) (*releases.Releases, error) {
	return releases.New(ctx, releases.Options{
		Store: o.Store, Commit: k.commit, Approvals: k.Approvals, Now: o.Now, NewID: o.NewID, Closing: k.closing, Log: o.Log, Search: k.search.Query, Tell: tell,
		Record:  func(r *approval.Request) *audit.Record { return exchanges.Asking(r, k.rules().directory) },
		HoldFor: func() time.Duration { return k.rules().cfg.HoldFor },
		Open: func(ctx context.Context, row *store.Release, r *approval.Request, weigh bool) (gate.Sealed, *gate.Waited, error) {
			return k.rules().openRelease(ctx, row, r, weigh)
		},
		AskAnew: func(ctx context.Context, w *gate.Waited, anew *gate.Anew, c *store.Change) (string, *gate.Withdrawn, error) {
			return (&waitedMessage{k: k.rules(), Waited: w}).askAnew(ctx, anew, c, true)
		},
		Withdrawn: k.withdrawn,
	})
}

// newJudge makes the judge of the processes for which operators' programs ask.
func newJudge(k *Kernel, o *Options) *peercheck.Judge {
	return peercheck.New(peercheck.Options{
		Look: o.Look, MayOperate: k.Processes.MayOperateFrom,
		Signs: k.Signs, Clicks: func() bool { return k.rules().cfg.Clicks }, Commit: k.commit, Now: o.Now, NewID: o.NewID,
	})
}

// tells returns a function that tells an app what became of its request.
func tells(k *Kernel) func(*approval.Request, *store.Change, api.ApprovalOutcome) error {
	return func(r *approval.Request, c *store.Change, o api.ApprovalOutcome) error {
		return k.rules().tell(r, c, o, nil)
	}
}

// recall takes back what is queued for connections and may not be written any more. It waits, and
// so is not called in a commit.
func (k *base) recall() { k.outbox.Recall(registry.Lines(k.apps)...) }

// Shrink empties the caches of the store.
func (k *Kernel) Shrink() { k.state.Shrink() }

// Stop announces the end of the daemon, so that connections that end from now on do not count as
// lost apps. Call it before the connections are closed.
func (k *Kernel) Stop() { k.stop() }

// Close waits for the kernel's own tasks. Connections must be closed before;
// the store stays open.
func (k *Kernel) Close() {
	k.stop()
	k.tasks.Wait()
	k.outbox.Wait()
}

// record commits records that come with no other change.
func (k *base) record(r ...*audit.Record) (store.Receipt, error) {
	return k.commit(&store.Change{Records: r})
}

// commit makes a change durable. It turns a failure into the caller's error: nothing was done,
// since it could not be recorded.
func (k *base) commit(c *store.Change) (store.Receipt, error) {
	receipt, err := k.store.Commit(c)
	if err == nil || errors.Is(err, store.ErrGrantOver) || errors.Is(err, store.ErrGrantKnown) || errors.Is(err, store.ErrSignatureUsed) || errors.Is(err, store.ErrLaneFull) || errors.Is(err, store.ErrLaneMoved) {
		return receipt, err
	}
	if !errors.Is(err, store.ErrLow) && !errors.Is(err, store.ErrQuota) {
		// A nearly full disk, or an app's full queue, is not logged for each message.
		k.log.Error("cannot record a decision: nothing was released", zap.Error(err))
	}
	return store.Receipt{}, storeerror.NotRecorded("cannot record the decision, so nothing was done", err)
}
