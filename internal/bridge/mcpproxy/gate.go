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
	p *proxy
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
	a := &asked{p: p, call: c, tool: t, m: m, account: c.via.account(), held: make(map[string]string)}
	if no := a.ask(ctx, m.to); no != nil {
		a.giveUp(no.Reason)
		if ctx.Err() == nil {
			p.refuse(c, no)
		}
		return nil
	}
	if len(a.held) == 0 {
		a.let()
		return nil
	}
	// An allowed recipient waits with the others, and is decided again then.
	for _, d := range a.gone {
		a.wants = append(a.wants, d.SessionKey)
	}
	a.takeBack("other recipients of the same call wait for a person")
	return a
}

// ask has the daemon decide about each recipient. It stops at the first refusal.
func (a *asked) ask(ctx context.Context, to []string) *gatelink.Refusal {
	origin := a.p.origin(a.account)
	if len(a.m.to) > 1 {
		origin += " (several recipients)"
	}
	for _, key := range to {
		if ctx.Err() != nil {
			return &gatelink.Refusal{Code: "CANCELLED", Reason: "the call was cancelled"}
		}
		d, held, no := emit(ctx, a.p.o.Link, key, a.m, origin)
		switch {
		case no != nil:
			return no
		case held != "":
			a.held[held] = key
			a.p.mine.Store(held, ownWaits)
		default:
			a.gone, a.by = append(a.gone, d), append(a.by, "")
		}
	}
	return nil
}

// takeBack reports to the daemon that allowed messages were not sent.
func (a *asked) takeBack(why string) {
	for i, d := range a.gone {
		c := &api.ConfirmParams{Claim: a.by[i], Outcome: api.OutcomeNotSent, Note: short(why)}
		if c.Claim == "" {
			c.RequestKey = d.key
		}
		a.p.confirm(c)
	}
	a.gone, a.by = nil, nil
}

