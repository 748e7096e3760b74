package kernel

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// release stamps an allowed message, commits everything about it at once, and lets the commit
// deliver it.
func (k *ruleset) release(ctx context.Context, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) (api.DispatchResult, error) {
	k.stamp(m, v)
	sent, err := allowedRecord(k, m, v, st)
	if err != nil {
		return api.DispatchResult{}, err
	}
	change.Records, m.record = append(change.Records, sent), sent
	spend(k, m, v, st, change, now)
	d, letter, err := k.closes(m, v, sent)
	if err != nil {
		return api.DispatchResult{}, err
	}
	if err := arrives(ctx, k, m, d, v, change, now); err != nil {
		return api.DispatchResult{}, err
	}
	if v.Exchange.ID != "" {
		v.Exchange.Track(v.Shared, v.Withheld)
		k.state.EnterLocked(change, v.Exchange)
	}
	whose := k.addresses.sessionOf(m)
	fresh, err := k.addresses.enterSession(ctx, m, whose, now, change)
	if err != nil {
		return api.DispatchResult{}, err
	}
	x := &v.Exchange
	ref := &api.ExchangeRef{ExchangeID: x.ID, ConversationID: x.ConversationID, Round: x.Round, MaxRounds: x.MaxRounds, AuditID: sent.ID}
	result := api.DispatchResult{DispatchID: m.dispatchID, Queued: true, OCIP: ref}
	if result.Host, err = enters(k, m, d, change); err != nil {
		return api.DispatchResult{}, err
	}
	change.OnDurable(func(receipt store.Receipt) {
		if d != nil {
			k.outbox.Open(receipt, d)
		} else {
			// The decision was just made, so nothing needs to be weighed again.
			m.sealed, _ = gate.Open(receipt, letter, nil)
		}
		k.observeSending(m, d, receipt, now, sent)
		if d != nil {
			m.deliver = k.outbox.Offer(d)
			result.Waiting = m.deliver == nil
		}
	})
	if m.conclude != nil {
		if err := m.conclude(nil); err != nil {
			return api.DispatchResult{}, err
		}
	}
	if err := m.answered(change, &result); err != nil {
		return api.DispatchResult{}, err
	}
	if _, err := k.commit(change); err != nil {
		return api.DispatchResult{}, laneFull(k, m, err)
	}
	k.state.Entered(change)
	if *fresh {
		k.apps.Observe(k.terms, api.SessionStart, gate.Fact(api.SessionEvent(m.key, whose.ID)), m.about(), "", nil)
	}
	return result, nil
}

// spend enters what a message uses up: its grant, its share of the limits, and the answer that it owes.
func spend(k *ruleset, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) {
	if m.grant = v.Grant; m.grant != "" {
		k.grants.Name(m.sender.InstanceID, v.Grant, m.record)
		k.grants.Use(m.sender.InstanceID, v.Grant, now, change)
	}
	for _, scope := range st.scopes {
		change.Add(store.Spent{Scope: scope, At: now, Count: 1})
	}
	if m.to.Kind == ocip.KindAgent {
		k.state.Owed.EnterLocked(change, m.sender.InstanceID, m.to.InstanceID, st.owed, v.Owed)
	}
}

// arrives has a message to an agent of this daemon decided on the receiver's side too, in the same
// change.
func arrives(ctx context.Context, k *ruleset, m *outgoing, d *outbox.Delivery, v *ocip.Verdict, change *store.Change, now time.Time) error {
	if m.local == nil {
		return nil
	}
	runID := ""
	if d != nil {
		runID = d.RunID
	}
	arrived, err := k.arriveLocally(ctx, m, runID, v, change, now)
	if err != nil || arrived.Allowed() {
		return err
	}
	return k.refusedByReceiver(m, v, arrived, change)
}

