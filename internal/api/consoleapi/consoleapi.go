// Package consoleapi has the parameters and results of the methods for programs that answer other
// processes, such as `ocipd console` a browser.
package consoleapi

// PeerCheckParams names processes for which a program of the operator is about to answer, such as
// those at the other end of a connection to `ocipd console` (operator, peer.check).
type PeerCheckParams struct {
	Processes []string `json:"processes" is:"nonempty max=64" each:"required max=64 form=process" doc:"The processes, each as pid@start: the process id, and the start time in field 22 of /proc/PID/stat."`
}

// PeerCheckResult names the first process that may not be answered, if there is one.
type PeerCheckResult struct {
	Refused *RefusedProcess `json:"refused,omitempty" doc:"The first process that has ended, cannot be seen, is another user's than the caller, or is an app or actor of tasks or was started by one. Absent if all may be answered."`
}

// RefusedProcess is a process that may not be answered, and the reason.
type RefusedProcess struct {
	Process string `json:"process"`
	Why     string `json:"why"`
}
