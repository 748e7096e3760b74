package kernel

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// chains knows what each agent heard last: what an agent begins soon after, it
// began because of that. Two messages for one agent may be heard at the same
// time; either is then its last.
type chains struct {
	store *store.Store
	heard *lru.Cache[string, store.Heard]
}

const rememberedChains = 8192

func newChains(s *store.Store) (*chains, error) {
	heard, err := lru.New[string, store.Heard](rememberedChains)
	return &chains{store: s, heard: heard}, err
}

// last returns what an agent heard last, nothing where that was before since.
func (c *chains) last(ctx context.Context, agent string, since time.Time) (ocip.Chain, error) {
	h, known := c.heard.Get(agent)
	if !known {
		var err error
		if h, err = c.store.Heard(ctx, agent, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return ocip.Chain{}, err
		}
		c.heard.Add(agent, h)
	}
	if h.At.Before(since) {
		return ocip.Chain{}, nil
	}
	return h.Chain, nil
}

// hear enters what an agent hears into a change: a line, or a person's word,
// which begins a new one.
func (k *ruleset) hear(ctx context.Context, agent string, chain ocip.Chain, now time.Time, change *store.Change) error {
	if chain.ID == "" {
		// Most of what people say follows what people said: nothing changes.
		if last, err := k.chains.last(ctx, agent, k.chainsSince(now)); err != nil || last.ID == "" {
			return err
		}
	}
	change.Heard = append(change.Heard, store.Heard{Agent: agent, At: now, Chain: chain})
	return nil
}

// entered remembers what a durable change holds.
func (c *chains) entered(change *store.Change) {
	for _, h := range change.Heard {
		c.heard.Add(h.Agent, h)
	}
}

// chainsSince is from when on a message counts as the cause of what its receiver
// begins now.
func (k *ruleset) chainsSince(now time.Time) time.Time { return now.Add(-k.cfg.ChainWindow) }

// cause returns the line that an agent's message goes on with: that of the
// message it answers or of what the agent heard last, whichever is longer, so
// that no loop begins anew by opening another exchange. Without either, the
// message begins a line.
func (k *ruleset) cause(ctx context.Context, m *outgoing, e *ocip.Exchange, now time.Time) (ocip.Chain, error) {
	line, err := k.chains.last(ctx, m.sender.InstanceID, k.chainsSince(now))
	if err != nil {
		return line, err
	}
	if e.Awaiting != "" {
		line = e.Chain.Longer(line)
	}
	if line.ID == "" {
		line = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
	}
	return line, nil
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
	return a.chain.Longer(known.Extend(a.agent.InstanceID, e.Round > 0 && e.Awaiting == "")), nil
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
