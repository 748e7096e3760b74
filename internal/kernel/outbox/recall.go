package outbox

import (
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// handing is a message in the queue of a connection, or in the answer to a reader. It is small,
// because the queue has the text.
type handing struct {
	outbox *Outbox
	id     store.MessageID
	// lane is the lane of a message for an app.
	lane *lane
	// apart is set if earlier messages of the lane were kept back, and passed if this one was.
	apart, passed     bool
	basis             basis
	channel, from, to string
}

func newHanding(o *Outbox, d *Delivery) handing {
	return handing{outbox: o, id: d.MessageID, basis: d.basis, from: d.From, to: d.About.AgentID, channel: d.About.ChannelID}
}

// Stays reports whether the message may still be written: it was weighed by the rules in force, no
// pause keeps it back, and nobody has dropped it (gate.Fate).
func (h *handing) Stays() bool {
	o := h.outbox
	return h.basis.holds(o.host) && o.host.PausedBy(h.channel, h.from, h.to) == "" && !o.dropped.has(h.id)
}

// Taken notes that an app has a message, and with it all earlier ones, unless some of those were
// kept back or are not acknowledged (gate.Recallable).
func (h *handing) Taken() {
	o, id := h.outbox, h.id
	if h.lane.to.Acknowledges() {
		id.ID = h.acknowledged()
	}
	if !h.apart {
		o.store.Taken(id)
		return
	}
	if o.apart.add(id) {
		o.tasks.Go(o.apart.write)
	}
}

// acknowledged notes that the app has acknowledged a message, and returns the last one up to which it has
// acknowledged all, or the message itself if some were kept back. If the app had to acknowledge first, it
// gets more.
func (h *handing) acknowledged() int64 {
	l := h.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doneLocked(h.id.ID)
	if l.behind && len(l.unacknowledged) <= maxUnacknowledged/2 {
		h.outbox.drainLocked(l)
	}
	if h.apart {
		return h.id.ID
	}
	l.acknowledged = max(l.acknowledged, h.id.ID)
	if len(l.unacknowledged) > 0 {
		return min(l.acknowledged, l.unacknowledged[0]-1)
	}
	return l.acknowledged
}

// apart lists messages that their apps have taken while earlier ones were kept back by a pause. They
// leave the store one by one.
type apart struct {
	store *store.Store
	log   *zap.Logger

	mu  sync.Mutex
	ids []store.MessageID
	// writing is held while they leave.
	writing sync.Mutex
}

// add reports whether the message is the only one.
func (a *apart) add(id store.MessageID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, id)
	return len(a.ids) == 1
}

// write removes the messages from the store. If that fails, they come again,
// under the same dispatchId.
func (a *apart) write() {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mu.Lock()
	ids := a.ids
	a.ids = nil
	a.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	if _, err := a.store.Commit(&store.Change{Parts: []store.Part{store.Taken(ids)}, Drains: true}); err != nil {
		a.log.Warn("cannot note what apps have taken: it comes again", zap.Error(err))
	}
}

// Recall takes back what is queued for connections and may not be written any more, after the rules
// or the pauses have changed. Messages that were taken back are weighed again from the store. If
// one of them is half written, its connection ends.
func (o *Outbox) Recall(from ...api.Line) {
	o.recalling.Lock()
	defer o.recalling.Unlock()
	for _, line := range from {
		recall(o, line)
	}
}

// recall is [Outbox.Recall] for one connection.
func recall(o *Outbox, line api.Line) {
	lanes := o.onLine(line)
	// While the lanes are locked, nobody puts a later message before those that were taken back.
	for _, l := range lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	taken, ended := line.Recall()
	if ended {
		// The messages wait for the app's next connection.
		o.mu.Lock()
		for _, l := range lanes {
			if o.byQueue[l.queue] == l {
				delete(o.byQueue, l.queue)
			}
		}
		o.mu.Unlock()
		return
	}
	back := make(map[*lane][]*handing)
	for _, t := range taken {
		if h, ours := t.(*handing); ours {
			back[h.lane] = append(back[h.lane], h)
		}
	}
	for _, l := range lanes {
		if hs := back[l]; len(hs) > 0 {
			l.takeBackLocked(hs)
			o.drainLocked(l)
		}
	}
}

// takeBackLocked sets a lane back before messages that it has sent.
func (l *lane) takeBackLocked(back []*handing) {
	l.passed, l.still, l.at = append(l.still, l.passed[l.at:]...), nil, 0
	for _, h := range back {
		l.doneLocked(h.id.ID)
		if h.passed {
			l.passed = append(l.passed, h.id.ID)
		} else {
			l.sent = min(l.sent, h.id.ID-1)
		}
	}
	// The messages from there on are read again in their order.
	l.passed = slices.DeleteFunc(l.passed, func(id int64) bool { return id > l.sent })
	slices.Sort(l.passed)
	l.lookLocked()
	l.looks++
	l.behind = true
}
