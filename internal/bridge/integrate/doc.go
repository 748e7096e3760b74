// Package integrate puts the MCP servers that an agent runtime starts behind
// `ocipd mcp-proxy`, and takes them out again. It knows where each runtime keeps its
// list of servers and how that file is written, and changes nothing in it but the
// commands of the servers: comments, order and all other members stay byte for byte. A
// server over HTTP that wants no login gets a command in the place of its address.
//
// What it changed is noted in a directory of the daemon's user, so that removing gives
// back the very file that was there, where nobody has changed it since.
package integrate
