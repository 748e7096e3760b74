// Package e2e tries the built ocipd with the programs that people use it with: the MCP
// inspector, Claude Code and Codex, the last two against stand-ins of their model APIs on
// the loopback interface. `make e2e` installs them and runs it.
package e2e
