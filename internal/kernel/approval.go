package kernel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/releases"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
)

// newRequests loads the requests that wait for a person.
func (k *Kernel) newRequests(ctx context.Context) (err error) {
	k.requests, err = approval.New(ctx, approval.Options{
		Store: k.store, Search: k.search.Query, Notify: k.notify, Now: k.now, NewID: k.newID,
		Commit: func(c *store.Change) (store.Receipt, error) {
			receipt, err := k.commit(c)
			if err == nil {
				k.state.Entered(c)
			}
			return receipt, err
		},
		Keyed: func(tenant, text string) (string, error) {
			digest, err := k.digest(tenant, text)
			if err != nil {
				err = storeerror.NotRecorded("cannot record what changed, so nothing was done", err)
			}
			return digest, err
		},
		Answers: func(tenant, asked string) (string, error) {
			digest, err := k.keys(tenant, audit.LabelAnswers, func(b []byte) ([]byte, error) { return append(b, asked...), nil })
			return digest, recordable(k.log, err)
		},
	})
	return err
}

// Approvals returns the decider that takes people's decisions under the rules in force.
func (k *Kernel) Approvals() *approval.Decider { return k.rules().decider }

// subject finds what a request is about.
func (k *ruleset) subject(r *approval.Request) (approval.Subject, error) {
	switch r.Kind {
	case api.ApprovalOfEscalation:
		return k.exchanges.Escalation(r, k.directory), nil
	case api.ApprovalOfDelivery:
		return k.releases.Subject(r)
	case api.ApprovalOfEffect, api.ApprovalOfPermission:
		switch {
		case r.TaskID == "":
			return k.hooks.Subject(r, k.hookRules)
		case k.subjectOf == nil:
			return nil, approval.NotFound(r.ApprovalID)
		}
		return k.subjectOf(r)
	}
	s := &heldMessage{k: k, r: r}
	if len(r.Own) > 0 {
		if err := json.Unmarshal(r.Own, &s.kept); err != nil {
			return nil, fmt.Errorf("cannot decode approval %s: %w", r.ApprovalID, err)
		}
	}
	return s, nil
}

// heldMessage is a message that waits for a person.
type heldMessage struct {
	k    *ruleset
	r    *approval.Request
	kept keptMessage
	// m is the message, prepared again, st the state of its exchange, and v the verdict on it if a
	// person approves. The last preview set all three.
	m  *outgoing
	st *standing
	v  *ocip.Verdict
}

// endOf names the receiver of a held message.
func endOf(r *approval.Request) string {
	if r.CounterpartyKind == ocip.KindAgent {
		return "agent " + r.Counterparty
	}
	return r.To()
}

// Lock takes the lock of the message's two ends.
func (s *heldMessage) Lock() (unlock func()) { return s.k.exchanges.Lock(s.r) }

// Takes accepts every kind of decision about a message.
func (s *heldMessage) Takes(decision string) error {
	if decision == api.DecideChanges {
		return api.Errorf(api.InvalidParams, "decision: what a message would have to be is said by whoever takes it over")
	}
	return nil
}

// Preview weighs the message again.
func (s *heldMessage) Preview(ctx context.Context, now time.Time) (err error) {
	if s.m, err = s.again(ctx); err != nil {
		return err
	}
	if s.st, err = s.k.conversations.standing(ctx, s.m, now); err != nil {
		return err
	}
	s.show(ctx, now)
	return nil
}

// Release sends the message, or the text that the person wrote in its place.
func (s *heldMessage) Release(ctx context.Context, d *approval.Decision) error {
	v, state := s.v, api.ApprovalApproved
	if d.Decision == api.DecideTakeover {
		var err error
		if v, err = s.inPersonsWords(ctx, d); err != nil {
			return err
		}
		state = api.ApprovalTakenOver
	}
	if err := s.passRequired(ctx, d); err != nil {
		return err
	}
	defer s.k.pauses.Deciding()()
	if s.k.inForce.Load() != s.k {
		return hooks.ErrReplaced
	}
	if err := s.k.exchanges.Settle(ctx, d, s.st.escalated); err != nil {
		return err
	}
	return s.release(ctx, d, v, state)
}

