package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchange"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/hints"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// outgoing is one message on its way out.
type outgoing struct {
	speaker
	to ocip.Counterparty
	// local is the receiving agent where it lives in this daemon.
	local *Agent

	key, channel, target string
	account              string
	content              gate.Text
	metadata             api.Object
	hints                hints.Hints
	dispatchID           string
	// recipient is whom the message reaches, and to who that is to the rules: an
	// agent that was seen there, where the directory has nobody.
	recipient directory.Recipient
	known     known
	changedBy []string
	// unlabelled messages are of a runtime that cannot change their text.
	unlabelled bool
	// record is the one that lets it go, and sealed the message for a runtime that delivers
	// by itself, once that is durable.
	record *audit.Record
	sealed gate.Sealed
	// waited is set for a message that was let through before and is weighed again, and
	// person is what a person had to do with that.
	waited bool
	// grant is the id of the grant that lets the message go, and under that grant's rule where
	// the message has waited.
	grant  string
	under  []ocip.Grant
	person ocip.Person
	// task is what the message is about.
	task aboutTask
	// asked is what the app asked for, before any interceptor, and requested
	// its digest once somebody wanted it.
	asked     *api.DispatchParams
	requested string
	// passages are the strings of the metadata, media is what goes along besides the
	// text, files what was found in it, and extracts the parts of it that people are shown.
	passages []ocip.Passage
	media    []api.MediaItem
	files    ocip.Weighed
	extracts []ocip.Extract
	// askedAt is when a message that is released was held.
	askedAt time.Time
	// ungranted messages are weighed as if nobody had approved anything beforehand.
	ungranted bool
	// approvalID names the hold that the message is released from. Conclude
	// enters the decision of the person who releases it into the change, once
	// it is known whether a receiver in this daemon refuses the message.
	approvalID string
	conclude   func(refused *ocip.Verdict) error
	// deliver, where set, has the message written to its receiver, once it is
	// durable.
	deliver api.AfterReply
}

// answered enters what the sender is answered into the change that decides.
func (m *outgoing) answered(c *store.Change, r *api.DispatchResult) error {
	if m.keep == nil {
		return nil
	}
	return m.keep(c, r)
}

// about is the context of the hook events about the message.
func (m *outgoing) about() api.HookContext {
	return api.HookContext{AgentID: m.sender.ID, SessionKey: m.key, ChannelID: directory.ChannelOf(m.key), AccountID: m.account}
}

// Dispatch takes a message from an app to its receiver: who speaks to whom,
// the interceptors, the decision, its record, and only then the delivery.
//
// The receiver's copy is written after the answer: the sender waits for that, and
// the receiver for nothing.
func (c *Client) Dispatch(ctx context.Context, p *api.DispatchParams) (api.DispatchResult, api.AfterReply, error) {
	named, _ := api.Text(p.Metadata["agentId"])
	m, result, err := c.dispatch(ctx, p, named, false)
	if err != nil {
		return api.DispatchResult{}, nil, err
	}
	return result, m.deliver, nil
}

// dispatch takes a message as far as its delivery, or where its runtime carries
// it to that point. It is sent by the named agent, or the app's only one.
func (c *Client) dispatch(ctx context.Context, p *api.DispatchParams, agent string, carried bool) (*outgoing, api.DispatchResult, error) {
	k, err := c.rules()
	if err != nil {
		return nil, api.DispatchResult{}, err
	}
	s := speaker{app: c.App(), appID: c.App().ID(), carried: carried}
	if s.sender, err = k.sender(s.appID, agent); err != nil {
		return nil, api.DispatchResult{}, s.forbidden(k.apps, err, p)
	}
	if carried {
		s.there, s.redeems = func() bool { return api.There(ctx) }, s.app.Redeems()
	}
	return k.say(ctx, s, p)
}

