package approval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Rules is the part of a configuration that concerns requests.
type Rules struct {
	// Signers, if set, are the people who may sign decisions; then each decision must be signed.
	Signers Signers
	// KeepContent keeps the shown text after the decision.
	KeepContent bool
	// Judge is the operator's model, nil if none is asked.
	Judge *Judge
	// Subject finds the subject of a request.
	Subject func(*Request) (Subject, error)
}

// Decider takes decisions under one configuration.
type Decider struct {
	*Requests
	Rules
}

// Under returns a decider for a configuration.
func (q *Requests) Under(r Rules) *Decider { return &Decider{Requests: q, Rules: r} }

// Decision is one person's decision about one request, in progress.
type Decision struct {
	*api.ApprovalResolveParams
	Request *Request
	// By is the person who decides, in the stored form.
	By  api.ApprovalDecision
	Now time.Time
	// Change is the change that the decision will commit, records first.
	Change *store.Change
	// Grant is the id of the grant that the decision made, if it approved the exchange.
	Grant string
	// Outcome is the new outcome of the request's exchange, "" if it does not change.
	Outcome string
	// answers names the request that the decision answers, see [Decision.Say].
	answers string
	// Answer is the result of the subject's [Unanswered], nil if there was none.
	Answer any

	// proof has the members of a record that says by which answer a model decides, nil if a person
	// does.
	proof map[string]any

	decider *Decider
	subject Subject
	was     string // the request's state before
	seq     uint64
}

func (c *Decider) decision(r *Request, s Subject, p *api.ApprovalResolveParams, change *store.Change) *Decision {
	d := &Decision{ApprovalResolveParams: p, Request: r, Now: c.o.Now(), Change: change, decider: c, subject: s, was: r.State}
	change.OnDurable(func(receipt store.Receipt) { d.seq = receipt.Seq })
	return d
}

// Show returns a request as a person sees it.
func (c *Decider) Show(ctx context.Context, id string) (*Request, error) {
	r, err := c.Get(ctx, id)
	if err == nil {
		r.SignatureRequired = c.Signers != nil
	}
	return r, err
}

// Unanswered is the error of a release that needs an answer from somebody else first.
// [Decider.Resolve] calls it with no lock held, and then takes the decision again with its result.
type Unanswered func(context.Context) (answer any, err error)

func (Unanswered) Error() string { return "others have to be asked before this is released" }

// Resolve takes a person's decision about a request, at most once.
func (c *Decider) Resolve(ctx context.Context, peer api.Peer, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	return answered(ctx, func(answer any) (api.ApprovalResolveResult, error) { return c.resolve(ctx, peer, p, answer) })
}

// resolve takes a decision, with the answer that was needed before, if there is one.
func (c *Decider) resolve(ctx context.Context, peer api.Peer, p *api.ApprovalResolveParams, answer any) (api.ApprovalResolveResult, error) {
	r, s, unlock, err := c.load(ctx, p.ApprovalID)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	defer unlock()
	d := c.decision(r, s, p, &store.Change{Last: true})
	d.Answer = answer
	if r.State != api.ApprovalPending {
		result, err := c.takeBack(ctx, d, peer)
		if p.Signature != "" && c.Signers != nil && err != nil && api.AsError(err).Code == api.Conflict {
			// A signature counts once: a second use is on record.
			if err := c.notTaken(peer, p.Decision, api.AsError(err).Message, c.record(s, "")); err != nil {
				return result, err
			}
		}
		return result, err
	}
	if err := c.mayDecide(d, peer); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	if err := s.Takes(p.Decision); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	switch p.Decision {
	case api.DecideApprove:
		err = c.approve(ctx, d)
	case api.DecideTakeover:
		err = c.takeOver(ctx, d)
	case api.DecideResolve:
		err = c.end(ctx, d, api.ApprovalResolved)
	case api.DecideChanges:
		err = c.end(ctx, d, api.ApprovalRequestChanges)
	default:
		err = c.end(ctx, d, api.ApprovalDenied)
	}
	return d.result(err)
}

