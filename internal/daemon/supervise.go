package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/daemon/watchdog"
	"github.com/openclawos/ocipd/internal/ipc"
	"go.uber.org/zap"
)

// ErrAborted means that the daemon stopped without waiting for requests in flight.
// Everything committed is complete.
var ErrAborted = errors.New("stopped at once")

// supervise tells the service manager that the daemon answers, and from now on its state.
func (d *Daemon) supervise(ctx context.Context) error {
	d.options.Manager.Ready(d.condition())
	feeding, stop := context.WithCancel(context.WithoutCancel(ctx))
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if patience := d.options.Manager.Patience(); patience > 0 {
			watchdog.Feed(feeding, watchdog.Options{
				Manager: d.options.Manager, Every: patience / 3, Probe: d.probe, Log: d.log,
			})
		}
	}()
	d.ends.add("signs of life", func() error {
		stop()
		<-fed
		d.options.Manager.Stopping("stopping: requests under way are answered")
		return nil
	})
	return nil
}

// probe goes through a whole decision.
func (d *Daemon) probe(ctx context.Context) error {
	if err := d.inForce.policy.Load().Check(ctx); err != nil {
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
	if d.sockets.unused != "" {
		line += "; at " + d.sockets.app + ", and not at the passed " + d.sockets.unused
	}
	return line
}

// Reload loads the configuration file and the policy again, as an operator can request. A
// refusal changes nothing, and the error gives the reason. The daemon must be started, and
// must not be stopped meanwhile.
func (d *Daemon) Reload(context.Context) error {
	d.options.Manager.Reloading()
	result, err := d.reloader.ReloadBySignal()
	d.options.Manager.Ready(d.condition())
	if err != nil {
		d.log.Error("reloading failed, and what was in force stays", zap.Error(err))
		return err
	}
	d.log.Info("reloaded", zap.String("policy", result.Revision), zap.Bool("policyChanged", result.Changed), zap.Int("changes", result.Config.ChangeCount))
	return nil
}

// Abort ends a stop's wait for requests in flight, now or later. [Daemon.Run] then returns
// [ErrAborted], if a request was left unanswered. It may be called more than once, and at any time.
func (d *Daemon) Abort() { d.serving.abort.Do(func() { close(d.serving.aborted) }) }

// serving is the server of the sockets, and how it ends.
type serving struct {
	*ipc.Server
	// aborted is closed when a stop must not wait any more.
	aborted chan struct{}
	abort   sync.Once
	// left counts the requests that the stop left unanswered.
	left int
}

// end closes the server; an abort ends its wait.
func (s *serving) end(limit time.Duration, log *zap.Logger) {
	closed := make(chan struct{})
	go func() {
		select {
		case <-s.aborted:
			s.Abort()
		case <-closed:
		}
	}()
	if s.left = s.Close(limit); s.left > 0 {
		log.Warn("requests under way are left unanswered: what they asked for is done and on record, or not at all",
			zap.Int("requests", s.left), zap.Duration("drain_timeout", limit), zap.Bool("aborted", s.isAborted()))
	}
	close(closed)
}

func (s *serving) isAborted() bool {
	select {
	case <-s.aborted:
		return true
	default:
		return false
	}
}
