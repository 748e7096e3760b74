package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	ipc "github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// goodbye bounds the wait for the daemon when an app ends.
const goodbye = 5 * time.Second

// mostKnown bounds the ids of messages and approvals that an app remembers.
const mostKnown = 1024

// AppOptions describe an app. The manifest is made of them: a right is asked for if its handler is
// set. Handlers of one kind run one after another, in the order of their events, and beside those of
// other kinds. Their context ends with the app.
type AppOptions struct {
	Options
	// ID is a package name such as "@acme/telegram". Name and Version are for people: the ID and
	// 1.0.0 by default.
	ID, Name, Version string
	// Channels are the channels that the app owns. A channel's handler sends a message to the
	// message's target; its error is on record as a failed delivery. The app remembers 1,024 ids of
	// sent messages: a repetition after a reconnection is not sent twice. A message whose handler has not
	// returned when the app ends comes again in its next run, under the same DispatchID.
	Channels map[string]func(ctx context.Context, m *Message) error
	// Receive gets the messages for the app's agent, and again one for which it did not return in the last
	// run of the app. [App.Complete] ends the run of one.
	Receive func(ctx context.Context, m *Inbound)
	// Intercept decides about messages of other agents, within the time of hooks.answer (5 seconds).
	// A change of Content or Metadata changes the message. An error blocks it; the error's text is on
	// record, and its sender does not see it.
	Intercept func(ctx context.Context, m *Message) error
	// Send delivers a text that [App.Deliver] asked about, at once or after a person has approved it.
	Send func(ctx context.Context, t *Text) error
	// Resolved is told each decision of a person about something that was held, after Send.
	Resolved func(o *Outcome)
}

// App is a registered app. Its methods are safe for concurrent use.
type App struct {
	session
	o    AppOptions
	sent known[error]
	// handlers are the goroutines of the handlers.
	handlers sync.WaitGroup

	mu sync.Mutex
	// held are the approvals that Wait waits for, and waiters those of Await.
	held     map[string]bool
	resolved known[*Outcome]
	changed  chan struct{}
}

// Register connects and registers an app. Messages that a person approved while no such app ran are
// sent before Register returns. An app of the ID that is connected is a [Conflict], after a second of attempts.
func Register(ctx context.Context, o *AppOptions) (*App, error) {
	a := &App{o: *o, held: map[string]bool{}, changed: make(chan struct{})}
	a.options, a.backlog = o.Options, newBacklog()
	if a.options.Socket == "" {
		a.options.Socket = DefaultSocket()
	}
	a.greet, a.session.take = a.register, a.take
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	if err := a.sendApproved(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	for _, lane := range []string{laneMessages, laneIntercepted, laneResolved} {
		a.handlers.Go(func() { a.backlog.run(lane) })
	}
	return a, nil
}

// The kinds of events that do not wait for each other.
const (
	laneMessages    = "messages"
	laneIntercepted = "intercepted"
	laneResolved    = "resolved"
)

// manifest is made of the handlers.
func (a *App) manifest() *api.Manifest {
	m := &api.Manifest{ID: a.o.ID, Name: a.o.Name, Version: a.o.Version, Type: "app", Main: "app", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion}}
	if m.Name == "" {
		m.Name = a.o.ID
	}
	if m.Version == "" {
		m.Version = "1.0.0"
	}
	m.Capabilities.Redeem, m.Capabilities.Acknowledges = a.o.Send != nil, true
	m.Capabilities.Channels.Provides = slices.Sorted(maps.Keys(a.o.Channels))
	if a.o.Intercept != nil {
		m.Capabilities.Hooks.Intercepts = []string{string(api.MessageSending)}
	}
	return m
}

