package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"golang.org/x/mod/sumdb/note"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// signKey is the key that signs a test's log.
type signKey struct {
	signer note.Signer
	public string
}

func (k signKey) verifier(tb testing.TB) note.Verifier {
	tb.Helper()
	v, err := note.NewVerifier(k.public)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func newSignKey(tb testing.TB, name string) signKey {
	tb.Helper()
	secret, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return signKey{signer, public}
}

// signed returns the options of a store with a signed log; the key is made when the store names the
// log.
func signed(tb testing.TB, dir string) (Options, *signKey) {
	o := options(dir)
	key := new(signKey)
	var ids int
	o.Signing = &logstore.Signing{
		NewID: func() string { ids++; return fmt.Sprintf("018f0000-0000-7000-8000-%012d", ids) },
		Open: func(name, inForce string) (note.Signer, string, error) {
			if key.signer == nil {
				*key = newSignKey(tb, name)
			}
			if inForce != "" && inForce != key.public {
				return nil, "", errors.New("another key is in force")
			}
			return key.signer, key.public, nil
		},
	}
	return o, key
}

// verified verifies everything in a store with a key, and returns the report.
func verified(tb testing.TB, s *Store, keys ...note.Verifier) audit.Report {
	tb.Helper()
	p := audit.Proof{Keys: keys}
	tomb, err := s.Tombstone(tb.Context())
	switch {
	case err == nil:
		p.Tombstone = &tomb
	case !errors.Is(err, ErrNotFound):
		tb.Fatal(err)
	}
	v, err := audit.NewVerifier(p)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.EachLine(tb.Context(), tomb.Head.Seq, func(_ uint64, line []byte) error { return v.Add(line) }); err != nil {
		tb.Fatal(err)
	}
	r, err := v.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	root, err := s.RootAt(tb.Context(), s.Head().Seq)
	if err != nil {
		tb.Fatal(err)
	}
	if again, err := s.Evidence().RootAt(tb.Context(), s.Head().Seq); err != nil || again != root {
		tb.Fatalf("the tree read back has another root than the one in memory: %v", err)
	}
	return r
}

// TestCheckpointsByCount writes so many records, in changes of several, side by side, that
// checkpoints fall due between them.
func TestCheckpointsByCount(t *testing.T) {
	t.Parallel()
	o, key := signed(t, t.TempDir())
	s := open(t, o)
	if s.Checkpoint().Seq != 0 {
		t.Error("an empty log has a checkpoint")
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 120 {
				c := noted(fmt.Sprintf("w%d-%d", w, i))
				for j := range i % 4 {
					c.Records = append(c.Records, noted(fmt.Sprintf("w%d-%d-%d", w, i, j)).Records...)
				}
				if _, err := s.Commit(c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	r := verified(t, s, key.verifier(t))
	if r.Checkpoints != 2 || r.Signed != s.Checkpoint().Seq-1 || r.Head.Seq != 2402 {
		t.Errorf("%+v, newest checkpoint at %d", r, s.Checkpoint().Seq)
	}
	// A change that cannot be written rolls the tree back.
	if err := s.commits.writer.Run(`CREATE TEMP TRIGGER unwritten BEFORE INSERT ON records BEGIN SELECT raise(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(noted("not written")); err == nil {
		t.Error("a record that was not written is committed")
	}
	if err := s.commits.writer.Run(`DROP TRIGGER unwritten`); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 300)
	verified(t, s, key.verifier(t))
	shut(t, s)

	s = open(t, o)
	defer shut(t, s)
	fill(t, s, 300)
	verified(t, s, key.verifier(t))
}

// TestCheckpointsByTime lets a record wait.
func TestCheckpointsByTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o, key := signed(t, dir)
		o.Signing.Every = time.Minute
		s := open(t, o)
		defer shut(t, s)
		fill(t, s, 3)
		<-time.After(59 * time.Second)
		synctest.Wait()
		if s.Checkpoint().Seq != 0 {
			t.Error("a checkpoint too early")
		}
		if err := s.WaitAfter(t.Context(), 3); err != nil || s.Checkpoint().Seq != 4 {
			t.Errorf("a checkpoint as record %d, %v", s.Checkpoint().Seq, err)
		}
		// Nothing new: no checkpoint of checkpoints.
		<-time.After(time.Hour)
		synctest.Wait()
		if s.Head().Seq != 4 {
			t.Errorf("%d records after an hour in which nothing happened", s.Head().Seq)
		}
		if err := s.Sign(); err != nil || s.Head().Seq != 4 {
			t.Errorf("signed again what is signed: %v", err)
		}
		verified(t, s, key.verifier(t))
	})
}

func TestRotateKey(t *testing.T) {
	o, key := signed(t, t.TempDir())
	s := open(t, o)
	fill(t, s, 3)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	old := key.verifier(t)
	next := newSignKey(t, s.Origin())
	seq, err := s.RotateKey(next.signer, next.public)
	if err != nil || seq != 5 {
		t.Fatalf("record %d, %v", seq, err)
	}
	*key = next
	fill(t, s, 3)
	shut(t, s)
	s = open(t, o)
	defer shut(t, s)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]note.Verifier{"old": old, "new": next.verifier(t)} {
		if r := verified(t, s, k); r.Signed != 8 {
			t.Errorf("with the %s key: %+v", name, r)
		}
	}
}

func TestProveRecord(t *testing.T) {
	dir := t.TempDir()
	o, key := signed(t, dir)
	s := open(t, o)
	const records = 600
	fill(t, s, records)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 2)
	prove := func(from interface {
		ProveRecord(context.Context, uint64) (audit.Receipt, error)
		Line(context.Context, uint64) ([]byte, error)
	}) {
		t.Helper()
		for _, seq := range []uint64{1, 2, 255, 256, 257, 512, 513, 599, 600} {
			r, err := from.ProveRecord(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			line, err := from.Line(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := r.Check(line, key.verifier(t)); err != nil || c.Size != records {
				t.Errorf("record %d: %+v, %v", seq, c, err)
			}
		}
		for _, seq := range []uint64{0, 700} {
			if _, err := from.ProveRecord(t.Context(), seq); !errors.Is(err, ErrNotFound) {
				t.Errorf("record %d: %v", seq, err)
			}
		}
		if _, err := from.ProveRecord(t.Context(), 602); !errors.Is(err, logstore.ErrUnsigned) {
			t.Errorf("a record after the checkpoint: %v", err)
		}
	}
	prove(s)
	prove(s.Evidence())
	shut(t, s)
	prove(openReader(t, o.Path))
}

// TestOldLogGetsTree opens a database of a daemon that made no tree.
func TestOldLogGetsTree(t *testing.T) {
	t.Parallel()
	for _, records := range []int{0, 1, 255, 256, 700} {
		dir := t.TempDir()
		s := open(t, options(dir))
		fill(t, s, records)
		want, err := s.RootAt(t.Context(), uint64(records))
		if err != nil {
			t.Fatal(err)
		}
		shut(t, s)
		conn, err := sqlite.OpenConn(options(dir).Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sqlitex.ExecuteScript(conn, `DELETE FROM tiles`, nil), conn.Close()); err != nil {
			t.Fatal(err)
		}
		o, key := signed(t, dir)
		s = open(t, o)
		if got, err := s.RootAt(t.Context(), uint64(records)); err != nil || got != want {
			t.Errorf("%d records: root %s, %v, want %s", records, got, err, want)
		}
		fill(t, s, 2)
		if err := s.Sign(); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, s, key.verifier(t)); r.Signed != uint64(records)+2 {
			t.Errorf("%+v", r)
		}
		shut(t, s)
	}
}

// TestRetire removes the beginning of a log, twice, and continues with the rest, also after an
// interrupted removal.
func TestRetire(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, key := signed(t, dir)
	s := open(t, o)
	fill(t, s, 1500)
	if _, err := s.Retire(t.Context(), 1400); !errors.Is(err, logstore.ErrUnsigned) {
		t.Errorf("retired what no checkpoint covers: %v", err)
	}
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	head := s.Head()
	for _, upTo := range []uint64{700, 1301} {
		tomb, err := s.Retire(t.Context(), upTo)
		if err != nil || tomb.Head.Seq != upTo {
			t.Fatalf("%+v, %v", tomb.Head, err)
		}
		if _, err := s.Line(t.Context(), upTo); !errors.Is(err, ErrNotFound) {
			t.Errorf("record %d after it was retired: %v", upTo, err)
		}
		fill(t, s, 10)
		if err := s.Sign(); err != nil {
			t.Fatal(err)
		}
		r := verified(t, s, key.verifier(t))
		if r.Retired != upTo || r.Head.Seq <= head.Seq {
			t.Errorf("%+v", r)
		}
		receipt, err := s.ProveRecord(t.Context(), upTo+1)
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.Line(t.Context(), upTo+1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := receipt.Check(line, key.verifier(t)); err != nil {
			t.Error(err)
		}
		shut(t, s)
		s = open(t, o)
		verified(t, s, key.verifier(t))
	}
	if seq, err := s.SeqAt(t.Context(), time.Time{}); err != nil || seq != 1301 {
		t.Errorf("the beginning of time is before record %d, %v", seq, err)
	}
	if err := s.Prune(t.Context()); err != nil {
		t.Error(err)
	}
	shut(t, s)

	// Records that are not retired cannot be deleted.
	conn, err := sqlite.OpenConn(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteScript(conn, `DELETE FROM records WHERE seq = 1302`, nil); err == nil {
		t.Error("a record that was not retired could be deleted")
	}
}

// TestRecent compares the followers' lines with the database, from every position, while the log
// grows beyond the memory.
func TestRecent(t *testing.T) {
	t.Parallel()
	s := open(t, options(t.TempDir()))
	defer shut(t, s)
	for i := range 40 {
		c := noted(fmt.Sprint(i))
		c.Records[0].PolicyReason = string(bytes.Repeat([]byte("x"), 300<<10))
		commit(t, s, c)
	}
	fill(t, s, 600)
	// Every position among the long ones, and in the end every position of a commit among the
	// others.
	for seq := uint64(0); seq <= 640; seq += 1 + min(seq/40, 1)*2 {
		lines, upTo, err := s.LinesAfter(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		want, wantUpTo, err := s.Records.LinesAfter(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		shorter := min(len(lines), len(want))
		if (shorter == 0) != (seq == 640) || upTo != seq+uint64(len(lines)) || wantUpTo != seq+uint64(len(want)) || !slices.EqualFunc(lines[:shorter], want[:shorter], bytes.Equal) {
			t.Fatalf("after %d: %d lines up to %d, the database has %d up to %d", seq, len(lines), upTo, len(want), wantUpTo)
		}
	}
}

// TestLostKey refuses to continue a log whose key is gone.
func TestLostKey(t *testing.T) {
	dir := t.TempDir()
	o, key := signed(t, dir)
	s := open(t, o)
	fill(t, s, 1)
	shut(t, s)
	*key = newSignKey(t, "ocipd/other")
	if s, err := Open(t.Context(), o); err == nil {
		shut(t, s)
		t.Error("a log goes on with a key that it was not handed over to")
	}
	if _, err := os.Stat(filepath.Join(dir, "ocipd.db")); err != nil {
		t.Error(err)
	}
}
