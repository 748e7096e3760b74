package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/kernel/exchange"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/hints"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// arriveLocally weighs an allowed message on the side of its receiver, an
// agent of this daemon, and enters that side's record and state into the
// sender's change. It is called under the pair's lock. RunID is "" for a message that the
// receiver's runtime brings in by itself: then the report of that runtime makes the record
// of a message that the receiver takes, and what the message binds it to holds whether or
// not the report comes.
func (k *ruleset) arriveLocally(ctx context.Context, m *outgoing, runID string, sent *ocip.Verdict, change *store.Change, now time.Time) (*ocip.Verdict, error) {
	a, v, err := k.meets(ctx, m, sent, now)
	if err != nil {
		return nil, err
	}
	if runID == "" && v.Allowed() {
		return v, k.binds(ctx, m, a, v, change, now)
	}
	// The receiver's own record says what reached it and what did not.
	v.Shared, v.Withheld = sent.Shared, sent.Told()
	v.Exchange.Track(v.Shared, v.Withheld)
	r, err := k.receivedRecord(m.local, *m.sender.Counterparty(), v, m.key, m.content)
	if err != nil {
		return nil, err
	}
	r.AppID, r.DispatchID, r.RunID, r.ApprovalID = m.local.App, m.dispatchID, runID, cmp.Or(m.approvalID, r.ApprovalID)
	m.task.enter(r)
	r.DeliveredDigest = change.Records[len(change.Records)-1].DeliveredDigest
	change.Records = append(change.Records, r)
	if err := k.exchanges.Escalate(a.concern(), v, k.exchangeRules, change, now); err != nil {
		return nil, err
	}
	if v.Allowed() {
		k.state.EnterLocked(change, v.Exchange)
		if err := k.binds(ctx, m, a, v, change, now); err != nil {
			return nil, err
		}
		change.Add(store.Run{ID: runID, AgentID: m.local.ID, SessionKey: m.key, QueuedAt: now})
	} else {
		k.state.Refuse(change, v, now)
	}
	return v, nil
}

// meets weighs an allowed message on the side of its receiver, an agent of this daemon.
func (k *ruleset) meets(ctx context.Context, m *outgoing, sent *ocip.Verdict, now time.Time) (*arrival, *ocip.Verdict, error) {
	a := &arrival{
		agent: m.local, from: *m.sender.Counterparty(), envelope: sent.Envelope,
		// The receiver's replies go back the way the message came.
		key: directory.ReplyKey(m.sender, m.local, m.target), exchangeID: sent.Exchange.ID, exchangeType: sent.Exchange.Type, summary: m.summary(), claimed: m.hints.Summary != "",
		chain: sent.Chain, content: m.content, passages: passages(m.metadata, m.recipient.IsAddress), dispatchID: m.dispatchID, approved: m.approvalID != "", local: true,
	}
	v, err := k.arrive(ctx, a, now)
	return a, v, err
}

// binds enters into a change what a message that its receiver takes makes it owe, and the
// causal chain that it continues.
func (k *ruleset) binds(ctx context.Context, m *outgoing, a *arrival, v *ocip.Verdict, change *store.Change, now time.Time) error {
	to, from := m.local.InstanceID, m.sender.InstanceID
	k.state.Owed.EnterLocked(change, to, from, a.owed, v.Owed)
	if m.approvalID != "" {
		exchange.ReceiveApproved(to, from, v.Chain, now, change)
		return nil
	}
	return k.state.Chains.Receive(ctx, to, from, v.Chain, exchange.Answers(&v.Before), k.chainsSince(now), now, change)
}

// refusedByReceiver records both sides of a message that its receiver, in this
// daemon, did not take. It goes nowhere and takes no round, and the sender's
// exchange ends as the receiver's did.
func (k *ruleset) refusedByReceiver(m *outgoing, r *audit.Record, sent, arrived *ocip.Verdict, change *store.Change) error {
	if m.conclude != nil {
		if err := m.conclude(arrived); err != nil {
			return err
		}
	}
	limit := sent.Exchange.MaxRounds
	sent.Exchange = sent.Before
	sent.Exchange.MaxRounds, sent.Code = limit, arrived.Code
	if !arrived.Exchange.ForPerson {
		sent.Exchange.Outcome = arrived.Exchange.Outcome
	}
	r.PolicyResult, r.Code, r.PolicyReason = string(arrived.Result), string(arrived.Code), "the receiver refused the message: "+arrived.Reason
	r.Round, r.Outcome = sent.Before.Round, string(sent.Exchange.Outcome)
	k.state.Refuse(change, sent, k.now())
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	failure := refused(arrived, r)
	failure.Message = r.PolicyReason
	return failure
}

