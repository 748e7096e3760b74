package hook

import (
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Answers of runtimes that have the form of Claude Code.
var (
	claudeBefore = map[string]Answer{
		toolgate.Allow: {}, toolgate.Leave: {},
		toolgate.Deny:  {Out: `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"$reason"}}`},
		toolgate.Defer: {Out: `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer","permissionDecisionReason":"$reason"}}`},
	}
	codexBefore = map[string]Answer{
		toolgate.Allow: {}, toolgate.Leave: {},
		toolgate.Deny: claudeBefore[toolgate.Deny],
	}
	claudePrompt = map[string]Answer{
		toolgate.Allow: {Out: `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}`},
		toolgate.Deny:  {Out: `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"$reason"}}}`},
		toolgate.Leave: {},
	}
)

// claudeInput is the form of Claude Code, and of Codex, which has no list of servers.
var claudeInput = Input{When: "hook_event_name", Tool: "tool_name", Arguments: "tool_input", Folder: "cwd", Session: "session_id", Call: "tool_use_id"}

// hookWait is how long an entered hook may take, in seconds.
const hookWait = 300

// sharedGuide is the guide of the runtimes without one of their own.
const sharedGuide = "agent-runtimes.md"

// table has the runtimes that run a command before a call of a tool.
//
// Sources: each runtime's own documentation of its hooks, and trials of the version in Run.
var table = []Row{
	{
		Name: "claude-code", Title: directory.TitleOf("claude"), Program: "claude", Least: [3]int{2, 1, 330}, Run: "2.1.330",
		Events: []Event{
			{Name: toolgate.Before, Means: toolgate.Before, Answers: claudeBefore},
			{Name: toolgate.Permission, Means: toolgate.Permission, Answers: claudePrompt},
		},
		Input:  Input{claudeInput.When, claudeInput.Tool, claudeInput.Arguments, claudeInput.Folder, claudeInput.Session, claudeInput.Call, "", "", "mcp_server.source"},
		Defers: [2]string{"CLAUDE_CODE_ENTRYPOINT", "sdk"}, Wait: hookWait,
		Fails: []Failure{
			{"the program is missing, crashes, is killed, or takes too long, with `\"onFailure\":\"block\"`", true},
			{"it ends well and has said nothing, or no JSON", false},
		},
		Gated: []string{"each call of a tool, also of an MCP server and in a subagent"},
		Off:   []string{"`--bare`, `--safe-mode`, `CLAUDE_CODE_SIMPLE=1`, `disableAllHooks`"},
		Files: []string{"`~/.claude.json` (MCP servers)", "`~/.claude/settings.json` (hooks)"}, Guide: "claude-code.md",
	},
	{
		Name: "codex", Title: directory.TitleOf("codex"), Program: "codex", Least: [3]int{0, 169, 0}, Run: "0.169.0",
		Events: []Event{
			{Name: toolgate.Before, Means: toolgate.Before, Answers: codexBefore},
			{Name: toolgate.Permission, Means: toolgate.Permission, Answers: claudePrompt},
		},
		Input: claudeInput, Wait: hookWait,
		Fails: []Failure{{"the program is missing, crashes, is killed, takes too long, or says what Codex does not know", false}},
		Gated: []string{"each call of a tool, also of an MCP server"},
		Open:  []string{"text that is typed into an open shell (`write_stdin`)"},
		Off:   []string{"`features.hooks = false`, `--disable hooks`"},
		Files: []string{"`~/.codex/config.toml`", "`~/.codex/hooks.json`"}, Guide: "codex.md",
	},
	{
		Name: "gemini", Title: directory.TitleOf("gemini"), Program: "gemini", Least: [3]int{0, 61, 0}, Run: "0.61.0",
		Events: []Event{{Name: "BeforeTool", Means: toolgate.Before, Answers: map[string]Answer{
			toolgate.Allow: {Out: "{}"}, toolgate.Leave: {Out: "{}"},
			toolgate.Deny: {Out: `{"decision":"deny","reason":"$reason"}`},
		}}},
		Input:    Input{When: "hook_event_name", Tool: "tool_name", Arguments: "tool_input", Folder: "cwd", Session: "session_id", Server: "mcp_context.server_name", Name: "mcp_context.tool_name"},
		Projects: []string{".gemini/settings.json"}, Users: ".gemini/settings.json", Wait: hookWait,
		Fails: []Failure{
			{"the program is missing, crashes, or is killed", true},
			{"the shell that starts the hook is killed, or takes longer than the hook's time", false},
		},
		Gated: []string{"each call of a tool, also of an MCP server, with `-p` as in a terminal"},
		Open: []string{
			"calls in a folder that its user does not trust: no hooks run there; Gemini CLI asks before calls that change something, and does not start with -p",
		},
		Off: []string{
			"`hooksConfig.enabled: false` and `hooksConfig.disabled`, also in a project's `.gemini/settings.json` and in `/etc/gemini-cli`; `ocipd integrate` and `ocipd doctor` name the file",
			"`/hooks disable-all`, and a folder without trust",
		},
		Files: []string{"`~/.gemini/settings.json`"}, Guide: sharedGuide,
	},
	{
		Name: "copilot", Title: directory.TitleOf("copilot"), Program: "copilot", Least: [3]int{1, 0, 102}, Run: "1.0.102",
		Events: []Event{{Name: "preToolUse", Means: toolgate.Before, Answers: map[string]Answer{
			toolgate.Allow: {Out: "{}"}, toolgate.Leave: {Out: "{}"},
			toolgate.Deny: {Out: `{"permissionDecision":"deny","permissionDecisionReason":"$reason"}`},
		}}},
		Input:   Input{Tool: "toolName", Arguments: "toolArgs", Folder: "cwd", Session: "sessionId"},
		Parting: "-", Projects: []string{".mcp.json", ".github/mcp.json", ".vscode/mcp.json"}, Wait: hookWait,
		Fails: []Failure{
			{"the program is missing, crashes, or is killed", true},
			{"the hook takes longer than its time, or ends well and has said no JSON", false},
		},
		Gated: []string{"each call of a tool, also of an MCP server"},
		Open:  []string{"arguments that a hook of a plugin has changed after the call was allowed"},
		Off:   []string{"`disableAllHooks` in the file of the hook or in `~/.copilot/settings.json`, and in a project's `.github/copilot/settings.json` or `.claude/settings.json`, also with `.local`; `disabledHooks` in `~/.copilot/settings.json`; `ocipd integrate` and `ocipd doctor` name the file"},
		Files: []string{"`~/.copilot/mcp-config.json` (MCP servers)", "`~/.copilot/hooks/ocipd.json` (the hook)"}, Guide: sharedGuide,
	},
	{
		Name: "cursor", Title: directory.TitleOf("cursor-agent"), Program: "cursor-agent",
		Events: []Event{{Name: "preToolUse", Means: toolgate.Before, Answers: map[string]Answer{
			toolgate.Allow: {Out: `{"permission":"allow"}`}, toolgate.Leave: {Out: `{"permission":"allow"}`},
			toolgate.Deny: {Out: `{"permission":"deny","user_message":"$reason","agent_message":"$reason"}`},
		}}},
		Input:   Input{When: "hook_event_name", Tool: "tool_name", Arguments: "tool_input", Folder: "cwd", Session: "conversation_id", Call: "tool_use_id"},
		Foreign: "MCP:", Wait: hookWait,
		Fails: []Failure{{"the program is missing, crashes, is killed, takes too long, or says no JSON (`failClosed`)", true}},
		Gated: []string{"each call of a tool of the agent, also of an MCP server"},
		Open:  []string{"completions of the editor (Tab)"},
		Off:   []string{"its entry in `~/.cursor/hooks.json`; `ocipd integrate` and `ocipd doctor` name a missing or changed one, and hooks of others there and in a project's `.cursor/hooks.json`, which can change a call"},
		Files: []string{"`~/.cursor/mcp.json` (MCP servers)", "`~/.cursor/hooks.json` (the hook)"}, Guide: sharedGuide,
	},
	{
		Name: "goose", Title: directory.TitleOf("goose"), Program: "goose",
		Events: []Event{{Name: "PreToolUse", Means: toolgate.Before, Answers: map[string]Answer{
			toolgate.Allow: {Out: `{"decision":"allow"}`}, toolgate.Leave: {Out: `{"decision":"allow"}`},
			toolgate.Deny: {Out: `{"decision":"block","reason":"$reason"}`},
		}}},
		Input:   Input{When: "event", Tool: "tool_name", Arguments: "tool_input", Folder: "working_dir", Session: "session_id", Call: "tool_call_id"},
		Parting: "__", Own: []string{"developer"}, Wait: hookWait,
		Fails: []Failure{{"the program is missing, crashes, is killed, takes too long, or says no decision (`on_failure`)", true}},
		Gated: []string{"each call of a tool, all of which belong to extensions; a call of an extension behind the proxy is decided there too, as a message"},
		Off:   []string{"`disabledPlugins` in `~/.config/goose/settings.json` or in a project's `.config/goose/settings.json`, also with `.local`; `plugins` in `~/.config/goose/config.yaml`; a project's plugin `.agents/plugins/ocipd`; `ocipd integrate` and `ocipd doctor` name the file"},
		Files: []string{"`~/.config/goose/config.yaml` (extensions that are MCP servers)", "`~/.agents/plugins/ocipd/hooks/hooks.json` (the hook)"}, Guide: sharedGuide,
	},
}
