// Package ocip is the vocabulary of the OpenClaw Interchange Protocol and the pure decision over
// one message.
//
// It holds the types that the other packages use (identities, levels, envelopes, exchanges,
// verdicts) and two functions that weigh a message: [Decide] before it is sent, [Receive] when it
// arrives. Nothing here reads a clock, a file, a socket or a random source. The caller provides the
// time, the identifiers and the policy's answer, and must record the verdict durably before it acts
// on it.
//
// Source: OCIP protocol reference (seed 000) and ADR-007 (seed 001).
//
// # The folder
//
// The folder internal/ocip holds the rules of OCIP as pure functions: identities, envelopes, the
// decision, the detectors, the policy, the directory. Its packages may import each other and those
// of base.
//
//   - commitment: finds commitments in a text, and for each whether it stands in the body, a quote
//     or code; keywords.go of internal/ocip decides what a keyword alone does
//   - content: finds secrets and markings in a text, which raise its level
//   - directory: agents, counterparties, routes and addresses, looked up in the
//     configuration alone
//   - directory/entries: a long list of entries in little memory
//   - label: the sentence by which an agent says who sends
//   - media: reads a message's metadata and the files and addresses that it sends along
//   - opinion: the question to an operator's model, and the form of its answer
//   - policy: Rego through OPA: compiled once, swapped atomically
package ocip

// Version is the protocol version that every envelope carries.
const Version = "1.0"
