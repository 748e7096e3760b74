package audit

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Action types a record can have (protocol, Records).
const (
	ActionExchange     = "agent_exchange"
	ActionCheck        = "check"
	ActionApproval     = "approval"
	ActionPolicyChange = "policy_change"
	ActionConfigChange = "config_change"
	ActionAppLifecycle = "app_lifecycle"
	ActionDelivery     = "delivery"
	ActionSecurity     = "security"
	ActionCheckpoint   = "checkpoint"
	ActionTask         = "task"
)

// ActionTypes returns all of them.
func ActionTypes() []string {
	return []string{
		ActionExchange, ActionCheck, ActionApproval, ActionPolicyChange, ActionConfigChange, ActionAppLifecycle, ActionDelivery, ActionSecurity, ActionCheckpoint, ActionTask,
	}
}

// The two sides of an exchange, each with its own record.
const (
	SideSender   = "sender"
	SideReceiver = "receiver"
)

// Record is one audit record. Empty fields are left out of the line. The tags describe further uses
// of a member, see [Member].
type Record struct {
	ID         string `json:"id" filter:"record" help:"the record with this ID" export:"record.id"`
	ActionType string `json:"actionType" filter:"actionType" flag:"type" help:"records of this action TYPE, such as agent_exchange or delivery" export:"action_type"`
	// Event names the event within the action type, such as "registered".
	Event        string       `json:"event,omitzero" filter:"event" help:"records of this EVENT, such as registered or daemon_started" export:"event" syslog:"yes"`
	Side         string       `json:"side,omitzero" filter:"side" help:"records of this SIDE: sender or receiver" export:"side"`
	TenantID     string       `json:"tenantId,omitzero" filter:"tenant" help:"records of the agents of this TENANT" export:"tenant"`
	UserID       string       `json:"userId,omitzero" filter:"user" help:"records of the agents of this USER" export:"user" otlp:"user.id" redact:"userId"`
	AgentID      string       `json:"agentId,omitzero" filter:"agent" help:"records of the agent with this NAME (agents[].id) or instance id" export:"agent" syslog:"yes"`
	AppID        string       `json:"appId,omitzero" filter:"app" help:"records of the app with this ID" export:"app" redact:"appId"`
	Counterparty Counterparty `json:"counterparty,omitzero"`
	SessionKey   string       `json:"sessionKey,omitzero" filter:"session" help:"records of the session with this KEY" export:"session" otlp:"session.id" ocsf:"session" redact:"sessionKey"`
	// Address is the message's destination or origin: the address that its channel's app uses.
	Address Address `json:"address,omitzero"`

	ExchangeID     string `json:"exchangeId,omitzero" filter:"exchange" help:"records of the exchange with this ID" export:"exchange" ocsf:"exchange"`
	ConversationID string `json:"conversationId,omitzero" filter:"conversation" help:"records of the conversation with this ID" export:"conversation" ocsf:"conversation"`
	Round          int    `json:"round,omitzero"`
	MaxRounds      int    `json:"maxRounds,omitzero"`
	ExchangeType   string `json:"exchangeType,omitzero"`
	// ChainID names the causal chain of the message, and Hops its place there.
	ChainID        string `json:"chainId,omitzero" filter:"chain" help:"records of the causal chain with this ID" export:"chain"`
	Hops           int    `json:"hops,omitzero"`
	Classification string `json:"classification,omitzero" export:"classification"`

	PolicyApplied  string `json:"policyApplied,omitzero" filter:"rule" help:"records decided by this RULE, of the policy or built in, such as tenant-wall" export:"policy"`
	PolicyRevision string `json:"policyRevision,omitzero" export:"policy.revision"`
	PolicyResult   string `json:"policyResult,omitzero" filter:"result" help:"records with this RESULT: allow, deny or hold" export:"result" syslog:"yes"`
	PolicyReason   string `json:"policyReason,omitzero" redact:"policyReason"`
	Code           string `json:"code,omitzero" filter:"code" help:"records with this CODE, such as CLASSIFICATION_VIOLATION" export:"code" syslog:"yes"`
	Outcome        string `json:"outcome,omitzero" export:"outcome"`

	// The two lists are nil, and left out, if the record is not about a message.
	DataShared   []Shared    `json:"dataShared,omitzero"`
	DataWithheld []Withheld  `json:"dataWithheld,omitzero"`
	Detections   []Detection `json:"detections,omitempty"`

	ContentDigest string `json:"contentDigest,omitzero"`
	ContentBytes  int    `json:"contentBytes,omitzero"`
	Content       string `json:"content,omitzero"`
	// DeliveredDigest is the keyed digest of everything that is delivered, in the form of
	// [DeliveredForm].
	DeliveredDigest string `json:"deliveredDigest,omitzero"`
	DispatchID      string `json:"dispatchId,omitzero" filter:"dispatch" help:"records of the message with this dispatch ID" export:"dispatch" ocsf:"message"`
	RunID           string `json:"runId,omitzero" filter:"run" help:"records of the agent's run with this ID" export:"run" ocsf:"run"`
	ApprovalID      string `json:"approvalId,omitzero" filter:"approval" help:"records of the held message with this approval ID" export:"approval" ocsf:"approval"`
	// TaskSeq counts the events of a task, without a gap.
	TaskID    string         `json:"taskId,omitzero" filter:"task" help:"records of the task with this ID, its messages too" export:"task"`
	TaskSeq   int            `json:"taskSeq,omitzero"`
	AttemptID string         `json:"attemptId,omitzero" export:"task.attempt"`
	Actor     string         `json:"actor,omitzero" export:"task.actor"`
	Role      string         `json:"role,omitzero" export:"task.role"`
	Details   map[string]any `json:"details,omitempty"`

	// Rows are the rows of the daemon's tables that change with the record. Opens and UsesGrant are
	// short forms for the usual changes: see internal/audit/fold. The store writes them.
	Rows      []RowChange `json:"rows,omitempty"`
	Opens     int         `json:"opens,omitzero"`
	UsesGrant string      `json:"usesGrant,omitzero"`
	// State is the content of those tables, on a checkpoint. It is nil elsewhere.
	State []TableState `json:"state,omitzero"`
}

