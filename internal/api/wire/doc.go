// Package wire is the form of the kernel protocol, for both ends of a socket:
// lines, the messages in them, and how each is written. The daemon reads with
// [ParseRequest] and writes with the functions whose names begin with Append;
// the client writes with [AppendRequest] and reads an [Incoming].
//
// It does no I/O but reading lines from its reader, and knows no method.
//
// Source: OpenClawOS IPC protocol (seed 003) and docs/reference/protocol/connecting.md.
package wire
