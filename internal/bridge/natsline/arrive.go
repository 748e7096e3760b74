package natsline

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/carrier"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/lane"
)

// arrival is a frame that has come. Done is called once if the daemon has decided about it, with its
// receipt, nil for none; it is not called if the frame has to come again.
type arrival struct {
	frame []byte
	done  func(receipt *fleetapi.FleetFrame)
	// tried, unless it is nil, is called after the daemon's answer, also if that is an error.
	tried func()
}

// sender is the queue of the frames from one mailbox. One at a time goes to the daemon.
type sender struct {
	*line
	ctx   context.Context
	queue chan *arrival
	// early are the frames that wait for others before them, by number.
	early map[uint64]*arrival
	// held is the size of those, and queued of the frames in the queue.
	held, queued int
}

// queued is how many frames of a host wait for the daemon: those of a window, each sent directly and
// stored.
const queued = 2 * lane.Window

// queue returns the queue of a name, of which there are two for each host of the roster at most.
func (l *line) queue(ctx context.Context, name string) *sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[name]
	if s == nil {
		s = &sender{line: l, ctx: ctx, queue: make(chan *arrival, queued), early: map[uint64]*arrival{}}
		l.senders[name] = s
		go s.run()
	}
	return s
}

// share is the part of a bound for one queue, of which each host has two. It has room for one frame at
// least. The caller has locked the line.
func (l *line) share(bound int) int { return max(maxPayload, bound/max(1, 2*len(l.hosts))) }

// put queues a frame, or drops it if too many wait: it comes again.
func (s *sender) put(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued+len(a.frame) > s.share(maxQueued) {
		return
	}
	select {
	case s.queue <- a:
		s.queued += len(a.frame)
	default:
	}
}

// wait queues a frame as soon as there is room.
func (s *sender) wait(a *arrival) {
	s.mu.Lock()
	for s.queued > 0 && s.queued+len(a.frame) > s.share(maxQueued) && s.ctx.Err() == nil {
		s.room.Wait()
	}
	s.queued += len(a.frame)
	s.mu.Unlock()
	select {
	case s.queue <- a:
	case <-s.ctx.Done():
	}
}

// leaves counts a frame that has left its queue.
func (s *sender) leaves(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued -= len(a.frame)
	s.room.Broadcast()
}

func (s *sender) run() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case first := <-s.queue:
			s.leaves(first)
			for a := first; a != nil; {
				var err error
				if a, err = s.bring(a); err != nil {
					s.end(err)
					return
				}
			}
			if first.tried != nil {
				first.tried()
			}
		}
	}
}

// bring brings a frame to the daemon. It returns a frame whose turn it is now, nil for none.
func (s *sender) bring(a *arrival) (next *arrival, err error) {
	read, err := frame.Parse(a.frame)
	if err != nil {
		s.say("a frame of another host cannot be read: %s", err)
		a.done(nil)
		return nil, nil
	}
	var result fleetapi.FleetBringResult
	err = s.daemon.Call(s.ctx, "fleet.bring", &fleetapi.FleetBringParams{Frame: base64.StdEncoding.EncodeToString(a.frame)}, &result)
	switch {
	case s.ctx.Err() != nil:
		return nil, s.ctx.Err()
	case err == nil && result.Waits:
		s.hold(read.Seq, a)
		return s.turn(result.Next), nil
	case err == nil:
		a.done(result.Receipt)
		if read.Kind == frame.Receipt {
			return nil, nil
		}
		return s.turn(read.Seq + 1), nil
	case decided(err):
		// The copy is dropped. The sender has the message until it gets a receipt.
		s.say("the daemon refuses a frame of %s: %s", read.From, api.AsError(err).Message)
		a.done(nil)
		return nil, nil
	case lost(err):
		return nil, err
	}
	s.say("the daemon cannot take a frame now: %s", api.AsError(err).Message)
	return nil, nil
}

// decided reports whether the daemon would refuse the same frame again.
func decided(err error) bool {
	failure, ok := errors.AsType[*api.Error](err)
	return ok && slices.Contains([]api.Code{api.InvalidParams, api.Forbidden, api.NotFound, api.Conflict}, failure.Code)
}

// lost reports whether the connection to the daemon has ended.
func lost(err error) bool {
	failure, ok := errors.AsType[*api.Error](err)
	return !ok || failure.Code == api.ConnectionClosed || failure.Code == api.UnknownError
}

