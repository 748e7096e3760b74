package api

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// Object is a JSON object whose members the kernel passes on without knowing
// all of them.
type Object map[string]jsontext.Value

// Equal reports whether two objects have the same members, each with the same bytes.
func (o Object) Equal(other Object) bool {
	return maps.EqualFunc(o, other, func(a, b jsontext.Value) bool { return bytes.Equal(a, b) })
}

// Empty is a result or parameters without members.
type Empty struct{}

// Mended is in the parameters that carry texts. Halves is how many halves of
// characters were replaced by U+FFFD in the request, as a text has one that was cut
// inside an emoji: the message is another one than its sender wrote, so its record
// says it.
type Mended struct {
	Halves int `json:"-"`
}

// Mend takes the note.
func (m *Mended) Mend(halves int) { m.Halves = halves }

// OK is the result of methods that only confirm. Reason says why something that
// is no error counted for nothing.
type OK struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitzero"`
}

// RegisterParams registers an app.
type RegisterParams struct {
	Manifest *Manifest `json:"manifest" is:"required" doc:"The package that registers."`
}

// Rules reports faults between members.
func (p *RegisterParams) Rules() (f Fields) {
	if p.Manifest != nil {
		p.Manifest.rules(&f)
	}
	return f
}

// RegisterResult gives the app its token for all further requests.
type RegisterResult struct {
	AppID           string `json:"appId"`
	Token           string `json:"token"`
	ProtocolVersion string `json:"protocolVersion"`
}

// HeartbeatParams keeps an app alive. The status is shown to operators.
type HeartbeatParams struct {
	Status jsontext.Value `json:"status,omitzero" is:"object null max=4096" doc:"Shown to operators."`
}

// HeartbeatResult carries the kernel's clock in Unix milliseconds.
type HeartbeatResult struct {
	OK         bool  `json:"ok"`
	ServerTime int64 `json:"serverTime"`
}

// ReadyParams says that an app takes traffic from now on.
type ReadyParams struct {
	Metadata jsontext.Value `json:"metadata,omitzero" doc:"Ignored."`
}

// ShutdownParams asks for a graceful end. Timeout is in milliseconds; zero is
// the daemon's own limit.
type ShutdownParams struct {
	Reason  string `json:"reason,omitzero" is:"max=4096" doc:"The reason, for the record."`
	Timeout int64  `json:"timeout,omitzero" is:"range=0..3600000" doc:"Milliseconds that the daemon waits for requests in flight; 0 is its own limit."`
}

// CapabilityParams registers a capability. Config's members depend on the type.
type CapabilityParams struct {
	Type   string           `json:"type" doc:"channel, tool, hook, gateway_method, http_route or provider. The result refuses others."`
	Config capabilityConfig `json:"config" doc:"The capability. Its id is in channelId, toolId, event, methodName, route or providerId, by the type."`
}

// CapabilityTypes lists the types of the protocol.
func CapabilityTypes() []string {
	return []string{"channel", "tool", "hook", "gateway_method", "http_route", "provider"}
}

// Refusal says why the capability cannot be granted to anybody, "" where it may
// be. Such a request is no error: the stock SDK does not survive one.
func (p *CapabilityParams) Refusal() string {
	keys, known := capabilityIDs(p.Type)
	switch {
	case !known && len(p.Type) > MaxName:
		return "unknown capability type, want one of " + strings.Join(CapabilityTypes(), ", ")
	case !known:
		return fmt.Sprintf("unknown capability type %q, want one of %s", p.Type, strings.Join(CapabilityTypes(), ", "))
	case p.ID() == "":
		return "the capability has no name: config." + strings.Join(keys, " or config.")
	case len(p.ID()) > MaxName:
		return fmt.Sprintf("config.%s is longer than %d bytes", keys[0], MaxName)
	}
	return ""
}