// inPersonsWords makes the message a person's own, with their text if they wrote one. The exchange
// ends as escalated.
func (s *heldMessage) inPersonsWords(ctx context.Context, d *approval.Decision) (*ocip.Verdict, error) {
	if d.Content != "" {
		// The agent's line for the transcript is about the agent's text.
		s.m.content, s.m.hints.Summary = gate.NewText(d.Content), ""
		if err := s.k.look(ctx, s.m); err != nil {
			return nil, err
		}
		if err := s.onlyShown(); err != nil {
			return nil, err
		}
	}
	v := s.k.weigh(ctx, s.m, reopened(s.st, s.m, d.Now), ocip.TakenOver, d.Now)
	if !v.Allowed() {
		return nil, api.Obstacle{Blocked: v.Reason}.Conflict(api.ApprovalBlocked, "this message cannot leave, whoever sends it: "+v.Reason)
	}
	return v, nil
}

// onlyShown refuses a person's words that send along a file or inline part, which the person
// was not shown with the message.
func (s *heldMessage) onlyShown() error {
	for _, item := range s.m.media {
		shown := func(was api.MediaItem) bool {
			return was.Path == item.Path && was.URL == item.URL && was.SHA256 == item.SHA256
		}
		if item.SHA256 != "" && !slices.ContainsFunc(s.r.Media, shown) {
			name := cmp.Or(item.Path, "the inline part of "+item.Member)
			return api.Obstacle{Blocked: "unseen: " + name}.Conflict(api.ApprovalBlocked, "these words send "+name+" along, as nobody was shown it; leave it out, or send it in a message of its own")
		}
	}
	return nil
}

// release sends the message in the commit of the decision that releases it. Either both are durable
// or neither is.
func (s *heldMessage) release(ctx context.Context, d *approval.Decision, v *ocip.Verdict, state string) error {
	k := s.k
	giveBack, err := k.conversations.count(ctx, s.m, s.st, d.Now)
	if err != nil {
		return err
	}
	s.m.conclude = func(refused *ocip.Verdict) error {
		switch {
		case refused != nil:
			why := ocip.Summarize("the receiver refused the message: " + refused.Reason)
			if d.By.Note != "" {
				why = d.By.Note + "; " + why
			}
			d.By.Note = why
			return d.Conclude(api.ApprovalDenied, nil)
		case d.OfExchange() != nil:
			var err error
			if d.Grant, err = k.grants.OfApproval(d.Request, s.m.sender.TenantID, partyOf(&s.m.recipient.Counterparty), d.OfExchange(), d.Change, d.Now); err != nil {
				return err
			}
		}
		if s.m.carried {
			// The runtime sends it: it is told the content, or redeems the approval.
			data := s.m.emitted().Append(nil)
			if !s.kept.Redeem && (s.m.app == nil || !s.m.app.Redeems()) {
				return d.Conclude(state, data)
			}
			origin, _ := api.Text(s.m.metadata["origin"])
			releases.Enter(d.Change, d.Request, origin, data, k.exchangeRules.WaitsUntil(&v.Exchange, d.Now))
		}
		return d.Conclude(state, nil)
	}
	if s.m.person != ocip.Judged {
		if err := k.exchanges.SeenTo(ctx, d, &s.st.exchange, k.decider); err != nil {
			giveBack()
			return err
		}
	}
	if _, err := k.release(ctx, s.m, v, s.st, d.Change, d.Now); err != nil {
		giveBack()
		return err
	}
	if s.m.deliver != nil {
		s.m.deliver()
	}
	return nil
}

// End ends the message's exchange without it.
func (s *heldMessage) End(ctx context.Context, d *approval.Decision, state string) error {
	return s.k.exchanges.End(ctx, d, state, s.k.directory)
}

// TakeBack takes the message back from a runtime that has not redeemed it.
func (s *heldMessage) TakeBack(_ string, revoke func() error) error {
	return s.k.releases.While(s.r.ApprovalID, revoke)
}

