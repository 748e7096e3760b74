// Package watchdog sends signs of life to a service manager, each only after the daemon has
// gone through its work from beginning to end.
package watchdog

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Manager is the service manager.
type Manager interface {
	// Alive is a sign of life, Broken asks for a restart, and Status is for people.
	Alive()
	Broken(status string)
	Status(status string)
}

// Options are the inputs of [Feed].
type Options struct {
	Manager Manager
	// Every is the interval of signs.
	Every time.Duration
	// Probe does the daemon's work once, without effect.
	Probe func(context.Context) error
	Log   *zap.Logger
}

// Feed sends a sign of life after each complete probe. A store that is closed for writing
// stays closed until a restart has verified it, so Feed then asks for a restart.
func Feed(ctx context.Context, o Options) {
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for {
		switch err := o.probe(ctx); {
		case ctx.Err() != nil:
			return
		case err == nil:
			o.Manager.Alive()
		case errors.Is(err, store.ErrLatched):
			o.Log.Error("asking to be started again: only that verifies the store", zap.Error(err))
			o.Manager.Broken("the store is closed for writing until a restart has verified it")
		default:
			o.Log.Error("no sign of life for the watchdog: no decision would get through", zap.Error(err))
			o.Manager.Status("no decision gets through: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// probe runs the probe, and returns when it has completed, however long that takes, or when
// the context ends.
func (o *Options) probe(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- o.Probe(ctx) }()
	late := time.NewTimer(o.Every)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-late.C:
			o.Log.Error("no sign of life for the watchdog: a decision takes too long", zap.Duration("after", o.Every))
			o.Manager.Status("no decision gets through")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
