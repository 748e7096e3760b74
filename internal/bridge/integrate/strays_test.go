package integrate

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// strayFiles are the runtimes' files before they are put behind the daemon.
var strayFiles = map[string]map[string]string{
	"claude-code": {
		".claude.json":          `{"mcpServers":{"slack":{"command":"npx","args":["server-slack"],"env":{"T":"x"}},"web":{"type":"http","url":"https://x"}},"projects":{"HOME/w":{"history":[]}}}`,
		".claude/settings.json": `{"model":"o","permissions":{"allow":["Bash"]}}`,
		"w/x":                   "",
	},
	"opencode": {
		".config/opencode/opencode.json": `{"model":"o", /* mine */ "mcp":{"slack":{"type":"local","command":["npx"],"environment":{"T":"x"}}}}`,
	},
	"codex": {
		".codex/config.toml": "model = \"o\"\n[projects.\"HOME/w\"]\ntrust_level = \"trusted\"\n[mcp_servers.slack]\ncommand = \"npx\"\nenv = {T = \"x\"}\n[mcp_servers.web]\nurl = \"https://x\"\n",
		"w/x":                "",
	},
}

// strayTests are edits that disable or loosen a gate: was becomes now in a file, which is created
// if necessary. says is the expected report. Edits that are not repaired are in files of others.
var strayTests = []struct {
	runtime, name, file, was, now, says string
	stays                               bool
}{
	{"opencode", "another gate asked", ".config/opencode/plugins/ocipd.js", `"tool-gate"`, `"other"`, "it is not as it was entered", false},
	{"opencode", "a call that is not asked about", ".config/opencode/plugins/ocipd.js", "const tool = ", "return\n const tool = ", "it is not as it was entered", false},
	{"opencode", "no plugin", ".config/opencode/plugins/ocipd.js", "", "", "it is missing", false},
	{"opencode", "a server that finds another daemon", ".config/opencode/opencode.json", `"T":"x"`, `"OCIPD_CONFIG":"/x","T":"x"`, "server slack: with OCIPD_CONFIG in its environment", false},
	{"opencode", "a server with another member", ".config/opencode/opencode.json", `"type":"local"`, `"type":"local","shell":"x"`, "server slack: with shell", false},
	{"opencode", "a server that asks another daemon", ".config/opencode/opencode.json", `"/s"`, `"/x"`, "server slack: asking the daemon at /x", false},
	{"claude-code", "no hooks", ".claude/settings.json", `{"model"`, `{"disableAllHooks":true,"model"`, "disableAllHooks is true", false},
	{"claude-code", "no hooks, in another way", ".claude/settings.json", `{"model"`, `{"disableAllHooks":1,"model"`, "disableAllHooks is 1", false},
	{"claude-code", "another matcher", ".claude/settings.json", `"matcher":"*"`, `"matcher":"Nothing"`, `hooks.PreToolUse[0].matcher is "Nothing", and "*" was entered`, false},
	{"claude-code", "a condition", ".claude/settings.json", `"type":"mcp_tool"`, `"if":"Bash(nothing)","type":"mcp_tool"`, "hooks.PreToolUse[0].hooks[0].if was not entered", false},
	{"claude-code", "fails open", ".claude/settings.json", `"onFailure":"block",`, ``, "hooks.PreToolUse[0].hooks[0].onFailure is missing", false},
	{"claude-code", "fails open, by another word", ".claude/settings.json", `"onFailure":"block"`, `"onFailure":"deny"`, "hooks[0].onFailure", false},
	{"claude-code", "asked in the background", ".claude/settings.json", `"type":"mcp_tool"`, `"async":true,"type":"mcp_tool"`, "hooks[0].async was not entered", false},
	{"claude-code", "another time", ".claude/settings.json", `"timeout":300`, `"timeout":1`, "hooks[0].timeout is 1, and 300 was entered", false},
	{"claude-code", "another question", ".claude/settings.json", `"input":"${tool_input}"`, `"input":"{}"`, "input.input", false},
	{"claude-code", "another server asked", ".claude/settings.json", `"server":"ocipd-gate"`, `"server":"web"`, "the entry in hooks.PreToolUse is missing", true},
	{"claude-code", "no hook any more", ".claude/settings.json", `"PreToolUse"`, `"Stop"`, "the entry in hooks.PreToolUse is missing", false},
	{"claude-code", "the hook twice", ".claude/settings.json", `"PreToolUse": [`, `"PreToolUse": [{"matcher":"x","hooks":[{"type":"mcp_tool","server":"ocipd-gate","tool":"decide"}]},`, "twice", false},
	{"claude-code", "another daemon for all", ".claude/settings.json", `{"model"`, `{"env":{"OPENCLAWOS_KERNEL_SOCKET":"/x","A":"b"},"model"`, "env.OPENCLAWOS_KERNEL_SOCKET", false},
	{"claude-code", "no hooks by a variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_SIMPLE":"1","A":"b"},"model"`, "env.CLAUDE_CODE_SIMPLE", false},
	{"claude-code", "no hooks by another variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_SAFE_MODE":"1"},"model"`, "env.CLAUDE_CODE_SAFE_MODE", false},
	{"claude-code", "no hooks of one's own, by a variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_PERSONAL_HOOKS_OFF":"all"},"model"`, "env.CLAUDE_CODE_PERSONAL_HOOKS_OFF", false},
	{"claude-code", "another file of settings, by a variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_USE_COWORK_PLUGINS":"1"},"model"`, "env.CLAUDE_CODE_USE_COWORK_PLUGINS", false},
	{"claude-code", "other settings of the machine, by a variable", ".claude.json", `"history":[]`, `"history":[]}},"env":{"CLAUDE_CODE_MANAGED_SETTINGS_PATH":"/x"},"x":{"y":{`, "env.CLAUDE_CODE_MANAGED_SETTINGS_PATH", false},
	{"claude-code", "no hooks by a variable, beside the servers", ".claude.json", `"history":[]`, `"history":[]}},"env":{"CLAUDE_CODE_SAFE_MODE":1},"x":{"y":{`, "env.CLAUDE_CODE_SAFE_MODE", false},
	{"claude-code", "no hooks by a variable in a project, by the user", "w/.claude/settings.local.json", "", `{"env":{"CLAUDE_CODE_SIMPLE":"1"},"x":1}`, "env.CLAUDE_CODE_SIMPLE", false},
	{"claude-code", "other settings by a variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CONFIG_DIR":"/x"},"model"`, "env.CLAUDE_CONFIG_DIR", false},
	{"claude-code", "servers through another program", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_SHELL_PREFIX":"/x"},"model"`, "env.CLAUDE_CODE_SHELL_PREFIX", false},
	{"claude-code", "code that is loaded", ".claude/settings.json", `{"model"`, `{"env":{"BUN_OPTIONS":"--preload /x"},"model"`, "env.BUN_OPTIONS", false},
	{"claude-code", "the gate's server denied", ".claude/settings.json", `{"model"`, `{"deniedMcpServers":[{"serverName":"other"},{"serverName":"ocipd-gate"}],"model"`, "deniedMcpServers has ocipd-gate", false},
	{"claude-code", "the gate's command denied", ".claude/settings.json", `{"model"`, `{"deniedMcpServers":[{"serverCommand":["/usr/bin/ocipd","--socket","/s","tool-gate"]}],"model"`, "deniedMcpServers has ocipd-gate", false},
	{"claude-code", "other servers allowed", ".claude/settings.json", `{"model"`, `{"allowedMcpServers":[{"serverName":"other"}],"model"`, "allowedMcpServers does not have ocipd-gate", false},
	{"claude-code", "the gate's environment", ".claude.json", `"command":"/usr/bin/ocipd","type":"stdio"`, `"command":"/usr/bin/ocipd","env":{"LD_PRELOAD":"/x"},"type":"stdio"`, "mcpServers.ocipd-gate.env was not entered", false},
	{"claude-code", "the gate disabled", ".claude.json", `"command":"/usr/bin/ocipd","type":"stdio"`, `"command":"/usr/bin/ocipd","disabled":true,"type":"stdio"`, "mcpServers.ocipd-gate.disabled was not entered", false},
	{"claude-code", "the gate disabled in a project", ".claude.json", `"history":[]`, `"history":[],"disabledMcpServers":["ocipd-gate","o"]`, "disabledMcpServers has ocipd-gate", false},
	{"claude-code", "another gate in a project, by the user", ".claude.json", `"history":[]`, `"history":[],"mcpServers":{"ocipd-gate":{"command":"yes"}}`, "mcpServers.ocipd-gate takes the place", false},
	{"claude-code", "another gate in a project, over HTTP", ".claude.json", `"history":[]`, `"history":[],"mcpServers":{"ocipd-gate":{"type":"http","url":"https://y"}}`, "mcpServers.ocipd-gate takes the place", false},
	{"claude-code", "another gate in a project, shared", "w/.mcp.json", "", `{"mcpServers":{"ocipd-gate":{"command":"yes"}}}`, "mcpServers.ocipd-gate takes the place", true},
	{"claude-code", "another gate in a folder above a project", ".mcp.json", "", `{"mcpServers":{"ocipd-gate":{"command":"yes"}}}`, "mcpServers.ocipd-gate takes the place", true},
	{"claude-code", "another agent's token", ".claude.json", `"tool-gate","--runtime","claude-code","--token-file","/t"`, `"tool-gate","--runtime","claude-code","--token-file","/other"`, "mcpServers.ocipd-gate.args[6]", false},
	{"claude-code", "another server left out", ".claude.json", `"--without","user:slack"`, `"--without","user:slack","--without","user:web"`, "mcpServers.ocipd-gate.args has 11 elements", false},
	{"claude-code", "the gate is another program", ".claude.json", `"command":"/usr/bin/ocipd","type":"stdio"`, `"command":"/tmp/ocipd","type":"stdio"`, `mcpServers.ocipd-gate.command is "/tmp/ocipd"`, false},
	{"claude-code", "no gate any more", ".claude.json", `"ocipd-gate"`, `"other"`, "mcpServers.ocipd-gate is missing", false},
	{"claude-code", "a server asks another daemon", ".claude.json", `"--socket", "/s", "mcp-proxy"`, `"--socket", "/x", "mcp-proxy"`, "server slack: asking the daemon at /x", false},
	{"claude-code", "a server of which much passes", ".claude.json", `"--name", "slack", "--"`, `"--unmapped=pass", "--map", "empty.yaml", "--"`, "server slack: with --unmapped=pass", false},
	{"claude-code", "a server asks two daemons", ".claude.json", `"--socket", "/s", "mcp-proxy"`, `"--socket", "/s", "--socket", "/x", "mcp-proxy"`, "server slack: with --socket twice", false},
	{"claude-code", "a server asks the usual daemon", ".claude.json", `"--socket", "/s", "mcp-proxy"`, `"mcp-proxy"`, "server slack: without --socket", false},
	{"claude-code", "a server of another configuration", ".claude.json", `"--socket", "/s", "mcp-proxy"`, `"--config", "/x", "mcp-proxy"`, "server slack: with --config /x", false},
	{"claude-code", "a server with another token", ".claude.json", `"--agent", "alice", "--token-file", "/t"`, `"--agent", "alice", "--token-file", "/x"`, "server slack: with --token-file /x", false},
	{"claude-code", "a server over HTTP", ".claude.json", `"slack":{"command"`, `"slack":{"type":"http","url":"https://y","headers":{"a":"b"},"command"`, "server slack: with type", false},
	{"claude-code", "a server of another type", ".claude.json", `"env":{"T":"x"}`, `"env":{"T":"x"},"type":"sse"`, "server slack: with type", false},
	{"claude-code", "a server with an unknown member", ".claude.json", `"slack":{"command"`, `"slack":{"runner":"x","command"`, "server slack: with runner", false},
	{"claude-code", "a server over HTTP by a name in PATH", ".claude.json", `"slack":{"command":"/usr/bin/ocipd"`, `"slack":{"type":"http","url":"https://y","command":"ocipd"`, "server slack: by the program ocipd", false},
	{"claude-code", "a server by a name in PATH", ".claude.json", `"slack":{"command":"/usr/bin/ocipd"`, `"slack":{"command":"ocipd"`, "server slack: by the program ocipd", false},
	{"claude-code", "a server's environment", ".claude.json", `"env":{"T":"x"}`, `"env":{"T":"x","LD_PRELOAD":"/x"}`, "server slack: with LD_PRELOAD in its environment", false},
	{"claude-code", "a server is started by another program", ".claude.json", `"slack":{"command":"/usr/bin/ocipd"`, `"slack":{"command":"/tmp/ocipd"`, "server slack: by the program /tmp/ocipd", false},
	{"claude-code", "a server behind nothing", ".claude.json", `"slack":{"command":"/usr/bin/ocipd","args":["--socket", "/s", "mcp-proxy", "--agent", "alice", "--token-file", "/t", "--name", "slack", "--", "npx", "server-slack"]`, `"slack":{"command":"npx"`, "server slack is not behind the proxy,", false},
	{"claude-code", "no hooks in a project, by the user", "w/.claude/settings.local.json", "", `{"disableAllHooks":true,"x":1}`, "disableAllHooks is true", false},
	{"claude-code", "no hooks in a project, shared", "w/.claude/settings.json", "", `{"disableAllHooks":true}`, "disableAllHooks is true", true},
	{"claude-code", "a project's settings that nobody can read", "w/.claude/settings.json", "", `{`, "cannot be read", true},
	{"claude-code", "hooks of the machine alone", "etc/claude-code/managed-settings.json", "", `{"allowManagedHooksOnly":true}`, "allowManagedHooksOnly is set", true},
	{"claude-code", "hooks of plugins alone", "etc/claude-code/managed-settings.json", "", `{"strictPluginOnlyCustomization":["mcp","hooks"]}`, "strictPluginOnlyCustomization is set", true},
	{"claude-code", "hooks of the organization alone", ".claude/remote-settings.json", "", `{"allowManagedHooksOnly":true}`, "allowManagedHooksOnly is set", true},
	{"claude-code", "no hooks by the organization", ".claude/state/hybrid-settings.json", "", `{"disableAllHooks":true}`, "disableAllHooks is true", true},
	{"claude-code", "no hooks on the machine", "etc/claude-code/managed-settings.d/9.json", "", `{"disableAllHooks":true}`, "disableAllHooks is true", true},

	{"claude-code", "another hook", ".claude/settings.json", `"PreToolUse": [`, `"PreToolUse": [{"matcher":"x","hooks":[{"type":"command","command":"mine"}]},`, "hooks.PreToolUse[0] can change a call", true},
	{"claude-code", "another hook in a project, shared", "w/.claude/settings.json", "", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "hooks.PreToolUse[0] can change a call", true},
	{"claude-code", "another hook in a project, by the user", "w/.claude/settings.local.json", "", `{"hooks":{"PermissionRequest":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "hooks.PermissionRequest[0] can change a call", true},
	{"claude-code", "another hook that poses as the gate in a project", "w/.claude/settings.json", "", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x","server":"ocipd-gate","tool":"decide"}]}]}}`, "hooks.PreToolUse[0] can change a call", true},
	{"claude-code", "another hook on the machine", "etc/claude-code/managed-settings.json", "", `{"hooks":{"PermissionRequest":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "hooks.PermissionRequest[0] can change a call", true},
	{"claude-code", "another hook of an agent", ".claude/agents/team/a.md", "", "---\r\nname: a\r\nhooks:\r\n  PreToolUse:\r\n    - hooks: [{type: command, command: x}]\r\n---\r\nBe kind.\r\n", "hooks.PreToolUse[0] can change a call", true},
	{"claude-code", "another hook of an agent that nobody can read", ".claude/agents/a.md", "", "---\nname: a: b: c\nhooks: [\n---\n", "cannot be read", true},
	{"claude-code", "another hook of a skill in a project", "w/.claude/skills/s/SKILL.md", "", "---\nhooks: {PermissionRequest: [{hooks: [{type: command, command: x}]}]}\n---\n", "hooks.PermissionRequest[0] can change a call", true},
	{"claude-code", "another hook of a command of the machine", "etc/claude-code/.claude/commands/c.md", "", "---\nhooks: {PreToolUse: [{hooks: [{type: command, command: x}]}]}\n---\n", "hooks.PreToolUse[0] can change a call", true},
	{"claude-code", "plugins that nobody can read", ".claude/plugins/installed_plugins.json", "", `{`, "cannot be read", true},
	{"claude-code", "other plugins by a variable", ".claude/settings.json", `{"model"`, `{"env":{"CLAUDE_CODE_PLUGIN_DIRS":"/x"},"model"`, "env.CLAUDE_CODE_PLUGIN_DIRS", false},

	{"codex", "another matcher", ".codex/hooks.json", `"matcher":".*"`, `"matcher":"Nothing"`, `hooks.PreToolUse[0].matcher is "Nothing"`, false},
	{"codex", "another time", ".codex/hooks.json", `"timeout":300,"tool":"decide","type":"mcp_tool"}],"matcher":".*"`, `"timeout":1,"tool":"decide","type":"mcp_tool"}],"matcher":".*"`, "hooks[0].timeout is 1", false},
	{"codex", "prompts are not answered", ".codex/hooks.json", `"PermissionRequest"`, `"Stop"`, "the entry in hooks.PermissionRequest is missing", false},
	{"codex", "a hook before ours", ".codex/hooks.json", `"PreToolUse": [`, `"PreToolUse": [{"matcher":"x","hooks":[{"type":"command","command":"mine"}]},`, "pre_tool_use:1:0 is missing", true},
	{"codex", "no hooks any more", ".codex/hooks.json", `"PreToolUse"`, `"Stop"`, "the entry in hooks.PreToolUse is missing", false},
	{"codex", "hooks are off", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\n[features]\nhooks = false\nother = true\n", "features.hooks is false", false},
	{"codex", "hooks are off by a dotted key", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\nfeatures.hooks = false\n", "features.hooks is false", false},
	{"codex", "hooks are off in one line", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\nprofiles.p = { features = { hooks = false } }\n", "profiles.p.features.hooks is false", true},
	{"codex", "hooks are off in a profile", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\n[profiles.p.features]\nhooks = false\n", "profiles.p.features.hooks is false", false},
	{"codex", "not trusted", ".codex/config.toml", "sha256:PreToolUse", "sha256:other", "trusted_hash is \"sha256:other\"", false},
	{"codex", "a hook switched off", ".codex/config.toml", "trusted_hash = \"sha256:PreToolUse\"\n", "trusted_hash = \"sha256:PreToolUse\"\nenabled = false\n", "enabled was not entered", false},
	{"codex", "the gate disabled", ".codex/config.toml", "required = true\n", "required = true\nenabled = false\n", "mcp_servers.ocipd-gate.enabled was not entered", false},
	{"codex", "the gate not required", ".codex/config.toml", "required = true\n", "", "mcp_servers.ocipd-gate.required is missing", false},
	{"codex", "the gate's tool disabled", ".codex/config.toml", "required = true\n", "required = true\ndisabled_tools = [\"decide\"]\n", "mcp_servers.ocipd-gate.disabled_tools was not entered", false},
	{"codex", "the gate's environment, elsewhere", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\n[mcp_servers.ocipd-gate.env]\nOPENCLAWOS_KERNEL_SOCKET = \"/x\"\n", "mcp_servers.ocipd-gate.env was not entered", false},
	{"codex", "the gate is another program", ".codex/config.toml", "[mcp_servers.ocipd-gate]\ncommand = \"/usr/bin/ocipd\"", "[mcp_servers.ocipd-gate]\ncommand = \"/tmp/ocipd\"", "mcp_servers.ocipd-gate.command", false},
	{"codex", "another server left out", ".codex/config.toml", `"--without", "slack"]`, `"--without", "slack", "--without", "web"]`, "mcp_servers.ocipd-gate.args has", false},
	{"codex", "the gate in other lines", ".codex/config.toml", "# What ocipd integrate has entered begins here.\n", "", "lines around", false},
	{"codex", "a server not on prompt", ".codex/config.toml", "default_tools_approval_mode = \"prompt\" # by ocipd integrate", "default_tools_approval_mode = \"approve\"", "mcp_servers.web.default_tools_approval_mode is \"approve\"", false},
	{"codex", "a server's environment", ".codex/config.toml", "env = {T = \"x\"}", "env = {T = \"x\", LD_PRELOAD = \"/x\"} # mine", "server slack: with LD_PRELOAD in its environment", false},
	{"codex", "a server's environment in a table", ".codex/config.toml", "env = {T = \"x\"}", "[mcp_servers.slack.env]\nT = \"x\"\nLD_PRELOAD = \"/x\"", "server slack: with LD_PRELOAD in its environment", false},
	{"codex", "a variable that is passed to a server", ".codex/config.toml", "env = {T = \"x\"}", "env = {T = \"x\"}\nenv_vars = [\"A\", \"LD_PRELOAD\"]", "server slack: with LD_PRELOAD in its environment", false},
	{"codex", "a server over HTTP", ".codex/config.toml", "env = {T = \"x\"}", "env = {T = \"x\"}\nurl = \"https://y\"", "server slack: with url", false},
	{"codex", "a server elsewhere", ".codex/config.toml", "env = {T = \"x\"}", "env = {T = \"x\"}\nenvironment_id = \"y\"", "server slack: with environment_id", false},
	{"codex", "a server asks another daemon", ".codex/config.toml", `"--socket", "/s", "mcp-proxy"`, `"--socket", "/x", "mcp-proxy"`, "server slack: asking the daemon at /x", false},
	{"codex", "a project's gate", "w/.codex/config.toml", "", "[mcp_servers.ocipd-gate]\ncommand = \"true\"\n", "mcp_servers.ocipd-gate takes the place", true},
	{"codex", "a profile's gate", ".codex/p.config.toml", "", "[mcp_servers.ocipd-gate]\ncommand = \"true\"\n", "mcp_servers.ocipd-gate takes the place", true},
	{"codex", "no hooks in a profile's file", ".codex/p.config.toml", "", "features.hooks = false\n", "features.hooks is false", true},
	{"codex", "no hooks in a profile of a profile's file", ".codex/p.config.toml", "", "[profiles.q.features]\nhooks = false\n", "profiles.q.features.hooks is false", true},
	{"codex", "the machine's gate", "etc/codex/config.toml", "", "[mcp_servers.ocipd-gate]\nenabled = false\n", "mcp_servers.ocipd-gate takes the place", true},
	{"codex", "a hook switched off in a profile's file", ".codex/p.config.toml", "", "[hooks.state.\"HOME/.codex/hooks.json:pre_tool_use:0:0\"]\nenabled = false\n", "hooks.state.HOME/.codex/hooks.json:pre_tool_use:0:0 takes the place", true},
	{"codex", "a hook switched off in a project", "w/.codex/config.toml", "", "[hooks.state.\"HOME/.codex/hooks.json:permission_request:0:0\"]\nenabled = false\n", "permission_request:0:0 takes the place", true},
	{"codex", "a hook switched off on the machine", "etc/codex/managed_config.toml", "", "hooks.state.\"HOME/.codex/../.codex/hooks.json:pre_tool_use:0:0\".enabled = false\n", "pre_tool_use:0:0 takes the place", true},
	{"codex", "a server not on prompt in a profile's file", ".codex/p.config.toml", "", "[mcp_servers.web]\ndefault_tools_approval_mode = \"approve\"\n", "mcp_servers.web.default_tools_approval_mode takes the place", true},
	{"codex", "a server not behind the proxy in a profile's file", ".codex/p.config.toml", "", "[mcp_servers.slack]\ncommand = \"python3\"\nargs = [\"x\"]\n", "server slack is not behind the proxy, and its calls are asked about nowhere else", false},
	{"codex", "a server over HTTP in its place in a profile's file", ".codex/p.config.toml", "", "[mcp_servers.slack]\nurl = \"https://y\"\n", "server slack is not behind the proxy, ", false},
	{"codex", "another command line of a server in a profile's file", ".codex/p.config.toml", "", "[mcp_servers.slack]\nargs = [\"x\"]\n", "server slack is not behind the proxy, ", false},
	{"codex", "a server not behind the proxy in a project", "w/.codex/config.toml", "", "[mcp_servers.slack]\ncommand = \"python3\"\n", "server slack is not behind the proxy, ", false},
	{"codex", "a server not behind the proxy on the machine", "etc/codex/config.toml", "", "[mcp_servers.slack]\ncommand = \"python3\"\n", "server slack is not behind the proxy, ", false},
	{"codex", "another hook", ".codex/hooks.json", `"PreToolUse": [`, `"PreToolUse": [{"hooks":[{"type":"command","command":"mine"}]},`, "hooks.PreToolUse[0] can change a call", true},
	{"codex", "another hook in the settings", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\n[[hooks.PermissionRequest]]\n[[hooks.PermissionRequest.hooks]]\ntype = \"command\"\ncommand = \"x\"\n", "hooks.PermissionRequest[0] can change a call", true},
	{"codex", "another hook in a profile's file", ".codex/p.config.toml", "", "[[hooks.PreToolUse]]\nhooks = [{type = \"command\", command = \"x\"}]\n", "hooks.PreToolUse[0] can change a call", true},
	{"codex", "another hook in a project", "w/.codex/hooks.json", "", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "hooks.PreToolUse[0] can change a call", true},
	{"codex", "another hook that poses as the gate in a project", "w/.codex/hooks.json", "", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x","server":"ocipd-gate","tool":"decide"}]}]}}`, "hooks.PreToolUse[0] can change a call", true},
	{"codex", "another hook on the machine", "etc/codex/requirements.toml", "", "[[hooks.PreToolUse]]\nhooks = [{type = \"command\", command = \"x\"}]\n", "hooks.PreToolUse[0] can change a call", true},
	{"codex", "a plugin's hook that is trusted", ".codex/config.toml", "model = \"o\"\n", "model = \"o\"\n[hooks.state.\"p@m:hooks/hooks.json:pre_tool_use:0:0\"]\ntrusted_hash = \"x\"\n", "p@m:hooks/hooks.json:pre_tool_use:0:0 trusts a hook", true},
	{"codex", "hooks in a project that nobody can read", "w/.codex/hooks.json", "", `{`, "cannot be read", true},
	{"codex", "no hooks in a project", "w/.codex/config.toml", "", "[features]\nhooks = false\n", "features.hooks is false", true},
	{"codex", "hooks of the machine alone", "etc/codex/requirements.toml", "", "allow_managed_hooks_only = true\n", "allow_managed_hooks_only is true", true},
	{"codex", "no hooks on the machine", "etc/codex/managed_config.toml", "", "[features]\nhooks = false\n", "features.hooks is false", true},
}

