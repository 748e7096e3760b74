package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/registry"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// delivery is one message on its way from the store to an app.
type delivery struct {
	store.Message
	body
}

// body is what the store keeps of a delivery: two lines, what it is about and
// the data of its event, which is never decoded again.
type body struct {
	Hook api.Hook `json:"hook,omitzero"`
	// Event, where set, is the name of an event that is no hook.
	Event string `json:"event,omitzero"`
	RunID string `json:"runId,omitzero"`
	// From is the agent that sent the message, absent where it came from outside.
	From string `json:"from,omitzero"`
	// For is which agent the message was decided for, see [Agent.identified].
	For   string          `json:"for,omitzero"`
	About api.HookContext `json:"about"`
	Data  jsontext.Value  `json:"-"`
}

// reference is what an answer to a delivery is about.
func (d *delivery) reference() *registry.Delivery {
	return &registry.Delivery{MessageID: d.MessageID, RecordSeq: d.RecordSeq, DispatchID: d.DispatchID, SessionKey: d.About.SessionKey}
}

// encode writes the first line as the JSON library would.
func (b *body) encode() []byte {
	text := make([]byte, 0, headBytes+len(b.Data))
	text = jsonline.TextIfAny(append(text, '{'), "hook", string(b.Hook))
	text = jsonline.TextIfAny(text, "event", b.Event)
	text = jsonline.TextIfAny(text, "runId", b.RunID)
	text = jsonline.TextIfAny(text, "from", b.From)
	text = jsonline.TextIfAny(text, "for", b.For)
	text = b.About.Append(jsonline.Key(text, "about"))
	return append(append(text, "}\n"...), b.Data...)
}

// headBytes is about what a delivery's first line takes.
const headBytes = 256

func (b *body) decode(text []byte) error {
	head, data, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return errors.New("not a delivery")
	}
	b.Data = data
	return json.Unmarshal(head, b)
}

// enter puts a delivery into the change that decides it.
func (d *delivery) enter(c *store.Change) {
	d.Body = d.encode()
	c.Add(&d.Message)
}

func (d *delivery) about(now time.Time) api.HookContext {
	about := d.About
	about.Timestamp = now.UnixMilli()
	return about
}

// channelQueue and agentQueue name the queues of the store's outbox.
func channelQueue(channel string) string { return "channel:" + channel }

func agentQueue(agent string) string { return "agent:" + agent }

// appQueue holds what an app itself is told, also after it reconnects.
func appQueue(app string) string { return "app:" + app }

// outbox brings durable messages to the apps they are for, each queue in the
// order of the decisions. A message stays in the store until its app has taken
// it out of the socket; what was under way when a connection or the daemon
// ended is sent again under the same dispatchId.
type outbox struct {
	kernel *Kernel

	mu sync.Mutex
	// lanes holds the queues whose app is connected. A queue without one costs
	// no memory: its messages are in the store.
	lanes map[string]*lane

	// apart are messages that their apps have taken behind ones that a pause kept
	// back: they leave the store one by one. writing is held while that is done.
	apartMu sync.Mutex
	apart   []store.MessageID
	writing sync.Mutex

	dropped dropped
	decided *decided
}

// lane is one queue on its way to one app.
type lane struct {
	queue string
	app   *registry.App

	mu sync.Mutex
	// sent is the last message handed to the connection, tail the last one
	// that is durable.
	sent, tail int64
	// behind is set while messages must be read back from the store, because
	// some are waiting there that come before any new one.
	behind, draining bool

	// passed are the messages that a pause kept back, in their order. Those behind
	// them go on, and from then on are taken out of the store apart: what came before
	// them is not with its receiver.
	passed []int64
	apart  bool
	// looks counts the looks back at what was passed. While there is one, back is
	// how far it has come, at the place in passed, and still what is kept back still.
	looks   int
	looking bool
	back    int64
	at      int
	still   []int64
}

