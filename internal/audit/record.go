// Package audit is the form of the evidence: what a record says, how records
// are chained, and how a chain is checked.
//
// A record becomes a line: one JSON object with its sequence number, the hash
// of the line before it and its own hash. The line is the record; it is stored
// and mirrored byte for byte, so whoever checks it never has to encode anything
// again. This room does no I/O: the caller stores a sealed line durably before
// anything the record allows may happen, and advances its [Head] only then.
package audit

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/text"
)

// Action types a record can have (protocol, Records).
const (
	ActionExchange     = "agent_exchange"
	ActionApproval     = "approval"
	ActionPolicyChange = "policy_change"
	ActionConfigChange = "config_change"
	ActionAppLifecycle = "app_lifecycle"
	ActionDelivery     = "delivery"
	ActionSecurity     = "security"
	ActionCheckpoint   = "checkpoint"
)

// The two sides of an exchange, each with its own record.
const (
	SideSender   = "sender"
	SideReceiver = "receiver"
)

// Record is one audit record. Empty fields are left out of the line.
type Record struct {
	ID         string `json:"id"`
	ActionType string `json:"actionType"`
	// Event says what happened within the action type, such as "registered".
	Event        string       `json:"event,omitzero"`
	Side         string       `json:"side,omitzero"`
	TenantID     string       `json:"tenantId,omitzero"`
	UserID       string       `json:"userId,omitzero"`
	AgentID      string       `json:"agentId,omitzero"`
	AppID        string       `json:"appId,omitzero"`
	Counterparty Counterparty `json:"counterparty,omitzero"`
	SessionKey   string       `json:"sessionKey,omitzero"`
	// Address is where the message goes, or came from: what its channel's app
	// sends to.
	Address Address `json:"address,omitzero"`

	ExchangeID     string `json:"exchangeId,omitzero"`
	ConversationID string `json:"conversationId,omitzero"`
	Round          int    `json:"round,omitzero"`
	MaxRounds      int    `json:"maxRounds,omitzero"`
	ExchangeType   string `json:"exchangeType,omitzero"`
	// ChainID names the causal line of the message, and Hops its place there.
	ChainID        string `json:"chainId,omitzero"`
	Hops           int    `json:"hops,omitzero"`
	Classification string `json:"classification,omitzero"`

	PolicyApplied  string `json:"policyApplied,omitzero"`
	PolicyRevision string `json:"policyRevision,omitzero"`
	PolicyResult   string `json:"policyResult,omitzero"`
	PolicyReason   string `json:"policyReason,omitzero"`
	Code           string `json:"code,omitzero"`
	Outcome        string `json:"outcome,omitzero"`

	// The two lists are nil, and left out, where the record is about no message.
	DataShared   []Shared    `json:"dataShared,omitzero"`
	DataWithheld []Withheld  `json:"dataWithheld,omitzero"`
	Detections   []Detection `json:"detections,omitempty"`

	ContentDigest string `json:"contentDigest,omitzero"`
	ContentBytes  int    `json:"contentBytes,omitzero"`
	Content       string `json:"content,omitzero"`
	// DeliveredDigest is the keyed digest of all that is handed over, in the form
	// of [DeliveredForm].
	DeliveredDigest string         `json:"deliveredDigest,omitzero"`
	DispatchID      string         `json:"dispatchId,omitzero"`
	RunID           string         `json:"runId,omitzero"`
	ApprovalID      string         `json:"approvalId,omitzero"`
	Details         map[string]any `json:"details,omitempty"`
}

// Counterparty is the other end, as far as it is known.
type Counterparty struct {
	Kind       string `json:"kind,omitzero"`
	InstanceID string `json:"instanceId,omitzero"`
	UserID     string `json:"userId,omitzero"`
	OrgUnit    string `json:"orgUnit,omitzero"`
	TenantID   string `json:"tenantId,omitzero"`
}

// Address is where somebody is reached: an account at a channel and a target there.
type Address struct {
	Channel string `json:"channel,omitzero"`
	Account string `json:"account,omitzero"`
	Target  string `json:"target,omitzero"`
}

// Shared names data that was included in a message (OCIP reference, Data
// Tracking).
type Shared struct {
	Source string   `json:"source"`
	Fields []string `json:"fields"`
}

// Withheld names data that was kept back, and why.
type Withheld struct {
	Reason      string `json:"reason"`
	Description string `json:"description"`
}

// Detection is one thing a detector saw. It never holds the text itself.
type Detection struct {
	Rule string `json:"rule"`
	// Member is where the text stands in the message, empty for its content.
	Member string `json:"member,omitzero"`
	Start  int    `json:"start"`
	End    int    `json:"end"`
	Zone   string `json:"zone,omitzero"`
	// Shadow marks what was recorded and had no effect.
	Shadow bool `json:"shadow,omitzero"`
}