// Each edit that disables or loosens a gate is reported with its file, and entering the
// gate again repairs it, except in files of others. After removal, the runtime's files
// contain nothing of ours.
func TestStrays(t *testing.T) {
	t.Parallel()
	for _, tt := range strayTests {
		t.Run(tt.runtime+", "+tt.name, func(t *testing.T) {
			t.Parallel()
			p := asking(t, strayFiles[tt.runtime])
			at := func(name string) string { return filepath.Join(p.Home, name) }
			for name := range strayFiles[tt.runtime] {
				write(t, at(name), strings.ReplaceAll(read(t, at(name)), "HOME", p.Home))
			}
			r := Find(tt.runtime)
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
			if asks, why, rest, err := r.Tools(p); !asks || len(rest) > 0 || err != nil {
				t.Fatalf("entered: %t, %s, %v, %v", asks, why, rest, err)
			}
			if held, ok := Held(p.Notes)[tt.runtime]; !ok || len(held) > 0 {
				t.Fatalf("entered: %t, %v", ok, held)
			}
			tt.now, tt.says = strings.ReplaceAll(tt.now, "HOME", p.Home), strings.ReplaceAll(tt.says, "HOME", p.Home)
			text := ""
			if tt.was != "" {
				text = read(t, at(tt.file))
				if strings.Count(text, tt.was) != 1 {
					t.Fatalf("%s has %q %d times:\n%s", tt.file, tt.was, strings.Count(text, tt.was), text)
				}
			}
			write(t, at(tt.file), strings.Replace(text, tt.was, tt.now, 1))
			named := func(list []Stray) bool {
				return slices.ContainsFunc(list, func(s Stray) bool { return s.File == at(tt.file) && strings.Contains(s.What, tt.says) })
			}
			strays, err := r.Strays(p)
			if tt.file == ".codex/hooks.json" && strings.Contains(tt.says, "pre_tool_use") {
				tt.file = ".codex/config.toml" // the file of the trust
			}
			if err != nil || !named(strays) {
				t.Fatalf("it says %v, %v", strays, err)
			}
			asks, why, rest, err := r.Tools(p)
			if elsewhere := strings.HasPrefix(tt.file, "w/") || tt.file == ".mcp.json" || strings.Contains(tt.name, "in a project"); err != nil || asks != elsewhere || elsewhere != named(rest) {
				t.Errorf("its tools: %t, %s, %v, %v", asks, why, rest, err)
			}
			if !tt.stays && !strings.HasPrefix(tt.file, "etc/") && len(Held(p.Notes)[tt.runtime]) == 0 {
				t.Error("nobody who looks at what was kept sees it")
			}
			plan, err = r.Behind(p, "alice")
			if err != nil && tt.stays {
				return
			}
			apply(t, plan, err)
			if strays, err = r.Strays(p); err != nil || len(strays) > 0 != tt.stays {
				t.Errorf("entered again: %v, %v", strays, err)
			}
			if servers, err := r.Servers(p); err != nil || !tt.stays && strings.HasPrefix(tt.name, "a ") && !servers[slices.IndexFunc(servers, func(s Server) bool { return s.Name == "slack" })].Gated() {
				t.Errorf("the servers: %+v, %v", servers, err)
			}
			if again, err := r.Behind(p, "alice"); err != nil || !again.Empty() {
				t.Errorf("a third time changes %v, %v", again.Edits, err)
			}
			plan, err = r.Remove(p)
			apply(t, plan, err)
			for name, text := range all(t, p) {
				if !strings.HasPrefix(name, "w/") && !strings.HasPrefix(name, "etc/") && name != ".mcp.json" && name != ".codex/p.config.toml" && tt.now != `"Stop"` && (strings.Contains(text, `"ocipd-gate": {`) || strings.Contains(text, "[mcp_servers.ocipd-gate") || strings.Contains(text, `"server":"ocipd-gate"`) || strings.Contains(text, "mcp-proxy")) {
					t.Errorf("taken out, %s is\n%s", name, text)
				}
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Other settings of a runtime or its user beside the entries, in any order and place, are no strays.
func TestNoStrays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ runtime, file, was, now string }{
		"written anew":                  {"claude-code", ".claude.json", "", ""},
		"a hook of another event":       {"claude-code", ".claude/settings.json", `"PreToolUse": [`, `"PostToolUse": [{"matcher":"x","hooks":[{"type":"command","command":"mine"}]}],"PreToolUse": [{"matcher":"x","hooks":[]},`},
		"a server's time in a profile":  {"codex", ".codex/p.config.toml", "", "[mcp_servers.slack]\nenabled = false\ntool_timeout_sec = 9\n"},
		"hooks are not off":             {"claude-code", ".claude/settings.json", `{"model"`, `{"disableAllHooks":false,"deniedMcpServers":[{"serverName":"o"}],"allowedMcpServers":[{"serverName":"ocipd-gate"}],"env":{"PATH":"/x","NODE_OPTIONS":"-r x","CLAUDE_CODE_USE_BEDROCK":"1"},"model"`},
		"hooks in an agent's text":      {"claude-code", ".claude/agents/a.md", "", "---\ndescription: Use when: hooks fail\n---\nhooks: {PreToolUse: [{hooks: [{type: command}]}]}\n"},
		"an agent's hook of its end":    {"claude-code", ".claude/agents/a.md", "", "---\nhooks:\n  Stop:\n    - hooks: [{type: command, command: x}]\n---\n"},
		"a server's path":               {"claude-code", ".claude.json", `"env":{"T":"x"}`, `"env":{"PATH":"/x","NODE_OPTIONS":"-r x"}`},
		"a server's arguments":          {"claude-code", ".claude.json", `"server-slack"]`, `"server-slack@2"]`},
		"a table in our block":          {"codex", ".codex/config.toml", "# What ocipd integrate has entered ends here.\n", "[tui]\nx = 1\n# What ocipd integrate has entered ends here.\n"},
		"a table behind it":             {"codex", ".codex/config.toml", "# What ocipd integrate has entered ends here.\n", "# What ocipd integrate has entered ends here.\n[features]\nhooks = true\n"},
		"a project that is not trusted": {"codex", ".codex/config.toml", `"trusted"`, `"untrusted"`},
	} {
		p := asking(t, strayFiles[tt.runtime])
		file := filepath.Join(p.Home, tt.file)
		r := Find(tt.runtime)
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		if strings.HasSuffix(tt.file, "p.config.toml") || strings.HasSuffix(tt.file, ".md") {
			write(t, file, "")
		}
		text := read(t, file)
		if tt.was == "" && tt.now == "" {
			var whole map[string]any
			if err := json.Unmarshal([]byte(text), &whole); err != nil {
				t.Fatal(err)
			}
			anew, err := json.MarshalIndent(whole, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			write(t, file, string(anew))
		} else {
			if !strings.Contains(text, tt.was) {
				t.Fatalf("%s: the file is\n%s", name, text)
			}
			write(t, file, strings.Replace(text, tt.was, tt.now, 1))
		}
		if strays, err := r.Strays(p); err != nil || len(strays) > 0 {
			t.Errorf("%s: %v, %v", name, strays, err)
		}
		plan, err = r.Remove(p)
		apply(t, plan, err)
		if got := read(t, file); strings.Contains(got, `"server":"ocipd-gate"`) || strings.Contains(got, "[mcp_servers.ocipd-gate") || strings.Contains(tt.now, "[tui]") && !strings.Contains(got, "[tui]\nx = 1") {
			t.Errorf("%s: taken out it is\n%s", name, got)
		}
	}
}

// Users who rely on the machine's gate are told when it is removed.
func TestStraysOfTheMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range gateTests {
		if !tt.managed {
			continue
		}
		r, p := Find(tt.runtime), asking(t, tt.files)
		p.Managed = true
		plan, err := r.Behind(p, "alice")
		apply(t, plan, err)
		files := all(t, p)
		for _, file := range slices.Sorted(maps.Keys(tt.has)) {
			if !strings.HasPrefix(file, "etc/") {
				continue
			}
			at := filepath.Join(p.Home, file)
			for _, now := range []string{"", strings.NewReplacer(`"timeout":300`, `"timeout":2`, "timeout = 300", "timeout = 2", "required = true", "required = false").Replace(files[file])} {
				write(t, at, now)
				strays, err := r.Strays(p)
				if asks, why, _, _ := r.Tools(p); err != nil || asks || !strings.Contains(why, at) || len(strays) == 0 {
					t.Errorf("%s: %s with %q: %t, %s, %v, %v", tt.name, file, now, asks, why, strays, err)
				}
				write(t, at, files[file])
			}
		}
		if asks, why, _, err := r.Tools(p); !asks || err != nil {
			t.Errorf("%s: as it was: %s, %v", tt.name, why, err)
		}
		for name, is := range map[string]bool{claudeHookless[0]: false, claudeElsewhere[0]: true} {
			write(t, claudeSettings(p), `{"env":{"`+name+`":"1"}}`)
			if strays, err := r.Strays(p); err != nil || (len(strays) > 0) != (is && r == claudeCode) {
				t.Errorf("%s: a user's %s: %v, %v", tt.name, name, strays, err)
			}
		}
	}
}

// Entries of an earlier version are not known member by member until they are entered again.
func TestNotesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	p := asking(t, strayFiles["claude-code"])
	plan, err := claudeCode.Behind(p, "alice")
	apply(t, plan, err)
	k, err := claudeCode.kept(p)
	if err != nil {
		t.Fatal(err)
	}
	for path, n := range k.Files {
		n.Entered = nil
		k.Files[path] = n
	}
	old, err := json.Marshal(k.Files)
	if err != nil {
		t.Fatal(err)
	}
	write(t, claudeCode.noteFile(p), string(old))
	if asks, why, _, err := claudeCode.Tools(p); asks || err != nil || !strings.Contains(why, enterAgain) {
		t.Errorf("%t, %s, %v", asks, why, err)
	}
	if held := Held(p.Notes); len(held) > 0 {
		t.Errorf("an alarm is raised: %v", held)
	}
	plan, err = claudeCode.Behind(p, "alice")
	if apply(t, plan, err); !plan.Empty() {
		t.Errorf("entering again changes %v", plan.Edits)
	}
	if asks, why, _, err := claudeCode.Tools(p); !asks || err != nil {
		t.Errorf("entered again: %s, %v", why, err)
	}
}

// An action about which no hook is asked stays open until a trial sees a version ask about
// it, and only for that version.
func TestStaysOpen(t *testing.T) {
	t.Parallel()
	p := asking(t, strayFiles["codex"])
	stays := func(version string) bool {
		list, err := codex.StaysOpen(p, version)
		if err != nil || len(list) < len(codex.Open)-2 {
			t.Errorf("%s: %v, %v", version, list, err)
		}
		return slices.Contains(list, typedOpen)
	}
	asks := func(version string, does bool) {
		t.Helper()
		if err := codex.asks(p, version, typedOpen, does); err != nil {
			t.Fatal(err)
		}
	}
	asks("codex 1", true)
	if !stays("codex 1") || codex.Integrated(p) {
		t.Error("of one that was not put behind the daemon something is noted")
	}
	plan, err := codex.Behind(p, "alice")
	apply(t, plan, err)
	if asks("codex 1", true); stays("codex 1") || !stays("codex 2") || !stays("") {
		t.Error("a version that asks is open, or another one is not")
	}
	plan, err = codex.Behind(p, "alice")
	if apply(t, plan, err); stays("codex 1") {
		t.Error("entered again, it is forgotten")
	}
	if err := codex.asks(p, "codex 1", codeOpen, true); err != nil {
		t.Fatal(err)
	}
	if list, err := codex.StaysOpen(p, "codex 1"); err != nil || slices.Contains(list, codeOpen) || slices.Contains(list, typedOpen) || len(list) != len(codex.Open)-2 {
		t.Errorf("of one that asks about both: %v, %v", list, err)
	}
	if asks("codex 2", false); !stays("codex 1") || !stays("codex 2") {
		t.Error("a version that does not ask is not open")
	}
	// The notes about OpenClaw have another format.
	if err := p.keepOpenClaw(&openClawNote{Settings: []byte("{}"), Was: true}); err != nil {
		t.Fatal(err)
	}
	if list, err := openClaw.StaysOpen(p, "openclaw 1"); err != nil || !slices.Equal(list, openClaw.Open) {
		t.Errorf("of OpenClaw: %v, %v", list, err)
	}
}

// If a file was a link and leads elsewhere by now, that is a stray. Entering again follows the
// link, and gives the former file back; so does removal.
func TestStraysOfALink(t *testing.T) {
	t.Parallel()
	for runtime, name := range map[string]string{"claude-code": ".claude/settings.json", "codex": ".codex/config.toml"} {
		for _, edited := range []string{"", "\n"} {
			r, p := Find(runtime), asking(t, strayFiles[runtime])
			at, one, two := filepath.Join(p.Home, name), filepath.Join(p.Home, "one"), filepath.Join(p.Home, "two")
			was, other := read(t, at), map[string]string{"claude-code": `{"model":"p"}`, "codex": "model = \"p\"\n"}[runtime]
			lead := func(to string) {
				t.Helper()
				if err := errors.Join(os.Remove(at), os.Symlink(to, at)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, one, was)
			write(t, two, other)
			lead(one)
			plan, err := r.Behind(p, "alice")
			apply(t, plan, err)
			if asks, why, _, err := r.Tools(p); !asks || err != nil {
				t.Fatalf("%s: through the link: %s, %v", name, why, err)
			}
			write(t, one, read(t, one)+edited)
			lead(two)
			if held := Held(p.Notes)[runtime]; len(held) == 0 || !strings.HasPrefix(held[0], at+": ") {
				t.Errorf("%s leads elsewhere: %q", name, held)
			}
			plan, err = r.Behind(p, "alice")
			apply(t, plan, err)
			if asks, why, _, err := r.Tools(p); !asks || err != nil {
				t.Errorf("%s: entered again: %s, %v", name, why, err)
			}
			if got := read(t, one); strings.Contains(got, gateServer) || edited == "" && got != was {
				t.Errorf("the former file is\n%s", got)
			}
			if again, err := r.Behind(p, "alice"); err != nil || !again.Empty() {
				t.Errorf("%s: a third time changes %v, %v", name, again.Edits, err)
			}
			lead(one)
			plan, err = r.Remove(p)
			if apply(t, plan, err); read(t, two) != other || r.Integrated(p) {
				t.Errorf("%s: removed, the file is\n%s", name, read(t, two))
			}
		}
	}
}
