package api

// Hook is the canonical name of a hook.
type Hook string

// The six hooks of the protocol, and three more that can only be observed.
const (
	MessageReceived Hook = "message_received"
	MessageSending  Hook = "message_sending"
	AgentStarting   Hook = "agent_starting"
	AgentCompleted  Hook = "agent_completed"
	ToolExecuting   Hook = "tool_executing"
	ToolCompleted   Hook = "tool_completed"
	MessageSent     Hook = "message_sent"
	SessionStart    Hook = "session_start"
	SessionEnd      Hook = "session_end"
)

// ParseHook returns the canonical hook of a name an app used: the protocol's
// own, or the SDK's alias for it.
func ParseHook(name string) (Hook, bool) {
	switch name {
	case "before_agent_start":
		return AgentStarting, true
	case "agent_end":
		return AgentCompleted, true
	case "before_tool_call":
		return ToolExecuting, true
	case "after_tool_call":
		return ToolCompleted, true
	}
	switch h := Hook(name); h {
	case MessageReceived, MessageSending, AgentStarting, AgentCompleted, ToolExecuting, ToolCompleted,
		MessageSent, SessionStart, SessionEnd:
		return h, true
	}
	return "", false
}

// Interceptable reports whether an app may change or block what the hook is
// about (protocol, Available Hooks).
func (h Hook) Interceptable() bool { return h == MessageSending || h == ToolExecuting }
