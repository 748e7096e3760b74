package kernel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// chains knows the longest causal chain that each agent heard lately: from
// anybody, and from each counterparty. What an agent begins soon after, it began
// because of that. Nothing that is heard in between makes a chain shorter; it
// begins anew when its window is over, or by a person.
type chains struct {
	*recent[hearing, store.Heard]
	// mu makes of two chains that are heard at once the longer one stay.
	mu sync.Mutex
}

// hearing is an agent and from whom it heard: anybody, or one counterparty by its
// instance id. From a person it has no chain: what was heard before then counts no
// longer.
type hearing struct{ agent, from string }

const (
	fromAnybody = ""
	fromAPerson = "*"
	// lastOfAll is when the agent heard a chain from whomever. It is not stored.
	lastOfAll = "+"
)

const rememberedChains = 16384

func newChains(s *store.Store) *chains {
	return &chains{recent: newRecent(rememberedChains, func(ctx context.Context, who hearing) (store.Heard, error) {
		return s.Heard(ctx, who.agent, who.from)
	})}
}

// longest returns the longest chain that an agent heard, nothing where that was
// before since, or before a person's word.
func (c *chains) longest(ctx context.Context, who hearing, since time.Time) (ocip.Chain, error) {
	h, err := c.of(ctx, who)
	if err != nil || h.Chain.ID == "" || h.At.Before(since) {
		return ocip.Chain{}, err
	}
	person, err := c.of(ctx, hearing{who.agent, fromAPerson})
	if err != nil || !h.At.After(person.At) {
		return ocip.Chain{}, err
	}
	return h.Chain, nil
}

// hear enters into a change what an agent hears from another. The answer to
// something that the agent itself began is no new cause of what it does next: it
// counts between the two alone.
func (k *ruleset) hear(ctx context.Context, agent, from string, chain ocip.Chain, answer bool, now time.Time, change *store.Change) error {
	if chain.ID == "" {
		return nil
	}
	for _, who := range [...]hearing{{agent, from}, {agent, fromAnybody}} {
		if answer && who.from == fromAnybody {
			continue
		}
		known, err := k.chains.longest(ctx, who, k.chainsSince(now))
		if err != nil {
			return err
		}
		if longer := known.Longer(chain); longer.Hops > known.Hops {
			change.Add(store.Heard{Agent: agent, Counterparty: who.from, At: now, Chain: longer})
		}
	}
	return nil
}

// answers reports whether a message that an agent gets answers something that the
// agent itself began: before is its side of the exchange until then.
func answers(before *ocip.Exchange) bool {
	return before.Round > 0 && before.Awaiting == "" && len(before.Transcript) > 0 && before.Transcript[0].Sender == before.Agent
}

// hearAnew enters that an agent hears what a person let through: the chain that
// began with the person is all that counts.
func hearAnew(agent, from string, chain ocip.Chain, now time.Time, change *store.Change) {
	for _, who := range [...]string{from, fromAnybody} {
		change.Add(store.Heard{Agent: agent, Counterparty: who, At: now, Chain: chain})
	}
}

// beginAnew enters into a change that a person has spoken, or has looked: what the
// agent does next begins a chain of its own.
func (k *ruleset) beginAnew(ctx context.Context, agent string, now time.Time, change *store.Change) error {
	lately, known := k.chains.known.Peek(hearing{agent, lastOfAll})
	person, err := k.chains.of(ctx, hearing{agent, fromAPerson})
	if err != nil || known && person.At.After(lately.At) {
		// Most of what people say follows what people said: nothing changes.
		return err
	}
	change.Add(store.Heard{Agent: agent, Counterparty: fromAPerson, At: now})
	return nil
}

