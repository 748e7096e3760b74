package kernel

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/keylock"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// exchanges finds the exchange a message belongs to. Two messages between the
// same two agents are decided one after the other, so that no two share a
// round; all others side by side.
type exchanges struct {
	store *store.Store
	pairs pairLocks
	// sides and current remember what the store holds. What they hold of a pair
	// is changed under that pair's lock alone: a read of the store that is put
	// there later would bring an old round back.
	sides   *lru.Cache[sideRef, ocip.Exchange]
	current *lru.Cache[sessionRef, string]
	// escalated holds the exchange whose escalation is open, "" for none.
	escalated *lru.Cache[store.Pair, string]
}

type sideRef struct{ agent, id string }

type sessionRef struct{ agent, session string }

const rememberedExchanges = 8192

func newExchanges(s *store.Store) (*exchanges, error) {
	sides, err := lru.New[sideRef, ocip.Exchange](rememberedExchanges)
	if err != nil {
		return nil, err
	}
	current, err := lru.New[sessionRef, string](rememberedExchanges)
	if err != nil {
		return nil, err
	}
	escalated, err := lru.New[store.Pair, string](rememberedExchanges)
	if err != nil {
		return nil, err
	}
	return &exchanges{store: s, sides: sides, current: current, escalated: escalated}, nil
}

// escalation returns the exchange whose escalation is open between two agents,
// "" where there is none. It is called under the pair's lock.
func (x *exchanges) escalation(ctx context.Context, p store.Pair) (string, error) {
	if id, ok := x.escalated.Get(p); ok {
		return id, nil
	}
	id, err := x.store.Escalated(ctx, p)
	if err == nil {
		x.escalated.Add(p, id)
	}
	return id, err
}

// refuse enters the exchange of a refused message into a change, and what its
// refusal means for the two agents.
func (x *exchanges) refuse(c *store.Change, v *ocip.Verdict, now time.Time) {
	e := &v.Exchange
	if e.ID == "" || e.Outcome == v.Before.Outcome && e.ForPerson == v.Before.ForPerson {
		return
	}
	c.Add(&store.Exchange{Exchange: *e})
	if v.Exhausted() {
		c.Add(store.Escalation{Pair: pairOf(e), ExchangeID: e.ID, OpenedAt: now})
	}
}

// side returns an agent's side of an exchange, or [store.ErrNotFound]. Locked is
// the pair whose lock the caller holds. Callers choose ids, so the exchange can
// be another pair's, which may be changing it right now: then it is not
// remembered.
func (x *exchanges) side(ctx context.Context, locked store.Pair, agent, id string) (ocip.Exchange, error) {
	if e, ok := x.sides.Get(sideRef{agent, id}); ok {
		return e, nil
	}
	e, err := x.store.Exchange(ctx, agent, id)
	if err == nil && pairOf(&e) == locked {
		x.sides.Add(sideRef{agent, id}, e)
	}
	return e, err
}

// ofSession returns the exchange a session's next message belongs to, or
// [store.ErrNotFound]. Locked is as for [exchanges.side].
func (x *exchanges) ofSession(ctx context.Context, locked store.Pair, agent, session string) (ocip.Exchange, error) {
	if id, ok := x.current.Get(sessionRef{agent, session}); ok {
		return x.side(ctx, locked, agent, id)
	}
	e, err := x.store.CurrentExchange(ctx, agent, session)
	if err == nil && pairOf(&e) == locked {
		x.current.Add(sessionRef{agent, session}, e.ID)
		x.sides.Add(sideRef{agent, e.ID}, e)
	}
	return e, err
}

// pairOf returns the two agents of an exchange.
func pairOf(e *ocip.Exchange) store.Pair { return store.PairOf(e.Agent, e.Counterparty) }

// enter puts an exchange into a change, and the session it is current for.
func (x *exchanges) enter(c *store.Change, e ocip.Exchange) {
	c.Add(&store.Exchange{Exchange: e})
	if id, ok := x.current.Get(sessionRef{e.Agent, e.SessionKey}); !ok || id != e.ID {
		c.Add(store.Current{Agent: e.Agent, SessionKey: e.SessionKey, ExchangeID: e.ID})
	}
}

