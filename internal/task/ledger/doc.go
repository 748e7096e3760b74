// Package ledger is the directory in which the runner keeps what it has run: a claim for each run,
// its process, its result, and its output so far. The daemon reads it to find out whether a process
// of a run may still be there.
//
// Use: [Open] before the first use, and [At] for a directory that is there. A claim is a file with
// a lock, so that it ends with its holder.
package ledger
