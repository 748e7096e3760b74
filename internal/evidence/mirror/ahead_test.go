package mirror

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// held returns the files of a directory and their contents.
func held(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, name := range names(t, dir) {
		files[name] = string(read(t, filepath.Join(dir, name)))
	}
	return files
}

// TestAhead opens a mirror beside a database that has lost its last records. Only the mirror has
// them: it reports their number, and changes nothing. It continues with the right database, or with
// the other one after the files were moved aside.
func TestAhead(t *testing.T) {
	const records = 60
	nothing := func(*testing.T, Options) {}
	for _, tc := range []struct {
		name    string
		rotated bool
		// at is the last record of the database.
		at int
		// spoil changes the files, and leaves that many records.
		spoil func(*testing.T, Options)
		last  int
	}{
		{"one in the live file", false, records - 1, nothing, records},
		{"many in the live file", false, 1, nothing, records},
		{"the live file is torn", false, 20, func(t *testing.T, o Options) {
			text := read(t, o.Path)
			write(t, o.Path, text[:len(text)-5])
		}, records - 1},
		{"a line of the live file is changed", false, 20, func(t *testing.T, o Options) {
			write(t, o.Path, []byte(strings.Replace(string(read(t, o.Path)), "book-31", "nook-31", 1)))
		}, 30},
		{"the live file ends in prose", false, 20, func(t *testing.T, o Options) {
			write(t, o.Path, append(read(t, o.Path), "dear diary\n"...))
		}, records},
		{"in segments", true, 15, nothing, records},
		{"right behind a segment", true, 0, nothing, records},
		{"without the live file", true, 15, func(t *testing.T, o Options) {
			if err := os.Remove(o.Path); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"without the manifest", true, 15, func(t *testing.T, o Options) {
			if err := os.Remove(newLayout(o.Path).manifest()); err != nil {
				t.Fatal(err)
			}
		}, records},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir, newBook("book", records))
			o.Database = "the.db"
			if !tc.rotated {
				o.RotateBytes = 0
			}
			m := openTest(t, o)
			rest(t, m)
			segs := m.Segments()
			shut(t, m)
			if tc.at == 0 {
				tc.at = int(segs[1].Last)
			}
			if tc.last == 0 {
				tc.last = int(segs[len(segs)-1].Last)
			}
			tc.spoil(t, o)
			was := held(t, dir)
			right := o.Source
			o.Source = newBook("book", tc.at)
			for range 2 {
				m, err := Open(t.Context(), o)
				ahead, ok := errors.AsType[*AheadError](err)
				if !ok {
					t.Fatal(m, err)
				}
				if ahead.Head != uint64(tc.at) || ahead.Last != uint64(tc.last) {
					t.Errorf("it goes from %d to %d, want %d to %d", ahead.Head, ahead.Last, tc.at, tc.last)
				}
				for _, part := range []string{"the.db", o.Path, fmt.Sprint("lacks ", tc.last-tc.at, ";"), "put the right database back", "aside"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("it says %q, without %q", err, part)
					}
				}
				if now := held(t, dir); !maps.Equal(now, was) {
					t.Errorf("the directory has changed: %q", names(t, dir))
				}
			}
			if tc.last == records && !strings.Contains(tc.name, "prose") {
				o.Source = right
				m = openTest(t, o)
				rest(t, m)
				shut(t, m)
				wantWhole(t, o, 1)
			}
			for name := range held(t, dir) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			o.Source = newBook("book", tc.at)
			m = openTest(t, o)
			rest(t, m)
			shut(t, m)
			wantWhole(t, o, 1)
		})
	}
}