// keepBack passes a message over. It is called with the lane's lock.
func (l *lane) keepBack(id int64) {
	l.passed = append(l.passed, id)
	l.apart = true
}

// look begins a look back at what was passed, or begins it anew. It is called with
// the lane's lock.
func (l *lane) look() {
	l.passed = append(l.still, l.passed[l.at:]...)
	l.still, l.at = nil, 0
	if l.looking = len(l.passed) > 0; l.looking {
		l.looks++
		l.back, l.behind = l.passed[0]-1, true
	}
}

// looked ends a look back: what it did not meet is no longer in the store.
func (l *lane) looked() {
	l.passed, l.still, l.at, l.looking = l.still, nil, 0, false
}

// met reports whether a look back has come to a message that was passed.
func (l *lane) met(id int64) bool {
	for l.at < len(l.passed) && l.passed[l.at] < id {
		l.at++
	}
	return l.at < len(l.passed) && l.passed[l.at] == id
}

// holds reports whether a message is kept back. It is called with the lane's lock.
func (l *lane) holds(id int64) bool {
	_, here := slices.BinarySearch(l.passed[l.at:], id)
	_, still := slices.BinarySearch(l.still, id)
	return here || still
}

func newOutbox(k *Kernel) *outbox {
	return &outbox{kernel: k, lanes: make(map[string]*lane), decided: newDecided()}
}

// queuesOf lists the queues whose messages an app receives.
func (k *Kernel) queuesOf(a *registry.App) (queues []string) {
	for _, channel := range k.apps.Channels(a) {
		queues = append(queues, channelQueue(channel))
	}
	for _, agent := range k.rules().directory.SpokenBy(a.ID()) {
		queues = append(queues, agentQueue(agent.ID))
	}
	return append(queues, appQueue(a.ID()))
}

// receiverOf returns the app that takes a queue's messages now, or nil.
func (k *Kernel) receiverOf(queue string) *registry.App {
	kind, name := directory.Split(queue)
	r := k.rules()
	switch kind {
	case "channel":
		return k.apps.ChannelReceiver(r.terms, name)
	case "agent":
		if agent := r.directory.Agent(name); agent != nil {
			return k.apps.Receiver(r.terms, agent.App)
		}
	case "app":
		return k.apps.Receiver(r.terms, name)
	}
	return nil
}

// lane returns the queue's way to its present app, nil where it has none. A
// way that is new begins with what is in the store.
func (o *outbox) lane(queue string) *lane {
	a := o.kernel.receiverOf(queue)
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[queue]
	switch {
	case a == nil:
		delete(o.lanes, queue)
		return nil
	case l == nil || l.app != a:
		l = &lane{queue: queue, app: a, behind: true}
		o.lanes[queue] = l
	}
	return l
}

// rebind finds out anew whose the queues are, once that may have changed.
func (o *outbox) rebind() {
	o.mu.Lock()
	queues := slices.Collect(maps.Keys(o.lanes))
	o.mu.Unlock()
	for _, queue := range queues {
		o.lane(queue)
	}
}

// leave forgets the ways to an app that is gone.
func (o *outbox) leave(a *registry.App) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for queue, l := range o.lanes {
		if l.app == a {
			delete(o.lanes, queue)
		}
	}
}

