package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTakenUp opens a mirror again after a change of its live file. After any change, the files
// contain the log.
func TestTakenUp(t *testing.T) {
	const records = 50
	tests := []struct {
		name   string
		change func(t *testing.T, live []byte) []byte // nil removes the file
		aside  bool
	}{
		{"nothing", func(_ *testing.T, m []byte) []byte { return m }, false},
		{"deleted", func(*testing.T, []byte) []byte { return nil }, false},
		{"emptied", func(*testing.T, []byte) []byte { return []byte{} }, false},
		{"cut between lines", func(_ *testing.T, m []byte) []byte { return m[:nth(m, 3)] }, false},
		{"torn in a line", func(_ *testing.T, m []byte) []byte { return m[:nth(m, 3)+30] }, false},
		{"torn in the last line", func(_ *testing.T, m []byte) []byte { return m[:len(m)-1] }, false},
		{"torn in the first line", func(_ *testing.T, m []byte) []byte { return m[:30] }, false},
		{"zeros behind a crash", func(_ *testing.T, m []byte) []byte { return append(m[:nth(m, 3):nth(m, 3)], make([]byte, 5000)...) }, false},
		{"prose", func(*testing.T, []byte) []byte { return []byte("dear diary\n") }, true},
		// It has no whole line, and still is somebody's file.
		{"prose without a line's end", func(*testing.T, []byte) []byte { return []byte("dear diary") }, true},
		{"a whole line that is empty", func(_ *testing.T, m []byte) []byte { return append(m, '\n') }, true},
		{"a line changed", func(_ *testing.T, m []byte) []byte {
			last := bytes.LastIndexByte(m[:len(m)-1], '\n')
			return append(m[:last:last], bytes.Replace(m[last:], []byte("book-"), []byte("nook-"), 1)...)
		}, true},
		{"of another log, longer", func(*testing.T, []byte) []byte { return newBook("other", records+5).text(41, records+5) }, true},
		{"of another log, as long", func(*testing.T, []byte) []byte { return newBook("other", records).text(41, records) }, true},
		{"what a segment holds already", func(*testing.T, []byte) []byte { return newBook("book", records).all() }, true},
		{"in the wrong order", func(_ *testing.T, m []byte) []byte {
			return append(bytes.Clone(m[nth(m, 2):]), m[:nth(m, 2)]...)
		}, true},
		{"a first line that is no record", func(_ *testing.T, m []byte) []byte { return append([]byte("#\n"), m...) }, true},
	}
	for _, rotated := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprint(tt.name, ", rotated ", rotated), func(t *testing.T) {
				dir, b := t.TempDir(), newBook("book", records)
				o := options(dir, b)
				if !rotated {
					if tt.name == "what a segment holds already" {
						t.Skip("there are no segments")
					}
					o.RotateBytes = 0
				}
				m := openTest(t, o)
				rest(t, m)
				shut(t, m)
				wantWhole(t, o, 1)
				changed := tt.change(t, read(t, o.Path))
				if err := os.Remove(o.Path); err != nil {
					t.Fatal(err)
				}
				if changed != nil {
					write(t, o.Path, changed)
				}
				m = openTest(t, o)
				rest(t, m)
				b.add(3)
				rest(t, m)
				wantFaults(t, m)
				wantWhole(t, o, 1)
				aside, err := filepath.Glob(o.Path + ".foreign-*")
				if err != nil || (len(aside) == 1) != tt.aside {
					t.Fatalf("set aside: %v, %v", aside, err)
				}
				if tt.aside && !bytes.Equal(read(t, aside[0]), changed) {
					t.Error("what was set aside has changed")
				}
			})
		}
	}
}

