// Package api is the vocabulary of the kernel protocol: the messages between apps and kernel, apart
// from their transport.
//
// It holds each method's parameters and result, the package manifest, the hook names and the error
// codes. Both ends use it: internal/ipc reads and writes these types on a socket, internal/kernel
// acts on them. Tags of the fields hold the bounds of parameters, and the method Rules the rules
// between them; a decoder of parameters must have them checked (members.Check) before using them.
//
// Source: OpenClawOS IPC protocol (seed 003), with the extension methods of
// docs/reference/protocol.
//
// # The folder
//
// The folder internal/api holds the words of the protocol, how they stand on a line, and a
// client. Its packages may import each other and those of base, ocip and audit.
//
//   - caller: who calls a method of operators: the process, the signer, the process it asks for
//   - client: the Go client of the protocol
//   - consoleapi: parameters and results of the methods for programs that answer other processes
//   - members: the bounds of members of parameters, as tags of their fields, and the engine
//     that checks parameters by them
//   - schema: JSON Schemas of the types, the published schema of the protocol, and TypeScript
//     declarations
//   - wire: form of the protocol: lines, frames and messages, for the daemon and the client
package api

// ProtocolVersion is the version of the IPC protocol this kernel speaks.
const ProtocolVersion = "1.0"