// offer sends a message that has just become durable, or leaves it to the
// lane's drain. It never waits: it runs in the commit. Where the message was
// sent it returns what has it written, for when its sender has been answered.
func (o *outbox) offer(d *delivery) (deliver func()) {
	l := o.lane(d.Queue)
	if l == nil {
		o.decided.add(&d.Message)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = max(l.tail, d.ID)
	switch {
	case d.ID <= l.sent:
		// The drain was faster: it found the message in the store.
		return l.app.Link().Flush
	case !l.behind && o.kernel.keptBack(d) != "":
		o.decided.add(&d.Message)
		l.keepBack(d.ID)
		l.sent = d.ID
		return nil
	case l.behind || l.app.Link().Crowded() || !o.send(l, d):
		o.decided.add(&d.Message)
		l.behind = true
		o.drain(l)
		return nil
	}
	return l.app.Link().Flush
}

// resume lets queues flow whose app has become ready.
func (o *outbox) resume(queues []string) {
	for _, queue := range queues {
		if l := o.lane(queue); l != nil {
			l.mu.Lock()
			o.drain(l)
			l.mu.Unlock()
		}
	}
}

// lookBack lets flow what a pause kept back that is over.
func (o *outbox) lookBack() {
	o.mu.Lock()
	lanes := slices.Collect(maps.Values(o.lanes))
	o.mu.Unlock()
	for _, l := range lanes {
		l.mu.Lock()
		if l.look(); l.looking {
			o.drain(l)
		}
		l.mu.Unlock()
	}
}

// handed reports whether a message is on its way to its app already.
func (o *outbox) handed(id store.MessageID) bool {
	o.mu.Lock()
	l := o.lanes[id.Queue]
	o.mu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return id.ID <= l.sent && !l.holds(id.ID)
}

// taken notes that an app has a message, and with it all that came before, unless
// some of that was kept back.
func (o *outbox) taken(l *lane, id store.MessageID) func() {
	if !l.apart {
		return func() { o.kernel.store.Taken(id) }
	}
	return func() {
		o.apartMu.Lock()
		o.apart = append(o.apart, id)
		first := len(o.apart) == 1
		o.apartMu.Unlock()
		if first {
			o.kernel.tasks.Go(o.writeApart)
		}
	}
}

// writeApart takes out of the store what was taken apart. What cannot be written
// comes again, under the same dispatchId.
func (o *outbox) writeApart() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.apartMu.Lock()
	ids := o.apart
	o.apart = nil
	o.apartMu.Unlock()
	if len(ids) == 0 {
		return
	}
	if _, err := o.kernel.store.Commit(&store.Change{Parts: []store.Part{store.Taken(ids)}, Drains: true}); err != nil {
		o.kernel.log.Warn("cannot note what apps have taken: it comes again", zap.Error(err))
	}
}

// settle has the store know what apps have taken.
func (o *outbox) settle() {
	o.writeApart()
	o.kernel.store.Flush()
}

// drain starts reading a lane's messages back from the store. It is called
// with the lane's lock.
func (o *outbox) drain(l *lane) {
	if l.draining {
		return
	}
	l.draining = true
	o.kernel.tasks.Go(func() {
		if err := o.catchUp(l); err != nil {
			o.kernel.log.Error("cannot deliver what is waiting", zap.String("queue", l.queue), zap.Error(err))
		}
	})
}

// drainPage is how many messages are read from the store at a time.
const drainPage = 64

// catchUp sends what waits in the store until nothing does, or the app is gone.
func (o *outbox) catchUp(l *lane) (err error) {
	k, done := o.kernel, false
	defer func() {
		// Whoever was done has said so already, under the lock that decided
		// it, and another drain may be under way by now.
		if !done {
			l.mu.Lock()
			l.draining = false
			l.mu.Unlock()
		}
	}()
	// What an earlier connection has taken must not be sent again.
	o.settle()
	for o.current(l) {
		if l.app.Link().Room(k.closing) != nil {
			// The connection or the daemon is ending; the next one goes on.
			return nil
		}
		from := l.progress()
		page, err := k.store.Messages(k.closing, l.queue, from.after, drainPage)
		if err != nil {
			return err
		}
		done, err = o.sendPage(l, page, from)
		l.app.Link().Flush()
		if done || err != nil {
			return err
		}
	}
	return nil
}

// progress is where a lane reads on: after which message, whether and in which look
// back, and the last message that was durable before the store is asked.
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

func (o *outbox) current(l *lane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lanes[l.queue] == l && o.kernel.receiverOf(l.queue) == l.app
}

