package mcpproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

const (
	// aliveEvery is the interval of progress messages to the client.
	aliveEvery = time.Second
	// askEvery is the longest interval between questions for people's decisions. The daemon
	// sends events too, but none when a pause ends.
	askEvery = 15 * time.Second
	// sendTime bounds the server's answer to a call of the proxy itself.
	sendTime = time.Minute
)

// asked is a message with the decisions about it, for each recipient.
type asked struct {
	// account is the server's account that would send the message.
	account string
	call    *toolCall
	tool    *toolmap.Tool
	m       *message
	gone    []*decided // allowed, and not sent yet
	by      []string   // by which claim, or ""
	held    map[string]string
	wants   []string // recipients that were allowed while others wait
}

// gate has a call decided, and answers it or passes it to the server. It returns the
// message if a person has to decide.
func (p *proxy) gate(ctx context.Context, c *toolCall, by *toolmap.Map, t *toolmap.Tool) (waits *asked) {
	m, err := read(by, t, c)
	if err != nil {
		p.refuse(c, gatelink.RefusedBy(err))
		return nil
	}
	a := &asked{call: c, tool: t, m: m, account: c.via.account(), held: make(map[string]string)}
	if no := p.ask(ctx, a, m.to); no != nil {
		p.giveUp(a, no.Reason)
		if ctx.Err() == nil {
			p.refuse(c, no)
		}
		return nil
	}
	if len(a.held) == 0 {
		p.let(a)
		return nil
	}
	// An allowed recipient waits with the others, and is decided again then.
	for _, d := range a.gone {
		a.wants = append(a.wants, d.SessionKey)
	}
	p.takeBack(a, "other recipients of the same call wait for a person")
	return a
}

// ask has the daemon decide about each recipient. It stops at the first refusal.
func (p *proxy) ask(ctx context.Context, a *asked, to []string) *gatelink.Refusal {
	origin := p.origin(a.account)
	if len(a.m.to) > 1 {
		origin += " (several recipients)"
	}
	for _, key := range to {
		if ctx.Err() != nil {
			return &gatelink.Refusal{Code: "CANCELLED", Reason: "the call was cancelled"}
		}
		d, held, no := emit(ctx, p.o.Link, key, a.m, origin)
		switch {
		case no != nil:
			return no
		case held != "":
			a.held[held] = key
			p.own(held, ownWaits)
		default:
			a.gone, a.by = append(a.gone, d), append(a.by, "")
		}
	}
	return nil
}

// takeBack reports to the daemon that allowed messages were not sent.
func (p *proxy) takeBack(a *asked, why string) {
	for i, d := range a.gone {
		c := &api.ConfirmParams{Claim: a.by[i], Outcome: api.OutcomeNotSent, Note: short(why)}
		if c.Claim == "" {
			c.RequestKey = d.key
		}
		p.confirm(c)
	}
	a.gone, a.by = nil, nil
}

// giveUp ends a call without sending it, and withdraws its approval requests.
func (p *proxy) giveUp(a *asked, why string) {
	p.takeBack(a, why)
	for id := range a.held {
		if err := p.o.Link.Call(context.WithoutCancel(p.ctx), "agent.withdraw", &api.WithdrawParams{ApprovalID: id, Note: short(why)}, nil); err != nil {
			p.o.Log.Warn("cannot take back what waits", "approval", id, "error", err)
		}
		p.disown(id)
	}
}

func short(s string) string {
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "")
	}
	return s
}

// arguments returns the decided arguments for the call, and the decided answers. They must
// be the same for all recipients, and name exactly these recipients.
func (p *proxy) arguments(a *asked) (one, answers jsontext.Value, err error) {
	checked := true
	for _, d := range a.gone {
		list, rewritten, err := d.arguments(a.tool)
		if err == nil && rewritten {
			checked, err = false, d.says(a.tool)
		}
		if err != nil {
			return nil, nil, err
		}
		text := object(list)
		switch {
		case one == nil:
			one, answers = text, d.call.Answers
		case string(one) != string(text), string(answers) != string(d.call.Answers):
			return nil, nil, toolmap.Unclear("the text was rewritten in another way for each recipient")
		}
	}
	if checked && one != nil {
		return one, answers, nil // they are those of the call, whose recipients were asked about
	}
	list, err := toolmap.Members(one, 0)
	if err != nil {
		return nil, nil, err
	}
	to, err := p.theMap().Recipients(a.tool, list)
	if err == nil {
		// An interceptor may have changed the arguments.
		err = p.theMap().Fits(a.tool, list)
	}
	if err == nil && !slices.Equal(to, a.m.to) {
		err = toolmap.Unclear("the recipients are not those that were decided about")
	}
	return one, answers, err
}