// entered remembers what a durable change holds.
func (x *exchanges) entered(c *store.Change) {
	for _, part := range c.Parts {
		switch p := part.(type) {
		case *store.Exchange:
			x.sides.Add(sideRef{p.Agent, p.ID}, p.Exchange)
		case store.Escalation:
			if open, known := x.escalated.Get(p.Pair); !known || open == "" {
				x.escalated.Add(p.Pair, p.ExchangeID)
			}
		case store.Settled:
			x.escalated.Add(store.Pair(p), "")
		case store.Current:
			x.current.Add(sessionRef{p.Agent, p.SessionKey}, p.ExchangeID)
		}
	}
}

// forOutgoing returns the exchange that a message from an agent belongs to: the
// one it names, else the one its session is in, else a new one. It is called
// under the pair's lock.
func (k *ruleset) forOutgoing(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
	agent, h, pair := m.sender.InstanceID, &m.hints, store.PairOf(m.sender.InstanceID, m.to.InstanceID)
	var (
		e   ocip.Exchange
		err = store.ErrNotFound
	)
	switch {
	case h.ID != "":
		e, err = k.exchanges.side(ctx, pair, agent, h.ID)
	case h.ConversationID != "":
		e, err = k.store.ExchangeByConversation(ctx, agent, h.ConversationID)
	case !h.New:
		if e, err = k.exchanges.ofSession(ctx, pair, agent, m.key); err == nil && !continues(&e, m, now) {
			err = store.ErrNotFound
		}
	}
	switch {
	case err == nil && e.Counterparty != m.to.InstanceID:
		return e, api.Errorf(api.Forbidden, "exchange %s is with agent %s, not with %s", e.ID, e.Counterparty, m.to.InstanceID)
	case err == nil && h.ConversationID != "" && e.ConversationID != h.ConversationID:
		return e, api.Errorf(api.Conflict, "exchange %s belongs to conversation %s", e.ID, e.ConversationID)
	case err == nil:
		return e, nil
	case !errors.Is(err, store.ErrNotFound):
		return e, err
	}
	return k.open(ctx, m, now)
}

// continues reports whether a message that names no exchange goes on with the
// session's last one.
func continues(e *ocip.Exchange, m *outgoing, now time.Time) bool {
	return e.Open(now) && e.Counterparty == m.to.InstanceID && (m.hints.Type == "" || m.hints.Type == e.Type)
}

// open begins an exchange. One that nobody named has its conversation's id.
func (k *ruleset) open(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
	e := ocip.Exchange{
		ID: m.hints.ID, ConversationID: m.hints.ConversationID, Type: k.typeOf(m),
		Agent: m.sender.InstanceID, Counterparty: m.to.InstanceID, SessionKey: m.key, Outcome: ocip.InProgress,
		MaxRounds: k.cfg.MaxRounds, OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(k.cfg.ExpiresAfter).Truncate(time.Millisecond),
	}
	if e.ConversationID == "" {
		e.ConversationID = k.newID()
		if e.ID == "" {
			e.ID = e.ConversationID
		}
		return e, nil
	}
	// Rounds are counted in the conversation: a second exchange of it would
	// begin to count anew.
	switch known, err := k.store.ExchangeByConversation(ctx, e.Agent, e.ConversationID); {
	case err == nil:
		return e, api.Errorf(api.Conflict, "conversation %s has an exchange already, %s; go on with that one, or name another conversation", e.ConversationID, known.ID)
	case !errors.Is(err, store.ErrNotFound):
		return e, err
	}
	var err error
	if e.ID == "" {
		e.ID, err = k.freeID(ctx, pairOf(&e), e.Agent, e.ConversationID)
	}
	return e, err
}

// freeID returns the first of the wanted ids that is no exchange of the agent
// yet, or a new one: what somebody else calls an exchange must never meet
// another one's state.
func (k *Kernel) freeID(ctx context.Context, locked store.Pair, agent string, wanted ...string) (string, error) {
	for _, id := range wanted {
		switch _, err := k.exchanges.side(ctx, locked, agent, id); {
		case errors.Is(err, store.ErrNotFound):
			return id, nil
		case err != nil:
			return "", err
		}
	}
	return k.newID(), nil
}

// pairLocks has a lock for each pair of agents.
type pairLocks struct{ keylock.Locks }

// lock takes the lock of a pair of agents, in whichever order they are named.
func (l *pairLocks) lock(a, b string) (unlock func()) {
	if b < a {
		a, b = b, a
	}
	return l.Lock(a + "\x00" + b)
}
