package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// inbound is a ruleset as it takes messages in for the agents of this daemon. It finds a message's
// author and the app's right to bring it, and then weighs, records and delivers the message.
type inbound struct{ *ruleset }

// Queue brings a message in for an agent. With an envelope it goes through the receiver's side of
// OCIP. Without one it is a human message, which the daemon delivers unchanged (ADR-007).
func (c *Client) Queue(ctx context.Context, p *api.QueueParams) (api.QueueResult, api.AfterReply, error) {
	in, result, err := c.queue(ctx, p, "", false)
	if err != nil {
		return api.QueueResult{}, nil, err
	}
	return result, in.deliver, nil
}

// queue takes a message as far as its delivery, or up to that point if its runtime has it already.
// It is for the named agent, or the session's.
func (c *Client) queue(ctx context.Context, p *api.QueueParams, named string, carried bool) (in *incoming, result api.QueueResult, err error) {
	result, err = under(c, func(rules *ruleset) (api.QueueResult, error) {
		k := inbound{rules}
		agent, err := k.receiver(ctx, c.App(), p.SessionKey, named)
		if err != nil {
			return api.QueueResult{}, err
		}
		in = &incoming{
			app: c.App(), appID: c.App().ID(), agent: agent, key: p.SessionKey, content: p.Text, metadata: p.Metadata, runID: k.newID(), dispatchID: k.newID(), halves: p.Halves,
		}
		if carried {
			in.carried = func(bool) error { return connected(ctx) }
		}
		return k.bring(ctx, in)
	})
	return in, result, err
}

// bring finds the origin of an inbound message, and dispatches it by its annotation. Whether the app
// may bring the message comes first: a refused app learns nothing about the agent.
func (k inbound) bring(ctx context.Context, in *incoming) (result api.QueueResult, err error) {
	if err := k.trace(ctx, in); err != nil {
		return result, err
	}
	envelope, malformed := ocip.ParseEnvelope(in.metadata["ocip"])
	if malformed != nil && in.lane != nil {
		// An agent of the fleet sends nothing without an envelope.
		return k.refuseInbound(in, in.from, ocip.MalformedEnvelope, "envelope", malformed.Error(), "malformed_envelope")
	}
	var from *sourced
	if channel, _ := directory.Split(in.key); malformed == nil && channel == directory.AgentChannel {
		// The sender of the envelope decides which app may bring it, before anybody sees the text.
		if from, err = k.source(ctx, in, &envelope); err != nil {
			return result, err
		}
		if from.denied != nil {
			return k.refuseEnvelope(in, &envelope, from)
		}
	} else if err := k.mayBring(in); err != nil {
		return result, err
	}
	if err := k.mayEnter(ctx, in); err != nil {
		return result, err
	}
	switch {
	case malformed == nil:
		return k.takeEnvelope(ctx, in, envelope, from)
	case errors.Is(malformed, ocip.ErrNoEnvelope):
		return k.takeUnannotated(ctx, in)
	}
	return k.takeMalformed(in, malformed)
}

// trace finds the place that an inbound message came from, and its author as far as the daemon
// knows them.
func (k inbound) trace(ctx context.Context, in *incoming) (err error) {
	in.metadata, in.lookalikes = exchangehints.WithoutLookalikes(in.metadata)
	in.origin, err = k.directory.Origin(in.key, in.metadata, in.agent)
	if errors.Is(err, directory.ErrSpelling) || errors.Is(err, directory.ErrAddress) {
		return api.Invalid([]api.FieldError{{Path: "sessionKey", Message: err.Error()}})
	}
	if err != nil {
		return err
	}
	in.account, in.spoke, in.generation = in.origin.Account, in.origin.Writers, k.generation(in.agent.TenantID)
	in.from, err = k.state.Seen.Known(ctx, in.key, in.agent, in.origin.Counterparty)
	return err
}

