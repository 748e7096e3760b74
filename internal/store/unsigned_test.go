package store

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"golang.org/x/mod/sumdb/note"
)

// setClock is a clock that tests set.
type setClock struct{ at atomic.Int64 }

func (c *setClock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func (c *setClock) add(d time.Duration) { c.at.Add(int64(d)) }

func newClock() *setClock {
	c := &setClock{}
	c.at.Store(someTime.UnixNano())
	return c
}

// A record that is over a minute old is signed before another one is written, regardless of the
// timer, which a sleeping machine stops.
func TestSignsFirst(t *testing.T) {
	o, key := signed(t, t.TempDir())
	clock := newClock()
	o.Clock, o.Signing.Every = clock.now, time.Hour
	s := open(t, o)
	defer shut(t, s)
	fill(t, s, 2)
	clock.add(audit.SignWithin)
	fill(t, s, 1)
	if s.Head().Seq != 3 {
		t.Fatalf("%d records within a minute", s.Head().Seq)
	}
	clock.add(time.Second)
	if r := commit(t, s, noted("late")); r.Seq != 5 || s.Checkpoint().Seq != 4 {
		t.Fatalf("the record is %d, the checkpoint %d", r.Seq, s.Checkpoint().Seq)
	}
	// The checkpoint itself needs no further one.
	clock.add(audit.SignWithin)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Hour)
	s.TouchSession("telegram:x", clock.now())
	s.Flush()
	if r := commit(t, s, noted("idle")); r.Seq != 7 {
		t.Fatalf("record %d after an idle hour", r.Seq)
	}
	// A clock that is set back makes no record older.
	clock.add(-2 * time.Hour)
	if r := commit(t, s, noted("back")); r.Seq != 8 {
		t.Fatalf("record %d with a clock set back", r.Seq)
	}
	clock.add(2*time.Hour + 10*time.Minute)
	if r := commit(t, s, &Change{Checkpoint: true, Records: noted("x").Records}); r.Seq != 10 || s.Checkpoint().Seq != 11 {
		t.Fatalf("record %d, checkpoint %d", r.Seq, s.Checkpoint().Seq)
	}
	if r := verified(t, s, key.verifier(t)); r.Late != 1 || r.Gaps != 0 || r.Signed != 10 {
		t.Errorf("%+v", r)
	}
}

// A start reports the records after the last checkpoint, and whether they are more than a killed
// daemon leaves.
func TestFoundUnsigned(t *testing.T) {
	t.Parallel()
	type leaves func(t *testing.T, s *Store, clock *setClock)
	for name, c := range map[string]struct {
		leave       leaves
		first, last uint64
		long        bool
	}{
		"all signed":   {func(t *testing.T, s *Store, _ *setClock) { sign(t, s) }, 0, 0, false},
		"a crash":      {func(t *testing.T, s *Store, _ *setClock) { sign(t, s); fill(t, s, 3) }, 5, 7, false},
		"a long crash": {func(t *testing.T, s *Store, _ *setClock) { sign(t, s); fill(t, s, 1023) }, 5, 1027, false},
		"no checkpoint": {func(t *testing.T, s *Store, clock *setClock) {
			clock.add(audit.SignWithin + time.Second)
			fill(t, s, 1)
		}, 5, 5, false},
	} {
		dir := t.TempDir()
		o, key := signed(t, dir)
		clock := newClock()
		o.Clock, o.Signing.Every = clock.now, time.Hour
		s := open(t, o)
		fill(t, s, 3)
		c.leave(t, s, clock)
		shut(t, s)
		s = open(t, o)
		got := s.FoundUnsigned()
		if got.First != c.first || got.Last != c.last || got.Long != c.long {
			t.Errorf("%s: %+v", name, got)
		}
		sign(t, s)
		if r := verified(t, s, key.verifier(t)); r.Gaps != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		shut(t, s)
	}
}

func sign(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Sign(); err != nil {
		tb.Fatal(err)
	}
}

// An attacker who can write the database without the key can make a log that is unsigned for longer
// than any that the daemon leaves, and can claim anything in the database: the start checks for
// itself.
func TestFoundUnsignedOfForger(t *testing.T) {
	t.Parallel()
	slowly := func(t *testing.T, s *Store, clock *setClock) {
		for range 4 {
			clock.add(time.Minute)
			commit(t, s, noted("forged"))
		}
	}
	for name, c := range map[string]struct {
		write func(*testing.T, *Store, *setClock)
		claim bool
	}{
		"over a long time": {slowly, false}, "many at once": {func(t *testing.T, s *Store, _ *setClock) { fill(t, s, 1100) }, false}, "and said to be signed": {slowly, true},
	} {
		dir := t.TempDir()
		o, key := signed(t, dir)
		clock := newClock()
		o.Clock, o.Signing.Every = clock.now, time.Hour
		s := open(t, o)
		fill(t, s, 3)
		sign(t, s)
		shut(t, s)
		unsigned := o
		unsigned.Signing = nil
		s = open(t, unsigned)
		c.write(t, s, clock)
		if c.claim {
			value := fmt.Sprintf(`{"Seq":%d,"Note":%q}`, s.Head().Seq, s.Checkpoint().Note)
			commit(t, s, &Change{Parts: []Part{Meta{"checkpoint", []byte(value)}}, Drains: true})
		}
		last := s.Head().Seq
		shut(t, s)
		s = open(t, o)
		if got := s.FoundUnsigned(); got.First != 5 || got.Last != last || !got.Long {
			t.Errorf("%s: %+v", name, got)
		}
		if s.Checkpoint().Seq != 4 {
			t.Errorf("%s: the newest checkpoint is said to be record %d", name, s.Checkpoint().Seq)
		}
		commit(t, s, noted("real"))
		sign(t, s)
		_, err := s.Verify(t.Context(), audit.Proof{Keys: []note.Verifier{key.verifier(t)}})
		if err == nil || !strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("%s: it verifies: %v", name, err)
		}
		shut(t, s)
	}
}