// prepare takes a message whose sender and recipient are known as far as its decision:
// wall, pauses, the caller's hints, the address, the interceptors, and the files that
// go along. What stops it on the way is on record.
func (k *ruleset) prepare(ctx context.Context, m *outgoing) (err error) {
	if _, walled := ocip.Wall(m.sender.Identity, m.to); walled {
		// The wall comes before anything else: no wish is read, and nobody sees the
		// text.
		m.hints = hints.Hints{MessageType: ocip.AgentGenerated}
		return nil
	}
	if v := k.paused(m); v != nil {
		return k.refuseEarly(m, v)
	}
	if m.hints, err = hints.Parse(m.metadata["exchange"]); err != nil {
		return err
	}
	if denied, err := k.bindTask(ctx, m); err != nil || denied != nil {
		if denied != nil {
			err = k.refuseEarly(m, denied)
		}
		return err
	}
	if err := k.bind(m, "the message"); err != nil {
		return err
	}
	if !m.check {
		if err := k.passInterceptors(ctx, m); err != nil {
			return err
		}
	}
	return k.look(ctx, m)
}

// paused is the denial of a message that may not be decided now. What the daemon delivers
// to an agent of its own waits in that agent's queue while the agent is paused; what a
// runtime delivers by itself waits nowhere.
func (k *ruleset) paused(m *outgoing) *ocip.Verdict {
	to := ""
	if m.carried && m.local != nil {
		to = m.local.ID
	}
	reason, paused := k.pauses.Reason(m.channel, m.sender.ID, to)
	if !paused {
		return nil
	}
	return &ocip.Verdict{Result: ocip.Deny, Code: ocip.Paused, Policy: "pause", Reason: reason}
}

// served reports whether the app of the message's channel, if it has one, is there
// for the sender: of two tenants, each has its own.
func (k *ruleset) served(m *outgoing) error {
	if m.local != nil || m.channel == directory.AgentChannel {
		return nil
	}
	return k.reached(m.channel, m.sender, m.carried)
}

// reached reports whether an agent has a channel: by an app, or where it delivers by itself.
func (k *ruleset) reached(channel string, agent *Agent, carried bool) error {
	owner := k.apps.Owner(k.terms, channel)
	if carried && owner == nil && !k.directory.Granted(channel) {
		return nil // the runtime has a channel of its own
	}
	err := k.directory.Served(channel, agent)
	if owner != nil {
		if err = k.directory.Serves(owner.ID(), agent); err != nil {
			err = k.directory.NotServed(channel, agent)
		}
	}
	if err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	return nil
}

// locate finds out whom a message reaches: where the message came from that it
// answers, the session's last one unless it says otherwise, else where its key
// leads, and who the directory has there.
func (k *ruleset) locate(ctx context.Context, m *outgoing) error {
	brought, err := k.state.Origins.Of(ctx, exchange.OriginKey(k.directory, m.sender, m.key))
	if err != nil {
		return err
	}
	return k.reach(ctx, m, k.directory.Answering(m.key, brought, m.metadata))
}

// reach is locate where it is known what was brought.
func (k *ruleset) reach(ctx context.Context, m *outgoing, brought map[string]string) (err error) {
	m.known.generation = k.generation(m.sender.TenantID)
	m.recipient, err = k.directory.Recipient(m.key, m.account, brought, m.sender)
	switch {
	case errors.Is(err, directory.ErrSpelling), errors.Is(err, directory.ErrAddress):
		return api.Invalid([]api.FieldError{{Path: "sessionKey", Message: err.Error()}})
	case err != nil:
		return err
	}
	m.channel, m.target, m.account = m.recipient.Channel, m.recipient.Target, m.recipient.Account
	m.to, m.known.learned, err = k.state.Readers(ctx, k.directory, m.key, m.sender, &m.recipient)
	return err
}

// unconfirmed reports whether the counterparty is known as an agent by what it said of
// itself alone.
func (m *outgoing) unconfirmed() bool {
	return m.to.Kind == ocip.KindAgent && m.recipient.Counterparty.Kind == ocip.KindUnknown
}

// asSender is the sender as the rules see it. Where strangers read along with an
// agent, no more may be said than strangers may be told.
func (m *outgoing) asSender() ocip.Agent {
	a := m.sender.Agent
	if m.recipient.Group && m.recipient.Strangers && a.MaxUnknown != nil {
		a.MaxShared = min(a.MaxShared, *a.MaxUnknown)
	}
	return a
}