// again prepares a held message anew, as it was when it was weighed.
func (s *heldMessage) again(ctx context.Context) (*outgoing, error) {
	k, r, kept := s.k, s.r, &s.kept
	sender := k.directory.Agent(r.AgentID)
	if sender == nil || sender.InstanceID != r.Agent || !ofTenant(r, sender) {
		return nil, api.Errorf(api.Conflict, "agent %s, whose message this is, is no longer configured; deny it, or configure the agent", r.AgentID)
	}
	m := &outgoing{
		speaker:     speaker{app: k.apps.Connected(r.AppID), appID: r.AppID, sender: sender, carried: kept.Carried},
		destination: destination{key: r.SessionKey, account: kept.Account, local: k.directory.LocalAgent(r.SessionKey)},
		content:     gate.NewText(r.Content), dispatchID: r.DispatchID, changedBy: kept.Changes, unlabelled: kept.Unlabelled,
		earlier: earlier{approvalID: r.ApprovalID, askedAt: time.UnixMilli(r.AskedAt)},
	}
	err := json.Unmarshal([]byte(kept.Metadata), &m.metadata)
	if err != nil {
		return nil, fmt.Errorf("cannot decode the metadata of approval %s: %w", r.ApprovalID, err)
	}
	// It keeps its address, even if the session's last message came from elsewhere since.
	brought, err := k.directory.Brought(m.key, m.metadata)
	if err != nil {
		return nil, api.Errorf(api.Conflict, "what is said of the address is none any more, so the message cannot go; deny it: %v", err)
	}
	if err := k.addresses.reach(ctx, m, brought); err != nil {
		return nil, err
	}
	if m.to.InstanceID != r.Counterparty || m.target != r.Target {
		return nil, api.Errorf(api.Conflict, "session %s no longer reaches %s, for whom the message is; deny it, or configure whom it reaches", r.SessionKey, endOf(r))
	}
	bound, mismatch := m.recipient.Bind(m.metadata)
	if mismatch != "" {
		return nil, api.Errorf(api.Conflict, "metadata.%s names another recipient than session %s reaches by now, so the message cannot go; deny it", mismatch, r.SessionKey)
	}
	m.metadata = bound
	reaches(r, m)
	if m.hints, err = exchangehints.Parse(m.metadata["exchange"]); err != nil {
		return nil, err
	}
	m.hints.ID, m.hints.ConversationID, m.hints.New = r.ExchangeID, "", false
	denied, err := k.tasks.bind(ctx, m)
	if err != nil {
		return nil, err
	}
	if denied != nil {
		return nil, api.Errorf(api.Conflict, "the message cannot go any more; deny it: %s", denied.Reason)
	}
	// Files are read again, since they may have changed while the message was held.
	if err := k.look(ctx, m); err != nil {
		return nil, err
	}
	return m, nil
}

// outcomeKept is how long the outbox keeps an outcome for an app.
const outcomeKept = 7 * 24 * time.Hour

// Tell puts the outcome into the outbox, for the app that asked.
func (s *heldMessage) Tell(change *store.Change, outcome api.ApprovalOutcome) error {
	return s.k.tell(s.r, change, outcome, s.m)
}

// tell puts the outcome of a request into the outbox, for the app that asked. The change's first
// record, just added, is about that, and gets the digest of the event. The message is the one that
// is released with it, or nil.
func (k *ruleset) tell(r *approval.Request, change *store.Change, outcome api.ApprovalOutcome, m *outgoing) error {
	if r.AppID == api.OperatorApp || directory.IsAgents(r.AppID) {
		return nil // the caller finds the request in the operator's list, or asks about it
	}
	channel, _ := directory.Split(r.SessionKey)
	// The outcome lets the runtime send, so it waits while either end is paused.
	to := r.AgentID
	if local := k.directory.LocalAgent(r.SessionKey); local != nil && len(outcome.Data) > 0 {
		to = local.ID
	}
	record := change.Records[0]
	generation := k.generation(record.TenantID)
	if m != nil {
		// Interceptors may have taken time since the receiver was looked up.
		generation = m.known.generation
	}
	told := &outbox.Delivery{
		Generation: generation, Volatile: true,
		Message: store.Message{
			MessageID: store.MessageID{Queue: outbox.AppQueue(r.AppID)}, DispatchID: r.DispatchID, ExpiresAt: time.UnixMilli(outcome.Timestamp).Add(outcomeKept),
		},
		Event: outbox.Event{Name: api.ApprovalEvent, From: r.AgentID, By: r.Agent, Tenant: record.TenantID, About: api.HookContext{AgentID: to, ChannelID: channel}},
	}
	return tellApp(k, change, told, outcome)
}

// Record begins a record about the message.
func (s *heldMessage) Record() *audit.Record { return exchanges.Asking(s.r, s.k.directory) }
