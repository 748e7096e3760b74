// Package bridge has no code: it describes this folder.
//
// # The folder
//
// The folder internal/bridge holds programs beside the daemon, which are clients of its
// socket: agent runtimes, MCP, workflows, the runner. Its packages may import each other
// and those of base, ocip, audit, api, config, ipc, approval, evidence and task.
//
//   - a2aproxy: stands between an agent and its peers in the A2A protocol; has the daemon
//     decide about messages, tasks, artifacts and cards
//   - acp: runs an ACP agent on one attempt or review, and has the daemon decide about its tool calls
//   - carrier: carries the frames of a fleet between the operator sockets of two daemons
//   - codexprobe: tries whether Codex asks its hooks about text typed into an open
//     shell, and about calls from scripts
//   - console: serves the page of `ocipd console` to a person's browser, checks who looks, and packs
//     the answers of passkeys as SSH signatures
//   - console/page: the page of the console as browsers get it
//   - gatelink: connects a proxy to the daemon under an agent's grant: questions, people's
//     decisions, outcomes
//   - hook: answers the hooks of runtimes that run a command before a tool call, from a
//     table of runtimes, and asks the user's resident gate, which it starts
//   - integrate: puts the MCP servers of agent runtimes behind the proxy and the plugin
//     into OpenClaw, undoes that, tests the gates, and reports changes by others
//   - judge: asks an operator's model whether held messages commit anybody, and takes its
//     answers to the daemon
//   - lobster: has Lobster run a workflow for an effect, and answers its gate with the
//     daemon's decision
//   - mcpconnect: connects a client that uses pipes to an MCP server over HTTP
//   - mcpprobe: asks a server over HTTP whether it speaks MCP
//   - mcpproxy: stands between an MCP client and a server, over pipes or HTTP; has the daemon
//     decide about messages in tool calls and results, and passes the rest byte for byte
//   - mcpserver: an MCP server over stdio with the tools that a grant permits
//   - natsline: carries the frames of a fleet between an operator socket and a NATS broker, and writes
//     the broker's configuration
//   - openprose: checks programs in OpenProse: a parser of ProseScript, and the protocol's
//     rules
//   - orchestrator: takes tasks through their phases without a model, one step at a time, with
//     agents in their own processes
//   - runner: runs the commands of approved effects, each once, over kills of any process
//   - settingsfile: changes single members in the settings of other programs, in JSON
//     and TOML, and reports differences from the entered values
//   - skill: makes the Agent Skills about tasks, in English and Chinese, from the tables
//     of phases, roles and tools
//   - taskimport: reads the files of a project of the protocol's first version, for `ocipd task import`
//   - toolgate: an MCP server over stdio that answers the hooks of an agent's runtime
//   - toolmap: describes which tools of an MCP server send messages, to whom, and the permitted
//     values of other arguments; finds the map of a server by its command line
package bridge