// mayEnter refuses a message that a pause stops, one about a task of another tenant, and one that an
// interceptor stops. The caller has found that the app may bring the message.
func (k inbound) mayEnter(ctx context.Context, in *incoming) error {
	if reason, paused := k.keptOut(in); paused {
		_, err := k.refuseInbound(in, in.from, ocip.Paused, "pause", reason, "")
		return err
	}
	task, denied, err := k.tasks.find(ctx, in.metadata, in.agent)
	if in.lane != nil {
		// The task is in the store of the other host. Its id goes on record as that host's word.
		denied = nil
		task.MessageTask, err = api.TaskOf(in.metadata)
	}
	if err != nil {
		return err
	}
	if denied != nil {
		_, err := k.refuseInbound(in, in.from, denied.Code, denied.Policy, denied.Reason, "task_refused")
		return err
	}
	in.task = task
	return k.passInbound(ctx, in)
}

// refuseEnvelope records the refusal of an envelope that its sender has not sent, or that the app
// may not bring.
func (k inbound) refuseEnvelope(in *incoming, envelope *ocip.Envelope, from *sourced) (api.QueueResult, error) {
	in.spoke = append(slices.Clip(in.spoke), from.spoke...)
	claimed := ocip.Counterparty{Kind: ocip.KindAgent, Identity: envelope.SourceAgent}
	return k.refuseInbound(in, claimed, from.denied.Code, from.denied.Policy, from.denied.Reason, "envelope_refused")
}

// takeUnannotated handles a message without an annotation. Its author may still be known from the
// directory. An agent of another tenant is behind the wall, and an agent's text binds the answer to
// the rules for agents (ADR-007 would deliver it unchanged).
func (k inbound) takeUnannotated(ctx context.Context, in *incoming) (api.QueueResult, error) {
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
	if in.chain, in.answer, err = k.state.UnannotatedLocked(ctx, in.agent.InstanceID, in.from.InstanceID, in.key, in.dispatchID, k.conversations.chainsSince(now), now); err != nil {
		return api.QueueResult{}, err
	}
	return k.takeHuman(in, map[string]any{"unannotated": true})
}

// Treatments of an agent's text without an envelope.
const (
	UnannotatedBind   = "bind"
	UnannotatedHuman  = "human"
	UnannotatedRefuse = "refuse"
)

// takeHuman delivers a message as it came.
func (k inbound) takeHuman(in *incoming, details map[string]any) (api.QueueResult, error) {
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
	if err := k.records.content(r, in.content); err != nil {
		return api.QueueResult{}, err
	}
	result, err := k.take(in, &store.Change{Records: []*audit.Record{r}}, time.Time{})
	if err == nil {
		k.state.Words.Heard(in.agent.InstanceID, in.key, in.content.Inspect())
	}
	return result, err
}