// arrival is one annotated message that reaches a local agent.
type arrival struct {
	agent        *Agent
	from         ocip.Counterparty
	envelope     ocip.Envelope
	key          string
	exchangeID   string
	exchangeType ocip.ExchangeType
	summary      string
	claimed      bool
	// chain is the causal chain as the message carries it.
	chain      ocip.Chain
	content    gate.Text
	passages   []ocip.Passage
	rendering  []text.Rendering
	dispatchID string
	// owed is what the agent owed the sender before.
	owed ocip.Owed
	// approved messages were let through by a person of this daemon.
	approved bool
	// local messages come from an agent of this daemon, whose side was timed:
	// reading the clock costs more than counting.
	local bool
	// shown is set where the daemon knows the chain, as its own agent's message had it.
	shown bool
}

func (a *arrival) concern() *exchanges.Concern {
	return &exchanges.Concern{Agent: a.agent, Other: a.from, Key: a.key, Summary: ocip.Summarize(a.content.Inspect()), DispatchID: a.dispatchID, Known: a.approved}
}

// arrive weighs a message on its receiver's side. It is called under the lock
// of the two agents.
func (k *ruleset) arrive(ctx context.Context, a *arrival, now time.Time) (*ocip.Verdict, error) {
	e, err := k.state.ByConversation(ctx, a.agent.InstanceID, a.envelope.ConversationID)
	if errors.Is(err, store.ErrNotFound) {
		id, err := k.state.FreeIDLocked(ctx, k.newID, store.PairOf(a.agent.InstanceID, a.envelope.SourceAgent.InstanceID), a.agent.InstanceID, a.exchangeID, a.envelope.ConversationID)
		if err != nil {
			return nil, err
		}
		e = ocip.Exchange{
			ID: id, ConversationID: a.envelope.ConversationID, Type: a.exchangeType,
			Agent: a.agent.InstanceID, Counterparty: a.envelope.SourceAgent.InstanceID, SessionKey: a.key, Outcome: ocip.InProgress,
			MaxRounds: min(a.envelope.MaxRounds, k.cfg.MaxRounds), OpenedAt: now, UpdatedAt: now, ExpiresAt: a.envelope.ExpiresAt.Time,
		}
	} else if err != nil {
		return nil, err
	}
	line, err := k.arrived(ctx, a, &e, now)
	if err != nil {
		return nil, err
	}
	if a.owed, err = k.state.Owed.OfLocked(ctx, a.agent.InstanceID, a.envelope.SourceAgent.InstanceID); err != nil {
		return nil, err
	}
	escalated, err := k.state.EscalationLocked(ctx, exchange.PairOf(&e))
	if err != nil {
		return nil, err
	}
	var began time.Time
	if !a.local {
		began = k.now()
	}
	m := &ocip.Incoming{
		Now: now, Receiver: a.agent.Agent, From: a.from, Envelope: a.envelope, Exchange: e, Summary: a.summary, Claimed: a.claimed,
		Chain: line, Escalated: escalated, ExpiresAfter: k.cfg.ExpiresAfter, Owed: a.owed,
		Content: a.content.Inspect(), Passages: a.passages, Rendering: a.rendering, Rules: k.cfg.Rules, Approved: a.approved,
	}
	v := ocip.Receive(ctx, m, k.policy)
	if m.Grants = k.grantsOf(a.agent, &e, v); len(m.Grants) > 0 {
		v = ocip.Receive(ctx, m, k.policy)
	}
	if !a.local {
		k.metrics.Decided(k.now().Sub(began))
	}
	return v, nil
}

// receivedRecord is the receiver's record of a verdict.
func (k *ruleset) receivedRecord(agent *Agent, from ocip.Counterparty, v *ocip.Verdict, key string, content gate.Text) (*audit.Record, error) {
	r := k.verdictRecord(audit.SideReceiver, agent, v)
	r.SessionKey = key
	r.Counterparty = counterpartyRecord(from.Kind, from.Identity)
	k.grants.Name(agent.InstanceID, v.Grant, r)
	return r, k.content(r, content)
}

// Queue brings a message in for an agent. With an envelope it goes through the
// receiver's side of OCIP; without one it is a human message and is delivered
// as it is (ADR-007).
func (c *Client) Queue(ctx context.Context, p *api.QueueParams) (api.QueueResult, api.AfterReply, error) {
	in, result, err := c.queue(ctx, p, "", false)
	if err != nil {
		return api.QueueResult{}, nil, err
	}
	return result, in.deliver, nil
}

// queue takes a message as far as its delivery, or where its runtime has it
// already to that point. It is for the named agent, or whom its session says.
func (c *Client) queue(ctx context.Context, p *api.QueueParams, named string, carried bool) (*incoming, api.QueueResult, error) {
	k, err := c.rules()
	if err != nil {
		return nil, api.QueueResult{}, err
	}
	agent, err := k.receiver(ctx, c.App(), p.SessionKey, named)
	if err != nil {
		return nil, api.QueueResult{}, err
	}
	in := &incoming{
		app: c.App(), appID: c.App().ID(), agent: agent, key: p.SessionKey, content: p.Text, metadata: p.Metadata, runID: k.newID(), dispatchID: k.newID(), carried: carried, halves: p.Halves,
	}
	result, err := k.bring(ctx, in)
	return in, result, err
}

