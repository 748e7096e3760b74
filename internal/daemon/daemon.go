package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/redact"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/mask"
	"github.com/openclawos/ocipd/internal/daemon/appconfig"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/daemon/memory"
	"github.com/openclawos/ocipd/internal/daemon/notices"
	"github.com/openclawos/ocipd/internal/daemon/reload"
	"github.com/openclawos/ocipd/internal/daemon/runtimewatch"
	"github.com/openclawos/ocipd/internal/daemon/supervisor"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/evidence/digestkeys"
	"github.com/openclawos/ocipd/internal/evidence/export"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/retention"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"github.com/openclawos/ocipd/internal/task/taskservice"
	"go.uber.org/zap"
)

// Options are the inputs of a daemon.
type Options struct {
	Config *config.Config
	// Getenv reads the environment, for the places of sockets and files.
	Getenv  func(string) string
	Version string
	Log     *zap.Logger
	// Level, if set, is the log's level, which a reload of log.level changes.
	Level *zap.AtomicLevel
	// Passed are the open sockets from a service manager. Manager receives the daemon's
	// state. Both may be nil.
	Passed  []*os.File
	Manager *supervisor.Manager
	// Process is set if nothing but the daemon runs in the process: the daemon then gives the
	// process's memory back to the system.
	Process *Process
	// Gates, unless nil, returns for each agent runtime whose files were changed for this
	// daemon the problems that keep its gate from working as entered.
	Gates func() map[string][]string
}

// Process is how a daemon treats the process that is its own.
type Process struct {
	// GCPercent is the permitted growth of the heap between two collections while there are
	// messages. Zero leaves the setting unchanged.
	GCPercent int
}

// Daemon is one daemon, from Start to Stop.
type Daemon struct {
	cfg     *config.Config
	live    atomic.Pointer[config.Config]
	getenv  func(string) string
	version string
	log     *zap.Logger
	level   *zap.AtomicLevel
	started time.Time
	ids     *ids

	passed  []*os.File
	manager *supervisor.Manager
	gates   func() map[string][]string
	// aborted is closed when a stop must not wait any more.
	aborted chan struct{}
	abort   sync.Once

	socket, operator string
	// unused is the path of a service manager's unused socket, or "".
	unused           string
	database, mirror string
	// left counts the requests that the stop left unanswered.
	left int

	policy   *policy.Holder
	store    *store.Store
	mirrored mirrored
	index    *index.Index
	keys     *digestkeys.Keys
	redactor atomic.Pointer[redact.Redactor]
	notices  *notices.Notices
	kernel   *kernel.Kernel
	tasks    atomic.Pointer[taskservice.Tasks]
	runner   *runners
	// boot names the system's boot.
	boot   string
	server *ipc.Server
	// apps and operators are the sockets, open from the first step on.
	apps, operators *net.UnixListener

	settings *appconfig.Settings
	// configs makes the records of configurations.
	configs  *configlog.Log
	reloader *reload.Engine

	sinks *export.Set
	// seenBy is the newest checkpoint that each witness has seen. recorded is closed after the record of
	// the start: from then on, the kernel exists, and answers of witnesses can be recorded.
	seenBy    seenBy
	recorded  chan struct{}
	retention *retention.Keeper
	gateways  *runtimewatch.Watch
	metrics   *metrics.Set

	signer *keyring.Signer
	// rotating serializes rotations of the key.
	signers seenSigners
	// damaged is the fault that the check of the whole log found, or nil.
	damaged atomic.Pointer[string]
	// outside are the checkpoints outside the log.
	outside  atomic.Pointer[checkpoints.File]
	rotating sync.Mutex

	// process is [Options.Process].
	process *Process

	// undo holds the undo of each completed step, newest last. A failed start and a stop both use it.
	undo []ending
}

// New checks everything that can be checked without touching anything.
func New(o Options) (*Daemon, error) {
	d := &Daemon{
		cfg: o.Config, getenv: o.Getenv, version: o.Version, log: o.Log, level: o.Level, ids: newIDs(),
		passed: o.Passed, manager: o.Manager, gates: o.Gates, aborted: make(chan struct{}), recorded: make(chan struct{}), seenBy: seenBy{lastWord: lastWord},
	}
	d.live.Store(o.Config)
	d.socket = config.SocketPath(o.Config, o.Getenv)
	d.operator = config.OperatorPath(d.socket)
	if d.database = config.DatabasePath(o.Config, o.Getenv); d.database == "" {
		if url := o.Config.Store.URL; url != "" {
			return nil, fmt.Errorf("cannot use store.url %q: this daemon keeps its store in SQLite; leave the key empty or name a file", mask.URL(url))
		}
		return nil, errors.New("cannot tell where the database belongs: HOME is not set; name a file in store.url")
	}
	if lacks := kernelconfig.CheckDeclared(o.Config); len(lacks) > 0 {
		return nil, lacks
	}
	d.process = o.Process
	d.mirror = config.MirrorPath(o.Config, d.database)
	d.metrics = newMetrics()
	return d, nil
}