// TestLastLine reads from the end of files of every shape.
func TestLastLine(t *testing.T) {
	const block = 64 << 10
	long := strings.Repeat("x", block+10)
	path := filepath.Join(t.TempDir(), "file")
	for _, tt := range []struct {
		text, line string
		size       int
	}{
		{"", "", 0},
		{"a", "", 0},
		{"\n", "", 1},
		{"a\n", "a", 2},
		{"a\nb", "a", 2},
		{"a\nb\n", "b", 4},
		{"a\n\n", "", 3},
		{long, "", 0},
		{long + "\n", long, block + 11},
		{"a\n" + long, "a", 2},
		{"a\n" + long + "\n", long, block + 13},
		{"a\n" + long[:block-1] + "\n", long[:block-1], block + 2},
		{"a\n" + long[:block], "a", 2},
		{"\n" + long[:block], "", 1},
	} {
		write(t, path, []byte(tt.text))
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		line, size, err := lastLine(f)
		if err != nil || string(line) != tt.line || int(size) != tt.size {
			t.Errorf("%.5q (%d bytes): %.5q, %d bytes of %d, %v", tt.text, len(tt.text), line, size, tt.size, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornAtEveryByte truncates the live file at every byte of its last line, and of its only one.
func TestTornAtEveryByte(t *testing.T) {
	for _, records := range []int{1, 25} {
		dir, b := t.TempDir(), newBook("book", records)
		o := options(dir, b)
		m := openTest(t, o)
		rest(t, m)
		shut(t, m)
		live := read(t, o.Path)
		start := bytes.LastIndexByte(live[:len(live)-1], '\n') + 1
		for end := start; end <= len(live); end++ {
			write(t, o.Path, live[:end])
			m := openTest(t, o)
			shut(t, m)
			if got := read(t, o.Path); !bytes.Equal(got, live) {
				t.Fatalf("%d records, cut at byte %d of the last line: %d bytes, want %d", records, end-start, len(got), len(live))
			}
		}
		if n := matching(t, dir, "foreign"); n != 0 {
			t.Errorf("%d files were set aside", n)
		}
		wantWhole(t, o, 1)
	}
}

// TestRotationUnderLoad checks that every line occurs once and in order, at the end and for
// concurrent readers, and that there is no false alarm.
func TestRotationUnderLoad(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 0)
	b.page = 7
	o := options(dir, b)
	o.RotateBytes = 16_000
	m := openTest(t, o)
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := m.Check(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for n := 0; ; n++ {
			got, err := walked(o.Path, 0)
			if errors.Is(err, ErrTorn) {
				err = nil
			}
			if !bytes.HasPrefix(b.all(), got) || err != nil {
				t.Errorf("walk %d: %d bytes that are not the log's: %v", n, len(got), err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 6 {
		writers.Go(func() {
			for range 200 {
				b.add(1)
			}
		})
	}
	writers.Wait()
	rest(t, m)
	close(done)
	readers.Wait()
	wantFaults(t, m)
	wantWhole(t, o, 1)
	s := m.Status()
	if s.Segments < 15 || s.PackedBytes == 0 || s.Mirrored != 1200 {
		t.Errorf("%+v", s)
	}
	for _, seg := range m.Segments() {
		if seg.Bytes > o.RotateBytes {
			t.Errorf("a segment of %d bytes", seg.Bytes)
		}
	}
}

// TestRotationOfLongLines checks that a line longer than the limit of a file gets a file of its
// own.
func TestRotationOfLongLines(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 3)
	b.addAt(time.Time{}, strings.Repeat("x", 9000))
	b.addAt(time.Time{}, strings.Repeat("y", 700_000))
	b.add(3)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	wantWhole(t, o, 1)
	var spans []span
	for _, s := range m.Segments() {
		spans = append(spans, s.span())
	}
	if want := []span{{1, 3}, {4, 4}, {5, 5}}; fmt.Sprint(spans) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", spans, want)
	}
}

// TestRotationByAge lets time pass.
func TestRotationByAge(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := newBook("book", 0)
		o := options(dir, b)
		o.RotateBytes, o.RotateAge, o.eager = 0, 24*time.Hour, false
		m := openTest(t, o)
		want := func(what string, segments int) {
			t.Helper()
			pass(look + time.Second)
			synctest.Wait()
			if got := len(m.Segments()); got != segments {
				t.Errorf("%s: %d segments, want %d", what, got, segments)
			}
		}
		pass(100 * time.Hour)
		want("an empty file", 0)
		b.addAt(time.Now(), "")
		pass(20 * time.Hour)
		b.addAt(time.Now(), "")
		pass(3 * time.Hour)
		want("younger than a day", 0)
		pass(time.Hour)
		want("a day old", 1)
		pass(100 * time.Hour)
		want("nothing new", 1)
		b.addAt(time.Now(), "")
		pass(23 * time.Hour)
		shut(t, m)
		// The age is that of the record, not of the file or the process.
		m = openTest(t, o)
		want("opened again", 1)
		pass(time.Hour)
		want("opened again, a day old", 2)
		// The file gets old enough while the mirror rests after the record before.
		b.addAt(time.Now(), "")
		pass(24*time.Hour - gatherTime/2)
		b.addAt(time.Now(), "")
		want("a day old while at rest", 3)
		wantWhole(t, o, 1)
	})
}

// TestCloseWritesWhatIsLeft checks that the last record is in the files.
func TestCloseWritesWhatIsLeft(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	b.fail(errors.New("no answer"))
	b.add(500)
	b.fail(nil)
	shut(t, m)
	wantWhole(t, o, 1)
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}

	m = openTest(t, o)
	rest(t, m)
	b.fail(errors.New("no answer"))
	b.add(1)
	if err := m.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "the next start catches up") {
		t.Errorf("%v", err)
	}
	b.fail(nil)
	shut(t, openTest(t, o))
	wantWhole(t, o, 1)
}

// TestSourceFails checks that the mirror continues when its source does.
func TestSourceFails(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := newBook("book", 5)
		o := options(dir, b)
		m := openTest(t, o)
		synctest.Wait()
		b.fail(errors.New("no answer"))
		b.add(5)
		pass(gatherTime)
		synctest.Wait()
		wantFaults(t, m, "cannot write the audit mirror: no answer")
		if err := m.Check(); err != nil {
			t.Errorf("what lags is not lost: %v", err)
		}
		b.fail(nil)
		pass(retryAfter + gatherTime)
		synctest.Wait()
		wantFaults(t, m)
		if m.Mirrored() != 10 {
			t.Errorf("at %d", m.Mirrored())
		}
	})
}

