package api

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/ocip"
)

// AgentSendParams sends a message as the agent of the connection's grant (agent.send).
type AgentSendParams struct {
	// To is a session key, or the id of an agent of this daemon.
	To   string    `json:"to"`
	Text gate.Text `json:"text"`
	// ExchangeID continues an exchange, NewExchange begins one.
	ExchangeID     string `json:"exchange_id,omitzero"`
	NewExchange    bool   `json:"new_exchange,omitzero"`
	ExchangeType   string `json:"exchange_type,omitzero"`
	Classification string `json:"classification,omitzero"`
	ReplyPolicy    string `json:"reply_policy,omitzero"`
	// TaskID and AttemptID name the task that the message is about.
	TaskID     string `json:"task_id,omitzero"`
	AttemptID  string `json:"attempt_id,omitzero"`
	RequestKey string `json:"request_key,omitzero"`
	Mended
}

// mainSession ends the session key that a message to an agent goes to by default.
const mainSession = ":main"

// SessionKey is the session that the message goes to.
func (p *AgentSendParams) SessionKey() string {
	if p.To == "" || strings.Contains(p.To, ":") {
		return p.To
	}
	return "agent:" + p.To + mainSession
}

// WithKey is the request's key, "" for none.
func (p *AgentSendParams) WithKey() string { return p.RequestKey }

// OrderKey keeps the messages of one session in the order they were asked for.
func (p *AgentSendParams) OrderKey() string { return p.SessionKey() }

// Validate names the fields that are wrong.
func (p *AgentSendParams) Validate() []FieldError {
	var f Fields
	f.SessionKey("to", p.SessionKey())
	if p.Text.Len() == 0 {
		f.Add("text", "required")
	}
	f.UpTo("exchange_id", p.ExchangeID, MaxName)
	if p.ExchangeType != "" {
		f.OneOf("exchange_type", p.ExchangeType, exchangeTypes())
	}
	if p.Classification != "" {
		f.OneOf("classification", p.Classification, levels())
	}
	if p.ReplyPolicy != "" {
		f.OneOf("reply_policy", p.ReplyPolicy, replyPolicies())
	}
	f.Maybe("task_id", ids.Task, p.TaskID)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	if p.AttemptID != "" && p.TaskID == "" {
		f.Add("task_id", "required with attempt_id")
	}
	f.UpTo("request_key", p.RequestKey, MaxName)
	return f
}

func exchangeTypes() (names []string) {
	for _, t := range []ocip.ExchangeType{ocip.InformationQuery, ocip.CommitmentRequest, ocip.MeetingScheduling} {
		names = append(names, string(t))
	}
	return names
}

func levels() (names []string) {
	for _, l := range ocip.Levels() {
		names = append(names, l.String())
	}
	return names
}

func replyPolicies() []string {
	return []string{string(ocip.AgentOK), string(ocip.HumanOnly), string(ocip.NoReplyNeeded)}
}

// Dispatch is the message as an app would ask for it.
func (p *AgentSendParams) Dispatch() *DispatchParams {
	d := &DispatchParams{SessionKey: p.SessionKey(), Content: p.Text, Metadata: make(Object), Mended: p.Mended}
	wish := make(Object)
	for name, value := range map[string]string{"id": p.ExchangeID, "type": p.ExchangeType, "classification": p.Classification, "replyPolicy": p.ReplyPolicy} {
		if value != "" {
			wish[name] = String(value)
		}
	}
	if p.NewExchange {
		wish["new"] = jsontext.Value("true")
	}
	if len(wish) > 0 {
		d.Metadata["exchange"] = wish.Append(nil)
	}
	if p.TaskID != "" {
		about := Object{"id": String(p.TaskID)}
		if p.AttemptID != "" {
			about["attempt_id"] = String(p.AttemptID)
		}
		d.Metadata["task"] = about.Append(nil)
	}
	return d
}

// The states of a message that an agent sent.
const (
	SentAway    = "sent"
	SentWaiting = "waiting"
	SentHeld    = "held"
)

// AgentSent says what became of a message. It is held where a person decides about it:
// it must not be sent again, and agent.approval tells what became of it.
type AgentSent struct {
	DispatchID string `json:"dispatch_id"`
	// Status is sent, waiting where the receiver has yet to fetch it, or held.
	Status     string    `json:"status"`
	ApprovalID string    `json:"approval_id,omitzero"`
	ExchangeID string    `json:"exchange_id,omitzero"`
	Round      int       `json:"round,omitzero"`
	MaxRounds  int       `json:"max_rounds,omitzero"`
	Code       ocip.Code `json:"code,omitzero"`
	Reason     string    `json:"reason,omitzero"`
	AuditID    string    `json:"audit_id"`
	// Replayed is set where nothing was sent since it was sent before.
	Replayed bool `json:"replayed,omitzero"`
}

// SentBy is what an agent is told of a message.
func (r *DispatchResult) SentBy() AgentSent {
	s := AgentSent{DispatchID: r.DispatchID, Status: SentAway, ApprovalID: r.ApprovalID}
	switch {
	case r.Held:
		s.Status = SentHeld
	case r.Waiting:
		s.Status = SentWaiting
	}
	if o := r.OCIP; o != nil {
		s.ExchangeID, s.Round, s.MaxRounds, s.Code, s.Reason, s.AuditID = o.ExchangeID, o.Round, o.MaxRounds, o.Code, o.Reason, o.AuditID
	}
	return s
}