// Sockets returns where apps and operators connect.
func (d *Daemon) Sockets() (apps, operators string) { return d.socket, d.operator }

// Start brings everything up and returns when the daemon answers. If a step fails, it
// undoes the earlier ones.
func (d *Daemon) Start(ctx context.Context) (err error) {
	d.started = time.Now()
	defer func() {
		if err != nil {
			tellUnsound(d, err)
			err = errors.Join(err, d.Stop())
		}
	}()
	// The digest of the program takes as long as all steps before the record that needs it, and the tables
	// of the usual detector take a fifth of that.
	go registry.OwnProgram()
	go func() { _, _ = commitment.New(commitment.Options{}) }()
	for _, step := range d.steps() {
		began := time.Now()
		if err := step.run(ctx); err != nil {
			d.log.Debug("a step of the start failed", zap.String("step", step.name), zap.Error(err))
			return err
		}
		d.log.Debug("started", zap.String("step", step.name), zap.Duration("after", time.Since(began)))
	}
	d.log.Info("ready", zap.String("socket", d.socket), zap.String("operator", d.operator), zap.String("version", d.version),
		zap.String("policy", d.policy.Load().Revision()), zap.Duration("after", time.Since(d.started)))
	return nil
}

// step is one step of the start.
type step struct {
	name string
	run  func(context.Context) error
}

// steps are those of a start, in order.
func (d *Daemon) steps() []step {
	return []step{
		{"file descriptors", d.checkDescriptors},
		{"sockets", d.claimSockets},
		{"policy", d.loadPolicy},
		{"places", d.checkPlaces},
		{"store", d.openStore},
		{"checkpoints", d.holdCheckpoints},
		{"witnesses", d.askWitnesses},
		{"digest keys", d.settleKeys},
		{"configurations on record", d.openConfigs},
		{"mirror", d.openMirror},
		{"index", d.openIndex},
		{"sinks", d.openSinks},
		{"kernel", d.startKernel},
		{"tasks", d.startTasks},
		{"record of the start", d.recordStart},
		{"list of witnesses", d.watchWitnesses},
		{"rows", d.checkRows},
		{"whole log", d.checkLog},
		{"retention", d.retain},
		{"watch of gateways", d.watchGateways},
		{"server", d.makeServer},
		{"reload", d.watchFiles},
		{"metrics", d.serveMetrics},
		// A command that gets an answer can also find the daemon by its place file.
		{"place for commands", d.publishPlaces},
		{"answers", d.listen},
		{"service manager", d.supervise},
	}
}

// ending undoes a step.
type ending struct {
	name string
	run  func() error
}

// longStop is the time from which the end of a step is logged.
const longStop = 5 * time.Second

// Stop ends everything, newest first: it takes no new connections, answers requests in
// flight within drain_timeout, and then closes kernel, mirror, store and sockets. It logs
// each step that does not end in order, and continues with the others.
func (d *Daemon) Stop() error {
	var failures []error
	for _, end := range slices.Backward(d.undo) {
		began := time.Now()
		err := end.run()
		took := time.Since(began)
		switch {
		case err != nil:
			d.log.Error("something did not end in order", zap.String("what", end.name), zap.Duration("after", took), zap.Error(err))
		case took > longStop:
			d.log.Warn("something took long to end", zap.String("what", end.name), zap.Duration("after", took))
		}
		failures = append(failures, err)
	}
	d.undo = nil
	return errors.Join(failures...)
}

// Run starts the daemon, reloads for each value from the channel, waits for the context to
// end, and stops.
func (d *Daemon) Run(ctx context.Context, reload <-chan os.Signal) error {
	if err := d.Start(ctx); err != nil {
		return unsound(err)
	}
	for ctx.Err() == nil {
		select {
		case <-reload:
			_ = d.Reload(ctx) // is logged, recorded and shown
		case <-ctx.Done():
		}
	}
	d.log.Info("stopping")
	err := d.Stop()
	if d.left > 0 && d.isAborted() {
		err = errors.Join(err, fmt.Errorf("%w: requests under way were not answered: %d", ErrAborted, d.left))
	}
	d.log.Info("stopped", zap.Int("unanswered", d.left), zap.Error(err))
	return err
}

