// Package store is the one database: the daemon's state and the evidence of its decisions, in the
// same file and the same transactions.
//
// All writing goes through [Store.Commit]. A commit returns only when its change and its audit
// records are on disk together (WAL with synchronous=FULL), or with an error when neither is. Many
// callers share one fsync; a single caller does not wait for others. The effects of a change run
// from [Change.Durable], after the fsync and in commit order.
//
// The database is the record. Other holders of records, such as the JSONL mirror, follow it through
// Head, WaitAfter and LinesAfter, so a copy that lags or is lost costs no evidence.
//
// After an input/output error the store accepts nothing until a restart has checked the file: after
// a failed fsync nobody knows what is on the disk.
//
// # The folder
//
// The folder internal/store holds the one database: state and records in one transaction. Its
// packages may import each other and those of base, ocip, audit and api.
//
//   - db: opens, claims, migrates, copies and cleans SQLite databases; a connection that writes, a
//     few that read; knows no table
//   - diskspace: the levels of a disk that fills up, and the reserve for the last records
//   - fileintegrity: notices that the files of a database were taken away, replaced or cut
//   - foldrows: reads the folded rows of a database, and compares them with its log at a
//     start
//   - logstore: the audit log in the database: records, Merkle tree, checkpoints, tombstones,
//     proofs; the end of the log
//   - quota: limits how many of one app's messages may be queued
//   - rowseal: the tables with sealed rows, their key, the seals of records, and when unsealed rows
//     are accepted
//   - storeerror: errors that tell callers why the store did not carry out a request
//   - walfile: SQLite's `unix-excl` VFS with a write-ahead log that is written in one call a commit
package store