func (d *Decision) result(err error) (api.ApprovalResolveResult, error) {
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	r := d.Request
	return api.ApprovalResolveResult{State: r.State, DispatchID: r.DispatchID, Needed: r.Needed, Given: r.Given, AuditSeq: d.seq, GrantID: d.Grant}, nil
}

// takeBack lets a denial revoke an approval or a takeover, as long as nobody has fetched or carried
// out the released subject.
func (c *Decider) takeBack(ctx context.Context, d *Decision, peer api.Peer) (api.ApprovalResolveResult, error) {
	if s, spendable := d.subject.(Spendable); spendable && d.Decision == api.DecideDeny && d.was == api.ApprovalApproved {
		unspent, err := s.Unspent(ctx)
		if err == nil && unspent {
			if err = c.mayDecide(d, peer); err == nil {
				err = c.end(ctx, d, api.ApprovalRevoked)
			}
		}
		if err != nil || unspent {
			return d.result(err)
		}
	}
	s, revocable := d.subject.(Revocable)
	if d.Decision != api.DecideDeny || !revocable || d.was != api.ApprovalApproved && d.was != api.ApprovalTakenOver {
		return api.ApprovalResolveResult{}, decidedAlready(d.Request)
	}
	ready, err := c.ready(ctx, d)
	if err != nil {
		return d.result(err)
	}
	return d.result(s.TakeBack(ready.Key, func() error {
		row, err := c.ready(ctx, d)
		if err != nil {
			return err
		}
		if err := c.mayDecide(d, peer); err != nil {
			return err
		}
		row.From, row.State, row.Data = row.State, store.ReleaseAbandoned, nil
		d.Change.Add(&row)
		if err := d.Conclude(api.ApprovalRevoked, nil); err != nil {
			return err
		}
		_, err = c.o.Commit(d.Change)
		return err
	}))
}

