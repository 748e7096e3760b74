// Package daemon puts the rooms of the house together: configuration, policy,
// store, kernel and sockets. It is the only room that knows them all, and holds
// nothing but their order: what is started, what is undone when a later step
// fails, and what is stopped, in reverse.
//
// The caller loads a configuration, makes a [Daemon] and runs it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/policy"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Options is what a daemon is given from outside.
type Options struct {
	Config *config.Config
	// Getenv reads the environment, for the places of sockets and files.
	Getenv  func(string) string
	Version string
	Log     *zap.Logger
}

// Daemon is one daemon, from Start to Stop.
type Daemon struct {
	cfg     *config.Config
	getenv  func(string) string
	version string
	log     *zap.Logger
	started time.Time
	ids     *ids

	socket, operator string
	database, mirror string

	policy   *policy.Holder
	store    *store.Store
	kernel   *kernel.Kernel
	server   *ipc.Server
	settings *settings
	reloader *reloader

	// undo holds what ends each step that was started, newest last. A start
	// that fails and a stop use the same list.
	undo []func() error
}

// New checks what can be checked without touching anything.
func New(o Options) (*Daemon, error) {
	d := &Daemon{cfg: o.Config, getenv: o.Getenv, version: o.Version, log: o.Log, ids: newIDs()}
	d.socket = config.SocketPath(o.Config, o.Getenv)
	d.operator = config.OperatorPath(d.socket)
	if d.database = config.DatabasePath(o.Config, o.Getenv); d.database == "" {
		return nil, fmt.Errorf("cannot use store.url %q: this daemon keeps its store in SQLite; leave the key empty or name a file", o.Config.Store.URL)
	}
	d.mirror = config.MirrorPath(o.Config, d.database)
	return d, nil
}

// Sockets returns where apps and operators connect.
func (d *Daemon) Sockets() (apps, operators string) { return d.socket, d.operator }

// Start brings everything up and returns when the daemon answers. Where a step
// fails, what was started before it is undone.
func (d *Daemon) Start(ctx context.Context) (err error) {
	d.started = time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop())
		}
	}()
	for _, step := range []func(context.Context) error{
		d.claimSockets, d.loadPolicy, d.openStore, d.startKernel, d.recordStart, d.watchFiles, d.listen,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.log.Info("ready", zap.String("socket", d.socket), zap.String("operator", d.operator), zap.String("version", d.version),
		zap.String("policy", d.policy.Load().Revision()), zap.Duration("after", time.Since(d.started)))
	return nil
}

// Stop ends everything, newest first: no new connections, requests in flight
// answered within drain_timeout, then kernel, store and sockets.
func (d *Daemon) Stop() error {
	var failures []error
	for _, end := range slices.Backward(d.undo) {
		failures = append(failures, end())
	}
	d.undo = nil
	return errors.Join(failures...)
}

// Run starts the daemon, waits for the context to end, and stops it.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	d.log.Info("stopping")
	return d.Stop()
}

func (d *Daemon) onStop(end func() error) { d.undo = append(d.undo, end) }

// claimSockets comes first: where a daemon is running already, nothing of its
// is touched.
func (d *Daemon) claimSockets(context.Context) error {
	claim, err := ipc.ClaimSockets(d.socket, d.operator)
	if err != nil {
		return err
	}
	d.onStop(claim.Release)
	mode := fs.FileMode(0o600)
	if len(d.cfg.IPC.AllowUIDs) > 0 {
		// Whoever else may connect must get as far as being asked who it is.
		mode = 0o666
	}
	apps, err := claim.Listen(d.socket, mode)
	if err != nil {
		return err
	}
	d.onStop(closer(apps))
	operators, err := claim.Listen(d.operator, 0o600)
	if err != nil {
		return err
	}
	d.onStop(closer(operators))
	d.server = ipc.NewServer(ipc.Options{
		Kernel: facade{d},
		Limits: ipc.Limits{
			LineBytes: d.cfg.IPC.MaxLineBytes, QueueBytes: d.cfg.IPC.MaxQueueBytes,
			InFlight: d.cfg.IPC.MaxInFlight, Connections: d.cfg.IPC.MaxConnections,
		},
		AllowUID: d.allows, Now: time.Now, NewID: d.ids.next, Version: d.version, Log: d.log.Named("ipc"),
		Apps: apps, Operators: operators,
	})
	return nil
}