// passInterceptors lets the interceptors change the message. One that stops it
// is on record, like any other denial.
func (k *ruleset) passInterceptors(ctx context.Context, m *outgoing) error {
	if !k.apps.Intercepted(k.terms) {
		return nil
	}
	left, err := k.apps.Intercept(ctx, k.terms, m.message(), m.about(), m.app, k.apps.Owner(k.terms, m.channel))
	if err != nil {
		return err
	}
	before := m.metadata
	m.content, m.metadata, m.changedBy = left.Message.Content, left.Message.Metadata, append(m.changedBy, left.ChangedBy...)
	if left.Blocked == nil && len(left.ChangedBy) > 0 {
		if left.Blocked = k.changedHints(m); left.Blocked == nil {
			left.Blocked = k.sameTask(m, before)
		}
	}
	if left.Blocked == nil {
		return k.bind(m, "an interceptor")
	}
	return k.refuseEarly(m, left.Blocked)
}

// bind writes the address that the message is decided about into its metadata,
// where channels' apps read it. One that says otherwise is refused: it would reach
// somebody else.
func (k *ruleset) bind(m *outgoing, by string) error {
	bound, mismatch := m.recipient.Bind(m.metadata)
	if mismatch == "" {
		m.metadata = bound
		return nil
	}
	return k.refuseEarly(m, &ocip.Verdict{
		Result: ocip.Deny, Code: ocip.RecipientMismatch, Policy: "recipient",
		Reason: fmt.Sprintf("%s names another recipient in metadata.%s than session %s reaches%s", by, mismatch, m.key, k.instead(m, mismatch)),
	})
}

// instead is what to do about a member that names another recipient. Where a session
// of another tenant's agent leads is not told.
func (k *ruleset) instead(m *outgoing, member string) string {
	const omit = "; leave that member out"
	has, err := k.state.Sessions.Agent(context.Background(), k.directory, m.key)
	reached := m.recipient.Says(member)
	if err != nil || reached == "" || has != nil && has.TenantID != m.sender.TenantID {
		return omit
	}
	return fmt.Sprintf(", which is %q%s, or give that", reached, omit)
}

// changedHints takes up what interceptors made of the caller's wishes. They may
// tighten them and nothing else.
func (k *ruleset) changedHints(m *outgoing) *ocip.Verdict {
	by := m.changedBy[len(m.changedBy)-1]
	left, err := hints.Parse(m.metadata["exchange"])
	wrong := "left metadata.exchange in a form that cannot be read"
	if err == nil {
		wrong = m.hints.After(left, k.cfg.DefaultLevel)
	}
	if wrong == "" {
		// What is held is read once more when it is released.
		metadata := make(api.Object, len(m.metadata)+1)
		maps.Copy(metadata, m.metadata)
		metadata["exchange"] = m.hints.Object()
		m.metadata = metadata
		return nil
	}
	return &ocip.Verdict{Result: ocip.Deny, Code: ocip.InterceptorBlocked, Policy: "interceptor:" + by, Reason: "interceptor " + by + " " + wrong + ", which no interceptor may"}
}

// refuseEarly records a denial of a message that nobody came to weigh.
func (k *ruleset) refuseEarly(m *outgoing, v *ocip.Verdict) error {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return err
	}
	r.Classification = ""
	if _, err := k.record(r); err != nil {
		return err
	}
	failure := refused(v, r)
	if v.Code == ocip.InterceptorTimeout {
		failure.Code = api.Timeout
	}
	return failure
}

// send decides a message and records the decision. What may go is released, what
// a person must decide about is held.
func (k *ruleset) send(m *outgoing) (api.DispatchResult, error) {
	// From here on the message is decided, whether or not its sender stays.
	unlock := k.state.Lock(m.sender.InstanceID, m.other())
	defer unlock()
	defer k.pauses.Deciding()()
	if _, walled := ocip.Wall(m.sender.Identity, m.to); !walled {
		// Interceptors may have been asked meanwhile.
		if v := k.paused(m); v != nil {
			return api.DispatchResult{}, k.refuseEarly(m, v)
		}
	}
	before := *m
	result, err := k.sendLocked(context.Background(), m)
	if errors.Is(err, store.ErrGrantOver) {
		// A person took the grant back while the message was on its way.
		*m = before
		m.ungranted = true
		result, err = k.sendLocked(context.Background(), m)
	}
	return result, err
}

