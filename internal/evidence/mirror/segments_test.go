package mirror

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// TestSegmentsTakenUp opens a mirror again after a change of its segments.
func TestSegmentsTakenUp(t *testing.T) {
	const records = 60
	type state struct {
		dir  string
		m    *Mirror
		segs []Segment
		b    *book
	}
	path := func(s state, i int) string { return s.m.layout.path(s.segs[i].File) }
	plain := func(s state, i int) string { return s.m.layout.path(s.m.layout.plain(s.segs[i].span())) }
	tests := []struct {
		name   string
		change func(s state) error
		faults []string
		aside  int
		// gap is a segment that is still missing or wrong at the end, -1 for none.
		gap int
	}{
		{"nothing", func(state) error { return nil }, nil, 0, -1},
		{"the manifest removed", func(s state) error { return os.Remove(s.m.layout.manifest()) }, nil, 0, -1},
		{"the manifest torn", func(s state) error { return os.Truncate(s.m.layout.manifest(), 100) }, []string{"made again from the segments"}, 1, -1},
		{"the manifest is prose", func(s state) error { return os.WriteFile(s.m.layout.manifest(), []byte("dear diary\n"), 0o600) }, []string{"made again from the segments"}, 1, -1},
		{"a listed segment removed", func(s state) error { return os.Remove(path(s, 1)) }, []string{"is listed and is not there"}, 0, 1},
		{"a listed segment cut", func(s state) error { return os.Truncate(path(s, 1), 100) }, []string{"has 100 bytes, and the manifest says"}, 0, 1},
		{"everything but the live file removed", func(s state) error {
			err := os.Remove(s.m.layout.manifest())
			for i := range s.segs {
				if err == nil {
					err = os.Remove(path(s, i))
				}
			}
			return err
		}, []string{"was missing, and is written from the database"}, 0, -1},
		{"everything removed", func(s state) error { return os.RemoveAll(s.dir) }, nil, 0, -1},
		{"a segment and the manifest removed", func(s state) error {
			if err := os.Remove(s.m.layout.manifest()); err != nil {
				return err
			}
			return os.Remove(path(s, 1))
		}, []string{"was missing, and is written from the database"}, 0, -1},
		{"the last segment and the manifest removed", func(s state) error {
			if err := os.Remove(s.m.layout.manifest()); err != nil {
				return err
			}
			return os.Remove(path(s, len(s.segs)-1))
		}, []string{"was missing, and is written from the database"}, 0, -1},
		{"an unlisted segment that is not of this log", func(s state) error {
			if err := os.Remove(s.m.layout.manifest()); err != nil {
				return err
			}
			return os.WriteFile(path(s, 1), []byte("prose"), 0o600)
		}, []string{"is not what it should be", "was missing, and is written from the database"}, 1, -1},
		{"a listed segment with its uncompressed file", func(s state) error {
			return os.WriteFile(plain(s, 1), s.b.text(s.segs[1].First, s.segs[1].Last), 0o600)
		}, nil, 0, -1},
		{"a listed segment changed, with its uncompressed file", func(s state) error {
			if err := os.WriteFile(plain(s, 1), s.b.text(s.segs[1].First, s.segs[1].Last), 0o600); err != nil {
				return err
			}
			return os.WriteFile(path(s, 1), []byte("prose"), 0o600)
		}, []string{"is not what it should be"}, 1, -1},
		{"an uncompressed segment changed", func(s state) error {
			text := s.b.text(s.segs[1].First, s.segs[1].Last)
			text[100] ^= 1
			return cmpErr(os.Remove(s.m.layout.manifest()), os.Remove(path(s, 1)), os.WriteFile(plain(s, 1), text, 0o600))
		}, []string{"is not what was written", "was missing, and is written from the database"}, 1, -1},
		{"an uncompressed segment with one line less", func(s state) error {
			text := s.b.text(s.segs[1].First, s.segs[1].Last-1)
			return cmpErr(os.Remove(s.m.layout.manifest()), os.Remove(path(s, 1)), os.WriteFile(plain(s, 1), text, 0o600))
		}, []string{"it holds the records", "was missing, and is written from the database"}, 1, -1},
		{"an uncompressed segment that is empty", func(s state) error {
			return cmpErr(os.Remove(s.m.layout.manifest()), os.Remove(path(s, 1)), os.WriteFile(plain(s, 1), nil, 0o600))
		}, []string{"it is empty", "was missing, and is written from the database"}, 1, -1},
		{"a segment beyond the log's end", func(s state) error {
			return os.WriteFile(s.m.layout.path(s.m.layout.plain(span{100, 120})), []byte("prose"), 0o600)
		}, nil, 1, -1},
		{"a segment of records that another holds", func(s state) error {
			return os.WriteFile(s.m.layout.path(s.m.layout.packed(span{2, 5})), []byte("prose"), 0o600)
		}, nil, 1, -1},
		{"what a crash left unfinished", func(s state) error {
			return cmpErr(os.WriteFile(path(s, 1)+".tmp", []byte("x"), 0o600), os.WriteFile(plain(s, 1)+".tmp", []byte("x"), 0o600), os.WriteFile(s.m.layout.manifest()+".tmp", []byte("x"), 0o600))
		}, nil, 0, -1},
		{"somebody's own files", func(s state) error {
			return cmpErr(os.WriteFile(filepath.Join(s.dir, "audit-notes.jsonl"), []byte("x"), 0o600), os.WriteFile(filepath.Join(s.dir, "audit-1-2.jsonl"), []byte("x"), 0o600))
		}, nil, 0, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, b := filepath.Join(t.TempDir(), "state"), newBook("book", records)
			o := options(dir, b)
			m := openTest(t, o)
			rest(t, m)
			segs := m.Segments()
			if len(segs) < 4 {
				t.Fatalf("%d segments", len(segs))
			}
			shut(t, m)
			if err := tt.change(state{dir, m, segs, b}); err != nil {
				t.Fatal(err)
			}
			m = openTest(t, o)
			b.add(10)
			rest(t, m)
			wantFaults(t, m, tt.faults...)
			if n := matching(t, dir, "foreign"); n != tt.aside {
				t.Errorf("%d set aside: %q", n, names(t, dir))
			}
			if n := matching(t, dir, ".tmp"); n != 0 {
				t.Errorf("left behind: %q", names(t, dir))
			}
			if tt.gap < 0 {
				wantWhole(t, o, 1)
				return
			}
			got, err := walked(o.Path, 0)
			want := b.text(1, segs[tt.gap].First-1)
			fault := faultOf(err)
			if !bytes.Equal(got, want) || fault == nil || fault.Seq != segs[tt.gap].First || !strings.Contains(err.Error(), segs[tt.gap].File) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
			}
		})
	}
}

