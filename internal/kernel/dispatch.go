package kernel

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/pause"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Dispatch takes a message from an app to its receiver: it finds sender and counterparty, asks the
// interceptors, decides, records, and only then delivers.
//
// The receiver's copy is written after the answer: the sender waits for its answer, and the
// receiver waits for nothing.
func (c *Client) Dispatch(ctx context.Context, p *api.DispatchParams) (api.DispatchResult, api.AfterReply, error) {
	named, _ := api.Text(p.Metadata["agentId"])
	m, result, err := c.dispatch(ctx, p, named, false)
	if err != nil {
		return api.DispatchResult{}, nil, err
	}
	return result, m.deliver, nil
}

// dispatch takes a message as far as its delivery. If the runtime carries the message, it stops
// there. The sender is the named agent, or the app's only one.
func (c *Client) dispatch(ctx context.Context, p *api.DispatchParams, agent string, carried bool) (m *outgoing, result api.DispatchResult, err error) {
	result, err = under(c, func(k *ruleset) (result api.DispatchResult, err error) {
		s := speaker{app: c.App(), appID: c.App().ID(), carried: carried}
		named := "metadata.agentId"
		if carried {
			named = "context.agentId"
		}
		if s.sender, err = k.directory.Sender(s.appID, agent, named); err != nil {
			return result, s.forbidden(k.apps, api.Errorf(api.Forbidden, "%s", err), p)
		}
		if carried {
			s.still, s.redeems = func(bool) error { return connected(ctx) }, s.app.Redeems()
		}
		m, result, err = k.say(ctx, s, p)
		return result, err
	})
	return m, result, err
}

// prepare takes a message with known sender and recipient as far as its decision: wall, pauses, the
// caller's hints, the address, the interceptors, and the attached files. A refusal on the way is on
// record.
func (k *ruleset) prepare(ctx context.Context, m *outgoing) (err error) {
	if _, walled := ocip.Wall(m.sender.Identity, m.to); walled {
		// The wall comes before anything else: no hint is read, and no interceptor sees the text.
		m.hints = exchangehints.Hints{MessageType: ocip.AgentGenerated}
		return nil
	}
	if v := m.paused(k.pauses); v != nil {
		return k.refuseEarly(m, v)
	}
	if m.hints, err = exchangehints.Parse(m.metadata["exchange"]); err != nil {
		return err
	}
	if denied, err := k.tasks.bind(ctx, m); err != nil || denied != nil {
		if denied != nil {
			err = k.refuseEarly(m, denied)
		}
		return err
	}
	if err := k.bind(m, "the message"); err != nil {
		return err
	}
	if !m.check {
		if err := k.passInterceptors(ctx, m); err != nil {
			return err
		}
	}
	return k.look(ctx, m)
}

// paused returns the denial of a message that a pause stops. A message that the daemon delivers to
// its own agent is allowed and waits in that agent's queue. A message that the runtime delivers
// cannot wait.
func (m *outgoing) paused(p *pause.Pauses) *ocip.Verdict {
	to := ""
	if m.carried && m.local != nil {
		to = m.local.ID
	}
	reason, paused := p.Reason(m.channel, m.sender.ID, to)
	if !paused {
		return nil
	}
	return &ocip.Verdict{Result: ocip.Deny, Code: ocip.Paused, Policy: "pause", Reason: reason}
}

// send decides a message and records the decision. It releases an allowed message, and holds one
// that needs a person's approval.
func (k *ruleset) send(m *outgoing) (api.DispatchResult, error) {
	// From here on the message is decided, even if its sender disconnects.
	unlock := k.state.Lock(m.sender.InstanceID, m.other())
	defer unlock()
	done, err := m.still.decides(k.pauses)
	if err != nil {
		return api.DispatchResult{}, err
	}
	defer done()
	if k.inForce.Load() != k {
		// They were replaced while interceptors were asked.
		return api.DispatchResult{}, hooks.ErrReplaced
	}
	if _, walled := ocip.Wall(m.sender.Identity, m.to); !walled {
		// Interceptors may have taken time.
		if v := m.paused(k.pauses); v != nil {
			return api.DispatchResult{}, k.refuseEarly(m, v)
		}
	}
	before := *m
	result, err := k.sendLocked(context.Background(), m)
	if errors.Is(err, store.ErrGrantOver) {
		// A person revoked the grant in the meantime.
		*m = before
		m.ungranted = true
		result, err = k.sendLocked(context.Background(), m)
	}
	return result, err
}

func (k *ruleset) sendLocked(ctx context.Context, m *outgoing) (api.DispatchResult, error) {
	now, change := k.now(), new(store.Change)
	if result, already, err := k.heldAlready(ctx, m); already || err != nil {
		return result, err
	}
	st, err := k.conversations.standing(ctx, m, now)
	if err != nil {
		return api.DispatchResult{}, k.exchangeRefused(m, err)
	}
	giveBack, err := k.conversations.count(ctx, m, st, now)
	if err != nil {
		return api.DispatchResult{}, err
	}
	v := k.weigh(ctx, m, st, ocip.Nobody, now)
	switch v.Result {
	case ocip.Allow:
		said := m.content // without the disclosure
		result, err := k.release(ctx, m, v, st, change, now)
		if err != nil {
			giveBack()
		} else {
			k.state.Words.Said(m.sender.InstanceID, m.key, said.Inspect())
		}
		return result, err
	case ocip.RequireApproval:
		giveBack()
		return k.hold(ctx, m, v, st, change, now)
	case ocip.Deny:
	}
	giveBack()
	return api.DispatchResult{}, k.refuse(m, v, change)
}