func (k *ruleset) sendLocked(ctx context.Context, m *outgoing) (api.DispatchResult, error) {
	if m.there != nil && !m.there() {
		return api.DispatchResult{}, api.ErrGone
	}
	now, change := k.now(), new(store.Change)
	if result, already, err := k.heldAlready(ctx, m); already || err != nil {
		return result, err
	}
	st, err := k.standing(ctx, m, now)
	if err != nil {
		return api.DispatchResult{}, k.exchangeRefused(m, err)
	}
	giveBack, err := k.count(ctx, m, st, now)
	if err != nil {
		return api.DispatchResult{}, err
	}
	v := k.weigh(ctx, m, st, ocip.Nobody, now)
	switch v.Result {
	case ocip.Allow:
		said := m.content // without the disclosure
		result, err := k.release(ctx, m, v, st, change, now)
		if err != nil {
			giveBack()
		} else {
			k.state.Words.Said(m.sender.InstanceID, m.key, said.Inspect())
		}
		return result, err
	case ocip.RequireApproval:
		giveBack()
		return k.hold(ctx, m, v, st, change, now)
	case ocip.Deny:
	}
	giveBack()
	return api.DispatchResult{}, k.refuse(m, v, change)
}

// exchangeRefused records a message that cannot be of the exchange that it names, and
// returns the error that its sender is told. Interceptors have seen it.
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

// other names the other end of the message to whoever locks the two.
func (m *outgoing) other() string { return exchange.OtherEnd(m.to.InstanceID, m.key) }

// reader is the person who reads the message, empty where many do.
func (m *outgoing) reader() string {
	if m.recipient.Group && m.to.Kind != ocip.KindAgent {
		return ""
	}
	return m.to.UserID
}

// standing is how things are between two ends when a message is weighed.
type standing struct {
	exchange ocip.Exchange
	// escalated is the exchange whose rounds are used up and that no person has
	// settled, or "".
	escalated string
	cause     ocip.Chain
	owed      ocip.Owed
	// first is set where the session is new, spent and spentHour count the
	// messages before this one, and scopes are what this one counts for.
	first            bool
	spent, spentHour int
	scopes           []string
}

// count counts a message for the budgets that bound it, if any does. What is not
// let through is to be given back.
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
		st.spentHour = take(exchange.AgentScope(m.sender.InstanceID), time.Hour)
	}
	kind := m.to.Kind
	if m.unconfirmed() {
		kind = ocip.KindUnknown
	}
	if p := k.cfg.Rules.Towards(kind); p.MaxMessages > 0 {
		st.spent = take(exchange.SessionScope(m.sender.InstanceID, m.recipient.Place()), p.Window)
	}
	if err != nil {
		giveBack()
	}
	return giveBack, err
}

// standing looks up how things are. It is called under the lock of the two ends.
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

// ownTurn reports whether the sender's runtime says that no message of another agent led to
// this one, and is believed.
func (m *outgoing) ownTurn() bool { return m.carried && m.hints.OwnTurn && m.sender.OwnTurns }

// firstIn reports whether a message is the first of the sender's tenant in its session.
func (k *ruleset) firstIn(ctx context.Context, m *outgoing) (bool, error) {
	begun, err := k.state.Sessions.Begun(ctx, k.directory, m.key, m.sender)
	return !begun, err
}

// named adds to the passages what the caller chose in the names of session and
// account, where nobody has declared the one and the channel's app has not named
// the other: they arrive with the message. A name without letters is a number of
// its network.
func (m *outgoing) named(list []ocip.Passage) []ocip.Passage {
	name, account := "", m.account
	switch {
	case m.local != nil:
		_, name = directory.Split(m.key)
		_, name, _ = strings.Cut(name, ":")
	case m.recipient.Counterparty.Kind == ocip.KindUnknown:
		_, name = directory.Split(m.key)
	case m.recipient.OwnAccount() != "":
		account = ""
	}
	for _, p := range [...]ocip.Passage{{Member: "sessionKey", Text: name}, {Member: "accountId", Text: account}} {
		if strings.ContainsFunc(p.Text, unicode.IsLetter) {
			p.Prose = strings.ContainsAny(p.Text, " \t")
			list = append(slices.Clip(list), p)
		}
	}
	return list
}

