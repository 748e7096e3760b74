package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/grants"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Generation counts the changes to the basis of decisions about a tenant's agents.
func (h receivers) Generation(tenant string) uint64 { return h.kernel.rules().generation(tenant) }

// Lasts reports whether the policy's answers hold until the generation changes.
func (h receivers) Lasts() bool { return h.kernel.rules().policy.Lasts() }

// Standing weighs a message that has waited by the current state.
func (h receivers) Standing(ctx context.Context, w *gate.Waited) error {
	return (&waitedMessage{k: h.kernel.rules(), Waited: w}).standing(ctx)
}

// AskAnew enters a request about a message that has waited into a change.
func (h receivers) AskAnew(ctx context.Context, w *gate.Waited, anew *gate.Anew, change *store.Change) (*gate.Withdrawn, error) {
	_, why, err := (&waitedMessage{k: h.kernel.rules(), Waited: w}).askAnew(ctx, anew, change, false)
	return why, err
}

// Withdrawn tells the person who approved a message that it was not sent.
func (h receivers) Withdrawn(approvalID string, why *gate.Withdrawn) {
	h.kernel.withdrawn(approvalID, why)
}

// withdrawn names only the approval: if the stored message was edited, nothing else in it can be
// trusted.
func (k *Kernel) withdrawn(approvalID string, why *gate.Withdrawn) {
	if approvalID == "" || k.notify == nil {
		return
	}
	k.notify.Alarm(approvalID, "A message that you approved was not sent", fmt.Sprintf("%s\nocipd approvals show %s", why.Reason, approvalID))
}

// withdraws returns the error for a message that may not leave any more.
func withdraws(code ocip.Code, reason string, args ...any) error {
	return &gate.Withdrawn{Code: string(code), Reason: fmt.Sprintf(reason, args...)}
}

// waitedMessage is an allowed message that has waited.
type waitedMessage struct {
	k *ruleset
	*gate.Waited
	// m is the message, prepared again, if an agent of this daemon sent it.
	m *outgoing
}

// standing weighs the message again by the current state: its receiver, the tenant wall, its
// exchange, its attachments, the rules, and its approvers. Its error is a [gate.Withdrawn], a
// [gate.Anew], or the reason that it cannot tell. It does not weigh pauses: a paused message waits.
func (w *waitedMessage) standing(ctx context.Context) error {
	if mutant.Off("standing") {
		return nil
	}
	err := w.stands(ctx)
	if _, altered := errors.AsType[*store.AlteredError](err); altered {
		// The next attempt would find the same, and messages behind this one would wait without
		// end.
		return withdraws(ocip.PolicyDenied, "something that the message depends on was changed by somebody else than the daemon")
	}
	return err
}

func (w *waitedMessage) stands(ctx context.Context) error {
	if err := w.exchangeStands(ctx); err != nil {
		return err
	}
	if in, inbound := w.Form.(*api.Inbound); inbound && w.Record.Side == audit.SideReceiver {
		if err := w.stillReceived(ctx, in); err != nil {
			return err
		}
		return w.intercepted(api.MessageReceived)
	}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := sameSender(w.m); err != nil {
		return err
	}
	switch {
	case w.m.person == ocip.Nobody:
	case w.Approval == nil:
		return &gate.Anew{Reason: "no record says who approved the message"}
	case w.m.person == ocip.Judged && !w.k.decider.JudgeReleases():
		return &gate.Anew{Reason: "a model released the message, and ocip.judge releases none any more"}
	default:
		signed, err := w.k.decider.StillSigned(ctx, w.Approval)
		if err != nil {
			return err
		}
		if !signed {
			return &gate.Anew{Reason: "somebody who approved the message may not sign any more"}
		}
	}
	if err := w.stillAllowed(ctx); err != nil {
		return err
	}
	return w.intercepted(api.MessageSending)
}

// sameSender reports whether the agent still has the identity in the envelope, which the receiver gets
// and people were shown.
func sameSender(m *outgoing) error {
	envelope, err := ocip.ParseEnvelope(m.metadata["ocip"])
	if err == nil && envelope.SourceAgent != m.sender.Identity {
		err = &gate.Anew{Reason: fmt.Sprintf("agent %s is configured with another identity than the message was let through for", m.sender.ID)}
	}
	return err
}