// sendPage sends one page. It is done when the store holds nothing that was
// not sent, and then new messages are sent as they come. What became durable since
// the store was asked may be missing from the page and must not be passed over.
func (o *outbox) sendPage(l *lane, page []*store.Message, from progress) (done bool, err error) {
	due, err := o.kernel.due(l.queue, page)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks != from.looks {
		// A look back began meanwhile: the page is from another place.
		return false, nil
	}
	if from.looking {
		return o.sendPassed(l, page, due)
	}
	for i, m := range page {
		if d := due[i]; d != nil {
			switch {
			case o.kernel.keptBack(d) != "":
				l.keepBack(m.ID)
			case l.app.Link().Crowded():
				return false, nil
			case !o.send(l, d):
				l.draining = false
				return true, nil
			}
		}
		l.sent = m.ID
	}
	if len(page) > 0 {
		return false, nil
	}
	// Nothing is left of what was announced: it was sent, or taken out by a
	// receipt or its end.
	l.sent = max(l.sent, from.announced)
	if l.sent >= l.tail {
		l.behind, l.draining = false, false
		return true, nil
	}
	return false, nil
}

// sendPassed sends what of a page was kept back and is not any more. It is called
// with the lane's lock.
func (o *outbox) sendPassed(l *lane, page []*store.Message, due []*delivery) (done bool, err error) {
	for i, m := range page {
		if m.ID > l.sent {
			l.looked()
			return false, nil
		}
		if l.met(m.ID) {
			switch d := due[i]; {
			case d == nil:
			case o.kernel.keptBack(d) != "":
				l.still = append(l.still, m.ID)
			case l.app.Link().Crowded():
				return false, nil
			case !o.send(l, d):
				l.draining = false
				return true, nil
			}
			l.at++
		}
		l.back = m.ID
	}
	if len(page) == 0 {
		l.looked()
	}
	return false, nil
}

// due returns what of a page of waiting messages is to be delivered, nil in the
// place of each that is not: one that waited too long, or for an agent that is
// another one now under the same id, or that no decision let through. These are
// taken out, on record.
func (k *Kernel) due(queue string, page []*store.Message) ([]*delivery, error) {
	now, found := k.now(), make([]*delivery, len(page))
	kind, name := directory.Split(queue)
	for i, m := range page {
		if !m.ExpiresAt.IsZero() && !now.Before(m.ExpiresAt) {
			if err := k.expire(m); err != nil {
				return nil, err
			}
			continue
		}
		d := &delivery{Message: *m}
		if d.decode(m.Body) != nil {
			if err := k.reject(m, "it cannot be read"); err != nil {
				return nil, err
			}
			continue
		}
		if agent := k.rules().directory.Agent(name); kind == "agent" && d.For != "" && agent != nil && agent.Identified() != d.For {
			if err := k.withdraw(m, map[string]any{"decidedFor": d.For, "isNow": agent.Identified()}); err != nil {
				return nil, err
			}
			continue
		}
		why, err := k.rules().undecided(k.closing, m, d)
		if err != nil {
			return nil, err
		}
		if why != "" {
			if err := k.reject(m, why); err != nil {
				return nil, err
			}
			continue
		}
		found[i] = d
	}
	return found, nil
}

// send hands a message to the connection. It is called with the lane's lock
// and never waits.
func (o *outbox) send(l *lane, d *delivery) bool {
	k, a := o.kernel.rules(), l.app
	if o.dropped.has(d.MessageID) {
		l.sent = max(l.sent, d.ID)
		return true
	}
	if d.Event != "" {
		if !a.Link().Send(d.Event, d.Data, o.taken(l, d.MessageID)) {
			return false
		}
		l.sent = max(l.sent, d.ID)
		return true
	}
	about := d.about(k.now())
	event, payload := k.apps.Deliver(a, d.Hook, d.Data, about, d.reference())
	if !a.Link().Send(event, payload, o.taken(l, d.MessageID)) {
		return false
	}
	l.sent = max(l.sent, d.ID)
	k.metrics.Delivery(metrics.Handed)
	if d.Hook == api.MessageSending {
		// The owner too, behind the message: it may have asked for that.
		k.apps.Observe(k.terms, api.MessageSent, d.Data, about, nil)
	} else {
		k.apps.Observe(k.terms, api.MessageReceived, d.Data, about, a)
		k.apps.Observe(k.terms, api.AgentStarting, runEvent(d), about, nil)
	}
	return true
}