// ready returns the release of a decided request, as long as somebody can still fetch it.
func (c *Decider) ready(ctx context.Context, d *Decision) (store.Release, error) {
	row, err := c.o.Store.Release(ctx, d.ApprovalID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (row.State != store.ReleaseReady || !d.Now.Before(row.ExpiresAt)) {
		err = decidedAlready(d.Request)
	}
	return row, err
}

// take returns a pending request, and takes the lock of its subject.
func (c *Decider) take(ctx context.Context, id string) (r *Request, s Subject, unlock func(), err error) {
	r, s, unlock, err = c.load(ctx, id)
	if err == nil && r.State != api.ApprovalPending {
		unlock()
		return nil, nil, nil, decidedAlready(r)
	}
	return r, s, unlock, err
}

// load returns a request and takes the lock of its subject. If the request's time is over, it
// expires first.
func (c *Decider) load(ctx context.Context, id string) (r *Request, s Subject, unlock func(), err error) {
	if r, err = c.Get(ctx, id); err != nil {
		return nil, nil, nil, err
	}
	if s, err = c.Subject(r); err != nil {
		return nil, nil, nil, err
	}
	unlock = s.Lock()
	if r, err = c.Get(ctx, id); err == nil {
		s, err = c.Subject(r)
	}
	if err == nil && r.State == api.ApprovalPending && r.OverAt(c.o.Now()) {
		err = c.Expire(ctx, r)
	}
	if err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return r, s, unlock, nil
}

// OverAt reports whether a request has expired.
func (r *Request) OverAt(now time.Time) bool { return now.UnixMilli() >= r.ExpiresAt }

// decidedAlready tells a late caller who decided first.
func decidedAlready(r *Request) error {
	by := r.Decision
	message := fmt.Sprintf("approval %s is %s already, by %s at %s", r.ApprovalID, r.State, by.By, time.UnixMilli(by.At).UTC().Format(time.RFC3339))
	return api.Obstacle{State: r.State, By: by.By, At: by.At}.Conflict(api.AlreadyDecided, message)
}

// mayDecide finds out who decides. The decision must name the digest that was shown. A missing or
// invalid signature is on record.
func (c *Decider) mayDecide(d *Decision, peer api.Peer) error {
	if d.Digest != "" && d.Digest != d.Request.Digest && !mutant.Off("approval-digest") {
		return stale(d.Request, "what waits is not what you saw: look again")
	}
	var err error
	d.By, err = c.Who(peer, d.Decision, d.Note, d.Signature, d.text(), c.record(d.subject, ""))
	d.By.Exchange = d.Exchange
	return err
}

// text returns the signed text of the decision, except for its note.
func (d *Decision) text() string {
	r := d.Request
	switch {
	case d.Content != "":
		return api.SignedContent(api.SignedText(d.ApprovalID, d.Decision, r.Digest), r.Salt, d.Content)
	case d.Exchange != nil:
		return api.SignedApproval(&r.Approval, d.Exchange)
	}
	return api.SignedText(d.ApprovalID, d.Decision, r.Digest)
}

// Who returns the person who decides: the signer, or if no signatures are required, the user that
// the system reports. If they are required, a decision without one has no effect. The attempt goes
// on record, in the given record about its subject. The text is that of the decision alone: its
// note is signed with it.
func (c *Decider) Who(peer api.Peer, what, note, signature, text string, r *audit.Record) (api.ApprovalDecision, error) {
	uid, _, _ := peer.Credentials()
	now := c.o.Now()
	by := api.ApprovalDecision{Decision: what, By: fmt.Sprintf("uid:%d", uid), UID: uid, Note: note, At: now.UnixMilli(), Asking: caller.AskingOf(peer)}
	if c.Signers == nil || mutant.Off("signature") {
		return by, nil
	}
	reason := what + " must be signed here, with a key of the allowed signers"
	switch {
	case signature == "":
	case text == "":
		reason = "the signature is not accepted: operator.challenge gives the nonce that " + what + " is signed with, for one call of the same connection"
	default:
		principal, fingerprint, err := c.Signers.Verify([]byte(signature), []byte(api.SignedNote(text, note)), now)
		if err == nil {
			by.By, by.Fingerprint, by.Signature = principal, fingerprint, signature
			return by, nil
		}
		reason = "the signature is not accepted: " + err.Error()
	}
	if err := c.notTaken(peer, what, reason, r); err != nil {
		return by, err
	}
	return by, api.Errorf(api.Forbidden, "%s", reason)
}

// notTaken records a decision without effect, in the given record about its subject.
func (c *Decider) notTaken(peer api.Peer, what, reason string, r *audit.Record) error {
	r.ActionType, r.Event, r.PolicyResult, r.PolicyReason = audit.ActionSecurity, "decision_refused", string(ocip.Deny), reason
	r.Details = caller.Details(peer)
	r.Details["decision"] = what
	_, err := c.o.Commit(&store.Change{Records: []*audit.Record{r}})
	return err
}

func stale(r *Request, message string) error {
	return api.Obstacle{Changed: append([]api.ApprovalChange{}, r.Changed...), Digest: r.Digest}.Conflict(api.ApprovalStale, message)
}

// approve releases the subject, if it is unchanged since it was shown and enough people have
// approved it.
func (c *Decider) approve(ctx context.Context, d *Decision) error {
	if err := c.lookAgain(ctx, d); err != nil {
		return err
	}
	r := d.Request
	if d.Exchange != nil {
		if r.Exchange == nil {
			return api.Obstacle{Blocked: r.NoExchange}.Conflict(api.ApprovalBlocked, "the exchange cannot be approved: "+r.NoExchange+"; approve the message alone")
		}
		if !d.Exchange.Within(r.Exchange) {
			return api.Obstacle{}.Conflict(api.ApprovalBlocked, "the bounds go beyond those that are shown: look again")
		}
	}
	if r.Blocked != "" {
		return api.Obstacle{Blocked: r.Blocked}.Conflict(api.ApprovalBlocked,
			"this "+r.Kind+" cannot be approved: "+r.Blocked+"; "+d.subject.Shown().Instead)
	}
	if only, ok := d.subject.(Exclusive); ok {
		if err := only.MayApprove(ctx, &d.By); err != nil {
			return err
		}
	}
	recount(&r.Approval, c.Signers)
	if others(r.Approvals, &d.By) < len(r.Approvals) {
		return api.Obstacle{}.Conflict(api.ApprovedTwice, fmt.Sprintf("%s has approved this already; it needs %d people", d.By.By, r.Needed))
	}
	r.Approvals = append(r.Approvals, d.By)
	if r.Given = len(r.Approvals); r.Given < r.Needed {
		return c.keepWaiting(d, "approved_in_part")
	}
	return d.subject.Release(ctx, d)
}

// takeOver lets a person act in place of the agent, once the other needed people have approved.
func (c *Decider) takeOver(ctx context.Context, d *Decision) error {
	if err := c.lookAgain(ctx, d); err != nil {
		return err
	}
	r := d.Request
	recount(&r.Approval, c.Signers)
	if others := others(r.Approvals, &d.By); others+1 < r.Needed {
		return api.Obstacle{}.Conflict(api.ApprovalBlocked, fmt.Sprintf("this %s needs %d people, whoever it leaves as: let %d approve first, then take it over", r.Kind, r.Needed, r.Needed-1-others))
	}
	if d.Content != "" && r.Needed > 1 {
		return api.Obstacle{}.Conflict(api.ApprovalBlocked, fmt.Sprintf("this %s needs %d people, and the others have not seen these words: take it over with the words that are shown, or deny it", r.Kind, r.Needed))
	}
	return d.subject.Release(ctx, d)
}

// OfExchange returns the bounds of the exchange that all approvers agree on, nil if they do not
// agree.
func (d *Decision) OfExchange() *api.Bounds {
	for i := range d.Request.Approvals {
		if !d.Request.Approvals[i].Exchange.Equal(d.Exchange) {
			return nil
		}
	}
	return d.Exchange
}

// lookAgain weighs the subject again. If an approval would no longer have the shown effect, nothing
// is decided: the change is stored, and a person must look again.
func (c *Decider) lookAgain(ctx context.Context, d *Decision) error {
	r, was, saw := d.Request, *d.Request, d.subject.Shown()
	if err := d.subject.Preview(ctx, d.Now); err != nil {
		return err
	}
	r.Needed = max(r.Needed, was.Needed)
	sees := d.subject.Shown()
	if r.name(sees); r.Digest == was.Digest || mutant.Off("approval-changed") {
		return nil
	}
	return d.askAnew(changes(&was, r, saw, sees), "something changed since this was held")
}

// AskAnew ends a release because an interceptor objected. The interceptor's change of the request
// is in force. Nobody has approved that, so a person must look again.
func (d *Decision) AskAnew(change func() error, objection string) error {
	r, was, saw := d.Request, *d.Request, d.subject.Shown()
	if err := change(); err != nil {
		return err
	}
	r.Needed = max(r.Needed, was.Needed)
	return d.askAnew(append(changes(&was, r, saw, d.subject.Shown()), api.ApprovalChange{Field: changedInterceptor, Now: objection}), objection)
}

// askAnew stores the changes of a request, and voids its approvals.
func (d *Decision) askAnew(changed []api.ApprovalChange, message string) error {
	r, sees := d.Request, d.subject.Shown()
	r.Changed, r.Approvals, r.Given, r.Opinion = changed, nil, 0, nil
	r.Anew++
	r.name(sees)
	if err := d.decider.keepWaiting(d, "asked_anew"); err != nil {
		return err
	}
	if r.Blocked != "" {
		return stale(r, message+", and "+sees.Refused+": "+r.Blocked)
	}
	return stale(r, message+": look again")
}

// keepWaiting records an event of a request that stays pending.
func (c *Decider) keepWaiting(d *Decision, event string) error {
	r := d.Request
	if err := r.enter(d.Change, d.was, api.ApprovalPending); err != nil {
		return err
	}
	record := c.record(d.subject, event)
	record.Details = Details(&d.By)
	maps.Copy(record.Details, d.proof)
	record.Details["digest"], record.Details["given"], record.Details["needed"] = r.Digest, r.Given, r.Needed
	if d.By.Signature != "" {
		record.Details["signedText"] = api.SignedNote(d.text(), d.Note)
	}
	if len(r.Changed) > 0 {
		var err error
		if record.Details["changed"], err = c.recorded(record.TenantID, r.Changed); err != nil {
			return err
		}
	}
	d.Change.Records = append(d.Change.Records, record)
	if _, err := c.o.Commit(d.Change); err != nil {
		return err
	}
	c.watchers.tell(r.ApprovalID)
	return nil
}

// recorded returns changes in the form of records. A keyed digest stands for each text except the
// daemon's own: no record holds a message's text, and names of people are redacted in the members
// of records that hold them.
func (q *Requests) recorded(tenant string, changed []api.ApprovalChange) ([]api.ApprovalChange, error) {
	list := slices.Clone(changed)
	for i := range list {
		if f := list[i].Field; f == changedRevision || f == changedVerdict || f == changedInterceptor {
			continue
		}
		for _, text := range []*string{&list[i].Was, &list[i].Now} {
			if *text == "" {
				continue
			}
			digest, err := q.o.Keyed(tenant, *text)
			if err != nil {
				return nil, err
			}
			*text = digest
		}
	}
	return list, nil
}

// end ends a request without a release.
func (c *Decider) end(ctx context.Context, d *Decision, state string) error {
	if err := d.subject.End(ctx, d, state); err != nil {
		return err
	}
	if err := d.Conclude(state, nil); err != nil {
		return err
	}
	_, err := c.o.Commit(d.Change)
	return err
}

// EndWith enters into a change that a decision about something else resolves a request: the person
// has spoken.
func (c *Decider) EndWith(r *Request, by *api.ApprovalDecision, change *store.Change) error {
	return c.EndWithState(r, by, api.ApprovalResolved, change)
}

// EndWithState enters into a change that a request ends in a state. Its subject is not asked, since
// it makes the change itself.
func (c *Decider) EndWithState(r *Request, by *api.ApprovalDecision, state string, change *store.Change) error {
	s, err := c.Subject(r)
	if err != nil {
		return err
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: r.ApprovalID, Decision: by.Decision, Note: by.Note}, change)
	d.By = *by
	return d.Conclude(state, nil)
}

