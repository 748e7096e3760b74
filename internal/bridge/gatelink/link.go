// Package gatelink connects a program that stands between an agent and others to the daemon,
// under a grant that names the agent. The program asks about messages and calls, hears what
// people decide, and reports what became of a message. It decides nothing.
package gatelink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Link connects a proxy to the daemon, under a grant that names an agent. It connects
// when needed, and again after a loss. One connection is for claims, which belong to it,
// and for events. Questions about messages use further connections, so that giving up one
// question ends nothing else.
type Link struct {
	// Dial connects to the daemon's kernel socket.
	Dial func(context.Context) (*client.Client, error)
	// Token is the grant's token. Agent, if set, is the agent that the grant must name.
	Token, Agent string
	// NewID makes the request keys of questions.
	NewID func() string
	Now   func() time.Time

	// dialing is held while connecting, so that calls that need no connection do not wait.
	dialing sync.Mutex

	mu     sync.Mutex
	c      *client.Client
	idle   []*client.Client
	closed bool
	// exempt is the connection on which the daemon has said that tool calls need no
	// decision. That holds until the daemon ends the connection, at most until exemptUntil.
	// The connection has no other use.
	exempt      *client.Client
	exemptUntil time.Time
	// live is set while the daemon sends events, and changed is closed by the next event.
	live    bool
	changed chan struct{}
	// unheard are the request keys of questions whose answers were lost, with the time.
	unheard map[string]time.Time
}

const (
	// callTime bounds a call to the daemon. A caller that gives up ends the connection, and
	// the daemon then decides nothing more for it.
	callTime = 30 * time.Second
	// maxIdle bounds the idle connections for questions.
	maxIdle = 8
	// redialEvery is how often the proxy tries to reach a daemon that is away.
	redialEvery = 5 * time.Second
)

// connected returns the connection, and connects if necessary.
func (l *Link) connected(ctx context.Context) (*client.Client, error) {
	l.dialing.Lock()
	defer l.dialing.Unlock()
	l.mu.Lock()
	c := l.c
	l.mu.Unlock()
	if c != nil && c.Err() == nil {
		return c, nil
	}
	c, err := l.attached(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.Join(errors.New("the connection is closed"), c.Close())
	}
	l.c = c
	return c, nil
}

// attached returns a new connection that speaks for the agent.
func (l *Link) attached(ctx context.Context) (*client.Client, error) {
	c, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	var at taskapi.Attached
	err = c.Call(ctx, "task.attach", &taskapi.AttachParams{Token: l.Token}, &at)
	switch {
	case err != nil:
	case at.Agent == "":
		err = errors.New("the token is of a grant that names no agent")
	case l.Agent != "" && at.Agent != l.Agent:
		err = fmt.Errorf("the token is of agent %s, and not of %s", at.Agent, l.Agent)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Check returns an error if the daemon refuses the token for the agent.
func (l *Link) Check(ctx context.Context) error {
	return l.Call(ctx, "agent.redeemable", nil, nil)
}

// Call makes a call, once: a call whose answer is lost may have taken effect.
func (l *Link) Call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	c, err := l.connected(ctx)
	if err != nil {
		return err
	}
	if err = c.Call(ctx, method, params, result); errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		_ = c.Close()
	}
	return err
}

// Ask asks about a message on its own connection. With the key, if there is one, the proxy
// can report later that no answer came.
func (l *Link) Ask(ctx context.Context, key string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	l.mu.Lock()
	var c *client.Client
	for c == nil && len(l.idle) > 0 {
		if c, l.idle = l.idle[len(l.idle)-1], l.idle[:len(l.idle)-1]; c.Err() != nil {
			c = nil
		}
	}
	l.mu.Unlock()
	var err error
	if c == nil {
		if c, err = l.attached(ctx); err != nil {
			return err
		}
	}
	err = c.Call(ctx, "agent.emit", params, result)
	l.mu.Lock()
	lost := err != nil && (ctx.Err() != nil || c.Err() != nil)
	if lost && key != "" {
		if l.unheard == nil {
			l.unheard = make(map[string]time.Time)
		}
		l.unheard[key] = l.Now()
		l.tellLocked()
	}
	keep := !lost && !l.closed && len(l.idle) < maxIdle
	if v, ok := result.(*Verdict); ok && keep && v.ExemptUntil > 0 {
		c, l.exempt, l.exemptUntil = l.exempt, c, time.UnixMilli(v.ExemptUntil)
		keep = c == nil
	} else if keep {
		l.idle = append(l.idle, c)
	}
	l.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
	return err
}

// Permit asks about a call of a tool. It waits for the answer as long as the proxy lives, also if the
// client cancels the call meanwhile: a request for approval that nobody knew of would stay open.
func (l *Link) Permit(life, call context.Context, data api.Object) (v Verdict, no *Refusal) {
	err := l.Ask(life, "", map[string]any{"hookName": string(api.ToolExecuting), "data": jsontext.Value(data.Append(nil)), "process": os.Getpid()}, &v)
	if no = v.Refusal(err); no == nil && v.Allowed && call.Err() != nil {
		no = &Refusal{Code: "CANCELLED", Reason: "the call was cancelled"}
	}
	return v, no
}