// ID returns the capability's name from its config, empty if it has none.
func (p *CapabilityParams) ID() string {
	keys, _ := capabilityIDs(p.Type)
	for _, key := range keys {
		if s, ok := Text(p.Config[key]); ok && s != "" {
			return s
		}
	}
	return ""
}

// capabilityIDs lists the members that can name a capability, preferred first.
func capabilityIDs(kind string) (keys []string, known bool) {
	switch kind {
	case "channel":
		return []string{"channelId", "id"}, true
	case "tool":
		return []string{"toolId", "name"}, true
	case "hook":
		return []string{"event", "hookName"}, true
	case "gateway_method":
		return []string{"methodName", "method"}, true
	case "http_route":
		return []string{"route", "path"}, true
	case "provider":
		return []string{"providerId", "id"}, true
	}
	return nil, false
}

// CapabilityResult says whether the capability was granted, and why not.
type CapabilityResult struct {
	CapabilityID string `json:"capabilityId"`
	Granted      bool   `json:"granted"`
	Reason       string `json:"reason,omitzero"`
}

// UnregisterParams gives a capability back.
type UnregisterParams struct {
	CapabilityID string `json:"capabilityId" is:"required max=256" doc:"The id from capability.register."`
}

// HooksParams names hooks to subscribe to, or to leave.
type HooksParams struct {
	Events []string `json:"events" is:"required names" doc:"Names of hooks."`
}

// SubscribeResult lists the events by whether they were granted.
type SubscribeResult struct {
	Subscribed []string `json:"subscribed"`
	Denied     []string `json:"denied"`
}

// UnsubscribeResult lists the events that were left.
type UnsubscribeResult struct {
	Unsubscribed []string `json:"unsubscribed"`
}

// HookResultParams answers a hook event.
type HookResultParams struct {
	EventID string         `json:"eventId" is:"required max=256" doc:"The id of the event that is answered."`
	Result  jsontext.Value `json:"result" doc:"Of an interceptor: an object, whose content and metadata take the place of the message's, or {block: true, reason}; null or none blocks. Of a receiver: {delivered, error}."`
}

// ConfigGetParams asks for a configuration value; an empty path for all that
// the app may see.
type ConfigGetParams struct {
	Path string `json:"path,omitzero" is:"max=4096" doc:"A path such as channels.telegram; all that the app may read if it is absent."`
}

// ConfigValue is a configuration value, null if there is none.
type ConfigValue struct {
	Value any `json:"value"`
}

// ConfigWatchParams asks for changes below paths; none for all that the app may
// see.
type ConfigWatchParams struct {
	Paths []string `json:"paths,omitempty" is:"max=256" doc:"Paths; all that the app may read if there are none."`
}

// Watching is the answer that config.watch begins with.
type Watching struct {
	Watching bool `json:"watching"`
}

// ConfigChange is one chunk of config.watch.
type ConfigChange struct {
	Path     string `json:"path"`
	OldValue any    `json:"oldValue"`
	NewValue any    `json:"newValue"`
}

// SessionGetParams asks for one session.
type SessionGetParams struct {
	Key string `json:"key" is:"required max=512 form=session" doc:"A session key."`
}

// MaxSessionKey bounds a session key, in bytes.
const MaxSessionKey = 512

// SessionKey demands a session key.
func (f *Fields) SessionKey(path, key string) {
	f.Text(path, key, MaxSessionKey)
	if channel, rest, ok := strings.Cut(key, ":"); key != "" && (!ok || channel == "" || rest == "") {
		f.Add(path, "%q is not {channelId}:{target} or agent:{agentId}:{rest}", key)
	}
}

// SessionEntry is a session as the SDK knows it. Times are Unix milliseconds.
type SessionEntry struct {
	Key          string `json:"key"`
	AgentID      string `json:"agentId,omitzero"`
	ChannelID    string `json:"channelId,omitzero"`
	AccountID    string `json:"accountId,omitzero" doc:"The metadata.accountId of the first message."`
	CreatedAt    int64  `json:"createdAt"`
	LastActiveAt int64  `json:"lastActiveAt"`
	MessageCount int64  `json:"messageCount"`
}

