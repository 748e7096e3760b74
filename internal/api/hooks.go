package api

import (
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
)

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

// Hooks lists the hooks by their canonical names.
func Hooks() []Hook {
	return []Hook{
		MessageReceived, MessageSending, AgentStarting, AgentCompleted, ToolExecuting, ToolCompleted, MessageSent, SessionStart, SessionEnd,
	}
}

// ParseHook returns the canonical hook of a name from an app: the protocol's own name, or the
// SDK's alias for it.
func ParseHook(name string) (Hook, bool) {
	for _, h := range Hooks() {
		if name == string(h) || name == h.Alias() && name != "" {
			return h, true
		}
	}
	return "", false
}

// Alias is the SDK's name for the hook, "" for none.
func (h Hook) Alias() string {
	switch h {
	case AgentStarting:
		return "before_agent_start"
	case AgentCompleted:
		return "agent_end"
	case ToolExecuting:
		return "before_tool_call"
	case ToolCompleted:
		return "after_tool_call"
	case MessageReceived, MessageSending, MessageSent, SessionStart, SessionEnd:
	}
	return ""
}

// Interceptable reports whether an app may change or block the message or the call of the hook
// (protocol, Available Hooks).
func (h Hook) Interceptable() bool { return h == MessageSending || h == ToolExecuting }

// Data is the type of the member data of the hook's events.
func (h Hook) Data() reflect.Type {
	switch h {
	case MessageSending, MessageSent:
		return reflect.TypeFor[Message]()
	case MessageReceived:
		return reflect.TypeFor[Inbound]()
	case AgentStarting:
		return reflect.TypeFor[runStarting]()
	case AgentCompleted:
		return reflect.TypeFor[runCompleted]()
	case SessionStart:
		return reflect.TypeFor[sessionStarted]()
	case ToolExecuting, ToolCompleted:
		return reflect.TypeFor[toolUse]()
	case SessionEnd:
	}
	return reflect.TypeFor[Object]()
}

// Open reports whether apps can raise the hook too, with data of any form.
func (h Hook) Open() bool { return h == AgentStarting || h == AgentCompleted || h == SessionStart }

// runStarting is the data of agent_starting.
type runStarting struct {
	RunID      string `json:"runId"`
	AgentID    string `json:"agentId"`
	SessionKey string `json:"sessionKey"`
}

// runCompleted is the data of agent_completed.
type runCompleted struct {
	RunID      string `json:"runId"`
	SessionKey string `json:"sessionKey"`
	Success    bool   `json:"success"`
	Error      string `json:"error"`
}

// sessionStarted is the data of session_start.
type sessionStarted struct {
	SessionKey string `json:"sessionKey"`
	AgentID    string `json:"agentId"`
}

// toolUse is the data of tool_executing and tool_completed. Runtimes raise these hooks with
// further members of their own; the daemon checks the form of none in a call that it only passes on.
type toolUse struct {
	Tool           jsontext.Value `json:"toolName,omitzero" doc:"The tool's name, a string."`
	Params         jsontext.Value `json:"params,omitzero" doc:"The tool's arguments."`
	Server         jsontext.Value `json:"mcpServer,omitzero" doc:"The tool's server, a string."`
	Folder         jsontext.Value `json:"cwd,omitzero" doc:"The working folder, a string."`
	Origin         jsontext.Value `json:"origin,omitzero" doc:"A string that tells the server from others of its name."`
	Map            jsontext.Value `json:"map,omitzero" doc:"The proxy's map for the server, a string."`
	Unmapped       jsontext.Value `json:"unmapped,omitzero" doc:"true if no map has the tool and the tool takes text."`
	InputResponses jsontext.Value `json:"inputResponses,omitzero" doc:"The client's answers about the call."`
	Headers        jsontext.Value `json:"headers,omitzero" doc:"The arguments that the request's header repeats."`
	ToolCallID     jsontext.Value `json:"toolCallId,omitzero" doc:"The call's number in the runtime, a string."`
}
