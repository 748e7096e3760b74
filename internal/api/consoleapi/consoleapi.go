// Package consoleapi has the parameters and results of the methods for programs that answer other
// processes, such as `ocipd console` a browser.
package consoleapi

import (
	"slices"

	"github.com/openclawos/ocipd/internal/api"
)

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

// The events that a console reports.
const (
	// Opened: a browser began a session by a link that was not used before.
	Opened = "opened"
	// Enrolled: a passkey was added to the signers.
	Enrolled = "enrolled"
	// LinkReused: a link was used a second time, or after its end.
	LinkReused = "link_reused"
	// HostRefused: a request named another host.
	HostRefused = "host_refused"
	// OriginRefused: a request came from another page, or from a frame.
	OriginRefused = "origin_refused"
	// SessionRefused: a request had no session's secret.
	SessionRefused = "session_refused"
	// PeerRefused: the other end of a connection has no process that can be seen. If it has, the
	// console asks peer.check.
	PeerRefused = "peer_refused"
)

// ConsoleReportParams is an event of a console (operator, console.report).
type ConsoleReportParams struct {
	Event string `json:"event" is:"required words=opened|enrolled|link_reused|host_refused|origin_refused|session_refused|peer_refused" doc:"The event."`
	// Process is the process at the other end, "" if it is not known.
	Process string `json:"process,omitzero" is:"max=64 form=process" doc:"The process at the other end, as pid@start."`
	// UID is the user of a peer that has no process.
	UID *int64 `json:"uid,omitzero" is:"range=0..4294967295" doc:"peer_refused: the user of the connection, if the system says it."`
	// Value is the refused Host or Origin.
	Value string `json:"value,omitzero" is:"max=256" doc:"host_refused, origin_refused: the refused Host or Origin."`
	// Digest is that of the list of signers with the new line, and Fingerprint the passkey's.
	Digest      string `json:"digest,omitzero" is:"max=71 form=digest" doc:"enrolled: the digest of the list of signers."`
	Fingerprint string `json:"fingerprint,omitzero" is:"max=64" doc:"enrolled: the fingerprint of the passkey."`
}

// Rules reports faults between members.
func (p *ConsoleReportParams) Rules() (f api.Fields) {
	only := func(name string, given bool, events ...string) {
		if given && !slices.Contains(events, p.Event) {
			f.Add(name, "cannot be given with the event %s", p.Event)
		}
	}
	only("uid", p.UID != nil, PeerRefused)
	only("value", p.Value != "", HostRefused, OriginRefused)
	only("digest", p.Digest != "", Enrolled)
	only("fingerprint", p.Fingerprint != "", Enrolled)
	if p.Event == Enrolled && p.Digest == "" {
		f.Add("digest", "required")
	}
	if p.Event == Enrolled && p.Fingerprint == "" {
		f.Add("fingerprint", "required")
	}
	return f
}