// weigh puts a message before the rules.
func (k *ruleset) weigh(ctx context.Context, m *outgoing, st *standing, person ocip.Person, now time.Time) *ocip.Verdict {
	kind := m.hints.MessageType
	switch person {
	case ocip.Approved:
		kind = ocip.AgentAssisted
	case ocip.TakenOver:
		kind = ocip.Human
	case ocip.Nobody:
	}
	began := k.now()
	o := &ocip.Outgoing{
		Now: now, Sender: m.asSender(), To: m.to, Exchange: st.exchange, MessageType: kind, Declared: max(m.hints.Claimed(k.cfg.DefaultLevel), m.task.level),
		MaxRounds: m.hints.MaxRounds, Summary: m.summary(), Claimed: m.hints.Summary != "", Person: person, MaxAnnotation: k.cfg.MaxAnnotation,
		Escalated: st.escalated, Cause: st.cause, Owed: st.owed, LooksLike: m.recipient.LooksLike, Unconfirmed: m.unconfirmed(), First: st.first, Spent: st.spent, SpentHour: st.spentHour,
		ReplyPolicy: m.hints.ReplyPolicy, AskPerson: m.hints.AskPerson || k.asksAboutGuess(m), Before: k.saidBefore(m), Content: m.content.Inspect(), Passages: m.named(m.passages), Files: m.files, Rendering: m.recipient.Rendering, Rules: k.cfg.Rules, Data: m.hints.Data,
		Approvers: k.cfg.Approvers,
	}
	v := ocip.Decide(ctx, o, k.policy)
	if o.Grants = k.grantsFor(m, st, v); person == ocip.Nobody && len(o.Grants) > 0 {
		v = ocip.Decide(ctx, o, k.policy)
	}
	k.metrics.Decided(k.now().Sub(began))
	if m.known.learned && v.Code == ocip.CrossEnterpriseBlocked {
		// Who that is stands on record: the sender's app has it from nobody.
		v.Reason = "somebody of another tenant has spoken where session " + m.key + " leads, and no policy can allow a message there; " +
			"where that is wrong, list who reads there as a group, or: ocipd contacts forget " + m.key
	}
	return v
}

// saidBefore is what was said in the session before the message. That of a message which
// is weighed again was weighed with it the first time.
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

func (m *outgoing) summary() string {
	if m.hints.Summary != "" {
		return m.hints.Summary
	}
	return ocip.Summarize(m.content.Inspect())
}

// talk stands in for an exchange where the counterparty is no agent: nothing is
// counted and nothing is kept, and all messages of an agent in a session are one
// conversation.
func (k *ruleset) talk(m *outgoing, now time.Time) ocip.Exchange {
	name := "ocip:" + m.sender.InstanceID + "\x00" + m.key
	return ocip.Exchange{
		ConversationID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(),
		Type:           k.typeOf(m), MaxRounds: k.cfg.MaxRounds, ExpiresAt: now.Add(k.cfg.ExpiresAfter),
	}
}

// refuse records a denial and says it to the caller.
func (k *ruleset) refuse(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	now := k.now()
	if v.Code != ocip.CrossEnterpriseBlocked || m.to.InstanceID == m.recipient.Counterparty.InstanceID {
		// An agent that another tenant's app has named is on record, and not shown
		// to the sender's as the other end of an exchange.
		if err := k.ends(change, v, now); err != nil {
			return err
		}
	}
	if err := k.exchanges.Escalate(m.concern(), v, k.exchangeRules, change, now); err != nil {
		return err
	}
	return k.refuseOnly(m, v, change)
}

// ends enters what the refusal of a message means for its exchange, on both sides where
// this daemon keeps both.
func (k *ruleset) ends(change *store.Change, v *ocip.Verdict, now time.Time) error {
	k.state.Refuse(change, v, now)
	if v.Exchange.Outcome == v.Before.Outcome {
		return nil
	}
	return k.exchanges.EndOtherSide(context.Background(), change, &v.Exchange, k.directory, nil)
}

func (m *outgoing) concern() *exchanges.Concern {
	return &exchanges.Concern{Agent: m.sender, Other: m.to, Key: m.key, Summary: ocip.Summarize(m.content.Inspect()), DispatchID: m.dispatchID}
}

