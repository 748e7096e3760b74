// Package outbox delivers allowed messages to their apps, durably: each queue in the order of the
// decisions, and each message until its app has read it.
//
// It decides nothing. The change that decides a message puts it into a queue ([Delivery.Enter]);
// once that is durable, the message is offered to its app ([Outbox.Offer]). A message that cannot
// go at once is read back from the store later, and compared with the record that allowed it.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Receiver is an app on one connection. Receivers are compared with ==.
type Receiver interface {
	// ID is the app's id, and Line that of its connection.
	ID() string
	Line() api.Line
	// Acknowledges reports whether it acknowledges its messages.
	Acknowledges() bool
}

// Host is the outbox's view of the daemon. Its methods run in the commit and so never wait, except
// those that say so.
type Host interface {
	// Generation counts the changes to the basis of decisions about a tenant's agents.
	Generation(tenant string) uint64
	// Standing weighs a message that has waited by the current state. Its error is a
	// [gate.Withdrawn], a [gate.Anew], or the reason that it cannot tell. It may wait.
	Standing(ctx context.Context, w *gate.Waited) error
	// Lasts reports whether the policy's answers hold until the generation changes.
	Lasts() bool
	// AskAnew enters a request about a message into the change that removes it, or returns the
	// reason why no approval could release it. It may wait.
	AskAnew(ctx context.Context, w *gate.Waited, anew *gate.Anew, change *store.Change) (*gate.Withdrawn, error)
	// Withdrawn tells a person that the message of an approval was removed. It does nothing if the
	// id is empty.
	Withdrawn(approvalID string, why *gate.Withdrawn)
	// Receiver returns the app that takes a queue's messages now, or nil.
	Receiver(queue string) Receiver
	// Directory returns the directory in force.
	Directory() *directory.Directory
	// PausedBy returns the scope of a pause that stops messages between two agents or through a
	// channel, or "".
	PausedBy(channel, from, to string) (scope string)
	// HookEvent makes the event that hands a delivery to an app, which may answer it with a
	// receipt. It appends the payload to a buffer.
	HookEvent(b []byte, to Receiver, d *Delivery, about api.HookContext) gate.Event
	// Handed is called after an app was handed a delivery, to tell observers.
	Handed(to Receiver, d *Delivery, about api.HookContext)
	// Commit makes a change durable. Callers may be told its error. It may wait, and the outbox
	// calls it only where that is safe.
	Commit(c *store.Change) (store.Receipt, error)
}

// Options holds the dependencies of an outbox.
type Options struct {
	Host  Host
	Store *store.Store
	// Search finds the records of a message.
	Search  store.Search
	Keys    gate.Keys
	Now     func() time.Time
	NewID   func() string
	Metrics *metrics.Set
	Log     *zap.Logger
}

// Outbox delivers durable messages to their apps, each queue in the order of the decisions. A
// message stays in the store until its app has taken it out of the socket, or has acknowledged it if the
// app acknowledges messages. If a connection or the daemon ends before that, the message is sent again
// under the same dispatchId.
type Outbox struct {
	lanes
	apart  apart
	host   Host
	store  *store.Store
	search store.Search
	// found is the last record before this outbox: the rows up to it were written before.
	found   uint64
	keys    gate.Keys
	now     func() time.Time
	newID   func() string
	metrics *metrics.Set
	log     *zap.Logger
	// closing ends reads from the store, and tasks are the goroutines that read.
	closing context.Context
	tasks   sync.WaitGroup

	// recalling is held while messages are taken back: several lanes are locked for that.
	recalling sync.Mutex

	dropped dropped
	given   given
	memory  *gate.Memory
	// arrivals are the waiting readers of queues without an app.
	arrivals arrivals
}

// New makes an outbox over an open store, which delivers until the context ends.
func New(closing context.Context, o *Options) *Outbox {
	found := uint64(0)
	if o.Store != nil {
		found = o.Store.Head().Seq
	}
	b := &Outbox{
		host: o.Host, store: o.Store, search: o.Search, found: found, keys: o.Keys, now: o.Now, newID: o.NewID, metrics: o.Metrics, log: o.Log,
		closing: closing, memory: gate.NewMemory(), apart: apart{store: o.Store, log: o.Log},
	}
	b.lanes = lanes{host: o.Host, given: &b.given, byQueue: make(map[string]*lane)}
	return b
}

// Wait waits for the outbox's own goroutines, after its context has ended and the connections are
// closed.
func (o *Outbox) Wait() { o.tasks.Wait() }

