// Package ocip is the vocabulary of the OpenClaw Interchange Protocol and the
// pure decision over one message.
//
// It holds the words that the other packages use (identities, levels,
// envelopes, exchanges, verdicts) and two functions that weigh them: [Decide]
// for a message that wants to leave, [Receive] for one that arrives. Nothing
// here reads a clock, a file, a socket or a random source: the caller brings
// the time, the identifiers and the policy's answer, and must record the
// verdict durably before acting on it.
//
// Source: OCIP protocol reference (seed 000) and ADR-007 (seed 001).
//
// # The folder
//
// The folder internal/ocip holds the rules of OCIP as pure functions: identities,
// envelopes, the decision, the detectors, the policy, who is who. Its packages may import
// each other and those of base.
//
//   - commitment: finds commitments in a text
//   - content: finds secrets and markings in a text, which raise its level
//   - directory: agents, counterparties, routes and addresses, looked up in the
//     configuration alone
//   - media: reads a message's metadata and the files and addresses that it sends along
//   - policy: Rego through OPA: compiled once, swapped atomically
package ocip

// Version is the protocol version every envelope carries.
const Version = "1.0"
