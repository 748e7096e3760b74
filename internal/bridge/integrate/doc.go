// Package integrate puts the MCP servers that an agent runtime starts behind `ocipd
// mcp-proxy`, and takes them out again. It knows the files in which each runtime lists its
// servers. It changes only the commands of the servers; comments, order and other members stay
// byte for byte. A server over HTTP without a login gets a command in place of its address.
//
// The package notes its changes in a directory of the daemon's user. If nobody has changed
// a file since, removal restores it byte for byte.
package integrate