// Codes lists the codes of all grounds for which a message was held, the likeliest first, or the
// record's one code.
func (r *Record) Codes() (codes []string) {
	list, _ := r.Details["codes"].([]any)
	for _, code := range list {
		if code, ok := code.(string); ok {
			codes = append(codes, code)
		}
	}
	if len(codes) == 0 && r.Code != "" {
		codes = []string{r.Code}
	}
	return codes
}

// RowChange is the change of one row: its columns before and after the record.
type RowChange struct {
	Table string         `json:"table"`
	Key   []string       `json:"key,omitempty"`
	Was   map[string]any `json:"was,omitempty"`
	Now   map[string]any `json:"now,omitempty"`
	Add   int64          `json:"add,omitzero"`
	// Stated says that the record states the row without a change.
	Stated bool `json:"stated,omitzero"`
}

// TableState is the number of open rows of a table, and their digest.
type TableState struct {
	Table  string `json:"table"`
	Open   int    `json:"open"`
	Digest Hash   `json:"digest"`
}

// Counterparty is the other end, as far as it is known.
type Counterparty struct {
	Kind       string `json:"kind,omitzero"`
	InstanceID string `json:"instanceId,omitzero" filter:"counterparty" help:"records with the counterparty of this NAME (agents[].id) or instance id" export:"counterparty" syslog:"yes" redact:"counterparty.instanceId"`
	UserID     string `json:"userId,omitzero" redact:"counterparty.userId"`
	OrgUnit    string `json:"orgUnit,omitzero" redact:"counterparty.orgUnit"`
	TenantID   string `json:"tenantId,omitzero" redact:"counterparty.tenantId"`
}

// Address is where a counterparty is reached: an account at a channel and a target there. The last
// two members follow from the session's key, and are redacted with it.
type Address struct {
	Channel string `json:"channel,omitzero" filter:"channel" help:"records of messages through this CHANNEL" export:"channel"`
	Account string `json:"account,omitzero" redact:"sessionKey"`
	Target  string `json:"target,omitzero" redact:"sessionKey"`
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

// Detection is one finding of a detector. It never holds the text itself.
type Detection struct {
	Rule string `json:"rule"`
	// Member is the member of the message with the text, empty for its content.
	Member string `json:"member,omitzero"`
	Start  int    `json:"start"`
	End    int    `json:"end"`
	Zone   string `json:"zone,omitzero"`
	// Shadow marks a finding that was only recorded.
	Shadow bool `json:"shadow,omitzero"`
}

// RedactedText begins the replacement of a text that the operator wanted kept out of the log.
const RedactedText = "redacted"

// Redacted reports whether a text of a record is such a replacement.
func Redacted(text string) bool {
	return text == RedactedText || strings.HasPrefix(text, RedactedText+":")
}

// standDigits is the length of the digest in a replacement: enough that no two texts of a tenant
// share it, and short enough to read.
const standDigits = 16

// StandIn returns the replacement in a record for a text with a keyed digest.
func StandIn(digest string) string {
	_, digits, _ := strings.Cut(digest, ":")
	return RedactedText + ":" + digits[:min(standDigits, len(digits))]
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

// Encode makes the body that [Head.Seal] puts into a line: the record as the JSON library writes
// it, with invisible characters escaped, so that a line can be printed as it is. It fails for a
// field that is not UTF-8, for details that cannot be encoded and above [MaxBodyBytes].
func Encode(r *Record) ([]byte, error) { return EncodeInto(nil, r) }

// EncodeInto is [Encode] in memory that nothing else uses, if that is enough.
func EncodeInto(room []byte, r *Record) ([]byte, error) {
	if cap(room) < usualBody+len(r.Content) {
		room = make([]byte, 0, usualBody+len(r.Content))
	}
	body, err := appendFields(room[:0], reflect.ValueOf(r).Elem(), fields())
	if err != nil {
		return nil, fmt.Errorf("cannot encode audit record %s: %w", r.ID, err)
	}
	body = text.EscapeJSON(body, 0)
	if len(body) > MaxBodyBytes {
		return nil, fmt.Errorf("cannot encode audit record %s: %d bytes, limit %d", r.ID, len(body), MaxBodyBytes)
	}
	return body, nil
}

// usualBody is the size of a message's record without its content.
const usualBody = 1536

// Parse reads a line without checking its hash; [Head.Check] does that.
func Parse(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, fmt.Errorf("not an audit record: %w", err)
	}
	return e, nil
}