// TestForeignMirror opens the files of another log, and of an older copy of this one that has
// continued with other records.
func TestForeignMirror(t *testing.T) {
	older := newBook("book", 25)
	older.addAt(time.Time{}, "other")
	tests := []struct {
		name   string
		now    *book
		faults string
	}{
		{"another log", newBook("other", 70), "is not of this database: its record"},
		{"a shorter log", newBook("other", 15), "and the database at 15"},
		{"an older copy", older, "and the database at 26"},
		{"an empty database", newBook("new", 0), "and the database at 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir, newBook("book", 60))
			m := openTest(t, o)
			rest(t, m)
			before := len(m.Segments()) + 1
			shut(t, m)
			o.Source = tt.now
			m = openTest(t, o)
			rest(t, m)
			tt.now.add(30)
			rest(t, m)
			wantFaults(t, m, tt.faults)
			wantWhole(t, o, 1)
			kept := before
			if tt.name == "an older copy" {
				// One segment still belongs to this log.
				kept--
			}
			if n := matching(t, dir, "foreign"); n != kept {
				t.Errorf("%d set aside, want %d: %q", n, kept, names(t, dir))
			}
		})
	}
}

// TestChangedBeforeItWasPacked changes the live file without changing its length, which is found
// after the rotation.
func TestChangedBeforeItWasPacked(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 5)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 70); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b.add(40)
	rest(t, m)
	wantFaults(t, m, "a segment is not what was written", "was missing, and is written from the database")
	wantWhole(t, o, 1)
}

