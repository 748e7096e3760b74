package exchange

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Chains knows the longest causal chain that each agent received lately: from
// anybody, and from each counterparty. What an agent begins soon after, it began
// because of that. Nothing that it receives in between makes a chain shorter; it
// begins anew when its window is over, or by a person.
type Chains struct {
	*recent[received, store.Heard]
	// mu makes of two chains that are received at once the longer one stay.
	mu sync.Mutex
}

// received is an agent and from whom it received a chain: anybody, or one counterparty by its
// instance id. From a person it has no chain: what was received before then counts no
// longer.
type received struct{ agent, from string }

const (
	fromAnybody = ""
	fromAPerson = "*"
	// lastOfAll is when the agent received a chain from whomever. It is not stored.
	lastOfAll = "+*"
)

const rememberedChains = 16384

func newChains(s *store.Store) *Chains {
	return &Chains{recent: newRecent(rememberedChains, func(ctx context.Context, who received) (store.Heard, error) {
		return s.Heard(ctx, who.agent, who.from)
	})}
}

// longest returns the longest chain that an agent received, nothing where that was
// before since, or before a person's word.
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

// Receive enters into a change the chain of what an agent gets from another. The answer to
// something that the agent itself began is no new cause of what it does next: it
// counts between the two alone. Since is from when on a message counts as the cause of
// what its receiver begins now.
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

// Answers reports whether a message that an agent gets answers something that the
// agent itself began: before is its side of the exchange until then.
func Answers(before *ocip.Exchange) bool {
	return before.Round > 0 && before.Awaiting == "" && len(before.Transcript) > 0 && before.Transcript[0].Sender == before.Agent
}

// ReceiveApproved enters that an agent gets what a person let through: the chain that
// began with the person is all that counts.
func ReceiveApproved(agent, from string, chain ocip.Chain, now time.Time, change *store.Change) {
	for _, who := range [...]string{from, fromAnybody} {
		change.Add(store.Heard{Agent: agent, Counterparty: who, At: now, Chain: chain})
	}
}

// BeginAnew enters into a change that a person has spoken, or has looked: what the
// agent does next begins a chain of its own.
func (c *Chains) BeginAnew(ctx context.Context, agent string, now time.Time, change *store.Change) error {
	lately, known := c.known.get(received{agent, lastOfAll})
	person, err := c.of(ctx, received{agent, fromAPerson})
	if err != nil || known && person.At.After(lately.At) {
		// Most of what people say follows what people said: nothing changes.
		return err
	}
	change.Add(store.Heard{Agent: agent, Counterparty: fromAPerson, At: now})
	return nil
}

// entered remembers what a durable change holds.
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

// Cause returns the chain that an agent's message goes on with: that of the
// message it answers, or the longest it received lately, from anybody or from the
// counterparty, whichever is longest, so that no loop begins anew by opening
// another exchange. Without any, the message begins a chain. An answer within an exchange
// that began with a turn of an agent's own goes on with the chain of that exchange alone.
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

// ArrivedLocked returns the chain of a message that came from an agent elsewhere. That one may not carry chains, or may shorten them: where this side had the last word
// in the exchange or, for one that opens, in the session, the message goes on with that.
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

// lastWordLocked returns the chain of what this side said last to the sender of a message
// of an exchange, nothing where that one said more since.
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

// UnannotatedLocked returns the chain of a known agent's message that carries none:
// it goes on with what this side said last to that agent, and answer is set where it
// had asked.
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
