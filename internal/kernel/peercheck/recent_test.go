package peercheck

import (
	"fmt"
	"testing"
	"time"
)

// The same is recorded once a minute, with the number of those in between.
func TestRecent(t *testing.T) {
	var r recent
	now := time.Unix(1_000_000, 0)
	for i, tt := range []struct {
		key    string
		after  time.Duration
		due    bool
		missed int
	}{
		{"a", 0, true, 0}, {"a", 0, false, 0}, {"b", time.Second, true, 0}, {"a", 58 * time.Second, false, 0}, {"a", time.Second, true, 2},
		{"a", -time.Hour, true, 0}, // the clock was set back
	} {
		now = now.Add(tt.after)
		if due, missed := r.due(tt.key, now); due != tt.due || missed != tt.missed {
			t.Errorf("step %d: due %t, missed %d", i, due, missed)
		}
	}
	r.forget("a")
	if due, _ := r.due("a", now); !due {
		t.Error("what was not recorded is not due again")
	}
}

// New processes without end make a bounded number of records, and none of them is lost from the
// count.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	now, records, unrecorded := time.Unix(1_000_000, 0), 0, 0
	const all = 10 * maxRecent
	for i := range all {
		due, missed := r.due(fmt.Sprint("process ", i), now)
		if due {
			records++
		}
		unrecorded += missed
	}
	if records != maxRecent || len(r.last) != maxRecent {
		t.Errorf("%d records, %d remembered", records, len(r.last))
	}
	now = now.Add(every)
	due, missed := r.due("another", now)
	if unrecorded += missed; !due || records+unrecorded != all {
		t.Errorf("due %t; %d of %d are counted", due, records+unrecorded, all)
	}
	if len(r.last) != 1 {
		t.Errorf("%d are remembered after a minute", len(r.last))
	}
}