// AgentReadParams reads the inbox of the grant's agent (agent.read). Cursor is that of
// the read before: what it passes is taken out of the inbox for good.
type AgentReadParams struct {
	Cursor string `json:"cursor,omitzero"`
	Limit  *int   `json:"limit,omitzero"`
	// WaitS is for how many seconds it is waited for a message where there is none.
	WaitS int `json:"wait_s,omitzero"`
}

const (
	defaultRead = 20
	maxRead     = 100
	maxWait     = 20
	maxCursor   = 2000
)

// noCursor reports whether a character can stand in no cursor, of this version or of one
// before it.
func noCursor(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_' && r != '.'
}

// Page is how many messages are read.
func (p *AgentReadParams) Page() int {
	if p.Limit == nil {
		return defaultRead
	}
	return *p.Limit
}

// Validate names the fields that are wrong.
func (p *AgentReadParams) Validate() []FieldError {
	var f Fields
	if len(p.Cursor) > maxCursor || strings.ContainsFunc(p.Cursor, noCursor) {
		f.Add("cursor", "not the cursor of a read")
	}
	if p.Limit != nil {
		f.Between("limit", *p.Limit, 1, maxRead)
	}
	f.Between("wait_s", p.WaitS, 0, maxWait)
	return f
}

// AgentMessage is one message in an agent's inbox. Its text is somebody else's: it is to be
// read, and no instruction of the daemon's.
type AgentMessage struct {
	DispatchID string `json:"dispatch_id"`
	// From is the agent that sent it, by its instance id, and empty for people and what
	// came without an envelope.
	From           string    `json:"from,omitzero"`
	FromUser       string    `json:"from_user,omitzero"`
	Session        string    `json:"session"`
	ReplyTo        string    `json:"reply_to"`
	Text           string    `json:"text"`
	Classification string    `json:"classification,omitzero"`
	MessageType    string    `json:"message_type,omitzero"`
	ExchangeID     string    `json:"exchange_id,omitzero"`
	ExchangeType   string    `json:"exchange_type,omitzero"`
	Round          int       `json:"round,omitzero"`
	MaxRounds      int       `json:"max_rounds,omitzero"`
	ReplyPolicy    string    `json:"reply_policy,omitzero"`
	ExpiresAt      time.Time `json:"expires_at,omitzero"`
	TaskID         string    `json:"task_id,omitzero"`
	// Metadata is what came along besides.
	Metadata Object `json:"metadata,omitempty"`
}

// AgentMessages is what a client is given of an inbox.
type AgentMessages = AgentMessagesOf[AgentMessage]

// InboxPage is what the daemon gives of an inbox.
type InboxPage = AgentMessagesOf[gate.Shown[AgentMessage]]

// AgentMessagesOf is a page of an inbox, the oldest first.
type AgentMessagesOf[Message any] struct {
	Messages []Message `json:"messages"`
	// Cursor passes these messages, once it is given to the next read.
	Cursor string `json:"cursor,omitzero"`
	// More is set where further messages wait.
	More bool `json:"more"`
}

// AgentContactsParams asks whom the grant's agent can write to (agent.contacts).
type AgentContactsParams struct {
}

// OrderKey has a connection's lists made one after another.
func (*AgentContactsParams) OrderKey() string { return lists }

// AgentContact is somebody that an agent can write to.
type AgentContact struct {
	// Session is what a message is sent to.
	Session string `json:"session"`
	// Kind is agent, owner, person, group or unknown.
	Kind       string `json:"kind"`
	InstanceID string `json:"instance_id,omitzero"`
	UserID     string `json:"user_id,omitzero"`
	OrgUnit    string `json:"org_unit,omitzero"`
	// Here is set for an agent of this daemon.
	Here bool `json:"here,omitzero"`
}

// AgentContacts lists those that the configuration has, and the sessions that there were.
type AgentContacts struct {
	Agent    string         `json:"agent"`
	Contacts []AgentContact `json:"contacts"`
}

// AgentExchangeParams names an exchange of the grant's agent (agent.exchange).
type AgentExchangeParams struct {
	ExchangeID string `json:"exchange_id"`
}

// Validate names the fields that are wrong.
func (p *AgentExchangeParams) Validate() []FieldError {
	var f Fields
	f.Text("exchange_id", p.ExchangeID, MaxName)
	return f
}

// AgentApprovalParams names what the grant's agent waits for (agent.approval).
type AgentApprovalParams struct {
	ApprovalID string `json:"approval_id"`
}

// Validate names the fields that are wrong.
func (p *AgentApprovalParams) Validate() []FieldError {
	var f Fields
	f.Text("approval_id", p.ApprovalID, MaxName)
	return f
}

// AgentNews is one chunk of agent.watch: a request of the agent that is new or has changed.
// The first chunk has Caught set and names none: what changes from then on is told.
type AgentNews struct {
	ApprovalID string `json:"approval_id,omitzero"`
	Status     string `json:"status,omitzero"`
	Caught     bool   `json:"caught,omitzero"`
}

// AgentApproval is what became of a message that is held.
type AgentApproval struct {
	ApprovalID string    `json:"approval_id"`
	Status     string    `json:"status"`
	Code       string    `json:"code"`
	Reason     string    `json:"reason"`
	DispatchID string    `json:"dispatch_id"`
	ExchangeID string    `json:"exchange_id,omitzero"`
	ExpiresAt  time.Time `json:"expires_at"`
	// Note is the word of whoever decided.
	Note string `json:"note,omitzero"`
}
