package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// decision is one person's word about one held message, under way.
type decision struct {
	*api.ApprovalResolveParams
	by  api.ApprovalDecision
	now time.Time
	h   *held
	m   *outgoing
	st  *standing
	// change is what the decision will write, records first.
	change *store.Change
}

// ApprovalResolve takes a person's decision about a held message, at most once.
func (k *Kernel) ApprovalResolve(ctx context.Context, peer api.Peer, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	// The person's word counts, whether or not the person stays.
	return k.rules().approvalResolve(context.WithoutCancel(ctx), peer, p)
}

func (k *ruleset) approvalResolve(ctx context.Context, peer api.Peer, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	h, unlock, err := k.approval(ctx, p.ApprovalID)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	defer unlock()
	d := &decision{ApprovalResolveParams: p, now: k.now(), h: h, change: &store.Change{Last: true}}
	if err := k.mayDecide(d, peer); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if h.Kind == api.ApprovalOfEscalation && (p.Decision == api.DecideApprove || p.Decision == api.DecideTakeover) {
		return api.ApprovalResolveResult{}, api.Obstacle{Blocked: nothingWaits}.Conflict(api.ApprovalBlocked, "this cannot be approved or taken over: "+nothingWaits)
	}
	if p.Decision == api.DecideDeny || p.Decision == api.DecideResolve {
		if d.st, err = k.standingOf(ctx, h); err != nil {
			return api.ApprovalResolveResult{}, err
		}
		return k.endHeld(ctx, d)
	}
	if d.m, err = k.again(ctx, h); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if d.st, err = k.standing(ctx, d.m, d.now); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if p.Decision == api.DecideTakeover {
		return k.takeOver(ctx, d)
	}
	return k.approve(ctx, d)
}

// standingOf is how things are for a held message that is not to be sent: it
// can be decided about when nobody could send it any more.
func (k *ruleset) standingOf(ctx context.Context, h *held) (*standing, error) {
	var (
		st  standing
		err error
	)
	pair := store.PairOf(h.Agent, h.Counterparty)
	if st.exchange, err = k.exchanges.side(ctx, pair, h.Agent, h.ExchangeID); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	st.escalated, err = k.exchanges.escalation(ctx, pair)
	return &st, err
}