// hold keeps a frame that came before its turn, in place of an earlier copy. It drops it if there is
// no room.
func (s *sender) hold(seq uint64, a *arrival) {
	s.turn(seq)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.early) < lane.Window && s.held+len(a.frame) <= s.share(maxHeld) {
		s.early[seq] = a
		s.held += len(a.frame)
	}
}

// turn takes the frame with a number out of those that wait, nil if there is none.
func (s *sender) turn(seq uint64) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.early[seq]
	if a != nil {
		delete(s.early, seq)
		s.held -= len(a.frame)
	}
	return a
}

const (
	pullBatch = 64
	// pullTime is how long the broker keeps a pull open.
	pullTime = 30 * time.Second
)

// drain takes what lies in the stream already, and returns once the daemon has it. So the daemon offers
// nothing whose receipt is there: such a repetition would fill the slot of the next message. It takes as much
// as the slots of all hosts hold, and no more: a host that goes on storing would keep it here.
func (l *line) drain(ctx context.Context) error {
	var tried sync.WaitGroup
	l.mu.Lock()
	pulls := (len(l.hosts)*len(slots())+pullBatch-1)/pullBatch + 1
	l.mu.Unlock()
	for n := range pulls {
		status, err := l.pull(ctx, fmt.Sprint("d", n), fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, pullBatch), &tried)
		if err != nil {
			return err
		}
		over := make(chan struct{})
		go func() { tried.Wait(); close(over) }()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-l.lost:
			return err
		}
		if status != "" {
			break
		}
	}
	return nil
}

// pulls takes frames out of the stream, again and again. A pull that the broker refuses is made again
// after a wait.
func (l *line) pulls(ctx context.Context) error {
	var again carrier.Waits
	for n := 1; ctx.Err() == nil; n++ {
		status, err := l.pull(ctx, fmt.Sprint(n), fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, pullBatch, pullTime), nil)
		if err != nil {
			return err
		}
		switch status {
		case "", "404", "408":
			again.Reset()
			continue
		case statusNobody:
			l.say("the broker has no consumer for this host, so that nothing stored is taken: ocipd fleet broker makes it")
		}
		if !again.Wait(ctx) {
			break
		}
	}
	return ctx.Err()
}

// pull makes one pull, and returns the status that ended it, "" if it brought all frames that it may.
// Tried counts the frames that the daemon was not asked about yet.
func (l *line) pull(ctx context.Context, n string, body []byte, tried *sync.WaitGroup) (status string, err error) {
	inbox := answers(l.own) + ".q." + l.secret + "." + n
	// A broker that loses the consumer meanwhile may give no answer at all.
	bounded, cancel := context.WithTimeout(ctx, pullTime+connectWait)
	defer cancel()
	came := make(chan *nats.Msg)
	sub, err := l.nc.Subscribe(inbox, func(m *nats.Msg) {
		select {
		case came <- m:
		case <-bounded.Done():
		}
	})
	if err != nil {
		return "", fmt.Errorf("cannot pull at the broker: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may have ended
	if err := sub.SetPendingLimits(-1, pullBatch*maxPayload); err != nil {
		return "", fmt.Errorf("cannot pull at the broker: %w", err)
	}
	if err := l.nc.PublishRequest(nextOf(l.own), inbox, body); err != nil {
		return "", fmt.Errorf("cannot pull at the broker: %w", err)
	}
	for range pullBatch {
		var m *nats.Msg
		select {
		case m = <-came:
		case <-l.ended:
			return "", errLost
		case <-bounded.Done():
			return "", ctx.Err()
		}
		// A frame has a subject of its own. Its sender may give it the header of a status as well.
		if status := m.Header.Get(statusHeader); status != "" && m.Subject == inbox {
			return status, nil
		}
		l.pulled(ctx, m, tried)
	}
	return "", nil
}

// pulled takes a frame of the stream. A frame of a mailbox that the roster does not have yet stays there,
// and comes again.
func (l *line) pulled(ctx context.Context, m *nats.Msg, tried *sync.WaitGroup) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 4 || parts[0] != "m" || m.Reply == "" || !l.knows(parts[2]) {
		return
	}
	a := &arrival{frame: m.Data, done: func(receipt *fleetapi.FleetFrame) {
		// The daemon's decision is on disk. The slot is free before the sender gets the receipt and fills
		// it again.
		err := l.nc.Publish(m.Reply, []byte("+ACK"))
		if err == nil && receipt != nil {
			err = l.offer(ctx, receipt)
		}
		if err != nil {
			l.end(err)
		}
	}}
	if tried != nil {
		tried.Add(1)
		a.tried = tried.Done
	}
	l.queue(ctx, parts[2]).wait(a)
}
