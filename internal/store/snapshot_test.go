package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/store/db"
)

// TestSnapshotWhileWriting copies beside commits: each copy is of one moment.
func TestSnapshotWhileWriting(t *testing.T) {
	s, o := openIn(t, t.TempDir())
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := s.Commit(dispatchChange(i, s.clock())); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 10 {
		before := s.Head().Seq
		path, remove, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the copy has mode %v, %v", info.Mode(), err)
		}
		r, err := OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		last, err := r.LastSeq(t.Context())
		if err != nil || last < before {
			t.Errorf("a copy made after record %d ends at %d, %v", before, last, err)
		}
		wantRecords(t, r.Records, last)
		if said, err := db.Rows(t.Context(), r.db, "the structure", "PRAGMA integrity_check", nil, db.ScanText); err != nil || len(said) != 1 || said[0] != "ok" {
			t.Errorf("the copy: %v, %v", said, err)
		}
		if err := errors.Join(r.Close(), remove()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantSound(t, s)
	if left := files(t, filepath.Dir(o.Path)); len(left) != 2 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestSnapshotEnds: with its caller, with the store, and without room.
func TestSnapshotEnds(t *testing.T) {
	s, o := openIn(t, t.TempDir())
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := s.Snapshot(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	s.commits.space.Free = func() (int64, error) { return 1 << 20, nil }
	_, _, err := s.Snapshot(t.Context())
	if full, ok := errors.AsType[*NoRoomError](err); !ok || full.Needed <= full.Free {
		t.Errorf("without room: %v", err)
	}
	shut(t, s)
	if _, _, err := s.Snapshot(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
	if left := files(t, filepath.Dir(o.Path)); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestStartRemovesLeftovers: copies of a killed daemon, and an older daemon's shared-memory file;
// nothing else whose name begins like the database's.
func TestStartRemovesLeftovers(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	fill(t, s, 1)
	shut(t, s)
	for _, suffix := range []string{".copy-123", "-shm", ".v3.bak", ".copy"} {
		write(t, o.Path+suffix, "x")
	}
	shut(t, open(t, o))
	if left := fmt.Sprint(sortedNames(t, filepath.Dir(o.Path))); left != "[ocipd.db ocipd.db.copy ocipd.db.v3.bak]" {
		t.Errorf("left: %s", left)
	}
}

func sortedNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestOpenBesideAnotherProgram names the program that holds the lock.
func TestOpenBesideAnotherProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lock")
	}
	o := options(t.TempDir())
	shut(t, open(t, o))
	cmd := child(t, "visitor", filepath.Dir(o.Path))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another program has "+o.Path+" open") {
		t.Errorf("opened beside a reader: %v", err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	shut(t, open(t, o))
}
