package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// holds knows the messages that wait for a person. What they are is in the
// store; here is only what every message must be compared with.
type holds struct {
	mu sync.Mutex
	// asked holds, by agent, what was asked for and waits: the digest of the
	// request and its approval.
	asked    map[string]map[string]string
	watchers map[*approvalWatch]struct{}
}

func newHolds(ctx context.Context, s *store.Store) (*holds, error) {
	h := &holds{asked: make(map[string]map[string]string), watchers: make(map[*approvalWatch]struct{})}
	return h, s.Pending(ctx, func(id, agent, asked string) { h.put(agent, asked, id) })
}

// put is called with the lock, or before anybody else knows the holds.
func (h *holds) put(agent, asked, id string) {
	whose := bucket(agent, asked)
	if h.asked[whose] == nil {
		h.asked[whose] = make(map[string]string)
	}
	h.asked[whose][asked] = id
}

// escalations begins the names of what a person must see to and that nothing waits
// for. They are counted apart: who writes to an agent must not take the places of
// what the agent asks for.
const escalations = "escalation:"

// bucket is what a request is counted with.
func bucket(agent, asked string) string {
	if strings.HasPrefix(asked, escalations) {
		return escalations + agent
	}
	return agent
}

// named returns the approval that a request waits for, or "".
func (h *holds) named(agent, asked string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[bucket(agent, asked)][asked]
}

// room reports whether a request is new and there is a place for it.
func (h *holds) room(agent, asked string, limit int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.asked[bucket(agent, asked)]
	return mine[asked] == "" && len(mine) < limit
}

// enter takes a place for what is durable already, and tells those who watch.
func (h *holds) enter(waits *held) {
	h.mu.Lock()
	h.put(waits.Agent, waits.Asked, waits.ApprovalID)
	h.mu.Unlock()
	h.tell(waits.ApprovalID)
}

// waiting returns the approval that the same request waits for already, or "".
func (h *holds) waiting(m *outgoing) string {
	h.mu.Lock()
	some := len(h.asked[m.sender.InstanceID]) > 0
	h.mu.Unlock()
	if !some {
		return ""
	}
	// The digest of a long message is not for the lock that all agents share.
	asked := m.request()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[m.sender.InstanceID][asked]
}

// count is how many requests wait.
func (h *holds) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mine := range h.asked {
		n += len(mine)
	}
	return n
}

// reserve takes a place for a request, unless its agent has as many waiting as
// may.
func (h *holds) reserve(m *outgoing, id string, limit int) bool {
	asked := m.request()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked[m.sender.InstanceID]) >= limit {
		return false
	}
	h.put(m.sender.InstanceID, asked, id)
	return true
}

// free gives a place back, when a request is decided or was never recorded.
func (h *holds) free(agent, asked string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	whose := bucket(agent, asked)
	if delete(h.asked[whose], asked); len(h.asked[whose]) == 0 {
		delete(h.asked, whose)
	}
}

// request is the digest of what the app asked for: the same again is the same
// request, in whatever order an encoder put the members of its metadata.
func (m *outgoing) request() string {
	if m.requested != "" {
		return m.requested
	}
	metadata := jsontext.Value(m.asked.Metadata.Append(nil))
	// What came in as JSON has a canonical form.
	_ = metadata.Canonicalize()
	// Whom it is for is part of it: a session can come to be somebody else's.
	m.requested = digestOf(m.asked.SessionKey, m.asked.Content, string(metadata), strconv.FormatBool(m.carried), string(m.to.Kind), m.to.InstanceID, m.target)
	return m.requested
}

// digestOf is the digest of texts, in their order.
func digestOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// held is a message that waits for a person: all that its release needs, and
// all that the person does.
type held struct {
	Asked   string `json:"asked"`
	Carried bool   `json:"carried,omitzero"`
	Account string `json:"account,omitzero"`
	// Metadata is its text, so that it keeps every byte.
	Metadata string `json:"metadata"`
	// Anew counts how often a person had to be asked anew, so that no digest
	// that was shown once is ever good again.
	Anew int `json:"anew,omitzero"`
	// Changes are those of the interceptors.
	Changes []string `json:"changes,omitempty"`
	api.Approval
}

// end names whom a held message is for.
func (h *held) end() string {
	if h.CounterpartyKind == ocip.KindAgent {
		return "agent " + h.Counterparty
	}
	return h.To()
}

func (h *held) encode(state string) (store.Approval, error) {
	h.State = state
	summary, err := json.Marshal(&h.ApprovalSummary)
	if err != nil {
		return store.Approval{}, fmt.Errorf("cannot encode a held message: %w", err)
	}
	body, err := json.Marshal(h)
	if err != nil {
		return store.Approval{}, fmt.Errorf("cannot encode a held message: %w", err)
	}
	return store.Approval{
		ID: h.ApprovalID, Agent: h.Agent, AppID: h.AppID, ExchangeID: h.ExchangeID, Asked: h.Asked, State: state,
		ExpiresAt: time.UnixMilli(h.ExpiresAt), Summary: summary, Body: body,
	}, nil
}