// EndBy ends a request without a release, by the decision of somebody who need not be a person:
// refusing a request does not take one.
func (c *Decider) EndBy(ctx context.Context, id, decision, by, note string) (api.ApprovalResolveResult, error) {
	r, s, unlock, err := c.take(ctx, id)
	if err != nil {
		return api.ApprovalResolveResult{}, err
	}
	defer unlock()
	if err := s.Takes(decision); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: id, Decision: decision, Note: note}, &store.Change{Drains: true})
	d.By = api.ApprovalDecision{Decision: decision, By: by, Note: note, At: d.Now.UnixMilli()}
	state := api.ApprovalDenied
	if decision == api.DecideChanges {
		state = api.ApprovalRequestChanges
	}
	if err := c.end(ctx, d, state); err != nil {
		return api.ApprovalResolveResult{}, err
	}
	return api.ApprovalResolveResult{State: r.State, Needed: r.Needed, Given: r.Given, AuditSeq: d.seq}, nil
}

// Withdraw ends a request whose app no longer wants it. Only a person may settle an exchange that
// reached its limits, so a request about those stays.
func (c *Decider) Withdraw(ctx context.Context, app string, p *api.WithdrawParams) (api.OK, error) {
	r, s, unlock, err := c.load(ctx, p.ApprovalID)
	if err != nil {
		return api.OK{}, err
	}
	defer unlock()
	switch {
	case r.AppID != app || r.Kind != api.ApprovalOfMessage && (r.Kind != api.ApprovalOfPermission || r.TaskID != ""):
		// Another app learns no state.
		return api.OK{}, NotFound(p.ApprovalID)
	case r.State != api.ApprovalPending:
		return api.OK{}, decidedAlready(r)
	case r.EscalatedExchange != "" || r.Escalation != nil || r.Chain != nil:
		return api.OK{}, api.Errorf(api.Forbidden, "what an exchange has come to is a person's to settle; this message cannot be taken back")
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: p.ApprovalID, Decision: api.DecideRevoke, Note: p.Note}, &store.Change{Drains: true})
	d.By = api.ApprovalDecision{Decision: api.DecideRevoke, By: app, Note: p.Note, At: d.Now.UnixMilli()}
	return api.OK{OK: true}, c.end(ctx, d, api.ApprovalRevoked)
}

