// Package e2e tries the built ocipd with the programs that people use it with: the MCP
// inspector, Claude Code, Codex and codex-acp against stand-ins of their model APIs on the
// loopback interface, OpenClaw, agents on the SDKs of the Agent Client Protocol and of A2A, Lobster, and
// the examples. `make e2e` installs them and runs it.
package e2e