func runEvent(d *delivery) []byte {
	return fmt.Appendf(nil, `{"runId":%s,"agentId":%s,"sessionKey":%s}`,
		api.String(d.RunID), api.String(d.About.AgentID), api.String(d.About.SessionKey))
}

// acknowledge records a receipt. The message is with its receiver for good.
func (o *outbox) acknowledge(a *registry.App, d *registry.Delivery, said registry.Receipt) error {
	r := &audit.Record{
		ID: o.kernel.newID(), ActionType: audit.ActionDelivery, Event: "delivered", AppID: a.ID(), SessionKey: d.SessionKey,
		DispatchID: d.DispatchID, Details: map[string]any{"decidedBy": d.RecordSeq},
	}
	if !said.Delivered {
		r.Event, r.Details["error"] = "failed", said.Error
	}
	_, err := o.kernel.commit(&store.Change{Records: []*audit.Record{r}, Parts: []store.Part{store.Taken{d.MessageID}}, Drains: true})
	return err
}

// expire takes a message out that nobody fetched in time, with its record.
func (k *Kernel) expire(m *store.Message) error {
	_, err := k.takeOut(m, "expired", map[string]any{"expiredAt": m.ExpiresAt})
	return err
}

// withdraw takes a message out that was decided for somebody else than it would
// reach now, with its record.
func (k *Kernel) withdraw(m *store.Message, details map[string]any) error {
	_, err := k.takeOut(m, "withdrawn", details)
	return err
}

func (k *Kernel) takeOut(m *store.Message, outcome string, details map[string]any) (seq uint64, err error) {
	details["decidedBy"], details["queue"] = m.RecordSeq, m.Queue
	receipt, err := k.commit(&store.Change{
		Records: []*audit.Record{{
			ID: k.newID(), ActionType: audit.ActionDelivery, Event: outcome, Outcome: outcome, DispatchID: m.DispatchID, Details: details,
		}},
		Parts:  []store.Part{store.Taken{m.MessageID}},
		Drains: true,
	})
	return receipt.Seq, err
}

// sweep takes expired messages out of queues whose app does not come. It looks
// at the oldest of every queue: they expire about in order, so it stops at the
// first that has time left.
func (o *outbox) sweep(ctx context.Context) error {
	o.dropped.sweep(o.kernel.now())
	queue := ""
	for {
		var err error
		if queue, err = o.kernel.store.NextQueue(ctx, queue); err != nil || queue == "" {
			return err
		}
		if err := o.sweepQueue(ctx, queue); err != nil {
			return err
		}
	}
}

func (o *outbox) sweepQueue(ctx context.Context, queue string) error {
	// Its drain sees to what goes to an app that is there, but for what is kept back.
	mine := func(int64) bool { return true }
	if o.kernel.receiverOf(queue) != nil {
		var some bool
		if mine, some = o.passedOf(queue); !some {
			return nil
		}
	}
	var after int64
	for {
		page, err := o.kernel.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return err
		}
		now := o.kernel.now()
		for _, m := range page {
			after = m.ID
			if m.ExpiresAt.IsZero() || now.Before(m.ExpiresAt) {
				return nil
			}
			if !mine(m.ID) {
				continue
			}
			if err := o.kernel.expire(m); err != nil {
				return err
			}
		}
	}
}

// passedOf tells which messages of a queue with an app are kept back, and whether
// any are. While they are looked at anyway, none are.
func (o *outbox) passedOf(queue string) (kept func(id int64) bool, some bool) {
	o.mu.Lock()
	l := o.lanes[queue]
	o.mu.Unlock()
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