// Conclude enters a decision into its change: the state, the record, and the news for the app that
// asked, with the data of the release. Until the change is durable, nothing outside it knows of the
// decision.
func (d *Decision) Conclude(state string, data jsontext.Value) error {
	r, c := d.Request, d.decider
	r.Decision, r.DecidedAt, r.State = &d.By, d.By.At, state
	decided := *r
	if !c.KeepContent {
		decided.forget()
	}
	if err := decided.enter(d.Change, d.was, state); err != nil {
		return err
	}
	record := c.record(d.subject, state)
	record.Details = Details(&d.By)
	record.Details["digest"], record.Outcome = r.Digest, d.Outcome
	if d.proof != nil {
		maps.Copy(record.Details, d.proof)
		record.PolicyApplied, record.PolicyResult = byJudge, string(ocip.Allow)
	}
	if d.By.Fingerprint != "" || strings.HasPrefix(d.By.By, "uid:") {
		record.Details["kind"], record.Details["waitedMs"] = r.Kind, max(0, d.By.At-r.AskedAt)
		if r.PolicyApplied != "" {
			record.Details["heldBy"] = r.PolicyApplied
		}
	}
	if d.Grant != "" {
		record.Details["grantId"] = d.Grant
	}
	if d.answers != "" {
		var err error
		record.Details["answersUnder"] = r.PolicyRevision
		if record.Details["answers"], err = c.o.Answers(record.TenantID, d.answers); err != nil {
			return err
		}
	}
	if d.By.Signature != "" {
		// The signature can be verified from the record alone, or with the person's own text.
		record.Details["signedText"] = api.SignedNote(d.text(), d.Note)
	}
	if len(r.Approvals) > 1 {
		record.Details["approvals"] = r.Approvals
	}
	// The record of the decision comes before those of its effects.
	d.Change.Records = slices.Insert(d.Change.Records, 0, record)
	d.Change.OnDurable(func(store.Receipt) {
		c.Free(r)
		c.watchers.tell(r.ApprovalID)
		if c.o.Notify != nil {
			c.o.Notify.Decided(r.ApprovalID)
		}
	})
	return d.subject.Tell(d.Change, api.ApprovalOutcome{
		ApprovalID: r.ApprovalID, DispatchID: r.DispatchID, Resolution: state, Note: d.By.Note, Data: data, Timestamp: d.By.At,
	})
}

// forget drops the text of a decided request, since nobody decides again. The request keeps its
// sender and receiver, its amount, its findings, its reason and its digest, which does not reveal
// the text without the salt.
func (r *Request) forget() {
	r.Forgotten = true
	r.Content, r.Summary, r.Salt, r.Sending, r.Own, r.Extracts = "", "", "", nil, nil, nil
	if r.Opinion != nil {
		// It can quote the text.
		told := *r.Opinion
		told.Reason, r.Opinion = "", &told
	}
	r.Changed = slices.DeleteFunc(slices.Clone(r.Changed), func(c api.ApprovalChange) bool { return c.Field == changedSending })
}
