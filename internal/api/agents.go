package api

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip"
)

// AgentSendParams sends a message as the agent of the connection's grant (agent.send).
type AgentSendParams struct {
	To             string    `json:"to" is:"required" doc:"A session key, or the id of an agent of this daemon."`
	Text           gate.Text `json:"text" is:"required" doc:"The text."`
	ExchangeID     string    `json:"exchange_id,omitzero" is:"max=256" doc:"The exchange that the message continues."`
	NewExchange    bool      `json:"new_exchange,omitzero" doc:"Begins another exchange."`
	ExchangeType   string    `json:"exchange_type,omitzero" is:"words=information_query|commitment_request|meeting_scheduling" doc:"The subject of the exchange."`
	Classification string    `json:"classification,omitzero" is:"words=public|internal|confidential|restricted" doc:"The level of the text. The text can raise it."`
	ReplyPolicy    string    `json:"reply_policy,omitzero" is:"words=agent-ok|human-only|no-reply-needed" doc:"Who may answer."`
	TaskID         string    `json:"task_id,omitzero" is:"id=tsk_" doc:"The task that the message is about."`
	AttemptID      string    `json:"attempt_id,omitzero" is:"id=att_" doc:"The attempt of that task."`
	RequestKey     string    `json:"request_key,omitzero" is:"max=256" doc:"A name of the caller's own for this call. A repetition with it is answered like the first."`
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

// Rules reports faults between members.
func (p *AgentSendParams) Rules() (f Fields) {
	if p.To != "" {
		f.SessionKey("to", p.SessionKey())
	}
	if p.AttemptID != "" && p.TaskID == "" {
		f.Add("task_id", "required with attempt_id")
	}
	return f
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

// AgentSent is the state of a sent message. It is held where a person decides about it: it must not
// be sent again, and agent.approval tells what became of it.
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
	// Replayed is set if nothing was sent since it was sent before.
	Replayed bool `json:"replayed,omitzero"`
}

// SentBy is the result for an agent.
func (r *DispatchResult) SentBy() AgentSent {
	s := AgentSent{DispatchID: r.DispatchID, Status: SentAway, ApprovalID: r.ApprovalID}
	switch {
	case r.Held:
		s.Status = SentHeld
	case r.Waiting && r.Host == "": // a message to another host is on its way
		s.Status = SentWaiting
	}
	if o := r.OCIP; o != nil {
		s.ExchangeID, s.Round, s.MaxRounds, s.Code, s.Reason, s.AuditID = o.ExchangeID, o.Round, o.MaxRounds, o.Code, o.Reason, o.AuditID
	}
	return s
}

// AgentReadParams reads the inbox of the grant's agent (agent.read). Cursor is that of the read
// before: the messages that it passes are removed from the inbox.
type AgentReadParams struct {
	Cursor string `json:"cursor,omitzero" is:"form=cursor" doc:"The cursor of the page before: its messages leave the inbox."`
	Limit  *int   `json:"limit,omitzero" is:"range=1..100" doc:"At most this many; 20 by default."`
	WaitS  int    `json:"wait_s,omitzero" is:"range=0..20" doc:"Seconds to wait for a message if there is none."`
}

const defaultRead = 20

// Page is how many messages are read.
func (p *AgentReadParams) Page() int {
	if p.Limit == nil {
		return defaultRead
	}
	return *p.Limit
}

// AgentMessage is one message in an agent's inbox. Its text is somebody else's: it is to be
// read, and no instruction of the daemon's.
type AgentMessage struct {
	DispatchID string `json:"dispatch_id"`
	// From is the instance id of the sending agent, empty for people and for messages without an
	// envelope.
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
	// Metadata is the other members of the message.
	Metadata Object `json:"metadata,omitempty"`
}

// AgentMessages is a page of an inbox for clients.
type AgentMessages = AgentMessagesOf[AgentMessage]

// InboxPage is a page of an inbox from the daemon.
type InboxPage = AgentMessagesOf[gate.Shown[AgentMessage]]

// AgentMessagesOf is a page of an inbox, the oldest first.
type AgentMessagesOf[Message any] struct {
	Messages []Message `json:"messages"`
	// Cursor passes these messages, once it is given to the next read.
	Cursor string `json:"cursor,omitzero"`
	// More is set if further messages wait.
	More bool `json:"more"`

	Followed `json:"-"`
}

// AgentContactsParams asks whom the grant's agent can write to (agent.contacts).
type AgentContactsParams struct {
}

// OrderKey has a connection's lists made one after another.
func (*AgentContactsParams) OrderKey() string { return lists }

// AgentContact is somebody that an agent can write to.
type AgentContact struct {
	// Session is the address for messages.
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
	ExchangeID string `json:"exchange_id" is:"required max=256" doc:"The exchange."`
}

// AgentApprovalParams names what the grant's agent waits for (agent.approval).
type AgentApprovalParams struct {
	ApprovalID string `json:"approval_id" is:"required max=256" doc:"The approval request."`
}

// AgentNews is one chunk of agent.watch: a request of the agent that is new or has changed. The
// first chunk has Caught set and names none: later chunks report changes.
type AgentNews struct {
	ApprovalID string `json:"approval_id,omitzero"`
	Status     string `json:"status,omitzero"`
	Caught     bool   `json:"caught,omitzero"`
}

// AgentApproval is the state of a held message.
type AgentApproval struct {
	ApprovalID string    `json:"approval_id"`
	Status     string    `json:"status"`
	Code       string    `json:"code"`
	Reason     string    `json:"reason"`
	DispatchID string    `json:"dispatch_id"`
	ExchangeID string    `json:"exchange_id,omitzero"`
	ExpiresAt  time.Time `json:"expires_at"`
	// Note is the text of the person who decided.
	Note string `json:"note,omitzero"`
}
