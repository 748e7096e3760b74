package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func TestOpenFreshAndAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	s := open(t, options(dir))
	if s.Head().Seq != 0 {
		t.Errorf("a fresh store has %d records", s.Head().Seq)
	}
	fill(t, s, 3)
	head := s.Head()
	shut(t, s)
	for name := range files(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, others can read it", name, info.Mode())
		}
	}
	s = open(t, options(dir))
	defer s.Close()
	if s.Head() != head {
		t.Errorf("opened at %+v, closed at %+v", s.Head(), head)
	}
	fill(t, s, 1)
	wantSound(t, s)
}

// A second store cannot open the file, under any name, and can once the first is closed.
func TestOneStoreAFile(t *testing.T) {
	dir := t.TempDir()
	first := open(t, options(dir))
	fill(t, first, 2)
	path := options(dir).Path
	if err := errors.Join(
		os.Symlink(path, filepath.Join(dir, "soft.db")), os.Link(path, filepath.Join(dir, "hard.db")),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, filepath.Join(dir, "soft.db"), filepath.Join(dir, "hard.db")} {
		o := options(dir)
		o.Path = name
		second, err := Open(t.Context(), o)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), name) {
			t.Errorf("opened twice as %s: %v, want %v", name, err, ErrInUse)
		}
		if second != nil {
			second.Close()
		}
	}
	fill(t, first, 2)
	wantSound(t, first)
	shut(t, first)
	again := open(t, options(dir))
	defer again.Close()
	if again.Head().Seq != 4 {
		t.Errorf("the log ends at %d, want 4", again.Head().Seq)
	}
}

// TestWriterSettings checks what only a loss of power shows, and no kill of a process: that a
// commit is on the disk.
func TestWriterSettings(t *testing.T) {
	s := openTest(t)
	for query, want := range map[string]int{
		"PRAGMA synchronous": 2, // FULL
		"SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'": 1,
	} {
		if got, err := db.QueryInt(s.commits.writer.Conn, query); err != nil || got != want {
			t.Errorf("%s: got %d, want %d, %v", query, got, want, err)
		}
	}
}

// TestOpenRefuses expects files of other programs to stay unchanged, to the byte, with nothing
// beside them.
func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"another program's", func(t *testing.T, path string) {
			change(t, path, "CREATE TABLE t (x); PRAGMA application_id=42; PRAGMA user_version=7;")
		}, "another program's"},
		{"another program's, without a version", func(t *testing.T, path string) {
			change(t, path, "CREATE TABLE t (x); PRAGMA application_id=42;")
		}, "another program's"},
		// Most programs set neither number.
		{"another program's, without any mark", func(t *testing.T, path string) {
			change(t, path, "CREATE TABLE t (x);")
		}, "another program's"},
		{"another program's, with a log", func(t *testing.T, path string) {
			change(t, path, "PRAGMA journal_mode=WAL; CREATE TABLE t (x);")
		}, "another program's"},
		{"our version, not our mark", func(t *testing.T, path string) {
			change(t, path, "CREATE TABLE records (x); PRAGMA user_version=1;")
		}, "another program's"},
		{"prose", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("Dear diary, ", 500)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "another program's"},
		{"a newer daemon's", func(t *testing.T, path string) {
			shut(t, open(t, Options{Path: path, Clock: steadyClock(), Log: zap.NewNop()}))
			change(t, path, "PRAGMA user_version=99;")
		}, "99 is newer than this daemon's"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir)
			tt.make(t, o.Path)
			before := files(t, dir)
			if s, err := Open(t.Context(), o); err == nil {
				t.Fatal("opened", s.Close())
			} else if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if r, err := OpenReader(t.Context(), o.Path); err == nil {
				t.Error("opened for reading", r.Close())
			} else if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v for reading, want %s", err, tt.want)
			}
			if after := files(t, dir); !maps.Equal(before, after) {
				t.Errorf("the folder changed: %d files before, %d after", len(before), len(after))
			}
		})
	}
}

// TestEvidenceIsOnlyAddedTo tries what a bug might.
func TestEvidenceIsOnlyAddedTo(t *testing.T) {
	s := openTest(t)
	fill(t, s, 2)
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{
		"UPDATE records SET line = 'x' WHERE seq = 1",
		"UPDATE records SET seq = 9 WHERE seq = 1",
		"DELETE FROM records WHERE seq = 1",
		"DELETE FROM records",
		"INSERT INTO records (seq, line) VALUES (1, 'x')",
		"INSERT INTO records (seq, line) VALUES (3, NULL)",
	} {
		if err := sqlitex.ExecuteTransient(conn, text, nil); err == nil {
			t.Errorf("%s: done", text)
		}
	}
	wantSound(t, s)
}