// closer closes a listener that the server may have closed before.
func closer(l net.Listener) func() error {
	return func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// allows reports whether a user may connect: the daemon's own, and as apps
// those that the configuration lists.
func (d *Daemon) allows(uid uint32, operator bool) bool {
	return uid == uint32(os.Geteuid()) || !operator && slices.Contains(d.cfg.IPC.AllowUIDs, int(uid))
}

func (d *Daemon) loadPolicy(ctx context.Context) error {
	compiled, err := policy.Compile(ctx, source(&d.cfg.Policy))
	if err != nil {
		return fmt.Errorf("cannot use the policy: %w", err)
	}
	d.policy = policy.NewHolder(compiled)
	d.settings = newSettings(d.cfg)
	d.reloader = newReloader(ctx, d.cfg, d.policy, d.settings, d.ids.next, d.log.Named("policy"))
	return nil
}

func (d *Daemon) openStore(ctx context.Context) (err error) {
	d.store, err = store.Open(ctx, store.Options{
		Path: d.database, Mirror: d.mirror, Clock: time.Now, Log: d.log.Named("store"), Wait: d.cfg.Store.CommitTimeout,
	})
	if err != nil {
		return err
	}
	d.onStop(d.store.Close)
	d.reloader.commit = d.store.Commit
	return nil
}

func (d *Daemon) startKernel(ctx context.Context) error {
	cfg, err := kernelConfig(d.cfg)
	if err != nil {
		return err
	}
	people, err := d.people()
	if err != nil {
		return err
	}
	d.kernel, err = kernel.New(ctx, kernel.Options{
		Config: cfg, Store: d.store, Policy: d.policy, Settings: d.settings, Signers: people.signers, Notify: people.notify, Now: time.Now, NewID: d.ids.next, Log: d.log.Named("kernel"),
	})
	if err != nil {
		return err
	}
	d.onStop(func() error {
		d.kernel.Close()
		return nil
	})
	return nil
}

// recordStart puts on record which daemon decides from here on, and under which
// policy; its end is on record too, so that a gap shows.
func (d *Daemon) recordStart(context.Context) error {
	_, err := d.store.Commit(&store.Change{Records: []*audit.Record{
		{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "daemon_started", Details: map[string]any{"version": d.version, "pid": os.Getpid(), "configFile": d.cfg.File}},
		d.reloader.loaded(d.policy.Load(), &d.cfg.Policy, asker{by: byStart}),
	}})
	if err != nil {
		return fmt.Errorf("cannot record the start: %w", err)
	}
	d.onStop(func() error {
		_, err := d.store.Commit(&store.Change{Records: []*audit.Record{
			{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "daemon_stopped", Details: map[string]any{"pid": os.Getpid()}},
		}})
		if err != nil {
			return fmt.Errorf("cannot record the end: %w", err)
		}
		return nil
	})
	return nil
}

// watchFiles follows the configuration file, where there is one, and the files
// of the policy. It comes after the record of the start, so that no other
// policy is on record before it.
func (d *Daemon) watchFiles(ctx context.Context) error {
	d.onStop(func() error {
		d.reloader.close()
		return nil
	})
	if d.cfg.File != "" {
		watcher, err := config.Watch(context.WithoutCancel(ctx), d.cfg.File, d.reloader.poke)
		if err != nil {
			return err
		}
		d.onStop(func() error {
			watcher.Close()
			return nil
		})
	}
	return d.reloader.start()
}

// listen comes last: whoever connected meanwhile has waited in the sockets'
// queues and is answered from now on.
func (d *Daemon) listen(context.Context) error {
	d.server.Serve()
	d.onStop(func() error {
		d.kernel.Stop()
		d.server.Close(d.cfg.DrainTimeout)
		return nil
	})
	// Starting makes garbage that serving does not need.
	runtime.GC()
	debug.FreeOSMemory()
	return nil
}
