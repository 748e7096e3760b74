package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip"
)

// attempt is one message that an agent asked to have sent, once.
type attempt struct {
	content    string
	dispatchID string
	// acknowledged says that the daemon answered that it is on its way, or is
	// held and then approved; held that it was held.
	acknowledged, held bool
	// unrecorded is set where the answer was that it could not be recorded.
	unrecorded bool
	// other is an answer that is none of these, and no closed connection.
	other string
}

// receipt is one line of the receiver's own log.
type receipt struct {
	dispatchID, content, auditID string
	// late marks what came after the daemon was started again.
	late bool
}

// people are the apps and the operator at one daemon.
type people struct {
	ctx             context.Context
	place           place
	alice, operator *client.Client
	channel         *client.Client
	receiving       sync.WaitGroup
	// registered is set while the agent's app is, unknown where it could not
	// be, since that could not be recorded.
	registered, unknown bool

	mu       *sync.Mutex
	attempts *[]*attempt
	received *[]receipt
	tasks    *[]*tracked
	// effects are a task's effects, nil if the run is not about them.
	effects *effects
	late    bool
}

const callTimeout = 10 * time.Second

func (p *people) call(c *client.Client, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	return c.Call(ctx, method, params, result)
}

func (p *people) app(id string, c api.Capabilities, opts ...client.Option) (*client.Client, error) {
	app, err := client.Dial(p.ctx, p.place.socket(), opts...)
	if err != nil {
		return nil, err
	}
	_, err = app.Register(p.ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c,
	})
	return app, err
}

// come connects everybody and lets the channel receive. Coming is on record as
// well, so where that fails they try once more, as apps do.
func (p *people) come() error {
	err := p.tryCome()
	var failure *api.Error
	if !errors.As(err, &failure) || !auditWriteFailed(failure) {
		return err
	}
	for range 2 {
		p.leave()
		if err = p.tryCome(); err == nil {
			return nil
		}
	}
	p.unknown = !p.registered
	return err
}

func (p *people) tryCome() (err error) {
	if p.operator, err = client.Dial(p.ctx, config.OperatorPath(p.place.socket())); err != nil {
		return err
	}
	// The daemon reports the end of its held messages to it; nobody reads these events.
	if p.alice, err = p.app("@fault/alice", api.Capabilities{}, client.WithDropEvents()); err != nil {
		return err
	}
	p.registered = true
	if err := p.call(p.alice, "app.ready", map[string]any{}, nil); err != nil {
		return err
	}
	if p.channel, err = p.app("@fault/chat", api.Capabilities{Channels: api.Provides{Provides: []string{"chat"}}}); err != nil {
		return err
	}
	log, err := os.OpenFile(p.place.received(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.receiving.Go(func() {
		defer log.Close()
		p.receive(log)
	})
	if err := p.call(p.channel, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "chat"}}, nil); err != nil {
		return err
	}
	return p.call(p.channel, "app.ready", map[string]any{}, nil)
}

// leave ends all connections.
func (p *people) leave() {
	for _, c := range []*client.Client{p.alice, p.operator, p.channel} {
		if c != nil {
			_ = c.Close()
		}
	}
	p.receiving.Wait()
	p.alice, p.operator, p.channel, p.registered = nil, nil, nil, false
}

// receive writes down what the channel is given, and says that it has it.
func (p *people) receive(log *os.File) {
	for {
		in, err := p.channel.Next(p.ctx)
		if err != nil {
			return
		}
		if in.Event != "hook:message_sending" {
			continue
		}
		var e api.HookEvent
		var m api.Message
		if json.Unmarshal(in.Payload, &e) != nil || json.Unmarshal(e.Data, &m) != nil {
			m.Content = api.Said("unreadable")
		}
		content, _, _ := strings.Cut(m.Content.Inspect(), "\n")
		fmt.Fprintf(log, "%s %s %s\n", m.DispatchID, e.Context.AuditID, content)
		p.mu.Lock()
		*p.received = append(*p.received, receipt{m.DispatchID, content, e.Context.AuditID, p.late})
		p.mu.Unlock()
		p.receiving.Go(func() {
			// That it arrived is a record too. Where that fails it comes again.
			_ = p.call(p.channel, "hook.result", map[string]any{"eventId": e.EventID, "result": map[string]any{"delivered": true}}, nil)
		})
	}
}

// dispatch sends one message, once.
func (p *people) dispatch(content string) *attempt {
	a := &attempt{content: content}
	p.mu.Lock()
	*p.attempts = append(*p.attempts, a)
	p.mu.Unlock()
	if p.unknown {
		a.unrecorded = true
		return a
	}
	var result api.DispatchResult
	err := p.call(p.alice, "message.dispatch", map[string]any{
		"sessionKey": "chat:bob", "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	a.judge(err)
	a.dispatchID, a.held = result.DispatchID, result.Held
	a.acknowledged = err == nil && !result.Held
	if result.Held {
		p.approve(a, result.ApprovalID)
	}
	return a
}

// approve decides about a held message as a person would.
func (p *people) approve(a *attempt, id string) {
	var shown api.Approval
	err := p.call(p.operator, "approval.get", map[string]any{"approvalId": id}, &shown)
	if err == nil {
		err = p.call(p.operator, "approval.resolve", map[string]any{"approvalId": id, "decision": api.DecideApprove, "digest": shown.Digest}, nil)
	}
	a.judge(err)
	a.acknowledged = err == nil
}

// judge tells the answers apart.
func (a *attempt) judge(err error) {
	var failure *api.Error
	switch {
	case err == nil:
	case errors.As(err, &failure) && failure.Code == api.ConnectionClosed:
	case errors.As(err, &failure) && failure.Code == api.InternalError && auditWriteFailed(failure):
		a.unrecorded = true
	default:
		a.other = err.Error()
	}
}

func auditWriteFailed(e *api.Error) bool {
	return api.DetailsOf[api.ExchangeRef](e).Code == ocip.AuditWriteFailed
}

// untilCheckpoint sends messages until SQLite has begun to bring the write-ahead
// log into the database, or nothing goes any more.
func (p *people) untilCheckpoint() {
	changed := func() time.Time {
		info, err := os.Stat(p.place.database())
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	before := changed()
	for i := 0; i < 400 && changed().Equal(before); i++ {
		if a := p.dispatch(fmt.Sprintf("towards the checkpoint %d", i)); !a.acknowledged {
			return
		}
	}
}

// work is the load under which faults are injected: messages one by one, several at
// once, one that a person must approve, and their receipts.
func (p *people) work() {
	for i := range 3 {
		p.dispatch(fmt.Sprintf("one by one %d", i))
	}
	var several sync.WaitGroup
	for i := range 4 {
		several.Go(func() { p.dispatch(fmt.Sprintf("at once %d", i)) })
	}
	several.Wait()
	p.manage()
	p.dispatch("I promise to do it by Friday")
	p.settle(2 * time.Second)
}

// settle waits until the receivers have what is on its way, or the daemon is
// gone, or for so long.
func (p *people) settle(limit time.Duration) (empty bool) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var status api.Status
		if err := p.operator.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
			return false
		}
		if len(status.Queues) == 0 {
			return true
		}
		if status.Audit.Fault != "" {
			return false
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// status asks the daemon how it is; false where it is gone.
func (p *people) status() (api.Status, bool) {
	var status api.Status
	err := p.call(p.operator, "kernel.status", map[string]any{}, &status)
	return status, err == nil
}
