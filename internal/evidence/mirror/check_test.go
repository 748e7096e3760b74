package mirror

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// checked walks a mirror like a verifier, and checks its files.
func checked(t *testing.T, path string) error {
	t.Helper()
	f, err := OpenFiles(path)
	if err != nil {
		return err
	}
	var head audit.Head
	if err := Walk(path, 0, func(line []byte) error {
		before := head
		if head, err = head.Check(line); err != nil {
			return err
		}
		f.Record(len(line), before, head)
		return nil
	}); err != nil {
		return err
	}
	return f.Check(t.Context(), head.Seq)
}

// TestFiles changes a mirror's files so that every line that a walk reads stays correct.
func TestFiles(t *testing.T) {
	const records = 50
	manifest := func(m *Mirror, old, changed string) func() {
		return func() {
			text := read(t, m.layout.manifest())
			if !bytes.Contains(text, []byte(old)) {
				t.Fatalf("the manifest has no %s", old)
			}
			write(t, m.layout.manifest(), bytes.Replace(text, []byte(old), []byte(changed), 1))
		}
	}
	tests := []struct {
		name   string
		change func(m *Mirror, segs []Segment, b *book) func()
		seq    uint64
		want   string
	}{
		{"nothing", func(*Mirror, []Segment, *book) func() { return func() {} }, 0, ""},
		{"no manifest", func(m *Mirror, _ []Segment, _ *book) func() {
			return func() {
				if err := os.Remove(m.layout.manifest()); err != nil {
					t.Fatal(err)
				}
			}
		}, 0, ""},
		{"a manifest of nobody's", func(m *Mirror, _ []Segment, _ *book) func() {
			return func() { write(t, m.layout.manifest(), []byte("{}\n")) }
		}, 0, "cannot use "},
		{"another length", func(m *Mirror, segs []Segment, _ *book) func() {
			return manifest(m, fmt.Sprintf(`"bytes":%d,`, segs[1].Bytes), fmt.Sprintf(`"bytes":%d,`, segs[1].Bytes+1))
		}, 0, "one of the two was changed"},
		{"another time", func(m *Mirror, _ []Segment, _ *book) func() {
			return manifest(m, `"firstTime":"2026`, `"firstTime":"2025`)
		}, 0, "one of the two was changed"},
		{"another sum", func(m *Mirror, segs []Segment, _ *book) func() {
			return manifest(m, segs[0].Sum.String(), strings.Repeat("0", 64))
		}, 0, "one of the two was changed"},
		{"the same records compressed in another way", func(m *Mirror, segs []Segment, _ *book) func() {
			// An empty frame, which a decoder skips (RFC 8878, section 3.1.2).
			return func() {
				file := m.layout.path(segs[0].File)
				write(t, file, append(read(t, file), 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0))
			}
		}, 0, "one of the two was changed"},
		{"the last segments and the live file gone", func(m *Mirror, segs []Segment, _ *book) func() {
			return func() {
				for _, file := range []string{m.layout.path(segs[len(segs)-1].File), m.layout.live} {
					if err := os.Remove(file); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, 1, "is listed and is not there"},
		{"a segment just compressed", func(m *Mirror, segs []Segment, b *book) func() {
			return func() { write(t, m.layout.path(m.layout.plain(segs[0].span())), b.text(segs[0].First, segs[0].Last)) }
		}, 0, ""},
		{"a compressed segment that an uncompressed one hides, listed as it is", func(m *Mirror, segs []Segment, b *book) func() {
			return func() {
				write(t, m.layout.path(m.layout.plain(segs[0].span())), b.text(segs[0].First, segs[0].Last))
				other := newBook("other", records).text(segs[0].First, segs[0].Last)
				plain := t.TempDir() + "/other"
				write(t, plain, other)
				if err := squeeze(t.Context(), plain, m.layout.path(segs[0].File)); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(m.layout.manifest()); err != nil {
					t.Fatal(err)
				}
			}
		}, 0, "hold the same records and differ"},
		{"a file of records that another has", func(m *Mirror, _ []Segment, b *book) func() {
			return func() { write(t, m.layout.path(m.layout.plain(span{1, 2})), b.text(1, 2)) }
		}, 1, "it stands in two files"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook("book", records)
			o := options(t.TempDir(), b)
			m := openTest(t, o)
			rest(t, m)
			segs := m.Segments()
			shut(t, m)
			tt.change(m, segs, b)()
			err := checked(t, o.Path)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			f := faultOf(err)
			if f == nil || !strings.Contains(f.Problem, tt.want) || (f.Seq > 0) != (tt.seq > 0) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
