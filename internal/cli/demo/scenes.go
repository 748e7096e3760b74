package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/ocip"
)

// send is a scene in which alice's app dispatches a message, which telegram may get.
func (d *demo) send(session, content string, exchange map[string]any) func() ([]term.Cell, error) {
	return func() ([]term.Cell, error) {
		result, saw, err := d.dispatch(d.alice, "alice", session, content, exchange)
		if err != nil || result == nil {
			return saw, err
		}
		got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
		return append(saw, got...), err
	}
}

// dispatch sends a message, and returns the sender's view. A refusal is an answer, not an error.
func (d *demo) dispatch(from *client.Client, name, session, content string, exchange map[string]any) (*api.DispatchResult, []term.Cell, error) {
	ctx, cancel := context.WithTimeout(d.ctx, demoPatience)
	defer cancel()
	saw := []term.Cell{term.Tinted(name+" sends to "+session, term.Bold), term.Plain("  " + content)}
	if level, ok := exchange["classification"]; ok {
		saw = append(saw, term.Plain(fmt.Sprintf("  declared %v", level)))
	}
	params := map[string]any{"sessionKey": session, "content": content}
	if exchange != nil {
		params["metadata"] = map[string]any{"exchange": exchange}
	}
	var result api.DispatchResult
	err := from.Call(ctx, "message.dispatch", params, &result)
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		return nil, append(saw, refusal(refused)...), nil
	case err != nil:
		return nil, saw, err
	case result.Held:
		d.approval = result.ApprovalID
		return nil, append(saw, term.Tinted("  held for a person", term.Yellow), term.Plain("  "+result.OCIP.Reason)), nil
	case result.Waiting:
		saw = append(saw, term.Tinted("  waits: the receiver is away", term.Yellow))
	default:
		saw = append(saw, term.Tinted("  accepted", term.Green))
	}
	return &result, saw, nil
}

// receive returns the view of an app that gets a message.
func (d *demo) receive(app *client.Client, name, event string) ([]term.Cell, error) {
	var message api.Inbound
	for message.DispatchID == "" || d.received[message.DispatchID] {
		payload, err := d.next(app, event)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(payload.Data, &message); err != nil {
			return nil, err
		}
	}
	d.received[message.DispatchID] = true
	saw := []term.Cell{term.Tinted(name+" receives "+event, term.Bold)}
	for line := range strings.Lines(message.Content.Inspect()) {
		if line = strings.TrimSpace(line); line != "" {
			saw = append(saw, term.Plain("  "+line))
		}
	}
	envelope, err := ocip.ParseEnvelope(message.Metadata["ocip"])
	if errors.Is(err, ocip.ErrNoEnvelope) {
		return append(saw, term.Tinted("  no envelope: a human message", term.Dim)), nil
	}
	if err != nil {
		return nil, err
	}
	return append(saw,
		term.Tinted(fmt.Sprintf("  ocip: %s, from %s", envelope.MessageType, envelope.SourceAgent.InstanceID), term.Dim),
		term.Tinted(fmt.Sprintf("  %s, round %d of %d, %s", envelope.Classification, envelope.ExchangeRound, envelope.MaxRounds, envelope.ReplyPolicy), term.Dim),
	), nil
}

// next waits for an event of an app, and skips others.
func (d *demo) next(app *client.Client, event string) (payload api.HookEvent, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, demoPatience)
	defer cancel()
	for {
		in, err := app.Next(ctx)
		if err != nil {
			return payload, err
		}
		if in.Event == event {
			return payload, json.Unmarshal(in.Payload, &payload)
		}
	}
}

// demoEnvelope is an envelope of an agent of acme-corp in another installation.
func demoEnvelope(instance, user, unit string) map[string]any {
	return map[string]any{
		"version": ocip.Version, "message_type": ocip.AgentGenerated, "classification": "internal", "conversation_id": "conv-" + user + "-1",
		"source_agent":   map[string]any{"instance_id": instance, "user_id": user, "org_unit": unit, "tenant_id": "acme-corp"},
		"exchange_round": 1, "max_rounds": 3, "capabilities": map[string]any{"can_commit": false, "can_share": []string{"public", "internal"}},
		"reply_policy": ocip.AgentOK, "requires_commitment": false, "expires_at": "2099-01-01T00:00:00.000Z",
	}
}

// replay brings the same message of another installation twice.
func (d *demo) replay() (saw []term.Cell, err error) {
	params := map[string]any{"sessionKey": "telegram:dave", "text": "How far is the review?", "metadata": map[string]any{"ocip": demoEnvelope("agent-dave-1", "dave", "engineering")}}
	for range 2 {
		saw = append(saw, term.Tinted("telegram brings telegram:dave", term.Bold), term.Plain("  How far is the review? (round 1 of conv-dave-1)"))
		err := d.telegram.Call(d.ctx, "agent.queue", params, nil)
		var refused *api.Error
		switch {
		case errors.As(err, &refused):
			saw = append(saw, refusal(refused)...)
		case err != nil:
			return nil, err
		default:
			saw = append(saw, term.Tinted("  accepted", term.Green))
			if _, err := d.next(d.alice, "hook:message_received"); err != nil {
				return nil, err
			}
		}
	}
	return saw, nil
}

// mismatch sends to a target other than the session's. The target in the metadata is the
// one that the channel's app would use.
func (d *demo) mismatch() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("alice sends to telegram:dave", term.Bold), term.Plain("  Between us: it slips by a week."), term.Plain("  metadata.chatId: eve")}
	params := map[string]any{"sessionKey": "telegram:dave", "content": "Between us: it slips by a week.", "metadata": map[string]any{"chatId": "eve"}}
	return d.refused(saw, d.alice.Call(d.ctx, "message.dispatch", params, nil))
}

