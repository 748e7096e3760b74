package kernel

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// arriveLocally weighs an allowed message on the side of its receiver, an agent of this daemon, and
// enters that side's record and state into the sender's change. The caller holds the pair's lock.
// RunID is "" if the receiver's runtime brings the message in by itself: if the receiver takes the
// message, that runtime's report makes the record, and the obligations from the message hold with
// or without the report.
func (k *ruleset) arriveLocally(ctx context.Context, m *outgoing, runID string, sent *ocip.Verdict, change *store.Change, now time.Time) (*ocip.Verdict, error) {
	a, v, err := k.meets(ctx, m, sent, now)
	if err != nil {
		return nil, err
	}
	if runID == "" && v.Allowed() {
		return v, k.conversations.binds(ctx, m, a, v, change, now)
	}
	// The receiver's own record lists the data that reached it and the data that were withheld.
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
		if err := k.conversations.binds(ctx, m, a, v, change, now); err != nil {
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
		// The receiver's replies go back the way that the message came.
		key: directory.ReplyKey(m.sender, m.local, m.target), exchangeID: sent.Exchange.ID, exchangeType: sent.Exchange.Type, summary: m.summary(), claimed: m.hints.Summary != "",
		chain: sent.Chain, content: m.content, label: m.sender.Label(), passages: passages(m.metadata, m.recipient.IsAddress), dispatchID: m.dispatchID, approved: m.approvalID != "" && m.person != ocip.Judged, judged: m.person == ocip.Judged, local: true,
	}
	v, err := k.arrive(ctx, a, now)
	return a, v, err
}

// refusedByReceiver records both sides of a message that its receiver, in this daemon, did not
// take. It is not delivered and takes no round, and the sender's exchange ends as the receiver's
// did.
func (k *ruleset) refusedByReceiver(m *outgoing, sent, arrived *ocip.Verdict, change *store.Change) error {
	if m.conclude != nil {
		if err := m.conclude(arrived); err != nil {
			return err
		}
	}
	r, limit := m.record, sent.Exchange.MaxRounds
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
	chain   ocip.Chain
	content gate.Text
	// label is the label of the content, by its annotation.
	label      string
	passages   []ocip.Passage
	rendering  []text.Rendering
	dispatchID string
	// owed is the agent's debt to the sender before this message.
	owed ocip.Owed
	// approved messages were approved by a person of this daemon.
	approved bool
	// judged messages were released by the operator's model.
	judged bool
	// local messages come from an agent of this daemon. The sender's side was timed already:
	// reading the clock costs more than counting.
	local bool
	// shown is set if the daemon knows the chain from its own agent's message.
	shown bool
}

func (a *arrival) concern() *exchanges.Concern {
	return &exchanges.Concern{Agent: a.agent, Other: a.from, Key: a.key, Summary: ocip.Summarize(a.content.Inspect(), a.label), DispatchID: a.dispatchID, Known: a.approved}
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
	line, err := k.conversations.arrived(ctx, a, &e, now)
	if err != nil {
		return nil, err
	}
	if a.owed, err = k.state.Owed.OfLocked(ctx, a.agent.InstanceID, a.envelope.SourceAgent.InstanceID); err != nil {
		return nil, err
	}
	escalated, err := k.state.EscalationLocked(ctx, exchangestate.PairOf(&e))
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
		Content: a.content.Inspect(), Passages: a.passages, Rendering: a.rendering, Rules: k.cfg.Rules, Approved: a.approved, Judged: a.judged,
	}
	v := ocip.Receive(ctx, m, k.policy)
	if m.Grants = grantsOf(k.grants, k.signers, a.agent, &e, v); len(m.Grants) > 0 {
		v = ocip.Receive(ctx, m, k.policy)
	}
	if !a.local {
		k.metrics.Decided(k.now().Sub(began))
	}
	return v, nil
}

// receivedRecord is the receiver's record of a verdict.
func (k *ruleset) receivedRecord(agent *Agent, from ocip.Counterparty, v *ocip.Verdict, key string, content gate.Text) (*audit.Record, error) {
	r := k.records.verdict(audit.SideReceiver, agent, v)
	r.SessionKey = key
	r.Counterparty = counterpartyRecord(from.Kind, from.Identity)
	k.grants.Name(agent.InstanceID, v.Grant, r)
	if directory.ChannelOf(key) == directory.AgentChannel && k.directory.Local(from.InstanceID) == nil {
		r.Details[audit.Outside] = true
	}
	return r, k.records.content(r, content)
}
