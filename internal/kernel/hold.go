package kernel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
	"github.com/openclawos/ocipd/internal/store"
)

// request returns the digest of the app's request. The same request has the same digest, in
// whatever order an encoder put the members of its metadata.
func (m *outgoing) request() string {
	if m.requested != "" {
		return m.requested
	}
	metadata := jsontext.Value(m.asked.Metadata.Append(nil))
	// Metadata that came in as JSON has a canonical form. Its numbers stay as written, since two whole
	// numbers can be one double.
	_ = metadata.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	// The digest covers the receiver: a session can come to belong to somebody else.
	m.requested = approval.Asked(api.ApprovalOfMessage,
		m.asked.SessionKey, m.asked.Content.Inspect(), string(metadata), strconv.FormatBool(m.carried), string(m.to.Kind), m.to.InstanceID, m.target)
	return m.requested
}

// keptMessage holds the parts of a held message that people are not shown.
type keptMessage struct {
	Carried bool `json:"carried,omitzero"`
	// Unlabelled is set if the label of an agent's message is only in its annotation.
	Unlabelled bool   `json:"unlabelled,omitzero"`
	Redeem     bool   `json:"redeem,omitzero"`
	Account    string `json:"account,omitzero"`
	// Metadata is kept as text, so that every byte stays.
	Metadata string `json:"metadata"`
	// Changes names the interceptors that changed the message.
	Changes []string `json:"changes,omitempty"`
}

// hold stores a message for a person, in the commit of the decision that asks for one. The caller
// holds the pair's lock.
func (k *ruleset) hold(ctx context.Context, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) (api.DispatchResult, error) {
	r := k.newRequest(m, v, k.newID(), now)
	if !k.requests.Reserve(r, k.cfg.MaxHeld) {
		if v.Exhausted() {
			// Even if no request can be made, the two agents are stopped.
			k.state.Refuse(change, v, now)
		}
		v.DenyTooManyPending(fmt.Sprintf(
			"%d messages of agent %s wait for a person already; decide about them first: ocipd approvals list --agent %s", k.cfg.MaxHeld, m.sender.ID, m.sender.ID))
		return api.DispatchResult{}, k.refuseOnly(m, v, change)
	}
	record, err := k.enterRequest(ctx, r, m, v, st, change, now)
	var result api.DispatchResult
	if err == nil {
		k.state.Refuse(change, v, now)
		result = r.Held(record.ID)
		err = m.answered(change, &result)
	}
	if err == nil {
		_, err = k.commit(change)
	}
	if err != nil {
		k.requests.Free(r)
		return api.DispatchResult{}, err
	}
	k.state.Entered(change)
	return result, nil
}

// enterRequest enters the request to release a message, and the record of it.
func (k *ruleset) enterRequest(ctx context.Context, r *approval.Request, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) (*audit.Record, error) {
	s := &heldMessage{
		k: k, r: r, m: m, st: st,
		kept: keptMessage{Carried: m.carried, Unlabelled: m.unlabelled, Redeem: m.redeems, Account: m.account, Metadata: string(m.metadata.Append(nil)), Changes: m.changedBy},
	}
	var err error
	if r.Own, err = json.Marshal(&s.kept); err != nil {
		return nil, fmt.Errorf("cannot encode a held message: %w", err)
	}
	s.show(ctx, now)
	if err := k.requests.Add(r, s, change); err != nil {
		return nil, err
	}
	m.approvalID = r.ApprovalID
	record, err := k.sentRecord(m, v)
	if err != nil {
		return nil, err
	}
	if err := k.records.named(record, r); err != nil {
		return nil, err
	}
	change.Records = append(change.Records, record)
	return record, nil
}

// heldAlready answers from a pending request for the same message, and reports whether there is
// one: nobody is asked twice. The caller holds the pair's lock.
func (k *ruleset) heldAlready(ctx context.Context, m *outgoing) (result api.DispatchResult, already bool, err error) {
	id := k.requests.Waiting(api.ApprovalOfMessage, m.sender.InstanceID, m.request)
	if id == "" {
		return result, false, nil
	}
	waits, err := k.requests.Get(ctx, id)
	if err != nil {
		return result, true, err
	}
	if waits.OverAt(k.now()) {
		// That request has expired; this message makes a new one.
		return result, false, k.decider.Expire(ctx, waits)
	}
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionApproval, Event: "asked_again", AppID: m.appID, AgentID: waits.Agent, UserID: waits.UserID,
		TenantID: m.sender.TenantID, SessionKey: waits.SessionKey, ExchangeID: waits.ExchangeID, ConversationID: waits.ConversationID,
		PolicyResult: string(ocip.RequireApproval), Code: waits.Code, ApprovalID: id, DispatchID: waits.DispatchID,
	}
	result = waits.Held(r.ID)
	change := &store.Change{Records: []*audit.Record{r}}
	if err := m.answered(change, &result); err != nil {
		return result, true, err
	}
	_, err = k.commit(change)
	return result, true, err
}