// SessionResult is a session, or null.
type SessionResult struct {
	Session *SessionEntry `json:"session"`
}

// SessionFilter selects sessions; a member that is absent selects all.
type SessionFilter struct {
	AgentID   string `json:"agentId,omitzero" doc:"Sessions of this agent."`
	ChannelID string `json:"channelId,omitzero" doc:"Sessions of this channel."`
	AccountID string `json:"accountId,omitzero" doc:"Sessions of this account."`
	Active    *bool  `json:"active,omitzero" doc:"Sessions that were used lately, or were not."`
}

// SessionListParams asks for a page of sessions.
type SessionListParams struct {
	Filter SessionFilter `json:"filter,omitzero" doc:"Which sessions; all if it is absent."`
	Limit  *int          `json:"limit,omitzero" is:"range=0..1000" doc:"At most this many; 100 by default."`
	Offset int           `json:"offset,omitzero" is:"range=0..1099511627776" doc:"Skip this many."`
}

// Bounds of a page.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// OrderKey has a connection's lists made one after another.
func (*SessionListParams) OrderKey() string { return lists }

// Page returns the page's size.
func (p *SessionListParams) Page() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// SessionListResult is one page and how many sessions match in all.
type SessionListResult struct {
	Sessions []SessionEntry `json:"sessions"`
	Total    int            `json:"total"`
}

// Said is the text of a message that a client sends.
func Said(text string) gate.Text { return gate.NewText(text) }

// TextForm is the type of a message's text, a string in JSON.
func TextForm() reflect.Type { return reflect.TypeFor[gate.Text]() }

// DispatchParams sends a message.
type DispatchParams struct {
	SessionKey string    `json:"sessionKey" is:"required max=512 form=session" doc:"The session that the message goes to."`
	Content    gate.Text `json:"content" doc:"The text. Required unless metadata names media."`
	Metadata   Object    `json:"metadata,omitempty" doc:"Members for the receiver; some are hints to the daemon."`
	// InAnnotation is that of an [EmittedMessage].
	InAnnotation bool `json:"-"`
	Mended
}

// Rules reports faults between members.
func (p *DispatchParams) Rules() (f Fields) {
	if p.Content.Len() == 0 && !media.Mentioned(p.Metadata) {
		f.Add("content", "required, unless metadata names media")
	}
	return f
}

// OrderKey keeps the messages of one session in the order they were asked for.
func (p *DispatchParams) OrderKey() string { return p.SessionKey }

// DispatchResult is the state of a dispatched message.
type DispatchResult struct {
	DispatchID string `json:"dispatchId" doc:"The message's id, the same in its record, its delivery and each repetition of it."`
	// Queued is true for every message that is taken, also one that is held: a
	// stock client would send again what is not.
	Queued     bool   `json:"queued" doc:"true for every accepted message, also a held one: a client of the stock SDK repeats a message with false."`
	Waiting    bool   `json:"waiting,omitzero" doc:"The message is on disk and not yet with its receiver, because the app is away, not ready, or has others to read first."`
	Host       string `json:"host,omitzero" doc:"The host of the fleet on which the receiver is. The message is on its way there; message:receipt tells what that host has decided."`
	Held       bool   `json:"held,omitzero" doc:"A person decides. The caller must not send the message again; the same call gets the same approvalId."`
	ApprovalID string `json:"approvalId,omitzero"`
	// OCIP says under which record the message was decided, and in which exchange
	// where the counterparty is an agent.
	OCIP *ExchangeRef `json:"ocip,omitempty"`
}

// Append writes the result as the JSON library does: it is the answer to every message.
func (r DispatchResult) Append(b []byte) []byte {
	b = jsonline.Text(append(b, '{'), "dispatchId", r.DispatchID)
	b = jsonline.Bool(b, "queued", r.Queued)
	b = jsonline.BoolIfTrue(b, "waiting", r.Waiting)
	b = jsonline.TextIfAny(b, "host", r.Host)
	b = jsonline.BoolIfTrue(b, "held", r.Held)
	b = jsonline.TextIfAny(b, "approvalId", r.ApprovalID)
	if r.OCIP != nil {
		b = r.OCIP.append(jsonline.Key(b, "ocip"))
	}
	return append(b, '}')
}