// intercepted reports whether each interceptor that is required now was asked about a message at
// its decision. If not, a person is asked about an outgoing message, and the interceptor sees it
// once the person approves. An incoming message is withdrawn.
func (w *waitedMessage) intercepted(hook api.Hook) error {
	var asked []string
	if err := restedOn(w.Record, interceptorsDetail, &asked); err != nil {
		return fmt.Errorf("cannot decode who was asked about a message that waits: %w", err)
	}
	// The app that brought the message is not asked about it, as at the decision.
	missing := registry.Unasked(w.k.apps, w.k.terms, hook, append(asked, w.Record.AppID))
	switch {
	case missing == "":
		return nil
	case hook == api.MessageReceived:
		return withdraws(ocip.InterceptorBlocked, "interceptor %s is required now and was not asked about the message", missing)
	}
	return &gate.Anew{
		Reason:  fmt.Sprintf("interceptor %s is required now and was not asked about the message", missing),
		Details: map[string]any{"code": ocip.InterceptorBlocked},
	}
}

// exchangeStands reports whether no person has ended the exchange of a message, on either side that
// this daemon keeps. It keeps the agent's own side as long as a message of it waits: without that row,
// nothing says that the exchange goes on.
func (w *waitedMessage) exchangeStands(ctx context.Context) error {
	r := w.Record
	if r.ExchangeID == "" {
		return nil
	}
	for _, agent := range []string{r.AgentID, r.Counterparty.InstanceID} {
		e, err := w.k.store.ExchangeByConversation(ctx, agent, r.ConversationID)
		switch {
		case errors.Is(err, store.ErrNotFound) && agent == r.AgentID:
			return withdraws(ocip.ExchangeClosed, "exchange %s of the message is not known any more", r.ExchangeID)
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case e.Stopped:
			return withdraws(ocip.ExchangeClosed, "a person has ended exchange %s: it is %s", e.ID, e.Outcome)
		}
	}
	return nil
}

// prepare prepares the message again. Its error is a [gate.Withdrawn] if the message would reach
// somebody else than it was decided for.
func (w *waitedMessage) prepare(ctx context.Context) error {
	k, r := w.k, w.Record
	_, said := w.Form.Write(nil)
	sender := k.directory.Local(r.AgentID)
	switch {
	case sender == nil:
		return withdraws(ocip.RecipientMismatch, "agent %s, which sent the message, is no longer configured", r.AgentID)
	case sender.TenantID != r.TenantID:
		return withdraws(ocip.CrossEnterpriseBlocked, "agent %s was of tenant %s when it sent the message, and is of tenant %s now", sender.ID, r.TenantID, sender.TenantID)
	}
	_, emitted := w.Form.(*api.EmittedMessage)
	m := &outgoing{
		speaker:     speaker{app: k.apps.Connected(r.AppID), appID: r.AppID, sender: sender, carried: emitted},
		destination: destination{key: w.SessionKey, local: k.directory.LocalAgent(w.SessionKey)},
		content:     said.Content, dispatchID: said.DispatchID, earlier: earlier{waited: true, approvalID: r.ApprovalID, askedAt: r.Time},
	}
	if len(said.Metadata) > 0 {
		if err := json.Unmarshal(said.Metadata, &m.metadata); err != nil {
			return fmt.Errorf("cannot decode the metadata of a message that waits: %w", err)
		}
	}
	m.account, _ = api.Text(m.metadata["accountId"])
	w.m = m
	if err := w.reachAgain(ctx); err != nil {
		return err
	}
	envelope, err := ocip.ParseEnvelope(m.metadata["ocip"])
	if err != nil {
		return fmt.Errorf("cannot decode the envelope of a message that waits: %w", err)
	}
	m.hints = exchangehints.Decided(r.ExchangeID, ocip.ExchangeType(r.ExchangeType), &envelope)
	switch m.grant = grants.Named(&r.Record); {
	case m.grant != "":
		m.approvalID = "" // a grant's approval: nobody has approved this message
	case w.Approval != nil && approval.IsJudged(w.Approval.Details):
		m.person = ocip.Judged
	case r.ApprovalID != "" && envelope.MessageType == ocip.Human:
		m.person = ocip.TakenOver
	case r.ApprovalID != "":
		m.person = ocip.Approved
	}
	return nil
}

// reachAgain finds the current receiver of the message. It must be the one that the message was
// decided for.
func (w *waitedMessage) reachAgain(ctx context.Context) error {
	k, r, m := w.k, w.Record, w.m
	brought, err := k.directory.Brought(m.key, m.metadata)
	if err == nil {
		err = k.addresses.reach(ctx, m, brought)
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		return withdraws(ocip.RecipientMismatch, "session %s leads nowhere any more: %s", m.key, refused.Message)
	}
	if err != nil {
		return err
	}
	if reason, walled := ocip.Wall(m.sender.Identity, m.to); walled {
		return withdraws(ocip.CrossEnterpriseBlocked, "%s", reason)
	}
	same := func(was, is string) bool { return k.keys.Same(r.TenantID, was, is) }
	was, is := r.Counterparty, counterpartyRecord(m.to.Kind, m.to.Identity)
	if was.Kind != is.Kind || !same(was.InstanceID, is.InstanceID) || !same(was.TenantID, is.TenantID) || !same(was.UserID, is.UserID) || m.local == nil && !same(r.Address.Target, m.target) {
		return withdraws(ocip.RecipientMismatch, "session %s no longer reaches whom the message was decided for", m.key)
	}
	if err := k.served(m); err != nil {
		return withdraws(ocip.RecipientMismatch, "%s", api.AsError(err).Message)
	}
	return nil
}

