package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/running"
	"github.com/openclawos/ocipd/internal/daemon/watchdog"
	"github.com/openclawos/ocipd/internal/ipc"
	"go.uber.org/zap"
)

// ErrAborted means that the daemon stopped without waiting for requests in flight.
// Everything committed is complete.
var ErrAborted = errors.New("stopped at once")

// openSockets takes the configured sockets, or else those that a service manager passed, or
// else those at the default place.
//
// Source: protocol, section 1.
func (d *Daemon) openSockets() (apps, operators *net.UnixListener, err error) {
	mode := fs.FileMode(0o600)
	if len(d.cfg.IPC.AllowUIDs) > 0 {
		// Other users that may connect must be able to reach the check of users.
		mode = 0o666
	}
	passed, err := ipc.TakePassed(d.passed)
	if err != nil {
		return nil, nil, err
	}
	if wanted := config.ConfiguredSocket(d.cfg, d.getenv); passed != nil && wanted != "" && !fileowner.Same(wanted, passed.Apps.Addr().String()) {
		d.warnOfUnused(passed, wanted)
		if err := passed.Close(); err != nil {
			return nil, nil, fmt.Errorf("cannot close the sockets that were passed: %w", err)
		}
		passed = nil
	}
	if passed != nil {
		return d.usePassed(passed, mode)
	}
	claim, err := ipc.ClaimSockets(d.socket, d.operator)
	if err != nil {
		return nil, nil, err
	}
	d.onStop("the claim of the sockets", claim.Release)
	if apps, err = claim.Listen(d.socket, mode); err != nil {
		return nil, nil, err
	}
	d.onStop("the apps' socket", closer(apps))
	if operators, err = claim.Listen(d.operator, 0o600); err != nil {
		return nil, nil, err
	}
	d.onStop("the operators' socket", closer(operators))
	return apps, operators, nil
}

// warnOfUnused warns that the sockets of a service manager are unused. That is no reason
// not to start, because apps that know the configured place find the daemon there. But the
// service manager keeps listening, and connections to its sockets never get an answer.
func (d *Daemon) warnOfUnused(passed *ipc.Passed, wanted string) {
	by := d.cfg.Source("ipc.socket")
	d.unused = passed.Apps.Addr().String()
	d.log.Error("the sockets that were passed are not used: another one is configured, and whoever connects to those is never answered",
		zap.String("passed", d.unused), zap.String("configured", wanted), zap.String("by", by),
		zap.String("toDo", "take that setting away to use the sockets that were passed, or end them: systemctl --user disable --now ocipd.socket"))
}

// usePassed uses the sockets of a service manager, which keeps them.
func (d *Daemon) usePassed(passed *ipc.Passed, mode fs.FileMode) (apps, operators *net.UnixListener, err error) {
	d.onStop("the apps' socket", closer(passed.Apps))
	d.onStop("the operators' socket", closer(passed.Operators))
	claim, err := passed.Claim(mode)
	if err != nil {
		return nil, nil, err
	}
	d.onStop("the claim of the sockets", claim.Release)
	d.socket, d.operator = passed.Apps.Addr().String(), passed.Operators.Addr().String()
	if info, err := os.Lstat(d.socket); err == nil && mode&^info.Mode().Perm() != 0 {
		d.log.Warn("users that ipc.allow_uids lists cannot connect: the mode of the passed socket keeps them out",
			zap.String("socket", d.socket), zap.Stringer("mode", info.Mode().Perm()))
	}
	return passed.Apps, passed.Operators, nil
}

// publishPlaces writes the place file, by which commands find the daemon if the
// configuration file is broken. Otherwise they ask for --socket then.
func (d *Daemon) publishPlaces(context.Context) error {
	dir := config.RunningPath(d.socket, d.getenv)
	if dir == "" {
		return nil
	}
	r := running.Daemon{Config: cmp.Or(d.cfg.File, config.FilePath(d.getenv)), Places: map[string]string{
		"ipc.socket": d.socket, "store.url": d.database, "audit.mirror": d.mirror,
		"audit.keys": config.KeysPath(d.cfg, d.database), "audit.checkpoints": config.CheckpointsPath(d.cfg, d.database),
	}}
	remove, err := r.Leave(dir)
	if err != nil {
		d.log.Warn("commands will need --socket while the configuration file is broken", zap.Error(err))
		return nil
	}
	d.onStop("the place for commands", remove)
	return nil
}

// supervise tells the service manager that the daemon answers, and from now on its state.
func (d *Daemon) supervise(ctx context.Context) error {
	d.manager.Ready(d.condition())
	feeding, stop := context.WithCancel(context.WithoutCancel(ctx))
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if patience := d.manager.Patience(); patience > 0 {
			watchdog.Feed(feeding, watchdog.Options{
				Manager: d.manager, Every: patience / 3, Probe: d.probe, Log: d.log,
			})
		}
	}()
	d.onStop("signs of life", func() error {
		stop()
		<-fed
		d.manager.Stopping("stopping: requests under way are answered")
		return nil
	})
	return nil
}

// probe goes through a whole decision.
func (d *Daemon) probe(ctx context.Context) error {
	if err := d.policy.Load().Check(ctx); err != nil {
		return err
	}
	return d.kernel.Probe(ctx)
}

// condition describes the daemon's state in one line.
func (d *Daemon) condition() string {
	p, c := d.reloader.PolicyStatus(), d.reloader.ConfigStatus()
	line := "serving, policy " + p.Revision
	refused := func(at time.Time, why string) {
		if why != "" {
			line += "; the last reload was refused at " + at.Format(time.RFC3339) + ": " + why
		}
	}
	refused(p.RefusedAt, p.Refusal)
	refused(c.RefusedAt, c.Refusal)
	if keys := d.reloader.Waiting(); len(keys) > 0 {
		line += "; waiting for a restart: " + strings.Join(keys, ", ")
	}
	if d.unused != "" {
		line += "; at " + d.socket + ", and not at the passed " + d.unused
	}
	return line
}

// Reload loads the configuration file and the policy again, as an operator can request. A
// refusal changes nothing, and the error gives the reason. The daemon must be started, and
// must not be stopped meanwhile.
func (d *Daemon) Reload(context.Context) error {
	d.manager.Reloading()
	result, err := d.reloader.ReloadBySignal()
	d.manager.Ready(d.condition())
	if err != nil {
		d.log.Error("reloading failed, and what was in force stays", zap.Error(err))
		return err
	}
	d.log.Info("reloaded", zap.String("policy", result.Revision), zap.Bool("policyChanged", result.Changed), zap.Int("changes", result.Config.ChangeCount))
	return nil
}

// Abort ends a stop's wait for requests in flight, now or later. [Daemon.Run] then returns
// [ErrAborted], if a request was left unanswered. It may be called more than once, and at any time.
func (d *Daemon) Abort() { d.abort.Do(func() { close(d.aborted) }) }

// closeServer closes the server; an abort ends its wait.
func (d *Daemon) closeServer() {
	closed := make(chan struct{})
	go func() {
		select {
		case <-d.aborted:
			d.server.Abort()
		case <-closed:
		}
	}()
	limit := d.config().DrainTimeout
	if d.left = d.server.Close(limit); d.left > 0 {
		d.log.Warn("requests under way are left unanswered: what they asked for is done and on record, or not at all",
			zap.Int("requests", d.left), zap.Duration("drain_timeout", limit), zap.Bool("aborted", d.isAborted()))
	}
	close(closed)
}

func (d *Daemon) isAborted() bool {
	select {
	case <-d.aborted:
		return true
	default:
		return false
	}
}