// ExchangeRef names the exchange of a message for its sender, and the reason if the message is
// held.
type ExchangeRef struct {
	ExchangeID     string `json:"exchangeId,omitzero" doc:"Present if the counterparty is an agent."`
	ConversationID string `json:"conversationId"`
	Round          int    `json:"round"`
	MaxRounds      int    `json:"maxRounds"`
	// AuditID is the id of the record of the decision.
	AuditID string `json:"auditId" doc:"The id of the decision's record (ocipd audit query --record ID)."`

	Code   ocip.Code `json:"code,omitzero"`
	Reason string    `json:"reason,omitzero"`
	// Reasons are all grounds for which the message is held, the likeliest first.
	Reasons          []ocip.Ground    `json:"reasons,omitempty"`
	RequiresHuman    bool             `json:"requiresHuman,omitzero"`
	DetectedKeywords []string         `json:"detectedKeywords,omitzero"`
	Escalation       *ocip.Escalation `json:"escalation,omitempty"`
	// EscalatedExchange is the exchange whose round limit stops this one.
	EscalatedExchange string `json:"escalatedExchange,omitzero"`
	// Blocked is why a person cannot approve a held message as it is, "" if one can.
	Blocked string      `json:"blocked,omitzero"`
	Chain   *ocip.Chain `json:"chain,omitempty"`
}

func (e *ExchangeRef) append(b []byte) []byte {
	b = jsonline.TextIfAny(append(b, '{'), "exchangeId", e.ExchangeID)
	b = jsonline.Text(b, "conversationId", e.ConversationID)
	b = jsonline.Int(b, "round", e.Round)
	b = jsonline.Int(b, "maxRounds", e.MaxRounds)
	b = jsonline.Text(b, "auditId", e.AuditID)
	b = jsonline.TextIfAny(b, "code", string(e.Code))
	b = jsonline.TextIfAny(b, "reason", e.Reason)
	if len(e.Reasons) > 0 {
		b = appendJSON(jsonline.Key(b, "reasons"), e.Reasons)
	}
	b = jsonline.BoolIfTrue(b, "requiresHuman", e.RequiresHuman)
	if e.DetectedKeywords != nil {
		b = appendJSON(jsonline.Key(b, "detectedKeywords"), e.DetectedKeywords)
	}
	if e.Escalation != nil {
		b = appendJSON(jsonline.Key(b, "escalation"), e.Escalation)
	}
	b = jsonline.TextIfAny(b, "escalatedExchange", e.EscalatedExchange)
	b = jsonline.TextIfAny(b, "blocked", e.Blocked)
	if e.Chain != nil {
		b = append(jsonline.Key(b, "chain"), e.Chain.Annotation()...)
	}
	return append(b, '}')
}

// appendJSON is for members that most results lack.
func appendJSON(b []byte, value any) []byte {
	encoded, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("api: a result cannot fail to encode: " + err.Error())
	}
	return append(b, encoded...)
}

// QueueParams brings a message in for an agent.
type QueueParams struct {
	SessionKey string    `json:"sessionKey" is:"required max=512 form=session" doc:"The session that the message came in."`
	Text       gate.Text `json:"text" doc:"The text. Required unless metadata names media."`
	Metadata   Object    `json:"metadata,omitempty" doc:"Members for the agent; the annotation of another agent is among them."`
	Mended
}

// Rules reports faults between members.
func (p *QueueParams) Rules() (f Fields) {
	if p.Text.Len() == 0 && !media.Mentioned(p.Metadata) {
		f.Add("text", "required, unless metadata names media")
	}
	return f
}