// bring finds out where an inbound message came from, and sorts it by its annotation.
func (k *ruleset) bring(ctx context.Context, in *incoming) (result api.QueueResult, err error) {
	in.metadata, in.lookalikes = hints.WithoutLookalikes(in.metadata)
	in.origin, err = k.directory.Origin(in.key, in.metadata, in.agent)
	if err == nil {
		in.account, in.spoke, in.generation = in.origin.Account, in.origin.Writers, k.generation(in.agent.TenantID)
		in.from, err = k.state.Seen.Known(ctx, in.key, in.agent, in.origin.Counterparty)
	}
	switch {
	case errors.Is(err, directory.ErrSpelling), errors.Is(err, directory.ErrAddress):
		return result, api.Invalid([]api.FieldError{{Path: "sessionKey", Message: err.Error()}})
	case err != nil:
		return result, err
	}
	if reason, paused := k.keptOut(in); paused {
		return k.refuseInbound(in, in.from, ocip.Paused, "pause", reason, "")
	}
	task, denied, err := k.taskOf(ctx, in.metadata, in.agent)
	if err != nil {
		return api.QueueResult{}, err
	}
	if denied != nil {
		return k.refuseInbound(in, in.from, denied.Code, denied.Policy, denied.Reason, "task_refused")
	}
	in.task = task
	envelope, err := ocip.ParseEnvelope(in.metadata["ocip"])
	if channel, _ := directory.Split(in.key); err == nil && channel == directory.AgentChannel {
		// Whose envelope it is decides who may bring it, before anybody sees the text.
		from, err := k.source(ctx, in, &envelope)
		if err != nil {
			return api.QueueResult{}, err
		}
		if from.denied == nil {
			if err := k.passInbound(ctx, in); err != nil {
				return api.QueueResult{}, err
			}
		}
		return k.takeEnvelope(ctx, in, envelope, from)
	}
	if err := k.mayBring(in); err != nil {
		return api.QueueResult{}, err
	}
	if err := k.passInbound(ctx, in); err != nil {
		return api.QueueResult{}, err
	}
	if errors.Is(err, ocip.ErrNoEnvelope) {
		return k.takeUnannotated(ctx, in)
	}
	if err != nil {
		return k.takeMalformed(in, err)
	}
	return k.takeEnvelope(ctx, in, envelope, nil)
}

// keptOut reports whether a message may not be decided now: one that its runtime has
// already waits nowhere while its agent or its channel is paused.
func (k *ruleset) keptOut(in *incoming) (reason string, paused bool) {
	if !in.carried {
		return "", false
	}
	return k.pauses.Reason(directory.ChannelOf(in.key), in.agent.ID)
}

// incoming is one message brought in by an app, or by who speaks for an agent without one:
// then app is nil.
type incoming struct {
	app          *registry.App
	appID        string
	agent        *Agent
	key, account string
	content      gate.Text
	metadata     api.Object
	// origin is where it came from, and from who is there: an agent that was seen,
	// where the directory has nobody.
	origin directory.Origin
	from   ocip.Counterparty
	// spoke are those whom it shows to read where it came from.
	spoke []ocip.Counterparty
	// generation is that of what was known when from was looked up.
	generation uint64
	// chain is the causal chain of an agent's message, speaker the agent, and
	// answer is set where the receiver had asked it.
	chain             ocip.Chain
	speaker           string
	answer            bool
	runID, dispatchID string
	// carried messages are with their runtime already.
	carried bool
	// task is what the message is about.
	task aboutTask
	// halves is how many halves of characters the daemon replaced in it, and lookalikes are
	// the names that those of members looked like which it took out.
	halves     int
	lookalikes []string
	// deliver, where set, has the message written to its agent, once it is durable, and
	// sealed is the message for a runtime that has it already.
	deliver api.AfterReply
	sealed  gate.Sealed
}

// mended says in a record of the message that it is not quite what was sent.
func (in *incoming) mended(r *audit.Record) {
	if in.halves == 0 && len(in.lookalikes) == 0 {
		return
	}
	if r.Details == nil {
		r.Details = make(map[string]any)
	}
	if in.halves > 0 {
		r.Details["mended"] = in.halves
	}
	if len(in.lookalikes) > 0 {
		r.Details["removed"] = in.lookalikes
	}
}

func (in *incoming) about() api.HookContext {
	return api.HookContext{AgentID: in.agent.ID, SessionKey: in.key, ChannelID: directory.ChannelOf(in.key), AccountID: in.account}
}

// mayBring reports whether an app may bring in a message without an envelope, or
// one with an envelope through a channel. That it tried is on record.
func (k *ruleset) mayBring(in *incoming) error {
	channel, _ := directory.Split(in.key)
	owns := k.apps.Owns(k.terms, in.app, channel)
	err := k.directory.MayBring(in.appID, owns, in.key, in.agent)
	switch {
	case err != nil || channel == directory.AgentChannel || owns:
	case in.app == nil:
		err = k.reached(channel, in.agent, true)
	default:
		// A runtime with a channel of its own has nobody else's.
		err = k.directory.MayOwn(in.appID, channel)
		if err == nil && k.apps.Owner(k.terms, channel) != nil {
			err = fmt.Errorf("channel %s is another app's", channel)
		}
	}
	if err == nil {
		return nil
	}
	if channel != directory.AgentChannel && !owns {
		return api.Errorf(api.CapabilityDenied, "%v", err)
	}
	return k.apps.RecordRefusalOf(in.appID, "bringing_refused", api.Errorf(api.Forbidden, "%v", err), map[string]any{"sessionKey": in.key, "agentId": in.agent.ID})
}