// TestPathsThatCannotBe checks that no other file counts as a mirror.
func TestPathsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]func(path string) error{
		"not a regular file": func(path string) error { return os.Mkdir(path, 0o700) },
		"symbolic link":      func(path string) error { return os.Symlink("nowhere", path) },
		"directory":          func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) },
	}
	for want, prepare := range tests {
		path := filepath.Join(dir, strings.ReplaceAll(want, " ", "-"), "audit.jsonl")
		if want != "directory" {
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := prepare(path); err != nil {
			t.Fatal(err)
		}
		o := options(dir, newBook("book", 3))
		o.Path = path
		if m, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", want, m, err)
		}
	}
}

// TestLinksAreRefused checks that another name of somebody's file is not touched, with any content:
// a line of the log, the beginning of one, or nothing.
func TestLinksAreRefused(t *testing.T) {
	b := newBook("book", 30)
	for name, plant := range map[string]func(old, path string) error{"a symbolic link": os.Symlink, "2 names": os.Link} {
		for _, text := range [][]byte{nil, []byte("{"), []byte("precious\n"), b.all()} {
			dir := t.TempDir()
			o := options(dir, b)
			target := filepath.Join(dir, "precious")
			write(t, target, text)
			if err := plant(target, o.Path); err != nil {
				t.Fatal(err)
			}
			m, err := Open(t.Context(), o)
			if err == nil {
				shut(t, m)
				t.Errorf("%s is taken", name)
			} else if !strings.Contains(err.Error(), o.Path) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if now, err := os.ReadFile(target); err != nil || !bytes.Equal(now, text) {
				t.Errorf("%s: the file holds %q, %v", name, now, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%s: left behind are %v, %v", name, entries, err)
			}
			// After the removal that the error suggests, the file is written anew.
			if err := os.Remove(o.Path); err != nil {
				t.Fatal(err)
			}
			m = openTest(t, o)
			rest(t, m)
			wantWhole(t, o, 1)
		}
	}
}

// TestUnfinishedFilesAreNotFollowed plants links at the temporary names of segments.
func TestUnfinishedFilesAreNotFollowed(t *testing.T) {
	for name, plant := range map[string]func(old, path string) error{"symlink": os.Symlink, "hard link": os.Link} {
		dir := t.TempDir()
		target, path := filepath.Join(dir, "precious"), filepath.Join(dir, "segment.tmp")
		write(t, target, []byte("precious"))
		if err := plant(target, path); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(dir, "from")
		write(t, from, []byte("lines"))
		if err := squeeze(t.Context(), from, path); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
			t.Errorf("%s: the file holds %q, %v", name, text, err)
		}
	}
}

// TestRetentionAhead checks that a mirror without records that retention has removed reports this
// and continues.
func TestRetentionAhead(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 25)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	shut(t, m)
	b.add(40)
	b.retire(50)
	m = openTest(t, o)
	rest(t, m)
	wantFaults(t, m, "records 26 to 50 were removed by retention")
	got, err := walked(o.Path, 51)
	if err != nil || !bytes.Equal(got, b.all()) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if _, err := walked(o.Path, 0); faultOf(err) == nil || faultOf(err).Seq != 26 {
		t.Errorf("the gap does not show: %v", err)
	}
}

// TestFirstMirrorOfAnOldLog begins after the retired records.
func TestFirstMirrorOfAnOldLog(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 100)
	b.retire(60)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	wantFaults(t, m)
	wantWhole(t, o, 61)
	shut(t, m)
	m = openTest(t, o)
	rest(t, m)
	wantFaults(t, m)
	wantWhole(t, o, 61)
}

// TestOpenEndsWithItsContext checks that an opened mirror does not depend on it.
func TestOpenEndsWithItsContext(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	ctx, cancel := context.WithCancel(t.Context())
	m, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	b.add(5)
	rest(t, m)
	shut(t, m)
	wantWhole(t, o, 1)
}
