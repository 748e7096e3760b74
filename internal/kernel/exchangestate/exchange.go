package exchangestate

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// exchanges finds the exchange that a message belongs to. Messages between the same two agents are
// decided one after the other, so that no two share a round. All others run side by side.
type exchanges struct {
	store *store.Store
	pairs keylock.Locks
	// sides and current cache the store. A pair's entries change only under that pair's lock: a
	// read of the store that was entered later would bring back an old round.
	sides   *cache[sideRef, ocip.Exchange]
	current *cache[sessionRef, string]
	// escalated caches the exchange whose escalation is open, "" for none.
	escalated *cache[store.Pair, string]
}

type sideRef struct{ agent, id string }

type sessionRef struct{ agent, session string }

// Sizes of the caches: a side of an exchange is about a kilobyte, all else a word or two. Other
// values are read from the store.
const (
	rememberedExchanges = 8192
	rememberedSides     = 2048
)

func newExchanges(s *store.Store) *exchanges {
	return &exchanges{
		store: s, sides: newCache[sideRef, ocip.Exchange](rememberedSides), current: newCache[sessionRef, string](rememberedExchanges),
		escalated: newCache[store.Pair, string](rememberedExchanges),
	}
}

// EscalationLocked returns the exchange whose escalation is open between two agents, or "".
func (x *exchanges) EscalationLocked(ctx context.Context, p store.Pair) (string, error) {
	if id, ok := x.escalated.get(p); ok {
		return id, nil
	}
	id, err := x.store.Escalated(ctx, p)
	if err == nil {
		x.escalated.add(p, id)
	}
	return id, err
}

// Refuse enters the exchange of a refused message into a change, and the refusal's effect on the
// two agents.
func (x *exchanges) Refuse(c *store.Change, v *ocip.Verdict, now time.Time) {
	e := &v.Exchange
	if e.ID == "" || e.Outcome == v.Before.Outcome && e.ForPerson == v.Before.ForPerson {
		return
	}
	c.Add(&store.Exchange{Exchange: *e})
	if v.Exhausted() {
		c.Add(store.Escalation{Pair: PairOf(e), ExchangeID: e.ID, OpenedAt: now})
	}
}

// SideLocked returns an agent's side of an exchange, or [store.ErrNotFound]. Locked is the pair
// whose lock the caller holds. Callers choose ids, so the exchange can belong to another pair,
// which may be changing it right now. In that case it is not cached.
func (x *exchanges) SideLocked(ctx context.Context, locked store.Pair, agent, id string) (ocip.Exchange, error) {
	if e, ok := x.sides.get(sideRef{agent, id}); ok {
		return e, nil
	}
	e, err := x.store.Exchange(ctx, agent, id)
	if err == nil && PairOf(&e) == locked {
		x.sides.add(sideRef{agent, id}, e)
	}
	return e, err
}

// OfSessionLocked returns the exchange a session's next message belongs to, or
// [store.ErrNotFound]. Locked is as for [State.SideLocked].
func (x *exchanges) OfSessionLocked(ctx context.Context, locked store.Pair, agent, session string) (ocip.Exchange, error) {
	if id, ok := x.current.get(sessionRef{agent, session}); ok {
		return x.SideLocked(ctx, locked, agent, id)
	}
	e, err := x.store.CurrentExchange(ctx, agent, session)
	if err == nil && PairOf(&e) == locked {
		x.current.add(sessionRef{agent, session}, e.ID)
		x.sides.add(sideRef{agent, e.ID}, e)
	}
	return e, err
}

// PairOf returns the two agents of an exchange.
func PairOf(e *ocip.Exchange) store.Pair { return store.PairOf(e.Agent, e.Counterparty) }

// EnterLocked puts an exchange into a change, and the session it is current for.
func (x *exchanges) EnterLocked(c *store.Change, e ocip.Exchange) {
	c.Add(&store.Exchange{Exchange: e})
	if id, ok := x.current.get(sessionRef{e.Agent, e.SessionKey}); !ok || id != e.ID {
		c.Add(store.Current{Agent: e.Agent, SessionKey: e.SessionKey, ExchangeID: e.ID})
	}
}

// entered caches the exchanges of a durable change.
func (x *exchanges) entered(c *store.Change) {
	for _, part := range c.Parts {
		switch p := part.(type) {
		case *store.Exchange:
			x.sides.add(sideRef{p.Agent, p.ID}, p.Exchange)
		case store.Escalation:
			if open, known := x.escalated.get(p.Pair); !known || open == "" {
				x.escalated.add(p.Pair, p.ExchangeID)
			}
		case store.Settled:
			x.escalated.add(store.Pair(p), "")
		case store.Current:
			x.current.add(sessionRef{p.Agent, p.SessionKey}, p.ExchangeID)
		}
	}
}

// ByConversation returns an agent's side of the exchange of a conversation, or
// [store.ErrNotFound].
func (x *exchanges) ByConversation(ctx context.Context, agent, conversation string) (ocip.Exchange, error) {
	e, err := x.store.ExchangeByConversation(ctx, agent, conversation)
	if cached, ok := x.sides.get(sideRef{agent, e.ID}); err == nil && ok {
		e = cached
	}
	return e, err
}

// SidesLocked returns the current sides of an exchange that this daemon keeps: those of its id, and
// those of its conversation. An agent knows the exchange by another id if it had one of that name
// already.
func (x *exchanges) SidesLocked(ctx context.Context, of *ocip.Exchange) (sides []ocip.Exchange, err error) {
	for _, agent := range [...]string{of.Agent, of.Counterparty} {
		named, err := x.SideLocked(ctx, PairOf(of), agent, of.ID)
		if err == nil && PairOf(&named) == PairOf(of) {
			sides = append(sides, named)
		} else if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		same, err := x.store.ExchangeByConversation(ctx, agent, of.ConversationID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case same.ID == of.ID || PairOf(&same) != PairOf(of):
			continue
		}
		if same, err = x.SideLocked(ctx, PairOf(of), agent, same.ID); err != nil {
			return nil, err
		}
		sides = append(sides, same)
	}
	return sides, nil
}

// FreeIDLocked returns the first of the wanted ids that the agent has no exchange of, or a new id.
// A caller's name for an exchange must never meet another exchange's state.
func (x *exchanges) FreeIDLocked(ctx context.Context, newID func() string, locked store.Pair, agent string, wanted ...string) (string, error) {
	for _, id := range wanted {
		switch _, err := x.SideLocked(ctx, locked, agent, id); {
		case errors.Is(err, store.ErrNotFound):
			return id, nil
		case err != nil:
			return "", err
		}
	}
	return newID(), nil
}

// Lock takes the lock of two ends, in either order of their names.
func (x *exchanges) Lock(a, b string) (unlock func()) {
	if b < a {
		a, b = b, a
	}
	return x.pairs.Lock(a + "\x00" + b)
}

// OtherEnd names the other end of a message for the lock of the two: an agent by its id, anybody
// else by the session.
func OtherEnd(instance, sessionKey string) string {
	if instance != "" {
		return instance
	}
	return "session " + sessionKey
}