// OrderKey keeps the messages of one session in the order they came.
func (p *QueueParams) OrderKey() string { return p.SessionKey }

// QueueResult says which run the message started.
type QueueResult struct {
	RunID  string `json:"runId"`
	Queued bool   `json:"queued"`
}

// CompleteParams ends an agent run (extension agent.complete).
type CompleteParams struct {
	RunID   string `json:"runId" is:"required max=256" doc:"The run."`
	Success bool   `json:"success" doc:"Whether it succeeded."`
	Error   string `json:"error,omitzero" is:"max=4096" doc:"The error if it failed."`
}

// CancelParams ends a stream (extension stream.cancel).
type CancelParams struct {
	RequestID string `json:"requestId" is:"required max=256" doc:"The request that opened the stream."`
}

// HookEvent is the payload of a hook event.
type HookEvent struct {
	EventID  string         `json:"eventId"`
	HookName string         `json:"hookName"`
	Data     jsontext.Value `json:"data"`
	Context  HookContext    `json:"context"`
}

// HookContext is the subject of a hook event. AuditID is the id of the record of the decision that
// let the message through.
type HookContext struct {
	AgentID    string `json:"agentId,omitzero" is:"max=256" doc:"The agent."`
	SessionKey string `json:"sessionKey,omitzero" is:"max=512 form=session" doc:"The session."`
	ChannelID  string `json:"channelId,omitzero" is:"max=256" doc:"The channel."`
	AccountID  string `json:"accountId,omitzero" is:"max=256" doc:"The account."`
	Timestamp  int64  `json:"timestamp" doc:"Unix milliseconds. The daemon sets it."`
	AuditID    string `json:"auditId,omitzero" doc:"The id of the decision's record. The daemon sets it."`
}

// Append writes the context as JSON, as the library would.
func (c HookContext) Append(b []byte) []byte {
	b = jsonline.TextIfAny(append(b, '{'), "agentId", c.AgentID)
	b = jsonline.TextIfAny(b, "sessionKey", c.SessionKey)
	b = jsonline.TextIfAny(b, "channelId", c.ChannelID)
	b = jsonline.TextIfAny(b, "accountId", c.AccountID)
	b = jsonline.Int(b, "timestamp", c.Timestamp)
	b = jsonline.TextIfAny(b, "auditId", c.AuditID)
	return append(b, '}')
}

// Message is the data of a message on its way out.
type Message struct {
	ChannelID  string    `json:"channelId,omitzero"`
	Target     string    `json:"target,omitzero"`
	Content    gate.Text `json:"content"`
	Metadata   Object    `json:"metadata,omitempty"`
	DispatchID string    `json:"dispatchId,omitzero"`
	// DecidedTo is the target that its record has the digest with, if that is not Target.
	DecidedTo string `json:"-"`
}

// Inbound is the data of a message that arrives for an agent.
type Inbound struct {
	RunID      string `json:"runId"`
	SessionKey string `json:"sessionKey"`
	// ReplyTo is the session key that answers the message, if that is not SessionKey.
	ReplyTo    string    `json:"replyTo,omitzero"`
	Content    gate.Text `json:"content"`
	Metadata   Object    `json:"metadata,omitempty"`
	DispatchID string    `json:"dispatchId,omitzero"`
}

// Append writes the message as JSON, members in the order of their fields and
// metadata in the order of its keys, so that equal messages are equal bytes.
func (m Message) Append(b []byte) []byte {
	b, _ = m.Write(b)
	return b
}

// Write is Append, which also tells what the message's digest is taken of (gate.Form).
func (m Message) Write(b []byte) ([]byte, gate.Delivered) {
	b = append(slices.Grow(b, m.Room()), '{')
	b = jsonline.TextIfAny(b, "channelId", m.ChannelID)
	b = jsonline.TextIfAny(b, "target", m.Target)
	b, metadata := appendContent(b, m.Content, m.Metadata)
	b = jsonline.TextIfAny(b, "dispatchId", m.DispatchID)
	return append(b, '}'), gate.Delivered{DispatchID: m.DispatchID, Target: cmp.Or(m.DecidedTo, m.Target), Content: m.Content, Metadata: metadata}
}