// forget drops what was to be said, once that is decided: nobody decides again.
// What stays says who wanted to say how much to whom, what was found in it, why
// it waited, and the digest that names it.
func (h *held) forget() {
	h.Forgotten = true
	h.Content, h.Summary, h.Sending, h.Metadata = "", "", nil, ""
	h.Changed = slices.DeleteFunc(slices.Clone(h.Changed), func(c api.ApprovalChange) bool { return c.Field == changedSending })
}

func decodeHeld(a store.Approval) (*held, error) {
	h := new(held)
	if err := json.Unmarshal(a.Body, h); err != nil {
		return nil, fmt.Errorf("cannot decode approval %s: %w", a.ID, err)
	}
	if h.Kind == "" {
		// It was written before anything but messages to agents could wait.
		h.Kind, h.CounterpartyKind = api.ApprovalOfMessage, ocip.KindAgent
		_, h.Target = directory.Split(h.SessionKey)
	}
	return h, nil
}

// hold stores a message for a person, in the commit of the decision that asks
// for one. It is called under the pair's lock.
func (k *ruleset) hold(ctx context.Context, m *outgoing, v *ocip.Verdict, st *standing, change *store.Change, now time.Time) (api.DispatchResult, error) {
	id := k.newID()
	if !k.holds.reserve(m, id, k.cfg.MaxHeld) {
		if v.Exhausted() {
			// There may be no place to ask, but the two are stopped all the same.
			k.exchanges.refuse(change, v, now)
		}
		v.Crowd(fmt.Sprintf(
			"%d messages of agent %s wait for a person already; decide about them first: ocipd approvals list --agent %s", k.cfg.MaxHeld, m.sender.ID, m.sender.ID))
		return api.DispatchResult{}, k.refuseOnly(m, v, change)
	}
	h := k.newHeld(m, v, id, now)
	k.preview(ctx, m, h, st, now)
	m.approvalID = id
	r, err := k.sentRecord(m, v)
	if err != nil {
		k.holds.free(h.Agent, h.Asked)
		return api.DispatchResult{}, err
	}
	r.Details["digest"], r.Details["expiresAt"] = h.Digest, h.ExpiresAt
	change.Records = append(change.Records, r)
	k.exchanges.refuse(change, v, now)
	stored, err := h.encode(api.ApprovalPending)
	if err != nil {
		k.holds.free(h.Agent, h.Asked)
		return api.DispatchResult{}, err
	}
	stored.New = true
	change.Approvals = append(change.Approvals, stored)
	if _, err := k.commit(change); err != nil {
		k.holds.free(h.Agent, h.Asked)
		return api.DispatchResult{}, err
	}
	k.entered(change)
	k.holds.tell(h.ApprovalID)
	if k.notify != nil {
		k.notify.Held(h.ApprovalSummary)
	}
	return heldResult(h, r.ID), nil
}

// heldAlready answers a request that waits already, and reports whether one does:
// nothing is asked twice. It is called under the pair's lock.
func (k *ruleset) heldAlready(ctx context.Context, m *outgoing) (result api.DispatchResult, already bool, err error) {
	id := k.holds.waiting(m)
	if id == "" {
		return result, false, nil
	}
	h, err := k.lookUp(ctx, id)
	if err != nil {
		return result, true, err
	}
	if k.now().UnixMilli() >= h.ExpiresAt {
		// Its time is over; this is a request of its own.
		return result, false, k.expireApproval(ctx, h)
	}
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionApproval, Event: "asked_again", AppID: m.appID, AgentID: h.Agent, UserID: h.UserID,
		TenantID: m.sender.TenantID, SessionKey: h.SessionKey, ExchangeID: h.ExchangeID, ConversationID: h.ConversationID,
		PolicyResult: string(ocip.RequireApproval), Code: h.Code, ApprovalID: id, DispatchID: h.DispatchID,
	}
	if _, err := k.record(r); err != nil {
		return result, true, err
	}
	return heldResult(h, r.ID), true, nil
}

// heldResult is what the caller of a held message sees.
func heldResult(h *held, auditID string) api.DispatchResult {
	ref := &api.ExchangeRef{
		ExchangeID: h.ExchangeID, ConversationID: h.ConversationID, Round: h.Round, MaxRounds: h.MaxRounds, AuditID: auditID,
		Code: ocip.Code(h.Code), Reason: h.Reason, RequiresHuman: h.RequiresHuman, DetectedKeywords: h.DetectedKeywords, Escalation: h.Escalation, Chain: h.Chain,
		EscalatedExchange: h.EscalatedExchange,
	}
	return api.DispatchResult{DispatchID: h.DispatchID, Queued: true, Held: true, ApprovalID: h.ApprovalID, OCIP: ref}
}

// waitsUntil is until when a person is waited for: at most as long as the exchange
// lasts.
func (k *ruleset) waitsUntil(e *ocip.Exchange, now time.Time) time.Time {
	expires := now.Add(k.cfg.HoldFor)
	if !e.ExpiresAt.IsZero() && e.ExpiresAt.Before(expires) {
		return e.ExpiresAt
	}
	return expires
}