// unsound marks an error of a start that found the records changed, including another file
// in place of the database, and adds where to find advice.
func unsound(err error) error {
	if err = store.Damaged(err); errors.Is(err, store.ErrDamaged) {
		err = &audit.Fault{Problem: err.Error()}
	}
	if _, found := errors.AsType[*audit.Fault](err); found {
		return fmt.Errorf("%w; ocipd audit verify says more, and what to do", err)
	}
	return err
}

// tellUnsound notifies people of a start that found the records changed, because nobody may
// read the log of a service that does not start.
func tellUnsound(d *Daemon, err error) {
	fault, found := errors.AsType[*audit.Fault](unsound(err))
	if !found {
		return
	}
	err = notices.Last(d.getenv, d.log.Named("notify"), d.cfg.Approvals.Notify, d.seenBy.lastWord, "ocipd did not start: the records are not as they were left", fault.Error()+"\nocipd audit verify")
	if err != nil {
		d.log.Warn("cannot tell a person why the daemon did not start", zap.Error(err))
	}
}

func (d *Daemon) onStop(name string, end func() error) { d.undo = append(d.undo, ending{name, end}) }

// claimSockets is the first step: if a daemon is already running, it touches nothing of that daemon.
func (d *Daemon) claimSockets(context.Context) (err error) {
	d.apps, d.operators, err = d.openSockets()
	return err
}