// Open opens a message that has just become durable. If it was decided under rules that are no
// longer in force, it stays closed, and the drain checks it. Open runs in the commit and never
// waits.
func (o *Outbox) Open(receipt store.Receipt, d *Delivery) {
	d.basis = basis{d.tenant(), d.Generation}
	if !d.basis.holds(o.host) {
		return
	}
	var err error
	if d.sealed, err = gate.Open(receipt, d.letter, nil); err == nil && !d.Volatile {
		o.memory.Keep(d.sealed, d.ID, d.Generation, d.Body, d.Queue, d.DispatchID)
	}
}

// Offer sends a message that was given to [Outbox.Open], or leaves it to the lane's drain. It runs
// in the commit and never waits. If it sent the message, it returns the function that writes it, to
// be called after the sender's answer.
func (o *Outbox) Offer(d *Delivery) (deliver func()) {
	l := o.lane(d.Queue)
	if l == nil {
		o.arrivals.tell(d.Queue)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = max(l.tail, d.ID)
	switch {
	case d.ID <= l.sent:
		// The drain was faster: it found the message in the store.
		return l.to.Line().Flush
	case !l.behind && o.keptBack(d):
		l.keepBackLocked(d.ID)
		l.sent = d.ID
		return nil
	case l.behind || l.fullLocked() || d.sealed.IsZero() || !d.basis.holds(o.host) || d.astray(o.host.Directory(), l.to) != nil || !o.sendLocked(l, d, false):
		// The drain removes a misdirected message if the removal can be recorded.
		l.behind = true
		o.drainLocked(l)
		return nil
	}
	return l.to.Line().Flush
}

// Resume starts the queues of an app that has become ready.
func (o *Outbox) Resume(queues []string) {
	for _, queue := range queues {
		if l := o.lane(queue); l != nil {
			l.mu.Lock()
			o.drainLocked(l)
			l.mu.Unlock()
		}
	}
}

// LookBack sends messages that a pause no longer keeps back, to apps and to readers.
func (o *Outbox) LookBack() {
	o.arrivals.tellAll()
	o.mu.Lock()
	lanes := slices.Collect(maps.Values(o.byQueue))
	o.mu.Unlock()
	for _, l := range lanes {
		l.mu.Lock()
		if l.lookLocked(); l.looking {
			o.drainLocked(l)
		}
		l.mu.Unlock()
	}
}

// Settle stores which messages apps have taken.
func (o *Outbox) Settle() {
	o.apart.write()
	o.store.Flush()
}

// drainLocked starts reading a lane's messages back from the store. If the app has to acknowledge others
// first, its acknowledgement starts that.
func (o *Outbox) drainLocked(l *lane) {
	if l.draining || l.mustAcknowledgeLocked() {
		return
	}
	l.draining = true
	o.tasks.Go(func() {
		for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
			done, err := o.catchUp(l)
			if done {
				// catchUp has reset draining under the lock, and another drain may run by now.
				return
			}
			if err == nil || !o.failed(l, err, wait) {
				l.mu.Lock()
				l.draining = false
				l.mu.Unlock()
				return
			}
		}
	})
}

// A failed drain starts again after a while, each time after twice as long.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// failed waits after a failed drain, and returns false if the outbox ends.
func (o *Outbox) failed(l *lane, err error, wait time.Duration) bool {
	if o.closing.Err() != nil {
		return false
	}
	o.log.Error("cannot deliver what is waiting: it is tried again", zap.String("queue", l.queue), zap.Duration("after", wait), zap.Error(err))
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
		return true
	case <-o.closing.Done():
		return false
	}
}

// drainPage is the number of messages that are read from the store at a time.
const drainPage = 64