// stillAllowed weighs the message by the rules in force, as if nothing had come after it.
func (w *waitedMessage) stillAllowed(ctx context.Context) error {
	k, r, m := w.k, w.Record, w.m
	now := k.now()
	denied, err := k.tasks.bind(ctx, m)
	if err != nil || denied != nil {
		if denied != nil {
			err = withdraws(denied.Code, "%s", denied.Reason)
		}
		return err
	}
	refused, err := k.lookAt(ctx, m, m.dispatchID)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return withdraws(refused.Code, "%s", refused.Reason)
	}
	if was, err := mediaOf(r); err != nil || alongside(was) != alongside(m.media) {
		return errors.Join(err, &gate.Anew{Reason: "a file that goes along has changed since the message was let through"})
	}
	st, err := k.conversations.stoodThen(m, r, now)
	if err != nil {
		return err
	}
	if m.grant != "" {
		if m.under, err = k.grants.Waited(ctx, m.grant, m.wants(&st.exchange), k.signers); err != nil {
			return err
		}
	}
	v := k.weigh(ctx, m, st, m.person, now)
	switch v.Result {
	case ocip.Deny:
		return &gate.Withdrawn{Code: string(v.Code), Reason: v.Reason}
	case ocip.RequireApproval:
		return &gate.Anew{Reason: v.Reason, Details: map[string]any{"code": v.Code}}
	case ocip.Allow:
	}
	if err := w.enoughPeople(ctx, v); err != nil {
		return err
	}
	if err := stillAccepts(m, r); err != nil || m.local == nil {
		return err
	}
	envelope, err := ocip.ParseEnvelope(m.metadata["ocip"])
	if err != nil {
		return fmt.Errorf("cannot decode the envelope of a message that waits: %w", err)
	}
	return w.stillTakes(ctx, m.local, *m.sender.Counterparty(), &envelope, directory.ReplyKey(m.sender, m.local, m.target), m.content.Inspect(), m.metadata)
}

// enoughPeople reports whether as many people as are needed now have approved a message, or had
// approved it before one of them took it over.
func (w *waitedMessage) enoughPeople(ctx context.Context, v *ocip.Verdict) error {
	k, m := w.k, w.m
	if m.person == ocip.Nobody {
		return nil
	}
	needed, given := ocip.PeopleNeeded(v.Approvers, k.cfg.Approvers), approval.People(w.Approval)
	if m.person == ocip.TakenOver && given < needed {
		// The record of a takeover does not list the approvals before it.
		r, err := k.decider.Get(ctx, w.Approval.ApprovalID)
		if refused, ok := errors.AsType[*api.Error](err); err != nil && (!ok || refused.Code != api.NotFound) {
			return err
		}
		if err == nil && r.Decision != nil && r.Digest == w.Approval.Details["digest"] {
			given = 1 + othersThan(r.Decision, r.Approvals)
		}
	}
	if given < needed {
		return &gate.Anew{Reason: fmt.Sprintf("%d people have to approve the message now, and %d did", needed, given)}
	}
	return nil
}

// othersThan counts the approvals of people other than the one who decided.
func othersThan(by *api.ApprovalDecision, approvals []api.ApprovalDecision) (n int) {
	for i := range approvals {
		if a := &approvals[i]; a.By != by.By && (a.Fingerprint == "" || a.Fingerprint != by.Fingerprint) {
			n++
		}
	}
	return n
}

// stillAccepts reports whether the receiver accepts the attached data items. If not, a person is
// asked: an approved message leaves without the items.
func stillAccepts(m *outgoing, r *audit.Entry) error {
	var name string
	if err := restedOn(r, dataLevelDetail, &name); err != nil || name == "" {
		return err
	}
	level, err := ocip.ParseLevel(name)
	if err == nil && level > m.to.Accepts {
		err = &gate.Anew{Reason: fmt.Sprintf("data that goes along is %s, and the receiver accepts at most %s now", level, m.to.Accepts)}
	}
	return err
}

// mediaOf returns the attached files and parts that a record lists.
func mediaOf(r *audit.Entry) (items []api.MediaItem, err error) {
	raw, there := r.Details["media"]
	if !there {
		return nil, nil
	}
	text, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(text, &items)
	}
	return items, err
}