// freshens reports whether a message begins a causal chain anew: the words of a person
// whom the directory knows. A stranger's do not, since a bot in a room would keep a loop
// of agents going. An app that speaks for agents could write such messages by itself,
// so its word does not count where there is anybody else it could be speaking
// with.
func (k *ruleset) freshens(in *incoming) bool {
	channel, _ := directory.Split(in.key)
	known := in.from.Kind == ocip.KindOwner || in.from.Kind == ocip.KindPerson
	if !known || channel == directory.AgentChannel || !k.apps.Owns(k.terms, in.app, channel) {
		return false
	}
	return len(k.directory.SpokenBy(in.appID)) == 0 || len(k.cfg.Directory.Agents) == 1
}

// mayBeFor reports whether a message of a session can be for the agent that its app
// names: not where the session is another app's agent's, by what has gone through it
// or by a route.
func (k *ruleset) mayBeFor(ctx context.Context, a *registry.App, key string, named *Agent) error {
	if _, ok := directory.AgentOf(key); ok {
		return nil
	}
	whose, err := k.state.Sessions.Agent(ctx, k.directory, key)
	if err != nil {
		return err
	}
	if routed, ok := k.directory.Routed(key); ok {
		whose = routed
	}
	if whose != nil && whose.App != named.App && k.shows(a, key, whose) {
		return api.Errorf(api.Forbidden, "session %s is of agent %q, not of %q", key, whose.ID, named.ID)
	}
	return nil
}

// shows reports whether an app may know that a session is an agent's: one that has the
// session's channel, or may have it, or that speaks for an agent of the same tenant.
// To others it is as if nobody had the session.
func (k *ruleset) shows(a *registry.App, key string, agent *Agent) bool {
	channel, _ := directory.Split(key)
	return !k.directory.SeveralTenants() || k.directory.MayOwn(a.ID(), channel) == nil ||
		slices.ContainsFunc(k.directory.SpokenBy(a.ID()), func(own *Agent) bool { return own.TenantID == agent.TenantID })
}

// receiver returns the agent that an inbound message is for: the one that is
// named, or whom its session says.
func (k *ruleset) receiver(ctx context.Context, a *registry.App, key, named string) (*Agent, error) {
	if id, ok := directory.AgentOf(key); ok && named != "" && id != named {
		return nil, api.Errorf(api.InvalidParams, "session %s is of agent %q, not of %q", key, id, named)
	}
	if named != "" {
		if agent := k.directory.Agent(named); agent != nil {
			return agent, k.mayBeFor(ctx, a, key, agent)
		}
		return nil, api.Errorf(api.NotFound, "there is no agent %q; agents[].id in the configuration lists them", named)
	}
	if id, ok := directory.AgentOf(key); ok {
		return k.receiver(ctx, a, "", id)
	}
	agent, err := k.state.Sessions.Agent(ctx, k.directory, key)
	if err != nil {
		return nil, err
	}
	if agent == nil {
		if agent, _ = k.directory.Routed(key); agent == nil {
			agent = k.directory.Default()
		}
	}
	if agent != nil && k.shows(a, key, agent) {
		return agent, nil
	}
	return nil, api.Errorf(api.NotFound, "no agent takes messages of session %s; add a route {session: %q, agent: …} or a default_agent to the configuration", key, key)
}

// takeUnannotated deals with a message that says nothing of who wrote it. Whom the
// directory has there is known all the same: another tenant's agent is behind the
// wall, and what an agent says binds the answer to the rules for agents (ADR-007
// has it delivered unchanged).
func (k *ruleset) takeUnannotated(ctx context.Context, in *incoming) (api.QueueResult, error) {
	if reason, blocked := ocip.Wall(in.agent.Identity, in.from); blocked {
		return k.refuseInbound(in, in.from, ocip.CrossEnterpriseBlocked, "tenant-wall", reason, "")
	}
	if in.from.Kind != ocip.KindAgent || k.cfg.Unannotated == UnannotatedHuman {
		return k.takeHuman(in, nil)
	}
	if k.cfg.Unannotated == UnannotatedRefuse {
		return k.refuseInbound(in, in.from, ocip.MalformedEnvelope, "envelope", "agent "+in.from.InstanceID+" is known, and its message has no envelope", "")
	}
	defer k.state.Lock(in.agent.InstanceID, in.from.InstanceID)()
	escalated, err := k.state.EscalationLocked(ctx, store.PairOf(in.agent.InstanceID, in.from.InstanceID))
	if err != nil {
		return api.QueueResult{}, err
	}
	if escalated != "" {
		return k.refuseInbound(in, in.from, ocip.RoundLimit, "round-limit",
			"exchange "+escalated+" between these agents reached its limit; until a person has settled it, nothing goes between them", "")
	}
	now := k.now()
	in.speaker = in.from.InstanceID
	if in.chain, in.answer, err = k.state.UnannotatedLocked(ctx, in.agent.InstanceID, in.from.InstanceID, in.key, in.dispatchID, k.chainsSince(now), now); err != nil {
		return api.QueueResult{}, err
	}
	return k.takeHuman(in, map[string]any{"unannotated": true})
}

