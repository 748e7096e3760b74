package roundtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Caller is a connection to the daemon.
type Caller interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Lines are the connections of one run of the daemon: of each agent's app, in
// the order of [Load.Agents], and of a person.
type Lines struct {
	Agents   []Caller
	Operator Caller
}

// Load makes three agents talk to each other at the same time. Everything but the
// order of the callers follows from the seed.
type Load struct {
	History History

	seed  uint64
	runs  uint64
	pairs []*pair

	mu sync.Mutex
	// had are the exchanges that each agent was let send a message in, newest last.
	had [3][]exchange
}

// exchange is one that a pair has.
type exchange struct {
	pair int
	id   string
}

// have notes that an agent has an exchange.
func (l *Load) have(agent int, e exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.id != "" && !slices.Contains(l.had[agent], e) {
		l.had[agent] = append(l.had[agent], e)
	}
}

// foreign returns the exchange that an agent has had last with another than a pair's
// other agent, "" where there is none.
func (l *Load) foreign(agent, pair int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.had[agent]) {
		if e.pair != pair {
			return e.id
		}
	}
	return ""
}

// The limits of rounds: long enough for many to race for a round, and
// different, so that the receiver's may be the lower one.
const maxRounds = 6

func limits() [3]int { return [3]int{6, 4, 5} }

// pairing are the pairs of the three agents.
func pairing() [3][2]int { return [3][2]int{{0, 1}, {0, 2}, {1, 2}} }

// NewLoad returns the load of a seed.
func NewLoad(seed uint64) *Load {
	l := &Load{seed: seed}
	for i, agents := range pairing() {
		l.pairs = append(l.pairs, &pair{number: i, agents: agents, turn: make(chan struct{}, 1)})
	}
	return l
}

// Agents returns the apps of the agents.
func (l *Load) Agents() []string { return []string{app(0), app(1), app(2)} }

func app(agent int) string      { return "@rounds/" + name(agent) }
func instance(agent int) string { return "agent-" + name(agent) }
func name(agent int) string     { return string(rune('a' + agent)) }

// Config returns the daemon's configuration. Limits across more than two agents
// are off, and the policy may take its time on a busy machine: either would
// stop a message for reasons that no pair can see.
func (l *Load) Config() string {
	var b strings.Builder
	b.WriteString("ipc: {apps_may_operate: true}\napprovals: {max_open: 100000, notify: {desktop: false}}\npolicy: {timeout: 10s}\n")
	fmt.Fprintf(&b, "ocip: {max_rounds: %d, chain: {enforcement: \"off\"}}\nagents:\n", maxRounds)
	for i, limit := range limits() {
		fmt.Fprintf(&b, "  - {id: %s, app: %q, instance_id: %s, user_id: u%d, org_unit: eng, tenant_id: acme, max_rounds: %d}\n",
			name(i), app(i), instance(i), i, limit)
	}
	return b.String()
}

// Rules returns what the daemon must do under that configuration.
func (l *Load) Rules() Rules {
	r := Rules{MaxRounds: maxRounds}
	for _, agents := range pairing() {
		r.Limits = append(r.Limits, [2]int{limits()[agents[0]], limits()[agents[1]]})
	}
	return r
}

// pair is the knowledge that the callers of a pair share.
type pair struct {
	number int
	agents [2]int
	// turn is given to the person after a message.
	turn chan struct{}

	mu sync.Mutex
	// named counts the names used up; the next one is the name of the day.
	named int
	// known are the exchanges that were heard of, newest last.
	known []string
	// stuck is the exchange that was last heard to be used up.
	stuck string
}

