package audit

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// timed writes records at times of their own.
type timed struct{ signedLog }

func (l *timed) at(offset time.Duration, r *Record) {
	l.tb.Helper()
	body, err := Encode(r)
	if err != nil {
		l.tb.Fatal(err)
	}
	var line []byte
	line, l.head = l.head.Seal(nil, start.Add(offset), body)
	l.lines = append(l.lines, line)
	l.front.Append(Leaf(line))
}

func (l *timed) signAt(offset time.Duration, k key, prompt bool) {
	l.tb.Helper()
	c := l.checkpoint()
	signed, err := c.Sign(k.signer)
	if err != nil {
		l.tb.Fatal(err)
	}
	details := map[string]any{"note": signed}
	if prompt {
		details[SignsWithin] = 60
	}
	l.at(offset, &Record{ID: "c", ActionType: ActionCheckpoint, Event: EventSigned, Details: details})
}

func started(prompt bool) *Record {
	r := &Record{ID: "s", ActionType: ActionSecurity, Event: EventStarted, Details: map[string]any{"version": "1"}}
	if prompt {
		r.Details[SignsWithin] = 60
	}
	return r
}

// A log that states that it is signed within a minute has no record minutes after an unsigned one.
// A log of an older version may, and the report says so.
func TestUnsignedForTooLong(t *testing.T) {
	k := newKey(t, logName)
	some := func() *Record { return record(1) }
	type step func(l *timed)
	note1 := func(at time.Duration) step { return func(l *timed) { l.at(at, some()) } }
	signs := func(at time.Duration, prompt bool) step { return func(l *timed) { l.signAt(at, k, prompt) } }
	starts := func(at time.Duration, prompt bool) step { return func(l *timed) { l.at(at, started(prompt)) } }
	tests := []struct {
		name  string
		steps []step
		// seq is the record that is a fault, 0 for none.
		seq        uint64
		late, gaps int
	}{
		{"in time", []step{starts(0, true), signs(0, true), note1(time.Hour), note1(time.Hour + time.Minute), signs(time.Hour+time.Minute, true)}, 0, 0, 0},
		{"the denials are gone", []step{starts(0, true), signs(0, true), note1(time.Hour), note1(time.Hour + 3*time.Minute), signs(time.Hour+3*time.Minute, true)}, 4, 0, 0},
		{"bit by bit", []step{starts(0, true), signs(0, true), note1(time.Hour), note1(time.Hour + time.Minute), note1(time.Hour + 2*time.Minute), note1(time.Hour + 3*time.Minute)}, 6, 0, 0},
		{"the mark taken off the last checkpoint", []step{starts(0, true), signs(0, false), note1(0), note1(time.Hour)}, 4, 0, 0},
		{"a start of an older version made up", []step{starts(0, true), signs(0, true), starts(0, false), note1(time.Hour)}, 4, 0, 0},
		{"the mark of a checkpoint alone", []step{starts(0, false), signs(0, true), note1(0), note1(time.Hour)}, 4, 0, 0},
		{"a crash", []step{starts(0, true), signs(0, true), note1(time.Minute), note1(time.Minute), signs(time.Hour, true), starts(time.Hour, true)}, 0, 1, 0},
		{"two crashes", []step{starts(0, true), signs(0, true), note1(0), signs(time.Hour, true), note1(time.Hour), signs(2*time.Hour, true)}, 0, 2, 0},
		{"an older version", []step{starts(0, false), signs(0, false), note1(0), note1(time.Hour), note1(time.Hour), note1(2 * time.Hour), signs(2*time.Hour, false)}, 0, 0, 2},
		{"upgraded", []step{starts(0, false), signs(0, false), note1(0), note1(time.Hour), signs(2*time.Hour, true), starts(2*time.Hour, true), note1(2 * time.Hour)}, 0, 1, 1},
		{"upgraded, and rewritten since", []step{starts(0, false), signs(0, false), starts(2*time.Hour, true), signs(2*time.Hour, true), note1(3 * time.Hour), note1(4 * time.Hour)}, 6, 0, 0},
		{"no mark that says more than a minute", []step{func(l *timed) {
			r := started(true)
			r.Details[SignsWithin] = 3600
			l.at(0, r)
		}, signs(0, false), note1(0), note1(time.Hour)}, 0, 0, 1},
	}
	for _, tt := range tests {
		l := &timed{signedLog{tb: t}}
		for _, s := range tt.steps {
			s(l)
		}
		for name, p := range map[string]Proof{"with the key": {Keys: []note.Verifier{k.public}}, "without": {}} {
			r, err := check(l.bytes(), p)
			if tt.seq > 0 {
				if f := faultOf(t, err); f.Seq != tt.seq || !strings.Contains(f.Problem, "no checkpoint is of record") {
					t.Errorf("%s, %s: got %v, want record %d", tt.name, name, err, tt.seq)
				}
				continue
			}
			if err != nil || r.Late != tt.late || r.Gaps != tt.gaps {
				t.Errorf("%s, %s: %d late, %d gaps, %v", tt.name, name, r.Late, r.Gaps, err)
			}
		}
	}
}

// Records that were signed late, or were unsigned for long, are named.
func TestStretches(t *testing.T) {
	k := newKey(t, logName)
	l := &timed{signedLog{tb: t}}
	l.at(0, started(false))
	l.at(time.Hour, record(2))
	l.at(time.Hour, record(3))
	l.signAt(3*time.Hour, k, true)
	r, err := check(l.bytes(), Proof{Keys: []note.Verifier{k.public}})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Stretch{First: 1, Last: 1, From: start, To: start.Add(time.Hour)}); r.FirstGap != want {
		t.Errorf("the gap is %+v", r.FirstGap)
	}
	if want := (Stretch{First: 2, Last: 3, From: start.Add(time.Hour), To: start.Add(3 * time.Hour)}); r.LastLate != want {
		t.Errorf("signed late were %+v", r.LastLate)
	}
}

// A checkpoint is found in its line, and nothing else is one.
func TestCheckpointOf(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	l := aLog(t, k)
	for i, line := range l.lines {
		c, signed, ok := CheckpointOf(line, k.public)
		if want := i == 3 || i == 7 || i == 11; ok != want || ok && (c.Size != uint64(i) || signed != l.notes[i/4]) {
			t.Errorf("record %d: %+v, %v", i+1, c, ok)
		}
		if _, _, ok := CheckpointOf(line, other.public); ok {
			t.Errorf("record %d is signed by another key", i+1)
		}
	}
	l.state(EventSigned, l.notes[0])
	l.state(EventRetired, l.notes[0])
	for _, line := range append(l.lines[len(l.lines)-2:], nil, []byte("{}"), l.lines[3][:200]) {
		if _, _, ok := CheckpointOf(line, k.public); ok {
			t.Errorf("taken as one: %s", line)
		}
	}
}