// What an agent's text without an envelope is taken for.
const (
	UnannotatedBind   = "bind"
	UnannotatedHuman  = "human"
	UnannotatedRefuse = "refuse"
)

// refuseInbound records that a message was refused before anything was weighed, so
// that what it claims changes nobody's state.
func (k *ruleset) refuseInbound(in *incoming, from ocip.Counterparty, code ocip.Code, rule, reason, event string) (api.QueueResult, error) {
	v := ocip.Verdict{Result: ocip.Deny, Code: code, Policy: rule, Reason: reason}
	r, err := k.receivedRecord(in.agent, from, &v, in.key, in.content)
	if err != nil {
		return api.QueueResult{}, err
	}
	in.describe(r)
	r.Event, r.Classification = event, "" // it has none that could be believed
	if err := k.stopped(in, r); err != nil {
		return api.QueueResult{}, err
	}
	return api.QueueResult{}, refused(&v, r)
}

// stopped records that a message was not taken. Who wrote it reads what is said where
// it came from all the same.
func (k *ruleset) stopped(in *incoming, r *audit.Record) error {
	change := &store.Change{Records: []*audit.Record{r}}
	if err := k.heard(context.Background(), in, change); err != nil {
		return err
	}
	_, err := k.commit(change)
	return err
}

// describe enters into a record who brought a message in, and from where.
func (in *incoming) describe(r *audit.Record) {
	r.AppID, r.RunID, r.DispatchID = in.appID, in.runID, in.dispatchID
	if channel, _ := directory.Split(in.key); channel != directory.AgentChannel {
		r.Address = audit.Address(in.origin.Address)
	}
	if in.origin.LooksLike != "" {
		if r.Details == nil {
			r.Details = make(map[string]any)
		}
		r.Details["looksLike"] = in.origin.LooksLike
	}
	if name, _ := mapped(in.metadata); name != "" {
		if r.Details == nil {
			r.Details = make(map[string]any)
		}
		r.Details["map"] = name
	}
	in.task.enter(r)
	in.mended(r)
}

// takeHuman delivers a message as it came.
func (k *ruleset) takeHuman(in *incoming, details map[string]any) (api.QueueResult, error) {
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionDelivery, Event: "human_message", Side: audit.SideReceiver,
		TenantID: in.agent.TenantID, UserID: in.agent.UserID, AgentID: in.agent.InstanceID, SessionKey: in.key,
		Counterparty:  k.reported(in),
		PolicyApplied: "none", PolicyResult: string(ocip.Allow), PolicyReason: "no OCIP annotation: a human message", Details: details,
	}
	if in.speaker != "" {
		r.Event, r.PolicyReason = "unannotated_message", "no OCIP annotation: delivered as it is; the answer goes by the rules for agent "+in.speaker
	}
	in.describe(r)
	if err := k.content(r, in.content); err != nil {
		return api.QueueResult{}, err
	}
	result, err := k.take(in, &store.Change{Records: []*audit.Record{r}}, time.Time{})
	if err == nil {
		k.state.Words.Heard(in.agent.InstanceID, in.key, in.content.Inspect())
	}
	return result, err
}

// reported is who a record says has written: nobody known, where a runtime says so of
// a channel that it does not have.
func (k *ruleset) reported(in *incoming) audit.Counterparty {
	if in.speaker == "" && !k.learns(in) {
		return audit.Counterparty{Kind: string(ocip.KindUnknown)}
	}
	return counterpartyRecord(in.from.Kind, in.from.Identity)
}

// takeMalformed deals with an annotation that is none. A known agent does not
// send such a thing, so it is refused; from anybody else the message stays a
// human one, and the agent is told not to trust the annotation.
func (k *ruleset) takeMalformed(in *incoming, problem error) (api.QueueResult, error) {
	if reason, blocked := ocip.Wall(in.agent.Identity, in.from); blocked {
		return k.refuseInbound(in, in.from, ocip.CrossEnterpriseBlocked, "tenant-wall", reason, "malformed_envelope")
	}
	if in.from.Kind == ocip.KindAgent {
		return k.refuseInbound(in, in.from, ocip.MalformedEnvelope, "envelope", problem.Error(), "malformed_envelope")
	}
	in.metadata = maps.Clone(in.metadata)
	delete(in.metadata, "ocip")
	delete(in.metadata, "ocipChain")
	delete(in.metadata, exchange.LogHeadName)
	in.metadata["ocipUntrusted"] = api.String(problem.Error())
	return k.takeHuman(in, map[string]any{"malformedEnvelope": problem.Error(), "untrusted": true})
}

