package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
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
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/evidence/digestkeys"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/diskspace"
	"github.com/openclawos/ocipd/internal/store/storeerror"
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
	options Options
	cfg     *config.Config
	log     *zap.Logger
	started time.Time
	ids     *ids
	places  places
	inForce inForce

	sockets sockets
	serving serving
	store   *store.Store
	// signers is the last seen file of allowed signers.
	signers   seenSigners
	evidence  evidence
	witnesses witnesses
	followers followers
	keys      *digestkeys.Keys
	metrics   *metrics.Set

	notices *notices.Notices
	kernel  *kernel.Kernel
	tasks   tasks
	runner  *runners
	// configs makes the records of configurations.
	configs  *configlog.Log
	reloader *reload.Engine
	gateways *runtimewatch.Watch
	// ends are those of the completed steps of the start. A failed start and a stop both use them.
	ends endings
}

// New checks everything that can be checked without touching anything.
func New(o Options) (*Daemon, error) {
	d := &Daemon{
		options: o, cfg: o.Config, log: o.Log, ids: newIDs(), metrics: newMetrics(),
		sockets: sockets{cfg: o.Config, getenv: o.Getenv, log: o.Log}, serving: serving{aborted: make(chan struct{})},
	}
	d.inForce.config.Store(o.Config)
	d.sockets.app = config.SocketPath(o.Config, o.Getenv)
	d.sockets.operator = config.OperatorPath(d.sockets.app)
	database := config.DatabasePath(o.Config, o.Getenv)
	if database == "" {
		if url := o.Config.Store.URL; url != "" {
			return nil, fmt.Errorf("cannot use store.url %q: this daemon keeps its store in SQLite; leave the key empty or name a file", mask.URL(url))
		}
		return nil, errors.New("cannot tell where the database belongs: HOME is not set; name a file in store.url")
	}
	if lacks := kernelconfig.CheckDeclared(o.Config); len(lacks) > 0 {
		return nil, lacks
	}
	d.places = places{o.Config, database, config.MirrorPath(o.Config, database)}
	d.evidence = evidence{places: d.places, log: o.Log, newID: d.ids.next}
	d.witnesses = witnesses{
		evidence: &d.evidence, recorded: make(chan struct{}), lastWord: lastWord,
		halt:  func(by string, r *audit.Record) error { return d.kernel.Sending.Halt(by, r) },
		alarm: func(id, title, text string) { d.notices.Alarm(id, title, text) },
	}
	return d, nil
}

// Sockets returns where apps and operators connect.
func (d *Daemon) Sockets() (apps, operators string) { return d.sockets.app, d.sockets.operator }

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
	d.log.Info("ready", zap.String("socket", d.sockets.app), zap.String("operator", d.sockets.operator), zap.String("version", d.options.Version),
		zap.String("policy", d.inForce.policy.Load().Revision()), zap.Duration("after", time.Since(d.started)))
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
		// A daemon with too few descriptors for its apps fails before it has a socket.
		{"file descriptors", func(context.Context) error { return ipc.CheckDescriptors(limits(d.cfg).Connections) }},
		// If a daemon is already running, a start touches nothing of that daemon.
		{"sockets", func(context.Context) error { return d.sockets.open(d.options.Passed, &d.ends) }},
		{"policy", d.loadPolicy},
		{"places", func(context.Context) error { return d.places.check() }},
		{"store", d.openStore},
		{"checkpoints", func(ctx context.Context) error { return d.evidence.hold(ctx, &d.ends) }},
		{"witnesses", func(ctx context.Context) error { return d.witnesses.ask(ctx, &d.ends) }},
		{"digest keys", func(ctx context.Context) error { return d.keys.Settle(ctx, d.store, tenants(d.cfg)...) }},
		{"configurations on record", d.openConfigs},
		{"mirror", d.openMirror},
		{"index", d.openIndex},
		{"sinks", d.openSinks},
		{"kernel", d.startKernel},
		{"tasks", d.startTasks},
		{"record of the start", d.recordStart},
		{"list of witnesses", func(ctx context.Context) error { return d.witnesses.watch(ctx, &d.ends) }},
		{"rows", d.checkRows},
		{"whole log", d.checkLog},
		{"retention", d.retain},
		{"watch of gateways", d.watchGateways},
		{"server", d.makeServer},
		{"reload", d.watchFiles},
		{"metrics", d.serveMetrics},
		// A command that gets an answer can also find the daemon by its place file.
		{"place for commands", func(context.Context) error { return d.sockets.publish(d.places, &d.ends) }},
		{"answers", d.listen},
		{"service manager", d.supervise},
	}
}

