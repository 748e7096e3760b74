package configlog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
)

// InForce is the configuration that was in force at a record.
type InForce struct {
	// Seq is the record that announced it, the last of several, and Time the time of that record.
	// Both are zero if that record was retired.
	Seq  uint64
	Time time.Time
	// By is the way in which it came in force: start, operator, file, signal.
	By, File, Digest string
	// Text is the configuration as YAML, with secrets masked, and Directory the entries of its
	// directory file.
	Text      string
	Directory []string
}

// event is a configuration that was put in force.
type event struct {
	seq       uint64
	time      time.Time
	by, file  string
	digest    string
	was       string
	whole     bool
	text      []Edit
	directory []Edit
	// missing is the number of parts that have not been read yet.
	missing int
}

// details are those of its records.
type details struct {
	By        string `json:"by"`
	File      string `json:"file"`
	Digest    string `json:"digest"`
	Was       string `json:"was"`
	Whole     bool   `json:"whole"`
	Part      int    `json:"part"`
	Parts     int    `json:"parts"`
	Text      []Edit `json:"configEdits"`
	Directory []Edit `json:"directoryEdits"`
}

// Replay finds out which configuration was in force at a record, from a log's records in their
// order. The caller adds every record, of any kind, until Replay needs no more.
type Replay struct {
	target uint64
	// known is set once text and directory belong to the last event.
	known           bool
	text, directory []string
	// now is the event in force at the target, among the records so far. later are the events after
	// it, from which the replay goes back.
	now   *event
	later []*event
	open  *event
	done  bool
}

// NewReplay makes a Replay for a record.
func NewReplay(target uint64) *Replay { return &Replay{target: target} }

// Add adds the next record, and reports whether more are needed. An error is a [*audit.Fault]: the
// records contradict each other.
func (r *Replay) Add(seq uint64, line []byte) (more bool, err error) {
	if seq > r.target && (r.known || r.done) && r.open == nil {
		r.done = true
		return false, nil
	}
	if !audit.IsConfiguration(line) {
		return true, nil
	}
	e, err := audit.Parse(line)
	if err != nil {
		return false, &audit.Fault{Seq: seq, Problem: err.Error()}
	}
	return r.AddEntry(&e)
}

// AddEntry is [Replay.Add] for a record of a configuration that was parsed.
func (r *Replay) AddEntry(e *audit.Entry) (more bool, err error) {
	seq := e.Seq
	encoded, err := json.Marshal(e.Details)
	var d details
	if err == nil {
		err = json.Unmarshal(encoded, &d)
	}
	if err != nil {
		return false, &audit.Fault{Seq: seq, Problem: fmt.Sprintf("its configuration cannot be read: %v", err)}
	}
	if d.Parts == 0 {
		return true, nil // of a version without documents
	}
	switch {
	case d.Part == 1:
		r.open = &event{by: d.By, file: d.File, digest: d.Digest, was: d.Was, whole: d.Whole, missing: d.Parts}
	case r.open == nil:
		return true, nil // its first part was retired
	case d.Digest != r.open.digest || d.Part != d.Parts-r.open.missing+1:
		return false, &audit.Fault{Seq: seq, Problem: "it is no part of the configuration that the records before it begin"}
	}
	o := r.open
	o.seq, o.time, o.missing = seq, e.Time, o.missing-1
	o.text, o.directory = append(o.text, d.Text...), append(o.directory, d.Directory...)
	if o.missing > 0 {
		return true, nil
	}
	r.open = nil
	return true, r.take(o)
}

// take continues with the next configuration.
func (r *Replay) take(e *event) error {
	if e.seq > r.target {
		if r.known {
			// If the records of a configuration surround the target, it was not yet in force.
			return nil
		}
		if r.later = append(r.later, e); !e.whole {
			return nil
		}
		return r.goBack()
	}
	r.now = e
	if e.whole {
		r.text, r.directory, r.known = nil, nil, true
	}
	if !r.known {
		return nil
	}
	if !e.whole && e.was != digestOf(r.text) {
		return &audit.Fault{Seq: e.seq, Problem: "it goes on from a configuration that was not the one in force before it"}
	}
	return r.apply(e, e.text, e.directory, e.digest)
}

// goBack undoes the later configurations, of which the last is recorded as a whole.
func (r *Replay) goBack() error {
	last := r.later[len(r.later)-1]
	if err := r.apply(last, last.text, last.directory, last.digest); err != nil {
		return err
	}
	for _, e := range slices.Backward(r.later) {
		if e.whole && e.was != e.digest {
			// No record says what was before it.
			r.text, r.directory, r.later = nil, nil, nil
			r.done = true
			return nil
		}
		if e.whole {
			continue
		}
		if err := r.apply(e, undone(e.text), undone(e.directory), e.was); err != nil {
			return err
		}
	}
	r.known = true
	return nil
}

// undone returns the edits that undo edits.
func undone(edits []Edit) (back []Edit) {
	for _, e := range slices.Backward(edits) {
		back = append(back, e.back())
	}
	return back
}

func (r *Replay) apply(e *event, text, directory []Edit, digest string) (err error) {
	for _, edit := range text {
		if r.text, err = edit.apply(r.text); err != nil {
			return &audit.Fault{Seq: e.seq, Problem: fmt.Sprintf("its difference of the configuration does not fit: %v", err)}
		}
	}
	for _, edit := range directory {
		if r.directory, err = edit.apply(r.directory); err != nil {
			return &audit.Fault{Seq: e.seq, Problem: fmt.Sprintf("its difference of the directory file does not fit: %v", err)}
		}
	}
	if got := digestOf(r.text); got != digest {
		return &audit.Fault{Seq: e.seq, Problem: fmt.Sprintf("the configuration that it leads to is %s, and not %s", got, digest)}
	}
	return nil
}

// ErrUnknown reports that no record says which configuration was in force.
var ErrUnknown = errors.New("no record says which configuration was in force")

// InForce returns the result.
func (r *Replay) InForce() (InForce, error) {
	if !r.known {
		return InForce{}, fmt.Errorf("%w at record %d", ErrUnknown, r.target)
	}
	c := InForce{Digest: digestOf(r.text), Text: join(r.text), Directory: r.directory}
	if r.now != nil {
		c.Seq, c.Time, c.By, c.File = r.now.seq, r.now.time, r.now.by, r.now.file
	}
	return c, nil
}