// refuseOnly is refuse where the change says already what the denial means for
// the exchange.
func (k *ruleset) refuseOnly(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return err
	}
	// What is told of the decision comes after it.
	change.Records = slices.Insert(change.Records, 0, r)
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return refused(v, r)
}

// refused is what a caller sees of a verdict that is not an allow, and of its record
// no more than the id: its number would count the records of others.
func refused(v *ocip.Verdict, r *audit.Record) *api.Error {
	details := map[string]any{"code": v.Code, "reason": v.Reason, "result": v.Result, "auditId": r.ID}
	if v.Exchange.ID != "" {
		details["exchangeId"], details["conversationId"] = v.Exchange.ID, v.Exchange.ConversationID
	}
	for name, value := range v.Details {
		// What failed inside a policy is for the operator, in the record.
		if name != "cause" {
			details[name] = value
		}
	}
	return &api.Error{Code: api.Forbidden, Message: v.Reason, Details: map[string]any{"ocip": details}}
}

// release stamps an allowed message, commits everything about it at once, and
// lets the commit deliver it.
func (k *ruleset) release(ctx context.Context, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) (api.DispatchResult, error) {
	k.stamp(m, v)
	sent, err := allowedRecord(k, m, v, st)
	if err != nil {
		return api.DispatchResult{}, err
	}
	change.Records, m.record = append(change.Records, sent), sent
	if m.grant = v.Grant; m.grant != "" {
		k.grants.Name(m.sender.InstanceID, v.Grant, sent)
		k.grants.Use(m.sender.InstanceID, v.Grant, now, change)
	}
	for _, scope := range st.scopes {
		change.Add(store.Spent{Scope: scope, At: now, Count: 1})
	}
	if m.to.Kind == ocip.KindAgent {
		k.state.Owed.EnterLocked(change, m.sender.InstanceID, m.to.InstanceID, st.owed, v.Owed)
	}
	var d *outbox.Delivery
	var letter gate.Letter
	switch {
	case m.carried:
		sent.Details["carried"] = true
		if m.local != nil {
			// A report of the message is held against these, see [ruleset.sent].
			sent.Details["envelope"], sent.Details["chain"] = string(v.Annotation), string(v.Chain.Annotation())
			if v.Chain.OwnTurn {
				sent.Details["ownTurn"] = true
			}
		}
		letter, err = k.closed(sent, m.emitted())
	case m.local != nil:
		runID := k.newID()
		d = k.inbound(m.local, runID, m, v, sent.ID)
		err = k.closedIn(sent, d, m.inbound(runID))
	default:
		d = k.outbound(m, v, sent.ID)
		err = k.closedIn(sent, d, m.message())
	}
	if err != nil {
		return api.DispatchResult{}, err
	}
	if m.local != nil {
		runID := ""
		if d != nil {
			runID = d.RunID
		}
		arrived, err := k.arriveLocally(ctx, m, runID, v, change, now)
		if err != nil {
			return api.DispatchResult{}, err
		}
		if !arrived.Allowed() {
			return api.DispatchResult{}, k.refusedByReceiver(m, sent, v, arrived, change)
		}
	}
	if v.Exchange.ID != "" {
		v.Exchange.Track(v.Shared, v.Withheld)
		k.state.EnterLocked(change, v.Exchange)
	}
	whose := m.sender
	if m.local != nil {
		whose = m.local
	} else if routed, ok := k.directory.Routed(m.key); ok {
		// Who writes first does not take the session from whom it is configured for.
		whose = routed
	} else if other := k.directory.Default(); other != nil && other.TenantID != m.sender.TenantID {
		whose = other
	}
	fresh, err := k.enterSession(ctx, m, whose, now, change)
	if err != nil {
		return api.DispatchResult{}, err
	}
	result := api.DispatchResult{DispatchID: m.dispatchID, Queued: true, OCIP: &api.ExchangeRef{
		ExchangeID: v.Exchange.ID, ConversationID: v.Exchange.ConversationID,
		Round: v.Exchange.Round, MaxRounds: v.Exchange.MaxRounds, AuditID: sent.ID,
	}}
	if d != nil {
		d.Enter(change)
	}
	change.OnDurable(func(receipt store.Receipt) {
		if d != nil {
			k.outbox.Open(receipt, d)
		} else {
			// What it was decided by holds: that was just now.
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
		return api.DispatchResult{}, err
	}
	k.state.Entered(change)
	if *fresh {
		k.apps.Observe(k.terms, api.SessionStart, gate.Fact(api.SessionEvent(m.key, whose.ID)), m.about(), nil)
	}
	return result, nil
}

// enterSession enters a message's session into a change. One that another tenant's
// agent has is left as it is: its app would be told of the key that the sender chose.
func (k *ruleset) enterSession(ctx context.Context, m *outgoing, whose *Agent, now time.Time, change *store.Change) (fresh *bool, err error) {
	known, err := k.state.Sessions.Agent(ctx, k.directory, m.key)
	if err != nil {
		return nil, err
	}
	if cmp.Or(known, whose).TenantID != m.sender.TenantID {
		return new(bool), k.state.Sessions.UseOfOthers(ctx, k.directory, m.key, m.sender, m.account, now, change)
	}
	return k.state.Sessions.Use(ctx, k.directory, m.key, whose, m.account, now, change)
}

// observeSending tells who observes what an agent sends. It is the sender's view,
// also where the receiver is an agent of this daemon.
func (k *ruleset) observeSending(m *outgoing, d *outbox.Delivery, receipt store.Receipt, now time.Time, sent *audit.Record) {
	if len(k.apps.Listeners(api.MessageSending)) == 0 {
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
	k.apps.Observe(k.terms, api.MessageSending, seen, about, m.app)
}

// handedTo is the target that the delivered message's digest is taken with: the
// address its channel's app sends to, or the session of whoever delivers by other
// means.
func (m *outgoing) handedTo() string {
	if m.carried || m.local != nil {
		return m.key
	}
	return m.target
}

// stamp puts the envelope and the disclosure on the message. Nothing may
// change it after this.
func (k *ruleset) stamp(m *outgoing, v *ocip.Verdict) {
	metadata, changes := hints.WithoutOwn(m.metadata)
	m.changedBy = append(m.changedBy, changes...)
	metadata["ocip"] = v.Annotation
	metadata["dispatchId"] = api.String(m.dispatchID)
	if v.Chain.ID != "" {
		metadata["ocipChain"] = v.Chain.Annotation()
	}
	if head := k.logHead.Annotation(k.store.Checkpoint(), k.log); head != nil && m.local == nil {
		metadata[exchange.LogHeadName] = head
	}
	delete(metadata, "exchange")
	if v.Exchange.ID != "" {
		metadata["exchange"] = hints.Outcome(v)
	}
	if v.Envelope.MessageType != ocip.Human {
		metadata["aiDisclosure"] = api.String(ocip.DisclosureLabel)
		if !m.inAnnotation() {
			m.content = gate.NewText(ocip.Disclose(m.content.Inspect(), k.cfg.Disclosure))
		}
	}
	m.metadata = metadata
}

// inAnnotation reports whether the label of an agent's message stands in its annotation
// alone: no person is to go without it, in a room neither, and where the daemon delivers, it writes it.
func (m *outgoing) inAnnotation() bool {
	return m.carried && m.unlabelled && m.to.Kind == ocip.KindAgent && !m.recipient.Group && !m.recipient.Strangers && !m.unconfirmed()
}

// sentRecord is the sender's record of a verdict.
func (k *ruleset) sentRecord(m *outgoing, v *ocip.Verdict) (*audit.Record, error) {
	r := k.verdictRecord(audit.SideSender, m.sender, v)
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
		r.Details["operator"] = api.ByPeer(m.operator)
	}
	if m.grantID != "" {
		r.Details["grant_id"] = m.grantID
	}
	if m.check {
		r.ActionType, r.Event = audit.ActionCheck, "decided"
	}
	return r, k.content(r, m.content)
}

func (m *outgoing) message() api.Message {
	return api.Message{ChannelID: m.channel, Target: m.target, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// emitted is the message as a runtime that delivers by itself is given it.
func (m *outgoing) emitted() api.EmittedMessage {
	return api.EmittedMessage{SessionKey: m.key, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// inbound is the message as an agent of this daemon is given it.
func (m *outgoing) inbound(runID string) api.Inbound {
	return api.Inbound{
		RunID: runID, SessionKey: m.key, ReplyTo: directory.ReplyKey(m.sender, m.local, m.target), Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID,
	}
}