// catchUp sends the waiting messages in the store until there are none, or the app is gone. It is
// done if the lane has stopped draining.
func (o *Outbox) catchUp(l *lane) (done bool, err error) {
	// Messages that an earlier connection has taken must not be sent again.
	o.Settle()
	for o.current(l) {
		if l.to.Line().Room(o.closing) != nil {
			// The connection or the daemon is ending; the next one continues.
			return false, nil
		}
		from := l.progress()
		page, err := o.store.Messages(o.closing, l.queue, from.after, drainPage)
		if err != nil {
			return false, err
		}
		done, err = o.sendPage(l, page, from)
		l.to.Line().Flush()
		if done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// sendPage sends one page. It is done if the store holds nothing unsent; then new messages are sent
// as they come. Messages that became durable after the read may be missing from the page and must
// not be skipped. If a message cannot be checked now, the ones before it are sent.
func (o *Outbox) sendPage(l *lane, page []*store.Message, from progress) (done bool, err error) {
	due, err := o.due(l.to, page)
	page = page[:len(due)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks != from.looks {
		// A pass over kept-back messages has begun, or messages were taken back: the page is from
		// another position.
		return false, nil
	}
	if from.looking {
		return o.sendPassedLocked(l, page, due, err)
	}
	for i, m := range page {
		if d := due[i]; d != nil {
			switch {
			case o.keptBack(d):
				l.keepBackLocked(m.ID)
			case l.mustAcknowledgeLocked():
				// An acknowledgement goes on from here.
				l.draining = false
				return true, nil
			case l.to.Line().Crowded() || !d.basis.holds(o.host):
				return false, nil
			case !o.sendLocked(l, d, false):
				l.draining = false
				return true, nil
			}
		}
		l.sent = m.ID
	}
	if err != nil || len(page) > 0 {
		return false, err
	}
	// All messages up to the announced one are gone: sent, or removed by a receipt or by expiry.
	l.sent = max(l.sent, from.announced)
	if l.sent >= l.tail {
		l.behind, l.draining = false, false
		return true, nil
	}
	return false, nil
}

// sendPassedLocked sends messages of a page that are kept back no longer. The error is the reason
// that the page ends early.
func (o *Outbox) sendPassedLocked(l *lane, page []*store.Message, due []*Delivery, ends error) (done bool, err error) {
	for i, m := range page {
		if m.ID > l.sent {
			l.lookedLocked()
			return false, nil
		}
		if l.metLocked(m.ID) {
			switch d := due[i]; {
			case d == nil:
			case o.keptBack(d):
				l.still = append(l.still, m.ID)
			case l.mustAcknowledgeLocked():
				l.draining = false
				return true, nil
			case l.to.Line().Crowded() || !d.basis.holds(o.host):
				return false, nil
			case !o.sendLocked(l, d, true):
				l.draining = false
				return true, nil
			}
			l.at++
		}
		l.back = m.ID
	}
	if ends == nil && len(page) == 0 {
		l.lookedLocked()
	}
	return false, ends
}

// due returns the deliverable messages of a page, nil in place of each other one. If a message
// cannot be checked or removed now, due returns the ones before it, with the error.
func (o *Outbox) due(to Receiver, page []*store.Message) ([]*Delivery, error) {
	found := make([]*Delivery, 0, len(page))
	for _, m := range page {
		d, err := o.dueOf(to, m)
		if err != nil {
			return found, err
		}
		found = append(found, d)
	}
	return found, nil
}

// dueOf returns the delivery of a waiting message. It returns nil if the message has expired, would
// reach somebody else than it was decided for, or was allowed by no decision, and removes such a
// message, on record.
func (o *Outbox) dueOf(to Receiver, m *store.Message) (*Delivery, error) {
	if m.Altered {
		return nil, o.reject(m, alteredRow)
	}
	if !m.ExpiresAt.IsZero() && !o.now().Before(m.ExpiresAt) {
		return nil, o.expire(m)
	}
	d, err := o.reopen(o.closing, to, m)
	if err != nil {
		return nil, o.notDue(m, d, err)
	}
	return d, nil
}

// notDue removes a message that may not leave, on record. If it cannot tell why, it returns the
// error that it was given.
func (o *Outbox) notDue(m *store.Message, d *Delivery, err error) error {
	why, isWithdrawn := errors.AsType[*gate.Withdrawn](err)
	anew, isAnew := errors.AsType[*gate.Anew](err)
	if row, isUndecided := errors.AsType[undecided](err); isUndecided || errors.Is(err, gate.ErrUndecided) {
		return o.reject(m, cmp.Or(string(row), err.Error()))
	}
	if _, altered := errors.AsType[*store.AlteredError](err); altered {
		return o.reject(m, "what is kept about it was changed by somebody else than the daemon")
	}
	if !isWithdrawn && !isAnew {
		return err
	}
	change := &store.Change{Drains: true}
	if isAnew {
		if why, err = o.host.AskAnew(o.closing, d.waited, anew, change); err != nil {
			return err
		}
	}
	if why == nil {
		_, err = o.takeOutWith(change, m, "asked_anew", withReason(anew.Details, anew.Reason))
		return err
	}
	details := withReason(why.Details, why.Reason)
	if why.Code != "" {
		details["code"] = why.Code
	}
	if _, err = o.takeOutWith(&store.Change{Drains: true}, m, "withdrawn", details); err == nil {
		o.host.Withdrawn(d.approvalID(), why)
	}
	return err
}

// keptBack reports whether a delivery may not go out now: it is paused, or a person is dropping it.
func (o *Outbox) keptBack(d *Delivery) bool {
	return o.dropped.has(d.MessageID) || d.pausedBy(o.host) != ""
}

// pausedBy returns the scope of a pause that keeps a delivery back, or "": a pause of the sender,
// of the receiver, or of the channel.
func (d *Delivery) pausedBy(host Host) string {
	return host.PausedBy(d.About.ChannelID, d.From, d.About.AgentID)
}

// sendLocked hands a message to the connection and never waits. Passed is set if it was kept back
// before.
func (o *Outbox) sendLocked(l *lane, d *Delivery, passed bool) bool {
	h := newHanding(o, d)
	h.lane, h.apart, h.passed = l, l.apart, passed
	if d.Name != "" {
		if !l.to.Line().Put(d.sealed.Event(d.Name), &h) {
			return false
		}
		l.handedLocked(d.ID)
		return true
	}
	about := d.about(o.now())
	event := o.host.HookEvent(l.buffer[:0], l.to, d, about)
	if l.buffer = nil; cap(event.Payload()) <= keepBuffer {
		l.buffer = event.Payload()
	}
	if !l.to.Line().Put(event, &h) {
		return false
	}
	l.handedLocked(d.ID)
	o.metrics.Delivery(metrics.Handed)
	o.host.Handed(l.to, d, about)
	return true
}

// Acknowledge records an app's receipt, and removes the message from the store.
func (o *Outbox) Acknowledge(app string, m *registry.Delivery, said registry.Receipt) error {
	r := &audit.Record{
		ID: o.newID(), ActionType: audit.ActionDelivery, Event: "delivered", AppID: app, SessionKey: m.SessionKey,
		DispatchID: m.DispatchID, Details: map[string]any{"decidedBy": m.RecordSeq},
	}
	if !said.Delivered {
		r.Event, r.Details["error"] = "failed", said.Error
	}
	_, err := o.host.Commit(&store.Change{Records: []*audit.Record{r}, Parts: []store.Part{store.Taken{m.MessageID}}, Drains: true})
	return err
}

// expire removes a message that was not fetched in time, with a record.
func (o *Outbox) expire(m *store.Message) error {
	_, err := o.takeOutWith(&store.Change{Drains: true}, m, "expired", map[string]any{"expiredAt": m.ExpiresAt})
	return err
}

// takeOutWith removes a message in a change that also holds the consequences.
func (o *Outbox) takeOutWith(change *store.Change, m *store.Message, outcome string, details map[string]any) (seq uint64, err error) {
	details["decidedBy"], details["queue"] = m.RecordSeq, m.Queue
	if o.given.has(m.MessageID) || mayArrive(o, m) {
		details["given"] = true
	}
	change.Records = slices.Insert(change.Records, 0, &audit.Record{
		ID: o.newID(), ActionType: audit.ActionDelivery, Event: outcome, Outcome: outcome, DispatchID: m.DispatchID, Details: details,
	})
	change.Add(store.Taken{m.MessageID})
	receipt, err := o.host.Commit(change)
	if err == nil {
		o.given.remove(m.MessageID)
	}
	return receipt.Seq, err
}

// Sweep removes expired messages from queues whose app does not connect. It looks at the oldest of
// every queue: they expire about in order, so it stops at the first one with time left.
func (o *Outbox) Sweep(ctx context.Context) error {
	o.dropped.sweep(o.now())
	queue := ""
	for {
		var err error
		if queue, err = o.store.NextQueue(ctx, queue); err != nil || queue == "" {
			return err
		}
		if err := o.sweepQueue(ctx, queue); err != nil {
			return err
		}
	}
}

func (o *Outbox) sweepQueue(ctx context.Context, queue string) error {
	// The drain expires messages for a connected app, except kept-back ones.
	mine := func(int64) bool { return true }
	if o.host.Receiver(queue) != nil {
		var some bool
		if mine, some = o.passedOf(queue); !some {
			return nil
		}
	}
	var after int64
	for {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return err
		}
		now := o.now()
		for _, m := range page {
			after = m.ID
			if m.Altered {
				if err := o.reject(m, alteredRow); err != nil {
					return err
				}
				continue
			}
			if m.ExpiresAt.IsZero() || now.Before(m.ExpiresAt) {
				return nil
			}
			if !mine(m.ID) {
				continue
			}
			if err := o.expire(m); err != nil {
				return err
			}
		}
	}
}
