package kernel

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// forOutgoingLocked returns the exchange that a message from an agent belongs to: the one that it
// names, else its session's current one, else a new one.
func (k *ruleset) forOutgoingLocked(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
	agent, h, pair := m.sender.InstanceID, &m.hints, store.PairOf(m.sender.InstanceID, m.to.InstanceID)
	var (
		e   ocip.Exchange
		err = store.ErrNotFound
	)
	switch {
	case h.ID != "":
		e, err = k.state.SideLocked(ctx, pair, agent, h.ID)
	case h.ConversationID != "":
		e, err = k.store.ExchangeByConversation(ctx, agent, h.ConversationID)
	case !h.New:
		if e, err = k.state.OfSessionLocked(ctx, pair, agent, m.key); err == nil && !continues(&e, m, now) {
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
	return k.openLocked(ctx, m, now)
}

// continues reports whether a message that names no exchange goes on with the
// session's last one.
func continues(e *ocip.Exchange, m *outgoing, now time.Time) bool {
	return e.Open(now) && e.Counterparty == m.to.InstanceID && (m.hints.Type == "" || m.hints.Type == e.Type)
}

// openLocked begins an exchange. If nobody named it, it takes its conversation's id.
func (k *ruleset) openLocked(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
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
	// Rounds are counted per conversation: with a second exchange in it, the count would begin
	// again.
	switch known, err := k.store.ExchangeByConversation(ctx, e.Agent, e.ConversationID); {
	case err == nil:
		return e, api.Errorf(api.Conflict, "conversation %s has an exchange already, %s; go on with that one, or name another conversation", e.ConversationID, known.ID)
	case !errors.Is(err, store.ErrNotFound):
		return e, err
	}
	var err error
	if e.ID == "" {
		e.ID, err = k.state.FreeIDLocked(ctx, k.newID, exchangestate.PairOf(&e), e.Agent, e.ConversationID)
	}
	return e, err
}