// TestOpenChecksTheEnd damages a log in several places. Every start finds damage at its end; only a
// start after a latch, or a verifier, finds it further back.
func TestOpenChecksTheEnd(t *testing.T) {
	const records = 256 + 50
	unlock := "DROP TRIGGER records_no_update; DROP TRIGGER records_no_delete;"
	tests := []struct {
		name    string
		script  string
		latched bool
		want    string
	}{
		{"nothing", "", false, ""},
		{"nothing, latched", "", true, ""},
		{"last one changed", unlock + fmt.Sprintf("UPDATE records SET line = replace(line, '\"id\":\"', '\"id\":\"x') WHERE seq = %d", records), false, "does not match its hash"},
		{"one near the end gone", unlock + fmt.Sprintf("DELETE FROM records WHERE seq = %d", records-5), false, "missing"},
		{"one at the beginning changed", unlock + "UPDATE records SET line = replace(line, 'note-', 'nota-') WHERE seq = 2", false, ""},
		{"one at the beginning changed, latched", unlock + "UPDATE records SET line = replace(line, 'note-', 'nota-') WHERE seq = 2", true, "record 2: its content"},
		{"the beginning gone, latched", unlock + "DELETE FROM records WHERE seq < 3", true, "record 1"},
	}
	whole := t.TempDir()
	o, _ := signed(t, whole)
	s := open(t, o)
	release := hold(t, s)
	done := make(chan error)
	for i := range records - 2 {
		go func() {
			_, err := s.Commit(noted(fmt.Sprint("note-", i)))
			done <- err
		}()
	}
	eventually(t, "all wait", func() bool { return s.waitingChanges() == records-2 })
	release()
	for range records - 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			o := o
			o.Path = filepath.Join(dir, "ocipd.db")
			if tt.script != "" {
				change(t, o.Path, tt.script)
			}
			latch := o.Path + ".latched"
			if tt.latched {
				if err := os.WriteFile(latch, []byte("disk I/O error\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			core, logs := observer.New(zap.WarnLevel)
			o.Log = zap.New(core)
			s, err := Open(context.Background(), o)
			if got := logs.FilterMessageSnippet("verifying every record").Len() == 1; got != tt.latched {
				t.Errorf("verified from the first record: %v, want %v", got, tt.latched)
			}
			_, left := os.Stat(latch)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				if tt.latched && left != nil {
					t.Error("the latch of a damaged store is gone")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if left == nil {
				t.Error("the latch is still there")
			}
			fill(t, s, 1)
		})
	}
}

// An existing file without a log counts as none. Files beside it are not touched before their owner
// has agreed, and neither is the file.
func TestFileWithoutALog(t *testing.T) {
	header := func(t *testing.T, path string) {
		// As SQLite leaves a database if all its pages were in a log that is gone.
		conn, err := writing(path)
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, path string)
		log    string
		made   bool
	}{
		{"none", func(*testing.T, string) {}, "", true},
		{"of no bytes", func(t *testing.T, path string) { write(t, path, "") }, "", true},
		{"of no bytes, with a write-ahead log", func(t *testing.T, path string) { write(t, path, "") }, "what is left of the records, longer than a header of it", true},
		{"without a table", func(t *testing.T, path string) { write(t, path, ""); header(t, path) }, "", true},
		{"with a log", func(t *testing.T, path string) {
			o := options(filepath.Dir(path))
			s := open(t, o)
			fill(t, s, 1)
			shut(t, s)
		}, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t.TempDir())
			tc.before(t, o.Path)
			if tc.log != "" {
				write(t, o.Path+"-wal", tc.log)
			}
			was, refused := files(t, filepath.Dir(o.Path)), errors.New("refused")
			for range 2 {
				var made bool
				o.Claimed = func(m bool) error { made = m; return refused }
				if s, err := Open(t.Context(), o); !errors.Is(err, refused) {
					t.Fatal(s, err)
				}
				if made != tc.made {
					t.Errorf("made is %t", made)
				}
				if now := files(t, filepath.Dir(o.Path)); !maps.Equal(now, was) {
					t.Errorf("the directory holds %d files, want %d, or other content", len(now), len(was))
				}
			}
			if r, err := OpenReader(t.Context(), o.Path); err == nil && tc.made {
				t.Error("it is read", r.Close())
			} else if err == nil {
				shutReader(t, r)
			}
			if now := files(t, filepath.Dir(o.Path)); !maps.Equal(now, was) {
				t.Error("reading changes the directory")
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func shutReader(t *testing.T, r *Reader) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
