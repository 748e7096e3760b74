package client

import "encoding/json"

// Metadata is the further members of a message. The daemon passes them on; some are hints to it
// (docs/reference/protocol/messages.md).
type Metadata map[string]json.RawMessage

// About is the subject of an event: times are Unix milliseconds.
type About struct {
	AgentID    string `json:"agentId"`
	SessionKey string `json:"sessionKey"`
	ChannelID  string `json:"channelId"`
	AccountID  string `json:"accountId"`
	Timestamp  int64  `json:"timestamp"`
	AuditID    string `json:"auditId"`
}

// Message is a message on its way out: for a channel's owner, or for an interceptor.
type Message struct {
	ChannelID  string   `json:"channelId"`
	Target     string   `json:"target"`
	Content    string   `json:"content"`
	Metadata   Metadata `json:"metadata"`
	DispatchID string   `json:"dispatchId"`
	About      About    `json:"-"`
}

// Inbound is a message for the app's agent. The text is somebody else's. ReplyTo is the session key
// of an answer, and RunID the run that [App.Complete] ends.
type Inbound struct {
	RunID      string   `json:"runId"`
	SessionKey string   `json:"sessionKey"`
	ReplyTo    string   `json:"replyTo"`
	Content    string   `json:"content"`
	Metadata   Metadata `json:"metadata"`
	DispatchID string   `json:"dispatchId"`
	About      About    `json:"-"`
}

// Dispatched is the state of a message that the daemon delivers. A held one must not be sent again:
// [App.Await] has the decision.
type Dispatched struct {
	DispatchID string `json:"dispatchId"`
	// Waiting is set if the message is on disk and not yet with its receiver.
	Waiting bool `json:"waiting"`
	// Host is the host of the fleet to which the message goes, "" if its receiver is not on another one.
	Host       string `json:"host"`
	Held       bool   `json:"held"`
	ApprovalID string `json:"approvalId"`
	// Exchange is nil if there is nothing to say of one.
	Exchange *Exchange `json:"ocip"`
}

// Exchange is the place of a message in its exchange, and the reason if the message is held.
type Exchange struct {
	ExchangeID     string `json:"exchangeId"`
	ConversationID string `json:"conversationId"`
	Round          int    `json:"round"`
	MaxRounds      int    `json:"maxRounds"`
	AuditID        string `json:"auditId"`
	Code           string `json:"code"`
	Reason         string `json:"reason"`
}

// Queued is an incoming message that the daemon has taken.
type Queued struct {
	RunID  string `json:"runId"`
	Queued bool   `json:"queued"`
}

// Decision is the answer about a text or a tool call of the app's agent. If it is neither allowed nor
// held, it is refused, with Code and Reason.
type Decision struct {
	Allowed bool `json:"allowed"`
	// Held is set if a person decides about it, as approval ApprovalID.
	Held       bool   `json:"held"`
	ApprovalID string `json:"approvalId"`
	// Code is the verdict's, or the error's if the daemon answered with one.
	Code   string `json:"code"`
	Reason string `json:"reason"`
	// Data is the message or the call as it was decided about, which may differ from the asked one.
	Data json.RawMessage `json:"data"`
	// Err is set if an allowed text was not sent, or its outcome could not be reported.
	Err error `json:"-"`
}

// Text is a text that the app delivers by itself.
type Text struct {
	SessionKey string   `json:"sessionKey"`
	Content    string   `json:"content"`
	Metadata   Metadata `json:"metadata,omitempty"`
	DispatchID string   `json:"dispatchId,omitempty"`
}

// ToolCall is a call of a tool that the daemon decides about.
type ToolCall struct {
	Tool   string `json:"toolName"`
	Params any    `json:"params"`
	// Server is the MCP server of the tool, "" for none.
	Server string `json:"mcpServer,omitempty"`
}

// Outcome is the decision of a person, or its absence, about something that was held.
type Outcome struct {
	ApprovalID string `json:"approvalId"`
	// Resolution is approved, denied, taken_over, resolved, expired, request_changes or revoked.
	Resolution string `json:"resolution"`
	Note       string `json:"note"`
	// Text is the text that [AppOptions.Send] has sent, nil if none was. Err is its error.
	Text *Text `json:"-"`
	Err  error `json:"-"`
}

// Released reports whether a person has let the text go.
func (o *Outcome) Released() bool { return o.Resolution == "approved" || o.Resolution == "taken_over" }

// Grant is a pre-approval (docs/reference/protocol/grants.md): messages from one agent to one receiver
// that are held only for these words pass without a person. Until is in Unix milliseconds.
type Grant struct {
	GrantID        string   `json:"grantId"`
	Agent          string   `json:"agent"`
	Receiver       string   `json:"receiver"`
	Words          []string `json:"words"`
	Classification string   `json:"classification"`
	Until          int64    `json:"until"`
	MaxUses        int      `json:"maxUses"`
	// State is in_force, revoked, expired, used_up or over. Kind, State and Uses are the daemon's.
	Kind  string `json:"kind,omitempty"`
	State string `json:"state,omitempty"`
	Uses  int    `json:"uses,omitempty"`
}