// askAnew enters a request about the message into a change, or returns the reason why no
// approval could release it. Locked is set if the caller holds the lock of the message's two ends.
func (w *waitedMessage) askAnew(ctx context.Context, anew *gate.Anew, change *store.Change, locked bool) (id string, why *gate.Withdrawn, err error) {
	if err := w.prepare(ctx); err != nil {
		why, _ = errors.AsType[*gate.Withdrawn](err)
		if why != nil {
			err = nil
		}
		return "", why, err
	}
	k, m := w.k, w.m
	m.metadata, _ = exchangehints.WithoutOwn(m.metadata)
	if m.hints.MessageType == ocip.Human {
		// The person who approves vouches for another person's text.
		m.hints.MessageType = ocip.AgentAssisted
	}
	m.metadata["exchange"] = m.hints.Object()
	m.asked = &api.DispatchParams{SessionKey: m.key, Content: m.content, Metadata: m.metadata}
	m.redeems = m.carried
	if refused, err := k.lookAt(ctx, m, m.dispatchID); err != nil || refused != nil {
		if refused != nil {
			why = &gate.Withdrawn{Code: string(refused.Code), Reason: refused.Reason}
		}
		return "", why, err
	}
	now := k.now()
	if !locked {
		defer k.state.Lock(m.sender.InstanceID, m.other())()
	}
	if id := k.requests.Waiting(api.ApprovalOfMessage, m.sender.InstanceID, m.request); id != "" {
		// A request about the same message is pending already, and sends it once.
		return id, nil, nil
	}
	st, err := k.conversations.standing(ctx, m, now)
	if err != nil {
		if refused, ok := errors.AsType[*api.Error](err); ok {
			return "", &gate.Withdrawn{Code: string(ocip.ExchangeClosed), Reason: refused.Message}, nil
		}
		return "", nil, err
	}
	level, err := ocip.ParseLevel(w.Record.Classification)
	if err != nil {
		return "", nil, err
	}
	v := &ocip.Verdict{Result: ocip.RequireApproval, Code: ocip.ChangedSince, Policy: "changed-since", Reason: anew.Reason, Exchange: st.exchange, Level: level}
	r := k.newRequest(m, v, k.newID(), now)
	if !k.requests.Reserve(r, k.cfg.MaxHeld) {
		return "", &gate.Withdrawn{
			Code: string(ocip.TooManyHeld), Reason: fmt.Sprintf("%s; and %d messages of agent %s wait for a person already", anew.Reason, k.cfg.MaxHeld, m.sender.ID),
		}, nil
	}
	if _, err := k.enterRequest(ctx, r, m, v, st, change, now); err != nil {
		k.requests.Free(r)
		return "", nil, err
	}
	return r.ApprovalID, nil, nil
}

// openRelease opens an approved message for a runtime that delivers by itself, as read back from
// the store. Weigh is set if the current state must still allow it.
func (k *ruleset) openRelease(ctx context.Context, row *store.Release, r *approval.Request, weigh bool) (gate.Sealed, *gate.Waited, error) {
	var form api.EmittedMessage
	if json.Unmarshal(row.Data, &form, json.RejectUnknownMembers(true)) != nil || !bytes.Equal(form.Append(nil), row.Data) || form.DispatchID != r.DispatchID {
		return gate.Sealed{}, nil, gate.ErrUndecided
	}
	decisions, err := k.store.DecisionsOf(ctx, row.RecordSeq, r.DispatchID)
	if err != nil {
		return gate.Sealed{}, nil, err
	}
	w := &waitedMessage{k: k, Waited: &gate.Waited{Form: &form, SessionKey: form.SessionKey}}
	for i := range decisions {
		if d := &decisions[i]; d.ActionType == audit.ActionApproval && d.ApprovalID == r.ApprovalID {
			w.Approval = &d.Entry
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.ActionType != audit.ActionExchange || d.ApprovalID != r.ApprovalID || !k.keys.Same(d.TenantID, d.AppID, row.AppID) {
			continue
		}
		_, letter, err := k.keys.Close(nil, d.TenantID, &form)
		if err != nil {
			return gate.Sealed{}, nil, recordable(k.log, err)
		}
		w.Record = &d.Entry
		sealed, err := gate.Open(d.Receipt, letter, func() error {
			if !weigh {
				return nil
			}
			return w.standing(ctx)
		})
		if !errors.Is(err, gate.ErrUndecided) {
			return sealed, w.Waited, err
		}
	}
	if weigh || len(decisions) == 0 {
		if err := outbox.Gone(ctx, k.store, k.search.Query, decisions, row.RecordSeq); err != nil {
			return gate.Sealed{}, w.Waited, err
		}
	}
	return gate.Sealed{}, nil, gate.ErrUndecided
}
