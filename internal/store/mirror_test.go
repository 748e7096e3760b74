package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestMirrorIsTakenUp opens a store again after something has happened to its
// mirror. Whatever it was, the mirror equals the database afterwards.
func TestMirrorIsTakenUp(t *testing.T) {
	const records = 40
	tests := []struct {
		name   string
		change func(t *testing.T, mirror []byte) []byte // nil removes the file
		aside  bool
	}{
		{"nothing", func(_ *testing.T, m []byte) []byte { return m }, false},
		{"deleted", func(*testing.T, []byte) []byte { return nil }, false},
		{"emptied", func(*testing.T, []byte) []byte { return []byte{} }, false},
		{"cut between lines", func(_ *testing.T, m []byte) []byte { return m[:nth(m, 17)] }, false},
		{"torn in a line", func(_ *testing.T, m []byte) []byte { return m[:nth(m, 17)+30] }, false},
		{"torn in the last line", func(_ *testing.T, m []byte) []byte { return m[:len(m)-1] }, false},
		{"torn in the first line", func(_ *testing.T, m []byte) []byte { return m[:30] }, false},
		{"zeros behind a crash", func(_ *testing.T, m []byte) []byte { return append(m[:nth(m, 17):nth(m, 17)], make([]byte, 5000)...) }, false},
		{"prose", func(*testing.T, []byte) []byte { return []byte("dear diary\n") }, true},
		// It has no whole line, and is somebody's all the same.
		{"prose without a line's end", func(*testing.T, []byte) []byte { return []byte("dear diary") }, true},
		{"a whole line that is empty", func(_ *testing.T, m []byte) []byte { return append(m, '\n') }, true},
		{"a line changed", func(_ *testing.T, m []byte) []byte {
			last := bytes.LastIndexByte(m[:len(m)-1], '\n')
			return append(m[:last:last], bytes.Replace(m[last:], []byte("note-"), []byte("nota-"), 1)...)
		}, true},
		{"of another store, longer", func(t *testing.T, m []byte) []byte {
			o := options(t.TempDir())
			s := open(t, o)
			fill(t, s, records+5)
			shut(t, s)
			other, err := os.ReadFile(o.Mirror)
			if err != nil {
				t.Fatal(err)
			}
			return other
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir)
			s := open(t, o)
			fill(t, s, records)
			wantSound(t, s)
			shut(t, s)
			before, err := os.ReadFile(o.Mirror)
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.change(t, before)
			if changed == nil {
				err = os.Remove(o.Mirror)
			} else {
				err = os.WriteFile(o.Mirror, changed, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
			defer s.Close()
			wantSound(t, s)
			fill(t, s, 3)
			wantSound(t, s)
			aside, err := filepath.Glob(o.Mirror + ".foreign-*")
			if err != nil || (len(aside) == 1) != tt.aside {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			if tt.aside {
				if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, changed) {
					t.Errorf("what was set aside has changed: %v", err)
				}
			}
		})
	}
}

// nth returns where the nth line ends.
func nth(text []byte, n int) int {
	end := 0
	for range n {
		end += bytes.IndexByte(text[end:], '\n') + 1
	}
	return end
}

// TestMirrorOfABurst commits more than the mirror keeps in memory.
func TestMirrorOfABurst(t *testing.T) {
	s := openTest(t)
	fill(t, s, 1)
	eventually(t, "the first is there", func() bool { return s.Mirrored() == 1 })
	for i := range 12 {
		c := note(fmt.Sprint(i))
		for j := range 20 {
			c.Records = append(c.Records, note(fmt.Sprint(i, "-", j)).Records...)
			c.Records[j].Content = strings.Repeat("x", 50_000)
		}
		commit(t, s, c)
	}
	wantSound(t, s)
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if len(s.mirror.lines) > mirrorBuffer {
		t.Errorf("%d bytes in memory", len(s.mirror.lines))
	}
}

// TestMirrorBuffer drives offer and follow by hand: every mixture of what is in
// memory, what was dropped from it and what the file already has.
func TestMirrorBuffer(t *testing.T) {
	s := openTest(t)
	fill(t, s, 10)
	wantSound(t, s)
	want, err := log(&s.reader)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(first, last int) []byte { return want[nth(want, first-1):nth(want, last)] }
	type offer struct{ first, last int }
	tests := []struct {
		name   string
		have   int
		offers []offer
	}{
		{"nothing offered", 0, nil},
		{"all at once", 0, []offer{{1, 10}}},
		{"one by one", 7, []offer{{8, 8}, {9, 9}, {10, 10}}},
		{"a gap before", 3, []offer{{8, 10}}},
		{"a gap between", 3, []offer{{4, 5}, {8, 10}}},
		{"some already there", 8, []offer{{6, 10}}},
		{"all already there", 10, []offer{{1, 10}}},
		{"not up to the end", 2, []offer{{3, 5}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mirror")
			if err := os.WriteFile(path, want[:nth(want, tt.have)], 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := openMirror(s, path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.file.Close()
			if m.have.Load() != uint64(tt.have) {
				t.Fatalf("has %d, want %d", m.have.Load(), tt.have)
			}
			for _, o := range tt.offers {
				m.offer(uint64(o.first), uint64(o.last), lines(o.first, o.last))
			}
			if err := m.follow(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
			}
		})
	}
	t.Run("more than memory may hold", func(t *testing.T) {
		m := &mirror{store: s, wake: make(chan struct{}, 1)}
		m.offer(1, 1, make([]byte, mirrorBuffer))
		m.offer(2, 2, []byte("x"))
		if len(m.lines) != 0 {
			t.Errorf("%d bytes kept", len(m.lines))
		}
	})
}

// TestMirrorUnderConcurrentCommits compares after every kind of commit at once.
func TestMirrorUnderConcurrentCommits(t *testing.T) {
	s := openTest(t)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 30 {
				c := note(fmt.Sprint(g, "-", i))
				for range i % 4 {
					c.Records = append(c.Records, note("more").Records...)
				}
				if i%5 == 0 {
					c.Records = nil
				}
				if _, err := s.Commit(c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	wantSound(t, s)
}
