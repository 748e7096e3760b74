// Package runner runs the commands of approved effects, each once, also where any of the
// processes that take part in it is killed at any moment.
//
// There are four: the daemon has on record that a run is started; the runner ([Run]) is
// told so; a shim ([Shim]), a session of its own that outlives both, claims the run in the
// ledger, a directory, with what it locks for as long as it lives; and the command waits
// for the shim's word ([Exec]) until its process id is on disk. So a claim without a
// process id was provably not run, and is handed out again once its shim is gone. A
// process id without a result is what nobody knows the outcome of.
//
// The caller's duty: one runner at a time for a ledger, which is of the runner's user
// alone and never goes back in time with a backup.
package runner