// approval returns a held message that still waits, and takes the lock of its two
// agents: whatever is decided between them is decided one after the other.
func (k *ruleset) approval(ctx context.Context, id string) (h *held, unlock func(), err error) {
	// Whose it is never changes.
	if h, err = k.lookUp(ctx, id); err != nil {
		return nil, nil, err
	}
	unlock = k.exchanges.pairs.lock(h.Agent, otherEnd(h.Counterparty, h.SessionKey))
	if h, err = k.lookUp(ctx, id); err == nil && h.State == api.ApprovalPending && k.now().UnixMilli() >= h.ExpiresAt {
		err = k.expireApproval(ctx, h)
	}
	if err == nil && h.State != api.ApprovalPending {
		err = decidedAlready(h)
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return h, unlock, nil
}

// decidedAlready tells who came too late who was first.
func decidedAlready(h *held) error {
	by := h.Decision
	message := fmt.Sprintf("approval %s is %s already, by %s at %s", h.ApprovalID, h.State, by.By, time.UnixMilli(by.At).UTC().Format(time.RFC3339))
	return api.Obstacle{State: h.State, By: by.By, At: by.At}.Conflict(api.AlreadyDecided, message)
}

// mayDecide finds out who decides. What was shown is what is decided about. A
// signature that is missing or no good is on record.
func (k *ruleset) mayDecide(d *decision, peer api.Peer) error {
	if d.Digest != "" && d.Digest != d.h.Digest {
		return k.stale(d.h, "what waits is not what you saw: look again")
	}
	text := api.SignedText(d.ApprovalID, d.Decision, d.h.Digest)
	if d.Content != "" {
		text = api.SignedContent(text, d.Content)
	}
	var err error
	d.by, err = k.decider(peer, d.Decision, d.Note, d.Signature, text, k.approvalRecord(d.h, ""))
	return err
}

// decider is who decides something: whoever signed it or, where no signatures
// are asked for, the user that the system says. Where they are, a word without
// one counts for nothing; that somebody tried goes on record, in what the record
// says already of what it is about.
func (k *ruleset) decider(peer api.Peer, what, note, signature, text string, r *audit.Record) (api.ApprovalDecision, error) {
	uid, _, pid := peer.Credentials()
	now := k.now()
	by := api.ApprovalDecision{Decision: what, By: fmt.Sprintf("uid:%d", uid), UID: uid, Note: note, At: now.UnixMilli()}
	if k.signers == nil {
		return by, nil
	}
	reason := "decisions must be signed here, with a key of the allowed signers"
	if signature != "" {
		principal, fingerprint, err := k.signers.Verify([]byte(signature), []byte(text), now)
		if err == nil {
			by.By, by.Fingerprint, by.Signature = principal, fingerprint, signature
			return by, nil
		}
		reason = "the signature is not accepted: " + err.Error()
	}
	r.ActionType, r.Event, r.PolicyResult, r.PolicyReason = audit.ActionSecurity, "decision_refused", string(ocip.Deny), reason
	r.Details = map[string]any{"decision": what, "uid": uid, "pid": pid}
	if _, err := k.record(r); err != nil {
		return by, err
	}
	return by, api.Errorf(api.Forbidden, "%s", reason)
}

func (k *Kernel) stale(h *held, message string) error {
	return api.Obstacle{Changed: append([]api.ApprovalChange{}, h.Changed...), Digest: h.Digest}.Conflict(api.ApprovalStale, message)
}

// again is the held message as it was when it was weighed, on its way once more.
func (k *ruleset) again(ctx context.Context, h *held) (*outgoing, error) {
	sender := k.directory.Agent(h.AgentID)
	if sender == nil || sender.InstanceID != h.Agent {
		return nil, api.Errorf(api.Conflict, "agent %s, whose message this is, is no longer configured; deny it, or configure the agent", h.AgentID)
	}
	k.mu.RLock()
	a := k.apps[h.AppID]
	k.mu.RUnlock()
	m := &outgoing{
		app: a, appID: h.AppID, sender: sender, key: h.SessionKey, content: h.Content, account: h.Account,
		dispatchID: h.DispatchID, changedBy: h.Changes, carried: h.Carried, approvalID: h.ApprovalID, askedAt: time.UnixMilli(h.AskedAt), local: k.directory.LocalAgent(h.SessionKey),
	}
	err := json.Unmarshal([]byte(h.Metadata), &m.metadata)
	if err != nil {
		return nil, fmt.Errorf("cannot decode the metadata of approval %s: %w", h.ApprovalID, err)
	}
	// It goes where it was to go, wherever the session's last message came from.
	bound, err := k.directory.Brought(m.key, m.metadata)
	if err != nil {
		return nil, api.Errorf(api.Conflict, "what is said of the address is none any more, so the message cannot go; deny it: %v", err)
	}
	if err := k.reach(ctx, m, bound); err != nil {
		return nil, err
	}
	if m.to.InstanceID != h.Counterparty || m.target != h.Target {
		return nil, api.Errorf(api.Conflict, "session %s no longer reaches %s, for whom the message is; deny it, or configure whom it reaches", h.SessionKey, h.end())
	}
	if m.hints, err = parseHints(m.metadata["exchange"]); err != nil {
		return nil, err
	}
	m.hints.ID, m.hints.ConversationID, m.hints.New = h.ExchangeID, "", false
	// A file is what it is when it is sent.
	if err := k.look(m); err != nil {
		return nil, err
	}
	h.Media = m.media
	return m, nil
}

// approve lets a held message go, if it may still go just as it was shown and
// enough people have said so.
func (k *ruleset) approve(ctx context.Context, d *decision) (api.ApprovalResolveResult, error) {
	v, err := k.lookAgain(ctx, d)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if !v.Allowed() {
		return api.ApprovalResolveResult{}, api.Obstacle{Blocked: d.h.Blocked}.Conflict(api.ApprovalBlocked,
			"this message cannot be approved: "+d.h.Blocked+"; deny it, resolve the exchange, or take it over")
	}
	k.recount(d.h)
	if slices.ContainsFunc(d.h.Approvals, d.same) {
		return api.ApprovalResolveResult{}, api.Obstacle{}.Conflict(api.ApprovedTwice,
			fmt.Sprintf("%s has approved this already; it needs %d people", d.by.By, d.h.Needed))
	}
	d.h.Approvals = append(d.h.Approvals, d.by)
	if d.h.Given = len(d.h.Approvals); d.h.Given < d.h.Needed {
		return k.keepWaiting(d, "approved_in_part")
	}
	if err := k.settle(ctx, d); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	return k.releaseHeld(ctx, d, v, api.ApprovalApproved)
}

// recount drops the approvals that count no longer: of whoever was taken off the
// list of signers since, or never signed.
func (k *ruleset) recount(h *held) {
	if k.signers == nil {
		return
	}
	text := []byte(api.SignedText(h.ApprovalID, api.DecideApprove, h.Digest))
	h.Approvals = slices.DeleteFunc(h.Approvals, func(a api.ApprovalDecision) bool {
		_, _, err := k.signers.Verify([]byte(a.Signature), text, time.UnixMilli(a.At))
		return err != nil
	})
	h.Given = len(h.Approvals)
}

// same reports whether an earlier approval is of the person who decides now.
func (d *decision) same(a api.ApprovalDecision) bool {
	return a.By == d.by.By || a.Fingerprint != "" && a.Fingerprint == d.by.Fingerprint
}

// lookAgain weighs a held message once more. Where it would no longer leave as
// it was shown, nothing is decided: what changed is written down, and a person
// has to look anew.
func (k *ruleset) lookAgain(ctx context.Context, d *decision) (*ocip.Verdict, error) {
	was := *d.h
	v := k.preview(ctx, d.m, d.h, d.st, d.now)
	if d.h.Digest == was.Digest {
		return v, nil
	}
	d.h.Changed = changes(&was, d.h)
	d.h.Approvals, d.h.Given = nil, 0
	d.h.Anew++
	d.h.name()
	if _, err := k.keepWaiting(d, "asked_anew"); err != nil {
		return nil, err
	}
	message := "something changed since this was held: look again"
	if !v.Allowed() {
		message = "something changed since this was held, and it may not be sent any more: " + v.Reason
	}
	return nil, k.stale(d.h, message)
}

// changedSending is the field of a change that holds what would be sent.
const changedSending = "sending"

// recorded is what changed as records have it: with keyed digests of what would
// be sent, which is a message's text.
func (k *ruleset) recorded(tenant string, changed []api.ApprovalChange) ([]api.ApprovalChange, error) {
	list := slices.Clone(changed)
	for i := range list {
		if list[i].Field != changedSending {
			continue
		}
		for _, text := range []*string{&list[i].Was, &list[i].Now} {
			if *text == "" {
				continue
			}
			digest, err := k.digest(tenant, *text)
			if err != nil {
				return nil, NotRecorded("cannot record what changed, so nothing was done", err)
			}
			*text = digest
		}
	}
	return list, nil
}

// changes lists what a person saw otherwise.
func changes(was, now *held) (list []api.ApprovalChange) {
	may := func(h *held) string {
		if h.Blocked == "" {
			return "may be sent once approved"
		}
		return h.Blocked
	}
	for _, f := range []struct{ field, was, now string }{
		{"policyRevision", was.PolicyRevision, now.PolicyRevision},
		{"verdict", may(was), may(now)},
		{changedSending, string(timeless(was.Sending)), string(timeless(now.Sending))},
	} {
		if f.was != f.now {
			list = append(list, api.ApprovalChange{Field: f.field, Was: f.was, Now: f.now})
		}
	}
	return list
}

// keepWaiting writes down what happened to a message that goes on waiting.
func (k *ruleset) keepWaiting(d *decision, event string) (api.ApprovalResolveResult, error) {
	stored, err := d.h.encode(api.ApprovalPending)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	r := k.approvalRecord(d.h, event)
	r.Details = decisionDetails(&d.by)
	r.Details["digest"], r.Details["given"], r.Details["needed"] = d.h.Digest, d.h.Given, d.h.Needed
	if len(d.h.Changed) > 0 {
		if r.Details["changed"], err = k.recorded(r.TenantID, d.h.Changed); err != nil {
			return api.ApprovalResolveResult{}, err
		}
	}
	receipt, err := k.commit(&store.Change{Records: []*audit.Record{r}, Approvals: []store.Approval{stored}, Last: true})
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	k.holds.tell(d.h.ApprovalID)
	return resolveResult(d.h, receipt.Seq), nil
}

// takeOver lets a person say it instead: the message leaves as theirs, with
// their words where they gave any, and the exchange ends as escalated.
func (k *ruleset) takeOver(ctx context.Context, d *decision) (api.ApprovalResolveResult, error) {
	if _, err := k.lookAgain(ctx, d); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	k.recount(d.h)
	others := len(slices.DeleteFunc(slices.Clone(d.h.Approvals), d.same))
	if others+1 < d.h.Needed {
		return api.ApprovalResolveResult{}, api.Obstacle{}.Conflict(api.ApprovalBlocked, fmt.Sprintf(
			"this message needs %d people, whoever it leaves as: let %d approve first, then take it over", d.h.Needed, d.h.Needed-1-others))
	}
	if d.Content != "" {
		// The agent's line for the transcript is about the agent's text.
		d.m.content, d.m.hints.Summary = d.Content, ""
		if err := k.look(d.m); err != nil {
			return api.ApprovalResolveResult{}, err
		}
	}
	v := k.weigh(ctx, d.m, reopened(d.st, d.m, d.now), ocip.TakenOver, d.now)
	if !v.Allowed() {
		return api.ApprovalResolveResult{}, api.Obstacle{Blocked: v.Reason}.Conflict(api.ApprovalBlocked, "this message cannot leave, whoever sends it: "+v.Reason)
	}
	if err := k.settle(ctx, d); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	return k.releaseHeld(ctx, d, v, api.ApprovalTakenOver)
}

// endHeld denies a held message, or ends its exchange without it.
func (k *ruleset) endHeld(ctx context.Context, d *decision) (api.ApprovalResolveResult, error) {
	state, outcome := api.ApprovalDenied, ocip.Denied
	if d.Decision == api.DecideResolve {
		state, outcome = api.ApprovalResolved, ocip.Resolved
	}
	if err := k.settle(ctx, d); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if err := k.forgive(ctx, d.change, d.h.Agent, d.h.Counterparty, outcome, d.h.ConversationID, ocip.Code(d.h.Code)); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	k.endExchange(d, outcome)
	if d.st.escalated != "" && d.st.escalated == d.h.ExchangeID {
		if err := k.endOtherSide(ctx, d, outcome); err != nil {
			return api.ApprovalResolveResult{}, err
		}
	}
	return k.finish(d, state)
}

// endExchange gives the exchange of a held message its outcome.
func (k *Kernel) endExchange(d *decision, outcome ocip.Outcome) {
	if e, open := d.st.exchange.Settle(d.now, outcome); open {
		d.change.Exchanges = append(d.change.Exchanges, e)
	}
}

// endOtherSide ends the other agent's side too of an exchange whose rounds are
// used up, where it is kept here: that agent would go on in it, and be stopped
// once more.
func (k *ruleset) endOtherSide(ctx context.Context, d *decision, outcome ocip.Outcome) error {
	sides, err := k.sidesOf(ctx, &d.st.exchange)
	if err != nil {
		return err
	}
	for _, e := range sides {
		e, open := e.Settle(d.now, outcome)
		if !open || e.Agent == d.h.Agent || e.ConversationID != d.h.ConversationID {
			continue
		}
		d.change.Exchanges = append(d.change.Exchanges, e)
		r := k.exchangeRecord(&e, string(outcome))
		r.ApprovalID = d.h.ApprovalID
		d.change.Records = append(d.change.Records, r)
	}
	return nil
}

// settle enters that a person has looked: where the exchange's rounds were used
// up, its two agents may begin anew, and the agent begins a causal line anew.
func (k *ruleset) settle(ctx context.Context, d *decision) error {
	if d.st.escalated != "" && d.st.escalated == d.h.ExchangeID {
		d.change.Settled = append(d.change.Settled, store.PairOf(d.h.Agent, d.h.Counterparty))
	}
	return k.beginAnew(ctx, d.h.Agent, d.now, d.change)
}

// forgive enters what an agent still owes once a person has ended something.
func (k *ruleset) forgive(ctx context.Context, change *store.Change, agent, counterparty string, outcome ocip.Outcome, conversation string, held ocip.Code) error {
	if counterparty == "" {
		return nil
	}
	owed, err := k.debts.of(ctx, debtor{agent, counterparty})
	if err == nil {
		k.debts.enter(change, agent, counterparty, owed, owed.Settle(outcome, conversation, held))
	}
	return err
}

// releaseHeld sends a held message, in the commit of the decision that lets it
// go: it is decided and on its way, or neither.
func (k *ruleset) releaseHeld(ctx context.Context, d *decision, v *ocip.Verdict, state string) (api.ApprovalResolveResult, error) {
	giveBack, err := k.count(ctx, d.m, d.st, d.now)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	d.m.conclude = func(refused *ocip.Verdict) error {
		switch {
		case refused != nil:
			why := ocip.Summarize("the receiver refused the message: " + refused.Reason)
			if d.by.Note != "" {
				why = d.by.Note + "; " + why
			}
			d.by.Note = why
			return k.conclude(d, api.ApprovalDenied, nil)
		case d.m.carried:
			// Its runtime sends it, and is told with what.
			return k.conclude(d, state, d.m.emitted().Append(nil))
		}
		return k.conclude(d, state, nil)
	}
	seen, err := k.seenTo(ctx, d)
	if err != nil {
		giveBack()
		return api.ApprovalResolveResult{}, err
	}
	var seq uint64
	d.change.OnDurable(func(r store.Receipt) { seq = r.Seq })
	_, err = k.release(ctx, d.m, v, d.st, d.change, d.now)
	if err != nil {
		giveBack()
	} else if seen != nil {
		k.concluded(seen)
	}
	if d.h.Decision != nil && (err == nil || api.AsError(err).Code == api.Forbidden) {
		k.concluded(d.h)
	}
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if d.m.deliver != nil {
		d.m.deliver()
	}
	return resolveResult(d.h, seq), nil
}

// finish writes a decision that sends nothing.
func (k *ruleset) finish(d *decision, state string) (api.ApprovalResolveResult, error) {
	if err := k.conclude(d, state, nil); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	receipt, err := k.commit(d.change)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	k.entered(d.change)
	k.concluded(d.h)
	return resolveResult(d.h, receipt.Seq), nil
}

// outcomeKept is for how long an app is waited for that must be told.
const outcomeKept = 7 * 24 * time.Hour

// conclude enters a decision into its change: the state, the record, and the
// event for the app that asked, which waits for it in the outbox.
func (k *ruleset) conclude(d *decision, state string, data jsontext.Value) error {
	d.h.Decision, d.h.DecidedAt, d.h.State = &d.by, d.by.At, state
	decided := *d.h
	if !k.cfg.KeepHeld {
		decided.forget()
	}
	stored, err := decided.encode(state)
	if err != nil {
		return err
	}
	d.change.Approvals = append(d.change.Approvals, stored)
	r := k.approvalRecord(d.h, state)
	r.Details = decisionDetails(&d.by)
	r.Details["digest"] = d.h.Digest
	if d.by.Signature != "" && d.Content != "" {
		// What was signed can be checked from the record and the words.
		r.Details["signedText"] = api.SignedContent(api.SignedText(d.ApprovalID, d.Decision, d.h.Digest), d.Content)
	}
	if len(d.h.Approvals) > 1 {
		r.Details["approvals"] = d.h.Approvals
	}
	// The decision comes before what it lets go.
	d.change.Records = slices.Insert(d.change.Records, 0, r)
	if d.h.Kind == api.ApprovalOfEscalation {
		// No app asked for it.
		return nil
	}
	event, err := json.Marshal(api.ApprovalOutcome{
		ApprovalID: d.h.ApprovalID, DispatchID: d.h.DispatchID, Resolution: state, Note: d.by.Note, Data: data, Timestamp: d.by.At,
	})
	if err != nil {
		return fmt.Errorf("cannot encode an event: %w", err)
	}
	channel, _ := directory.Split(d.h.SessionKey)
	told := &delivery{
		Message: store.Message{MessageID: store.MessageID{Queue: appQueue(d.h.AppID)}, DispatchID: d.h.DispatchID, ExpiresAt: d.now.Add(outcomeKept)},
		body:    body{Event: api.ApprovalEvent, About: api.HookContext{AgentID: d.h.AgentID, ChannelID: channel}, Data: event},
	}
	told.enter(d.change)
	d.change.OnDurable(func(store.Receipt) {
		if flush := k.outbox.offer(told); flush != nil {
			flush()
		}
	})
	return nil
}

// concluded is called when a decision is durable.
func (k *Kernel) concluded(h *held) {
	k.holds.free(h.Agent, h.Asked)
	k.holds.tell(h.ApprovalID)
	if k.notify != nil {
		k.notify.Decided(h.ApprovalID)
	}
}

// expireApproval ends a held message that nobody decided about. Time never
// approves. It is called under the pair's lock.
func (k *ruleset) expireApproval(ctx context.Context, h *held) error {
	d := &decision{ApprovalResolveParams: &api.ApprovalResolveParams{ApprovalID: h.ApprovalID}, h: h, now: k.now(), change: &store.Change{Drains: true}}
	d.by = api.ApprovalDecision{Decision: "expire", By: "expiry", At: d.now.UnixMilli()}
	var err error
	if d.st, err = k.standingOf(ctx, h); err != nil {
		return err
	}
	if d.st.exchange.ExpiredAt(d.now) {
		k.endExchange(d, ocip.Expired)
	}
	_, err = k.finish(d, api.ApprovalExpired)
	return err
}

// sweepApprovals ends the held messages whose time has run out.
func (k *Kernel) sweepApprovals(ctx context.Context) error {
	for {
		page, err := k.store.ExpiredApprovals(ctx, k.now(), sweepPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, id := range page {
			if err := k.sweepApproval(ctx, id); err != nil {
				return err
			}
		}
	}
}

func (k *Kernel) sweepApproval(ctx context.Context, id string) error {
	// Looking at one that has expired ends it.
	_, unlock, err := k.rules().approval(ctx, id)
	if err == nil {
		unlock()
	}
	if api.AsError(err).Code == api.Conflict {
		return nil
	}
	return err
}

// approvalRecord is a record about a held message.
func (k *ruleset) approvalRecord(h *held, event string) *audit.Record {
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionApproval, Event: event, AppID: h.AppID, AgentID: h.Agent, UserID: h.UserID,
		Counterparty: audit.Counterparty{Kind: string(h.CounterpartyKind), InstanceID: h.Counterparty, UserID: h.CounterpartyUserID},
		SessionKey:   h.SessionKey, ExchangeID: h.ExchangeID, ConversationID: h.ConversationID, ExchangeType: string(h.Type),
		Round: h.Round, MaxRounds: h.MaxRounds, Classification: h.Classification, PolicyRevision: h.PolicyRevision,
		Code: h.Code, DispatchID: h.DispatchID, ApprovalID: h.ApprovalID,
	}
	if agent := k.directory.Local(h.Agent); agent != nil {
		r.TenantID = agent.TenantID
	}
	return r
}

// decisionDetails is a decision as records write it, with the signature, so that
// the record alone can be checked.
func decisionDetails(by *api.ApprovalDecision) map[string]any {
	details := map[string]any{"by": by.By, "decision": by.Decision}
	for name, value := range map[string]string{"note": by.Note, "fingerprint": by.Fingerprint, "signature": by.Signature} {
		if value != "" {
			details[name] = value
		}
	}
	if by.By != "expiry" {
		details["uid"] = by.UID
	}
	return details
}

func resolveResult(h *held, seq uint64) api.ApprovalResolveResult {
	return api.ApprovalResolveResult{State: h.State, DispatchID: h.DispatchID, Needed: h.Needed, Given: h.Given, AuditSeq: seq}
}
