package registry

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Delivery is a message that an event gave to an app, without its text: the subject of the answer.
// The registry remembers one for each event that may still be answered, so they are small.
type Delivery struct {
	store.MessageID
	RecordSeq              uint64
	DispatchID, SessionKey string
}

// Receipt is an app's statement about a message that it was given.
type Receipt struct {
	Delivered bool
	Error     string
}

// parseReceipt returns false for anything that is no receipt, including an object with neither
// member.
func parseReceipt(result jsontext.Value) (r Receipt, ok bool) {
	var said struct {
		Delivered *bool  `json:"delivered"`
		Error     string `json:"error"`
	}
	if result.Kind() != '{' || json.Unmarshal(result, &said) != nil || said.Delivered == nil && said.Error == "" {
		return r, false
	}
	return Receipt{Delivered: said.Delivered != nil && *said.Delivered, Error: ocip.Summarize(said.Error)}, true
}

// Deliver makes the event that gives a message to an app, under the first name by which the app
// listens to the hook. Its answer is a receipt. The payload is appended to a buffer.
func (r *Registry) Deliver(b []byte, a *App, hook api.Hook, what gate.Sealed, about api.HookContext, d *Delivery) gate.Event {
	name := string(hook)
	r.mu.RLock()
	if names := a.hooks[hook]; len(names) > 0 {
		name = names[0]
	}
	r.mu.RUnlock()
	e := a.events.add(&event{id: r.newID(), hook: hook, delivery: d})
	return what.Hook(b, e.id, name, about.Append)
}

// HookResult takes an app's answer to an event. An answer that does not count is no error, only
// marked in the reply: the stock SDK sends whatever a handler returns, however late, and an error
// would end its process.
func (c *Client) HookResult(_ context.Context, p *api.HookResultParams) (api.OK, error) {
	a, r := c.app.Load(), c.registry
	r.mu.RLock()
	subscriptions := len(a.hooks) + len(r.channelsLocked(a))
	r.mu.RUnlock()
	if subscriptions == 0 {
		return api.OK{}, api.Errorf(api.HookNotSubscribed, "app %s is subscribed to no hook", a.ID())
	}
	var said Receipt
	if a.events.delivers(p.EventID) {
		// An event needs no answer without a receipt, which does not use it up.
		var ok bool
		if said, ok = parseReceipt(p.Result); !ok {
			return api.OK{Reason: "the event delivered a message; a receipt is {delivered, error}"}, nil
		}
	}
	e, missed := a.events.answer(p.EventID, p.Result.Clone())
	switch {
	case missed == answeredLate:
		r.log.Warn("an app answered a hook too late", zap.String("app", a.ID()), zap.String("hook", string(e.hook)), zap.String("event", e.id))
		return api.OK{Reason: string(missed)}, nil
	case missed != "":
		r.log.Debug("an app's answer to a hook counts for nothing", zap.String("app", a.ID()), zap.String("event", p.EventID), zap.String("reason", string(missed)))
		return api.OK{Reason: string(missed)}, nil
	case e.delivery != nil:
		return api.OK{OK: true}, r.outbox.Acknowledge(a, e.delivery, said)
	case !e.awaited:
		return api.OK{Reason: "nobody waits for an answer to this event"}, nil
	}
	return api.OK{OK: true}, nil
}

// events are the events that one app was sent and may still answer, and for a while older ones, so
// that a late answer is told from an unknown one. Each app has its own, so that other apps' events
// push none of them out, and takes them along to its next connection.
type events struct {
	mu   sync.Mutex
	byID map[string]*event
	// ring forgets the oldest event when a new one needs its place. An awaited event enters it only
	// after the wait, so it is not forgotten before.
	ring []*event
	next int
}

// rememberedEvents bounds the events of an app that are remembered.
const rememberedEvents = 2048

type event struct {
	id   string
	hook api.Hook
	// awaited events have a caller that waits for the answer.
	awaited bool
	// delivery, if set, is the message that the event gives to the app.
	delivery *Delivery
	answered bool
	late     bool
	answers  chan jsontext.Value
}

func newEvents() *events {
	return &events{byID: make(map[string]*event)}
}

func (r *events) add(e *event) *event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[e.id] = e
	if !e.awaited {
		r.rememberLocked(e)
	}
	return e
}

// rememberLocked keeps an event without a waiting caller, in place of the oldest one.
func (r *events) rememberLocked(e *event) {
	if len(r.ring) < rememberedEvents {
		r.ring = append(r.ring, e)
		return
	}
	delete(r.byID, r.ring[r.next].id)
	r.ring[r.next] = e
	r.next = (r.next + 1) % rememberedEvents
}

// delivers reports whether an event gave a message to the app.
func (r *events) delivers(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.byID[id]
	return known && e.delivery != nil
}

// missed says why an answer does not count, "" if it counts.
type missed string

const (
	answerUnknown  missed = "no such event was sent to this app"
	answeredBefore missed = "the event is answered already"
	answeredLate   missed = "the event was answered too late; the kernel went on without it"
)

// answer takes the app's answer, once.
func (r *events) answer(id string, result jsontext.Value) (*event, missed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.byID[id]
	switch {
	case !known:
		return nil, answerUnknown
	case e.answered:
		return e, answeredBefore
	}
	e.answered = true
	if e.late {
		return e, answeredLate
	}
	if e.awaited {
		e.answers <- result
		r.rememberLocked(e)
	}
	return e, ""
}

// expire ends the wait for an event. It returns false if the answer came in the meantime.
func (r *events) expire(e *event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.answered {
		return false
	}
	e.late = true
	r.rememberLocked(e)
	return true
}
