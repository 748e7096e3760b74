// Package fleetapi has the parameters and results of the methods of a fleet, and the event that tells
// an app of a receipt.
package fleetapi

import (
	"time"
)

// FleetAttachParams makes the caller's connection carry the frames for other hosts (fleet.attach).
type FleetAttachParams struct{}

// FleetFrame is a frame for another host of the fleet. The daemon has sealed and signed it, and
// offers it again until fleet.bring has brought that host's receipt.
type FleetFrame struct {
	To string `json:"to"`
	// ToEpoch is the epoch of that host's keys.
	ToEpoch int `json:"toEpoch"`
	// Kind is msg, void, rcpt or beat, and Seq the number in the lane; of a beat, its time.
	Kind string `json:"kind"`
	Seq  uint64 `json:"seq"`
	// Frame is in base64.
	Frame string `json:"frame"`
}

// FleetBringParams brings a frame of another host (fleet.bring).
type FleetBringParams struct {
	Frame string `json:"frame" is:"required max=699052" doc:"The frame, in base64: at most 512 KiB."`
}

// FleetBringResult has the receipt for a message, to be carried back to its sender. It is absent for
// a receipt and a beat, and for a message that waits for the ones before it.
type FleetBringResult struct {
	Receipt *FleetFrame `json:"receipt,omitempty"`
	// Waits is set if messages before this one are missing: the next of the lane is Next.
	Waits bool   `json:"waits,omitzero"`
	Next  uint64 `json:"next,omitzero"`
}

// ReceiptEvent is the name of the event that tells an app what became of its message to an agent on
// another host.
const ReceiptEvent = "message:receipt"

// MessageReceipt is the payload of [ReceiptEvent]: the other host's signed decision. Result is allow,
// deny, expired or void; Record is the number of its record in the log of that host. Reason is in the
// words of this daemon: those of the other host are only on record.
type MessageReceipt struct {
	DispatchID string `json:"dispatchId"`
	SessionKey string `json:"sessionKey"`
	Host       string `json:"host"`
	Result     string `json:"result"`
	Code       string `json:"code,omitzero"`
	Reason     string `json:"reason,omitzero"`
	Log        string `json:"log"`
	Record     uint64 `json:"record"`
	Hash       string `json:"hash,omitzero"`
	Timestamp  int64  `json:"timestamp"`
}

// FleetStatus is this host's view of its fleet (fleet.status).
type FleetStatus struct {
	Tenant  string `json:"tenant"`
	Host    string `json:"host"`
	Version int    `json:"version"`
	Digest  string `json:"digest"`
	// Member is set if the roster has this host. Lines counts the attached carriers.
	Member bool        `json:"member"`
	Lines  int         `json:"lines"`
	Hosts  []FleetHost `json:"hosts"`
}

// FleetHost is one host of the roster. Waiting is the number of messages to it that have no receipt,
// and Heard when its last frame came in since the start of the daemon.
type FleetHost struct {
	Host    string    `json:"host"`
	Epoch   int       `json:"epoch"`
	Agents  []string  `json:"agents"`
	Waiting int       `json:"waiting"`
	Heard   time.Time `json:"heard,omitzero"`
	// Mailbox names the host in the subjects of a broker, empty if the roster has no key of its line.
	Mailbox string `json:"mailbox,omitzero"`
	// Refused counts frames under its name that were dropped since the start.
	Refused uint64 `json:"refused,omitzero"`
	// Beat is the newest beat of the host, and BeatAt when it came; absent if none came since the
	// start. For the daemon's own host, Beat is as of now.
	Beat   *Beat     `json:"beat,omitempty"`
	BeatAt time.Time `json:"beatAt,omitzero"`
	// Silent is set if no beat came for a minute.
	Silent bool `json:"silent,omitzero"`
	// Shrunk is set if the host has shown a checkpoint of its log that is smaller than an earlier one.
	Shrunk *Shrunk `json:"shrunk,omitempty"`
}

// Beat is the report about itself that a host sends every 15 seconds.
type Beat struct {
	// Version is the version of its program, and Roster that of its roster.
	Version string `json:"version"`
	Roster  int    `json:"roster"`
	// Checkpoint is the newest signed checkpoint of its log, absent without one.
	Checkpoint string `json:"checkpoint,omitzero"`
	// Waiting is how many messages wait in its queues, Held how many requests wait for people, and
	// OldestHeld since when the oldest of them does.
	Waiting    int       `json:"waiting"`
	Held       int       `json:"held"`
	OldestHeld time.Time `json:"oldestHeld,omitzero"`
	// Attached is since when the carrier of this beat is attached: after a new one, messages are offered to the
	// host at once.
	Attached time.Time `json:"attached,omitzero"`
	// Faults are the faults that the host reports.
	Faults []string `json:"faults,omitempty"`
}

// Shrunk are two signed checkpoints of a host that no log has both: After came later, and is smaller
// than Before, has another root, or is of another log.
type Shrunk struct {
	Before string `json:"before"`
	After  string `json:"after"`
}
