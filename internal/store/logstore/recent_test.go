package logstore

import (
	"bytes"
	"testing"
)

// The followers' lines in memory are bounded, however much is written.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	for i := range uint64(40) {
		r.add(i+1, i+1, append(bytes.Repeat([]byte("x"), 300<<10), '\n'))
	}
	if r.bytes > recentBytes || r.bytes < recentBytes-(300<<10)-1 {
		t.Errorf("%d bytes in memory", r.bytes)
	}
	if _, _, ok := r.after(1); ok {
		t.Error("the first record is still there")
	}
	if lines, upTo, ok := r.after(39); !ok || len(lines) != 1 || upTo != 40 {
		t.Errorf("the last record: %d lines up to %d, %t", len(lines), upTo, ok)
	}
	// A commit that is larger than all that is kept leaves nothing in memory.
	r.add(41, 41, append(bytes.Repeat([]byte("x"), recentBytes), '\n'))
	if _, _, ok := r.after(40); ok || r.bytes != 0 {
		t.Errorf("after a large commit %d bytes are in memory", r.bytes)
	}
	r.add(42, 42, []byte("x\n"))
	if lines, upTo, ok := r.after(41); !ok || len(lines) != 1 || upTo != 42 {
		t.Errorf("the record after it: %d lines up to %d, %t", len(lines), upTo, ok)
	}
	r.forget()
	if _, _, ok := r.after(39); ok || r.bytes != 0 {
		t.Error("it is not forgotten")
	}
}