// learn reads a call and its answer.
func (p *pair) learn(in Input, out Output) {
	if in.Foreign {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range []string{in.ID, out.ExchangeID} {
		if id != "" && !slices.Contains(p.known, id) {
			p.known = append(p.known, id)
		}
	}
	switch {
	case out.Code == string(ocip.RoundLimit):
		p.stuck = cmp.Or(out.Escalated, out.ExchangeID)
	case in.Action == Resolve && in.By == Operator && in.ID == p.stuck:
		p.stuck = ""
	}
	if in.Action == Dispatch && out.Code != "" && in.ID == p.name() {
		p.named++
	}
}

// name is the exchange of the day, which everybody goes on with by its name.
func (p *pair) name() string { return fmt.Sprintf("p%d-%d", p.number, p.named) }

// Run has everybody call until so many messages were answered, and then ends the
// daemon under their hands: end returns when its process is gone. It begins
// with a look at what the runs before left.
func (l *Load) Run(ctx context.Context, lines Lines, messages int, end func()) error {
	l.runs++
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cancel := func(err error) {
		if err != nil {
			stop(err)
		}
	}
	if err := l.Look(ctx, lines); err != nil {
		return err
	}
	var (
		agents, persons sync.WaitGroup
		answered        atomic.Int64
	)
	enough, down, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for _, p := range l.pairs {
		// Three tasks of each agent, and a person.
		for i, by := range []Party{First, Second, First, Second, First, Second, Operator} {
			c := &caller{load: l, pair: p, by: by, number: i, lines: lines}
			c.rand = rand.New(rand.NewPCG(l.seed, l.runs<<32|uint64(p.number)<<16|uint64(i))) //nolint:gosec // a load that can be had again, no secret
			if by == Operator {
				persons.Go(func() { cancel(c.watch(ctx, down)) })
				continue
			}
			agents.Go(func() {
				cancel(c.send(ctx, func() {
					if answered.Add(1) == int64(messages) {
						close(enough)
					}
				}))
			})
		}
	}
	go func() {
		defer close(gone)
		agents.Wait()
	}()
	select {
	case <-enough:
	case <-gone:
		cancel(errors.New("the daemon ended by itself"))
	case <-ctx.Done():
	}
	end()
	<-gone
	close(down)
	persons.Wait()
	for _, in := range l.History.ended() {
		l.pairs[in.Pair].learn(in, Output{Lost: true})
	}
	return context.Cause(ctx)
}

// Look has a person look at everything that was heard of.
func (l *Load) Look(ctx context.Context, lines Lines) error {
	for _, p := range l.pairs {
		for _, id := range slices.Clone(p.known) {
			if err := l.look(ctx, lines, p, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Load) look(ctx context.Context, lines Lines, p *pair, id string) error {
	c := &caller{load: l, pair: p, by: Operator, number: int(Operator), lines: lines}
	lost, err := c.call(ctx, Input{Action: Get, ID: id})
	if lost {
		err = errors.New("cannot look at an exchange: the connection is closed")
	}
	return err
}

// caller makes one call after the other.
type caller struct {
	load   *Load
	pair   *pair
	by     Party
	number int
	lines  Lines
	rand   *rand.Rand
	// calls counts what it has drawn.
	calls int
}

// send makes an agent's calls until the connection is lost.
func (c *caller) send(ctx context.Context, answered func()) error {
	for {
		in := c.next()
		lost, err := c.call(ctx, in)
		if lost || err != nil {
			return err
		}
		if in.Action == Dispatch {
			answered()
			select {
			case c.pair.turn <- struct{}{}:
			default:
			}
		}
	}
}

// watch makes a person's calls, of which there are no more than messages.
func (c *caller) watch(ctx context.Context, down <-chan struct{}) error {
	for {
		select {
		case <-c.pair.turn:
		case <-down:
			return nil
		}
		lost, err := c.call(ctx, c.glance())
		if lost || err != nil {
			return err
		}
	}
}

// draw returns a number below 100, the exchange of the day, one that was heard
// of lately, and the one that is in the way.
func (c *caller) draw() (n int, today, some, stuck string) {
	p := c.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	today, some = p.name(), p.name()
	if recent := min(len(p.known), 4); recent > 0 {
		some = p.known[len(p.known)-1-c.rand.IntN(recent)]
	}
	return c.rand.IntN(100), today, some, p.stuck
}

// glance draws a person's call: to settle what is in the way, to look, and now
// and then to end what is not used up.
func (c *caller) glance() Input {
	n, _, some, stuck := c.draw()
	switch {
	case n < 60 && stuck != "":
		return Input{Action: Resolve, ID: stuck}
	case n < 95:
		return Input{Action: Get, ID: some}
	}
	return Input{Action: Resolve, ID: some}
}

// next draws an agent's call, mostly a message: in the exchange of the day, in
// another one, in its session's, in a new one. Some name an exchange that the agent
// has with somebody else.
func (c *caller) next() Input {
	n, today, some, _ := c.draw()
	in := Input{Action: Dispatch}
	if c.rand.IntN(10) == 0 {
		in.MaxRounds = 1 + c.rand.IntN(maxRounds)
	}
	// Requests for one session are taken in order, so there are several. An
	// exchange stays with the session it was opened in: those that are named
	// are opened in others than those that are not.
	named, unnamed := string("xyz"[c.rand.IntN(3)]), [...]string{"main", "side"}[c.rand.IntN(2)]
	foreign := c.load.foreign(c.pair.agents[c.by], c.pair.number)
	defer func() { c.calls++ }()
	switch {
	case foreign != "" && (n < 12 || c.calls < 3 && c.number >= 4):
		// A daemon that was just started remembers none.
		in.ID, in.Session, in.Foreign = foreign, named, true
	case n < 45:
		in.ID, in.Session = today, named
	case n < 55:
		in.ID, in.Session = some, named
	case n < 80:
		in.Session = unnamed
	case n < 88:
		in.New, in.Session = true, unnamed
	case n < 97:
		return Input{Action: Get, ID: some}
	default:
		return Input{Action: Resolve, ID: some}
	}
	return in
}

// call makes a call and enters it into the history. It reports whether the
// connection was lost; an error is an answer that the model has no word for.
func (c *caller) call(ctx context.Context, in Input) (lost bool, err error) {
	h := &c.load.History
	in.Pair, in.By, in.Call = c.pair.number, c.by, h.tick()
	out, err := c.ask(ctx, in)
	switch {
	case err != nil && code(err) == api.ConnectionClosed:
		h.unanswered(c.number, in)
		return true, nil
	case err != nil:
		h.unanswered(c.number, in)
		return false, fmt.Errorf("%v: %w", in, err)
	}
	h.answered(c.number, in, out)
	c.pair.learn(in, out)
	if in.Action == Dispatch && out.Code == "" {
		c.load.have(c.pair.agents[in.By], exchange{c.pair.number, out.ExchangeID})
	}
	return false, nil
}

func code(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

// ask makes the call and reads the answer.
func (c *caller) ask(ctx context.Context, in Input) (Output, error) {
	line := c.lines.Operator
	if in.By != Operator {
		line = c.lines.Agents[c.pair.agents[in.By]]
	}
	switch in.Action {
	case Dispatch:
		return c.dispatch(ctx, line, in)
	case Get:
		var got api.ExchangeResult
		err := line.Call(ctx, string(in.Action), api.ExchangeParams{ExchangeID: in.ID}, &got)
		if code(err) == api.NotFound {
			return Output{Code: string(api.NotFound)}, nil
		}
		return c.seen(got.Exchanges), err
	case Resolve:
		err := line.Call(ctx, string(in.Action), api.ExchangeResolveParams{ExchangeID: in.ID, Outcome: string(ocip.Resolved)}, nil)
		switch refused := code(err); refused {
		case api.NotFound, api.Forbidden, api.Conflict:
			return Output{Code: string(refused)}, nil
		default:
			return Output{}, err
		}
	}
	return Output{}, fmt.Errorf("cannot call %q: the load does not know it", in.Action)
}

func (c *caller) seen(sides []api.Exchange) (out Output) {
	for _, e := range sides {
		side := slices.IndexFunc(c.pair.agents[:], func(agent int) bool { return instance(agent) == e.Agent })
		out.Sides[side] = Side{Round: e.CurrentRound, MaxRounds: e.MaxRounds, Outcome: ocip.Outcome(e.Outcome)}
	}
	return out
}

func (c *caller) dispatch(ctx context.Context, line Caller, in Input) (Output, error) {
	exchange := map[string]any{"new": in.New}
	if in.ID != "" {
		exchange["id"] = in.ID
	}
	if in.MaxRounds > 0 {
		exchange["maxRounds"] = in.MaxRounds
	}
	var sent api.DispatchResult
	err := line.Call(ctx, string(in.Action), map[string]any{
		"sessionKey": "agent:" + name(c.pair.agents[Second-in.By]) + ":" + in.Session,
		// No message is like another one: the same bytes would be the same request.
		"content": fmt.Sprintf("ping %d", in.Call), "metadata": map[string]any{"exchange": exchange},
	}, &sent)
	switch {
	case err == nil && sent.OCIP == nil:
		return Output{}, errors.New("the answer names no exchange")
	case err == nil && sent.Held:
		return stopped(sent.OCIP), nil
	case err == nil:
		return Output{
			ExchangeID: sent.OCIP.ExchangeID, Conversation: sent.OCIP.ConversationID, Round: sent.OCIP.Round, MaxRounds: sent.OCIP.MaxRounds,
		}, nil
	case code(err) != api.Forbidden:
		return Output{}, err
	}
	if in.Foreign {
		return Output{Code: string(code(err))}, nil
	}
	// A refusal names its members as the answer to a held message does.
	v := api.DetailsOf[api.ExchangeRef](err)
	return stopped(&v), nil
}

// stopped is the answer for a message that was refused or is held.
func stopped(v *api.ExchangeRef) Output {
	out := Output{Code: string(v.Code), ExchangeID: v.ExchangeID, Conversation: v.ConversationID, Escalated: v.EscalatedExchange}
	if v.Escalation != nil && v.EscalatedExchange == "" {
		out.Round, out.MaxRounds = v.Escalation.CurrentRound, v.Escalation.MaxRounds
	}
	return out
}