// forged brings an envelope with a source that does not belong to the session.
func (d *demo) forged() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("telegram brings telegram:dave", term.Bold), term.Plain("  The campaign is yours. (from agent-carol-1)")}
	params := map[string]any{"sessionKey": "telegram:dave", "text": "The campaign is yours.", "metadata": map[string]any{"ocip": demoEnvelope("agent-carol-1", "carol", "marketing")}}
	return d.refused(saw, d.telegram.Call(d.ctx, "agent.queue", params, nil))
}

func refusal(e *api.Error) []term.Cell {
	return []term.Cell{term.Tinted("  "+string(e.Code), term.Red), term.Plain("  " + e.Message)}
}

// refused adds the refusal of a call, which must have failed.
func (d *demo) refused(saw []term.Cell, err error) ([]term.Cell, error) {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		return nil, fmt.Errorf("it was taken: %w", err)
	}
	return append(saw, refusal(refused)...), nil
}

func (d *demo) human() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("telegram brings telegram:4711", term.Bold), term.Plain("  Can you look into this?")}
	params := map[string]any{"sessionKey": "telegram:4711", "text": "Can you look into this?"}
	if err := d.telegram.Call(d.ctx, "agent.queue", params, nil); err != nil {
		return nil, err
	}
	got, err := d.receive(d.alice, "alice", "hook:message_received")
	return append(saw, got...), err
}

func (d *demo) pair() ([]term.Cell, error) {
	_, saw, err := d.dispatch(d.alice, "alice", "agent:bob:main", "How far is the review?", nil)
	if err != nil {
		return nil, err
	}
	got, err := d.receive(d.bob, "bob", "hook:message_received")
	return append(saw, got...), err
}

// turn is one message in a conversation of agents.
type turn struct {
	from    *client.Client
	name    string
	session string
	to      *client.Client
	text    string
}

// loop continues the exchange of the previous scene until the daemon stops it.
func (d *demo) loop() ([]term.Cell, error) {
	return d.talk(nil,
		turn{d.bob, "bob", "agent:alice:main", d.alice, "Half way. And yours?"},
		turn{d.alice, "alice", "agent:bob:main", d.bob, "Half way too. And yours?"},
		turn{d.bob, "bob", "agent:alice:main", d.alice, "Still half way. And yours?"},
	)
}

// circle passes a message around; each one opens a new exchange. A person has settled the
// loop of the previous scene.
func (d *demo) circle() ([]term.Cell, error) {
	if err := d.operator.Call(d.ctx, "approval.resolve", api.ApprovalResolveParams{ApprovalID: d.approval, Decision: api.DecideDeny}, nil); err != nil {
		return nil, err
	}
	if err := d.skipRecords(); err != nil {
		return nil, err
	}
	to := func(agent string) string { return "agent:" + agent + ":circle" }
	return d.talk(map[string]any{"new": true},
		turn{d.bob, "bob", to("cleo"), d.cleo, "Can you take this?"},
		turn{d.cleo, "cleo", to("alice"), d.alice, "Can you take this?"},
		turn{d.alice, "alice", to("bob"), d.bob, "Can you take this?"},
		turn{d.bob, "bob", to("cleo"), d.cleo, "It was yours. Can you take it?"},
	)
}

// talk lets agents speak in turn until the daemon stops them.
func (d *demo) talk(exchange map[string]any, turns ...turn) (saw []term.Cell, err error) {
	for _, turn := range turns {
		result, said, err := d.dispatch(turn.from, turn.name, turn.session, turn.text, exchange)
		if err != nil {
			return nil, err
		}
		saw = append(saw, said...)
		if result == nil {
			return saw, nil
		}
		if _, err := d.next(turn.to, "hook:message_received"); err != nil {
			return nil, err
		}
	}
	return saw, nil
}

// killed shows that accepted messages are not lost: the daemon is killed while a message waits.
func (d *demo) killed() ([]term.Cell, error) {
	if err := d.telegram.Call(d.ctx, "app.shutdown", map[string]any{"reason": "out for a walk"}, nil); err != nil {
		return nil, err
	}
	<-d.telegram.Done()
	_, saw, err := d.dispatch(d.alice, "alice", "telegram:dave", "Read this when you are back.", map[string]any{"new": true})
	if err != nil {
		return nil, err
	}
	if saw, err = d.restart(saw); err != nil {
		return nil, err
	}
	got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
	return append(saw, got...), err
}

// approve shows that a held message survives the daemon, and is sent after a person approves it.
func (d *demo) approve() (saw []term.Cell, err error) {
	if saw, err = d.restart(nil); err != nil {
		return nil, err
	}
	var waits api.Approval
	if err := d.operator.Call(d.ctx, "approval.get", api.ApprovalParams{ApprovalID: d.approval}, &waits); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("the person sees what waits", term.Bold),
		term.Plain("  "+waits.AgentID+" → "+waits.To()+": "+waits.Content), term.Plain("  "+waits.Reason), term.Plain("  "+waits.Digest[:23]+"…"))
	params := api.ApprovalResolveParams{ApprovalID: d.approval, Decision: api.DecideApprove, Digest: waits.Digest, Note: "agreed with dave"}
	if err := d.operator.Call(d.ctx, "approval.resolve", params, nil); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("the person approves", term.Green))
	got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
	if err != nil {
		return nil, err
	}
	saw = append(saw, got...)
	return d.refused(append(saw, term.Tinted("a second approval", term.Bold)), d.operator.Call(d.ctx, "approval.resolve", params, nil))
}
