// Package audit defines the form of the evidence: the content of records, their chain, and the
// checks of a chain.
//
// A record becomes a line: one JSON object with its sequence number, the hash of the line before it
// and its own hash. The line is the record. It is stored and mirrored byte for byte, so a verifier
// never has to encode anything again. This package does no I/O: the caller stores a sealed line
// durably before anything that the record allows may happen, and advances its [Head] only then.
//
// # The folder
//
// The folder internal/audit holds the form of the evidence: records, hash chain, the gate for
// messages, and what the log says of rows. Its packages may import each other and those of base and
// ocip.
//
//   - fold: the rows that decisions depend on, according to the audit log alone: pure functions
//     from records to rows and back, the digests of checkpoints, comparison
//   - gate: the one exit for messages: a message closed under its keyed digest, the receipt of the
//     commit that allowed it, the messages that may leave
//   - redact: removes secrets from records before they are encoded
//   - sealedtext: encrypts texts of records to the keys that the operator names, and decrypts them
package audit
