// Package bridge has no code: it describes the folder of this name.
//
// # The folder
//
// The folder internal/bridge holds programs beside the daemon, which are clients of its
// socket: agent runtimes, MCP, workflows, the runner. Its packages may import each other
// and those of base, ocip, audit, api, config, ipc, approval, evidence and task.
//
//   - acp: runs an agent that speaks the Agent Client Protocol on one attempt or review;
//     has the daemon decide about its tool calls
//   - codexprobe: tries whether Codex asks its hooks about what is typed into an open shell, and about calls of scripts
//   - integrate: puts the MCP servers of agent runtimes behind the proxy and the plugin
//     into OpenClaw, takes them out again, tries the gates, and names what was changed of
//     them
//   - legacy: reads what a project of the protocol's first version kept in files, for
//     `ocipd task import`
//   - lobster: has Lobster run a workflow for an effect, and answers its gate by what the
//     daemon says
//   - loop: takes tasks through their phases without a model, one step at a time, with
//     agents in processes of their own
//   - mcpconnect: speaks to an MCP server over HTTP for a client that speaks over pipes
//   - mcpprobe: asks a server over HTTP whether it speaks MCP
//   - mcpproxy: stands between an MCP client and a server, over pipes or HTTP: has what its
//     tools send and bring in decided, passes the rest byte for byte
//   - mcpserver: an MCP server over stdio, whose tools are what a grant lets its holder
//     call
//   - prose: checks programs in OpenProse: a parser of ProseScript, and the protocol's
//     rules
//   - runner: runs the commands of approved effects, each once, over kills of any process
//   - settingsfile: changes single members of other programs' settings, in JSON and TOML,
//     and says where they differ from what was entered
//   - toolgate: an MCP server over stdio that answers the hooks of an agent's runtime
//   - toolmap: says of MCP servers which of their tools send messages, to whom, and what
//     else a tool may be called with
package bridge
