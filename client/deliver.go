package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
)

// Deliver asks whether a text of the app's agent may leave. An allowed one is given to
// [AppOptions.Send] before Deliver returns. A held one is given to it once a person has approved it,
// also if the app runs anew meanwhile. An error in place of an answer is a refusal too.
func (a *App) Deliver(ctx context.Context, session, content string) Decision {
	d := a.ask(ctx, "message_sending", Text{SessionKey: session, Content: content}, nil)
	switch {
	case d.Held:
		a.hold(d.ApprovalID)
	case d.Allowed:
		d.Err = a.send(ctx, d.Data, "")
	}
	return d
}

// Tool asks whether a tool of the app's agent may run. Agent is its id, "" if the app has one agent.
// The decision of a person about a held call ([App.Await]) is for one call with the same params: the
// caller asks again after it.
func (a *App) Tool(ctx context.Context, agent string, call ToolCall) Decision {
	var about map[string]any
	if agent != "" {
		about = map[string]any{"agentId": agent}
	}
	return a.ask(ctx, "tool_executing", call, about)
}

// ask raises a hook.
func (a *App) ask(ctx context.Context, hook string, data any, about map[string]any) Decision {
	params := map[string]any{"hookName": hook, "data": data}
	if about != nil {
		params["context"] = about
	}
	var answer struct {
		Allowed    bool            `json:"allowed"`
		Held       bool            `json:"held"`
		ApprovalID string          `json:"approvalId"`
		Reason     string          `json:"reason"`
		Data       json.RawMessage `json:"data"`
		OCIP       *Verdict        `json:"ocip"`
	}
	if err := a.Call(ctx, "hook.emit", params, &answer); err != nil {
		d := Decision{Code: string(Timeout), Reason: err.Error()}
		if e, ok := errors.AsType[*Error](err); ok {
			d.Code, d.Reason = string(e.Code), e.Message
		}
		return d
	}
	d := Decision{Allowed: answer.Allowed, Held: answer.Held, ApprovalID: answer.ApprovalID, Reason: answer.Reason, Data: answer.Data}
	if answer.OCIP != nil && !d.Allowed {
		d.Code, d.Reason = answer.OCIP.Code, cmp.Or(answer.OCIP.Reason, d.Reason)
	}
	return d
}

// send gives a decided text to the app's sender, and reports the outcome.
func (a *App) send(ctx context.Context, data json.RawMessage, claim string) error {
	var t Text
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	var failed error
	if a.o.Send == nil {
		failed = ErrNotSent
	} else {
		failed = a.o.Send(ctx, &t)
	}
	outcome := api.ConfirmParams{Claim: claim, Outcome: api.OutcomeSent}
	if claim == "" {
		outcome.DispatchID = t.DispatchID
	}
	switch {
	case errors.Is(failed, ErrNotSent):
		outcome.Outcome = api.OutcomeNotSent
	case failed != nil:
		outcome.Outcome = api.OutcomeUnknown
	}
	// The outcome is reported also if the caller waits no longer. A repetition changes nothing.
	return errors.Join(failed, a.call(context.WithoutCancel(ctx), "approval.confirm", outcome, nil, true))
}

// settle carries out a decision of a person.
func (a *App) settle(o *Outcome) {
	if o.Released() && a.o.Send != nil {
		var taken struct {
			Claim string          `json:"claim"`
			Data  json.RawMessage `json:"data"`
		}
		o.Err = a.call(a.life, "approval.redeem", api.RedeemParams{ApprovalID: o.ApprovalID, RequestKey: uuid.NewString()}, &taken, true)
		switch {
		case Is(o.Err, Conflict):
			o.Err = nil // it was taken before, by this app or by another one of its id
		case o.Err == nil:
			o.Text = &Text{}
			o.Err = errors.Join(json.Unmarshal(taken.Data, o.Text), a.send(a.life, taken.Data, taken.Claim))
		}
	}
	if a.o.Resolved != nil {
		a.o.Resolved(o)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resolved.put(o.ApprovalID, o)
	delete(a.held, o.ApprovalID)
	close(a.changed)
	a.changed = make(chan struct{})
}

// sendApproved sends what was approved while no app ran.
func (a *App) sendApproved(ctx context.Context) error {
	if a.o.Send == nil {
		return nil
	}
	var list api.RedeemableResult
	if err := a.Call(ctx, "approval.redeemable", nil, &list); err != nil {
		return err
	}
	for _, r := range list.Approvals {
		a.settle(&Outcome{ApprovalID: r.ApprovalID, Resolution: api.ApprovalApproved})
	}
	return nil
}

// hold has Wait wait for an approval.
func (a *App) hold(approval string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, before := a.resolved.get(approval); !before {
		a.held[approval] = true
	}
}

// Wait returns once a person has decided about every text that [App.Deliver] found held, and the
// approved ones are sent.
func (a *App) Wait(ctx context.Context) error {
	return a.until(ctx, func() bool { return len(a.held) == 0 })
}

// Await returns the decision of a person about something of the app that is held.
func (a *App) Await(ctx context.Context, approval string) (o Outcome, err error) {
	var now struct {
		State string `json:"state"`
	}
	if err := a.Call(ctx, "approval.get", api.ApprovalParams{ApprovalID: approval}, &now); err != nil {
		return o, err
	}
	if now.State != api.ApprovalPending {
		return Outcome{ApprovalID: approval, Resolution: now.State}, nil
	}
	err = a.until(ctx, func() bool {
		told, is := a.resolved.get(approval)
		if is {
			o = *told
		}
		return is
	})
	return o, err
}

// until waits for a change of what the app knows.
func (a *App) until(ctx context.Context, is func() bool) error {
	for {
		a.mu.Lock()
		done, changed := is(), a.changed
		a.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-a.life.Done():
			return &Error{Code: ConnectionClosed, Message: "the client is closed"}
		}
	}
}

// known remembers the newest ids, each with a value.
type known[V any] struct {
	mu     sync.Mutex
	values map[string]V
	order  []string
}

func (k *known[V]) get(id string) (v V, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, is = k.values[id]
	return v, is
}

func (k *known[V]) put(id string, v V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string]V{}
	}
	if _, is := k.values[id]; !is && id != "" {
		k.order = append(k.order, id)
		if len(k.order) > mostKnown {
			delete(k.values, k.order[0])
			k.order = k.order[1:]
		}
	}
	if id != "" {
		k.values[id] = v
	}
}
