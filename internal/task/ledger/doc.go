// Package ledger is the directory in which the runner keeps what it has run: a claim for each run,
// its process, its result, and its output so far. The daemon reads it to find out whether a process
// of a run may still be there.
//
// The runner's user has other programs, which can write there too, and take files away. So a file
// counts only with a seal of the run, under a key that the daemon gives the runner and the runner the
// run's shim; and that a run has begun is on the daemon's record, whatever is missing here. The
// output so far has no seal, as it is shown to people alone.
//
// Use: [Open] before the first use, and [At] for a directory that is there. A claim is a file with
// a lock, so that it ends with its holder.
package ledger