// takeEnvelope weighs an annotated message on the agent's side. If from is given, the sender was
// looked up already.
func (k inbound) takeEnvelope(ctx context.Context, in *incoming, envelope ocip.Envelope, from *sourced) (api.QueueResult, error) {
	var malformed error
	if in.chain, malformed = ocip.ParseChain(in.metadata["ocipChain"], k.now()); malformed != nil {
		// The message becomes a person's, so the app needs the right to bring one.
		if err := k.mayBring(in); err != nil {
			return api.QueueResult{}, err
		}
		return k.takeMalformed(in, malformed)
	}
	h, err := exchangehints.ParseInbound(in.metadata["exchange"], &envelope)
	if err != nil {
		return api.QueueResult{}, err
	}
	defer k.state.Lock(in.agent.InstanceID, envelope.SourceAgent.InstanceID)()
	ctx, now := context.WithoutCancel(ctx), k.now()
	if from == nil {
		if from, err = k.source(ctx, in, &envelope); err != nil {
			return api.QueueResult{}, err
		}
	}
	if from.denied != nil {
		return k.refuseEnvelope(in, &envelope, from)
	}
	in.spoke, in.chain = append(slices.Clip(in.spoke), from.spoke...), from.chain.Longer(in.chain)
	a := &arrival{
		agent: in.agent, from: from.Counterparty, envelope: envelope, key: cmp.Or(in.replyTo, in.key), exchangeID: h.ID, exchangeType: h.Type, summary: ocip.Summarize(in.content.Inspect(), in.label()),
		chain: in.chain, content: in.content, label: in.label(), passages: passages(in.metadata, in.isAddress), rendering: k.directory.Rendering(in.origin.Channel),
		dispatchID: in.dispatchID, approved: from.approved, shown: from.chain.ID != "",
	}
	v, err := k.arrive(ctx, a, now)
	if err != nil {
		return api.QueueResult{}, err
	}
	v.Level = max(v.Level, in.task.level)
	v.Shared, v.Withheld = exchangehints.ParseTracked(in.metadata["exchange"])
	v.Exchange.Track(v.Shared, v.Withheld)
	listed := from.Kind == ocip.KindAgent
	from.Kind = ocip.KindAgent
	r, err := k.receivedRecord(in.agent, from.Counterparty, v, in.key, in.content)
	if err != nil {
		return api.QueueResult{}, err
	}
	in.annotate(r, listed)
	change := &store.Change{Records: []*audit.Record{r}}
	if err := k.exchanges.Escalate(a.concern(), v, k.exchangeRules, change, now); err != nil {
		return api.QueueResult{}, err
	}
	if !v.Allowed() {
		return api.QueueResult{}, k.refuseWeighed(ctx, in, v, change, now)
	}
	if !listed {
		if err := k.meet(ctx, in, &envelope, change); err != nil {
			return api.QueueResult{}, err
		}
	}
	k.state.EnterLocked(change, v.Exchange)
	k.state.Owed.EnterLocked(change, in.agent.InstanceID, from.InstanceID, a.owed, v.Owed)
	in.chain, in.speaker, in.answer = v.Chain, envelope.SourceAgent.InstanceID, exchangestate.Answers(&v.Before)
	return k.take(in, change, v.Exchange.ExpiresAt)
}

// meet notes the agent that a session of a person's channel shows. A room has several writers, and one
// of them would otherwise decide which rules hold for all its readers.
func (k inbound) meet(ctx context.Context, in *incoming, envelope *ocip.Envelope, change *store.Change) error {
	if channel, _ := directory.Split(in.key); channel == directory.AgentChannel || in.origin.Listed || in.origin.Group || !k.learns(in) {
		return nil
	}
	return k.state.Seen.Note(ctx, in.key, in.agent, envelope.SourceAgent, change)
}

// refuseWeighed commits the refusal of a message that the daemon has weighed, with its effect on the
// exchange.
func (k inbound) refuseWeighed(ctx context.Context, in *incoming, v *ocip.Verdict, change *store.Change, now time.Time) error {
	r := change.Records[0]
	if err := k.heard(ctx, in, change); err != nil {
		return err
	}
	if err := k.ends(change, v, now); err != nil {
		return err
	}
	in.lane.settle(change)
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return refused(v, r)
}

// learns reports whether the daemon keeps what a message shows of its session: its agent, its
// origin, and its speakers. Only the app that has the channel knows that, or for an agent's own
// session the agent's app. Any other app could redirect others' answers.
func (k inbound) learns(in *incoming) bool {
	channel, _ := directory.Split(in.key)
	return channel == directory.AgentChannel || k.apps.Owns(k.terms, in.app, channel)
}

