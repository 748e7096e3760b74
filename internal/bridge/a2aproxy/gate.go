package a2aproxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// askEvery is the longest interval between questions for people's decisions.
const askEvery = 15 * time.Second

// gate asks the daemon for an agent.
type gate struct {
	o     *Options
	ended context.Context
}

// outward asks about a message of the agent in a session. If a person has to decide, it returns
// the approval request.
func (p *gate) outward(ctx context.Context, session, name string, s *said, exchange api.Object, origin string) (d *decided, held string, no *gatelink.Refusal) {
	metadata, err := s.metadata(name, origin)
	if err != nil {
		return nil, "", gatelink.RefusedBy(err)
	}
	if len(exchange) > 0 {
		metadata["exchange"] = exchange.Append(nil)
	}
	m := api.EmittedMessage{SessionKey: session, Content: api.Said(s.content), Metadata: metadata}
	key := p.o.NewID()
	var v gatelink.Verdict
	err = p.o.Link.Ask(ctx, key, map[string]any{"hookName": string(api.MessageSending), "data": jsontext.Value(m.Append(nil)), "requestKey": key}, &v)
	if no := v.Refusal(err); no != nil || v.Held {
		return nil, v.ApprovalID, no
	}
	if d, err = readDecided(v.Data); err != nil {
		p.confirm(&api.ConfirmParams{RequestKey: key, Outcome: api.OutcomeNotSent, Note: short(err.Error())})
		return nil, "", gatelink.RefusedBy(err)
	}
	d.key = key
	return d, "", nil
}

// inward asks about a message of others to the agent in a session. It returns the metadata as the
// agent gets it.
func (p *gate) inward(ctx context.Context, session, name string, s *said) (api.Object, *gatelink.Refusal) {
	metadata, err := s.metadata(name, p.o.Origin)
	if err != nil {
		return nil, gatelink.RefusedBy(err)
	}
	if s.envelope != nil {
		for i, member := range s.envelope.names {
			for _, known := range annotations {
				if member == known {
					metadata[member] = s.envelope.kids[i].write(nil)
				}
			}
		}
	}
	m := api.EmittedMessage{SessionKey: session, Content: api.Said(s.content), Metadata: metadata}
	var v gatelink.Verdict
	err = p.o.Link.Ask(ctx, "", map[string]any{"hookName": string(api.MessageReceived), "data": jsontext.Value(m.Append(nil))}, &v)
	if no := v.Refusal(err); no != nil {
		return nil, no
	}
	var got api.EmittedMessage
	if err := json.Unmarshal(v.Data, &got, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, gatelink.RefusedBy(err)
	}
	if got.Content.Inspect() != s.content {
		return nil, gatelink.RefusedBy(toolmap.Unclear("an app changed a message that was received"))
	}
	return got.Metadata, nil
}

// permit asks about a request of the agent that says nothing, as a call of a tool. It waits
// for a person, at most for the hold time.
func (p *gate) permit(ctx context.Context, r *request) *gatelink.Refusal {
	data := api.Object{
		"toolName": api.String(r.method.name), "mcpServer": api.String("a2a " + r.session), "params": r.withHook().write(nil),
		"runtime": api.String("a2a-proxy"), "origin": api.String(p.o.Origin), "map": api.String("a2a"),
	}
	over := time.NewTimer(p.o.Hold)
	defer over.Stop()
	for {
		v, no := p.o.Link.Permit(p.ended, ctx, data)
		if no != nil || !v.Held {
			return no
		}
		if err := p.await(ctx, v.ApprovalID, over.C); errors.Is(err, errOver) {
			return &gatelink.Refusal{Code: "HELD", Reason: "a person has to approve the request (ocipd approvals show " + v.ApprovalID + "); once that is done, the same request is let through"}
		} else if err != nil {
			p.withdraw(v.ApprovalID, "the request was given up")
			return &gatelink.Refusal{Code: "CANCELLED", Reason: "the request was given up"}
		}
	}
}