// Exempted reports whether a tool call needs no decision now. The daemon ends the
// connection before it confirms a change to that, and a Unix socket shows the end at once,
// so a look at the connection suffices.
func (l *Link) Exempted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exempt == nil {
		return false
	}
	if l.Now().Before(l.exemptUntil) && !l.exempt.Ended() {
		return true
	}
	go func(ended *client.Client) { _ = ended.Close() }(l.exempt)
	l.exempt = nil
	return false
}

// News returns a channel that is closed at the next event, and whether the daemon sends events.
func (l *Link) News() (changed <-chan struct{}, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed, l.live
}

func (l *Link) tell(live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = live
	l.tellLocked()
}

// Wake makes waiting calls check again.
func (l *Link) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellLocked()
}

func (l *Link) tellLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Follow receives events about people's decisions, until the context ends.
func (l *Link) Follow(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		_ = l.listen(ctx) // it is tried again, and asked in the meantime
		l.tell(false)
		again.Reset(redialEvery)
	}
}

func (l *Link) listen(ctx context.Context) error {
	c, err := l.connected(ctx)
	if err != nil {
		return err
	}
	s, err := c.Stream(ctx, "agent.watch", nil)
	if err != nil {
		return err
	}
	for {
		if _, err := s.Next(ctx); err != nil {
			return err
		}
		l.tell(true)
	}
}

// Settle reports to the daemon that nothing was sent for questions whose answers were lost.
// If the daemon does not know a question after a while, it never decided it.
func (l *Link) Settle(ctx context.Context) {
	l.mu.Lock()
	keys := maps.Clone(l.unheard)
	l.mu.Unlock()
	for key, at := range keys {
		err := l.Call(ctx, "agent.confirm", &api.ConfirmParams{RequestKey: key, Outcome: api.OutcomeNotSent, Note: "the answer was lost"}, nil)
		code := api.AsError(err).Code
		if err == nil || code == api.Conflict || code == api.NotFound && l.Now().Sub(at) > callTime {
			l.mu.Lock()
			delete(l.unheard, key)
			l.mu.Unlock()
		}
	}
}

// Close ends the connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		_ = c.Close()
	}
	if l.idle = nil; l.c != nil {
		_ = l.c.Close()
	}
	if l.exempt != nil {
		_ = l.exempt.Close()
		l.exempt = nil
	}
}

// askEvery is the longest interval between questions for approved messages, and settled how long
// one is left to the session that asked for it.
const (
	askEvery = 15 * time.Second
	settled  = 2 * time.Second
)

// Claim says what a proxy does about an approved message.
type Claim struct {
	// Ours is set if this proxy may send the message. Own is set if its own session asked for it, and
	// nobody waits for it any more: then no other session is given time.
	Ours, Own bool
	// Send takes the message and begins to send it. If it returns false, the message is tried again.
	Send func() bool
}

// Release sends approved messages of the agent, from any session, until the context ends: those that
// its own session asked for at once, those of others after a delay. It calls after when it has gone
// through all.
func (l *Link) Release(ctx context.Context, about func(*api.Redeemable) Claim, after func()) {
	since, taken := make(map[string]time.Time), make(map[string]bool)
	for {
		changed, _ := l.News()
		next := askEvery
		var list api.RedeemableResult
		l.Settle(ctx)
		if err := l.Call(ctx, "agent.redeemable", nil, &list); err != nil {
			list.Approvals = nil
		}
		for i := range list.Approvals {
			id := list.Approvals[i].ApprovalID
			claim := about(&list.Approvals[i])
			if !claim.Ours || taken[id] {
				continue
			}
			now := l.Now()
			if since[id].IsZero() {
				since[id] = now
			}
			if left := settled - now.Sub(since[id]); left > 0 && !claim.Own {
				next = min(next, left)
				continue
			}
			// After a failure, this proxy does not try it again.
			taken[id] = claim.Send()
		}
		after()
		again := time.NewTimer(next)
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// Refusal is why a message is not sent, in words for a model.
type Refusal struct{ Code, Reason string }

// RefusedBy turns an error into a refusal.
func RefusedBy(err error) *Refusal {
	var e *api.Error
	switch {
	case errors.Is(err, client.ErrNotRunning):
		return &Refusal{"NOT_RUNNING", "ocipd is not running, so nothing can be decided"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Refusal{"TIMEOUT", "ocipd has not answered in time"}
	case errors.Is(err, toolmap.ErrUnclear):
		return &Refusal{"UNCLEAR", err.Error()}
	case errors.As(err, &e):
		return &Refusal{string(e.Code), e.Message}
	default:
		return &Refusal{"FAILED", err.Error()}
	}
}

// Verdict is the daemon's answer to a question.
type Verdict struct {
	api.EmitResult
	OCIP struct {
		Code string `json:"code"`
	} `json:"ocip"`
}

// Refusal returns the daemon's refusal, or nil if it allows the message or asks a person.
func (v *Verdict) Refusal(err error) *Refusal {
	switch {
	case err != nil:
		return RefusedBy(err)
	case !v.Held && !v.Allowed:
		return &Refusal{v.OCIP.Code, v.Reason}
	}
	return nil
}

// Confirm reports the outcome of a message. If the report fails, the daemon's own record
// says that the outcome is unknown.
func (l *Link) Confirm(p *api.ConfirmParams) error {
	return l.Call(context.Background(), "agent.confirm", p, nil)
}
