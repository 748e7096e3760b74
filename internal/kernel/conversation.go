package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// standing is the state between two ends when a message is weighed.
type standing struct {
	exchange ocip.Exchange
	// escalated is the exchange whose rounds are used up and that no person has settled, or "".
	escalated string
	cause     ocip.Chain
	owed      ocip.Owed
	// first is set if the session is new. spent and spentHour count the messages before this one,
	// and scopes are the budgets that count this one.
	first            bool
	spent, spentHour int
	scopes           []string
}

// conversations finds the conversation of a message: its exchange, its causal chain, what the two
// ends owe each other, and the budgets that count it.
type conversations struct {
	store     *store.Store
	state     *exchangestate.State
	directory *directory.Directory
	cfg       *Config
	newID     func() string
}

// forOutgoingLocked returns the exchange that a message from an agent belongs to: the one that it
// names, else its session's current one, else a new one.
func (k *conversations) forOutgoingLocked(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
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
func (k *conversations) openLocked(ctx context.Context, m *outgoing, now time.Time) (ocip.Exchange, error) {
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

// count counts a message for the budgets that bound it, if any. If the message is not allowed, the
// caller gives it back.
func (k *conversations) count(ctx context.Context, m *outgoing, st *standing, now time.Time) (giveBack func(), err error) {
	var undo []func()
	giveBack = func() {
		for _, f := range undo {
			f()
		}
	}
	take := func(scope string, window time.Duration) (before int) {
		if err != nil {
			return 0
		}
		var back func()
		if before, back, err = k.state.Budgets.Take(ctx, scope, now.Add(-window), now); err == nil {
			undo, st.scopes = append(undo, back), append(st.scopes, scope)
		}
		return before
	}
	if m.sender.MaxPerHour > 0 {
		st.spentHour = take(exchangestate.AgentScope(m.sender.InstanceID), time.Hour)
	}
	kind := m.to.Kind
	if m.unconfirmed() {
		kind = ocip.KindUnknown
	}
	if p := k.cfg.Rules.Towards(kind); p.MaxMessages > 0 {
		st.spent = take(exchangestate.SessionScope(m.sender.InstanceID, m.recipient.Place()), p.Window)
	}
	if err != nil {
		giveBack()
	}
	return giveBack, err
}

// standing looks up the state. The caller holds the lock of the two ends.
func (k *conversations) standing(ctx context.Context, m *outgoing, now time.Time) (*standing, error) {
	var (
		st  standing
		err error
	)
	if m.to.Kind != ocip.KindAgent {
		st.exchange = k.talk(m, cmp.Or(m.askedAt, now))
		st.first, err = k.firstIn(ctx, m)
		return &st, err
	}
	if st.owed, err = k.state.Owed.OfLocked(ctx, m.sender.InstanceID, m.to.InstanceID); err != nil {
		return nil, err
	}
	if st.exchange, err = k.forOutgoingLocked(ctx, m, now); err != nil {
		return nil, err
	}
	if st.escalated, err = k.state.EscalationLocked(ctx, store.PairOf(m.sender.InstanceID, m.to.InstanceID)); err != nil {
		return nil, err
	}
	if m.ownTurn() && st.exchange.Round == 0 {
		st.cause = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
		st.cause.OwnTurn = true
	} else if st.cause, err = k.state.Chains.Cause(ctx, m.dispatchID, &st.exchange, k.chainsSince(now), now); err != nil {
		return nil, err
	}
	if !m.unconfirmed() {
		return &st, nil
	}
	st.first, err = k.firstIn(ctx, m)
	return &st, err
}

// firstIn reports whether a message is the first of the sender's tenant in its session.
func (k *conversations) firstIn(ctx context.Context, m *outgoing) (bool, error) {
	begun, err := k.state.Sessions.Begun(ctx, k.directory, m.key, m.sender)
	return !begun, err
}

// saidBefore returns the earlier text in the session. A message that is weighed again was weighed
// with it the first time.
func (k *conversations) saidBefore(m *outgoing) ocip.Before {
	if m.waited {
		return ocip.Before{}
	}
	return k.state.Words.Before(m.sender.InstanceID, m.key)
}

func (k *conversations) typeOf(m *outgoing) ocip.ExchangeType {
	if m.hints.Type != "" {
		return m.hints.Type
	}
	return k.cfg.DefaultType
}

// talk stands in for an exchange if the counterparty is no agent: nothing is counted or kept, and
// all messages of an agent in a session are one conversation.
func (k *conversations) talk(m *outgoing, now time.Time) ocip.Exchange {
	name := "ocip:" + m.sender.InstanceID + "\x00" + m.key
	return ocip.Exchange{
		ConversationID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(),
		Type:           k.typeOf(m), MaxRounds: k.cfg.MaxRounds, ExpiresAt: now.Add(k.cfg.ExpiresAfter),
	}
}

// arrived returns the chain of a message that came in. If an agent of this daemon sent it, the
// daemon knows the chain.
func (k *conversations) arrived(ctx context.Context, a *arrival, e *ocip.Exchange, now time.Time) (ocip.Chain, error) {
	if (a.local || a.shown) && a.chain.ID != "" {
		return a.chain, nil
	}
	return k.state.ArrivedLocked(ctx, a.envelope.SourceAgent.InstanceID, a.key, a.dispatchID, a.chain, e, k.chainsSince(now), now)
}

// binds enters into a change the obligations that a taken message puts on its receiver, and the
// causal chain that it continues.
func (k *conversations) binds(ctx context.Context, m *outgoing, a *arrival, v *ocip.Verdict, change *store.Change, now time.Time) error {
	to, from := m.local.InstanceID, m.sender.InstanceID
	k.state.Owed.EnterLocked(change, to, from, a.owed, v.Owed)
	if m.approvalID != "" {
		exchangestate.ReceiveApproved(to, from, v.Chain, now, change)
		return nil
	}
	return k.state.Chains.Receive(ctx, to, from, v.Chain, exchangestate.Answers(&v.Before), k.chainsSince(now), now, change)
}

// chainsSince returns the earliest time at which a received message still counts as the cause of
// the agent's next one.
func (k *conversations) chainsSince(now time.Time) time.Time { return now.Add(-k.cfg.ChainWindow) }

// stoodThen returns the state at the time when a message was allowed, from its record.
func (k *conversations) stoodThen(m *outgoing, r *audit.Entry, now time.Time) (*standing, error) {
	var was answered
	st := new(standing)
	if err := errors.Join(restedOn(r, answersDetail, &was), restedOn(r, firstDetail, &st.first)); err != nil {
		return nil, fmt.Errorf("cannot decode what the decision about a message that waits rested on: %w", err)
	}
	st.exchange = ocip.Exchange{
		ID: r.ExchangeID, ConversationID: r.ConversationID, Type: ocip.ExchangeType(r.ExchangeType), Agent: m.sender.InstanceID, Counterparty: m.to.InstanceID, SessionKey: m.key,
		Outcome: ocip.InProgress, Round: max(r.Round-1, 0), MaxRounds: r.MaxRounds, OpenedAt: r.Time, UpdatedAt: r.Time, ExpiresAt: now.Add(k.cfg.ExpiresAfter),
		Awaiting: was.ReplyPolicy, AwaitsCommitment: was.Commitment, ForPerson: was.ForPerson,
	}
	st.owed = was.Owed
	if m.to.Kind != ocip.KindAgent {
		st.exchange, st.owed = k.talk(m, r.Time), ocip.Owed{}
	}
	st.cause = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
	return st, nil
}
