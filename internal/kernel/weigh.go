package kernel

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
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
	if err := k.records.content(r, m.content); err != nil {
		return err
	}
	if _, err := k.record(r); err != nil {
		return err
	}
	return refusal
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
		ReplyPolicy: m.hints.ReplyPolicy, AskPerson: m.hints.AskPerson || m.asksAboutGuess(), Before: k.conversations.saidBefore(m), Content: m.content.Inspect(), Passages: m.named(m.passages), Files: m.files, Rendering: m.recipient.Rendering, Rules: k.cfg.Rules, Data: m.hints.Data,
		Approvers: k.cfg.Approvers,
	}
	o.Files.Attached = len(m.media) > 0
	v := ocip.Decide(ctx, o, k.policy)
	if o.Grants = m.grantsFor(k.grants, k.signers, &st.exchange, v); person == ocip.Nobody && len(o.Grants) > 0 {
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