// closes closes a message for its record: in a delivery to an agent of this daemon or to a channel's
// app, or as a letter for the runtime that carries it. Then d is nil.
func (k *ruleset) closes(m *outgoing, v *ocip.Verdict, sent *audit.Record) (d *outbox.Delivery, letter gate.Letter, err error) {
	switch {
	case m.carried:
		sent.Details["carried"] = true
		if m.local != nil {
			// A report of the message is compared with these, see [inbound.sent].
			sent.Details["envelope"], sent.Details["chain"] = string(v.Annotation), string(v.Chain.Annotation())
			if v.Chain.OwnTurn {
				sent.Details["ownTurn"] = true
			}
		}
		letter, err = k.records.closed(sent, m.emitted())
	case m.local != nil:
		runID := k.newID()
		d = m.toAgent(k.policy, runID, v, sent.ID)
		err = k.records.closedIn(sent, d, m.inbound(runID))
	default:
		d = m.toApp(k.policy, k.directory, v, sent.ID)
		err = k.records.closedIn(sent, d, m.message())
	}
	return d, letter, err
}

// observeSending tells the observers of an agent about a message that it sends. They get the
// sender's view, also if the receiver is an agent of this daemon.
//
// A message that was approved or redeemed during a pause is not sent, and no observer gets it.
func (k *ruleset) observeSending(m *outgoing, d *outbox.Delivery, receipt store.Receipt, now time.Time, sent *audit.Record) {
	if m.paused(k.pauses) != nil || len(k.apps.Listeners(api.MessageSending)) == 0 {
		return
	}
	var seen gate.Sealed
	if d != nil && m.local == nil {
		seen = d.Sealed()
	}
	if seen.IsZero() {
		view := m.message()
		view.DecidedTo = m.handedTo()
		_, letter, err := k.keys.Close(nil, sent.TenantID, view)
		if err == nil {
			seen, err = gate.Open(receipt, letter, nil)
		}
		if err != nil {
			k.log.Error("cannot tell those who observe an agent what it sends", zap.Error(err))
			return
		}
	}
	about := m.about()
	about.Timestamp, about.AuditID = now.UnixMilli(), sent.ID
	k.apps.Observe(k.terms, api.MessageSending, seen, about, "", m.app)
}

// stamp puts the envelope and the disclosure on the message. Nothing may
// change it after this.
func (k *ruleset) stamp(m *outgoing, v *ocip.Verdict) {
	metadata, changes := exchangehints.WithoutOwn(m.metadata)
	m.changedBy = append(m.changedBy, changes...)
	metadata["ocip"] = v.Annotation
	metadata["dispatchId"] = api.String(m.dispatchID)
	if v.Chain.ID != "" {
		metadata["ocipChain"] = v.Chain.Annotation()
	}
	if head := k.logHead.Annotation(k.store.Checkpoint(), k.log); head != nil && m.local == nil {
		metadata[exchangestate.LogHeadName] = head
	}
	delete(metadata, "exchange")
	if v.Exchange.ID != "" {
		metadata["exchange"] = exchangehints.Outcome(v)
	}
	if v.Envelope.MessageType != ocip.Human {
		metadata["aiDisclosure"] = api.String(m.sender.Label())
		if !m.inAnnotation() {
			m.content = gate.NewText(ocip.Disclose(m.content.Inspect(), m.sender.Label(), k.cfg.Disclosure))
		}
	}
	m.metadata = metadata
}

// sentRecord is the sender's record of a verdict.
func (k *ruleset) sentRecord(m *outgoing, v *ocip.Verdict) (*audit.Record, error) {
	r := k.records.verdict(audit.SideSender, m.sender, v)
	r.AppID, r.SessionKey, r.DispatchID, r.ApprovalID = m.appID, m.key, m.dispatchID, m.approvalID
	r.Counterparty = counterpartyRecord(m.to.Kind, m.to.Identity)
	m.task.enter(r)
	if m.local == nil {
		r.Address = audit.Address{Channel: m.channel, Account: m.account, Target: m.target}
	}
	if len(m.changedBy) > 0 {
		r.Details["changedBy"] = m.changedBy
	}
	if len(m.media) > 0 {
		r.Details["media"] = m.media
	}
	if m.asked != nil && m.asked.Halves > 0 {
		r.Details["mended"] = m.asked.Halves
	}
	if name, _ := mapped(m.metadata); name != "" {
		r.Details["map"] = name
	}
	if m.inAnnotation() {
		r.Details["disclosure"] = api.DisclosureInAnnotation
	}
	if m.operator != nil {
		r.Details["operator"] = caller.Details(m.operator)
	}
	if m.grantID != "" {
		r.Details["grant_id"] = m.grantID
	}
	if m.check {
		r.ActionType, r.Event = audit.ActionCheck, "decided"
	}
	return r, k.records.content(r, m.content)
}