// takeEnvelope weighs an annotated message on the agent's side. Whose it is was asked
// already where from is given.
func (k *ruleset) takeEnvelope(ctx context.Context, in *incoming, envelope ocip.Envelope, from *sourced) (api.QueueResult, error) {
	var malformed error
	if in.chain, malformed = ocip.ParseChain(in.metadata["ocipChain"], k.now()); malformed != nil {
		// What becomes a person's message is brought in by those who may bring one.
		if err := k.mayBring(in); err != nil {
			return api.QueueResult{}, err
		}
		return k.takeMalformed(in, malformed)
	}
	h, err := hints.ParseInbound(in.metadata["exchange"], &envelope)
	if err != nil {
		return api.QueueResult{}, err
	}
	unlock := k.state.Lock(in.agent.InstanceID, envelope.SourceAgent.InstanceID)
	defer unlock()
	ctx, now := context.WithoutCancel(ctx), k.now()
	if from == nil {
		if from, err = k.source(ctx, in, &envelope); err != nil {
			return api.QueueResult{}, err
		}
	}
	if in.spoke = append(slices.Clip(in.spoke), from.spoke...); from.denied != nil {
		denied := from.denied
		claimed := ocip.Counterparty{Kind: ocip.KindAgent, Identity: envelope.SourceAgent}
		return k.refuseInbound(in, claimed, denied.Code, denied.Policy, denied.Reason, "envelope_refused")
	}
	in.chain = from.chain.Longer(in.chain)
	a := &arrival{
		agent: in.agent, from: from.Counterparty, envelope: envelope, key: in.key, exchangeID: h.ID, exchangeType: h.Type, summary: ocip.Summarize(in.content.Inspect()),
		chain: in.chain, content: in.content, passages: passages(in.metadata, in.isAddress), rendering: k.directory.Rendering(in.origin.Channel),
		dispatchID: in.dispatchID, approved: from.approved, shown: from.chain.ID != "",
	}
	v, err := k.arrive(ctx, a, now)
	if err != nil {
		return api.QueueResult{}, err
	}
	v.Level = max(v.Level, in.task.level)
	v.Shared, v.Withheld = hints.ParseTracked(in.metadata["exchange"])
	v.Exchange.Track(v.Shared, v.Withheld)
	listed := from.Kind == ocip.KindAgent
	from.Kind = ocip.KindAgent
	r, err := k.receivedRecord(in.agent, from.Counterparty, v, in.key, in.content)
	if err != nil {
		return api.QueueResult{}, err
	}
	exchange.PeerLogHead(in.metadata, r)
	in.describe(r)
	if !listed {
		// Nothing shows that it is who it says.
		r.Details["unconfirmed"] = true
	}
	change := &store.Change{Records: []*audit.Record{r}}
	if err := k.exchanges.Escalate(a.concern(), v, k.exchangeRules, change, now); err != nil {
		return api.QueueResult{}, err
	}
	if !v.Allowed() {
		if err := k.heard(ctx, in, change); err != nil {
			return api.QueueResult{}, err
		}
		if err := k.ends(change, v, now); err != nil {
			return api.QueueResult{}, err
		}
		if _, err := k.commit(change); err != nil {
			return api.QueueResult{}, err
		}
		k.state.Entered(change)
		return api.QueueResult{}, refused(v, r)
	}
	if channel, _ := directory.Split(in.key); !listed && channel != directory.AgentChannel && !in.origin.Listed && !in.origin.Group && k.learns(in) {
		// In a room, whoever can write there would decide what is said to all in it.
		if err := k.state.Seen.Note(ctx, in.key, in.agent, envelope.SourceAgent, change); err != nil {
			return api.QueueResult{}, err
		}
	}
	k.state.EnterLocked(change, v.Exchange)
	k.state.Owed.EnterLocked(change, in.agent.InstanceID, from.InstanceID, a.owed, v.Owed)
	in.chain, in.speaker, in.answer = v.Chain, envelope.SourceAgent.InstanceID, exchange.Answers(&v.Before)
	return k.take(in, change, v.Exchange.ExpiresAt)
}

// sourced is who sent an envelope: of the kind agent where that is shown, or denied.
type sourced struct {
	ocip.Counterparty
	denied *ocip.Verdict
	// spoke are those whom it shows to read where it came from, and approved is set where
	// a person of this daemon let the message through.
	spoke    []ocip.Counterparty
	approved bool
	// chain is that of a message of an agent of this daemon, as it was sent.
	chain ocip.Chain
}

// learns reports whether what a message shows of its session is kept: whose the
// session is, where its messages come from, and who is there. Only the app that has
// the channel knows that, and of an agent's own session the agent's app; another one
// that reports a message would have others' answers go where it says.
func (k *ruleset) learns(in *incoming) bool {
	channel, _ := directory.Split(in.key)
	return channel == directory.AgentChannel || k.apps.Owns(k.terms, in.app, channel)
}

// isAddress reports whether a member of the message's metadata is where it came
// from, as the channel's app says.
func (in *incoming) isAddress(member string) bool {
	_, ok := in.origin.Brought[member]
	return ok
}

