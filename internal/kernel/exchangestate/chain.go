package exchangestate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Chains knows the longest causal chain that each agent received lately, from anybody and from each
// counterparty. The agent's next act counts as caused by it. A shorter chain that arrives later
// does not shorten it. It begins anew after its window, or after a person's word.
type Chains struct {
	*recent[received, store.Heard]
	// mu makes sure that of two chains received at once the longer one stays.
	mu sync.Mutex
}

// received is an agent and the sender of a chain: anybody, or one counterparty by its instance id.
// A person has no chain: their word only ends the chains received before it.
type received struct{ agent, from string }

const (
	fromAnybody = ""
	fromAPerson = "*"
	// lastOfAll is the time at which the agent last received any chain. It is not stored.
	lastOfAll = "+*"
)

const rememberedChains = 16384

func newChains(s *store.Store) *Chains {
	return &Chains{recent: newRecent(rememberedChains, func(ctx context.Context, who received) (store.Heard, error) {
		return s.Heard(ctx, who.agent, who.from)
	})}
}

// longest returns the longest chain that an agent received. It returns none if that was before
// since, or before a person's word.
func (c *Chains) longest(ctx context.Context, who received, since time.Time) (ocip.Chain, error) {
	h, err := c.of(ctx, who)
	if err != nil || h.Chain.ID == "" || h.At.Before(since) {
		return ocip.Chain{}, err
	}
	person, err := c.of(ctx, received{who.agent, fromAPerson})
	if err != nil || !h.At.After(person.At) {
		return ocip.Chain{}, err
	}
	return h.Chain, nil
}

// Receive enters into a change the chain that an agent gets from another. If the message answers
// something that the agent itself began, it does not cause the agent's next act: its chain counts
// between the two alone. Chains from before since are not compared.
func (c *Chains) Receive(ctx context.Context, agent, from string, chain ocip.Chain, answer bool, since, now time.Time, change *store.Change) error {
	if chain.ID == "" {
		return nil
	}
	for _, who := range [...]received{{agent, from}, {agent, fromAnybody}} {
		if answer && who.from == fromAnybody {
			continue
		}
		known, err := c.longest(ctx, who, since)
		if err != nil {
			return err
		}
		if longer := known.Longer(chain); longer.Hops > known.Hops {
			change.Add(store.Heard{Agent: agent, Counterparty: who.from, At: now, Chain: longer})
		}
	}
	return nil
}

// Answers reports whether a message to an agent answers something that the agent itself began.
// Before is the agent's side of the exchange before the message.
func Answers(before *ocip.Exchange) bool {
	return before.Round > 0 && before.Awaiting == "" && len(before.Transcript) > 0 && before.Transcript[0].Sender == before.Agent
}

// ReceiveApproved enters that an agent gets a message which a person approved. Only the chain that
// began with the person counts.
func ReceiveApproved(agent, from string, chain ocip.Chain, now time.Time, change *store.Change) {
	for _, who := range [...]string{from, fromAnybody} {
		change.Add(store.Heard{Agent: agent, Counterparty: who, At: now, Chain: chain})
	}
}

// BeginAnew enters into a change that a person has spoken, or has looked. The agent's next message
// begins a chain of its own.
func (c *Chains) BeginAnew(ctx context.Context, agent string, now time.Time, change *store.Change) error {
	lately, known := c.known.get(received{agent, lastOfAll})
	person, err := c.of(ctx, received{agent, fromAPerson})
	if err != nil || known && person.At.After(lately.At) {
		// Nothing changes if no chain was received since the last person's word.
		return err
	}
	change.Add(store.Heard{Agent: agent, Counterparty: fromAPerson, At: now})
	return nil
}

// entered remembers the chains of a durable change.
func (c *Chains) entered(change *store.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range store.Each[store.Heard](change) {
		who := received{h.Agent, h.Counterparty}
		if h.Chain.ID != "" {
			c.put(received{h.Agent, lastOfAll}, store.Heard{At: h.At})
		}
		if known, ok := c.known.get(who); ok && h.Chain.ID != "" && known.At.After(h.At) && known.Chain.Hops >= h.Chain.Hops {
			continue
		}
		c.put(who, h)
	}
}

// Cause returns the chain that an agent's message continues. It is the longest of three: the chain
// of the message that it answers, and the longest ones received lately from anybody and from the
// counterparty. So no loop begins anew by opening another exchange. Without any, the message begins
// a chain. An answer in an exchange that began with an agent's own turn continues that exchange's
// chain alone.
func (c *Chains) Cause(ctx context.Context, dispatchID string, e *ocip.Exchange, since, now time.Time) (chain ocip.Chain, err error) {
	if e.Awaiting != "" {
		if chain = e.Chain; chain.OwnTurn {
			return chain, nil
		}
	}
	for _, from := range [...]string{e.Counterparty, fromAnybody} {
		heard, err := c.longest(ctx, received{e.Agent, from}, since)
		if err != nil {
			return chain, err
		}
		chain = chain.Longer(heard)
	}
	if chain.ID == "" {
		chain = ocip.BeginChain(dispatchID, e.Agent, now)
	}
	return chain, nil
}

// ArrivedLocked returns the chain of a message from an agent of another daemon, which may leave
// chains out or shorten them. If this side had the last word in the exchange (for a new one: in the
// session), the message continues at least that chain.
func (x *State) ArrivedLocked(ctx context.Context, from, session, dispatchID string, came ocip.Chain, e *ocip.Exchange, since, now time.Time) (ocip.Chain, error) {
	known, err := x.lastWordLocked(ctx, from, session, e, since)
	if err != nil {
		return known, err
	}
	if known.ID == "" {
		known = ocip.BeginChain(dispatchID, from, now)
	}
	return known.Extend(e.Agent, e.Round > 0 && e.Awaiting == "").Longer(came), nil
}

// lastWordLocked returns the chain of this side's last message to the sender of a message, or none
// if the sender has written since.
func (x *State) lastWordLocked(ctx context.Context, from, session string, e *ocip.Exchange, since time.Time) (ocip.Chain, error) {
	before := *e
	if e.Round == 0 {
		var err error
		before, err = x.OfSessionLocked(ctx, PairOf(e), e.Agent, session)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return ocip.Chain{}, nil
		case err != nil:
			return ocip.Chain{}, err
		case before.Counterparty != from, before.UpdatedAt.Before(since):
			return ocip.Chain{}, nil
		}
	}
	if before.Awaiting != "" {
		return ocip.Chain{}, nil
	}
	return before.Chain, nil
}

// UnannotatedLocked returns the chain of a known agent's message without a chain. The message
// continues this side's last one to that agent; answer is set if that one asked something.
func (x *State) UnannotatedLocked(ctx context.Context, agent, from, session, dispatchID string, since, now time.Time) (chain ocip.Chain, answer bool, err error) {
	before, err := x.OfSessionLocked(ctx, store.PairOf(agent, from), agent, session)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return chain, false, err
	case before.Counterparty == from && before.Awaiting == "" && !before.UpdatedAt.Before(since):
		chain, answer = before.Chain, Answers(&before)
	}
	if chain.ID == "" {
		chain = ocip.BeginChain(dispatchID, from, now)
	}
	return chain.Extend(agent, answer), answer, nil
}