// closer closes a listener that the server may have closed already.
func closer(l net.Listener) func() error {
	return func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// allows reports whether a user may connect: the daemon's own user, and for apps the users
// in the configuration.
func (d *Daemon) allows(uid uint32, operator bool) bool {
	return uid == uint32(os.Geteuid()) || !operator && slices.Contains(d.cfg.IPC.AllowUIDs, int(uid))
}

func (d *Daemon) loadPolicy(ctx context.Context) error {
	compiled, err := policy.Compile(ctx, reload.Source(&d.cfg.Policy))
	if err != nil {
		return fmt.Errorf("cannot use the policy: %w", err)
	}
	d.warnOfWriters(d.cfg, compiled)
	d.policy = policy.NewHolder(compiled)
	d.settings = appconfig.New(d.cfg)
	d.reloader = reload.New(ctx, d.cfg, reload.Options{
		Replacing: func() func() { return d.kernel.Replacing() },
		Policy:    d.policy, Prepare: d.prepare, Startable: d.startable,
		Commit: func(c *store.Change) (store.Receipt, error) { return d.store.Commit(c) },
		Note:   d.noteConfig, Former: func() string { return d.configs.Former() }, Goes: func(upTo uint64) bool { return d.configs.Goes(upTo) },
		Tell: func() { d.manager.Status(d.condition()) },
		Now:  time.Now, NewID: d.ids.next, Log: d.log.Named("reload"),
	})
	return nil
}

func (d *Daemon) openStore(ctx context.Context) (err error) {
	d.store, err = store.Open(ctx, store.Options{
		Path: d.database, Clock: time.Now, Log: d.log.Named("store"), Wait: d.cfg.Store.CommitTimeout, Alive: d.mirrored.alive, Space: d.space(), DiskChanged: d.diskChanged,
		Signing: d.signing(), Redact: func(r *audit.Record) { d.redactor.Load().Record(r) }, Metrics: d.metrics, Claimed: d.claimed, Unreadable: storeerror.Unreadable,
		RowKey: keyring.RowKey(config.KeysPath(d.cfg, d.database), rand.Reader, time.Now), Altered: d.alteredRow, UnreadableRow: storeerror.AlteredRow,
	})
	if err != nil {
		return err
	}
	d.onStop("the store", d.store.Close)
	return nil
}

// claimed is called when the database is this daemon's. Only then are the files beside it
// this daemon's too. The store's records need the parts made here.
func (d *Daemon) claimed(made bool) error {
	if made {
		if err := d.refuseMissing(); err != nil {
			return err
		}
	}
	var err error
	d.keys, err = digestkeys.Open(digestkeys.Options{Dir: config.KeysPath(d.cfg, d.database), Now: time.Now, NewID: d.ids.next, Log: d.log})
	if err != nil {
		return err
	}
	redactor, err := d.newRedactor(d.cfg)
	d.redactor.Store(redactor)
	return err
}

// settleKeys checks and loads the digest keys.
func (d *Daemon) settleKeys(ctx context.Context) error {
	return d.keys.Settle(ctx, d.store, tenants(d.cfg)...)
}

// openIndex starts to index the log. It cannot fail, because without an index the daemon
// reads the log itself.
func (d *Daemon) openIndex(ctx context.Context) error {
	d.index = index.Open(ctx, index.Options{
		Path: index.Path(d.database), Log: d.store, Now: time.Now, Logger: d.log.Named("index"),
	})
	d.onStop("the index", d.index.Close)
	return nil
}

func (d *Daemon) startKernel(ctx context.Context) error {
	terms, err := d.terms(d.cfg, d.policy.Load())
	if err != nil {
		return err
	}
	d.notices = notices.New(d.getenv, d.log.Named("notify"))
	notify, err := d.notices.Prepare(d.cfg.Approvals.Notify)
	if err != nil {
		return err
	}
	notify()
	d.onStop("notices", d.notices.Close)
	if d.boot, err = peer.Boot(); err != nil {
		return err
	}
	d.kernel, err = kernel.New(ctx, kernel.Options{
		Boot: d.boot, Runs: peer.Runs, Look: peer.Look,
		Terms: terms, Store: d.store, Settings: d.settings, Search: d.index, Notify: d.notices, Digest: d.keys.Digest, Keys: d.keys.DigestForm, Now: time.Now, NewID: d.ids.next, Metrics: d.metrics, Log: d.log.Named("kernel"),
		Subject: d.taskSubject, Tasks: d.taskOf,
	})
	if err != nil {
		return err
	}
	rosters{d}.noteRoster(d.cfg)
	d.onStop("the kernel", func() error {
		d.kernel.Close()
		return nil
	})
	return nil
}

// recordStart records which daemon decides from now on, under which policy. The end is
// recorded too, so that a gap is visible.
func (d *Daemon) recordStart(ctx context.Context) error {
	// Permitted on a nearly full disk, because somebody must end the waiting requests.
	settle, err := d.restored(ctx)
	if err != nil {
		return err
	}
	c := &store.Change{Last: true, Checkpoint: true, Records: append(d.unsignedTail(),
		&audit.Record{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: audit.EventStarted, Details: map[string]any{
			"version": d.version, "program": registry.OwnProgram(), "pid": os.Getpid(), "configFile": reload.Recorded(d.cfg.File), audit.SignsWithin: int(audit.SignWithin.Seconds()),
		}},
	)}
	noted, err := d.reloader.Start(c)
	if err != nil {
		return fmt.Errorf("cannot record the configuration: %w", err)
	}
	if err := d.sealedRows(ctx, c); err != nil {
		return err
	}
	known, err := witnessesOnRecord(ctx, d)
	if err == nil {
		err = d.noteWitnesses(ctx, c, known...)
	}
	if err != nil {
		return err
	}
	if _, err := d.store.Commit(c); err != nil {
		return fmt.Errorf("cannot record the start: %w", err)
	}
	noted()
	if err := settle(); err != nil {
		return err
	}
	close(d.recorded)
	d.onStop("the record of the stop", func() error {
		_, err := d.store.Commit(&store.Change{Alarm: true, Checkpoint: true, Records: []*audit.Record{
			{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "daemon_stopped", Details: map[string]any{"pid": os.Getpid()}},
		}})
		if err != nil {
			return fmt.Errorf("cannot record the end: %w", err)
		}
		return nil
	})
	return nil
}

// watchFiles follows the configuration file and the policy's files. If there is no
// configuration file yet, it follows its usual place. It comes after the record of the
// start, so that no other policy is recorded before that.
func (d *Daemon) watchFiles(context.Context) error {
	d.onStop("the watch of the configuration and the policy", func() error {
		d.reloader.Close()
		return nil
	})
	return d.reloader.Watch(cmp.Or(d.cfg.File, config.FilePath(d.getenv)))
}

// listen is the last step. Earlier connections have waited in the sockets' queues, and get
// answers from now on.
func (d *Daemon) listen(context.Context) error {
	d.server.Serve()
	d.onStop("connections", func() error {
		d.kernel.Stop()
		d.tasks.Load().Stop()
		d.closeServer()
		return nil
	})
	if d.process != nil {
		d.giveBack()
	}
	return nil
}

// giveBack returns memory to the system after the start, which makes garbage that serving does not
// need, and after each burst of messages.
func (d *Daemon) giveBack() {
	ctx, cancel := context.WithCancel(context.Background())
	looks, ended := time.NewTicker(memory.Every), make(chan struct{})
	go func() {
		defer close(ended)
		memory.Return()
		memory.GiveBack(ctx, memory.Options{Looks: looks.C, BusyPercent: d.process.GCPercent, Shrink: func() {
			d.kernel.Shrink()
			d.store.Shrink(ctx)
			d.index.Shrink()
		}})
	}()
	d.onStop("the giving back of memory", func() error {
		looks.Stop()
		cancel()
		<-ended
		return nil
	})
}