// sent holds a message that a runtime brings in against what an agent of this daemon has
// sent to its agent: the sender's side of the exchange knows the round, its record has the
// text, and the envelope asks for no less than the one that was sent. It returns what is
// wrong, and enters into from what is known of the message.
func (k *ruleset) sent(ctx context.Context, in *incoming, e *ocip.Envelope, from *sourced) (problem string, err error) {
	sender := k.directory.Local(e.SourceAgent.InstanceID)
	const unknown = ": there is no such message"
	if sender.Identity != e.SourceAgent {
		return unknown, nil
	}
	side, err := k.store.ExchangeByConversation(ctx, sender.InstanceID, e.ConversationID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return unknown, nil
	case err != nil:
		return "", err
	case side.Counterparty != in.agent.InstanceID, e.ExchangeRound > side.Round:
		return unknown, nil
	}
	digest, err := k.digest(sender.TenantID, in.content.Inspect())
	if err != nil {
		return "", err
	}
	lines, _, err := k.search.Query(ctx, audit.Filter{Like: audit.Record{ConversationID: e.ConversationID, AgentID: sender.InstanceID, Side: audit.SideSender, PolicyResult: string(ocip.Allow)}}, 0, sentWithin)
	for _, line := range lines {
		r, err := k.store.WrittenAs(ctx, line)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		if err != nil || r.Round != e.ExchangeRound || r.ContentDigest != digest {
			continue
		}
		envelope, chain, err := annotations(&r)
		if errors.Is(err, ocip.ErrNoEnvelope) {
			continue // the daemon has delivered it
		}
		if err != nil {
			return "", err
		}
		if member := e.Looser(&envelope); member != "" {
			return ": its envelope has another " + member, nil
		}
		from.chain, from.approved = chain, side.Approved && e.ExchangeRound == side.Round
		return "", nil
	}
	return unknown, err
}

// annotations returns the envelope and the chain of a message as its record keeps them.
func annotations(r *audit.Entry) (e ocip.Envelope, chain ocip.Chain, err error) {
	envelope, _ := r.Details["envelope"].(string)
	line, _ := r.Details["chain"].(string)
	if e, err = ocip.ParseEnvelope([]byte(envelope)); err == nil {
		chain, err = ocip.ParseChain([]byte(line), r.Time)
		chain.OwnTurn, _ = r.Details["ownTurn"].(bool)
	}
	if err != nil {
		err = fmt.Errorf("record %s does not say how its message was sent: %w", r.ID, err)
	}
	return e, chain, err
}

// sentWithin is how many messages of a conversation are looked through for one that
// its receiver reports. An exchange has few rounds.
const sentWithin = 64

// form is the message as its agent is given it.
func (in *incoming) form() api.Inbound {
	return api.Inbound{RunID: in.runID, SessionKey: in.key, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID}
}

// observeReceived tells who observes an agent what its runtime has received by itself.
func (k *ruleset) observeReceived(in *incoming, receipt store.Receipt, r *audit.Record, now time.Time) error {
	if len(k.apps.Listeners(api.MessageReceived)) == 0 {
		return nil
	}
	_, letter, err := k.keys.Close(nil, r.TenantID, in.form())
	if err != nil {
		return k.recordable(err)
	}
	seen, err := gate.Open(receipt, letter, nil)
	if err != nil {
		return err
	}
	about := in.about()
	about.Timestamp, about.AuditID = now.UnixMilli(), r.ID
	k.apps.Observe(k.terms, api.MessageReceived, seen, about, in.app)
	return nil
}

// take records an inbound message and lets the commit deliver it to its agent.
func (k *ruleset) take(in *incoming, change *store.Change, expires time.Time) (api.QueueResult, error) {
	ctx, now := context.Background(), k.now()
	defer k.pauses.Deciding()()
	if reason, paused := k.keptOut(in); paused {
		// An interceptor was asked meanwhile.
		return k.refuseInbound(in, in.from, ocip.Paused, "pause", reason, "")
	}
	var d *outbox.Delivery
	var letter gate.Letter
	var err error
	record := askedAbout(k, change.Records[0])
	if in.carried {
		letter, err = k.closed(record, api.EmittedMessage{SessionKey: in.key, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID})
	} else {
		d = in.delivery(k.policy, expires)
		d.About.AuditID = record.ID
		err = k.closedIn(record, d, in.form())
	}
	if err != nil {
		return api.QueueResult{}, err
	}
	if d != nil {
		d.Enter(change)
		change.Add(store.Run{ID: in.runID, AgentID: in.agent.ID, SessionKey: in.key, QueuedAt: now})
	}
	switch {
	case in.speaker != "":
		err = k.state.Chains.Receive(ctx, in.agent.InstanceID, in.speaker, in.chain, in.answer, k.chainsSince(now), now, change)
	case k.freshens(in):
		err = k.state.Chains.BeginAnew(ctx, in.agent.InstanceID, now, change)
	}
	if err != nil {
		return api.QueueResult{}, err
	}
	learns := k.learns(in)
	if learns && len(in.origin.Brought) > 0 {
		if err := k.state.Origins.Enter(ctx, change, exchange.OriginKey(k.directory, in.agent, in.key), in.account, in.origin.Brought, now); err != nil {
			return api.QueueResult{}, err
		}
	}
	if err := k.heard(ctx, in, change); err != nil {
		return api.QueueResult{}, err
	}
	fresh := new(bool)
	if learns {
		if fresh, err = k.state.Sessions.Use(ctx, k.directory, in.key, in.agent, in.account, now, change); err != nil {
			return api.QueueResult{}, err
		}
	}
	result := api.QueueResult{RunID: in.runID, Queued: true}
	if d != nil {
		change.OnDurable(func(receipt store.Receipt) {
			k.outbox.Open(receipt, d)
			in.deliver = k.outbox.Offer(d)
		})
	}
	receipt, err := k.commit(change)
	if err != nil {
		return api.QueueResult{}, err
	}
	k.state.Entered(change)
	if d == nil {
		if in.sealed, err = gate.Open(receipt, letter, nil); err != nil {
			return api.QueueResult{}, err
		}
		if err := k.observeReceived(in, receipt, record, now); err != nil {
			return api.QueueResult{}, err
		}
	}
	if *fresh {
		k.apps.Observe(k.terms, api.SessionStart, gate.Fact(api.SessionEvent(in.key, in.agent.ID)), in.about(), nil)
	}
	return result, nil
}