// TestDamagedSource checks that a segment which cannot be correct is not made again and again.
func TestDamagedSource(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 40)
	b.lines[4] = bytes.Replace(b.lines[4], []byte("book-5"), []byte("book-6"), 1)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	wantFaults(t, m, "records of the database do not hold together")
	if n := matching(t, dir, "foreign"); n != 1 {
		t.Errorf("%d set aside", n)
	}
	got, err := walked(o.Path, 0)
	if err != nil || !bytes.Equal(got, b.all()) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// TestRetire removes segments.
func TestRetire(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 80)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	segs := m.Segments()
	if gone, err := m.Retire(t.Context(), segs[0].Last-1); err != nil || len(gone) != 0 {
		t.Errorf("part of a segment: %v, %v", gone, err)
	}
	old, err := m.Expired(t.Context(), segs[2].LastTime)
	if err != nil || len(old) != 2 || !old[1].same(segs[1]) {
		t.Fatalf("older than the third's end: %d segments, %v", len(old), err)
	}
	gone, err := m.Retire(t.Context(), old[1].Last+1)
	if err != nil || len(gone) != 2 || !gone[1].same(segs[1]) {
		t.Fatalf("%d retired: %v", len(gone), err)
	}
	wantWhole(t, o, segs[2].First)
	if got := m.Segments(); len(got) != len(segs)-2 || !got[0].same(segs[2]) {
		t.Errorf("left: %v", got)
	}
	b.retire(old[1].Last)
	b.add(30)
	rest(t, m)
	shut(t, m)

	// A removed segment is neither missed nor made again.
	m = openTest(t, o)
	rest(t, m)
	wantFaults(t, m)
	if got := m.Segments(); got[0].First != segs[2].First {
		t.Errorf("begins at %d", got[0].First)
	}
	shut(t, m)
	wantWhole(t, o, segs[2].First)

	// Now all of them.
	m = openTest(t, o)
	last := m.live.base
	if gone, err := m.Retire(t.Context(), last+1000); err != nil || len(gone) == 0 {
		t.Errorf("%d retired: %v", len(gone), err)
	}
	b.retire(last)
	wantWhole(t, o, last+1)
	shut(t, m)
	m = openTest(t, o)
	b.add(30)
	rest(t, m)
	wantFaults(t, m)
	wantWhole(t, o, last+1)
}

