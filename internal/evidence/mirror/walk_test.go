package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// TestWalkFrom begins at every record.
func TestWalkFrom(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 50)
	o := options(dir, b)
	m := openTest(t, o)
	rest(t, m)
	for from := uint64(0); from <= 51; from++ {
		got, err := walked(o.Path, from)
		if want := b.text(max(from, 1), 50); err != nil || !bytes.Equal(got, want) {
			t.Errorf("from %d: %d bytes, want %d: %v", from, len(got), len(want), err)
		}
	}
	got, err := walked(dir, 0)
	if err != nil || !bytes.Equal(got, b.all()) {
		t.Errorf("by the directory: %d bytes: %v", len(got), err)
	}
	if _, err := walked(filepath.Join(dir, "nothing.jsonl"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	stop := errors.New("enough")
	if err := Walk(o.Path, 0, func([]byte) error { return stop }); !errors.Is(err, stop) || !strings.Contains(err.Error(), m.Segments()[0].File) {
		t.Errorf("%v", err)
	}
}

// TestWalkFinds checks that a fault names its file.
func TestWalkFinds(t *testing.T) {
	const records = 50
	tests := []struct {
		name   string
		change func(m *Mirror, segs []Segment, b *book) error
		seq    func(segs []Segment) uint64
		file   func(segs []Segment) string
		want   string
	}{
		{
			"a segment removed", func(m *Mirror, segs []Segment, _ *book) error { return os.Remove(m.layout.path(segs[1].File)) },
			func(segs []Segment) uint64 { return segs[1].First }, func(segs []Segment) string { return segs[1].File }, "is listed and is not there",
		},
		{
			"a segment and its line removed", func(m *Mirror, segs []Segment, _ *book) error {
				return cmpErr(os.Remove(m.layout.path(segs[1].File)), os.Remove(m.layout.manifest()))
			},
			func(segs []Segment) uint64 { return segs[1].First }, func([]Segment) string { return "" }, "no file holds them",
		},
		{
			"the last segment removed", func(m *Mirror, segs []Segment, _ *book) error {
				return os.Remove(m.layout.path(segs[len(segs)-1].File))
			},
			func(segs []Segment) uint64 { return segs[len(segs)-1].First }, func(segs []Segment) string { return segs[len(segs)-1].File }, "is listed and is not there",
		},
		{
			"a byte changed", func(m *Mirror, segs []Segment, _ *book) error {
				text, err := os.ReadFile(m.layout.path(segs[1].File))
				if err != nil {
					return err
				}
				text[len(text)/2] ^= 1
				return os.WriteFile(m.layout.path(segs[1].File), text, 0o600)
			}, nil, func(segs []Segment) string { return segs[1].File }, "",
		},
		{
			"cut", func(m *Mirror, segs []Segment, _ *book) error {
				return os.Truncate(m.layout.path(segs[1].File), segs[1].PackedBytes/2)
			},
			nil, func(segs []Segment) string { return segs[1].File }, "cannot be read",
		},
		{
			"a line less", func(m *Mirror, segs []Segment, b *book) error {
				return packed(m, segs[1], b.text(segs[1].First, segs[1].Last-1))
			},
			func(segs []Segment) uint64 { return segs[1].Last }, func(segs []Segment) string { return segs[1].File }, "ends before it",
		},
		{
			"a line more", func(m *Mirror, segs []Segment, b *book) error {
				return packed(m, segs[1], b.text(segs[1].First, segs[1].Last+1))
			},
			func(segs []Segment) uint64 { return segs[1].Last + 1 }, func(segs []Segment) string { return segs[1].File }, "after its last record",
		},
		{
			"a line changed", func(m *Mirror, segs []Segment, b *book) error {
				return packed(m, segs[1], bytes.Replace(b.text(segs[1].First, segs[1].Last), []byte("book-"), []byte("nook-"), 1))
			},
			func(segs []Segment) uint64 { return segs[1].First }, func(segs []Segment) string { return segs[1].File }, "does not match its hash",
		},
		{
			"lines lost in the live file", func(m *Mirror, segs []Segment, b *book) error {
				return os.WriteFile(m.layout.live, b.text(records-1, records), 0o600)
			},
			func(segs []Segment) uint64 { return segs[len(segs)-1].Last + 1 }, func([]Segment) string { return "" }, "no file holds them",
		},
		{
			"lines doubled in the live file", func(m *Mirror, segs []Segment, b *book) error {
				return os.WriteFile(m.layout.live, b.text(segs[len(segs)-1].Last, records), 0o600)
			},
			func(segs []Segment) uint64 { return segs[len(segs)-1].Last + 1 }, func([]Segment) string { return "audit.jsonl" }, "stands here again",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, b := t.TempDir(), newBook("book", records)
			o := options(dir, b)
			m := openTest(t, o)
			rest(t, m)
			segs := m.Segments()
			shut(t, m)
			if err := tt.change(m, segs, b); err != nil {
				t.Fatal(err)
			}
			var v audit.Verifier
			err := Walk(o.Path, 0, v.Add)
			fault := faultOf(err)
			if fault == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.file(segs)) {
				t.Fatalf("%v", err)
			}
			if tt.seq != nil && fault.Seq != tt.seq(segs) {
				t.Errorf("at %d, want %d: %v", fault.Seq, tt.seq(segs), err)
			}
			if got := v.Head().Seq + 1; fault.Seq != got {
				t.Errorf("the fault is at %d, the good ones end before %d", fault.Seq, got)
			}
		})
	}
}

// TestWalkTorn visits the whole lines.
func TestWalkTorn(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 7)
	path := filepath.Join(dir, "audit.jsonl")
	text := b.all()
	write(t, path, text[:len(text)-1])
	got, err := walked(path, 0)
	if !errors.Is(err, ErrTorn) || !bytes.Equal(got, b.text(1, 6)) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	write(t, path, bytes.Repeat([]byte("x"), lineBuffer+1))
	if _, err := walked(path, 0); faultOf(err) == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
	write(t, path, nil)
	if got, err := walked(path, 0); err != nil || len(got) != 0 {
		t.Errorf("an empty file: %q, %v", got, err)
	}
}

// BenchmarkWalk reads lines of a usual length from one big segment.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	log := newBook("book", 0)
	content := new(strings.Builder)
	for i := range 60_000 {
		content.Reset()
		for j := range 12 {
			fmt.Fprintf(content, "%x-%d ", i*7919*(j+1), j)
		}
		log.addAt(time.Time{}, content.String()+strings.Repeat("the same in all of them ", 15))
	}
	o := options(dir, log)
	o.RotateBytes = 16 << 20
	m, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	rest(b, m)
	segs := m.Segments()
	shut(b, m)
	b.Logf("%d segments, %.1f to 1", len(segs), float64(segs[0].Bytes)/float64(segs[0].PackedBytes))
	b.SetBytes(int64(len(log.all())))
	b.ReportAllocs()
	b.Run("Walk", func(b *testing.B) {
		b.SetBytes(int64(len(log.all())))
		for b.Loop() {
			if err := Walk(dir, 0, func([]byte) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Compress", func(b *testing.B) {
		plain := filepath.Join(dir, "plain")
		text := log.text(segs[0].First, segs[0].Last)
		write(b, plain, text)
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := squeeze(b.Context(), plain, plain+".out"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Verify", func(b *testing.B) {
		b.SetBytes(segs[0].Bytes)
		for b.Loop() {
			if err := m.Verify(b.Context(), &segs[0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
