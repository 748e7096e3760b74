package kernel

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// exchangeRefused records a message that cannot belong to the exchange that it names, and returns
// the sender's error. Interceptors have seen it.
func (k *ruleset) exchangeRefused(m *outgoing, refusal error) error {
	said := api.AsError(refusal)
	if said.Code != api.Forbidden && said.Code != api.Conflict {
		return refusal
	}
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: "exchange_refused", AppID: m.appID,
		TenantID: m.sender.TenantID, UserID: m.sender.UserID, AgentID: m.sender.InstanceID, SessionKey: m.key, DispatchID: m.dispatchID,
		Counterparty: counterpartyRecord(m.to.Kind, m.to.Identity),
		PolicyResult: string(ocip.Deny), PolicyReason: said.Message, Details: map[string]any{"exchangeId": m.hints.ID},
	}
	if err := k.content(r, m.content); err != nil {
		return err
	}
	if _, err := k.record(r); err != nil {
		return err
	}
	return refusal
}

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

// count counts a message for the budgets that bound it, if any. If the message is not allowed, the
// caller gives it back.
func (k *ruleset) count(ctx context.Context, m *outgoing, st *standing, now time.Time) (giveBack func(), err error) {
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
func (k *ruleset) standing(ctx context.Context, m *outgoing, now time.Time) (*standing, error) {
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
func (k *ruleset) firstIn(ctx context.Context, m *outgoing) (bool, error) {
	begun, err := k.state.Sessions.Begun(ctx, k.directory, m.key, m.sender)
	return !begun, err
}

// weigh puts a message before the rules.
func (k *ruleset) weigh(ctx context.Context, m *outgoing, st *standing, person ocip.Person, now time.Time) *ocip.Verdict {
	kind := m.hints.MessageType
	switch person {
	case ocip.Approved:
		kind = ocip.AgentAssisted
	case ocip.TakenOver:
		kind = ocip.Human
	case ocip.Nobody, ocip.Judged:
	}
	to := m.to
	to.Group = m.recipient.Group
	began := k.now()
	o := &ocip.Outgoing{
		Now: now, Sender: m.asSender(), To: to, Exchange: st.exchange, MessageType: kind, Declared: max(m.hints.Claimed(k.cfg.DefaultLevel), m.task.level),
		MaxRounds: m.hints.MaxRounds, Summary: m.summary(), Claimed: m.hints.Summary != "", Person: person, MaxAnnotation: k.cfg.MaxAnnotation,
		Escalated: st.escalated, Cause: st.cause, Owed: st.owed, LooksLike: m.recipient.LooksLike, Unconfirmed: m.unconfirmed(), First: st.first, Spent: st.spent, SpentHour: st.spentHour,
		ReplyPolicy: m.hints.ReplyPolicy, AskPerson: m.hints.AskPerson || k.asksAboutGuess(m), Before: k.saidBefore(m), Content: m.content.Inspect(), Passages: m.named(m.passages), Files: m.files, Rendering: m.recipient.Rendering, Rules: k.cfg.Rules, Data: m.hints.Data,
		Approvers: k.cfg.Approvers,
	}
	o.Files.Attached = len(m.media) > 0
	v := ocip.Decide(ctx, o, k.policy)
	if o.Grants = k.grantsFor(m, st, v); person == ocip.Nobody && len(o.Grants) > 0 {
		v = ocip.Decide(ctx, o, k.policy)
	}
	k.metrics.Decided(k.now().Sub(began))
	if m.known.learned && v.Code == ocip.CrossEnterpriseBlocked {
		// The record names that agent; the sender's app does not learn it.
		v.Reason = "somebody of another tenant has spoken where session " + m.key + " leads, and no policy can allow a message there; " +
			"where that is wrong, list who reads there as a group, or: ocipd contacts forget " + m.key
	}
	return v
}

// saidBefore returns the earlier text in the session. A message that is weighed again was weighed
// with it the first time.
func (k *ruleset) saidBefore(m *outgoing) ocip.Before {
	if m.waited {
		return ocip.Before{}
	}
	return k.state.Words.Before(m.sender.InstanceID, m.key)
}

func (k *ruleset) typeOf(m *outgoing) ocip.ExchangeType {
	if m.hints.Type != "" {
		return m.hints.Type
	}
	return k.cfg.DefaultType
}

// talk stands in for an exchange if the counterparty is no agent: nothing is counted or kept, and
// all messages of an agent in a session are one conversation.
func (k *ruleset) talk(m *outgoing, now time.Time) ocip.Exchange {
	name := "ocip:" + m.sender.InstanceID + "\x00" + m.key
	return ocip.Exchange{
		ConversationID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(),
		Type:           k.typeOf(m), MaxRounds: k.cfg.MaxRounds, ExpiresAt: now.Add(k.cfg.ExpiresAfter),
	}
}