// Complete ends an agent run.
func (c *Client) Complete(ctx context.Context, p *api.CompleteParams) (api.OK, error) {
	k, err := c.rules()
	if err != nil {
		return api.OK{}, err
	}
	a := c.App()
	run, err := k.store.Run(ctx, p.RunID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return api.OK{}, err
	}
	agent := k.directory.Agent(run.AgentID)
	if agent == nil || agent.App != a.ID() && !mutant.Off("run-owner") {
		return api.OK{}, api.Errorf(api.NotFound, "app %s has no run %q", a.ID(), p.RunID)
	}
	now := k.now()
	details := map[string]any{"success": p.Success, "durationMs": now.Sub(run.QueuedAt).Milliseconds()}
	if p.Error != "" {
		details["error"] = p.Error
	}
	data, err := json.Marshal(map[string]any{"runId": run.ID, "sessionKey": run.SessionKey, "success": p.Success, "error": p.Error}, json.Deterministic(true))
	if err != nil {
		return api.OK{}, err
	}
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionDelivery, Event: "run_completed", Side: audit.SideReceiver,
		TenantID: agent.TenantID, UserID: agent.UserID, AgentID: agent.InstanceID, AppID: a.ID(),
		SessionKey: run.SessionKey, RunID: run.ID, Details: details,
	}
	if err := k.content(r, gate.NewText(string(data))); err != nil {
		return api.OK{}, err
	}
	// A run ends whatever is paused, and nobody is told of it then.
	defer k.pauses.Deciding()()
	reason, paused := k.pauses.Reason(directory.ChannelOf(run.SessionKey), agent.ID)
	if paused {
		details["notTold"] = reason
	}
	letter, err := k.keys.CloseText(r.TenantID, data)
	if err != nil {
		return api.OK{}, k.recordable(err)
	}
	receipt, err := k.commit(&store.Change{Parts: []store.Part{store.EndedRun(run.ID)}, Drains: true, Records: []*audit.Record{r}})
	if err != nil {
		return api.OK{}, err
	}
	if !paused {
		ended, err := gate.Open(receipt, letter, nil)
		if err != nil {
			return api.OK{}, err
		}
		k.apps.Observe(k.terms, api.AgentCompleted, ended, api.HookContext{AgentID: agent.ID, SessionKey: run.SessionKey, Timestamp: now.UnixMilli(), AuditID: r.ID}, nil)
	}
	return api.OK{OK: true}, nil
}

// heard enters into a change who spoke with a message, where many read it. Only the
// app that has the channel knows where a message came from.
func (k *ruleset) heard(ctx context.Context, in *incoming, c *store.Change) error {
	if len(in.spoke) == 0 || len(in.origin.Places) == 0 || !k.learns(in) {
		return nil
	}
	for _, place := range in.origin.Places {
		for _, who := range in.spoke {
			if err := k.state.Speakers.Note(ctx, place, in.account, in.agent, who, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrived returns the chain of a message that came in. That of a message that an agent of
// this daemon has sent to another is known.
func (k *ruleset) arrived(ctx context.Context, a *arrival, e *ocip.Exchange, now time.Time) (ocip.Chain, error) {
	if (a.local || a.shown) && a.chain.ID != "" {
		return a.chain, nil
	}
	return k.state.ArrivedLocked(ctx, a.envelope.SourceAgent.InstanceID, a.key, a.dispatchID, a.chain, e, k.chainsSince(now), now)
}

// chainsSince is from when on a message counts as the cause of what its receiver
// begins now.
func (k *ruleset) chainsSince(now time.Time) time.Time { return now.Add(-k.cfg.ChainWindow) }
