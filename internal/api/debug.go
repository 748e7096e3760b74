package api

// ProfileCPU is the profile that takes a while.
const ProfileCPU = "cpu"

// Profiles are the names that debug.profile knows: those of runtime/pprof that
// are always collected, and the processor's.
func Profiles() []string { return []string{"allocs", ProfileCPU, "goroutine", "heap", "threadcreate"} }

// defaultProfile is how long the processor is watched, in seconds.
const defaultProfile = 10

// ProfileParams asks for a profile of the daemon in the format of pprof
// (operator, debug.profile, streaming).
type ProfileParams struct {
	Name    string `json:"name" is:"required words=allocs|cpu|goroutine|heap|threadcreate" doc:"The profile."`
	Seconds int    `json:"seconds,omitzero" is:"range=0..300" doc:"How long the processor is watched; 10 by default."`
}

// Length is how long the processor is watched, in seconds.
func (p *ProfileParams) Length() int {
	if p.Seconds == 0 {
		return defaultProfile
	}
	return p.Seconds
}

// ProfileChunk is a part of a profile, in base64; all parts together are the
// gzipped protocol buffer.
type ProfileChunk struct {
	Data []byte `json:"data"`
}

// LatencyStatus is the durations since the start, in microseconds: the most that half, and 99 of
// 100, took.
type LatencyStatus struct {
	// Decisions is how many are on record since the start: records of
	// agent_exchange that have a policyResult. A message between two agents here
	// has one of each side, a held one another when it is let go.
	Decisions   uint64 `json:"decisions"`
	DecisionP50 int64  `json:"decisionP50Us"`
	DecisionP99 int64  `json:"decisionP99Us"`
	CommitP50   int64  `json:"commitP50Us"`
	CommitP99   int64  `json:"commitP99Us"`
}
