package api

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// EmitParams raises a hook for a runtime that delivers by itself (extension
// hook.emit). Data of message_sending and message_received is an
// [EmittedMessage]; that of the others is passed on as it is.
type EmitParams struct {
	HookName string      `json:"hookName" is:"required max=256" doc:"The hook."`
	Data     Object      `json:"data" is:"required" doc:"Of message_sending and message_received: sessionKey, content, metadata, dispatchId, disclosure. Of others: any object."`
	Context  HookContext `json:"context,omitzero" doc:"The agent, session, channel and account."`
	Mended
}

// AgentEmitParams asks about a message that the process which speaks for an agent delivers by
// itself (agent.emit). RequestKey names the call in agent.confirm if no answer came. Process is the
// caller's id where it can go by ExemptUntil of the answer.
type AgentEmitParams struct {
	EmitParams
	RequestKey string `json:"requestKey,omitzero" is:"max=256" doc:"A name for the call. agent.confirm takes it if no answer came."`
	Process    int    `json:"process,omitzero" doc:"The caller's process id, if it can use exemptUntil of the answer."`
}

// OrderKey keeps the messages of one session in the order they were asked for.
func (p *EmitParams) OrderKey() string {
	key, _ := Text(p.Data["sessionKey"])
	return key
}

// EmitResult is the answer about a hook for clients.
type EmitResult = EmitResultOf[jsontext.Value]

// EmitAnswer is the daemon's answer about a hook.
type EmitAnswer = EmitResultOf[gate.Sealed]

// EmitResultOf says whether the message or call of the hook is allowed, and with which data. OCIP
// is an [ExchangeRef] where it may and the verdict where it may not.
type EmitResultOf[Data any] struct {
	Allowed bool   `json:"allowed"`
	Data    Data   `json:"data,omitzero"`
	Reason  string `json:"reason,omitzero"`
	OCIP    any    `json:"ocip,omitzero"`
	// Held is set if a person decides; ApprovalID names what waits.
	Held       bool   `json:"held,omitzero"`
	ApprovalID string `json:"approvalId,omitzero"`
	// ExemptUntil is until when, in milliseconds since 1970, the caller need not ask about calls of
	// tools, as long as the connection that brought this has not ended; 0 if it has to ask.
	ExemptUntil int64 `json:"exemptUntil,omitzero"`

	Followed `json:"-"`
}

// EmittedMessage is the data of a message that a runtime delivers or received
// by itself.
type EmittedMessage struct {
	SessionKey string    `json:"sessionKey"`
	Content    gate.Text `json:"content"`
	Metadata   Object    `json:"metadata,omitempty"`
	DispatchID string    `json:"dispatchId,omitzero"`
	// Disclosure is the place of the label of agents' texts: [DisclosureInAnnotation], or "" for
	// the configured place.
	Disclosure string `json:"disclosure,omitzero"`
}

// DisclosureInAnnotation is for a runtime that cannot change a text that goes to
// another agent: the label stands in the message's annotation alone.
const DisclosureInAnnotation = "annotation"

// faults names the members that are wrong, as those of [EmitParams].
func (m *EmittedMessage) faults() []FieldError {
	var f Fields
	f.SessionKey("data.sessionKey", m.SessionKey)
	if m.Content.Len() == 0 && !media.Mentioned(m.Metadata) {
		f.Add("data.content", "required, unless metadata names media")
	}
	if m.Disclosure != "" && m.Disclosure != DisclosureInAnnotation {
		f.Add("data.disclosure", "want %s, or nothing", DisclosureInAnnotation)
	}
	return f
}

// Append writes the message as JSON, as [Message.Append] does.
func (m EmittedMessage) Append(b []byte) []byte {
	b, _ = m.Write(b)
	return b
}

// Write is Append, which also tells what the message's digest is taken of (gate.Form).
func (m EmittedMessage) Write(b []byte) ([]byte, gate.Delivered) {
	b = append(b, '{')
	b = jsonline.TextIfAny(b, "sessionKey", m.SessionKey)
	b, metadata := appendContent(b, m.Content, m.Metadata)
	b = jsonline.TextIfAny(b, "dispatchId", m.DispatchID)
	return append(b, '}'), gate.Delivered{DispatchID: m.DispatchID, Target: m.SessionKey, Content: m.Content, Metadata: metadata}
}

// Room is about how many bytes the message takes (gate.Form).
func (m EmittedMessage) Room() int { return room(m.Content, m.Metadata) }

// SessionEvent is the data of session_start, encoded.
func SessionEvent(key, agent string) []byte {
	return appendJSON(nil, sessionStarted{SessionKey: key, AgentID: agent})
}

// RunEvent is the data of agent_starting, encoded.
func RunEvent(run, agent, key string) []byte {
	return appendJSON(nil, runStarting{RunID: run, AgentID: agent, SessionKey: key})
}

// Message reads the message of a hook. It needs what a message that is dispatched needs.
func (p *EmitParams) Message() (m EmittedMessage, err error) {
	if err := json.Unmarshal(p.Data.Append(nil), &m); err != nil {
		return m, Invalid([]FieldError{{Path: "data", Message: "not a message, want {sessionKey, content, metadata}"}})
	}
	return m, Invalid(m.faults())
}

// NotAllowed turns a verdict into a result. Any other error stays an error; the runtime must treat
// it as a refusal.
func NotAllowed(err error) (EmitAnswer, error) {
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code == InternalError {
		return EmitAnswer{}, err
	}
	details, ok := refusal.Details.(map[string]any)
	if !ok || details["ocip"] == nil {
		return EmitAnswer{}, err
	}
	return EmitAnswer{Reason: refusal.Message, OCIP: details["ocip"]}, nil
}