// newRequest makes a request from a message and the verdict that holds it.
func (k *ruleset) newRequest(m *outgoing, v *ocip.Verdict, id string, now time.Time) *approval.Request {
	e := &v.Exchange
	expires := k.exchangeRules.WaitsUntil(e, now)
	h := &approval.Request{
		Asked: m.request(),
		Approval: api.Approval{
			ApprovalSummary: api.ApprovalSummary{
				ApprovalID: id, Kind: api.ApprovalOfMessage, Target: m.target, Code: string(v.Code), Reason: v.Reason, AgentID: m.sender.ID, Agent: m.sender.InstanceID, AppID: m.appID,
				UserID: m.sender.UserID, SessionKey: m.key, TaskID: m.task.ID, Counterparty: m.to.InstanceID,
				ExchangeID: e.ID, ConversationID: e.ConversationID, Type: e.Type, Round: e.Round, MaxRounds: e.MaxRounds,
				Classification: v.Level.String(), Summary: v.Says(m.content.Inspect(), m.sender.Label()), DispatchID: m.dispatchID,
				Reasons: v.Grounds, Estimate: opinion.Estimate{Guess: v.Guess()},
				AskedAt: now.UnixMilli(), ExpiresAt: expires.UnixMilli(), Needed: ocip.PeopleNeeded(v.Approvers, k.cfg.Approvers),
			},
			Media: m.media, PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Content: m.content.Inspect(), ContentBytes: m.content.Len(), Transcript: e.Transcript,
			Detections: approval.Detections(v), Extracts: extracts(m, v), Exchange: offered(v), NoExchange: v.NoOffer,
		},
	}
	reaches(h, m)
	h.RequiresHuman, _ = v.Details["requiresHuman"].(bool)
	h.DetectedKeywords, _ = v.Details["detectedKeywords"].([]string)
	h.EscalatedExchange, _ = v.Details["escalatedExchange"].(string)
	if escalation, ok := v.Details["escalation"].(ocip.Escalation); ok {
		h.Escalation = &escalation
	}
	if chain, ok := v.Details["chain"].(ocip.Chain); ok {
		h.Chain = &chain
	}
	return h
}

// reaches enters into a request the receiver of its message and the address.
func reaches(r *approval.Request, m *outgoing) {
	r.CounterpartyKind, r.CounterpartyUserID, r.CounterpartyTenantID = m.to.Kind, m.reader(), m.to.TenantID
	r.Address, r.Group = audit.Address{}, m.local == nil && m.recipient.Group
	if m.local == nil {
		r.Address = audit.Address{Channel: m.channel, Account: m.account, Target: m.target}
	}
}

// show computes the message that would be sent if a person approved it now, or the reason why it
// could not be.
func (s *heldMessage) show(ctx context.Context, now time.Time) {
	k, m, r := s.k, s.m, s.r
	v := k.weigh(ctx, m, reopened(s.st, m, now), ocip.Approved, now)
	r.Approvable, r.Blocked, r.Sending = v.Allowed(), "", nil
	r.DataShared, r.DataWithheld = v.Shared, v.Withheld
	if v.Allowed() {
		sending := *m
		sending.changedBy = slices.Clone(m.changedBy)
		k.stamp(&sending, v)
		shown := sending.emitted()
		shown.DispatchID = "" // the held message keeps its own id
		r.Sending = shown.Append(nil)
		r.Needed = ocip.PeopleNeeded(v.Approvers, k.cfg.Approvers)
	} else {
		r.Blocked = v.Reason
	}
	if v.PolicyRevision != "" {
		r.PolicyRevision = v.PolicyRevision
	}
	s.showFound(v)
	s.v = v
}

// showFound enters the current attachments of the message, and the current findings in its texts.
func (s *heldMessage) showFound(v *ocip.Verdict) {
	m, r := s.m, s.r
	changed := alongside(r.Media) != alongside(m.media)
	if r.Media = m.media; changed && r.Exchange != nil {
		r.Exchange, r.NoExchange = nil, "what goes along has changed since the message was held"
	}
	if v.Allowed() || changed {
		// If the message is allowed, every rule has looked at it.
		r.Detections, r.Extracts = approval.Detections(v), extracts(m, v)
	}
}

// extracts returns the parts of a message's texts that people are shown besides its content.
func extracts(m *outgoing, v *ocip.Verdict) (list []api.Extract) {
	for _, e := range slices.Concat(m.extracts, ocip.Extracts(v.Detections, m.named(m.passages))) {
		list = append(list, api.Extract(e))
	}
	return list
}

// Shown returns the message as the app requested it, the message that would be sent and its
// receiver, and the attached files.
func (s *heldMessage) Shown() approval.View {
	r := s.r
	return approval.View{
		Asked: []string{r.SessionKey, r.Content, s.kept.Metadata}, Effect: string(approval.Timeless(r.Sending, "ocipChain", exchangestate.LogHeadName)),
		Members: []approval.Member{
			{Name: "counterparty", Text: r.Counterparty}, {Name: "counterpartyKind", Text: string(r.CounterpartyKind)},
			{Name: "counterpartyUserId", Text: r.CounterpartyUserID}, {Name: "counterpartyTenantId", Text: r.CounterpartyTenantID}, {Name: "target", Text: r.Target},
			{Name: "address.channel", Text: r.Address.Channel}, {Name: "address.account", Text: r.Address.Account}, {Name: "group", Text: strconv.FormatBool(r.Group)},
			{Name: "media", Text: alongside(r.Media)},
		},
		Approvable: "may be sent once approved", Refused: "it may not be sent any more", Instead: "deny it, resolve the exchange, or take it over",
	}
}

// alongside lists the attachments of a message for comparison, one item per line.
func alongside(items []api.MediaItem) string {
	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = fmt.Sprintf("%s: %q", item.Member, cmp.Or(item.Path, item.URL))
		if item.SHA256 != "" {
			lines[i] += fmt.Sprintf(", %d bytes, SHA-256 %s", item.Bytes, item.SHA256)
		}
	}
	return strings.Join(lines, "\n")
}

// reopened returns the state after a person has looked: the exchange goes on, and the message
// begins a causal chain of its own.
func reopened(st *standing, m *outgoing, now time.Time) *standing {
	again := *st
	if again.exchange.Outcome == ocip.Escalated {
		again.exchange.Outcome = ocip.InProgress
	}
	again.cause = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
	return &again
}
