package a2aproxy

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// A text of many values takes more memory than one of the same length, and what takes too much is
// not parsed.
func TestLoad(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	file := strings.Repeat("x", maxBody)
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"a file": {file, true}, "numbers": {strings.Repeat("0,", 2<<20), false}, "lists": {strings.Repeat("[", 4<<20), false}, "members": {strings.Repeat(`"":`, 4<<20), false},
		"a long message": {strings.Repeat(`{"kind":"text"},`, 64<<10), true},
	} {
		l := &load{all: &all}
		body, err := l.read(strings.NewReader(tc.text), maxBody)
		if (err == nil) != tc.ok || err == nil && !bytes.Equal(body, []byte(tc.text)) || err != nil && !errors.Is(err, errBusy) {
			t.Errorf("%s: %v", name, err)
		}
		l.free()
	}
	if all.Load() != 0 {
		t.Errorf("%d bytes are taken without a request", all.Load())
	}
	var open []*load
	for range 64 {
		l := &load{all: &all}
		open = append(open, l)
		if _, err := l.read(strings.NewReader(file), maxBody); err != nil {
			break
		}
	}
	if len(open) > maxLoad/maxBody {
		t.Errorf("%d files of %d bytes are open at once", len(open), maxBody)
	}
	for _, l := range open {
		l.free()
	}
}
