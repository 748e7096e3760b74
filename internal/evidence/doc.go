// Package evidence has no code: it describes the folder of this name.
//
// # The folder
//
// The folder internal/evidence holds the followers of the log, and the keys: mirror, index, sinks,
// checkpoints, witnesses, verification, backup. Its packages may import each other and those of
// base, ocip, audit, api, store, config and ipc.
//
//   - backup: copies the database and the files that belong to it, and restores them
//   - casefile: the folder of a case: records with their receipts, the configuration in force, a
//     page for people
//   - checkpoints: copies of signed checkpoints and tombstones outside the database
//   - configlog: records configurations, as a whole or as differences, and finds out which
//     one was in force at a record
//   - digestkeys: chooses the keys for digests; notices lost, replaced and
//     destroyed ones
//   - export: exports the log to other systems, each with its own durable cursor: OCSF,
//     OTLP, syslog, the journal
//   - follow: the loop that all copies of the log share: waking, waits after failures, status
//   - index: searches and counts records: full-text search in a derived database of its own
//   - keyring: the daemon's keys on disk: signing key, digest keys, recipients of sealed
//     texts
//   - logreader: reads and searches a log for commands: in its database, through the daemon
//     that uses it, or in a file of its mirror
//   - mirror: the readable copy of the log in files: live file, rotation, compressed
//     segments
//   - retention: removes old records from the log and from everything derived from it
//   - verify: checks a log on a disk against all other evidence of it: chain, tree, keys,
//     checkpoints, receipts, database, index
//   - witness: has third parties cosign checkpoints, cosigns those of others, and checks
//     cosignatures: C2SP tlog-witness, both sides
package evidence
