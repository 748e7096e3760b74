package mirror

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAlive changes a live file in ways that nobody should. Each change is noticed, reported once
// and repaired, and no earlier content is lost.
func TestAlive(t *testing.T) {
	kept := []byte("somebody's\n")
	tests := []struct {
		name   string
		change func(path string) error
		want   string // its report
		aside  string // the kept file; a star for any content
	}{
		{"removed", os.Remove, "was removed", ""},
		{"renamed", func(path string) error { return os.Rename(path, path+".1") }, "was removed", ""},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", kept, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, "was replaced", string(kept)},
		{"removed and made again", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(path, kept, 0o600)
		}, "was replaced", string(kept)},
		{"replaced by a copy of itself", func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(path, text, 0o600)
		}, "was replaced", "*"},
		{"replaced by a link", func(path string) error {
			if err := os.Rename(path, path+".1"); err != nil {
				return err
			}
			return os.Symlink(path+".1", path)
		}, "was replaced", "*"},
		{"replaced by a directory", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}, "was replaced", "*"},
		{"emptied", func(path string) error { return os.Truncate(path, 0) }, "was truncated", ""},
		{"cut at a line's end", func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, int64(nth(text, 2)))
		}, "was truncated", ""},
		{"cut in a line", func(path string) error { return os.Truncate(path, 50) }, "was truncated", ""},
		{"made read-only", func(path string) error { return os.Chmod(path, 0o440) }, "was made read-only", ""},
		{"its directory removed", func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, "was removed", ""},
		{"its directory renamed", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".1") }, "was removed", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, b := filepath.Join(t.TempDir(), "state"), newBook("book", 50)
			o := options(dir, b)
			var mu sync.Mutex
			var lost []string
			o.Lost = func(problem string) {
				mu.Lock()
				defer mu.Unlock()
				lost = append(lost, problem)
				// A record about it is mirrored like any other.
				b.add(1)
			}
			m := openTest(t, o)
			rest(t, m)
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(o.Path); err != nil {
				t.Fatal(err)
			}
			err := m.Check()
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), o.Path) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			eventually(t, "it is mended", func() bool { return m.Check() == nil })
			b.add(20)
			rest(t, m)
			if err := m.Check(); err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(tt.name, "its directory") {
				wantFaults(t, m, "manifest", "is listed and is not there")
				text, err := walked(o.Path, m.live.base+1)
				if want := b.text(m.live.base+1, b.Head().Seq); err != nil || !bytes.Equal(text, want) {
					t.Errorf("%d bytes, want %d: %v", len(text), len(want), err)
				}
			} else {
				wantFaults(t, m)
				wantWhole(t, o, 1)
			}
			mu.Lock()
			if len(lost) != 1 || !strings.Contains(lost[0], tt.want) {
				t.Errorf("%q", lost)
			}
			mu.Unlock()
			aside, err := filepath.Glob(o.Path + ".foreign-*")
			if err != nil || len(aside) != min(1, len(tt.aside)) {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			if len(aside) == 1 && tt.aside != "*" && string(read(t, aside[0])) != tt.aside {
				t.Errorf("set aside: %q", read(t, aside[0]))
			}
		})
	}
}

// TestNoticedByWriting checks that the mirror itself checks the file before it writes, and keeps a
// file that somebody else wrote to.
func TestNoticedByWriting(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	lost := make(chan string, 1)
	o.Lost = func(problem string) { lost <- problem }
	m := openTest(t, o)
	rest(t, m)
	f, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b.add(1)
	if got := <-lost; !strings.Contains(got, "written to by somebody else, 3 bytes") {
		t.Error(got)
	}
	rest(t, m)
	wantWhole(t, o, 1)
	if matching(t, dir, "foreign") != 1 {
		t.Errorf("%q", names(t, dir))
	}

	if err := os.Remove(o.Path); err != nil {
		t.Fatal(err)
	}
	b.add(1)
	if got := <-lost; !strings.Contains(got, "was removed") {
		t.Error(got)
	}
	rest(t, m)
	wantWhole(t, o, 1)
}

// TestCannotBeRestored checks that Check fails as long as there is no file to write to, with one
// report of the problem and one of its end.
func TestCannotBeRestored(t *testing.T) {
	dir, b := filepath.Join(t.TempDir(), "state"), newBook("book", 5)
	o := options(dir, b)
	lost := make(chan string, 10)
	o.Lost = func(problem string) { lost <- problem }
	m := openTest(t, o)
	rest(t, m)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, dir, []byte("a file in the way"))
	if err := m.Check(); err == nil {
		t.Fatal("nothing noticed")
	}
	if got := <-lost; !strings.Contains(got, "cannot be restored") {
		t.Error(got)
	}
	for range 20 {
		if err := m.Check(); err == nil {
			t.Error("it cannot be alive")
		}
	}
	eventually(t, "it is said", func() bool {
		return slices.ContainsFunc(m.Status().Problems, func(p string) bool { return strings.Contains(p, "cannot be restored") })
	})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is mended", func() bool { return m.Check() == nil })
	if got := <-lost; !strings.Contains(got, "made anew") {
		t.Error(got)
	}
	rest(t, m)
	wantWhole(t, o, 1)
	if len(lost) != 0 {
		t.Errorf("said too often: %q", <-lost)
	}
}

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h, as set by chattr +i.
const immutableFlag = 0x10

// TestRefusedWrites makes the file immutable, which only a write shows.
func TestRefusedWrites(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	immutable := func(on bool) error {
		f, err := os.Open(o.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		if flags &^= immutableFlag; on {
			flags |= immutableFlag
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err := immutable(true); err != nil {
		t.Skipf("cannot make a file immutable here: %v", err)
	}
	defer func() {
		if err := immutable(false); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(o.Path, nil, 0o600); err == nil {
		t.Skip("this file system does not keep immutable files from being written")
	}
	b.add(1)
	eventually(t, "it is noticed", func() bool { return m.Check() != nil })
	if err := immutable(false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is mended", func() bool { return m.Check() == nil })
	rest(t, m)
	wantWhole(t, o, 1)
}

// TestKeepsPermissions checks that a new live file has the permissions of the one before it.
func TestKeepsPermissions(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	mode := func() os.FileMode {
		info, err := os.Stat(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if mode() != 0o600 {
		t.Errorf("made with %o", mode())
	}
	if err := os.Chmod(o.Path, 0o640); err != nil {
		t.Fatal(err)
	}
	b.add(40)
	rest(t, m)
	if mode() != 0o640 || len(m.Segments()) == 0 {
		t.Errorf("rotated to %o", mode())
	}
}

func BenchmarkCheck(b *testing.B) {
	o := options(b.TempDir(), newBook("book", 5))
	m := openTest(b, o)
	rest(b, m)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow is the cost that the mirror adds to a record.
func BenchmarkFollow(b *testing.B) {
	log := newBook("book", 5)
	o := options(b.TempDir(), log)
	o.RotateBytes = 0
	m := openTest(b, o)
	began := time.Now()
	for b.Loop() {
		log.addAt(time.Time{}, "")
	}
	rest(b, m)
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(b.N), "µs/record")
}