// endings are the ends of completed steps, newest last.
type endings []ending

// ending undoes a step.
type ending struct {
	name string
	run  func() error
}

func (e *endings) add(name string, end func() error) { *e = append(*e, ending{name, end}) }

// longStop is the time from which the end of a step is logged.
const longStop = 5 * time.Second

// Stop ends everything, newest first: it takes no new connections, answers requests in
// flight within drain_timeout, and then closes kernel, mirror, store and sockets. It logs
// each step that does not end in order, and continues with the others.
func (d *Daemon) Stop() error {
	var failures []error
	for _, end := range slices.Backward(d.ends) {
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
	d.ends = nil
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
	if d.serving.left > 0 && d.serving.isAborted() {
		err = errors.Join(err, fmt.Errorf("%w: requests under way were not answered: %d", ErrAborted, d.serving.left))
	}
	d.log.Info("stopped", zap.Int("unanswered", d.serving.left), zap.Error(err))
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
	err = notices.Last(d.options.Getenv, d.log.Named("notify"), d.cfg.Approvals.Notify, d.witnesses.lastWord, "ocipd did not start: the records are not as they were left", fault.Error()+"\nocipd audit verify")
	if err != nil {
		d.log.Warn("cannot tell a person why the daemon did not start", zap.Error(err))
	}
}

func (d *Daemon) loadPolicy(ctx context.Context) error {
	compiled, err := policy.Compile(ctx, reload.Source(&d.cfg.Policy))
	if err != nil {
		return fmt.Errorf("cannot use the policy: %w", err)
	}
	warnOfWriters(d.log, d.cfg, compiled)
	d.inForce.policy = policy.NewHolder(compiled)
	d.inForce.settings = appconfig.New(d.cfg)
	d.reloader = reload.New(ctx, d.cfg, reload.Options{
		Replacing: func() func() { return d.kernel.Replacing() },
		Policy:    d.inForce.policy, Prepare: d.prepare, Startable: d.startable,
		Commit: func(c *store.Change) (store.Receipt, error) { return d.store.Commit(c) },
		Note:   d.noteConfig, Former: func() string { return d.configs.Former() }, Goes: func(upTo uint64) bool { return d.configs.Goes(upTo) },
		Tell: func() { d.options.Manager.Status(d.condition()) },
		Now:  time.Now, NewID: d.ids.next, Log: d.log.Named("reload"),
	})
	return nil
}

func (d *Daemon) openStore(ctx context.Context) (err error) {
	d.store, err = store.Open(ctx, store.Options{
		Path: d.places.database, Clock: time.Now, Log: d.log.Named("store"), Wait: d.cfg.Store.CommitTimeout, Alive: d.followers.mirror.alive, Space: space(&d.cfg.Store),
		DiskChanged: func(was, now diskspace.Disk) *store.Change { return diskChanged(d.ids.next(), was, now) },
		Signing:     d.evidence.signing(), Redact: func(r *audit.Record) { d.inForce.redactor.Load().Record(r) }, Metrics: d.metrics, Claimed: d.claimed, Unreadable: storeerror.Unreadable,
		RowKey: keyring.RowKey(d.places.keys(), rand.Reader, time.Now), Altered: func(table, row string) *store.Change { return alteredRow(d.ids.next(), table, row) }, UnreadableRow: storeerror.AlteredRow,
	})
	if err != nil {
		return err
	}
	d.evidence.store = d.store
	d.signers.store, d.signers.newID = d.store, d.ids.next
	d.ends.add("the store", d.store.Close)
	return nil
}

// claimed is called when the database is this daemon's. Only then are the files beside it
// this daemon's too. The store's records need the parts made here.
func (d *Daemon) claimed(made bool) error {
	if made {
		if err := d.places.refuseMissing(); err != nil {
			return err
		}
	}
	var err error
	d.keys, err = digestkeys.Open(digestkeys.Options{Dir: d.places.keys(), Now: time.Now, NewID: d.ids.next, Log: d.log})
	if err != nil {
		return err
	}
	redactor, err := newRedactor(d.keys, d.cfg)
	d.inForce.redactor.Store(redactor)
	return err
}

func (d *Daemon) startKernel(ctx context.Context) error {
	terms, err := d.terms(d.cfg, d.inForce.policy.Load())
	if err != nil {
		return err
	}
	d.notices = notices.New(d.options.Getenv, d.log.Named("notify"))
	notify, err := d.notices.Prepare(d.cfg.Approvals.Notify)
	if err != nil {
		return err
	}
	notify()
	d.ends.add("notices", d.notices.Close)
	boot, err := peer.Boot()
	if err != nil {
		return err
	}
	d.kernel, err = kernel.New(ctx, kernel.Options{
		Boot: boot, Runs: peer.Runs, Look: peer.Look,
		Terms: terms, Store: d.store, Settings: d.inForce.settings, Search: d.followers.index, Notify: d.notices, Digest: d.keys.Digest, Keys: d.keys.DigestForm, Now: time.Now, NewID: d.ids.next, Metrics: d.metrics, Log: d.log.Named("kernel"),
		Subject: d.tasks.subject, Tasks: d.tasks.of,
	})
	if err != nil {
		return err
	}
	rosters{d}.noteRoster(d.cfg)
	d.ends.add("the kernel", func() error {
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
	c := &store.Change{Last: true, Checkpoint: true, Records: append(d.evidence.unsignedTail(),
		&audit.Record{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: audit.EventStarted, Details: map[string]any{
			"version": d.options.Version, "program": registry.OwnProgram(), "pid": os.Getpid(), "configFile": reload.Recorded(d.cfg.File), audit.SignsWithin: int(audit.SignWithin.Seconds()),
		}},
	)}
	noted, err := d.reloader.Start(c)
	if err != nil {
		return fmt.Errorf("cannot record the configuration: %w", err)
	}
	if err := sealedRows(ctx, d.store, d.ids.next(), c); err != nil {
		return err
	}
	known, err := d.witnesses.onRecord(ctx)
	if err == nil {
		err = d.witnesses.note(ctx, c, known...)
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
	close(d.witnesses.recorded)
	d.ends.add("the record of the stop", func() error {
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
	d.ends.add("the watch of the configuration and the policy", func() error {
		d.reloader.Close()
		return nil
	})
	return d.reloader.Watch(cmp.Or(d.cfg.File, config.FilePath(d.options.Getenv)))
}

// listen is the last step. Earlier connections have waited in the sockets' queues, and get
// answers from now on.
func (d *Daemon) listen(context.Context) error {
	d.serving.Serve()
	d.ends.add("connections", func() error {
		d.kernel.Stop()
		d.tasks.Load().Stop()
		d.serving.end(d.config().DrainTimeout, d.log)
		return nil
	})
	if d.options.Process != nil {
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
		memory.GiveBack(ctx, memory.Options{Looks: looks.C, BusyPercent: d.options.Process.GCPercent, Shrink: func() {
			d.kernel.Shrink()
			d.store.Shrink()
			d.followers.index.Shrink()
		}})
	}()
	d.ends.add("the giving back of memory", func() error {
		looks.Stop()
		cancel()
		<-ended
		return nil
	})
}