// Room is about how many bytes the message takes (gate.Form).
func (m Message) Room() int { return room(m.Content, m.Metadata) }

// Write writes the message as JSON, as [Message.Append] does, and tells what its digest is
// taken of (gate.Form).
func (m Inbound) Write(b []byte) ([]byte, gate.Delivered) {
	b = append(slices.Grow(b, m.Room()), '{')
	b = jsonline.TextIfAny(b, "runId", m.RunID)
	b = jsonline.TextIfAny(b, "sessionKey", m.SessionKey)
	b = jsonline.TextIfAny(b, "replyTo", m.ReplyTo)
	b, metadata := appendContent(b, m.Content, m.Metadata)
	b = jsonline.TextIfAny(b, "dispatchId", m.DispatchID)
	return append(b, '}'), gate.Delivered{DispatchID: m.DispatchID, Target: m.SessionKey, Content: m.Content, Metadata: metadata}
}

// Append writes the message as JSON, as [Message.Append] does.
func (m Inbound) Append(b []byte) []byte {
	b, _ = m.Write(b)
	return b
}

// Room is about how many bytes the message takes (gate.Form).
func (m Inbound) Room() int { return room(m.Content, m.Metadata) }

// room is about how many bytes a message takes.
func room(content gate.Text, metadata Object) int {
	return content.Len() + metadata.room() + messageBytes
}

// messageBytes is about the length of a message besides its text and its metadata.
const messageBytes = 320

// appendContent also tells the metadata as it wrote them, nil for none.
func appendContent(b []byte, content gate.Text, metadata Object) (_ []byte, written jsontext.Value) {
	b = jsonline.Text(b, "content", content.Inspect())
	if len(metadata) == 0 {
		return b, nil
	}
	b = jsonline.Key(b, "metadata")
	begin := len(b)
	b = metadata.Append(b)
	return b, b[begin:]
}

// Append writes the object with its keys sorted and its values as they are.
func (o Object) Append(b []byte) []byte {
	keys := make([]string, 0, 16)
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b = append(slices.Grow(b, o.room()), '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonline.Quote(b, key), ':')
		b = append(b, o[key]...)
	}
	return append(b, '}')
}

// room is how many bytes the object takes, if no key needs an escape.
func (o Object) room() int {
	n := len("{}")
	for key, value := range o {
		n += len(key) + len(value) + len(`"":,`)
	}
	return n
}

// Text returns a JSON string's text.
func Text(v jsontext.Value) (string, bool) {
	if len(v) < 2 || v.Kind() != '"' {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", false
	}
	return string(s), true
}

// String returns a string as a JSON value.
func String(s string) jsontext.Value { return jsonline.Quote(nil, s) }

// OperatorApp stands in records for the app of a message that an operator wrote.
const OperatorApp = "@ocipd/operator"

// SendParams is a message that an operator sends, or has checked, as an agent.
type SendParams struct {
	Agent string `json:"agent,omitzero" doc:"The agent's id or instance id. It can be absent if there is one agent."`
	DispatchParams
}

// CheckResult is the decision that a message would get.
type CheckResult struct {
	Result         ocip.Result       `json:"result"`
	Code           ocip.Code         `json:"code,omitzero"`
	Reason         string            `json:"reason"`
	Reasons        []ocip.Ground     `json:"reasons,omitempty"`
	Rule           string            `json:"rule,omitzero"`
	Classification string            `json:"classification"`
	Type           ocip.ExchangeType `json:"type,omitzero"`
	Round          int               `json:"round,omitzero"`
	MaxRounds      int               `json:"maxRounds,omitzero"`
	Detections     []audit.Detection `json:"detections,omitempty" doc:"The findings, by member (none for content) and bytes."`
	AuditID        string            `json:"auditId"`
}