// entered remembers what a durable change holds.
func (c *chains) entered(change *store.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range store.Each[store.Heard](change) {
		who := hearing{h.Agent, h.Counterparty}
		if h.Chain.ID != "" {
			c.put(hearing{h.Agent, lastOfAll}, store.Heard{At: h.At})
		}
		if known, ok := c.known.Get(who); ok && h.Chain.ID != "" && known.At.After(h.At) && known.Chain.Hops >= h.Chain.Hops {
			continue
		}
		c.put(who, h)
	}
}

// chainsSince is from when on a message counts as the cause of what its receiver
// begins now.
func (k *ruleset) chainsSince(now time.Time) time.Time { return now.Add(-k.cfg.ChainWindow) }

// cause returns the chain that an agent's message goes on with: that of the
// message it answers, or the longest it heard lately, from anybody or from the
// counterparty, whichever is longest, so that no loop begins anew by opening
// another exchange. Without any, the message begins a chain.
func (k *ruleset) cause(ctx context.Context, m *outgoing, e *ocip.Exchange, now time.Time) (chain ocip.Chain, err error) {
	if e.Awaiting != "" {
		chain = e.Chain
	}
	for _, from := range [...]string{m.to.InstanceID, fromAnybody} {
		heard, err := k.chains.longest(ctx, hearing{m.sender.InstanceID, from}, k.chainsSince(now))
		if err != nil {
			return chain, err
		}
		chain = chain.Longer(heard)
	}
	if chain.ID == "" {
		chain = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
	}
	return chain, nil
}

// arrived returns the line of a message that came in. That of an agent of this
// daemon is known. An agent elsewhere may not carry lines, or may shorten them: where this side had the last word in the
// exchange or, for one that opens, in the session, the message goes on with that.
func (k *ruleset) arrived(ctx context.Context, a *arrival, e *ocip.Exchange, now time.Time) (ocip.Chain, error) {
	if k.directory.Local(a.envelope.SourceAgent.InstanceID) != nil && a.chain.ID != "" {
		return a.chain, nil
	}
	known, err := k.lastWord(ctx, a, e, now)
	if err != nil {
		return known, err
	}
	if known.ID == "" {
		known = ocip.BeginChain(a.dispatchID, a.envelope.SourceAgent.InstanceID, now)
	}
	return known.Extend(a.agent.InstanceID, e.Round > 0 && e.Awaiting == "").Longer(a.chain), nil
}

// lastWord returns the line of what this side said last to the sender of a
// message, nothing where the sender said more since.
func (k *ruleset) lastWord(ctx context.Context, a *arrival, e *ocip.Exchange, now time.Time) (ocip.Chain, error) {
	before := *e
	if e.Round == 0 {
		var err error
		before, err = k.exchanges.ofSession(ctx, pairOf(e), a.agent.InstanceID, a.key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return ocip.Chain{}, nil
		case err != nil:
			return ocip.Chain{}, err
		case before.Counterparty != a.envelope.SourceAgent.InstanceID, now.Sub(before.UpdatedAt) > k.cfg.ChainWindow:
			return ocip.Chain{}, nil
		}
	}
	if before.Awaiting != "" {
		return ocip.Chain{}, nil
	}
	return before.Chain, nil
}

// unannotatedChain returns the chain of a known agent's message that carries none:
// it goes on with what this side said last to that agent, and answer is set where it
// had asked.
func (k *ruleset) unannotatedChain(ctx context.Context, in *incoming) (chain ocip.Chain, answer bool, err error) {
	now := k.now()
	pair := store.PairOf(in.agent.InstanceID, in.from.InstanceID)
	before, err := k.exchanges.ofSession(ctx, pair, in.agent.InstanceID, in.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return chain, false, err
	case before.Counterparty == in.from.InstanceID && before.Awaiting == "" && now.Sub(before.UpdatedAt) <= k.cfg.ChainWindow:
		chain, answer = before.Chain, answers(&before)
	}
	if chain.ID == "" {
		chain = ocip.BeginChain(in.dispatchID, in.from.InstanceID, now)
	}
	return chain.Extend(in.agent.InstanceID, answer), answer, nil
}