// let passes an allowed call to the server.
func (p *proxy) let(a *asked) {
	arguments, answers, err := p.arguments(a)
	if err != nil {
		p.takeBack(a, err.Error())
		p.refuse(a.call, gatelink.RefusedBy(err))
		return
	}
	line := a.call.with(arguments, answers)
	o := &observer{key: a.call.named, done: func(outcome, note string) { p.report(a, outcome, note) }}
	if err := a.call.via.pass(line, o); err != nil {
		p.takeBack(a, "the server is gone")
		p.refuse(a.call, &gatelink.Refusal{Code: "FAILED", Reason: "the MCP server is gone"})
	}
}

// report reports a message's outcome in the background. It does not report that a message
// without an approval was sent: that is the rule, and needs no record.
func (p *proxy) report(a *asked, outcome, note string) {
	for i, d := range a.gone {
		c := &api.ConfirmParams{Claim: a.by[i], Outcome: outcome, Note: short(note)}
		if c.Claim == "" {
			if outcome == api.OutcomeSent {
				continue
			}
			c.RequestKey = d.key
		}
		p.background.Go(func() { p.confirm(c) })
	}
}

func (p *proxy) confirm(c *api.ConfirmParams) {
	if err := p.o.Link.Confirm(c); err != nil {
		p.o.Log.Warn("cannot say what became of a message", "claim", c.Claim, "key", c.RequestKey, "outcome", c.Outcome, "error", err)
	}
}

// wait keeps a call open until a person decides, at most for the hold time.
func (p *proxy) wait(ctx context.Context, a *asked) {
	over := time.NewTimer(p.o.Hold)
	defer over.Stop()
	no, ended := p.await(ctx, a, over.C, a.call.via.left())
	switch {
	case no != nil:
		p.refuse(a.call, no)
	case ended == nil:
		p.let(a)
	case errors.Is(ended, errOver) && a.m.call.Answers != nil:
		p.giveUp(a, errAnswers.Error())
		p.refuse(a.call, &gatelink.Refusal{Code: "EXPIRED", Reason: "nobody has approved it in time, and " + errAnswers.Error()})
	case errors.Is(ended, errOver):
		p.answer(a.call, true, p.heldText(a))
		p.background.Go(func() { p.later(a) })
	case p.ended.Err() == nil:
		p.giveUp(a, "the call was cancelled")
	}
}

// errOver means that the time is up.
var errOver = errors.New("it was waited long enough")

// await waits until people have decided about everything that a call waits for, and redeems
// it. ended says why it stopped waiting. If over is nil, it waits without a limit and
// reports no progress.
func (p *proxy) await(ctx context.Context, a *asked, over <-chan time.Time, left <-chan struct{}) (no *gatelink.Refusal, ended error) {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	var asked time.Time
	for n, tick, ask := 0, true, true; ; {
		changed, live := p.o.Link.News()
		if tick && over != nil {
			n++
			p.progress(a.call, n)
		}
		if ask || !live || p.o.Now().Sub(asked) >= askEvery {
			asked = p.o.Now()
			ready, no := p.decidedAll(ctx, a)
			if no != nil {
				p.giveUp(a, no.Reason)
				return no, nil
			}
			if ready {
				return p.redeem(ctx, a), nil
			}
		}
		tick, ask = false, false
		select {
		case <-p.ended.Done():
			return nil, p.ended.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			return nil, errOver
		case <-left:
			return nil, errOver
		case <-changed:
			ask = true
		case <-alive.C:
			tick = true
		}
	}
}

func (p *proxy) heldText(a *asked) string {
	ids := " " + strings.Join(slices.Sorted(maps.Keys(a.held)), " ")
	text := "HELD" + ids + "\nocipd: the message is not sent yet. A person has to approve it: ocipd approvals show" + ids + ". Do not send it again; "
	if len(a.m.to) > 1 {
		return text + "it is sent once all of its recipients are approved, as long as this session lasts."
	}
	return text + "it is sent once it is approved, by this session or a later one."
}

// decidedAll asks the daemon for people's decisions about a call.
func (p *proxy) decidedAll(ctx context.Context, a *asked) (ready bool, no *gatelink.Refusal) {
	ready = true
	for id := range a.held {
		var now api.AgentApproval
		err := p.o.Link.Call(ctx, "agent.approval", map[string]string{"approval_id": id}, &now)
		if err != nil {
			p.o.Log.Warn("cannot ask what was decided", "approval", id, "error", err)
			return false, nil
		}
		switch now.Status {
		case api.ApprovalPending:
			ready = false
		case api.ApprovalApproved, api.ApprovalTakenOver:
		default:
			reason := "a person has decided: " + now.Status
			if now.Note != "" {
				reason += " (" + now.Note + ")"
			}
			delete(a.held, id)
			p.disown(id)
			return false, &gatelink.Refusal{Code: now.Code, Reason: reason}
		}
	}
	return ready, nil
}

