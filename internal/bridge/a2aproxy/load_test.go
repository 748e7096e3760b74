package a2aproxy

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// A text of many values takes more memory than one of the same length, and what takes too much is
// not parsed.
func TestLoad(t *testing.T) {
	t.Parallel()
	all := sharing(maxLoad)
	file := strings.Repeat("x", maxBody)
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"a file": {file, true}, "numbers": {strings.Repeat("0,", 2<<20), false}, "lists": {strings.Repeat("[", 4<<20), false}, "members": {strings.Repeat(`"":`, 4<<20), false},
		"a long message": {strings.Repeat(`{"kind":"text"},`, 64<<10), true},
	} {
		l := &load{all: all}
		body, err := l.read(strings.NewReader(tc.text), maxBody)
		if (err == nil) != tc.ok || err == nil && !bytes.Equal(body, []byte(tc.text)) || err != nil && !errors.Is(err, errBusy) {
			t.Errorf("%s: %v", name, err)
		}
		l.free()
	}
	if all.all != 0 || len(all.of) != 0 {
		t.Errorf("%d bytes are taken without a request", all.all)
	}
	var open []*load
	for range 64 {
		l := &load{all: all}
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

// However much one peer, or each of several, wants, the next one finds room, and gives it back.
func TestShares(t *testing.T) {
	t.Parallel()
	s := sharing(maxRequests)
	fills := func(peer string) (n int) {
		for s.take(peer, 1) {
			n++
		}
		s.take(peer, -1)
		return n
	}
	for i, peer := range []string{"a", "b", "c", "d"} {
		if got, want := fills(peer), maxRequests>>(i+1); got != want {
			t.Errorf("peer %s has %d open, want %d", peer, got, want)
		}
	}
	if !s.take(own, 1) {
		t.Error("the proxy itself finds no room")
	}
	s.take(own, -1)
	s.take("a", -maxRequests/2)
	if _, known := s.of["a"]; known || !s.take("e", 1) {
		t.Errorf("what was given back is not free: %v", s.of)
	}
}
