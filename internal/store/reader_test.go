package store

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

func openReader(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// wantRecords asks a reader in every possible way.
func wantRecords(t *testing.T, r logstore.Records, want uint64) {
	t.Helper()
	ctx := t.Context()
	if last, err := r.LastSeq(ctx); err != nil || last != want {
		t.Errorf("last record %d, want %d, %v", last, want, err)
	}
	whole, err := log(r)
	if err != nil {
		t.Fatal(err)
	}
	var v audit.Verifier
	if _, err := v.ReadFrom(bytes.NewReader(whole)); err != nil || v.Head().Seq != want {
		t.Errorf("verified up to %d, want %d, %v", v.Head().Seq, want, err)
	}
	lines, next, err := r.Query(ctx, audit.Filter{Until: v.Head().Time.Add(1)}, 0, 0, 1)
	if err != nil || len(lines) != 1 || next != want {
		t.Fatalf("%d records, next %d, %v", len(lines), next, err)
	}
	if line, err := r.Line(ctx, want); err != nil || !bytes.Equal(line, lines[0]) {
		t.Errorf("record %d: %s, %v", want, line, err)
	}
	if seq, err := r.SeqAt(ctx, v.Head().Time.Add(1)); err != nil || seq != want {
		t.Errorf("before the end: record %d, %v", seq, err)
	}
}

// TestReaderChangesNothing reads a database in every state that a daemon leaves. Not a byte of it
// changes, and no file appears or disappears.
func TestReaderChangesNothing(t *testing.T) {
	copied := func(t *testing.T, keep ...string) string {
		t.Helper()
		live, dir := t.TempDir(), t.TempDir()
		s := open(t, options(live))
		defer s.Close()
		fill(t, s, 7)
		for _, name := range keep {
			content, err := os.ReadFile(filepath.Join(live, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	tests := []struct {
		name string
		make func(t *testing.T) (dir string)
	}{
		{"stopped", func(t *testing.T) string {
			dir := t.TempDir()
			s := open(t, options(dir))
			fill(t, s, 7)
			shut(t, s)
			return dir
		}},
		{"stopped, in an odd place", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "what? 100%25 #1 & more")
			s := open(t, options(dir))
			fill(t, s, 7)
			shut(t, s)
			return dir
		}},
		{"crashed", func(t *testing.T) string {
			return copied(t, "ocipd.db", "ocipd.db-wal")
		}},
		{"crashed with an index, as daemons before had one", func(t *testing.T) string {
			dir := copied(t, "ocipd.db", "ocipd.db-wal")
			write(t, filepath.Join(dir, "ocipd.db-shm"), strings.Repeat("\x00", 32768))
			return dir
		}},
		{"crashed as the log was begun", func(t *testing.T) string {
			dir := t.TempDir()
			s := open(t, options(dir))
			fill(t, s, 7)
			log, err := os.ReadFile(filepath.Join(dir, "ocipd.db-wal"))
			if err != nil {
				t.Fatal(err)
			}
			shut(t, s)
			write(t, filepath.Join(dir, "ocipd.db-wal"), string(log[:32]))
			return dir
		}},
		{"stopped, with an empty log left", func(t *testing.T) string {
			dir := t.TempDir()
			s := open(t, options(dir))
			fill(t, s, 7)
			shut(t, s)
			if err := os.WriteFile(filepath.Join(dir, "ocipd.db-wal"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.make(t)
			before := files(t, dir)
			r, err := OpenReader(t.Context(), filepath.Join(dir, "ocipd.db"))
			if err != nil {
				t.Fatal(err)
			}
			wantRecords(t, r.Records, 7)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if _, err := r.LastSeq(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("read afterwards: %v", err)
			}
			if after := files(t, dir); !maps.Equal(before, after) {
				for name := range after {
					if before[name] != after[name] {
						t.Errorf("%s has changed or is new", name)
					}
				}
				t.Errorf("%d files before, %d after", len(before), len(after))
			}
			// A daemon then continues from the same log.
			s := open(t, options(dir))
			defer s.Close()
			if s.Head().Seq != 7 {
				t.Errorf("a daemon finds %d records", s.Head().Seq)
			}
			wantSound(t, s)
		})
	}
}

// TestReaderBesideADaemon is refused, and is told to ask the daemon.
func TestReaderBesideADaemon(t *testing.T) {
	s := openTest(t)
	fill(t, s, 3)
	if r, err := OpenReader(t.Context(), s.path); !errors.Is(err, ErrRunning) {
		t.Errorf("opened beside a daemon: %v, %v", r, err)
	}
	fill(t, s, 1)
	wantSound(t, s)
}

// TestReaderSeesADaemonStart begins without a daemon and without locks. When a daemon starts, the
// reader must not go on as if nothing had happened.
func TestReaderSeesADaemonStart(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	fill(t, s, 3)
	shut(t, s)
	r := openReader(t, o.Path)
	wantRecords(t, r.Records, 3)
	s = open(t, o)
	fill(t, s, 1)
	if last, err := r.LastSeq(t.Context()); err == nil {
		t.Errorf("read up to %d beside a daemon it does not know of", last)
	}
	shut(t, s)
	if last, err := r.LastSeq(t.Context()); err == nil {
		t.Errorf("read up to %d of a file that was written meanwhile", last)
	}
	again := openReader(t, o.Path)
	wantRecords(t, again.Records, 4)
}

func TestOpenReaderRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReader(t.Context(), filepath.Join(dir, "none.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, dir} {
		if r, err := OpenReader(t.Context(), path); err == nil {
			t.Error("opened", path, r.Close())
		}
	}
	if len(files(t, dir)) != 1 {
		t.Error("files have come")
	}
}