// redeem claims the approved messages, and has the other recipients decided again.
func (p *proxy) redeem(ctx context.Context, a *asked) *gatelink.Refusal {
	ctx = context.WithoutCancel(ctx)
	for id := range a.held {
		var got api.Redeemed
		err := p.o.Link.Call(ctx, "agent.redeem", &api.RedeemParams{ApprovalID: id}, &got)
		var d *decided
		if err == nil {
			d, err = readDecided(got.Data, nil, nil)
		}
		if err != nil {
			p.takeBack(a, "another part of the call cannot be sent")
			if api.AsError(err).Code == api.Conflict {
				return &gatelink.Refusal{Code: string(api.AlreadyRedeemed), Reason: "another session has taken it, and sends it"}
			}
			return gatelink.RefusedBy(err)
		}
		a.gone, a.by = append(a.gone, d), append(a.by, got.Claim)
		p.disown(id)
		delete(a.held, id)
	}
	if no := p.ask(ctx, a, a.wants); no != nil {
		p.giveUp(a, no.Reason)
		return no
	}
	if len(a.held) > 0 {
		p.giveUp(a, "other recipients of the same call wait for a person anew")
		return &gatelink.Refusal{Code: "HELD", Reason: "since it was approved for some recipients, others have to be approved anew; send it again"}
	}
	return nil
}

// later sends a message that is approved after its call was answered, while the session lasts.
func (p *proxy) later(a *asked) {
	if len(a.m.to) == 1 {
		for id := range a.held {
			p.own(id, ownAnswered)
		}
		p.o.Link.Wake()
		return
	}
	no, ended := p.await(p.ended, a, nil, nil)
	switch {
	case no != nil:
		p.o.Log.Warn("cannot send what was approved", "reason", no.Reason)
	case ended == nil:
		p.again(a)
	}
}

// errAnswers is why a call cannot be repeated: it answers a question of the server in a
// call that is over.
var errAnswers = errors.New("it answers what the server has asked about a call that is over")

// again sends an allowed message in a call of the proxy itself.
func (p *proxy) again(a *asked) {
	arguments, answers, err := p.arguments(a)
	if err == nil && answers != nil {
		err = errAnswers
	}
	if err != nil {
		p.takeBack(a, err.Error())
		return
	}
	own := "ocipd-" + p.o.NewID()
	name := api.String(a.m.call.Tool)
	over := make(chan struct{})
	o := &observer{key: key{id: keyOf(api.String(own))}, own: true, done: func(outcome, note string) {
		p.report(a, outcome, note)
		close(over)
	}}
	if err := p.spare(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s}}`+"\n", api.String(own), name, arguments), o, a.account); err != nil {
		p.takeBack(a, "the server is gone")
		return
	}
	select {
	case <-over:
	case <-time.After(sendTime):
		p.lose(o, api.OutcomeUnknown, "the server has not answered")
	}
}

// release sends approved messages of this agent and server, from any session: this
// session's at once, those of others after a delay.
func (p *proxy) release() {
	var sending sync.WaitGroup
	defer sending.Wait()
	p.o.Link.Release(p.ended, func(r *api.Redeemable) gatelink.Claim {
		whose := p.owns(r.ApprovalID)
		account, sends := p.sendsFor(r.Origin)
		return gatelink.Claim{Ours: sends && whose != ownWaits, Own: whose == ownAnswered, Send: func() bool {
			d := p.redeemed(r.ApprovalID)
			if d != nil {
				sending.Go(func() { p.sendApproved(d, account) })
			}
			return d != nil
		}}
	}, func() {})
}

// sendsFor reports whether this server sends the messages of an origin, and through which account.
func (p *proxy) sendsFor(origin string) (account string, ok bool) {
	for _, account := range p.accounts() {
		if p.origin(account) == origin {
			return account, true
		}
	}
	return "", false
}

// redeemed claims an approved message.
func (p *proxy) redeemed(id string) *api.Redeemed {
	var got api.Redeemed
	if err := p.o.Link.Call(p.ended, "agent.redeem", &api.RedeemParams{ApprovalID: id}, &got); err != nil {
		if api.AsError(err).Code != api.Conflict {
			p.o.Log.Warn("cannot take what was approved", "approval", id, "error", err)
		}
		return nil
	}
	return &got
}

// sendApproved sends a claimed message.
func (p *proxy) sendApproved(got *api.Redeemed, account string) {
	d, err := readDecided(got.Data, nil, nil)
	a := &asked{account: account, gone: []*decided{d}, by: []string{got.Claim}}
	if err == nil {
		a.m = &message{to: []string{d.SessionKey}, call: d.call}
		if a.tool, err = toolAgain(p.theMap(), d); err == nil && a.tool == nil {
			err = errors.New("the map has the tool no more")
		}
	}
	if err != nil {
		p.confirm(&api.ConfirmParams{Claim: got.Claim, Outcome: api.OutcomeNotSent, Note: short(err.Error())})
		return
	}
	p.again(a)
}

// toolAgain finds the tool of a stored call again: that of the map, or the guessed one.
func toolAgain(m *toolmap.Map, d *decided) (*toolmap.Tool, error) {
	list, err := toolmap.Members(d.call.Arguments, 0)
	if err != nil {
		return nil, err
	}
	for _, part := range d.call.Parts {
		list = append(list, toolmap.Member{Name: part.Name, Value: jsontext.Value(`""`)})
	}
	return m.ToolOf(d.call.Tool, list)
}
