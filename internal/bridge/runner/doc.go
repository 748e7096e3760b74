// Package runner runs the commands of approved effects. Each command runs once, even if any
// of the processes involved is killed at any moment.
//
// Four processes are involved. The daemon records the start of a run. The runner ([Run])
// gets the run from the daemon. A shim ([Shim]), in its own session, outlives both; it
// claims the run in the ledger, a directory, with a lock that it holds while it lives. The
// command waits in [Exec] until the shim has stored its process id. A claim without a
// process id therefore provably did not run, and is handed out again when its shim is gone.
// For a process id without a result, the outcome is unknown.
//
// Use one runner for a ledger. The ledger must belong to the runner's user alone, and must
// never be restored from a backup.
package runner