// newHeld writes down a message and the verdict that holds it.
func (k *ruleset) newHeld(m *outgoing, v *ocip.Verdict, id string, now time.Time) *held {
	e := &v.Exchange
	expires := k.waitsUntil(e, now)
	h := &held{
		Asked: m.request(), Carried: m.carried, Account: m.account, Metadata: string(m.metadata.Append(nil)), Changes: m.changedBy,
		Approval: api.Approval{
			ApprovalSummary: api.ApprovalSummary{
				ApprovalID: id, Kind: api.ApprovalOfMessage, CounterpartyKind: m.to.Kind, Target: m.target, Code: string(v.Code), Reason: v.Reason, AgentID: m.sender.ID, Agent: m.sender.InstanceID, AppID: m.appID,
				UserID: m.sender.UserID, SessionKey: m.key, Counterparty: m.to.InstanceID, CounterpartyUserID: m.reader(),
				ExchangeID: e.ID, ConversationID: e.ConversationID, Type: e.Type, Round: e.Round, MaxRounds: e.MaxRounds,
				Classification: v.Level.String(), Summary: ocip.Summarize(m.content), DispatchID: m.dispatchID,
				AskedAt: now.UnixMilli(), ExpiresAt: expires.UnixMilli(), Needed: max(v.Approvers, k.cfg.Approvers, 1),
			},
			Media: m.media, SignatureRequired: k.signers != nil, PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Content: m.content, ContentBytes: len(m.content), Transcript: e.Transcript,
			Detections: detections(v),
		},
	}
	h.RequiresHuman, _ = v.Details["requiresHuman"].(bool)
	h.DetectedKeywords, _ = v.Details["detectedKeywords"].([]string)
	h.EscalatedExchange, _ = v.Details["escalatedExchange"].(string)
	if escalation, ok := v.Details["escalation"].(ocip.Escalation); ok {
		h.Escalation = &escalation
	}
	if v.Code == ocip.ChainLimit {
		h.Chain = &v.Chain
	}
	return h
}

// preview works out what would leave if a person approved the message now, and
// why it could not if it could not. The digest is over just that.
func (k *ruleset) preview(ctx context.Context, m *outgoing, h *held, st *standing, now time.Time) *ocip.Verdict {
	v := k.weigh(ctx, m, reopened(st, m, now), ocip.Approved, now)
	h.Approvable, h.Blocked, h.Sending = v.Allowed(), "", nil
	h.DataShared, h.DataWithheld = v.Shared, v.Withheld
	if v.Allowed() {
		sending := *m
		sending.changedBy = slices.Clone(m.changedBy)
		k.stamp(&sending, v)
		shown := sending.emitted()
		shown.DispatchID = "" // the message's own, whatever becomes of it
		h.Sending = shown.Append(nil)
		h.Needed = max(v.Approvers, k.cfg.Approvers, 1)
	} else {
		h.Blocked = v.Reason
	}
	if v.PolicyRevision != "" {
		h.PolicyRevision = v.PolicyRevision
	}
	h.name()
	return v
}

// name gives what waits its digest.
func (h *held) name() {
	h.Digest = h.digest()
	h.ToSign = make(map[string]string)
	for _, decision := range api.Decisions() {
		h.ToSign[decision] = api.SignedText(h.ApprovalID, decision, h.Digest)
	}
}

// reopened is how things are once a person has looked: the exchange goes on, and
// the message begins a causal line of its own.
func reopened(st *standing, m *outgoing, now time.Time) *standing {
	again := *st
	if again.exchange.Outcome == ocip.Escalated {
		again.exchange.Outcome = ocip.InProgress
	}
	again.cause = ocip.BeginChain(m.dispatchID, m.sender.InstanceID, now)
	return &again
}

// digest names exactly what waits: the message as it was asked for, what would
// be sent, why it waits and under which policy. When it was weighed is no part
// of it, so that what has not changed keeps its digest.
func (h *held) digest() string {
	parts := []string{h.ApprovalID, h.SessionKey, h.Content, h.Metadata, string(timeless(h.Sending)), h.Code, h.PolicyRevision, h.Blocked, strconv.Itoa(h.Anew)}
	for _, item := range h.Media {
		parts = append(parts, item.Member, item.URL, item.Path, item.SHA256)
	}
	return digestOf(parts...)
}

// timeless is what would be sent without what is of the moment it is sent at, its
// causal line's beginning and the log's newest checkpoint, in the one form it
// has whether or not it was stored.
func timeless(sending jsontext.Value) jsontext.Value {
	var m api.EmittedMessage
	if len(sending) == 0 || json.Unmarshal(sending, &m) != nil {
		return sending
	}
	delete(m.Metadata, "ocipChain")
	delete(m.Metadata, logHeadName)
	sending = m.Append(nil)
	// What was decoded can be formatted.
	_ = sending.Format()
	return sending
}