// register makes a new connection the app's: by its token as it was, or by a registration.
func (a *App) register(ctx context.Context, conn *ipc.Client) error {
	if conn.Token() != "" {
		err := errorOf(conn.Call(ctx, "app.heartbeat", nil, nil))
		if !Is(err, AppNotRegistered) && !Is(err, Unauthorized) {
			return err
		}
	}
	_, err := conn.Register(ctx, a.manifest())
	// An app of the ID that has just ended is connected for a moment still.
	for pause := firstPause; Is(errorOf(err), Conflict) && pause < time.Second; pause *= 2 {
		select {
		case <-time.After(pause):
			_, err = conn.Register(ctx, a.manifest())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("ocipd refuses app %s: %w", a.o.ID, errorOf(err))
	}
	grants := []map[string]any{}
	for _, channel := range slices.Sorted(maps.Keys(a.o.Channels)) {
		grants = append(grants, map[string]any{"type": "channel", "config": map[string]any{"channelId": channel}})
	}
	if a.o.Intercept != nil {
		hook := string(api.MessageSending)
		var answer api.SubscribeResult
		if err := conn.Call(ctx, "hook.subscribe", api.HooksParams{Events: []string{hook}}, &answer); err != nil {
			return err
		}
		if len(answer.Denied) > 0 {
			return &Error{Code: CapabilityDenied, Message: "app " + a.o.ID + " may not subscribe to " + hook}
		}
		grants = append(grants, map[string]any{"type": "hook", "config": map[string]any{"event": hook, "intercept": true}})
	}
	for _, grant := range grants {
		var answer api.CapabilityResult
		if err := conn.Call(ctx, "capability.register", grant, &answer); err != nil {
			return err
		}
		if !answer.Granted {
			return &Error{Code: CapabilityDenied, Message: answer.Reason}
		}
	}
	return conn.Call(ctx, "app.ready", nil, nil)
}

// hookEvent is the payload of an event of a hook.
type hookEvent[Data any] struct {
	EventID string `json:"eventId"`
	Data    Data   `json:"data"`
	Context About  `json:"context"`
}

// read decodes an event. One of another form is a fault of the daemon, and is left.
func read[Payload any](e *wire.Incoming) (p Payload, ok bool) {
	return p, json.Unmarshal(e.Payload, &p) == nil
}

// take gives an event to the goroutine of its kind. The event is acknowledged after its handler, or in its
// turn if there is none.
func (a *App) take(conn *ipc.Client, e *wire.Incoming) {
	lane, handle := a.handler(e)
	if lane == laneIntercepted {
		a.backlog.put(lane, work{handle: handle}) // it is no message of the app, and answered
		return
	}
	a.backlog.put(cmp.Or(lane, laneResolved), work{
		handle: func() {
			if handle != nil {
				handle()
			}
			if a.life.Err() != nil {
				return // the handler was interrupted
			}
			// If the connection has ended, the event comes anew.
			_ = conn.Tell(a.life, "app.acknowledge", api.AcknowledgeParams{ID: e.ID})
		},
		void: func() bool { return conn.Err() != nil },
	})
}

// handler is the work about an event, nil if there is none, and its kind.
func (a *App) handler(e *wire.Incoming) (lane string, handle func()) {
	switch e.Event {
	case api.ApprovalEvent:
		if o, ok := read[Outcome](e); ok {
			return laneResolved, func() { a.settle(&o) }
		}
	case "hook:message_sending":
		p, ok := read[hookEvent[Message]](e)
		if !ok {
			return "", nil
		}
		p.Data.About = p.Context
		// A message that is decided about has the id of the decision's record.
		if p.Context.AuditID == "" && a.o.Intercept != nil {
			return laneIntercepted, func() { a.intercept(p.EventID, &p.Data) }
		}
		if deliver := a.o.Channels[p.Data.ChannelID]; deliver != nil {
			return laneMessages, func() {
				a.deliver(p.EventID, p.Data.DispatchID, func() error { return deliver(a.life, &p.Data) })
			}
		}
		return laneMessages, nil
	case "hook:message_received":
		if p, ok := read[hookEvent[Inbound]](e); ok && a.o.Receive != nil {
			p.Data.About = p.Context
			return laneMessages, func() {
				if _, before := a.sent.get(p.Data.DispatchID); !before {
					a.sent.put(p.Data.DispatchID, nil)
					a.o.Receive(a.life, &p.Data)
				}
			}
		}
		return laneMessages, nil
	}
	return "", nil
}

// deliver has a message delivered, unless it was before, and answers.
func (a *App) deliver(event, dispatch string, deliver func() error) {
	err, before := a.sent.get(dispatch)
	if !before {
		err = deliver()
		a.sent.put(dispatch, err)
	}
	receipt := map[string]any{"delivered": err == nil}
	if err != nil {
		receipt["error"] = err.Error()
	}
	a.answer(event, receipt)
}

// intercept has the app decide about a message, and answers with the changes.
func (a *App) intercept(event string, m *Message) {
	content, metadata := m.Content, maps.Clone(m.Metadata)
	result := map[string]any{}
	if err := a.o.Intercept(a.life, m); err != nil {
		result["block"], result["reason"] = true, err.Error()
	} else {
		if m.Content != content {
			result["content"] = m.Content
		}
		if !maps.EqualFunc(m.Metadata, metadata, func(x, y json.RawMessage) bool { return string(x) == string(y) }) {
			result["metadata"] = m.Metadata
		}
	}
	a.answer(event, result)
}

// answer answers an event. Without a connection nobody waits for the answer any more.
func (a *App) answer(event string, result any) {
	_ = a.call(a.life, "hook.result", map[string]any{"eventId": event, "result": result}, nil, false)
}

// Close says goodbye to the daemon and ends the connection, so that an app of the ID can register at
// once. No further handler begins: the messages come to the app's next run. Handlers under way are waited
// for. After 5 seconds their context ends and calls under way fail, and their messages come again.
func (a *App) Close() error {
	a.over.Store(true)
	a.backlog.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.handlers.Wait()
	}()
	select {
	case <-done:
	case <-time.After(goodbye):
	}
	defer a.handlers.Wait()
	ctx, cancel := context.WithTimeout(a.life, goodbye)
	defer cancel()
	err := errorOf(a.call(ctx, "app.shutdown", nil, nil, false))
	if Is(err, ConnectionClosed) {
		err = nil // it ends in any case
	}
	return errors.Join(err, a.session.Close())
}

// Dispatch sends a message of the app's agent. The daemon delivers it.
func (a *App) Dispatch(ctx context.Context, session, content string, m Metadata) (d Dispatched, err error) {
	return d, a.Call(ctx, "message.dispatch", Text{SessionKey: session, Content: content, Metadata: m}, &d)
}

// Queue brings in a message for an agent, from the session's channel.
func (a *App) Queue(ctx context.Context, session, text string, m Metadata) (q Queued, err error) {
	params := map[string]any{"sessionKey": session, "text": text}
	if m != nil {
		params["metadata"] = m
	}
	return q, a.Call(ctx, "agent.queue", params, &q)
}

// Complete ends a run of the agent. Failed is nil if it succeeded.
func (a *App) Complete(ctx context.Context, run string, failed error) error {
	params := map[string]any{"runId": run, "success": failed == nil}
	if failed != nil {
		params["error"] = failed.Error()
	}
	return a.Call(ctx, "agent.complete", params, nil)
}