// RedactedText begins what stands in a record for a text that the operator wanted
// kept out of the log.
const RedactedText = "redacted"

// Redacted reports whether a text of a record stands for another one.
func Redacted(text string) bool {
	return text == RedactedText || strings.HasPrefix(text, RedactedText+":")
}

// Entry is a record with its place in the chain, as read back from a line.
type Entry struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Record
	Prev Hash `json:"prev"`
	Hash Hash `json:"hash"`
}

// MaxBodyBytes bounds one record, so that a line always fits a reader's
// buffer.
const MaxBodyBytes = 1 << 20

// errNotText means that a field is not UTF-8: what was replaced in it would not be
// what is recorded.
var errNotText = errors.New("not UTF-8")

// Encode makes the body that [Head.Seal] puts into a line, as the JSON library
// would, but that what does not show in a text is an escape: a line can be
// printed as it is. One is written for every message. It fails for a field that is not UTF-8,
// for details that cannot be encoded and above [MaxBodyBytes].
func Encode(r *Record) ([]byte, error) {
	body, err := r.append(make([]byte, 0, usualBody+len(r.Content)))
	if err != nil {
		return nil, fmt.Errorf("cannot encode audit record %s: %w", r.ID, err)
	}
	body = text.EscapeJSON(body, 0)
	if len(body) > MaxBodyBytes {
		return nil, fmt.Errorf("cannot encode audit record %s: %d bytes, limit %d", r.ID, len(body), MaxBodyBytes)
	}
	return body, nil
}

// usualBody is what the record of a message takes without its content.
const usualBody = 1024

func (r *Record) append(b []byte) ([]byte, error) {
	var failure error
	text := func(name, value string) {
		if !utf8.ValidString(value) {
			failure = fmt.Errorf("%s: %w", name, errNotText)
		}
		b = jsonline.TextIfAny(b, name, value)
	}
	other := func(name string, value any) {
		encoded, err := json.Marshal(value, json.Deterministic(true))
		if err != nil {
			failure = fmt.Errorf("%s: %w", name, err)
		}
		b = append(jsonline.Key(b, name), encoded...)
	}
	b = jsonline.Text(append(b, '{'), "id", r.ID)
	b = jsonline.Text(b, "actionType", r.ActionType)
	text("event", r.Event)
	text("side", r.Side)
	text("tenantId", r.TenantID)
	text("userId", r.UserID)
	text("agentId", r.AgentID)
	text("appId", r.AppID)
	if r.Counterparty != (Counterparty{}) {
		b = append(jsonline.Key(b, "counterparty"), '{')
		text("kind", r.Counterparty.Kind)
		text("instanceId", r.Counterparty.InstanceID)
		text("userId", r.Counterparty.UserID)
		text("orgUnit", r.Counterparty.OrgUnit)
		text("tenantId", r.Counterparty.TenantID)
		b = append(b, '}')
	}
	text("sessionKey", r.SessionKey)
	if r.Address != (Address{}) {
		b = append(jsonline.Key(b, "address"), '{')
		text("channel", r.Address.Channel)
		text("account", r.Address.Account)
		text("target", r.Address.Target)
		b = append(b, '}')
	}
	text("exchangeId", r.ExchangeID)
	text("conversationId", r.ConversationID)
	b = jsonline.IntIfAny(b, "round", r.Round)
	b = jsonline.IntIfAny(b, "maxRounds", r.MaxRounds)
	text("exchangeType", r.ExchangeType)
	text("chainId", r.ChainID)
	b = jsonline.IntIfAny(b, "hops", r.Hops)
	text("classification", r.Classification)
	text("policyApplied", r.PolicyApplied)
	text("policyRevision", r.PolicyRevision)
	text("policyResult", r.PolicyResult)
	text("policyReason", r.PolicyReason)
	text("code", r.Code)
	text("outcome", r.Outcome)
	if r.DataShared != nil {
		other("dataShared", r.DataShared)
	}
	if r.DataWithheld != nil {
		other("dataWithheld", r.DataWithheld)
	}
	if len(r.Detections) > 0 {
		other("detections", r.Detections)
	}
	text("contentDigest", r.ContentDigest)
	b = jsonline.IntIfAny(b, "contentBytes", r.ContentBytes)
	text("content", r.Content)
	text("deliveredDigest", r.DeliveredDigest)
	text("dispatchId", r.DispatchID)
	text("runId", r.RunID)
	text("approvalId", r.ApprovalID)
	if len(r.Details) > 0 {
		other("details", r.Details)
	}
	if !utf8.ValidString(r.ID) || !utf8.ValidString(r.ActionType) {
		failure = errNotText
	}
	return append(b, '}'), failure
}

// Parse reads a line without checking its hash; [Head.Check] does that.
func Parse(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, fmt.Errorf("not an audit record: %w", err)
	}
	return e, nil
}