// errOver means that the time is up.
var errOver = errors.New("it was waited long enough")

// await waits until a request for approval has a decision.
func (p *gate) await(ctx context.Context, id string, over <-chan time.Time) error {
	for {
		changed, live := p.o.Link.News()
		if now := p.approval(ctx, id); now != nil && now.Status != api.ApprovalPending {
			return nil
		}
		next := askEvery
		if !live {
			next = time.Second
		}
		again := time.NewTimer(next)
		select {
		case <-p.ended.Done():
			again.Stop()
			return p.ended.Err()
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-over:
			again.Stop()
			return errOver
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// approval is the state of a request for approval, or nil if the daemon does not answer.
func (p *gate) approval(ctx context.Context, id string) *api.AgentApproval {
	var now api.AgentApproval
	if err := p.o.Link.Call(ctx, "agent.approval", map[string]string{"approval_id": id}, &now); err != nil {
		p.o.Log.Warn("cannot ask what was decided", "approval", id, "error", err)
		return nil
	}
	return &now
}

// redeem claims a decided message, or says why it is not sent.
func (p *gate) redeem(ctx context.Context, id string) (*decided, *gatelink.Refusal) {
	now := p.approval(ctx, id)
	switch {
	case now == nil:
		return nil, &gatelink.Refusal{Code: "FAILED", Reason: "ocipd does not say what was decided"}
	case now.Status != api.ApprovalApproved && now.Status != api.ApprovalTakenOver:
		reason := "a person has decided: " + now.Status
		if now.Note != "" {
			reason += " (" + now.Note + ")"
		}
		return nil, &gatelink.Refusal{Code: now.Code, Reason: reason}
	}
	var got api.Redeemed
	if err := p.o.Link.Call(context.WithoutCancel(ctx), "agent.redeem", &api.RedeemParams{ApprovalID: id}, &got); err != nil {
		if api.AsError(err).Code == api.Conflict {
			return nil, &gatelink.Refusal{Code: string(api.AlreadyRedeemed), Reason: "another session has taken it, and sends it"}
		}
		return nil, gatelink.RefusedBy(err)
	}
	d, err := readDecided(got.Data)
	if err != nil {
		p.confirm(&api.ConfirmParams{Claim: got.Claim, Outcome: api.OutcomeNotSent, Note: short(err.Error())})
		return nil, gatelink.RefusedBy(err)
	}
	d.claim = got.Claim
	return d, nil
}

// report reports the outcome of a decided message. That an allowed message was sent is the rule,
// and needs no report.
func (p *gate) report(d *decided, outcome, note string) {
	c := &api.ConfirmParams{Claim: d.claim, Outcome: outcome, Note: short(note)}
	if c.Claim == "" {
		if outcome == api.OutcomeSent {
			return
		}
		c.RequestKey = d.key
	}
	p.confirm(c)
}

func (p *gate) confirm(c *api.ConfirmParams) {
	if err := p.o.Link.Confirm(c); err != nil {
		p.o.Log.Warn("cannot say what became of a message", "claim", c.Claim, "key", c.RequestKey, "outcome", c.Outcome, "error", err)
	}
}

func (p *gate) withdraw(id, why string) {
	if err := p.o.Link.Call(context.WithoutCancel(p.ended), "agent.withdraw", &api.WithdrawParams{ApprovalID: id, Note: short(why)}, nil); err != nil {
		p.o.Log.Warn("cannot take back what waits", "approval", id, "error", err)
	}
}

func short(s string) string {
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "")
	}
	return s
}

func heldBy(id string) *gatelink.Refusal {
	return &gatelink.Refusal{Code: "HELD", Reason: fmt.Sprintf("the message is not sent yet. A person has to approve it (ocipd approvals show %s); then it is sent, once. The same request, with the same messageId, is answered with the answer", id)}
}