// sent compares a message that a runtime brings in with the one that an agent of this daemon sent
// to its agent. The sender's side of the exchange must know the round, its record must have the
// text, and the envelope must ask for no less than the sent one. It returns the mismatch, and sets
// chain and approval in from.
func (k inbound) sent(ctx context.Context, in *incoming, e *ocip.Envelope, from *sourced) (problem string, err error) {
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

// annotations returns the envelope and the chain of a message from its record.
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

// sentWithin limits how many messages of a conversation are searched for one that its receiver
// reports. An exchange has few rounds.
const sentWithin = 64

// observeReceived tells an agent's observers about a message that its runtime has received by
// itself.
func (k inbound) observeReceived(in *incoming, receipt store.Receipt, r *audit.Record, now time.Time) error {
	if len(k.apps.Listeners(api.MessageReceived)) == 0 {
		return nil
	}
	_, letter, err := k.keys.Close(nil, r.TenantID, in.form())
	if err != nil {
		return recordable(k.log, err)
	}
	seen, err := gate.Open(receipt, letter, nil)
	if err != nil {
		return err
	}
	about := in.about()
	about.Timestamp, about.AuditID = now.UnixMilli(), r.ID
	k.apps.Observe(k.terms, api.MessageReceived, seen, about, "", in.app)
	return nil
}

// take records an inbound message and lets the commit deliver it to its agent.
func (k inbound) take(in *incoming, change *store.Change, expires time.Time) (api.QueueResult, error) {
	done, err := in.carried.decides(k.pauses)
	if err != nil {
		return api.QueueResult{}, err
	}
	defer done()
	ctx, now := context.Background(), k.now()
	if k.inForce.Load() != k.ruleset {
		return api.QueueResult{}, hooks.ErrReplaced
	}
	if reason, paused := k.keptOut(in); paused {
		// An interceptor may have taken time.
		return k.refuseInbound(in, in.from, ocip.Paused, "pause", reason, "")
	}
	record := askedAbout(k.ruleset, change.Records[0])
	letter, d, err := in.close(k.ruleset, record, expires)
	if err != nil {
		return api.QueueResult{}, err
	}
	if d != nil {
		d.Enter(change)
		change.Add(store.Run{ID: in.runID, AgentID: in.agent.ID, SessionKey: in.key, QueuedAt: now})
	}
	fresh, err := k.remember(ctx, in, change, now)
	if err != nil {
		return api.QueueResult{}, err
	}
	result := api.QueueResult{RunID: in.runID, Queued: true}
	if d != nil {
		change.OnDurable(func(receipt store.Receipt) {
			k.outbox.Open(receipt, d)
			in.deliver = k.outbox.Offer(d)
		})
	}
	in.lane.settle(change)
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
		k.apps.Observe(k.terms, api.SessionStart, gate.Fact(api.SessionEvent(in.key, in.agent.ID)), in.about(), "", nil)
	}
	return result, nil
}

// remember enters into the change of a message what later decisions need of it: its causal chain, its
// origin, its speaker, and its session. Fresh is set if the message begins the session.
func (k inbound) remember(ctx context.Context, in *incoming, change *store.Change, now time.Time) (fresh *bool, err error) {
	switch {
	case in.speaker != "":
		err = k.state.Chains.Receive(ctx, in.agent.InstanceID, in.speaker, in.chain, in.answer, k.conversations.chainsSince(now), now, change)
	case k.freshens(in):
		err = k.state.Chains.BeginAnew(ctx, in.agent.InstanceID, now, change)
	}
	if err != nil {
		return nil, err
	}
	learns := k.learns(in)
	if learns && len(in.origin.Brought) > 0 {
		if err := k.state.Origins.Enter(ctx, change, exchangestate.OriginKey(k.directory, in.agent, in.key), in.account, in.origin.Brought, now); err != nil {
			return nil, err
		}
	}
	if err := k.heard(ctx, in, change); err != nil || !learns {
		return new(bool), err
	}
	return k.state.Sessions.Use(ctx, k.directory, in.key, in.agent, in.account, now, change)
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
	if err := k.records.content(r, gate.NewText(string(data))); err != nil {
		return api.OK{}, err
	}
	// A run ends regardless of pauses. Observers are not told while one holds.
	defer k.pauses.Deciding()()
	reason, paused := k.pauses.Reason(directory.ChannelOf(run.SessionKey), agent.ID)
	if paused {
		details["notTold"] = reason
	}
	letter, err := k.keys.CloseText(r.TenantID, data)
	if err != nil {
		return api.OK{}, recordable(k.log, err)
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
		k.apps.Observe(k.terms, api.AgentCompleted, ended, api.HookContext{AgentID: agent.ID, SessionKey: run.SessionKey, Timestamp: now.UnixMilli(), AuditID: r.ID}, "", nil)
	}
	return api.OK{OK: true}, nil
}

// heard enters the speaker of a message into a change, if the place has several readers. Only the
// app that has the channel knows the origin of a message.
func (k inbound) heard(ctx context.Context, in *incoming, c *store.Change) error {
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
