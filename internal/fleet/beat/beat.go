// Package beat has the rules for beats: the reports about itself that each host of a fleet sends
// every 15 seconds.
//
// A beat is the body of a frame, so that its host has signed it and only its receiver reads it. The
// frame's number is the time of the beat in milliseconds. The receiver keeps the newest beat of each
// host in memory ([Host]), and of its checkpoints the largest: a log never shrinks.
//
// The package does no I/O and reads no clock.
package beat

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"golang.org/x/mod/sumdb/note"
)

const (
	// Every is the time between two beats of a host.
	Every = 15 * time.Second
	// SilentAfter is how long a host may say nothing before it is silent.
	SilentAfter = time.Minute
	// TooFar is the time from now, in the past or the future, beyond which a beat counts for nothing: a
	// carrier may have kept it, or the clock of its host is wrong.
	TooFar = 5 * time.Minute
)

const (
	maxVersion = 64
	maxFaults  = 16
	maxFault   = 256
	maxNote    = 1024
)

// Write returns the body of a beat. Of more faults than a beat holds, the last one is their number.
func Write(b *fleetapi.Beat) ([]byte, error) {
	if len(b.Faults) > maxFaults {
		b.Faults = append(b.Faults[:maxFaults-1:maxFaults-1], fmt.Sprintf("%d more", len(b.Faults)-maxFaults+1))
	}
	for i, fault := range b.Faults {
		b.Faults[i] = frame.Line(fault, maxFault)
	}
	b.Version = frame.Line(b.Version, maxVersion)
	if len(b.Checkpoint) > maxNote {
		b.Checkpoint = ""
	}
	return json.Marshal(b, json.Deterministic(true))
}

// Read reads the body of a beat. Its sender may be lying: the error names the member that cannot be
// used, and repeats nothing of it. A later version may have further members.
func Read(body []byte) (b fleetapi.Beat, err error) {
	if err := json.Unmarshal(body, &b); err != nil {
		return b, errors.New("it cannot be read")
	}
	switch {
	case !frame.IsLine(b.Version, maxVersion):
		return b, fmt.Errorf("version: want at most %d bytes without control characters", maxVersion)
	case len(b.Faults) > maxFaults:
		return b, fmt.Errorf("faults: want at most %d", maxFaults)
	case b.Waiting < 0 || b.Held < 0 || b.Roster < 0:
		return b, errors.New("waiting, held and roster: want numbers from 0")
	case len(b.Checkpoint) > maxNote:
		return b, fmt.Errorf("checkpoint: want at most %d bytes", maxNote)
	}
	for _, fault := range b.Faults {
		if !frame.IsLine(fault, maxFault) {
			return b, fmt.Errorf("faults: want at most %d bytes each without control characters", maxFault)
		}
	}
	if b.Checkpoint != "" {
		if _, ok := readCheckpoint(b.Checkpoint); !ok {
			return b, errors.New("checkpoint: want a signed checkpoint")
		}
	}
	return b, nil
}

// Host has the newest beat of one host and its largest checkpoint. The zero value has neither.
type Host struct {
	seq uint64
	// Heard is when the newest beat came, zero for never, and Beat is that one.
	Heard time.Time
	Beat  *fleetapi.Beat
	// Attached is when the newest carrier of the host was attached, by that host's clock.
	Attached time.Time
	// Most is the largest checkpoint that the host has shown, "" for none.
	Most string
	// Shrunk are the two checkpoints that no log has both, nil while all is well.
	Shrunk *fleetapi.Shrunk
}

// Take takes a beat with the number of its frame, unless it is not newer than the one before or is of
// another time. Shrunk is set if its checkpoint is the first that contradicts the largest one.
func (h *Host) Take(seq uint64, b *fleetapi.Beat, now time.Time) (shrunk bool) {
	if seq <= h.seq || now.Sub(time.UnixMilli(int64(seq))).Abs() > TooFar {
		return false
	}
	h.seq, h.Heard, h.Beat = seq, now, b
	if b.Attached.After(h.Attached) {
		h.Attached = b.Attached
	}
	switch {
	case b.Checkpoint == "":
	case h.Most == "" || !contradicts(h.Most, b.Checkpoint):
		h.Most = b.Checkpoint
	default:
		shrunk = h.Shrunk == nil
		h.Shrunk = &fleetapi.Shrunk{Before: h.Most, After: b.Checkpoint}
	}
	return shrunk
}

// Kept is the state that outlives the receiver's process: the largest checkpoint, and the number of its beat. A
// carrier may repeat an earlier beat, with a smaller checkpoint, afterwards.
func (h *Host) Kept() []byte { return fmt.Appendf(nil, "%d\n%s", h.seq, h.Most) }

// Known reads what [Host.Kept] has written. A number from far ahead came while the clock was wrong, and counts
// for nothing: no beat would be newer.
func Known(kept []byte, now time.Time) *Host {
	number, most, _ := strings.Cut(string(kept), "\n")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || time.UnixMilli(int64(seq)).Sub(now) > TooFar {
		seq = 0
	}
	return &Host{seq: seq, Most: most}
}

// Silent reports whether the host has said nothing for too long. Since is when this daemon began to
// listen.
func (h *Host) Silent(since, now time.Time) bool {
	last := since
	if h != nil && h.Heard.After(last) {
		last = h.Heard
	}
	return now.Sub(last) >= SilentAfter
}

// contradicts reports whether a checkpoint is of a smaller log than one before it, or of another.
func contradicts(before, after string) bool {
	b, ok := readCheckpoint(before)
	a, ok2 := readCheckpoint(after)
	return !ok || !ok2 || a.origin != b.origin || a.size < b.size || a.size == b.size && a.root != b.root
}

// checkpoint is the text of a signed checkpoint (C2SP tlog-checkpoint).
type checkpoint struct {
	origin, root string
	size         uint64
}

// readCheckpoint reads a signed note. Nobody's key is needed: the frame is signed by the host.
func readCheckpoint(signed string) (c checkpoint, ok bool) {
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open([]byte(signed), note.VerifierList()); !errors.As(err, &unverified) {
		return c, false
	}
	lines := strings.Split(unverified.Note.Text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return c, false
	}
	size, err := strconv.ParseUint(lines[1], 10, 64)
	root, err2 := base64.StdEncoding.Strict().DecodeString(lines[2])
	return checkpoint{origin: lines[0], size: size, root: string(root)}, err == nil && err2 == nil && len(root) == 32
}