// A manifest that marks segments as removed whose records the database has is wrong. The daemon says so,
// and keeps their files.
func TestMarkOfARemovalIsHeldToTheDatabase(t *testing.T) {
	for _, removed := range []bool{false, true} {
		dir, b := t.TempDir(), newBook("book", 80)
		o := options(dir, b)
		m := openTest(t, o)
		rest(t, m)
		segs := m.Segments()
		manifest, file := m.layout.manifest(), m.layout.path(segs[0].File)
		shut(t, m)
		text, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		for i := range 2 {
			lines[i] = strings.Replace(lines[i], "}\n", `,"retired":true}`+"\n", 1)
		}
		if err := os.WriteFile(manifest, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if removed {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		m = openTest(t, o)
		rest(t, m)
		wantFaults(t, m, "the segment "+segs[0].File+" was removed on purpose", "the segment "+segs[1].File+" was removed on purpose")
		if got := m.Segments(); got[0].First != 1 {
			t.Errorf("the segments begin at %d", got[0].First)
		}
		shut(t, m)
		if !removed {
			wantWhole(t, o, 1)
		}
	}
}

// TestRetireOnlyWhatIsRight keeps a changed segment, and those after it.
func TestRetireOnlyWhatIsRight(t *testing.T) {
	changes := map[string]func(m *Mirror, s Segment, b *book) error{
		"removed": func(m *Mirror, s Segment, _ *book) error { return os.Remove(m.layout.path(s.File)) },
		"a byte changed": func(m *Mirror, s Segment, _ *book) error {
			text, err := os.ReadFile(m.layout.path(s.File))
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(m.layout.path(s.File), text, 0o600)
		},
		"of another log": func(m *Mirror, s Segment, _ *book) error {
			return packed(m, s, newBook("other", 80).text(s.First, s.Last))
		},
		"compressed otherwise": func(m *Mirror, s Segment, b *book) error {
			text := b.text(s.First, s.Last)
			half := nth(text, 3)
			if err := packed(m, s, text[:half]); err != nil {
				return err
			}
			first, err := os.ReadFile(m.layout.path(s.File))
			if err != nil {
				return err
			}
			if err := packed(m, s, text[half:]); err != nil {
				return err
			}
			second, err := os.ReadFile(m.layout.path(s.File))
			if err != nil {
				return err
			}
			return os.WriteFile(m.layout.path(s.File), append(first, second...), 0o600)
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir, b := t.TempDir(), newBook("book", 80)
			o := options(dir, b)
			m := openTest(t, o)
			rest(t, m)
			segs := m.Segments()
			if err := change(m, segs[1], b); err != nil {
				t.Fatal(err)
			}
			gone, err := m.Retire(t.Context(), segs[3].Last)
			if err == nil || len(gone) != 1 || !strings.Contains(err.Error(), segs[1].File) {
				t.Errorf("%d retired: %v", len(gone), err)
			}
			if got := m.Segments(); len(got) != len(segs)-1 {
				t.Errorf("%d left of %d", len(got), len(segs))
			}
			wantFaults(t, m, segs[1].File)
		})
	}
}

// packed writes a text as the compressed file of a segment.
func packed(m *Mirror, s Segment, text []byte) error {
	plain := filepath.Join(m.layout.dir, "text")
	if err := os.WriteFile(plain, text, 0o600); err != nil {
		return err
	}
	if err := squeeze(context.Background(), plain, m.layout.path(s.File)); err != nil {
		return err
	}
	return os.Remove(plain)
}

// TestNames checks that each span has one name, and that no other name counts.
func TestNames(t *testing.T) {
	l := newLayout("/d/audit.jsonl")
	for _, r := range []span{{1, 1}, {1, 900}, {999_999_999_999, 1_000_000_000_000}} {
		for _, packed := range []bool{false, true} {
			name := l.plain(r)
			if packed {
				name = l.packed(r)
			}
			if got, p, ok := l.parse(name); !ok || got != r || p != packed {
				t.Errorf("%s: %v, %v, %v", name, got, p, ok)
			}
		}
	}
	if got := l.packed(span{1, 900}); got != "audit-000000000001-000000000900.jsonl.zst" {
		t.Error(got)
	}
	if got := newLayout("/d/log").plain(span{1, 2}); got != "log-000000000001-000000000002" {
		t.Error(got)
	}
	for _, name := range []string{
		"", "audit.jsonl", "audit-manifest.jsonl", "audit-000000000001-000000000900.jsonl.gz", "audit-000000000001-000000000900.jsonl.zst.tmp",
		"audit-1-900.jsonl", "audit-000000000900-000000000001.jsonl", "audit-000000000000-000000000001.jsonl", "audit-0000000000001-000000000900.jsonl",
		"audit-+00000000001-000000000900.jsonl", "audit-00000000000a-000000000900.jsonl", "../audit-000000000001-000000000900.jsonl",
		"audit-000000000001-000000000900.jsonl.foreign-1", "audit-99999999999999999999-99999999999999999999.jsonl",
	} {
		if r, _, ok := l.parse(name); ok {
			t.Errorf("%q is taken for %v", name, r)
		}
	}
}

// TestManifest checks that a manifest is read back as it was written, and that nothing else counts
// as one.
func TestManifest(t *testing.T) {
	l := newLayout("/d/audit.jsonl")
	segment := func(first, last uint64, prev, hash byte) Segment {
		return Segment{
			First: first, Last: last, Prev: audit.Hash{prev}, Hash: audit.Hash{hash}, Records: last - first + 1, Bytes: 900, File: l.packed(span{first, last}),
			PackedBytes: 90, Sum: audit.Hash{9}, FirstTime: bookStart, LastTime: bookStart.Add(time.Hour),
		}
	}
	good := []Segment{segment(1, 10, 0, 1), segment(11, 20, 1, 2), segment(31, 40, 7, 8)}
	good[0].Retired = true
	text, err := encodeManifest(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.parseManifest(text); err != nil || !slices.EqualFunc(got, good, func(a, b Segment) bool { return a.same(b) && a.Retired == b.Retired && a.File == b.File }) {
		t.Errorf("%+v, %v", got, err)
	}
	line := string(text[:nth(text, 1)])
	bad := map[string]string{
		"no end":          line[:len(line)-1],
		"unknown object":  strings.Replace(line, `"first"`, `"frist"`, 1),
		"is not the file": strings.Replace(line, `"last":10`, `"last":11`, 1),
		"records":         strings.Replace(line, `"records":10`, `"records":9`, 1),
		"ends before":     strings.Replace(line, `"lastTime":"2026`, `"lastTime":"2025`, 1),
		"stand after":     line + line,
		"not a SHA-256":   strings.Replace(line, `"hash":"01`, `"hash":"0`, 1),
	}
	for what, change := range map[string]func(s []Segment){
		"as the hash before it":        func(s []Segment) { s[1].Prev[3]++ },
		"retired before an older":      func(s []Segment) { s[0].Retired, s[1].Retired = false, true },
		"does not stand after 20":      func(s []Segment) { s[2] = segment(20, 30, 2, 3) },
		"0 compressed":                 func(s []Segment) { s[1].PackedBytes = 0 },
		`"../x" is not the file of`:    func(s []Segment) { s[1].File = "../x" },
		"audit-000000000031-000000000": func(s []Segment) { s[1].File = s[2].File },
	} {
		changed := slices.Clone(good)
		change(changed)
		text, err := encodeManifest(changed)
		if err != nil {
			t.Fatal(err)
		}
		bad[what] = string(text)
	}
	for want, text := range bad {
		if _, err := l.parseManifest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	l := newLayout("/d/audit.jsonl")
	b := newBook("book", 30)
	dir := f.TempDir()
	m := openTest(f, options(dir, b))
	rest(f, m)
	f.Add(read(f, m.layout.manifest()))
	f.Add([]byte("{}\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := l.parseManifest(text)
		if err != nil {
			return
		}
		// An accepted manifest is written so that it is accepted again.
		again, err := encodeManifest(list)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := l.parseManifest(again)
		if err != nil || !slices.EqualFunc(list, twice, func(a, b Segment) bool { return a.same(b) && a.Retired == b.Retired }) {
			t.Fatalf("%q became %q: %v", text, again, err)
		}
		next := uint64(1)
		for _, s := range list {
			if s.First < next || s.Last < s.First || strings.ContainsAny(s.File, "/\x00") {
				t.Fatalf("%+v", s)
			}
			next = s.Last + 1
		}
	})
}

func FuzzName(f *testing.F) {
	l := newLayout("/d/audit.jsonl")
	f.Add(l.plain(span{1, 900}))
	f.Add(l.packed(span{1, 900}))
	f.Fuzz(func(t *testing.T, name string) {
		r, packed, ok := l.parse(name)
		if !ok {
			return
		}
		want := l.plain(r)
		if packed {
			want = l.packed(r)
		}
		if name != want || r.first == 0 || r.last < r.first {
			t.Fatalf("%q is %v, whose name is %q", name, r, want)
		}
	})
}

func FuzzSeq(f *testing.F) {
	f.Add([]byte(`{"seq":12,"time"`))
	f.Add([]byte(`{"seq":18446744073709551615,`))
	f.Fuzz(func(t *testing.T, line []byte) {
		seq, ok := seqOf(line)
		if ok && (seq == 0 || seq > 1<<63 && len(fmt.Sprint(seq)) > 19) {
			t.Fatalf("%q is record %d", line, seq)
		}
	})
}
