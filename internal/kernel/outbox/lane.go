package outbox

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
	"maps"
	"slices"
	"sync"
)

// lane is one queue on its way to one app.
type lane struct {
	queue string
	to    Receiver

	mu sync.Mutex
	// sent is the last message handed to the connection, tail the last durable one.
	sent, tail int64
	// behind is set while messages must be read back from the store, because some of them come
	// before any new one.
	behind, draining bool
	// buffer is for the next event. A connection copies it.
	buffer []byte

	// passed lists the messages that were kept back, in order. Messages behind them go on, and
	// are removed from the store one by one from then on, because not all before them has arrived.
	passed []int64
	apart  bool
	// looks counts the passes over the kept-back messages, and the times that messages were taken
	// back from the connection. During a pass, back is its position, at
	// the matching index in passed, and still lists the messages that remain kept back.
	looks   int
	looking bool
	back    int64
	at      int
	still   []int64

	// unacknowledged are the messages that an app which acknowledges them has and did not acknowledge, in order.
	// acknowledged is the last one of which it did, without those apart.
	unacknowledged []int64
	acknowledged   int64
}

// maxUnacknowledged bounds the messages that an app has and did not acknowledge. Further ones wait in the store.
const maxUnacknowledged = 1024

// mustAcknowledgeLocked reports whether the app has to acknowledge messages before it gets more.
func (l *lane) mustAcknowledgeLocked() bool { return len(l.unacknowledged) >= maxUnacknowledged }

// fullLocked reports whether a message has to wait.
func (l *lane) fullLocked() bool { return l.mustAcknowledgeLocked() || l.to.Line().Crowded() }

// handedLocked notes that the connection has a message.
func (l *lane) handedLocked(id int64) {
	l.sent = max(l.sent, id)
	if l.to.Acknowledges() {
		at, _ := slices.BinarySearch(l.unacknowledged, id)
		l.unacknowledged = slices.Insert(l.unacknowledged, at, id)
	}
}

// doneLocked notes that the app has acknowledged a message, or that the connection no longer has it.
func (l *lane) doneLocked(id int64) {
	if at, is := slices.BinarySearch(l.unacknowledged, id); is {
		l.unacknowledged = slices.Delete(l.unacknowledged, at, at+1)
	}
}

// keepBuffer is the largest buffer to reuse.
const keepBuffer = 16 << 10

// keepBackLocked passes over a message that is kept back.
func (l *lane) keepBackLocked(id int64) {
	l.passed = append(l.passed, id)
	l.apart = true
}

// lookLocked begins a pass over the kept-back messages, or begins it again.
func (l *lane) lookLocked() {
	l.passed = append(l.still, l.passed[l.at:]...)
	l.still, l.at = nil, 0
	if l.looking = len(l.passed) > 0; l.looking {
		l.looks++
		l.back, l.behind = l.passed[0]-1, true
	}
}

// lookedLocked ends a pass: messages that it did not meet are no longer in the store.
func (l *lane) lookedLocked() {
	l.passed, l.still, l.at, l.looking = l.still, nil, 0, false
}

// metLocked reports whether a pass has come to a message that was kept back.
func (l *lane) metLocked(id int64) bool {
	for l.at < len(l.passed) && l.passed[l.at] < id {
		l.at++
	}
	return l.at < len(l.passed) && l.passed[l.at] == id
}

// holdsLocked reports whether a message is kept back.
func (l *lane) holdsLocked(id int64) bool {
	_, here := slices.BinarySearch(l.passed[l.at:], id)
	_, still := slices.BinarySearch(l.still, id)
	return here || still
}

// progress is a lane's position in the store: the last message read, whether a pass runs and which,
// and the last message that was durable before the store was read.
type progress struct {
	after     int64
	looking   bool
	looks     int
	announced int64
}

func (l *lane) progress() progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := progress{after: l.sent, looking: l.looking, looks: l.looks, announced: l.tail}
	if l.looking {
		p.after = l.back
	}
	return p
}

// lanes are the queues with a connected app. A queue without one costs no memory: its messages are
// in the store.
type lanes struct {
	host  Host
	given *given

	mu      sync.Mutex
	byQueue map[string]*lane
}

// Probe takes the lock of the lanes. It hangs if the lock is never released.
func (o *lanes) Probe() {
	o.mu.Lock()
	_ = len(o.byQueue)
	o.mu.Unlock()
}

// lane returns the queue's lane to its current app, nil if it has none. A new lane begins with the
// messages in the store.
func (o *lanes) lane(queue string) *lane {
	to := o.host.Receiver(queue)
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.byQueue[queue]
	switch {
	case to == nil:
		delete(o.byQueue, queue)
		return nil
	case l == nil || l.to != to:
		l = &lane{queue: queue, to: to, behind: true}
		o.byQueue[queue] = l
		// From now on the messages belong to the app.
		o.given.forget(queue)
	}
	return l
}

// known returns a queue's lane as it was last looked up, or nil.
func (o *lanes) known(queue string) *lane {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byQueue[queue]
}

func (o *lanes) current(l *lane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byQueue[l.queue] == l && o.host.Receiver(l.queue) == l.to
}

// Rebind looks up the apps of all queues again, after they may have changed.
func (o *lanes) Rebind() {
	o.mu.Lock()
	queues := slices.Collect(maps.Keys(o.byQueue))
	o.mu.Unlock()
	for _, queue := range queues {
		o.lane(queue)
	}
}

// Leave removes the lanes to an app that is gone.
func (o *lanes) Leave(gone Receiver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for queue, l := range o.byQueue {
		if l.to == gone {
			delete(o.byQueue, queue)
		}
	}
}

// onLine returns the lanes of a connection.
func (o *lanes) onLine(line api.Line) (list []*lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.byQueue {
		if l.to.Line() == line {
			list = append(list, l)
		}
	}
	return list
}

// handed reports whether a message is on its way to its app already.
func (o *lanes) handed(id store.MessageID) bool {
	l := o.known(id.Queue)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return id.ID <= l.sent && !l.holdsLocked(id.ID)
}

// passedOf returns the kept-back messages of a queue with an app, and whether there are any. During
// a pass over them it reports none.
func (o *lanes) passedOf(queue string) (kept func(id int64) bool, some bool) {
	l := o.known(queue)
	if l == nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looking || len(l.passed) == 0 {
		return nil, false
	}
	passed := slices.Clone(l.passed)
	return func(id int64) bool {
		_, found := slices.BinarySearch(passed, id)
		return found
	}, true
}
