package notify

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	fanoutQueue = 32
	fanoutDrain = 5 * time.Second
	// fanoutGrace is how long notifiers may take to end: as long as a [Command] waits for a
	// killed process and its output, and a little more.
	fanoutGrace = killDelay + pipeDelay + time.Second
)

// FanoutOptions are the inputs of a [Fanout].
type FanoutOptions struct {
	// Notifiers get each notice. The Fanout closes them.
	Notifiers []Notifier
	// Queue is the length of a notifier's queue, at least 2; 0 is 32.
	Queue int
	// Drain is how long Close lets queued notices be sent, 0 is 5 s.
	Drain time.Duration
	Log   *zap.Logger
}

// Fanout passes notices to several notifiers, and its callers never wait. Each notifier has
// a queue and a goroutine, so a slow one does not delay the others.
//
// If notices come faster than a notifier sends them, the newest of its queue are merged
// into one, with the ID [MoreID], the title "and N more", the highest of their urgencies
// and N as the field "more".
type Fanout struct {
	lanes []*lane
	drain time.Duration
	log   *zap.Logger
	quit  context.CancelCauseFunc
	once  sync.Once
}

// NewFanout starts a Fanout.
func NewFanout(o FanoutOptions) *Fanout {
	if o.Queue <= 0 {
		o.Queue = fanoutQueue
	}
	if o.Drain <= 0 {
		o.Drain = fanoutDrain
	}
	f := &Fanout{drain: o.Drain, log: o.Log}
	ctx, quit := context.WithCancelCause(context.Background())
	f.quit = quit
	for _, to := range o.Notifiers {
		l := newLane(to, max(2, o.Queue), o.Log)
		f.lanes = append(f.lanes, l)
		go l.run(ctx)
	}
	return f
}

// Notify queues a notice for every notifier. It never waits, and ignores ctx. Its one error
// is [ErrClosed]; later failures are logged.
func (f *Fanout) Notify(_ context.Context, n Notice) error {
	n = n.clean()
	for _, l := range f.lanes {
		if err := l.add(n); err != nil {
			return err
		}
	}
	return nil
}

// Withdraw takes a notice out of the queues, and has each [Withdrawer] that may have shown
// it withdraw it. It never waits, and ignores ctx. Its one error is [ErrClosed].
func (f *Fanout) Withdraw(_ context.Context, id string) error {
	if id = cleanID(id); id == "" {
		return nil
	}
	for _, l := range f.lanes {
		if err := l.withdraw(id); err != nil {
			return err
		}
	}
	return nil
}

// Close takes nothing more, sends the queued notices within the drain limit, ends those
// still in progress and closes the notifiers. It abandons a notifier that does not end
// within another 4 s.
func (f *Fanout) Close() { f.once.Do(f.shut) }

func (f *Fanout) shut() {
	for _, l := range f.lanes {
		l.shut()
	}
	f.wait(f.drain)
	f.quit(ErrClosed)
	if !f.wait(fanoutGrace) {
		f.log.Error("a notifier does not end: it is left behind")
	}
	for _, l := range f.lanes {
		select {
		case <-l.done:
			l.to.Close()
		default:
			go l.to.Close()
		}
	}
}

// wait waits for all lanes to end, and reports whether they did.
func (f *Fanout) wait(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for _, l := range f.lanes {
		select {
		case <-l.done:
		case <-late.C:
			return false
		}
	}
	return true
}