// giveUp ends a call without sending it, and withdraws its approval requests.
func (a *asked) giveUp(why string) {
	a.takeBack(why)
	for id := range a.held {
		a.p.withdraw(id, why)
		a.p.mine.Delete(id)
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
func (a *asked) arguments() (one, answers jsontext.Value, err error) {
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
	to, err := a.p.theMap().Recipients(a.tool, list)
	if err == nil {
		// An interceptor may have changed the arguments.
		err = a.p.theMap().Fits(a.tool, list)
	}
	if err == nil && !slices.Equal(to, a.m.to) {
		err = toolmap.Unclear("the recipients are not those that were decided about")
	}
	return one, answers, err
}

// let passes an allowed call to the server.
func (a *asked) let() {
	arguments, answers, err := a.arguments()
	if err != nil {
		a.takeBack(err.Error())
		a.p.refuse(a.call, gatelink.RefusedBy(err))
		return
	}
	line := a.call.with(arguments, answers)
	o := &observer{key: a.call.named, done: a.report}
	if err := a.call.via.pass(line, o); err != nil {
		a.takeBack("the server is gone")
		a.p.refuse(a.call, &gatelink.Refusal{Code: "FAILED", Reason: "the MCP server is gone"})
	}
}

// report reports a message's outcome in the background. It does not report that a message
// without an approval was sent: that is the rule, and needs no record.
func (a *asked) report(outcome, note string) {
	for i, d := range a.gone {
		c := &api.ConfirmParams{Claim: a.by[i], Outcome: outcome, Note: short(note)}
		if c.Claim == "" {
			if outcome == api.OutcomeSent {
				continue
			}
			c.RequestKey = d.key
		}
		a.p.background.Go(func() { a.p.confirm(c) })
	}
}

func (p *proxy) confirm(c *api.ConfirmParams) {
	if err := p.o.Link.Confirm(c); err != nil {
		p.o.Log.Warn("cannot say what became of a message", "claim", c.Claim, "key", c.RequestKey, "outcome", c.Outcome, "error", err)
	}
}

// wait keeps a call open until a person decides, at most for the hold time.
func (a *asked) wait(ctx context.Context) {
	over := time.NewTimer(a.p.o.Hold)
	defer over.Stop()
	no, ended := a.await(ctx, over.C, a.call.via.left())
	switch {
	case no != nil:
		a.p.refuse(a.call, no)
	case ended == nil:
		a.let()
	case errors.Is(ended, errOver) && a.m.call.Answers != nil:
		a.giveUp(errAnswers.Error())
		a.p.refuse(a.call, &gatelink.Refusal{Code: "EXPIRED", Reason: "nobody has approved it in time, and " + errAnswers.Error()})
	case errors.Is(ended, errOver):
		a.call.answer(true, a.heldText())
		a.p.background.Go(a.later)
	case a.p.ended.Err() == nil:
		a.giveUp("the call was cancelled")
	}
}

// errOver means that the time is up.
var errOver = errors.New("it was waited long enough")

// await calls asks until that reports a decision: at first, after each news of the daemon, and every askEvery. In
// between it calls alive. It returns an error if the proxy ends, the time is over, or the client has left before.
func (p *proxy) await(ctx context.Context, over <-chan time.Time, left <-chan struct{}, alive func(), asks func() bool) error {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	var asked time.Time
	for ask := true; ; {
		changed, live := p.o.Link.News()
		if ask || !live || p.o.Now().Sub(asked) >= askEvery {
			asked = p.o.Now()
			if asks() {
				return nil
			}
		}
		ask = false
		select {
		case <-p.ended.Done():
			return p.ended.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return errOver
		case <-left:
			return errOver
		case <-changed:
			ask = true
		case <-tick.C:
			alive()
		}
	}
}

// await waits until people have decided about everything that a call waits for, and redeems
// it. ended says why it stopped waiting. If over is nil, it waits without a limit and
// reports no progress.
func (a *asked) await(ctx context.Context, over <-chan time.Time, left <-chan struct{}) (no *gatelink.Refusal, ended error) {
	n := 0
	alive := func() {
		if n++; over != nil {
			a.call.alive(n)
		}
	}
	alive()
	ended = a.p.await(ctx, over, left, alive, func() (ready bool) {
		if ready, no = a.decidedAll(ctx); no != nil {
			a.giveUp(no.Reason)
		} else if ready {
			no = a.redeem(ctx)
		}
		return ready || no != nil
	})
	return no, ended
}

func (a *asked) heldText() string {
	ids := " " + strings.Join(slices.Sorted(maps.Keys(a.held)), " ")
	text := "HELD" + ids + "\nocipd: the message is not sent yet. A person has to approve it: ocipd approvals show" + ids + ". Do not send it again; "
	if len(a.m.to) > 1 {
		return text + "it is sent once all of its recipients are approved, as long as this session lasts."
	}
	return text + "it is sent once it is approved, by this session or a later one."
}

// decidedAll asks the daemon for people's decisions about a call.
func (a *asked) decidedAll(ctx context.Context) (ready bool, no *gatelink.Refusal) {
	ready = true
	for id := range a.held {
		var now api.AgentApproval
		err := a.p.o.Link.Call(ctx, "agent.approval", map[string]string{"approval_id": id}, &now)
		if err != nil {
			a.p.o.Log.Warn("cannot ask what was decided", "approval", id, "error", err)
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
			a.p.mine.Delete(id)
			return false, &gatelink.Refusal{Code: now.Code, Reason: reason}
		}
	}
	return ready, nil
}

// redeem claims the approved messages, and has the other recipients decided again.
func (a *asked) redeem(ctx context.Context) *gatelink.Refusal {
	ctx = context.WithoutCancel(ctx)
	for id := range a.held {
		var got api.Redeemed
		err := a.p.o.Link.Call(ctx, "agent.redeem", &api.RedeemParams{ApprovalID: id}, &got)
		var d *decided
		if err == nil {
			d, err = readDecided(got.Data, nil, nil)
		}
		if err != nil {
			a.takeBack("another part of the call cannot be sent")
			if api.AsError(err).Code == api.Conflict {
				return &gatelink.Refusal{Code: string(api.AlreadyRedeemed), Reason: "another session has taken it, and sends it"}
			}
			return gatelink.RefusedBy(err)
		}
		a.gone, a.by = append(a.gone, d), append(a.by, got.Claim)
		a.p.mine.Delete(id)
		delete(a.held, id)
	}
	if no := a.ask(ctx, a.wants); no != nil {
		a.giveUp(no.Reason)
		return no
	}
	if len(a.held) > 0 {
		a.giveUp("other recipients of the same call wait for a person anew")
		return &gatelink.Refusal{Code: "HELD", Reason: "since it was approved for some recipients, others have to be approved anew; send it again"}
	}
	return nil
}

// later sends a message that is approved after its call was answered, while the session lasts.
func (a *asked) later() {
	if len(a.m.to) == 1 {
		for id := range a.held {
			a.p.mine.Store(id, ownAnswered)
		}
		a.p.o.Link.Wake()
		return
	}
	no, ended := a.await(a.p.ended, nil, nil)
	switch {
	case no != nil:
		a.p.o.Log.Warn("cannot send what was approved", "reason", no.Reason)
	case ended == nil:
		a.again()
	}
}

// errAnswers is why a call cannot be repeated: it answers a question of the server in a
// call that is over.
var errAnswers = errors.New("it answers what the server has asked about a call that is over")

// again sends an allowed message in a call of the proxy itself.
func (a *asked) again() {
	arguments, answers, err := a.arguments()
	if err == nil && answers != nil {
		err = errAnswers
	}
	if err != nil {
		a.takeBack(err.Error())
		return
	}
	own := "ocipd-" + a.p.o.NewID()
	name := api.String(a.m.call.Tool)
	over := make(chan struct{})
	o := &observer{key: key{id: keyOf(api.String(own))}, own: true, done: func(outcome, note string) {
		a.report(outcome, note)
		close(over)
	}}
	if err := a.p.spare(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s}}`+"\n", api.String(own), name, arguments), o, a.account); err != nil {
		a.takeBack("the server is gone")
		return
	}
	select {
	case <-over:
	case <-time.After(sendTime):
		a.p.calls.lose(o, api.OutcomeUnknown, "the server has not answered")
	}
}

// release sends approved messages of this agent and server, from any session: this
// session's at once, those of others after a delay.
func (p *proxy) release() {
	var sending sync.WaitGroup
	defer sending.Wait()
	p.o.Link.Release(p.ended, func(r *api.Redeemable) gatelink.Claim {
		whose, _ := p.mine.Load(r.ApprovalID)
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
	a := &asked{p: p, account: account, gone: []*decided{d}, by: []string{got.Claim}}
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
	a.again()
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

// owned says how an approval request belongs to this session.
type owned int

const (
	// ownWaits marks a request whose call is open and sends the message.
	ownWaits owned = iota + 1
	// ownAnswered marks a request whose call was answered.
	ownAnswered
)
