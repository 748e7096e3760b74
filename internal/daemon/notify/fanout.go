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
	// fanoutGrace is how long notifiers may take to notice the end: as long as
	// a [Command] waits for a killed process and its output, and a little more.
	fanoutGrace = killDelay + pipeDelay + time.Second
)

// FanoutOptions are what a [Fanout] is given from outside.
type FanoutOptions struct {
	// Notifiers are told each notice. The Fanout closes them.
	Notifiers []Notifier
	// Queue is how many notices may wait for one notifier, at least 2; 0 is 32.
	Queue int
	// Drain is how long Close lets what waits be told, 0 is 5 s.
	Drain time.Duration
	Log   *zap.Logger
}

// Fanout tells several notifiers without anybody waiting for them: each has a
// queue and a goroutine, so a slow one does not hold up the others either.
//
// Where notices come faster than a notifier tells them, the newest of its queue
// are merged into one, with the ID [MoreID], the title "and N more", the highest
// of their urgencies and N as the field "more".
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

// Notify queues a notice for every notifier. It never waits, and ctx does not
// matter to it. Its one error is [ErrClosed]; what goes wrong later is logged.
func (f *Fanout) Notify(_ context.Context, n Notice) error {
	n = n.clean()
	for _, l := range f.lanes {
		if err := l.add(n); err != nil {
			return err
		}
	}
	return nil
}

// Withdraw takes a notice out of the queues, and has it withdrawn by each
// [Withdrawer] that may have told it. It never waits, and ctx does not matter
// to it. Its one error is [ErrClosed].
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

// Close lets nothing in any more, waits until what was queued is told, but no
// longer than the drain limit, then ends what is still under way and closes the
// notifiers. A notifier that does not end within another 4 s is left behind.
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

// wait waits for all lanes to end, and says whether they did.
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
